// Channels: where messages go, how that goes, and what is set for it.
import { useLayoutEffect, useMemo, useState } from "preact/hooks";
import { type Schemas, answer, api } from "../api";
import { link, useQuery } from "../filter";
import { count, rate, visible } from "../format";
import { usePaged } from "../paged";
import { Act, Badge, Cut, Dialog, Facts, Missing, Page, Time } from "../parts";
import { may, tenant } from "../session";
import { type Column, Table } from "../table";

type Channel = Schemas["Channel"];
type Change = Schemas["ChannelChange"];
type Now = Schemas["ChannelSettings"];

/** useChannels reads the whole list, as it is sorted and filtered here. */
function useChannels() {
  return usePaged(
    async (cursor, signal) => {
      const { channels, missing, nextCursor } = await answer(api.GET("/v1/channels", { params: { query: { cursor } }, signal }));
      return { rows: channels, missing, next: nextCursor };
    },
    { id: (c) => c.channel, everyMs: 2000, on: [tenant.value], all: true },
  );
}

const columns: Column<Channel>[] = [
  { name: "Channel", value: (c) => c.channel, cell: (c) => <Name channel={c.channel} /> },
  { name: "State", value: stateOf, cell: (c) => <Badge state={stateOf(c)} /> },
  { name: "Rate", value: (c) => c.deliveredPerSecond ?? -1, number: true, cell: (c) => rateOf(c) },
  { name: "Due", value: (c) => c.due ?? -1, number: true, cell: (c) => counted(c.due, c.exact) },
  { name: "Pending", value: (c) => c.pending ?? -1, number: true, cell: (c) => counted(c.pending, c.exact) },
  { name: "Last error", value: (c) => c.lastError ?? "", cell: (c) => (c.lastErrorAt ? <div class="dated"><small><Time at={c.lastErrorAt} /></small> <Cut text={c.lastError} /></div> : <>–</>) },
  { name: "In hand", value: (c) => c.inHand, number: true, cell: (c) => count(c.inHand) },
  { name: "In flight", value: (c) => c.inFlight, number: true, cell: (c) => count(c.inFlight) },
  { name: "Limits", value: (c) => c.maxPerSecond, cell: (c) => limitsOf(c) },
  { name: "Failure channel", value: (c) => c.failureChannel ?? "", cell: (c) => <Cut text={c.failureChannel} /> },
];

/** stateOf is the state, and "at rest" if a channel that is up has nothing to do at present. */
function stateOf(c: Channel): string {
  return c.state === "up" && c.deliveredPerSecond === 0 && c.inHand === 0 && !c.parked && c.due === 0 && c.exact ? "at rest" : c.state;
}

const rateOf = ({ deliveredPerSecond }: Channel) => (deliveredPerSecond === undefined ? "–" : `${rate(deliveredPerSecond)}/s`);

/** counted is a count, or an estimate, or a dash if it is not known. */
const counted = (n: number | undefined, exact?: boolean) => (n === undefined ? "–" : `${exact ? "" : "about "}${count(n)}`);

function limitsOf({ maxPerSecond, maxInFlight }: Pick<Channel, "maxPerSecond" | "maxInFlight">): string {
  const limits = [];
  if (maxPerSecond > 0) limits.push(`${rate(maxPerSecond)}/s`);
  if (maxInFlight > 0) limits.push(`${count(maxInFlight)} in flight`);
  return limits.length > 0 ? `${limits.join(", ")}, per node` : "–";
}

function Name({ channel }: { channel: string }) {
  return <a href={useQuery().link({ channel })}><Cut text={channel} /></a>;
}

export function Channels() {
  const { value: channels, missing, complete, fault, again } = useChannels();
  const by = useQuery();
  const { name = "", channel = "" } = by.query;
  const open = (channel: string) => by.set({ channel });
  const rows = useMemo(() => channels?.filter((c) => c.channel.toLowerCase().includes(name.toLowerCase())), [channels, name]);
  const whose = tenant.value ? ` of tenant ${tenant.value}` : "";
  return (
    <Page title="Channels" fault={fault} about={`The channels${whose} with messages that wait, deliveries in the last minute, or settings. Rate: deliveries per second, in the last minute. Due: messages whose time has come. Pending: all that are stored and not settled. – in one of these: not known. At rest: up, and nothing to do.`}>
      <Missing nodes={missing} means="what only it knows is missing here" />
      <div class="row">
        <label>
          Name contains
          <input type="search" value={name} maxLength={2048} onInput={(event) => by.set({ name: event.currentTarget.value }, true)} />
        </label>
        {may("channels:w") && <Other open={open} />}
      </div>
      {channels && !complete && <p class="about" role="status">{count(channels.length)} channels so far. Loading more …</p>}
      {rows && (
        <Table label="Channels" columns={columns} rows={rows} id={(c) => c.channel} sortable
          empty={name && channels!.length > 0 ? "No name contains that." : "No channel has messages, or settings."} />
      )}
      {channel && channels && (
        <OfChannel key={channel} name={channel} state={channels.find((c) => c.channel === channel)} complete={complete} close={() => open("")} again={again} />
      )}
    </Page>
  );
}

/** Other opens a channel that may not be in the list. */
function Other(props: { open(channel: string): void }) {
  const [name, setName] = useState("");
  return (
    <form class="row" onSubmit={(event) => {
      event.preventDefault();
      props.open(name);
      setName("");
    }}>
      <label>
        Another channel
        <input required maxLength={2048} placeholder="rabbitmq:orders" value={name} onInput={(event) => setName(event.currentTarget.value)} />
      </label>
      <button type="submit" class="secondary">Open its settings</button>
    </form>
  );
}

/** OfChannel shows all of one channel, and lets those change its settings who may. */
function OfChannel(props: { name: string; state: Channel | undefined; complete: boolean; close(): void; again(): void }) {
  const { name } = props;
  const [now, setNow] = useState<Now>(); // what a change was answered stands until the channel is read again
  useLayoutEffect(() => setNow(undefined), [props.state]);
  const c = now ? withSettings(props.state, now) : props.state;
  const change: Changer = async (what, done) => {
    try {
      const now = await answer(api.PATCH("/v1/channels", { body: { channel: name, ...what } }));
      setNow(now);
      return done(now);
    } finally {
      props.again();
    }
  };
  return (
    <Dialog title={name} onClose={props.close}>
      {c ? <State channel={c} /> : <p>{props.complete ? "Nothing is set for this channel, and no messages of it were found." : "Loading …"}</p>}
      {may("sched:r") && <p><a href={link("messages", { channel: name })}>Its messages</a> · <a href={link("failed", { channel: name })}>Its failed messages</a></p>}
      {may("channels:w") && (c || props.complete) && <Settings name={name} state={c} change={change} />}
      <footer>
        <button class="secondary" onClick={(event) => event.currentTarget.closest("dialog")!.close()}>Close</button>
      </footer>
    </Dialog>
  );
}

function withSettings(c: Channel | undefined, now: Now): Channel {
  const state = now.paused ? "paused" : c && c.state !== "paused" ? c.state : "up";
  return { inHand: 0, inFlight: 0, parked: false, ...c, failureChannel: undefined, ...now, state };
}

/** waits says what is known of the messages whose time has come. */
function waits({ state, parked, due, exact }: Channel): string {
  if (due === undefined && !parked) return "not known";
  if (due === 0 && !parked) return exact ? "none waits" : "none was found";
  const some = due ? `${counted(due, exact)} ${due === 1 ? "message waits" : "messages wait"}` : "some messages wait";
  switch (state) {
    case "up":
      return `${some}, and ${due === 1 ? "goes" : "go"} out as fast as the limits allow`;
    case "down":
      return `${some} until it is up again`;
    case "paused":
      return `${some} until it is resumed`;
  }
}

function State({ channel: c }: { channel: Channel }) {
  return (
    <Facts form="short" label="State" facts={[
      ["State", <Badge state={stateOf(c)} />],
      ["Rate", c.deliveredPerSecond === undefined ? "not known" : `${rateOf(c)}, in the last minute`],
      ["Due", waits(c)],
      ["Pending", c.pending === undefined ? "not known" : `${counted(c.pending, c.exact)} stored and not settled`],
      ["In hand", `${count(c.inHand)} in the memory of nodes`],
      ["In flight", `${count(c.inFlight)} at the broker`],
      ["Limits", limitsOf(c)],
      ["Failure channel", visible(c.failureChannel ?? "none")],
      [
        c.lastErrorNode ? `Last error, of node ${visible(c.lastErrorNode)}` : "Last error",
        <>{visible(c.lastError ?? "none")}{c.lastErrorAt && <> (<Time at={c.lastErrorAt} far />)</>}</>,
      ],
    ]} />
  );
}

const pausing = "Its messages then wait in the store, on all nodes, until it is resumed. They can be cancelled meanwhile. What is at the broker already is not called back.";
const resuming = "Messages that became due meanwhile then go out at once, as fast as the limits allow.";
const nodesFollow = "Other nodes follow within seconds.";

/** Changer makes a change, and says what done says of it. */
type Changer = (what: Omit<Change, "channel">, done: (now: Now) => string) => Promise<string>;

interface SettingsProps {
  state: Channel | undefined;
  change: Changer;
}

function Settings({ name: channel, state, change }: SettingsProps & { name: string }) {
  const paused = state?.paused ?? false;
  return (
    <>
      <section>
        <Act danger={!paused} confirm={`${paused ? "Resume" : "Pause"} ${channel}${tenant.value && ` of tenant ${tenant.value}`}? ${paused ? resuming : pausing}`}
          run={() => change({ paused: !paused }, (now) => `It is ${now.paused ? "paused" : "resumed"}. ${nodesFollow}`)}>
          {paused ? "Resume the channel" : "Pause the channel"}
        </Act>
      </section>
      <Limits state={state} change={change} />
      <Failure state={state} change={change} />
    </>
  );
}

const limits = { maxPerSecond: "Messages per second", maxInFlight: "Messages in flight" };
type Limit = keyof typeof limits;

/** Limits sets those limits that were typed, and leaves the other as it is. */
function Limits({ state, change }: SettingsProps) {
  const [typed, setTyped] = useState<Partial<Record<Limit, string>>>({});
  const set = async () => {
    const what = Object.fromEntries(Object.entries(typed).filter(([, text]) => text !== "").map(([name, text]) => [name, Number(text)]));
    if (Object.keys(what).length === 0) throw new Error("No limit is changed yet.");
    const words = await change(what, (now) => `The limits are now: ${limitsOf(now).replace("–", "none")}. ${nodesFollow}`);
    setTyped({});
    return words;
  };
  return (
    <section>
      <h3>Limits of each node</h3>
      <div class="row">
        {(Object.keys(limits) as Limit[]).map((name) => (
          <label key={name}>
            {limits[name]}
            <input type="number" min={0} max={1_000_000} step={name === "maxPerSecond" ? "any" : 1} value={typed[name] ?? String(state?.[name] ?? 0)}
              onInput={(event) => setTyped({ ...typed, [name]: event.currentTarget.value })} />
          </label>
        ))}
        <Act key="set" run={set}>Set the limits</Act>
      </div>
      <small>0: no limit. What is not changed here stays as it is.</small>
    </section>
  );
}

function Failure({ state, change }: SettingsProps) {
  const [to, setTo] = useState(state?.failureChannel ?? "");
  return (
    <section>
      <h3>Failure channel</h3>
      <div class="row">
        <label>
          Where messages that cannot be delivered go
          <input maxLength={2048} placeholder="inbox:failed" value={to} onInput={(event) => setTo(event.currentTarget.value)} />
        </label>
        <Act key="set" run={() => change({ failureChannel: to }, (now) => `The failure channel is now ${now.failureChannel}. ${nodesFollow}`)}>
          Set the failure channel
        </Act>
        <Act key="remove" danger confirm="Remove the failure channel? Messages that cannot be delivered then end as failed, and go nowhere."
          run={() => change({ failureChannel: null }, () => {
            setTo("");
            return `No failure channel is set. ${nodesFollow}`;
          })}>
          Remove the failure channel
        </Act>
      </div>
      <small>A message with a failure channel of its own goes there instead.</small>
    </section>
  );
}
