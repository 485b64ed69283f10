// Cluster: which nodes there are, and who owns which bucket, live.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { type Schemas, answer, api } from "../api";
import { BucketMap, lateMs } from "../bucketmap";
import { useQuery } from "../filter";
import { count, local, ms } from "../format";
import { Badge, Facts, Figure, Missing, Page, Time } from "../parts";
import { useLive } from "../poll";
import { type Column, Table } from "../table";
import { type Change, type Watch, isSilent, look } from "../watch";

type Bucket = Schemas["Bucket"];
type Member = Schemas["Member"];

// With the default of --clock-skew-max a node whose clock is a second ahead owns no buckets.
const farMs = 500;

export function Cluster() {
  const seen = useRef<Watch>(undefined);
  const { value: watch, fault } = useLive(async (signal) => {
    const cluster = await answer(api.GET("/v1/cluster", { signal }));
    return (seen.current = look(seen.current, cluster, Date.now()));
  }, 1000);
  return (
    <Page title="Cluster" fault={fault} about="The nodes, from gossip, and the owner of each bucket, from the store, as the node that answers sees them. This page reads them every second.">
      {watch && <Faults watch={watch} />}
      {watch && <Figures watch={watch} />}
      {watch && <Nodes watch={watch} />}
      {watch && <Buckets watch={watch} />}
    </Page>
  );
}

function Faults({ watch }: { watch: Watch }) {
  const silent = watch.members.filter((m) => isSilent(watch, m)).map((m) => m.node);
  return (
    <>
      <Missing nodes={silent} means="its clock and lease are not known" />
      {watch.unread && (
        <p role="alert" class="fault">
          The store does not answer node {watch.node}, so who owns which bucket is not known
          {watch.buckets.length > 0 && " now: the page shows what was true before"}.
        </p>
      )}
    </>
  );
}

function Figures({ watch }: { watch: Watch }) {
  const alive = watch.members.filter((m) => m.state === "alive").length;
  const lost = watch.members.some((m) => m.state === "lost");
  const free = watch.buckets.filter((b) => b.owner === "").length;
  const lag = watch.buckets.reduce((most, b) => Math.max(most, b.lag), 0);
  return (
    <dl class="figures">
      <Figure name="Nodes" value={count(alive)} alarm={lost} about={`alive, of ${count(watch.members.length)} that node ${watch.node} knows`} />
      <Figure name="Buckets" value={count(watch.buckets.length)} about="into which the messages are divided" />
      <Figure name="Without an owner" value={count(free)} alarm={free > 0} about="Buckets that nobody serves at present" />
      <Figure name="Largest lag" value={lag > 0 ? ms(lag) : "none"} alarm={lag > lateMs} about="For how long the earliest message has been due, at most; of buckets without an owner it is not known" />
    </dl>
  );
}

interface NodeRow { member: Member; here: boolean; silent: boolean; buckets: number; colour: number }

const nodeColumns: Column<NodeRow>[] = [
  { name: "Node", value: (r) => r.member.node, cell: (r) => <><i class={`swatch c${r.colour}`} />{r.member.node}{r.here && <small> answers here</small>}</> },
  { name: "Address", value: (r) => r.member.address },
  { name: "State", value: (r) => r.member.state, cell: (r) => <><Badge state={r.member.state} />{r.silent && <strong class="bad"> does not answer</strong>}</> },
  { name: "Buckets", value: (r) => r.buckets, number: true, cell: (r) => count(r.buckets) },
  { name: "Clock", value: (r) => r.member.clockOffsetMs ?? -Infinity, number: true, cell: (r) => <Clock offset={r.member.clockOffsetMs} /> },
  { name: "Lease left", value: (r) => r.member.lease?.leftMs ?? -1, cell: (r) => <Lease row={r} /> },
];

function Clock({ offset }: { offset: number | undefined }) {
  if (offset === undefined) return <>–</>;
  const words = `${ms(Math.abs(offset))} ${offset < 0 ? "behind" : "ahead"}`;
  return Math.abs(offset) > farMs ? <strong class="bad">{words}: set the clock</strong> : <>{words}</>;
}

function Lease({ row: { member } }: { row: NodeRow }) {
  const { lease } = member;
  if (!lease) return <>–</>;
  // Up to three fifths of a lease a pause costs nothing.
  const low = lease.leftMs < 0.4 * lease.lastsMs;
  return (
    <span class="lease">
      <progress class={low ? "low" : ""} value={lease.leftMs} max={lease.lastsMs} aria-label={`Lease of ${member.node}`} />
      {ms(lease.leftMs)} of {ms(lease.lastsMs)}
    </span>
  );
}

function Nodes({ watch }: { watch: Watch }) {
  const rows = useMemo(() => {
    const owned = ownedOf(watch);
    return watch.members.map((member): NodeRow => ({
      member,
      here: member.node === watch.node,
      silent: isSilent(watch, member),
      buckets: owned.get(member.node) ?? 0,
      colour: watch.colours.get(member.node) ?? 0,
    }));
  }, [watch]);
  return (
    <section class="block">
      <h2>Nodes</h2>
      <p class="about">The clock is compared with the store's. Others take a node's buckets when its lease has ended.</p>
      <Table label="Nodes" columns={nodeColumns} rows={rows} id={(r) => r.member.node} sortable empty="No node is known." />
    </section>
  );
}

function ownedOf(watch: Watch): Map<string, number> {
  const owned = new Map<string, number>();
  for (const b of watch.buckets) owned.set(b.owner, (owned.get(b.owner) ?? 0) + 1);
  return owned;
}

/** useChoice keeps in the URL which node's buckets are shown and which bucket is looked at. */
function useChoice() {
  const { query, set } = useQuery();
  const inUrl = /^\d{1,5}$/.test(query.bucket ?? "") ? Number(query.bucket) : undefined;
  const picked = useSignal(inUrl);
  const written = useRef(inUrl);
  useEffect(() => {
    if (inUrl !== written.current) picked.value = written.current = inUrl;
  }, [inUrl]);
  const bucket = () => String(picked.value ?? "");
  return {
    node: query.node ?? "",
    picked,
    // Browsers refuse too many new URLs in a short time, which a key that is held down would make.
    settle: () => {
      if (picked.value === written.current) return;
      written.current = picked.value;
      set({ bucket: bucket() }, true);
    },
    choose: (node: string) => set({ node, bucket: bucket() }),
  };
}

function Buckets({ watch }: { watch: Watch }) {
  const choice = useChoice();
  const picked = watch.buckets.find((b) => b.bucket === choice.picked.value);
  return (
    <>
      <div class="buckets">
        <section class="card">
          <h2>Who owns which bucket</h2>
          <Legend watch={watch} node={choice.node} choose={choice.choose} />
          {watch.buckets.length > 0 && <BucketMap watch={watch} node={choice.node} picked={choice.picked} settle={choice.settle} />}
          <Details bucket={picked} watch={watch} />
        </section>
        <Changes watch={watch} />
      </div>
      <BucketTable watch={watch} node={choice.node} />
    </>
  );
}

function Legend(props: { watch: Watch; node: string; choose(node: string): void }) {
  const owned = [...ownedOf(props.watch)].sort(([a], [b]) => a.localeCompare(b, "en"));
  return (
    <div class="legend">
      {owned.map(([node, n]) => node && (
        <button key={node} class="secondary outline" aria-pressed={props.node === node} onClick={() => props.choose(props.node === node ? "" : node)}>
          <i class={`swatch c${props.watch.colours.get(node)}`} />{node} <small>{count(n)}</small>
        </button>
      ))}
      {owned.some(([node]) => node === "") && <span><i class="swatch cell free" />nobody</span>}
      <span><i class="swatch cell fresh" />owner changed in the last minute</span>
      <span><i class="swatch cell late" />lags by more than {ms(lateMs)}</span>
    </div>
  );
}

function Details({ bucket: b, watch }: { bucket: Bucket | undefined; watch: Watch }) {
  if (!b) return <p class="about">Click a bucket, or go through them with the arrow keys, to see more of it.</p>;
  const moved = watch.moved.get(b.bucket);
  return (
    <Facts form="short" label={`Bucket ${b.bucket}`} facts={[
      ["Bucket", b.bucket],
      ["Owner", <>{b.owner || "nobody"}{moved !== undefined && <small> since {local(moved)}</small>}</>],
      ["Token", count(b.token)],
      ["Lag", ms(b.lag)],
      ["Settled up to", b.checkpoint ? <Time at={b.checkpoint} /> : "–"],
      ["Claimed up to", b.claimed ? <Time at={b.claimed} /> : "–"],
    ]} />
  );
}

const changeColumns: Column<Change>[] = [
  { name: "Seen at", value: (c) => c.at, cell: (c) => <Time at={new Date(c.at).toISOString()} /> },
  { name: "What", value: (c) => c.what },
  { name: "Token", value: (c) => c.token ?? "", number: true },
];

function Changes({ watch }: { watch: Watch }) {
  return (
    <section class="changes">
      <h2>What changed while this page is open</h2>
      <p class="about" role="status">{watch.changes.length > 0 && summary(watch)}</p>
      <Table label="What changed while this page is open" columns={changeColumns} rows={watch.changes} id={(c) => String(c.id)}
        empty={`Nothing since ${local(watch.since)}.`} />
    </section>
  );
}

function summary({ changes, count: total }: Watch): string {
  const latest = changes.filter((c) => c.at === changes[0]!.at);
  const moved = latest.filter((c) => c.token !== undefined).length;
  const words = latest.filter((c) => c.token === undefined).map((c) => c.what);
  if (moved > 0) words.push(moved === 1 ? "1 bucket changed its owner" : `${count(moved)} buckets changed their owners`);
  const shown = total > changes.length ? ` The latest ${count(changes.length)} of ${count(total)} changes are shown.` : "";
  return `Latest, ${local(changes[0]!.at)}: ${words.join("; ")}.${shown}`;
}

interface BucketRow extends Bucket { since: number | undefined; colour: number }

const bucketColumns: Column<BucketRow>[] = [
  { name: "Bucket", value: (b) => b.bucket, number: true },
  { name: "Owner", value: (b) => b.owner, cell: (b) => (b.owner ? <><i class={`swatch c${b.colour}`} />{b.owner}</> : "nobody") },
  { name: "Token", value: (b) => b.token, number: true, cell: (b) => count(b.token) },
  { name: "Lag", value: (b) => b.lag, number: true, cell: (b) => <Lag of={b} /> },
  { name: "Settled up to", value: (b) => b.checkpoint ?? "", cell: (b) => (b.checkpoint ? <Time at={b.checkpoint} /> : "–") },
  { name: "Claimed up to", value: (b) => b.claimed ?? "", cell: (b) => (b.claimed ? <Time at={b.claimed} /> : "–") },
  { name: "Owner since", value: (b) => b.since ?? 0, cell: (b) => (b.since === undefined ? <small>before this page</small> : local(b.since)) },
];

function Lag({ of: { owner, lag } }: { of: Schemas["Bucket"] }) {
  if (owner === "") return <>–</>;
  return lag > lateMs ? <strong class="bad">{ms(lag)}</strong> : <>{ms(lag)}</>;
}

function BucketTable({ watch, node }: { watch: Watch; node: string }) {
  const rows = useMemo(
    () =>
      watch.buckets
        .filter((b) => node === "" || b.owner === node)
        .map((b): BucketRow => ({ ...b, since: watch.moved.get(b.bucket), colour: watch.colours.get(b.owner) ?? 0 })),
    [watch, node],
  );
  return (
    <section class="block">
      <h2>{node ? `Buckets of ${node}` : "Buckets"}</h2>
      <p class="about">
        The token grows with each change of owner. The lag is how long the earliest message that is not settled has been due; of
        another node's bucket it is what that can be at most, if the owner claims what falls due. Of a bucket without an owner it
        is not known.
      </p>
      <Table label="Buckets" columns={bucketColumns} rows={rows} id={(b) => String(b.bucket)} sortable empty="No buckets." />
    </section>
  );
}
