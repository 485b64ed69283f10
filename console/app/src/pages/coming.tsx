// Coming: what is due when, so that a peak is seen before it comes.
import { useMemo, useRef } from "preact/hooks";
import { useLocation } from "preact-iso";
import { type Schemas, answer, api } from "../api";
import { Chart, type Series, colours } from "../chart";
import { ChannelField, link, useQuery } from "../filter";
import { count, length, local, rate, zone } from "../format";
import { Figure, Page } from "../parts";
import { useLive } from "../poll";
import { tenant } from "../session";
import { type Column, Table } from "../table";

const second = 1000;
const minute = 60 * second;
const hour = 60 * minute;
const day = 24 * hour;

const presets: Record<string, { name: string; length: number }> = {
  "15m": { name: "15 minutes", length: 15 * minute },
  "1h": { name: "hour", length: hour },
  "6h": { name: "6 hours", length: 6 * hour },
  "1d": { name: "day", length: day },
  "7d": { name: "week", length: 7 * day },
  "30d": { name: "30 days", length: 30 * day },
};
const usual = "1h";

const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400].map((s) => s * second);
const slots = 60;
const shortest = 10 * second;
const longest = 36_500 * day;
// The API's first and last times.
const earliest = Date.parse("1970-01-02T00:00:00Z");
const latest = Date.parse("9999-12-31T00:00:00Z");

// What is due is delivered at once, but not in no time.
const graceMs = 10 * second;

/** Range is what the chart shows, in milliseconds since 1970. */
interface Range { from: number; to: number; step: number }

/** stepOf is a length of slots in which people count, so that there are at most so many. */
function stepOf(length: number, most: number): number {
  return steps.find((step) => step * most >= length) ?? Math.ceil(length / most / day) * day;
}

/** whole makes a range that begins and ends at whole steps in the browser's time zone, at least as long as the shortest. */
function whole(from: number, to: number): Range {
  const missing = Math.max(0, shortest - (to - from)) / 2;
  const step = stepOf(to - from + 2 * missing, slots);
  const shift = new Date(from).getTimezoneOffset() * minute;
  const on = (at: number, round: (n: number) => number) => round((at - shift) / step) * step + shift;
  return {
    from: Math.max(earliest, on(from - missing, Math.floor)),
    to: Math.min(latest, on(to + missing, Math.ceil)),
    step,
  };
}

/** View is what the address asks for: a preset, which moves on with time, or a range. */
interface View { preset?: string; from: number; to: number; channel: string }

function viewOf(query: Record<string, string>): View {
  const [from, to] = [Date.parse(query.from ?? ""), Date.parse(query.to ?? "")];
  const channel = query.channel ?? "";
  if (from < to && from >= earliest && to <= latest) return { from, to, channel };
  return { preset: query.for && query.for in presets ? query.for : usual, from: 0, to: 0, channel };
}

function rangeOf({ preset, from, to }: View, now: number): Range {
  if (preset) return whole(now, now + presets[preset]!.length);
  return { from, to, step: stepOf(to - from, slots + 2) }; // whole adds up to two slots
}

const iso = (at: number) => new Date(at).toISOString();

function zoomed(from: number, to: number, channel: string): string {
  const range = whole(from, to);
  return link("coming", { from: iso(range.from), to: iso(range.to), channel });
}

/** Slot is a slot of the API, with its end. */
interface Slot { from: number; to: number; count: number; exact: boolean; channels: Schemas["UpcomingChannel"][] }

interface Upcoming extends Range { now: number; slots: Slot[] }

async function read(view: View, signal: AbortSignal): Promise<Upcoming> {
  const now = Date.now();
  const range = rangeOf(view, now);
  const query = { from: iso(range.from), to: iso(range.to), step: `PT${range.step / second}S`, channel: view.channel || undefined };
  const said = (await answer(api.GET("/v1/upcoming", { params: { query }, signal }))).slots;
  const ends = [...said.slice(1).map((slot) => Date.parse(slot.from)), range.to];
  return {
    ...range,
    now,
    slots: said.map((slot, i) => ({
      from: Date.parse(slot.from),
      to: ends[i]!,
      count: slot.count,
      exact: slot.exact,
      channels: slot.channels ?? (slot.count > 0 ? [{ channel: view.channel, count: slot.count }] : []),
    })),
  };
}

async function readOverdue(channel: string, signal: AbortSignal) {
  const query = { from: iso(earliest), to: iso(Date.now() - graceMs), step: "P36600D", channel: channel || undefined };
  return sumOf((await answer(api.GET("/v1/upcoming", { params: { query }, signal }))).slots);
}

function sumOf(slots: { count: number; exact: boolean }[]) {
  return { count: slots.reduce((sum, slot) => sum + slot.count, 0), exact: slots.every((slot) => slot.exact) };
}

/** about writes a count, and says so if it is an estimate. */
const about = (n: { count: number; exact: boolean }) => (n.exact ? count(n.count) : `about ${count(n.count)}`);

export function Coming() {
  const { query, route } = useLocation();
  const view = viewOf(query);
  const { preset, channel } = view;
  const on = [preset, view.from, view.to, channel, tenant.value];
  const { value, fault } = useLive((signal) => read(view, signal), 5000, on);
  const overdue = useLive((signal) => readOverdue(channel, signal), 10_000, [channel, tenant.value]).value;
  // Until the new range is there the old one stays, so that nothing jumps.
  const before = useRef(value);
  before.current = value ?? (fault ? undefined : before.current);
  const shown = before.current;
  const chart = useRef<HTMLElement>(null);
  const given = useRef(new Map<string, number>()); // the bars go while there is a fault
  const zoom = (from: number, to: number) => route(zoomed(from, to, channel));
  return (
    <Page title="Coming" fault={fault}
      about={`How many pending messages are due when, by channel, in the time zone ${zone}. Of a series only the next occurrence is counted, and none while it is paused.`}>
      <div class="row">
        <div role="group" aria-label="The next" class="picks">
          <span aria-hidden="true">Next</span>
          {Object.entries(presets).map(([key, { name }]) => (
            <button key={key} class="secondary" aria-pressed={key === preset} onClick={() => route(link("coming", { for: key, channel }))}>{name}</button>
          ))}
        </div>
        <Moves range={rangeOf(view, Date.now())} zoom={zoom} />
        <Filter seen={shown?.slots ?? []} />
      </div>
      {shown && (
        <section class="coming-due" ref={chart} tabIndex={-1} aria-label="What is due" aria-busy={value === undefined}>
          <Figures shown={shown} overdue={overdue} channel={channel} />
          <Bars shown={shown} channel={channel} given={given.current} zoom={zoom} />
          <Slots shown={shown} channel={channel} onZoom={() => chart.current?.focus()} />
        </section>
      )}
    </Page>
  );
}

/** Moves are the buttons for a range without a mouse. */
function Moves({ range, zoom }: { range: Range; zoom(from: number, to: number): void }) {
  const { from, to } = range;
  const part = to - from;
  const move = (name: string, by: number, grow: number, off = false) => (
    <button class="secondary" disabled={off} onClick={() => zoom(from + by * part - grow * part, to + by * part + grow * part)}>{name}</button>
  );
  return (
    <div role="group" aria-label="Range" class="picks">
      {move("Zoom in", 0, -0.25, part <= shortest)}
      {move("Zoom out", 0, 0.5, 2 * part > longest)}
      {move("Earlier", -0.5, 0, from <= earliest)}
      {move("Later", 0.5, 0, to >= latest)}
    </div>
  );
}

function Filter({ seen }: { seen: Slot[] }) {
  const by = useQuery();
  return (
    <form class="picks" onSubmit={(event) => event.preventDefault()}>
      <ChannelField by={by} seen={seen.flatMap((slot) => slot.channels.map((c) => c.channel))} />
      {by.query.channel && <button type="button" class="secondary" onClick={() => by.set({ channel: "" })}>All channels</button>}
    </form>
  );
}

const weekday = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short", year: "numeric" });

/** clock writes a time as short as the lengths of slots allow, with its date if that is not today's. */
function clock(at: number, step: number): string {
  const [date, time] = local(at).split(" ") as [string, string];
  const short = step % minute === 0 && at % minute === 0 ? time.slice(0, 5) : time;
  return date === local(Date.now()).split(" ")[0] ? short : `${short} on ${weekday.format(at)}`;
}

/** slotName says from when to when a slot is. */
const slotName = (slot: Slot, step: number) => `${clock(slot.from, step)}, ${length(slot.to - slot.from)}`;

/** fullest is the first of the slots with the most messages. */
function fullest(slots: Slot[]): Slot | undefined {
  return slots.reduce<Slot | undefined>((most, slot) => (slot.count > (most?.count ?? 0) ? slot : most), undefined);
}

/** peakInWords names the fullest slot. */
function peakInWords({ slots, step, now }: Upcoming, channel: string): string {
  const slot = fullest(slots);
  if (!slot) return `Nothing is due in this time${channel && ` for ${channel}`}.`;
  const first = slot.channels.reduce((most, c) => (c.count > most.count ? c : most), slot.channels[0] ?? { channel: "", count: 0 });
  const of = channel ? ` for ${channel}` : first.count === slot.count ? `, all for ${first.channel}` :
    first.count > 0 ? `, of these ${count(first.count)} for ${first.channel}` : "";
  const messages = slot.count === 1 ? "message" : "messages";
  return `The most ${slot.to <= now ? "was" : "is"} due from ${clock(slot.from, step)}: ${about(slot)} ${messages} in ${length(slot.to - slot.from)}${of}.`;
}

function Figures({ shown, overdue, channel }: { shown: Upcoming; overdue?: { count: number; exact: boolean }; channel: string }) {
  const all = sumOf(shown.slots);
  const most = fullest(shown.slots);
  const perSecond = most ? rate((most.count * second) / (most.to - most.from)) : "0";
  return (
    <>
      <p class="peak" role="status">{peakInWords(shown, channel)}</p>
      <dl class="figures">
        <Figure name="Due in this time" value={about(all)}
          about={`${clock(shown.from, shown.step)} to ${clock(shown.to, shown.step)}: ${all.exact ? "counted exactly" : "an estimate, as more is stored than one look may count"}`} />
        <Figure name="In the fullest slot" value={`${most && !most.exact ? "about " : ""}${perSecond}/s`} about={`On average over its ${length(most ? most.to - most.from : shown.step)}`} />
        {overdue && (
          <Figure name="Overdue" value={about(overdue)} alarm={overdue.count > 0}
            about={`Were due more than ${length(graceMs)} ago, and are still pending, apart from what waits for a channel that is paused or down`} />
        )}
      </dl>
    </>
  );
}

// The grey one is for what is not named.
const others = { name: "others", colour: 10 };
const forChannels = Array.from({ length: colours }, (_, i) => i + 1).filter((colour) => colour !== others.colour);

/**
 * colour gives each channel a colour for as long as the page is open, in given: the one that is shown and used least.
 * The first channels come first.
 */
function colour(channels: string[], given: Map<string, number>) {
  const uses = (colour: number, names: Iterable<string>) => [...names].filter((name) => given.get(name) === colour).length;
  for (const name of channels) {
    if (given.has(name)) continue;
    const cost = (colour: number) => 1000 * uses(colour, channels) + uses(colour, given.keys());
    given.set(name, forChannels.reduce((best, colour) => (cost(colour) < cost(best) ? colour : best)));
  }
}

/** shares are the bars' parts: those of the named channels, and of all others. What is given a colour keeps its place. */
function shares(slots: Slot[], given: Map<string, number>): Series[] {
  const sums = new Map<string, number>();
  for (const slot of slots) for (const c of slot.channels) sums.set(c.channel, (sums.get(c.channel) ?? 0) + c.count);
  colour([...sums.keys()].sort((a, b) => sums.get(b)! - sums.get(a)!), given);
  const parts: Series[] = [...given].filter(([name]) => sums.has(name)).map(([name, colour]) => {
    return { name, colour, values: slots.map((slot) => slot.channels.find((c) => c.channel === name)?.count ?? 0) };
  });
  const rest = slots.map(restOf);
  return rest.some((n) => n > 0) ? [...parts, { ...others, values: rest }] : parts;
}

/** restOf is what a slot's channels lack of its count. */
const restOf = (slot: Slot) => Math.max(0, slot.count - slot.channels.reduce((sum, c) => sum + c.count, 0));

interface BarsProps { shown: Upcoming; channel: string; given: Map<string, number>; zoom(from: number, to: number): void }

function Bars({ shown, channel, given, zoom }: BarsProps) {
  const times = useMemo(() => shown.slots.map((slot) => slot.from), [shown]);
  const series = useMemo(() => shares(shown.slots, given), [shown]);
  return (
    <div class="card">
      <Chart label={`Messages due in slots of ${length(shown.step)}. ${peakInWords(shown, channel)} The arrow keys lead from slot to slot, and Enter zooms into one.`}
        times={times} series={series} write={count} unit={`messages in ${length(shown.step)}`}
        bars={{
          end: shown.to,
          now: shown.now,
          name: (i) => `${slotName(shown.slots[i]!, shown.step)}: ${about(shown.slots[i]!)}`,
          onZoom: zoom,
          onEnter: (i) => zoom(shown.slots[i]!.from, shown.slots[i]!.to),
        }} />
      <small>
        Slots of {length(shown.step)}. Drag across the chart to zoom.
        {shown.from < shown.now && shown.now < shown.to && " The line marks now: what is in slots before it is overdue."}
      </small>
    </div>
  );
}

const named = 3;

function Slots({ shown, channel, onZoom }: { shown: Upcoming; channel: string; onZoom(): void }) {
  const { step } = shown;
  const columns = useMemo((): Column<Slot>[] => [
    {
      name: "Due from",
      value: (slot) => slot.from,
      cell: (slot) => {
        const range = { from: iso(slot.from), to: iso(slot.to) };
        const words = <time dateTime={range.from} title={range.from}>{local(slot.from)}</time>;
        if (step <= minute) return <a href={link("messages", { ...range, status: "PENDING", channel })}>{words}</a>;
        return <a href={zoomed(slot.from, slot.to, channel)} onClick={onZoom}>{words}</a>;
      },
    },
    { name: "Messages", value: (slot) => slot.count, cell: (slot) => count(slot.count), number: true },
    { name: "Counted", value: (slot) => (slot.exact ? "exactly" : "estimate") },
    { name: "Largest channels", value: largest },
  ], [step, channel]);
  const rows = shown.slots.filter((slot) => slot.count > 0);
  return (
    <>
      <h2>Slots in which something is due</h2>
      <Table label="Slots" columns={columns} rows={rows} id={(slot) => String(slot.from)} sortable empty="Nothing is due in this time." />
    </>
  );
}

function largest(slot: Slot): string {
  const top = [...slot.channels].sort((a, b) => b.count - a.count).slice(0, named);
  const rest = slot.count - top.reduce((sum, c) => sum + c.count, 0);
  const words = top.map((c) => `${c.channel} ${count(c.count)}`);
  return (rest > 0 ? [...words, `others ${count(rest)}`] : words).join(", ");
}
