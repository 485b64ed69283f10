// Small parts that pages share.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { distance, local } from "./format";

/** Page is a page with its title, and says why what it shows may be old. */
export function Page(props: { title: string; about: ComponentChildren; fault?: Error; children: ComponentChildren }) {
  useEffect(() => {
    document.title = `${props.title} · Postdate`;
  }, [props.title]);
  return (
    <>
      <header class="title">
        <h1>{props.title}</h1>
        <p>{props.about}</p>
      </header>
      {props.fault && <p role="alert" class="fault">{props.fault.message}</p>}
      {props.children}
    </>
  );
}

/** Figure is a number that says what it counts. */
export function Figure(props: { name: string; value: string; about: string; alarm?: boolean }) {
  const about = useId();
  return (
    <div class={props.alarm ? "figure alarm" : "figure"}>
      <dt>{props.name}</dt>
      <dd aria-describedby={about}>{props.value}</dd>
      <dd class="about" id={about}>{props.about}</dd>
    </div>
  );
}

/** Time shows a time of the API in the browser's time zone, with its distance from now. */
export function Time(props: { at: string; far?: boolean }) {
  return (
    <time dateTime={props.at} title={props.at}>
      {local(props.at)}
      {props.far && <small> {distance(props.at)}</small>}
    </time>
  );
}

const shades: Record<string, string> = {
  PENDING: "wait", DELIVERED: "good", DELIVERY_FAILED: "bad", CANCELLED: "off", EXPIRED: "off",
  up: "good", down: "bad", paused: "off", delivered: "good", refused: "bad", unknown: "wait",
};

/** Badge shows a state: in words, and in a colour. */
export function Badge(props: { state: string }) {
  return <span class={`badge ${shades[props.state] ?? "wait"}`}>{props.state}</span>;
}

/** Act is a button that makes a call, and says under it what became of that. */
export function Act(props: { children: ComponentChildren; run(): Promise<string>; danger?: boolean; confirm?: string }) {
  const [busy, setBusy] = useState(false);
  const [asked, setAsked] = useState(false);
  const [outcome, setOutcome] = useState<{ words: string; bad: boolean }>();
  const run = async () => {
    setAsked(false);
    setBusy(true);
    try {
      setOutcome({ words: await props.run(), bad: false });
    } catch (fault) {
      setOutcome({ words: (fault as Error).message, bad: true });
    }
    setBusy(false);
  };
  return (
    <span class="act">
      <button class={props.danger ? "danger" : ""} aria-busy={busy} disabled={busy}
        onClick={() => (props.confirm ? setAsked(true) : void run())}>
        {props.children}
      </button>
      {asked && (
        <Dialog title={props.confirm!} onClose={() => setAsked(false)}>
          <footer>
            <button class="secondary" onClick={() => setAsked(false)}>No</button>
            <button class={props.danger ? "danger" : ""} onClick={() => void run()}>{props.children}</button>
          </footer>
        </Dialog>
      )}
      <output class={outcome?.bad ? "fault" : "done"} role="status">{outcome?.words}</output>
    </span>
  );
}

/** Dialog lies over the page until it is closed, by Escape, too. */
export function Dialog(props: { title: string; onClose(): void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const title = useId();
  useEffect(() => dialog.current!.showModal(), []);
  return (
    <dialog ref={dialog} aria-labelledby={title} onClose={props.onClose}>
      <article>
        <h2 id={title}>{props.title}</h2>
        {props.children}
      </article>
    </dialog>
  );
}
