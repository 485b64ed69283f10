// A message: what it is, what became of it, and what can be done about it.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { Refusal, type Schemas, answer, api } from "../api";
import { link, messageLink, seriesLink } from "../filter";
import { local, visible, zone } from "../format";
import { Act, Badge, Copy, Facts, Outcome, Page, type Said, Time } from "../parts";
import { Payload, member } from "../payload";
import { useLive } from "../poll";
import { may, tenant } from "../session";

type Message = Schemas["Message"];

export function MessagePage() {
  const id = useLocation().query.id ?? "";
  // "." and ".." are no ids, and a browser takes them out of a path
  return id && id !== "." && id !== ".." ? <One key={id} id={id} /> : (
    <Page title="Message" about="The address names no message.">
      <a href="/console/messages">To the messages</a>
    </Page>
  );
}

/** read gets a message, with the text of its payload as the node has it. */
async function read(id: string, signal: AbortSignal) {
  const text = await answer(api.GET("/v1/messages/{id}", { params: { path: { id } }, parseAs: "text", signal }));
  return { message: JSON.parse(text) as Message, payload: member(text, "payload") };
}

function One({ id }: { id: string }) {
  // what is final can still be redriven, deleted or scheduled anew
  const every = (read?: { message: Message }) => (read && read.message.status !== "PENDING" ? 30_000 : 2000);
  const { value, fault, again } = useLive((signal) => read(id, signal), every, [tenant.value]);
  const [said, setSaid] = useState<Said>();
  const shown = fault instanceof Refusal && fault.problem.status === 404 ? undefined : value;
  return (
    <Page title={visible(id)} fault={fault} about={<><a href="/console/messages">Messages</a> › {shown ? <Kind message={shown.message} /> : "Message"}</>}>
      <div class="row level">
        {shown && <Badge state={shown.message.status} />}
        {shown && may("sched:w") && <Actions message={shown.message} again={again} tell={setSaid} />}
        <button class="outline secondary" onClick={() => again()}>Refresh</button>
      </div>
      <p class="act"><Outcome said={said} /></p>
      {shown && (
        <div class="message">
          <Life message={shown.message} />
          <Details message={shown.message} />
          <Payload raw={shown.payload} contentType={shown.message.contentType} encoding={shown.message.payloadEncoding} file={id} />
          <Headers message={shown.message} />
        </div>
      )}
    </Page>
  );
}

/** Kind says what kind of message it is by its id, and leads to the one that it comes from. */
function Kind({ message: { scheduleId: id, series } }: { message: Message }) {
  if (series) return <>This message recurs: <a href={seriesLink(id)}>to its series</a></>;
  const failed = id.lastIndexOf("!");
  if (failed > 0) return <>Left for a failure channel by <a href={messageLink(id.slice(0, failed))}>{id.slice(0, failed)}</a></>;
  const slash = id.indexOf("/");
  if (slash > 0) return <>An occurrence of <a href={seriesLink(id.slice(0, slash))}>the series {id.slice(0, slash)}</a></>;
  return <>A message that is sent once</>;
}

interface ActionsProps {
  message: Message;
  again(): void;
  tell(said: Said): void;
}

/** Actions are what can be done about a message as it stands. What a series can do is on its page. */
function Actions({ message, again, tell }: ActionsProps) {
  const { scheduleId: id, status, version } = message;
  const scheduleIds = [id];
  const path = { id };
  // These calls take no version. What is not as it was shown when the question came up is left alone.
  const asShown = async (call: () => Promise<unknown>, words: string) => {
    try {
      const now = await answer(api.GET("/v1/messages/{id}", { params: { path } }));
      if (now.version !== version || now.status !== status) throw new Error("It was changed meanwhile: look again.");
      await call();
    } finally {
      again();
    }
    return words;
  };
  const change = async (body: Schemas["Change"]) => {
    const header = { "If-Match": `"${version}"` };
    try {
      return await answer(api.PATCH("/v1/messages/{id}", { params: { path, header }, body }));
    } finally {
      again();
    }
  };
  const move = async (fields: FormData) => {
    const { executionTime } = await change({ executionTime: new Date(String(fields.get("at"))).toISOString() });
    return `It is due at ${local(executionTime)}.`;
  };
  const send = async () => {
    await change({ delay: "PT0S" });
    return "It is due now; it goes out once its channel takes messages.";
  };
  const cancel = () =>
    asShown(() => answer(api.DELETE("/v1/messages/{id}", { params: { path } })), "It is cancelled: it is never delivered.");
  const redrive = () =>
    asShown(async () => only(await answer(api.POST("/v1/messages/redrive", { body: { scheduleIds } }))), "It is pending again, and due now.");
  const purge = () =>
    asShown(async () => only(await answer(api.POST("/v1/messages/purge", { body: { scheduleIds } }))), "It is purged: deleted for good, and its id is free.");

  if (status === "PENDING" && !message.series) {
    return (
      <>
        {/[/!]/.test(id) || ( // the API changes neither occurrences nor what was left for a failure channel
          <>
            <Act key="move" tell={tell} confirm="When should it be due?" fields={<When message={message} />} run={move}>Move the message</Act>
            <Act key="send" tell={tell} confirm="Send the message now?" run={send}
              fields={<Which message={message}>It is then due now, and goes out once its channel takes messages.</Which>}>
              Send the message now
            </Act>
          </>
        )}
        <Act key="cancel" tell={tell} danger confirm="Cancel the message?" run={cancel}
          fields={<Which message={message}>It is then never delivered. If its delivery has already begun, it cannot be cancelled, and the console says so.</Which>}>
          Cancel the message
        </Act>
      </>
    );
  }
  if (status === "DELIVERY_FAILED") {
    return (
      <>
        <Act key="redrive" tell={tell} confirm="Try the message again, as a new one that is due now?" run={redrive}
          fields={<Which message={message}>Its attempts are counted from zero again. If it may have arrived before it failed, it can arrive a second time.</Which>}>
          Redrive the message
        </Act>
        <Act key="purge" tell={tell} danger confirm="Purge the message: delete it for good, with its payload?" run={purge}
          fields={<Which message={message}>It is gone for good: nobody can try it again, and its id is free.</Which>}>
          Purge the message
        </Act>
      </>
    );
  }
  return null;
}

/** Which says which message a question is about, and what a yes means. */
function Which({ message, children }: { message: Message; children?: ComponentChildren }) {
  return (
    <>
      <Facts form="short" label="The message" facts={[
        ["Id", <code>{message.scheduleId}</code>],
        ["Channel", <code>{visible(message.channel)}</code>],
        ["Due", <Time at={message.executionTime} far />],
      ]} />
      {children && <p>{children}</p>}
    </>
  );
}

/** only throws what the API has against the only message of a call. */
function only(done: Schemas["CancelResults"] | Schemas["JobStarted"]) {
  const error = "results" in done && done.results[0]?.error;
  if (error) throw new Refusal(error);
}

const day = 86_400_000;
const quick: [name: string, ms: number][] = [["In 5 min", 300_000], ["In 1 h", 3_600_000], ["Tomorrow at this time", day]];

const field = (time: string | number) => local(time).replace(" ", "T");

/** When asks for a time. */
function When({ message }: { message: Message }) {
  const [at, setAt] = useState(field(message.executionTime));
  return (
    <>
      <Which message={message} />
      <label>
        Due, in {zone}
        <input type="datetime-local" name="at" step={1} required value={at} onInput={(event) => setAt(event.currentTarget.value)} />
      </label>
      <div class="row">
        {quick.map(([name, ms]) => (
          <button key={name} type="button" class="outline secondary" onClick={() => setAt(field(Date.now() + ms))}>{name}</button>
        ))}
      </div>
    </>
  );
}

interface Event {
  /** at: "" is now. */
  at: string;
  name: ComponentChildren;
  words?: string;
}

/** life is what is known of a message's life, in order of time: of several moves the latest. */
function life(m: Message): Event[] {
  const settled = m.deliveredAt ?? m.failedAt ?? m.cancelledAt;
  const due = settled && m.executionTime > settled ? "It would have been due" : "Due";
  const events: Event[] = [{ at: m.createdAt, name: "Scheduled" }];
  if (m.movedAt && m.movedFrom) {
    events.push({ at: m.movedAt, name: <>Moved from <Time at={m.movedFrom} /> to <Time at={m.executionTime} /></> });
  }
  events.push({ at: m.executionTime, name: m.series ? "First occurrence" : due });
  for (const attempt of m.attemptLog ?? []) {
    events.push({ at: attempt.time, name: <><Badge state={attempt.outcome} /> Attempt by {visible(attempt.node)}</>, words: attempt.reason });
  }
  if (m.series?.next) events.push({ at: m.series.next, name: "Next occurrence" });
  if (m.nextAttemptAt && m.attempts > 0) events.push({ at: m.nextAttemptAt, name: "Next attempt" });
  if (m.parked !== undefined) events.push({ at: "", name: "Waits for its channel", words: m.lastError });
  if (m.expiresAt && (!settled || m.expiresAt <= settled)) events.push({ at: m.expiresAt, name: "Expires: it is not published from then on" });
  if (m.deliveredAt) events.push({ at: m.deliveredAt, name: m.series ? "Ended" : "Delivered" });
  if (m.failedAt) events.push({ at: m.failedAt, name: "Failed for good", words: m.lastError });
  if (m.cancelledAt) events.push({ at: m.cancelledAt, name: "Cancelled" });
  const time = (event: Event) => (event.at ? Date.parse(event.at) : Date.now());
  return events.sort((a, b) => time(a) - time(b));
}

const logMax = 20;

function Life({ message }: { message: Message }) {
  const log = message.attemptLog ?? [];
  return (
    <section class="card">
      <h2>History</h2>
      <ol class="timeline">
        {life(message).map((event, i) => (
          <li key={i} class={event.at && Date.parse(event.at) > Date.now() ? "ahead" : ""}>
            <span>{event.name}</span>
            {event.at && <Time at={event.at} far />}
            {event.words && <q>{visible(event.words)}</q>}
          </li>
        ))}
      </ol>
      {log.length >= logMax && <small>Only the latest {logMax} attempts are kept.</small>}
      {message.possibleDuplicate && <p class="fault">What came of an attempt is not known: the consumer may have the message already.</p>}
      {message.lastError && !message.failedAt && message.parked === undefined && <p>Last error: <q>{visible(message.lastError)}</q></p>}
    </section>
  );
}

function retryWords({ maxAttempts, minBackoff, maxBackoff, maxParked }: Schemas["Retry"]): string {
  const words = [
    maxAttempts && `at most ${maxAttempts} attempts`,
    minBackoff && `${minBackoff} before the second`,
    maxBackoff && `at most ${maxBackoff} between two`,
    maxParked && `at most ${maxParked} while its channel is down`,
  ];
  return words.filter(Boolean).join(", ");
}

function Details({ message: m }: { message: Message }) {
  const trace = m.traceparent?.split("-")[1];
  const facts: [name: string, value: ComponentChildren][] = [
    ["Channel", <Channel name={m.channel} />],
    ["Failure channel", m.failureChannel && <Channel name={m.failureChannel} />],
    ["Due", <Time at={m.executionTime} far />],
    ["Expires", m.expiresAt && <Time at={m.expiresAt} far />],
    ["Created", <Time at={m.createdAt} far />],
    ["Attempts", (m.attemptLog?.length ?? 0) > m.attempts ? `${m.attempts} since it was last redriven or replaced` : m.attempts],
    ["Priority", m.priority],
    ["Labels", m.labels && <LabelLinks labels={m.labels} />],
    ["Key", m.key !== undefined && <code>{visible(m.key)}</code>],
    ["Retry", m.retry && retryWords(m.retry)],
    ["Trace", trace && <span class="row level"><code>{visible(trace)}</code> <Copy text={trace}>Copy the trace id</Copy></span>],
    ["Trace state", m.tracestate && <code>{visible(m.tracestate)}</code>],
    ["Bucket", m.bucket],
    ["Version", <code>{m.version}</code>],
  ];
  return (
    <section class="card">
      <h2>Details</h2>
      <Facts facts={facts} />
    </section>
  );
}

function Channel({ name }: { name: string }) {
  const code = <code>{visible(name)}</code>;
  return may("ops:r") ? <a href={link("channels", { channel: name })}>{code}</a> : code;
}

function LabelLinks({ labels }: { labels: string[] }) {
  return (
    <ul class="labels">
      {labels.map((label) => <li key={label}><a href={link("messages", { label })}>{label}</a></li>)}
    </ul>
  );
}

function Headers({ message }: { message: Message }) {
  const headers = Object.entries(message.headers);
  if (headers.length === 0) return null;
  return (
    <section class="card">
      <h2>Headers</h2>
      <table class="headers">
        <thead><tr><th scope="col">Name</th><th scope="col">Value</th></tr></thead>
        <tbody>
          {headers.map(([name, value]) => <tr key={name}><th scope="row">{visible(name)}</th><td>{visible(value)}</td></tr>)}
        </tbody>
      </table>
    </section>
  );
}
