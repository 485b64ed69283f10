// Messages: one by its id, or a list of those that pass some filters.
import { useEffect, useReducer, useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { Refusal, type Schemas, answer, api } from "../api";
import { ChannelField, Field, LabelField, type Query, TimeField, messageLink, useQuery } from "../filter";
import { count, visible } from "../format";
import { Further, type Paged, usePaged } from "../paged";
import { Badge, Cut, Page, Time } from "../parts";
import { tenant } from "../session";
import { type Column, Table } from "../table";

/** Row is what the list keeps of a message: there may be many, and payloads are long. */
interface Row {
  id: string;
  channel: string;
  status: string;
  labels: string[];
  due: string;
  /** next is when a series that goes on is due next. */
  next: string;
  attempts: number;
  lastError: string;
  recurs: boolean;
}

const rowOf = (m: Schemas["Message"]): Row => ({
  id: m.scheduleId,
  channel: m.channel,
  status: m.status,
  labels: m.labels ?? [],
  due: m.executionTime,
  next: m.series?.next ?? "",
  attempts: m.attempts,
  lastError: m.lastError ?? "",
  recurs: m.recurrence !== undefined,
});

const columns: Column<Row>[] = [
  { name: "Id", value: (m) => m.id, cell: (m) => <a href={messageLink(m.id)}><Cut text={m.id} /></a> },
  { name: "Channel", value: (m) => m.channel, cell: (m) => <Cut text={m.channel} /> },
  { name: "Status", value: (m) => m.status, cell: (m) => <><Badge state={m.status} />{m.recurs && <small> series</small>}</> },
  { name: "Due", value: (m) => m.due, cell: (m) => <Time at={m.next || m.due} far /> },
  { name: "Labels", value: (m) => m.labels.join(", "), cell: (m) => <Cut text={m.labels.join(", ")} /> },
  { name: "Attempts", value: (m) => m.attempts, cell: (m) => count(m.attempts), number: true },
  { name: "Last error", value: (m) => m.lastError, cell: (m) => <Cut text={m.lastError} /> },
];

const statuses = ["PENDING", "DELIVERED", "DELIVERY_FAILED", "CANCELLED"] satisfies Schemas["Status"][];

const anyStatus = "any";

/** useFilter reads the filter from the address. With none it begins with what is pending, and says so there. */
function useFilter(by: Query): Filter {
  const none = Object.keys(by.query).length === 0;
  useEffect(() => {
    if (none) by.set({ status: "PENDING" }, true);
  }, [none]);
  const { status = none ? "PENDING" : anyStatus, channel, label, idPrefix, from, to } = by.query;
  return { status: status === anyStatus ? undefined : (status as Schemas["Status"]), channel, label, idPrefix, from, to };
}

export function Messages() {
  const by = useQuery();
  const filter = useFilter(by);
  const list = useList(filter);
  const rows = list.value ?? [];
  const latest = rows.slice(-1000);
  const none = list.fault && rows.length === 0; // the fault is all that there is to say
  return (
    <Page title="Messages" fault={list.fault}
      about="Sorted by due time: a series by that of its first occurrence, though Due shows the next one, if one follows. Settled messages stay until their retention ends.">
      <ById />
      <form class="row" aria-label="Filters" onSubmit={(event) => (event.preventDefault(), !list.looking && list.again())}>
        <Field label="Id begins with" name="idPrefix" by={by} />
        <LabelField by={by} seen={latest.flatMap((m) => m.labels)} />
        <ChannelField by={by} seen={latest.map((m) => m.channel)} />
        <StatusField status={filter.status} by={by} />
        <TimeField label="Due from" name="from" by={by} />
        <TimeField label="Due before" name="to" by={by} />
        <button class="outline">Search</button>
      </form>
      {(rows.length > 0 || list.complete) && (
        <Table label="Messages" columns={columns} rows={rows} id={(m) => m.id} empty={empty(filter)}
          onEnd={() => !list.stopped && list.more()} />
      )}
      <p class="row" role="status">
        <span>{!none && words(list)}</span>
        {!none && <Further list={list} />}
      </p>
    </Page>
  );
}

function empty({ status, ...others }: Filter): string {
  if (Object.values(others).some(Boolean)) return "No message passes these filters.";
  if (status === "PENDING") return "No message is pending. With the status any, those that are settled are found, too.";
  return status ? "No message passes these filters." : "There is no message.";
}

/** ById opens the page of a message. */
function ById() {
  const { route } = useLocation();
  const [fault, setFault] = useState("");
  const find = async (id: string) => {
    setFault("");
    try {
      await answer(api.GET("/v1/messages/{id}", { params: { path: { id } }, parseAs: "text" }));
      route(messageLink(id));
    } catch (failed) {
      if (failed instanceof Refusal) setFault(`${visible(id)}: ${failed.message}`); // the frame says if there is no answer
    }
  };
  return (
    <form class="row" aria-label="One message" onSubmit={(event) => {
      event.preventDefault();
      void find(String(new FormData(event.currentTarget).get("id")).trim());
    }}>
      <label>
        Id of a message
        <input type="search" name="id" required maxLength={174} spellcheck={false} />
      </label>
      <button class="outline">Open</button>
      <output class={fault && "fault"} role="status">{fault}</output>
    </form>
  );
}

function StatusField({ status, by }: { status: string | undefined; by: Query }) {
  return (
    <label>
      Status
      <select name="status" value={status ?? anyStatus} onChange={(event) => by.set({ status: event.currentTarget.value })}>
        <option>{anyStatus}</option>
        {statuses.map((status) => <option key={status}>{status}</option>)}
      </select>
    </label>
  );
}

type Filter = Partial<Record<"channel" | "label" | "idPrefix" | "from" | "to", string>> & { status?: Schemas["Status"] };

/** useList lists the messages that pass a filter, as they were when they were read: there may be very many. */
function useList(filter: Filter) {
  const [round, again] = useReducer((n: number) => n + 1, 0);
  const list = usePaged(
    async (cursor, signal) => {
      const query = { ...filter, limit: cursor ? 1000 : 100, cursor };
      const { messages, nextCursor, searchedUntil } = await answer(api.GET("/v1/messages", { params: { query }, signal }));
      return { rows: messages.map(rowOf), next: nextCursor, searchedUntil };
    },
    { id: (m) => m.id, everyMs: 0, on: [...Object.values(filter), tenant.value, round] },
  );
  return { ...list, again: () => again(0) };
}

/** words say how far a list has come. */
function words({ value, complete, looking, stopped }: Paged<Row>): string {
  const rows = value ?? [];
  const shown = rows.length === 1 ? "1 message" : `${count(rows.length)} messages`;
  if (complete) return rows.length > 0 ? `${shown}: these are all.` : "";
  if (looking) return rows.length > 0 ? `${shown}. Loading more …` : "Loading …";
  return stopped ? `${shown} so far.` : `${shown}. More follow: scroll to the end of the table.`;
}
