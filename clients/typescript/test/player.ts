// Plays clients/scenario/scenario.json against a real node; clients/scenario/README.md says what its fields mean.

import { readFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import {
  Client,
  NoAnswerError,
  PostdateError,
  ProblemError,
  type Call,
  type Change,
  type ClientOptions,
  type components,
  type JobFilter,
  type ListFilter,
  type Message,
  type ReceivedMessage,
} from "../src/index.ts";

type Json = null | boolean | number | string | Json[] | { [name: string]: Json | undefined };

interface Step {
  do: string;
  with?: Json;
  want?: Json;
  problem?: string;
  mayBeDone?: boolean;
  save?: Record<string, string>;
  key?: string;
  retry?: boolean;
  timeout?: string;
  fault?: Json;
}

const environment = process.env as { POSTDATE_HARNESS: string; POSTDATE_SCENARIO: string };
const harness = environment.POSTDATE_HARNESS;
const saved: Record<string, string> = {};

type Schemas = components["schemas"];

/** The arguments of all steps, of which each has some. */
interface Arguments {
  scheduleId: string;
  scheduleIds: string[];
  messages: Message[];
  message: Message & { scheduleId: string };
  change: Change & Schemas["TenantChange"];
  recurrence: Schemas["Recurrence"];
  filter: JobFilter;
  ifVersion: string | undefined;
  from: string;
  count: number;
  inbox: string;
  consumer: string;
  after: string | undefined;
  receipts: string[];
  limit: number | undefined;
  wait: string | undefined;
  visibility: string | undefined;
  until: number;
  failFirst: boolean | undefined;
  slowFirst: string | undefined;
  callers: number;
  workers: number;
  id: string;
  tenant: string;
  offset: string;
}

type Calls = Record<string, (client: Client, given: Arguments) => unknown>;

const calls: Calls = {
  scheduleMessage: (client, given) => client.schedule(given as unknown as Message),
  scheduleBatch: async (client, { messages }) => ({ results: await client.scheduleAll(messages) }),
  putMessage: (client, { message, ifVersion }) => client.put(message, { ifVersion }),
  patchMessage: (client, { scheduleId, change, ifVersion }) =>
    client.patch(scheduleId, change, { ifVersion }),
  getMessage: (client, { scheduleId }) => client.get(scheduleId),
  listMessages: async (client, given) => ({ messages: await listed(client.list(given as ListFilter)) }),
  cancelMessage: (client, { scheduleId }) => client.cancel(scheduleId),
  cancelMessages: async (client, { scheduleIds }) => ({ results: await client.cancelAll(scheduleIds) }),
  redriveMessages: async (client, { scheduleIds }) => ({ results: await client.redrive(scheduleIds) }),
  purgeMessages: async (client, { scheduleIds }) => ({ results: await client.purge(scheduleIds) }),
  cancelWhere: async (client, { filter }) => client.waitJob(await client.cancelWhere(filter)),
  redriveWhere: async (client, { filter }) => client.waitJob(await client.redriveWhere(filter)),
  purgeWhere: async (client, { filter }) => client.waitJob(await client.purgeWhere(filter)),
  getJob: (client, { id }) => client.job(id),
  triggerMessage: (client, { scheduleId, ifVersion }) => client.trigger(scheduleId, { ifVersion }),
  pauseSeries: (client, { scheduleId }) => client.pauseSeries(scheduleId),
  resumeSeries: (client, { scheduleId }) => client.resumeSeries(scheduleId),
  previewRecurrence: async (client, { recurrence, from, count }) => ({
    occurrences: await client.preview(recurrence, { from, count }),
  }),
  getUpcoming: async (client, given) => ({ slots: await client.upcoming(given) }),
  getFailures: (client, given) => client.failures(given),
  defineTask: (client, given) => client.defineTask(given as unknown as Schemas["TaskDefinition"]),
  listTasks: async (client, given) => ({
    tasks: await listed(client.tasks(given as unknown as { name: string })),
  }),
  readInbox: (client, { inbox, after, wait }) => client.readInbox(inbox, { after, waitMs: millisOf(wait) }),
  receiveMessages: async (client, { inbox, consumer, ...given }) => ({
    messages: await client.receive(inbox, consumer, receiveOf(given)),
  }),
  acknowledgeMessages: async (client, { inbox, consumer, receipts }) => ({
    results: await client.ack(inbox, consumer, receipts),
  }),
  consume,
  listChannels: (client) => client.channels(),
  changeChannel: (client, given) => client.changeChannel(given as unknown as Schemas["ChannelChange"]),
  getCluster: (client) => client.cluster(),
  getStats: (client) => client.stats(),
  whoAmI: (client) => client.whoAmI(),
  listKeys: async (client) => ({ keys: await client.keys() }),
  createKey: (client, given) => client.createKey(given as unknown as Schemas["KeyWish"]),
  revokeKey: (client, { id }) => client.revokeKey(id),
  listTenants: async (client) => ({ tenants: await client.tenants() }),
  changeTenant: (client, { tenant, change }) => client.changeTenant(tenant, change),
  getHealth: (client) => client.health(),
  getReady: (client) => client.ready(),
  getMetrics: async (client) => ({ text: await client.metrics() }),
  getOpenAPI: (client) => client.openAPI(),
  call: (client, given) => client.call(given as unknown as Call),
  kill: () => control("/kill"),
  start: (_, { after }) => control(`/start?after=${after ?? ""}`),
  clock: (_, { offset }) => {
    const wrong = millisOf(offset);
    const now = () => Clock.now() + wrong;
    globalThis.Date = new Proxy(Clock, {
      construct: (_, [at = now()]: [number?]) => new Clock(at),
      get: (_, name) => (name === "now" ? now : (Reflect.get(Clock, name) as unknown)),
    });
  },
  flood,
};

const Clock = Date;

async function consume(client: Client, given: Arguments) {
  const { inbox, consumer, until, failFirst, slowFirst } = given;
  const messages: ReceivedMessage[] = [];
  const enough = new AbortController();
  const handle = async (message: ReceivedMessage) => {
    messages.push(message);
    if (messages.length === until) enough.abort();
    if (messages.length === 1 && slowFirst !== undefined) await setTimeout(millisOf(slowFirst));
    if (messages.length === 1 && failFirst) throw new Error("the scenario lets it fail");
  };
  await client.consume(inbox, consumer, handle, { ...receiveOf(given), signal: enough.signal });
  return { messages };
}

async function flood(client: Client, { inbox, consumer, count, callers, workers, ...given }: Arguments) {
  const options = receiveOf(given);
  const failed = new Set<string>();
  const handled = new Set<string>();
  const unmarked = new Set<string>();
  const enough = new AbortController();
  const received = ({ scheduleId, possibleDuplicate, payload }: ReceivedMessage) => {
    if (scheduleId !== `flood-${String(payload)}`) {
      enough.abort(new Error(`${scheduleId} has the payload ${String(payload)}`));
    }
    if (possibleDuplicate) return;
    if (unmarked.has(scheduleId)) enough.abort(new Error(`${scheduleId} came twice without a mark`));
    unmarked.add(scheduleId);
  };
  const handle = (message: ReceivedMessage) => {
    received(message);
    const { scheduleId } = message;
    if (scheduleId.endsWith("00") && !failed.has(scheduleId)) {
      failed.add(scheduleId);
      throw new Error("the flood lets it fail");
    }
    if (handled.add(scheduleId).size === count) enough.abort("all are handled");
  };
  let next = 0;
  let scheduled = 0;
  const caller = async () => {
    while (next < count && !enough.signal.aborted) {
      const payload = next++;
      const asked = `flood-${String(payload)}`;
      const message = { scheduleId: asked, channel: `inbox:${inbox}`, delay: 1, payload };
      const { scheduleId } = await client.schedule(message);
      if (scheduleId !== asked) throw new Error(`${asked} was asked for, and ${scheduleId} answered`);
      if (++scheduled !== Math.floor(count / 4)) continue;
      for (const lost of await client.receive(inbox, consumer, { ...options, waitMs: 5000 })) received(lost);
      await control("/kill");
      await control("/start?after=200ms");
    }
  };
  await Promise.all([
    ...Array.from({ length: workers }, () =>
      client.consume(inbox, consumer, handle, { ...options, signal: enough.signal }),
    ),
    ...Array.from({ length: callers }, caller),
  ]);
  if (enough.signal.reason !== "all are handled") throw enough.signal.reason;
  const [more] = await client.receive(inbox, consumer, { ...options, waitMs: options.visibilityMs });
  if (more !== undefined) throw new Error(`${more.scheduleId} comes again once all are handled`);
}

function receiveOf({ limit, wait, visibility }: Pick<Arguments, "limit" | "wait" | "visibility">) {
  return { limit, waitMs: millisOf(wait), visibilityMs: millisOf(visibility) };
}

async function listed<T>(from: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of from) all.push(item);
  return all;
}

function millisOf(duration: string): number;
function millisOf(duration: string | undefined): number | undefined;
function millisOf(duration: string | undefined): number | undefined {
  if (duration === undefined) return undefined;
  const units: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };
  const [, value, unit] = /^(-?\d+)(ms|s|m|h)$/.exec(duration) ?? [];
  return Number(value) * (units[unit ?? ""] ?? NaN);
}

async function control(path: string, body: Json = null): Promise<void> {
  const response = await fetch(harness + path, { method: "POST", body: JSON.stringify(body) });
  if (!response.ok)
    throw new Error(`the harness answers ${String(response.status)}: ${await response.text()}`);
}

async function play(step: Step): Promise<void> {
  const options: ClientOptions = {};
  if (step.fault !== undefined) {
    await control("/fault", step.fault);
    options.server = `${harness}/node`;
  }
  if (step.key !== undefined) options.apiKey = fill(step.key) as string;
  if (step.retry === false) options.retryForMs = 0;
  if (step.timeout !== undefined) options.timeoutMs = millisOf(step.timeout);
  const call = calls[step.do];
  if (call === undefined) throw new Error("the player does not know this step");
  let answer: unknown;
  let met: string | undefined;
  try {
    answer = await call(new Client(options), fill(step.with ?? {}) as unknown as Arguments);
  } catch (error) {
    if (!(error instanceof PostdateError)) throw error;
    if (error instanceof NoAnswerError) met = "no-answer";
    if (error instanceof ProblemError) {
      met = error.type;
      answer = { ...error.problem, requestId: error.requestId };
    }
    if (met !== step.problem) throw error;
    if (step.mayBeDone !== undefined && error.mayBeDone !== step.mayBeDone) {
      throw new Error(`mayBeDone is ${String(error.mayBeDone)}`, { cause: error });
    }
  }
  if (met !== step.problem) throw new Error(`there is no problem, want ${String(step.problem)}`);
  const got = JSON.parse(JSON.stringify(answer ?? null)) as Json;
  if (step.want !== undefined) {
    const miss = mismatch(fill(step.want), got);
    if (miss !== "") throw new Error(`${miss}, in ${JSON.stringify(got)}`);
  }
  for (const [name, pointer] of Object.entries(step.save ?? {})) saved[name] = find(got, pointer);
}

function fill(value: Json): Json {
  if (typeof value === "string") {
    const times = /^\{x (\d+)\}$/.exec(value);
    return times
      ? "x".repeat(Number(times[1]))
      : value.replace(/\$\{(\w+)\}/g, (_, name: string) => saved[name] ?? "");
  }
  if (Array.isArray(value)) return value.map(fill);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, fill(inner ?? null)]));
}

/** Says what of an answer is not as it is wanted; "": nothing. */
function mismatch(want: Json, got: Json | undefined): string {
  if (Array.isArray(want)) {
    let rest = Array.isArray(got) ? got : [];
    for (const [n, wanted] of want.entries()) {
      const at = rest.findIndex((item) => mismatch(wanted, item) === "");
      if (at < 0) return `/${String(n)}: there is no ${JSON.stringify(wanted)}`;
      rest = rest.slice(at + 1);
    }
    return "";
  }
  if (want !== null && typeof want === "object") {
    for (const [name, wanted] of Object.entries(want)) {
      const miss = mismatch(wanted ?? null, (got as Record<string, Json> | null | undefined)?.[name]);
      if (miss !== "") return `/${name}${miss}`;
    }
    return "";
  }
  return matches(want, got) ? "" : `: is ${JSON.stringify(got)}, want ${JSON.stringify(want)}`;
}

function matches(want: Json, got: Json | undefined): boolean {
  if (typeof want !== "string") return want === got || (want === false && got === undefined);
  if (want === "{done}") return true;
  if (want === "{any}") return got !== undefined && got !== null;
  if (want === "{none}") return got === undefined || got === null || (Array.isArray(got) && got.length === 0);
  if (typeof got !== "string") return false;
  if (want.startsWith("{has ")) return got.includes(want.slice("{has ".length, -1));
  if (want.startsWith("{in ")) {
    const at = Clock.now() + millisOf(want.slice("{in ".length, -1));
    return Math.abs(Clock.parse(got) - at) < 60_000;
  }
  const isTime = /^\d{4}-\d\d-\d\dT/.test(want);
  return want === got || (isTime && Date.parse(want) === Date.parse(got));
}

function find(value: Json | undefined, pointer: string): string {
  for (const name of pointer.split("/").slice(1)) {
    value = (value as Record<string, Json> | undefined)?.[name];
  }
  if (typeof value !== "string") throw new Error(`there is no text at ${pointer} to save`);
  return value;
}

const { phases } = JSON.parse(readFileSync(environment.POSTDATE_SCENARIO, "utf8")) as {
  phases: { name: string; steps: Step[] }[];
};
for (const { name, steps } of phases) {
  for (const [n, step] of steps.entries()) {
    console.error(`${name}, step ${String(n + 1)}, ${step.do}`);
    const seconds = step.do === "flood" ? 120 : 60;
    const limit = globalThis.setTimeout(() => {
      console.error(`it does not end within ${String(seconds)} s`);
      process.exit(1);
    }, seconds * 1000);
    await play(step);
    clearTimeout(limit);
  }
}
