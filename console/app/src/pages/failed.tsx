// Failed: what could not be delivered, by channel and error, to be tried again or purged.
import { useMemo } from "preact/hooks";
import { type Schemas, answer, api } from "../api";
import { ChannelField, type Query, TimeField, messageLink, useQuery } from "../filter";
import { count, visible, zone } from "../format";
import { Progress } from "../job";
import { Act, Page, Time } from "../parts";
import { useLive } from "../poll";
import { may, tenant } from "../session";

type Group = Schemas["FailureGroup"];

export function Failed() {
  const by = useQuery();
  const { channel, from, to, job, of } = by.query;
  const { value, fault, again } = useLive(
    (signal) => answer(api.GET("/v1/failures", { params: { query: { channel, from, to } }, signal })),
    5000,
    [channel, from, to, tenant.value],
  );
  const channels = useMemo(() => byChannel(value?.groups ?? []), [value]);
  return (
    <Page title="Failed" fault={fault}
      about="Messages that could not be delivered, by channel and error, until their retention is over. A message counts in one group: that of its last error.">
      <form class="row" aria-label="Filter" onSubmit={(event) => event.preventDefault()}>
        <ChannelField by={by} seen={channels.map(([group]) => group.channel)} />
        <TimeField label={`Due from (${zone})`} name="from" by={by} />
        <TimeField label="Due before" name="to" by={by} />
      </form>
      {job && (
        <Progress key={job} id={job} about={Number(of) || undefined} onEnd={again} onClose={() => by.set({ job: "", of: "" })} />
      )}
      {value && !value.exact && (
        <p>More has failed than one look counts: there may be more groups, and more in a group. Narrow it down by time.</p>
      )}
      {value?.groups.length === 0 && <p class="empty">{empty(value.exact, Boolean(channel || from || to))}</p>}
      {channels.map((groups) => <Channel key={groups[0].channel} groups={groups} exact={value!.exact} by={by} />)}
    </Page>
  );
}

/** byChannel puts groups of the same channel together. The order stays: the largest first. */
function byChannel(groups: Group[]): [Group, ...Group[]][] {
  const channels = new Map<string, [Group, ...Group[]]>();
  for (const group of groups) {
    const same = channels.get(group.channel);
    if (same) same.push(group);
    else channels.set(group.channel, [group]);
  }
  return [...channels.values()];
}

function empty(exact: boolean, filtered: boolean): string {
  if (!exact) return "None of those that were looked at passes these filters.";
  return filtered ? "Nothing that failed passes these filters." : "Nothing has failed.";
}

const total = (groups: Group[]) => groups.reduce((n, group) => n + group.count, 0);

/** amount says how many messages there are, or are at least. */
function amount(n: number, exact: boolean): string {
  return `${exact ? "" : "at least "}${count(n)} ${n === 1 ? "message" : "messages"}`;
}

function Channel({ groups, exact, by }: { groups: [Group, ...Group[]]; exact: boolean; by: Query }) {
  const { channel } = groups[0];
  const all = total(groups);
  const several = groups.length > 1;
  const unreasoned = groups.some((group) => group.lastError === ""); // no call selects it but one for all of the channel
  return (
    <section class="card failed">
      <header class="row">
        <h2>{visible(channel)}</h2>
        {several && <p data-figure="Messages of a channel">{amount(all, exact)} with {groups.length} errors</p>}
        {(several || unreasoned) && may("sched:w") && (
          <Start kind="redrive" n={all} exact={exact} filter={{ channel }} by={by}>Redrive all of this channel</Start>
        )}
        {unreasoned && may("sched:w") && (
          <Start kind="purge" n={all} exact={exact} filter={{ channel }} by={by}>Purge all of this channel</Start>
        )}
      </header>
      <ul>
        {groups.map((group) => <Reason key={group.lastError} group={group} by={by} />)}
      </ul>
    </section>
  );
}

function Reason({ group, by }: { group: Group; by: Query }) {
  const { channel, lastError } = group;
  const filter = { channel, lastError };
  return (
    <li>
      <div>
        <p class="reason">{visible(lastError) || "No error was given."}</p>
        <p>
          <strong data-figure="Messages of a reason">{amount(group.count, group.exact)}</strong>, the latest failed <Time at={group.lastFailedAt} far />.{" "}
          <a href={messageLink(group.example)}>An example: {group.example}</a>
        </p>
      </div>
      {lastError && may("sched:w") && (
        <div class="row">
          <Start kind="redrive" n={group.count} exact={group.exact} filter={filter} by={by}>Redrive this group</Start>
          <Start kind="purge" n={group.count} exact={group.exact} filter={filter} by={by}>Purge this group</Start>
        </div>
      )}
    </li>
  );
}

const starts = {
  redrive: {
    question: "Redrive",
    about: "Each is due now, and its attempts are counted from zero again. One that may have arrived before it failed can arrive a second time. What fails after this begins is left out.",
  },
  purge: {
    question: "Purge",
    about: "They are deleted for good: nobody can try them again, and their ids are free.",
  },
};

interface StartProps {
  kind: keyof typeof starts;
  /** n is how many messages the filter selects, at least if that is not exact. */
  n: number;
  exact: boolean;
  filter: Schemas["JobFilter"];
  by: Query;
  children: string;
}

/** Start is a button that starts a job for all messages that a filter selects. */
function Start({ kind, n, exact, filter, by, children }: StartProps) {
  const { from, to } = by.query;
  const run = async () => {
    const body = { filter: { ...filter, from, to } };
    const { jobId } = (await answer(api.POST(`/v1/messages/${kind}`, { body }))) as Schemas["JobStarted"];
    by.set({ job: jobId, of: String(n) });
    return "";
  };
  const further = kind === "purge" && ` What fails ${filter.lastError ? "with the same error" : "in this channel"} before the job begins is purged, too.`;
  return (
    <Act run={run} danger={kind === "purge"} confirm={`${starts[kind].question} ${amount(n, exact)} of ${filter.channel}?`} fields={<p>{starts[kind].about}{further}</p>}>
      {children}
    </Act>
  );
}
