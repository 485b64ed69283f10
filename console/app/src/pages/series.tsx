// Series: the messages that recur, and one of them with what comes of its rule.
import { useRef, useState } from "preact/hooks";
import { type Schemas, answer, api } from "../api";
import { ChannelField, Field, LabelField, type Query, TimeField, messageLink, seriesLink, useQuery } from "../filter";
import { count, distance, inZone, local, zone } from "../format";
import { Further, usePaged } from "../paged";
import { Act, Badge, Cut, Facts, Fault, Figure, Outcome, Page, type Said, Time } from "../parts";
import { useLive } from "../poll";
import { brief, factsOf } from "../rule";
import { may, tenant } from "../session";
import { type Column, Table } from "../table";

type Message = Schemas["Message"];

/** Recurring is a message that recurs. */
type Recurring = Message & { recurrence: Schemas["Recurrence"]; series: Schemas["Series"] };

export function Series() {
  const by = useQuery();
  const { id } = by.query;
  return id ? <One key={id} id={id} by={by} /> : <List by={by} />;
}

function state({ status, series }: Recurring): string {
  if (status === "CANCELLED") return "cancelled";
  if (status !== "PENDING") return "ended";
  if (series.ending) return "ending";
  return series.paused ? "paused" : "running";
}

const columns: Column<Recurring>[] = [
  {
    name: "Series",
    value: (m) => m.scheduleId,
    cell: (m) => <a href={seriesLink(m.scheduleId)}><Cut text={m.scheduleId} /></a>,
  },
  { name: "State", value: state, cell: (m) => <Badge state={state(m)} /> },
  { name: "Rule", value: (m) => brief(m.recurrence), cell: (m) => <code class="cut" title={brief(m.recurrence)}>{brief(m.recurrence)}</code> },
  { name: "Next", value: (m) => m.series.next ?? "", cell: (m) => (m.series.next ? <Time at={m.series.next} /> : "–") },
  { name: "Last outcome", value: (m) => m.series.last ?? "", cell: (m) => <Last outcome={m.series.history.at(-1)} /> },
  { name: "Fired", value: (m) => m.series.fired, cell: (m) => count(m.series.fired), number: true },
  { name: "Failed", value: (m) => m.series.failed, cell: (m) => count(m.series.failed), number: true },
  { name: "Skipped", value: (m) => m.series.skipped, cell: (m) => count(m.series.skipped), number: true },
  { name: "Channel", value: (m) => m.channel, cell: (m) => <Cut text={m.channel} /> },
];

function Last({ outcome }: { outcome?: Schemas["Outcome"] }) {
  if (!outcome) return <>none yet</>;
  return <span title={`the occurrence of ${local(outcome.executionTime)}`}><Badge state={outcome.status} /></span>;
}

function List({ by }: { by: Query }) {
  const { idPrefix, label, channel } = by.query;
  const list = usePaged(
    async (cursor, signal) => {
      const query = { recurring: true, idPrefix, label, channel, cursor, limit: 100 };
      const page = await answer(api.GET("/v1/messages", { params: { query }, signal }));
      return { rows: page.messages as Recurring[], next: page.nextCursor, searchedUntil: page.searchedUntil };
    },
    { id: (m) => m.scheduleId, everyMs: 3000, on: [idPrefix, label, channel, tenant.value] },
  );
  const filtered = Boolean(idPrefix || label || channel);
  const rows = list.value ?? [];
  return (
    <Page title="Series" fault={list.fault}
      about="Messages that recur by a rule, in the order of their first occurrences. Fired, failed and skipped count occurrences since the series was created.">
      <form class="row" aria-label="Filter" onSubmit={(event) => event.preventDefault()}>
        <Field label="Id begins with" name="idPrefix" by={by} />
        <LabelField by={by} seen={rows.flatMap((m) => m.labels ?? [])} />
        <ChannelField by={by} seen={rows.map((m) => m.channel)} />
      </form>
      {list.value && (
        <Table label="Series" columns={columns} rows={list.value} id={(m) => m.scheduleId} onEnd={list.more}
          empty={empty(list, filtered)} />
      )}
      {list.stopped && (
        <p class="row level">
          <span>None among those that were looked at last, and more follow.</span>
          <Further list={list} />
        </p>
      )}
    </Page>
  );
}

function empty({ complete, stopped }: { complete: boolean; stopped: boolean }, filtered: boolean): string {
  if (!complete) return stopped ? "None so far." : "None among those that were looked at so far. The search goes on.";
  return filtered ? "No series passes these filters." : "There is no series. A message with a recurrence makes one.";
}

function One({ id, by }: { id: string; by: Query }) {
  const { value, fault, again } = useLive(
    (signal) => answer(api.GET("/v1/messages/{id}", { params: { path: { id } }, signal })),
    2000,
    [tenant.value],
  );
  return (
    <Page title={`Series ${id}`} fault={fault}
      about={<>How it stands, what came of its last occurrences, and when the next ones come. <a href="/console/series">All series</a></>}>
      {value && !value.recurrence && (
        <p class="empty">This message does not recur. <a href={messageLink(id)}>To the message</a></p>
      )}
      {value?.recurrence && <Whole m={value as Recurring} by={by} again={again} />}
    </Page>
  );
}

function Whole({ m, by, again }: { m: Recurring; by: Query; again(): void }) {
  const { series } = m;
  return (
    <div class="series">
      <p>
        <Badge state={state(m)} /> to <code>{m.channel}</code>.{" "}
        <a href={messageLink(m.scheduleId)}>Its message, with the payload</a>
      </p>
      {may("sched:w") && <Actions m={m} again={again} />}
      <dl class="figures">
        <Figure name="Next" value={series.next ? distance(series.next) : "–"} about={nextWords(m)} />
        <Figure name="Fired" value={count(series.fired)} about="Occurrences whose delivery was begun or given up, and those that were triggered" />
        <Figure name="Failed" value={count(series.failed)} alarm={series.failed > 0} about="Of those, the ones that were not delivered and are not tried again" />
        <Figure name="Skipped" value={count(series.skipped)} about="Occurrences that were never begun: by the misfire policy, a pause, a change of the rule or a cancel" />
      </dl>
      <section class="card">
        <h2>Rule</h2>
        <Facts form="wide" facts={factsOf(m.recurrence, m.createdAt)} />
      </section>
      <section class="card">
        <h2>Last outcomes</h2>
        <History m={m} />
      </section>
      <Preview m={m} by={by} />
    </div>
  );
}

function nextWords(m: Recurring): string {
  if (m.series.next) return `The next occurrence: ${local(m.series.next)}`;
  if (state(m) === "paused") return "None begins while the series is paused";
  return state(m) === "ending" ? "It ends with the occurrence that is on its way" : "None follows";
}

function History({ m }: { m: Recurring }) {
  const { history } = m.series;
  const own: Column<Schemas["Outcome"]> = {
    name: "Message",
    value: () => "",
    cell: (o) => o.status === "PENDING" && <a href={messageLink(`${m.scheduleId}/${o.executionTime}`)}>Its own message</a>,
  };
  const outcomes: Column<Schemas["Outcome"]>[] = [
    { name: "Occurrence", value: (o) => o.executionTime, cell: (o) => <Time at={o.executionTime} /> },
    { name: "Outcome", value: (o) => o.status, cell: (o) => <Badge state={o.status} /> },
    { name: "When", value: (o) => o.at, cell: (o) => <Time at={o.at} /> },
    { name: "Attempts", value: (o) => o.attempts ?? "–", number: true },
    { name: "Skipped", value: (o) => (o.skipped ? count(o.skipped) : "–"), number: true },
    ...(history.some((o) => o.status === "PENDING") ? [own] : []),
  ];
  return (
    <>
      <Table label="Last outcomes" columns={outcomes} rows={history.toReversed()} id={(o) => `${o.executionTime} ${o.at}`}
        empty="No occurrence has come yet." />
      <small>The last 20, the latest first. Several that were skipped together are one row, with their number from its time on.</small>
    </>
  );
}

function Actions({ m, again }: { m: Recurring; again(): void }) {
  const id = m.scheduleId;
  const path = { path: { id } };
  const [said, tell] = useState<Said>(); // a button goes when its call is done
  const [begun, setBegun] = useState(""); // the id of the occurrence that was triggered last
  const stands = state(m);
  const goesOn = stands === "running" || stands === "paused";
  const pause = async (paused: boolean) => {
    try {
      const header = { "If-Match": `"${m.version}"` };
      await answer(api.PATCH("/v1/messages/{id}", { params: { ...path, header }, body: { paused } }));
    } finally {
      again();
    }
    if (paused) return "It is paused. An occurrence that was already due may still be delivered, and no other.";
    return "It is resumed, with the first occurrence that is still to come.";
  };
  const trigger = async () => {
    const { scheduleId } = await answer(api.POST("/v1/messages/{id}/trigger", { params: path }));
    again();
    setBegun(scheduleId);
    return `An occurrence was begun, as message ${scheduleId}.`;
  };
  const cancel = async () => {
    try {
      await answer(api.DELETE("/v1/messages/{id}", { params: path }));
    } finally {
      again();
    }
    return "It is cancelled: no occurrence begins any more.";
  };
  return (
    <div class="act">
      <div class="row">
        {goesOn && (
          <Act key="pause" tell={tell} run={() => pause(stands === "running")}>
            {stands === "running" ? "Pause the series" : "Resume the series"}
          </Act>
        )}
        {goesOn && (
          <Act key="trigger" tell={tell} run={trigger} confirm={`Begin an occurrence of ${id} now?`}
            fields={<p>It is delivered out of turn, with the payload and to the channel that the series has now. The rule does not count it, and what follows stays.</p>}>
            Trigger an occurrence
          </Act>
        )}
        {(goesOn || stands === "ending") && (
          <Act key="cancel" tell={tell} run={cancel} danger confirm={`Cancel the series ${id}?`}
            fields={<p>It ends for good, and so do those of its occurrences that are being retried or were triggered. If the delivery of one may have begun, the answer says so, and the series ends after it.</p>}>
            Cancel the series
          </Act>
        )}
      </div>
      <Outcome said={said} />
      {begun && <a href={messageLink(begun)}>The occurrence that was triggered</a>}
    </div>
  );
}

const previewCount = 10;

function Preview({ m, by }: { m: Recurring; by: Query }) {
  const { from } = by.query;
  const next = useRef(m.series.next);
  next.current = m.series.next;
  const { recurrence } = m;
  const { value, fault } = useLive(
    (signal) => {
      // an interval without an anchor counts from the creation of its series, which a preview does not know
      const anchored = recurrence.every ? { ...recurrence, anchor: recurrence.anchor ?? recurrence.start ?? m.createdAt } : recurrence;
      const body = { recurrence: anchored, from: from || next.current, count: previewCount };
      return answer(api.POST("/v1/recurrences/preview", { body, signal }));
    },
    5000,
    [from, m.version, tenant.value],
  );
  const ended = state(m) === "ended" || state(m) === "cancelled";
  return (
    <section class="card preview">
      <h2>Occurrences to come</h2>
      <p>
        {ended ? "What the rule would bring if the series had not ended" : "What the rule brings"}, without jitter
        {recurrence.maxRuns !== undefined && "; maxRuns is counted from the first moment that is asked for"}.
      </p>
      <form class="row" aria-label="Occurrences to come" onSubmit={(event) => event.preventDefault()}>
        <TimeField label={`From (${zone})`} name="from" by={by} />
      </form>
      <Fault of={fault} />
      {value && (
        <Table label="Occurrences to come" columns={occurrences(recurrence.timezone ?? "UTC")} rows={value.occurrences}
          id={(o) => o.time} empty="The rule has no occurrence from then on." />
      )}
    </section>
  );
}

function occurrences(timezone: string): Column<Schemas["Occurrence"]>[] {
  const own: Column<Schemas["Occurrence"]> = {
    name: `In ${timezone}`,
    value: (o) => o.time,
    cell: (o) => <time dateTime={o.time} title={o.time}>{inZone(o.time, timezone)}</time>,
  };
  return [
    ...(timezone === zone ? [] : [own]),
    { ...own, name: `Here, in ${zone}`, cell: (o) => <time dateTime={o.time} title={o.time}>{inZone(o.time, zone)}</time> },
    { name: "Remark", value: (o) => o.remark ?? "" },
  ];
}
