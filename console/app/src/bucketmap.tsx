// The map of buckets: a cell for each, in the colour of its owner.
import type { Signal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { Schemas } from "./api";
import { local, ms } from "./format";
import type { Watch } from "./watch";

type Bucket = Schemas["Bucket"];

/** lateMs is the lag from which on a bucket is marked. */
export const lateMs = 10_000;

// A change of the owner shines for this long.
const freshMs = 60_000;

// Only parts in which something has changed are drawn again.
const partSize = 64;

interface Props {
  watch: Watch;
  /** node: the buckets of others step back; "": none do. */
  node: string;
  picked: Signal<number | undefined>;
  /** settle is called when the choice rests. */
  settle(): void;
}

/** BucketMap is a list of options, of which arrow keys choose one. */
export function BucketMap(props: Props) {
  const { watch } = props;
  const list = useRef<HTMLDivElement>(null);
  const { buckets } = watch;
  const picked = buckets.find((b) => b.bucket === props.picked.value)?.bucket;
  const parts = [];
  for (let i = 0; i < buckets.length; i += partSize) parts.push(buckets.slice(i, i + partSize));
  useEffect(() => {
    if (picked !== undefined) document.getElementById(cellId(picked))?.scrollIntoView({ block: "nearest" });
  }, [picked]);

  const onKeyDown = (event: KeyboardEvent) => {
    const columns = getComputedStyle(list.current!).gridTemplateColumns.split(" ").length;
    const last = buckets.length - 1;
    const steps: Record<string, number> = {
      ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, PageDown: 8 * columns, PageUp: -8 * columns, Home: -last, End: last,
    };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const at = props.picked.value; // later than what is drawn
    props.picked.value = at === undefined ? 0 : Math.min(Math.max(at + step, 0), last);
  };
  return (
    <div class={`map ${sizeOf(buckets.length)}`} role="listbox" aria-label="Buckets" tabIndex={0} ref={list}
      aria-activedescendant={picked === undefined ? undefined : cellId(picked)}
      onKeyDown={onKeyDown} onKeyUp={props.settle}
      onClick={(event) => {
        const cell = (event.target as Element).closest<HTMLElement>("[data-bucket]");
        if (!cell) return;
        props.picked.value = Number(cell.dataset.bucket);
        props.settle();
      }}>
      {parts.map((part) => <Part key={part[0]!.bucket} buckets={part} watch={watch} node={props.node} picked={picked} />)}
    </div>
  );
}

const cellId = (bucket: number) => `bucket-${bucket}`;

function sizeOf(n: number): string {
  if (n <= 256) return "large";
  return n <= 2048 ? "middle" : "small";
}

function Part({ buckets, watch, node, picked }: { buckets: Bucket[]; watch: Watch; node: string; picked: number | undefined }) {
  const looks = buckets.map((b) => lookOf(b, watch, node, picked));
  const key = JSON.stringify(looks);
  return useMemo(
    () => (
      <div class="part" role="none">
        {buckets.map((b, i) => {
          const { kind, label, colour } = looks[i]!;
          return (
            // A new token makes a new cell, which shines anew.
            <div key={`${b.bucket}/${b.token}`} id={cellId(b.bucket)} data-bucket={b.bucket} role="option"
              aria-selected={b.bucket === picked} aria-label={label} title={label} class={kind} style={ownColour(colour)}>
              {watch.buckets.length <= 256 && b.bucket}
            </div>
          );
        })}
      </div>
    ),
    [key],
  );
}

const ownColour = (n: number) => (n ? { "--own": `var(--line-${n})` } : {});

function lookOf(b: Bucket, watch: Watch, node: string, picked: number | undefined) {
  const moved = watch.moved.get(b.bucket);
  let kind = "cell";
  if (b.owner === "") kind += " free";
  if (b.lag > lateMs) kind += " late";
  if (moved !== undefined && watch.at - moved < freshMs) kind += " fresh";
  if (node !== "" && b.owner !== node) kind += " other";
  if (b.bucket === picked) kind += " picked";
  let label = `Bucket ${b.bucket}, owner ${b.owner || "nobody"}`;
  if (moved !== undefined) label += ` since ${local(moved)}`;
  if (b.lag > lateMs) label += `, lags by more than ${ms(lateMs)}`;
  return { kind, label, colour: watch.colours.get(b.owner) ?? 0 };
}
