// Small parts that pages share.
import type { ComponentChildren, TargetedEvent } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { NoAnswer } from "./api";
import { distance, local, visible } from "./format";

/** Page is a page with its title, and says why it could not be read. */
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
      <Fault of={props.fault} />
      {props.children}
    </>
  );
}

/** Fault says why something could not be read. If there was no answer the frame says so, for all that is on the page. */
export function Fault({ of }: { of: Error | undefined }) {
  return of && !(of instanceof NoAnswer) ? <p role="alert" class="fault">{visible(of.message)}</p> : null;
}

/** Missing names nodes that did not answer, and says what that means for what is shown of each. */
export function Missing(props: { nodes: string[]; means: string }) {
  return props.nodes.length > 0 ? <p role="alert" class="fault">No answer from {props.nodes.join(", ")}: {props.means}.</p> : null;
}

/** Figure is a number that says what it counts. to: the page that says more. */
export function Figure(props: { name: string; value: string; about: string; alarm?: boolean; to?: string }) {
  const about = useId();
  return (
    <div class={props.alarm ? "figure alarm" : "figure"}>
      <dt>{props.name}</dt>
      <dd aria-describedby={about}>{props.to ? <a href={props.to}>{props.value}</a> : props.value}</dd>
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
  up: "good", "at rest": "off", down: "bad", paused: "off", running: "good", ending: "wait", ended: "off", alive: "good", lost: "bad",
  left: "off", cancelled: "off", done: "good", SKIPPED: "off", delivered: "good", refused: "bad", unknown: "wait",
};

/** Cut is a text that may be longer than its cell; "" is shown as –. */
export function Cut({ text }: { text: string | undefined }) {
  if (!text) return <>–</>;
  const shown = visible(text);
  return <span class="cut" title={shown}>{shown}</span>;
}

/** Facts is a list of facts by their names. Those whose value is undefined or false are left out. */
export function Facts(props: { facts: [name: ComponentChildren, value: ComponentChildren][]; form?: "wide" | "short"; label?: string }) {
  return (
    <dl class={`facts ${props.form ?? ""}`} aria-label={props.label}>
      {props.facts.map(([name, value], i) => value !== undefined && value !== false && <div key={i}><dt>{name}</dt><dd>{value}</dd></div>)}
    </dl>
  );
}

/** Badge shows a state: in words, and in a colour. */
export function Badge(props: { state: string }) {
  return <span class={`badge ${shades[props.state] ?? "wait"}`}>{props.state}</span>;
}

/** Said is what became of a call, in words. */
export interface Said { words: string; bad: boolean }

interface ActProps {
  children: ComponentChildren;
  /** run makes the call, and says what became of it. It gets what the fields hold. */
  run(fields: FormData): Promise<string>;
  danger?: boolean;
  /** quiet: it changes nothing. */
  quiet?: boolean;
  /** confirm is a question that is asked first. */
  confirm?: string;
  /** fields are asked for together with it. */
  fields?: ComponentChildren;
  /** tell is told the outcome, for a button that goes when its call is done. */
  tell?(said: Said): void;
}

/**
 * Act is a button that makes a call, and says under it what became of that. What is asked is what was on the page when
 * the question came up: its words, and what its call does, stay as they are until it is closed, whatever is read meanwhile.
 */
export function Act(props: ActProps) {
  const [busy, setBusy] = useState(false);
  const [asked, setAsked] = useState<ActProps>();
  const [outcome, setOutcome] = useState<Said>();
  const tell = props.tell ?? setOutcome;
  const run = async (act: ActProps, fields = new FormData()) => {
    setAsked(undefined);
    setBusy(true);
    try {
      tell({ words: await act.run(fields), bad: false });
    } catch (fault) {
      tell({ words: (fault as Error).message, bad: true });
    }
    setBusy(false);
  };
  return (
    <span class="act">
      <button class={props.danger ? "danger" : props.quiet ? "outline secondary" : ""} aria-busy={busy}
        onClick={() => !busy && (props.confirm ? setAsked(props) : void run(props))}>
        {props.children}
      </button>
      {asked && (
        <Ask title={asked.confirm!} yes={asked.children} danger={asked.danger} onClose={() => setAsked(undefined)} run={(fields) => run(asked, fields)}>
          {asked.fields}
        </Ask>
      )}
      <Outcome said={outcome} />
    </span>
  );
}

/** Copy puts a text on the clipboard. */
export function Copy(props: { text: string; children: string }) {
  const run = async () => {
    if (!navigator.clipboard) throw new Error("The browser lets a page copy only over HTTPS or from localhost.");
    await navigator.clipboard.writeText(props.text);
    return "Copied.";
  };
  return <Act quiet run={run}>{props.children}</Act>;
}

/** Outcome says what became of a call. */
export function Outcome({ said }: { said?: Said }) {
  return <output class={said?.bad ? "fault" : "done"} role="status">{said && visible(said.words)}</output>;
}

interface AskProps {
  title: string;
  /** yes says what the button does. */
  yes: ComponentChildren;
  danger?: boolean;
  /** run gets what the fields hold. It makes the call, and closes the dialog when that is done. */
  run(fields: FormData): Promise<void>;
  onClose(): void;
  children: ComponentChildren;
}

/**
 * Ask is a dialog with a form that makes a call: it stays and says why if run throws. It cannot be closed while the call
 * is under way, as nobody would be told what became of it.
 */
export function Ask(props: AskProps) {
  const [busy, setBusy] = useState(false);
  const [fault, setFault] = useState("");
  const submit = async (event: TargetedEvent<HTMLFormElement>) => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget);
    setBusy(true);
    setFault("");
    try {
      await props.run(fields);
    } catch (failed) {
      setFault((failed as Error).message);
    }
    setBusy(false);
  };
  return (
    <Dialog title={props.title} stays={busy} onClose={props.onClose}>
      <form onSubmit={(event) => void submit(event)}>
        {props.children}
        {fault && <p role="alert" class="fault">{visible(fault)}</p>}
        <footer>
          <button type="button" class="secondary" disabled={busy} onClick={props.onClose}>Leave it</button>
          <button class={props.danger ? "danger" : ""} aria-busy={busy} disabled={busy}>{props.yes}</button>
        </footer>
      </form>
    </Dialog>
  );
}

/** Dialog lies over the page until it is closed, by Escape, too. stays: nothing closes it at present. */
export function Dialog(props: { title: string; stays?: boolean; onClose(): void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const title = useId();
  useLayoutEffect(() => {
    const shown = dialog.current!;
    shown.showModal();
    return () => shown.close(); // gives the focus back, as long as the dialog is in the document
  }, []);
  const closed = () => {
    if (!dialog.current) return; // it closes as it goes: another dialog may be there by now
    if (props.stays) dialog.current.showModal(); // a second Escape closes it without asking
    else props.onClose();
  };
  return (
    <dialog ref={dialog} aria-labelledby={title} onCancel={(event) => props.stays && event.preventDefault()} onClose={closed}>
      <article>
        <h2 id={title}>{visible(props.title)}</h2>
        {props.children}
      </article>
    </dialog>
  );
}
