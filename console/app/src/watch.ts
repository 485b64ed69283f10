// What changes in a cluster from one look to the next.
import type { Schemas } from "./api";

type Bucket = Schemas["Bucket"];
type Member = Schemas["Member"];

/** Change is something that happened between two looks; at is when the page saw it. */
export interface Change {
  id: number;
  at: number;
  what: string;
  /** token is the new token of a bucket that changed its owner. */
  token?: number;
}

/** Watch is what was seen of a cluster since the page was opened. */
export interface Watch {
  node: string;
  members: Member[];
  /** buckets are empty until the store was read once. */
  buckets: Bucket[];
  /** unread: the store could not be read at the last look, and the buckets are older. */
  unread: boolean;
  at: number;
  since: number;
  /** changes are the latest ones, the newest first. */
  changes: Change[];
  count: number;
  /** moved says when a bucket last changed its owner. */
  moved: Map<number, number>;
  /** colours are the numbers of the nodes' colours. They stay as they are while the page is open. */
  colours: Map<string, number>;
}

const changesMax = 20_000;

/** look adds what the API says of a cluster now to what was seen before. */
export function look(before: Watch | undefined, cluster: Schemas["Cluster"], at: number): Watch {
  const unread = cluster.buckets.length === 0;
  const after: Watch = {
    node: cluster.node,
    members: cluster.members,
    buckets: unread ? (before?.buckets ?? []) : cluster.buckets,
    unread,
    at,
    since: before?.since ?? at,
    changes: before?.changes ?? [],
    count: before?.count ?? 0,
    moved: before?.moved ?? new Map(),
    colours: coloursOf(before?.colours ?? new Map(), cluster),
  };
  if (!before) return after;
  const found = [...newsOfMembers(before, after), ...newsOfBuckets(before, after)];
  if (found.length === 0) return after;
  const changes = found.map((f, i) => ({ ...f, id: after.count + i, at })).reverse();
  after.count += changes.length;
  after.changes = [...changes, ...after.changes].slice(0, changesMax);
  return after;
}

function coloursOf(known: Map<string, number>, cluster: Schemas["Cluster"]): Map<string, number> {
  const names = new Set([...cluster.members.map((m) => m.node), ...cluster.buckets.map((b) => b.owner)]);
  const fresh = [...names].filter((name) => name !== "" && !known.has(name)).sort();
  if (fresh.length === 0) return known;
  return new Map([...known, ...fresh.map((name, i): [string, number] => [name, ((known.size + i) % 10) + 1])]);
}

/** isSilent reports whether a node is alive by gossip and does not answer. A store for one node knows no leases. */
export function isSilent(w: Pick<Watch, "node" | "members">, m: Member): boolean {
  return m.state === "alive" && !m.lease && m.node !== w.node;
}

const news: Record<string, string> = {
  alive: "is here",
  silent: "does not answer",
  lost: "is lost: it does not answer any more",
  left: "has left",
};

function newsOfMembers(before: Watch, after: Watch): { what: string }[] {
  const standing = (w: Watch, m: Member) => (isSilent(w, m) ? "silent" : m.state);
  const old = new Map(before.members.map((m) => [m.node, m]));
  const now = new Set(after.members.map((m) => m.node));
  const found: { what: string }[] = [];
  for (const m of after.members) {
    const was = old.get(m.node);
    const state = standing(after, m);
    if (!was || standing(before, was) !== state) found.push({ what: `Node ${m.node} ${news[state] ?? `is ${state}`}` });
    else if (was.lease && m.lease && was.lease.id !== m.lease.id) found.push({ what: `Node ${m.node} was started anew` });
  }
  for (const name of old.keys()) if (!now.has(name)) found.push({ what: `Node ${name} is not known any more` });
  return found;
}

// The token tells of owners that came and went between two looks, too.
function newsOfBuckets(before: Watch, after: Watch): { what: string; token: number }[] {
  const old = new Map(before.buckets.map((b) => [b.bucket, b]));
  const found = [];
  const moved = new Map(after.moved);
  for (const b of after.buckets) {
    const was = old.get(b.bucket);
    if (!was || (was.owner === b.owner && was.token === b.token)) continue;
    moved.set(b.bucket, after.at);
    found.push({ what: `Bucket ${b.bucket} went from ${was.owner || "nobody"} to ${b.owner || "nobody"}`, token: b.token });
  }
  if (found.length > 0) after.moved = moved;
  return found;
}
