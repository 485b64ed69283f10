// Small parts that pages share.
import type { ComponentChildren, TargetedEvent } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { NoAnswer } from "./api";
import { distance, local } from "./format";

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
  return of && !(of instanceof NoAnswer) ? <p role="alert" class="fault">{of.message}</p> : null;
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
  up: "good", down: "bad", paused: "off", running: "good", ending: "wait", ended: "off", alive: "good", lost: "bad",
  left: "off", cancelled: "off", done: "good", SKIPPED: "off", delivered: "good", refused: "bad", unknown: "wait",
};

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

/** Act is a button that makes a call, and says under it what became of that. */
export function Act(props: ActProps) {
  const [busy, setBusy] = useState(false);
  const [asked, setAsked] = useState(false);
  const [outcome, setOutcome] = useState<Said>();
  const tell = props.tell ?? setOutcome;
  const run = async (fields = new FormData()) => {
    setAsked(false);
    setBusy(true);
    try {
      tell({ words: await props.run(fields), bad: false });
    } catch (fault) {
      tell({ words: (fault as Error).message, bad: true });
    }
    setBusy(false);
  };
  const submit = (event: TargetedEvent<HTMLFormElement>) => {
    event.preventDefault();
    void run(new FormData(event.currentTarget));
  };
  return (
    <span class="act">
      <button class={props.danger ? "danger" : props.quiet ? "outline secondary" : ""} aria-busy={busy}
        onClick={() => !busy && (props.confirm ? setAsked(true) : void run())}>
        {props.children}
      </button>
      {asked && (
        <Dialog title={props.confirm!} onClose={() => setAsked(false)}>
          <form onSubmit={submit}>
            {props.fields}
            <footer>
              <button type="button" class="secondary" onClick={() => setAsked(false)}>No</button>
              <button class={props.danger ? "danger" : ""}>{props.children}</button>
            </footer>
          </form>
        </Dialog>
      )}
      <Outcome said={outcome} />
    </span>
  );
}

/** Outcome says what became of a call. */
export function Outcome({ said }: { said?: Said }) {
  return <output class={said?.bad ? "fault" : "done"} role="status">{said?.words}</output>;
}

interface AskProps {
  title: string;
  /** yes says what the button does. */
  yes: string;
  danger?: boolean;
  /** run makes the call, and closes the dialog when that is done. */
  run(): Promise<void>;
  onClose(): void;
  children: ComponentChildren;
}

/** Ask is a dialog with a form that makes a call: it stays and says why if that is not done. */
export function Ask(props: AskProps) {
  const [busy, setBusy] = useState(false);
  const [fault, setFault] = useState("");
  const run = async () => {
    setBusy(true);
    setFault("");
    try {
      await props.run();
    } catch (failed) {
      setFault((failed as Error).message);
    }
    setBusy(false);
  };
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      <form
        class="ask"
        onSubmit={(event) => {
          event.preventDefault();
          void run();
        }}
      >
        {props.children}
        {fault && <p role="alert" class="fault">{fault}</p>}
        <footer>
          <button type="button" class="secondary" onClick={props.onClose}>Cancel</button>
          <button class={props.danger ? "danger" : ""} aria-busy={busy} disabled={busy}>{props.yes}</button>
        </footer>
      </form>
    </Dialog>
  );
}

/** Dialog lies over the page until it is closed, by Escape, too. */
export function Dialog(props: { title: string; onClose(): void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const here = useRef(true);
  const title = useId();
  useLayoutEffect(() => {
    const shown = dialog.current!;
    shown.showModal();
    return () => {
      here.current = false; // the browser says later that it is closed, when another one may be open
      shown.close(); // gives the focus back, as long as the dialog is in the document
    };
  }, []);
  return (
    <dialog ref={dialog} aria-labelledby={title} onClose={() => here.current && props.onClose()}>
      <article>
        <h2 id={title}>{props.title}</h2>
        {props.children}
      </article>
    </dialog>
  );
}
