// Every figure of the console equals that of the API, and that of the metrics, once nothing moves. Each has a line in
// the table below, and a figure without one fails the test.
import { type Page } from "@playwright/test";
import { createServer } from "node:net";
import { bytes, count, ms, rate } from "../src/format";
import { type Node, adminKey, expect, listen, soon } from "./harness";
import { flags, test } from "./receiver";

/** Metrics are the lines of all nodes' metrics. */
class Metrics {
  constructor(private readonly nodes: string[][]) {}

  /** each is a metric of each node: the sum of its lines that have all of these labels. */
  each(name: string, ...labels: string[]): number[] {
    return this.nodes.map((lines) =>
      lines.filter((line) => new RegExp(`^${name}[{ ]`).test(line) && labels.every((label) => line.includes(label)))
        .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" ") + 1)), 0));
  }

  sum = (name: string, ...labels: string[]) => this.each(name, ...labels).reduce((sum, n) => sum + n, 0);
  most = (name: string, ...labels: string[]) => Math.max(...this.each(name, ...labels));
}

/** Shown is a figure on a page: what it counts, of what, and what is written there. */
interface Shown { name: string; of: string; value: string }

/** World is what the figures are compared with. */
interface World {
  stats: any; cluster: any; metrics: Metrics;
  upcoming: any; failures: any; messages: any[]; series: any; channels: Map<string, any>; tenants: Map<string, any>; keys: any[];
}

interface Line {
  /** api is what the page writes by the API's answers. */
  api(world: World, of: string): string | RegExp;
  /** metric is a pair that must be equal: the API's number, or numbers, and the metrics'. A text says why no metric has it. */
  metric: ((world: World, of: string) => [number, number] | [number[], number[]]) | string;
}

const inTheLastMinute = (name: string, metric: (m: Metrics) => number): Line => ({
  // The nodes are less than a minute old, so their last minute is all that they did. The rate goes on falling.
  api: ({ stats }) => new RegExp(`^[\\d.]+/s ${stats.total[name]} in the last \\d+ s`),
  metric: ({ stats, metrics }) => [stats.total[name], metric(metrics)],
});

const lateness = (p: "p50" | "p99"): Line => ({
  api: ({ stats }) => new RegExp(`^${ms(stats.lastMinute.latenessMs[p]).replace(".", "\\.")} `),
  metric: ({ stats, metrics }) => [stats.total.delivered, metrics.sum("postdate_lateness_seconds_count")],
});

const limit = (name: string, used?: string, write: (n: number) => string = count): Line => ({
  api: ({ tenants }, of) => {
    const t = tenants.get(of);
    const most = t[name] === 0 ? "no limit" : write(t[name]);
    return `${used ? `${write(t[used])} ${t[name] === 0 ? "" : "of "}` : ""}${most}${t.set.includes(name) ? " set" : ""}`;
  },
  metric: ({ tenants, metrics }, of) => {
    const t = tenants.get(of);
    const most = metrics.most("postdate_tenant_limit", `tenant="${of}"`, `limit="${name}"`);
    if (used !== "pending" && used !== "bytes") return [t[name], most]; // no metric has the others
    return [[t[used], t[name]], [metrics.most(`postdate_pending_${used === "bytes" ? used : "messages"}`, `tenant="${of}"`), most]];
  },
});

const sumOf = (rows: any[], field: string) => rows.reduce((sum: number, row: any) => sum + row[field], 0);
const ofDefault = ['tenant="default"'];
const confirmed = (metrics: Metrics, ...labels: string[]) => metrics.sum("postdate_publishes_total", 'outcome="confirmed"', ...ofDefault, ...labels);
const allFailed = ({ failures, metrics }: World): [number, number] =>
  [sumOf(failures.groups, "count"), metrics.sum("postdate_settled_total", 'how="failed"', ...ofDefault)];
const owned = ({ cluster }: World, of: string) => cluster.buckets.filter((b: any) => b.owner === of).length;
const stored = "it is of one message, and metrics are of all";
const ownersOnly = "the owner of a bucket is in the store only";

/** lines are all figures of all pages, by page and by what they count. */
const lines: Record<string, Record<string, Line>> = {
  now: {
    "Scheduled": inTheLastMinute("scheduled", (m) => m.sum("postdate_scheduled_total")),
    "Delivered": inTheLastMinute("delivered", (m) => m.sum("postdate_settled_total", 'how="delivered"')),
    "Failed": inTheLastMinute("failed", (m) => m.sum("postdate_settled_total", 'how="failed"')),
    "Cancelled": inTheLastMinute("cancelled", (m) => m.sum("postdate_cancelled_total")),
    "Lateness, median": lateness("p50"),
    "Lateness, p99": lateness("p99"),
    "Overdue": {
      api: ({ stats }) => (stats.overdueMs > 0 ? `${ms(stats.overdueMs)} ` : /^nothing /),
      metric: ({ stats, metrics }) => [stats.overdueMs, 1000 * metrics.most("postdate_overdue_seconds")],
    },
    "In hand": {
      api: ({ stats }) => new RegExp(`^${count(stats.inHand)} `),
      metric: ({ stats, metrics }) => [stats.inHand, metrics.sum("postdate_messages_in_hand")],
    },
    "Pending": {
      api: ({ stats: { pending } }) => new RegExp(`^${count(pending.messages)} .* with ${bytes(pending.bytes)} of payload`),
      metric: ({ stats, metrics }) => [
        [stats.pending.messages, stats.pending.bytes],
        [metrics.most("postdate_pending_messages"), metrics.most("postdate_pending_bytes")],
      ],
    },
    "Channels down": {
      api: ({ stats }) => new RegExp(`^${count(stats.channelsDown)} `),
      metric: ({ stats, metrics }) => [stats.channelsDown, metrics.most("postdate_channels_down")],
    },
  },
  coming: {
    "Due in this time": { api: ({ upcoming }) => new RegExp(`^${count(sumOf(upcoming.slots, "count"))} `), metric: "metrics do not look ahead" },
    "In the fullest slot": {
      api: ({ upcoming }) => new RegExp(`^${rate(Math.max(...upcoming.slots.map((s: any) => s.count)) / 60)}/s On average over its 1 minute`),
      metric: "metrics do not look ahead",
    },
    "Overdue": { api: () => /^0 Were due more than 10 seconds ago/, metric: ({ metrics }) => [0, metrics.most("postdate_overdue_seconds")] },
    "Slots: Messages": {
      // While the page reads on, it still has the slots of the time before.
      api: ({ upcoming }, of) => {
        const slot = upcoming.slots.find((s: any) => Date.parse(s.from) === Date.parse(of));
        return slot ? count(slot.count) : "not in the answer";
      },
      metric: "metrics do not look ahead",
    },
  },
  failed: {
    "Messages of a reason": {
      api: ({ failures }, of) => {
        const n = failures.groups.find((g: any) => of.endsWith(g.lastError)).count;
        return `${count(n)} ${n === 1 ? "message" : "messages"}`;
      },
      metric: allFailed,
    },
    "Messages of a channel": {
      api: ({ failures }, of) => {
        const groups = failures.groups.filter((g: any) => g.channel === of);
        return `${count(sumOf(groups, "count"))} messages with ${groups.length} errors`;
      },
      metric: allFailed,
    },
  },
  channels: {
    "Channels: Rate": {
      // The minute grows, so the rate goes on falling.
      api: ({ channels }, of) => (channels.get(of).deliveredPerSecond > 0 ? /^[\d.]+\/s$/ : "0/s"),
      metric: ({ channels, metrics }) => {
        const some = [...channels.values()].filter((c) => c.deliveredPerSecond > 0).map((c) => c.channel);
        const all = (names: string[]) => names.reduce((sum, name) => sum + confirmed(metrics, `channel="${name}"`), 0);
        return [all(some), confirmed(metrics)];
      },
    },
    "Channels: Due": {
      api: ({ channels }, of) => count(channels.get(of).due),
      metric: "metrics do not count by channel what is stored",
    },
    "Channels: Pending": {
      api: ({ channels }, of) => count(channels.get(of).pending),
      metric: ({ channels, metrics }) => [sumOf([...channels.values()], "pending"), metrics.most("postdate_pending_messages", ...ofDefault)],
    },
    "Channels: In flight": {
      api: ({ channels }, of) => count(channels.get(of).inFlight),
      metric: ({ channels, metrics }) => [sumOf([...channels.values()], "inFlight"), metrics.sum("postdate_webhook_in_flight")],
    },
    "Channels: In hand": {
      api: ({ channels }, of) => count(channels.get(of).inHand),
      metric: ({ channels, metrics }) => [sumOf([...channels.values()], "inHand"), metrics.sum("postdate_messages_in_hand")],
    },
  },
  cluster: {
    "Nodes": {
      api: ({ cluster }) => new RegExp(`^${cluster.members.length} alive, of ${cluster.members.length} that node ${cluster.node} knows`),
      metric: ({ cluster, metrics }) => [cluster.members.length, metrics.most("postdate_gossip_members")],
    },
    "Buckets": { api: ({ cluster }) => new RegExp(`^${count(cluster.buckets.length)} `), metric: ownersOnly },
    "Without an owner": { api: () => /^0 /, metric: ownersOnly },
    "Largest lag": {
      api: () => /^none /,
      metric: ({ cluster, metrics }) => [Math.max(...cluster.buckets.map((b: any) => b.lag)), 1000 * metrics.most("postdate_overdue_seconds")],
    },
    "Nodes: Buckets": { api: (world, of) => count(owned(world, of)), metric: ownersOnly },
    "Nodes: Clock": { api: () => /^[\d.]+ (ms|s) (ahead|behind)$/, metric: "it moves: the page and the API measure it each time" },
    "Buckets: Bucket": { api: (_, of) => of, metric: "it is a name" },
    "Buckets: Token": { api: ({ cluster }, of) => count(cluster.buckets[Number(of)].token), metric: ownersOnly },
    "Buckets: Lag": { api: ({ cluster }, of) => ms(cluster.buckets[Number(of)].lag), metric: "metrics have the longest only: see Largest lag" },
  },
  tenants: {
    "Tenants: Pending": limit("pendingMax", "pending"),
    "Tenants: Payload": limit("bytesMax", "bytes", bytes),
    "Tenants: Channels": limit("channelsMax", "channels"),
    "Tenants: Requests/s": limit("requestsPerSecond", undefined, String),
    "Tenants: Messages/s": limit("messagesPerSecond", undefined, String),
    "Tenants: Weight": { ...limit("weight"), metric: "metrics have no weights" },
    "Tenants: Keys": { api: ({ keys }, of) => String(keys.filter((k) => k.tenant === of).length), metric: "metrics have no keys" },
  },
  messages: {
    "Messages: Attempts": { api: ({ messages }, of) => count(messages.find((m) => m.scheduleId === of).attempts), metric: stored },
  },
  series: {
    "Series: Fired": { api: ({ series }) => count(series.series.fired), metric: stored },
    "Series: Failed": { api: ({ series }) => count(series.series.failed), metric: stored },
    "Series: Skipped": { api: ({ series }) => count(series.series.skipped), metric: stored },
  },
  "series?id=few": {
    "Next": { api: () => /^– None follows/, metric: stored },
    "Fired": { api: ({ series }) => new RegExp(`^${series.series.fired} `), metric: stored },
    "Failed": { api: ({ series }) => new RegExp(`^${series.series.failed} `), metric: stored },
    "Skipped": { api: ({ series }) => new RegExp(`^${series.series.skipped} `), metric: stored },
    "Last outcomes: Attempts": { api: () => "1", metric: stored },
    "Last outcomes: Skipped": { api: () => "–", metric: stored },
  },
};

/** figures reads all figures of a page: those with a name, the cells of columns of numbers, and amounts. */
const figures = (page: Page) =>
  page.evaluate((): Shown[] => {
    const text = (of: Element | null) => (of?.textContent ?? "").replace(/\s+/g, " ").trim();
    const found: Shown[] = [...document.querySelectorAll(".figure")].map((f) =>
      ({ name: text(f.querySelector("dt")), of: "", value: [...f.querySelectorAll("dd")].map(text).join(" ") }));
    for (const table of document.querySelectorAll("table")) {
      const label = table.parentElement!.getAttribute("aria-label");
      const names = [...table.querySelectorAll("th")].map((th) => text(th).replace(/ [▲▼]$/, ""));
      for (const cell of table.querySelectorAll<HTMLTableCellElement>("td.number")) {
        const first = cell.parentElement!.querySelector("td")!;
        const of = first.querySelector("time")?.dateTime ?? text(first.querySelector("a") ?? first).replace(/ answers here$/, "");
        found.push({ name: `${label}: ${names[cell.cellIndex]}`, of, value: text(cell) });
      }
    }
    for (const amount of document.querySelectorAll<HTMLElement>("[data-figure]")) {
      found.push({ name: amount.dataset.figure!, of: text(amount.closest("li")?.querySelector(".reason") ?? amount.closest("section")!.querySelector("h2")), value: text(amount) });
    }
    return found;
  });

/** wrong says what of a page is not as the API and the metrics have it, and which figures it has. */
function wrong(path: string, shown: Shown[], world: World): string[] {
  const faults: string[] = [];
  for (const { name, of, value } of shown) {
    const line = lines[path]![name];
    if (!line) {
      faults.push(`${path}: no line in figures.spec.ts names ${name}`);
      continue;
    }
    const api = line.api(world, of);
    if (typeof api === "string" ? value !== api : !api.test(value)) faults.push(`${path}: ${name} ${of} is ${value}, by the API ${api}`);
    if (typeof line.metric === "string") continue;
    const [said, measured] = line.metric(world, of);
    if (String(said) !== String(measured)) faults.push(`${path}: ${name} ${of} is ${said} by the API, ${measured} by the metrics`);
  }
  const missing = Object.keys(lines[path]!).filter((name) => !shown.some((s) => s.name === name));
  return [...faults, ...missing.map((name) => `${path}: ${name} is not there`)];
}

/** load gives the nodes something of each kind: what is delivered, fails, waits, is cancelled, is paused, down or recurs. */
async function load(node: Node, url: (path: string) => string, down: string) {
  const call = (method: string, path: string, body?: unknown, key = adminKey) => node.call(method, path, body, key);
  const later = soon(1800);
  const many = (n: number, id: string, channel: string, executionTime: string, payload: unknown = { reason: id }) =>
    Array.from({ length: n }, (_, i) => ({ scheduleId: `${id}${i}`, channel, executionTime, payload }));
  await call("PATCH", "/v1/channels", { channel: "inbox:paused", paused: true });
  await call("POST", "/v1/messages/batch", [
    ...many(12, "done", "inbox:a", soon(0)), ...many(25, "later", "inbox:b", later), ...many(4, "paused", "inbox:paused", soon(0)),
    ...many(3, "late", url("/orders"), soon(0), { reason: "too late" }), ...many(2, "odd", url("/orders"), soon(0), { reason: "odd" }), ...many(1, "down", down, soon(0)),
    { scheduleId: "few", channel: "inbox:a", payload: 1, recurrence: { every: "PT0.1S", maxRuns: 3 } },
  ]);
  for (let i = 0; i < 5; i++) await call("DELETE", `/v1/messages/later${i}`);
  for (const [tenant, n] of [["acme", 3], ["beta", 2]] as const) {
    const { key } = await call("POST", "/v1/keys", { tenant, scopes: ["sched:w"] });
    await call("POST", "/v1/messages/batch", [...many(n, "m", "inbox:c", later, tenant.repeat(100)), ...many(n, "now", "inbox:d", soon(0))], key);
  }
  await call("PATCH", "/v1/tenants/acme", { pendingMax: 1000, bytesMax: 1 << 20, channelsMax: 9, messagesPerSecond: 250, weight: 3 });
}

test("every figure equals the API's and the metrics'", async ({ start, receiver, page }) => {
  const store = process.env.POSTDATE_TEST_FIGURES_URI;
  if (!store) throw new Error("POSTDATE_TEST_FIGURES_URI names no MongoDB: set it to the address of a database of a replica set");
  const gossip = createServer();
  const at = await listen(gossip);
  await new Promise((done) => gossip.close(done));
  const member = (name: string, address: string) =>
    start("--store", store, "--buckets", "8", "--node-id", name, "--gossip", address, "--join", at, "--admin-key", adminKey, ...flags);
  const nodes = [await member("a", at), await member("b", "127.0.0.1:0")];
  const node = nodes[0]!;
  const get = (path: string) => node.call("GET", path, undefined, adminKey);
  await node.until<any>("/v1/cluster", ({ members, buckets }) =>
    members.length === 2 && buckets.every((b: any) => b.owner) && members.every((m: any) => buckets.some((b: any) => b.owner === m.node)), adminKey);
  await load(node, (path) => receiver.url(path), "http://127.0.0.1:1/hook");
  const world = {} as World;
  let upcoming = "/v1/upcoming"; // Coming shows a time that begins now: the API is asked for the same one

  /** look asks the API and the metrics of all nodes. */
  const look = async () => {
    const metrics = await Promise.all(nodes.map(async ({ url }) =>
      (await (await fetch(`${url}/metrics`, { headers: { Authorization: `Bearer ${adminKey}` } })).text()).split("\n")));
    const [stats, cluster, failures, list, series, channels, tenants, keys, due] = await Promise.all([
      "/v1/stats", "/v1/cluster", "/v1/failures", "/v1/messages?limit=100", "/v1/messages/few", "/v1/channels", "/v1/tenants", "/v1/keys", upcoming,
    ].map(get));
    Object.assign(world, {
      stats, cluster, failures, series, keys: keys.keys, upcoming: due, metrics: new Metrics(metrics), messages: list.messages,
      channels: new Map(channels.channels.map((c: any) => [c.channel, c])), tenants: new Map(tenants.tenants.map((t: any) => [t.tenant, t])),
    });
  };
  await node.until<any>("/v1/stats", ({ total, channelsDown }) =>
    total.scheduled === 58 && total.delivered === 20 && total.failed === 5 && total.cancelled === 5 && channelsDown === 1, adminKey);

  await page.addInitScript((key) => sessionStorage.setItem("postdate.credential", key), adminKey);
  page.on("request", (request) => request.url().includes("step=PT") && (upcoming = request.url().slice(node.url.length)));
  for (const path of Object.keys(lines)) {
    await page.goto(`${node.url}/console/${path}`);
    await expect.poll(async () => (await look(), wrong(path, await figures(page), world)), { message: path, timeout: 10_000 }).toEqual([]);
  }
});
