import { Caller, read } from "./calls.ts";
import { handleAll, type Handler, type ReceivedMessage } from "./consume.ts";
import { PostdateError, ProblemError, type Problem } from "./errors.ts";
import { Gatherer, type Item } from "./gather.ts";
import type { components, paths } from "./generated.ts";
import { changeOf, checkId, named, scheduleOf, type Change, type Message, type Time } from "./messages.ts";
import { isOutage, pauseLongestMs, sleep, Transport, type Answer, type Call } from "./transport.ts";

type Schemas = components["schemas"];

/** A message with its state. */
export type StoredMessage = Schemas["Message"];
/** The answer to a call that schedules or changes a message. */
export type Scheduled = Schemas["Scheduled"];
/** What became of one item of many: it has an `error`, or what the call alone would answer. */
export type Result = Schemas["BatchResult"];

/** How a client works. All have defaults. */
export interface ClientOptions {
  /**
   * The addresses of one node, or of several nodes of one cluster. Default: POSTDATE_SERVER, else
   * http://127.0.0.1:8080.
   */
  server?: string | string[];
  /** Default: POSTDATE_API_KEY. */
  apiKey?: string;
  /** The tenant for which an administrator's key acts. Default: POSTDATE_AS_TENANT, else the key's own. */
  tenant?: string;
  /** Sent with every request. */
  headers?: Record<string, string>;
  /** How long one try waits for its answer, beside a long poll's wait. Default: 40 s, longer than a node takes. */
  timeoutMs?: number;
  /** How long after its first try a call may be tried again. Default: 1 min. 0: no call is tried again. */
  retryForMs?: number;
  /** How many requests for gathered schedules are in progress at most, and likewise for cancels. Default: 2. */
  requests?: number;
  /** Makes the requests, in place of the global one: with certificates or a proxy of your own, say. */
  fetch?: typeof fetch;
  /** Is told what consume cannot return. Default: console.warn. */
  log?: (message: string, fields: object) => void;
}

export interface CallOptions {
  /** Ends the call, such as AbortSignal.timeout(5000). */
  signal?: AbortSignal | undefined;
}

export interface ChangeOptions extends CallOptions {
  /** The message must have this version: if somebody has changed it, the problem is "precondition-failed". */
  ifVersion?: string | undefined;
}

export interface ReceiveOptions extends CallOptions {
  /** How many messages at most. Default: 100; of consume: 10, because one that waits behind slow ones is hidden. */
  limit?: number | undefined;
  /** How long to wait for a message if there is none; at most 30,000. */
  waitMs?: number | undefined;
  /** How long nobody else receives the messages: longer than it takes to handle all of them. Default: 30,000. */
  visibilityMs?: number | undefined;
}

/** Returns a variable of the environment, where there is one; one that is empty is not set. */
function environment(name: string): string | undefined {
  const { process } = globalThis as { process?: { env: Record<string, string | undefined> } };
  const value = process?.env[name];
  return value === "" ? undefined : value;
}

/**
 * A client of a Postdate node or cluster.
 *
 * A call that fails throws a ProblemError or a NoAnswerError. Reads, schedules, cancels, redrives, receives and
 * acknowledgements are tried again until they are answered or `retryForMs` is over; other calls only where surely
 * nothing was done. Concurrent calls of schedule share requests, and so do those of cancel.
 */
export class Client {
  readonly #calls: Caller;
  readonly #transport: Transport;
  readonly #schedules: Gatherer<Scheduled & { created: boolean }>;
  readonly #cancels: Gatherer<void>;
  readonly #log: (message: string, fields: object) => void;

  /** `given` is an address, or options. */
  constructor(given: string | ClientOptions = {}) {
    const options = typeof given === "string" ? { server: given } : given;
    const servers = [options.server ?? environment("POSTDATE_SERVER") ?? "http://127.0.0.1:8080"].flat();
    const apiKey = options.apiKey ?? environment("POSTDATE_API_KEY");
    const tenant = options.tenant ?? environment("POSTDATE_AS_TENANT");
    const { timeoutMs = 40_000, retryForMs = 60_000, requests = 2 } = options;
    if (servers.length === 0) throw new TypeError("there is no server: give one, or leave it out");
    if (!(timeoutMs > 0 && retryForMs >= 0 && requests >= 1))
      throw new TypeError("timeoutMs or requests is not above 0, or retryForMs is below");
    this.#transport = new Transport({
      servers: servers.map(addressOf),
      headers: {
        ...(apiKey ? { Authorization: `Bearer ${apiKey}` } : {}),
        ...(tenant ? { "Postdate-Tenant": tenant } : {}),
        ...options.headers,
      },
      timeoutMs,
      retryForMs,
      fetch: options.fetch ?? fetch,
    });
    this.#calls = new Caller(this.#transport);
    this.#log =
      options.log ??
      ((message, fields) => {
        console.warn(message, fields);
      });
    const server = () => this.server;
    this.#schedules = new Gatherer(
      {
        alone: (item, signal) => this.#scheduleAlone(item, { signal }),
        together: (items, signal) => this.#scheduleTogether(items, signal),
        server,
      },
      requests,
    );
    this.#cancels = new Gatherer(
      {
        alone: async (item, signal) => {
          const path = { id: item.scheduleId };
          const want = { fields: cancelled(item.scheduleId) };
          await this.#calls.once("delete", "/v1/messages/{id}", { path, want, signal });
        },
        together: (items, signal) => this.#cancelTogether(items, signal),
        server,
      },
      requests,
    );
  }

  /** The server that the next call tries first. */
  get server(): string {
    return this.#transport.server;
  }

  /**
   * Schedules a message. One without a scheduleId gets one before the first try. The same scheduleId with the same
   * content again is answered as the first time, with other content by the problem "exists".
   */
  async schedule(message: Message, options: CallOptions = {}): Promise<Scheduled & { created: boolean }> {
    const whole = named(message);
    const { scheduleId, traceparent, tracestate } = whole;
    const item = { scheduleId, body: JSON.stringify(scheduleOf(whole)) };
    const { signal } = options;
    try {
      return await this.#transport.retry(true, signal, () =>
        traceparent === undefined
          ? this.#schedules.call(item, signal)
          : this.#scheduleAlone(item, { headers: { traceparent, tracestate }, signal }),
      );
    } catch (error) {
      throw error instanceof PostdateError ? error.of(scheduleId) : error;
    }
  }

  async #scheduleAlone({ scheduleId, body }: Item, more: Partial<Call>) {
    const answer = await this.#transport.try({ method: "POST", path: "/v1/messages", body, ...more });
    const said = read(answer, { fields: scheduled(scheduleId) }) as Scheduled;
    return { ...said, created: answer.status === 201 };
  }

  /**
   * Schedules up to 10,000 messages in one request. Each stands or falls alone, and its result says which. To
   * repeat a call whose outcome is unknown, give each message its scheduleId.
   */
  async scheduleAll(messages: Message[], options: CallOptions = {}): Promise<Result[]> {
    const body = messages.map((message) => scheduleOf(named(message)));
    const want = { results: body.map(({ scheduleId }) => scheduled(scheduleId)) };
    const args = { body, want, repeatable: true, ...options };
    return (await this.#calls.call("post", "/v1/messages/batch", args)).results;
  }

  async #scheduleTogether(items: Item[], signal: AbortSignal) {
    const body = `[${items.map((item) => item.body).join()}]`;
    const answer = await this.#transport.try({ method: "POST", path: "/v1/messages/batch", body, signal });
    const want = { results: items.map(({ scheduleId }) => scheduled(scheduleId)) };
    const { results } = read(answer, want) as Schemas["BatchResults"];
    return resultsOf(results, (result) => result as Scheduled & { created: boolean });
  }

  /** Creates the message with this scheduleId, or replaces it while it is PENDING. */
  async put(message: Message & { scheduleId: string }, options: ChangeOptions = {}): Promise<Scheduled> {
    const { ifVersion, signal } = options;
    const headers = {
      ...condition(ifVersion),
      traceparent: message.traceparent,
      tracestate: message.tracestate,
    };
    const path = { id: message.scheduleId };
    const want = { fields: scheduled(message.scheduleId) };
    const args = { path, body: scheduleOf(message), want, headers, signal };
    return this.#calls.call("put", "/v1/messages/{id}", args);
  }

  /** Changes a message while it is PENDING, or a series from its next occurrence on. */
  async patch(scheduleId: string, change: Change, options: ChangeOptions = {}): Promise<Scheduled> {
    const { ifVersion, signal } = options;
    const want = { fields: scheduled(scheduleId) };
    const more = { want, headers: condition(ifVersion), signal };
    const args = { path: { id: scheduleId }, body: changeOf(change), ...more };
    return this.#calls.call("patch", "/v1/messages/{id}", args);
  }

  /** Moves a message to another time. */
  move(scheduleId: string, executionTime: Time, options: ChangeOptions = {}): Promise<Scheduled> {
    return this.patch(scheduleId, { executionTime }, options);
  }

  /** Pauses a series. No other occurrence begins until it is resumed. */
  async pauseSeries(scheduleId: string, options: ChangeOptions = {}): Promise<void> {
    await this.patch(scheduleId, { paused: true }, options);
  }

  /** Lets a paused series go on with the first occurrence after now. */
  async resumeSeries(scheduleId: string, options: ChangeOptions = {}): Promise<void> {
    await this.patch(scheduleId, { paused: false }, options);
  }

  /** Begins an occurrence of a series out of turn. It is a message of its own, whose id is in the answer. */
  trigger(scheduleId: string, options: ChangeOptions = {}): Promise<Scheduled> {
    const { ifVersion, signal } = options;
    const want = { fields: scheduled(undefined) };
    const args = { path: { id: scheduleId }, want, headers: condition(ifVersion), signal };
    return this.#calls.call("post", "/v1/messages/{id}/trigger", args);
  }

  /**
   * Cancels a message. If this returns, that is a guarantee: the message is never delivered. If delivery may have
   * begun, the problem is "too-late".
   */
  async cancel(scheduleId: string, options: CallOptions = {}): Promise<void> {
    checkId(scheduleId);
    const item = { scheduleId, body: JSON.stringify(scheduleId) };
    return this.#transport.retry(true, options.signal, () => this.#cancels.call(item, options.signal));
  }

  /** Cancels up to 10,000 messages in one request. A result without an `error` is the same guarantee. */
  async cancelAll(scheduleIds: string[], options: CallOptions = {}): Promise<Schemas["CancelResult"][]> {
    return this.#many("/v1/messages/cancel", scheduleIds, "CANCELLED", options);
  }

  /** Tries up to 10,000 messages again that failed. Each is PENDING then, or its result has an `error`. */
  async redrive(scheduleIds: string[], options: CallOptions = {}): Promise<Schemas["CancelResult"][]> {
    return this.#many("/v1/messages/redrive", scheduleIds, "PENDING", options);
  }

  /** Deletes up to 10,000 messages that failed. Each is gone then, or its result has an `error`. */
  async purge(scheduleIds: string[], options: CallOptions = {}): Promise<Schemas["CancelResult"][]> {
    return this.#many("/v1/messages/purge", scheduleIds, "DELIVERY_FAILED", options);
  }

  async #many(
    path: ManyPath,
    scheduleIds: string[],
    status: Schemas["Status"],
    options: CallOptions,
  ): Promise<Schemas["CancelResult"][]> {
    const want = { results: scheduleIds.map((scheduleId) => ({ scheduleId, status })) };
    const repeatable = path !== "/v1/messages/purge"; // by then the id may be another message's
    const args = { body: { scheduleIds }, want, repeatable, ...options };
    return ((await this.#calls.call("post", path, args)) as Schemas["CancelResults"]).results;
  }

  /** Starts a job that cancels the pending messages that a filter selects, and returns its id. */
  cancelWhere(filter: JobFilter, options: CallOptions = {}): Promise<string> {
    return this.#startJob("/v1/messages/cancel", filter, options);
  }

  /** Starts a job that tries the failed messages again that a filter selects, and returns its id. */
  redriveWhere(filter: JobFilter, options: CallOptions = {}): Promise<string> {
    return this.#startJob("/v1/messages/redrive", filter, options);
  }

  /** Starts a job that deletes the failed messages that a filter selects, and returns its id. */
  purgeWhere(filter: JobFilter, options: CallOptions = {}): Promise<string> {
    return this.#startJob("/v1/messages/purge", filter, options);
  }

  async #startJob(path: ManyPath, filter: JobFilter, options: CallOptions): Promise<string> {
    const want = { fields: { jobId: undefined } };
    const args = { body: { filter: filter as Schemas["JobFilter"] }, want, ...options };
    return ((await this.#calls.call("post", path, args)) as Schemas["JobStarted"]).jobId;
  }

  /** Says how far a job has come. */
  job(jobId: string, options: CallOptions = {}): Promise<Schemas["Job"]> {
    const want = { fields: { jobId } };
    return this.#calls.call("get", "/v1/jobs/{id}", { path: { id: jobId }, want, ...options });
  }

  /** Waits until a job is done. */
  async waitJob(jobId: string, options: CallOptions = {}): Promise<Schemas["Job"]> {
    for (let pause = 50; ; pause = Math.min(2 * pause, 1000)) {
      const job = await this.job(jobId, options);
      if (job.state === "done") return job;
      await sleep(pause, options.signal);
    }
  }

  async #cancelTogether(items: Item[], signal: AbortSignal) {
    const body = { scheduleIds: items.map((item) => item.scheduleId) };
    const want = { results: items.map(({ scheduleId }) => cancelled(scheduleId)) };
    const { data } = await this.#calls.once("post", "/v1/messages/cancel", { body, want, signal });
    return resultsOf((data as Schemas["CancelResults"]).results, () => undefined);
  }

  /** Reads a message. */
  get(scheduleId: string, options: CallOptions = {}): Promise<StoredMessage> {
    return this.#calls.call("get", "/v1/messages/{id}", { path: { id: scheduleId }, ...options });
  }

  /** Reads messages page by page, in the order of their execution times. */
  async *list(filter: ListFilter = {}, options: CallOptions = {}): AsyncGenerator<StoredMessage, void> {
    const { pageSize = 1000, ...rest } = filter;
    let cursor: string | undefined;
    do {
      const query = { ...rest, limit: pageSize, cursor } as ListQuery;
      const want = { list: "messages" };
      const page = await this.#calls.call("get", "/v1/messages", { query, want, ...options });
      yield* page.messages;
      cursor = page.nextCursor;
    } while (cursor !== undefined);
  }

  /** Returns the first occurrences of a rule that are not before `from`, by default ten after now. */
  async preview(
    recurrence: Schemas["Recurrence"],
    more: { from?: Time; count?: number } & CallOptions = {},
  ): Promise<Schemas["Occurrence"][]> {
    const { from, count, signal } = more;
    const body = { recurrence, from, count } as Schemas["Preview"];
    const args = { body, want: { list: "occurrences" }, repeatable: true, signal };
    return (await this.#calls.call("post", "/v1/recurrences/preview", args)).occurrences;
  }

  /** Says how many messages are due when, by default in the next hour. */
  async upcoming(range: UpcomingRange = {}, options: CallOptions = {}): Promise<Schemas["UpcomingSlot"][]> {
    const args = { query: range as UpcomingQuery, want: { list: "slots" }, ...options };
    return (await this.#calls.call("get", "/v1/upcoming", args)).slots;
  }

  /** Groups messages that failed by their channels and errors. */
  async failures(filter: FailureFilter = {}, options: CallOptions = {}): Promise<Schemas["Failures"]> {
    const args = { query: filter as FailuresQuery, want: { list: "groups" }, ...options };
    return this.#calls.call("get", "/v1/failures", args);
  }

  /** Inserts, updates or deletes a task, which is a series in the words of a task scheduler. */
  defineTask(task: Schemas["TaskDefinition"], options: CallOptions = {}): Promise<Schemas["Task"]> {
    return this.#calls.call("post", "/schedulers", { body: task, ...options });
  }

  /** Reads the tasks that are not deleted, by when they first begin. */
  async *tasks(
    filter: { name?: string; unit?: Schemas["TimeUnit"] } = {},
    options: CallOptions = {},
  ): AsyncGenerator<Schemas["Task"], void> {
    let answer = await this.#calls.answer("get", "/schedulers", { query: filter, ...options });
    yield* answer.data;
    for (let next: string | null; (next = answer.headers.get("Link")) !== null;) {
      const path = next.replace(/^<(.*)>; rel="next"$/, "$1") as "/schedulers";
      answer = await this.#calls.answer("get", path, options);
      yield* answer.data;
    }
  }

  /** Reads messages of an inbox. It removes none: a reader keeps the page's nextCursor, and goes on `after` that. */
  readInbox(inbox: string, read: ReadOptions = {}): Promise<Schemas["InboxPage"]> {
    const { after, limit, waitMs = 0, signal } = read;
    const query = { wait: `${String(waitMs)}ms`, ...(after && { after }), ...(limit && { limit }) };
    const args = { path: { name: inbox }, query, want: { list: "messages" }, waitMs, signal };
    return this.#calls.call("get", "/v1/inbox/{name}", args);
  }

  /** Reads an inbox page by page, and waits for new messages, until the signal aborts. No page is empty. */
  async *follow(inbox: string, read: ReadOptions = {}): AsyncGenerator<Schemas["InboxPage"], void> {
    for (let after = read.after; ;) {
      let page;
      try {
        page = await this.readInbox(inbox, { waitMs: 30_000, ...read, after });
      } catch (error) {
        if (read.signal?.aborted) return;
        throw error;
      }
      if (page.messages.length > 0) yield page;
      after = page.nextCursor;
    }
  }

  /** Receives messages of an inbox for a consumer. What is not acknowledged comes again after its visibility. */
  async receive(inbox: string, consumer: string, options: ReceiveOptions = {}): Promise<ReceivedMessage[]> {
    return (await this.#receive(inbox, consumer, options)).data.messages;
  }

  #receive(inbox: string, consumer: string, options: ReceiveOptions) {
    const { limit, waitMs = 0, visibilityMs, signal } = options;
    const body = {
      wait: `${String(waitMs)}ms`,
      ...(limit && { limit }),
      ...(visibilityMs && { visibility: `${String(visibilityMs)}ms` }),
    };
    const want = { list: "messages" };
    const args = { path: { name: inbox, consumer }, body, want, repeatable: true, waitMs, signal };
    return this.#calls.answer("post", "/v1/inbox/{name}/consumers/{consumer}/receive", args);
  }

  /** Acknowledges up to 1,000 messages by their receipts. Each stands or falls alone. */
  async ack(
    inbox: string,
    consumer: string,
    receipts: string[],
    options: CallOptions = {},
  ): Promise<Schemas["AckResult"][]> {
    const want = { results: receipts.map((receipt) => ({ receipt })) };
    const args = { path: { name: inbox, consumer }, body: { receipts }, want, repeatable: true, ...options };
    return (await this.#calls.call("post", "/v1/inbox/{name}/consumers/{consumer}/ack", args)).results;
  }

  /**
   * Receives messages of an inbox for a consumer until the signal aborts, and handles one after the other. It
   * acknowledges those for which `handle` did not throw, at the end of a batch and after each message that takes
   * more than a second; the others come again after their visibility. The signal of `handle` aborts after three
   * quarters of that. Where no answer comes, or a 5xx, it goes on until one comes. It throws if there is another
   * problem.
   */
  async consume(
    inbox: string,
    consumer: string,
    handle: Handler,
    options: Omit<ReceiveOptions, "waitMs"> = {},
  ): Promise<void> {
    const { limit = 10, visibilityMs = 30_000, signal } = options;
    // A receive that nobody waits for any more may hold up messages, so it waits less than it may.
    const waitMs = Math.min(5000, visibilityMs / 4);
    const log = (message: string, fields: object) => {
      this.#log(message, { inbox, consumer, ...fields });
    };
    const ack = async (messages: ReceivedMessage[]) => {
      if (messages.length === 0) return;
      const receipts = messages.map((message) => message.receipt);
      for (const [n, { error }] of (await this.ack(inbox, consumer, receipts)).entries()) {
        const scheduleId = messages[n]?.scheduleId;
        if (error) log("a message comes again: it was handled, but not acknowledged", { scheduleId, error });
      }
    };
    while (!signal?.aborted) {
      let batch;
      try {
        batch = await this.#receive(inbox, consumer, { limit, waitMs, visibilityMs, signal });
        const until = batch.askedAt + (visibilityMs * 3) / 4;
        await handleAll({ handle, ack, log }, batch.data.messages, until, signal);
      } catch (error) {
        if (signal?.aborted && batch === undefined) return;
        if (!isOutage(error)) throw error;
        log("the server does not answer: it is asked again", { error });
        await sleep(pauseLongestMs, signal);
      }
    }
  }

  /** Lists the channels of the cluster, by name, and the nodes that did not answer. */
  async channels(options: CallOptions = {}): Promise<Schemas["ChannelList"]> {
    const channels = [];
    const missing = new Set<string>();
    let cursor: string | undefined;
    do {
      const query = cursor === undefined ? {} : { cursor };
      const want = { list: "channels" };
      const page = await this.#calls.call("get", "/v1/channels", { query, want, ...options });
      channels.push(...page.channels);
      for (const node of page.missing) missing.add(node);
      cursor = page.nextCursor;
    } while (cursor !== undefined);
    return { channels, missing: [...missing].sort() };
  }

  /** Pauses, resumes or limits a channel on all nodes. */
  changeChannel(
    change: Schemas["ChannelChange"],
    options: CallOptions = {},
  ): Promise<Schemas["ChannelSettings"]> {
    return this.#calls.call("patch", "/v1/channels", { body: change, ...options });
  }

  /** Says what this client's key or token is for. */
  whoAmI(options: CallOptions = {}): Promise<Schemas["Caller"]> {
    return this.#calls.call("get", "/v1/whoami", options);
  }

  /** Lists the API keys of all tenants, the oldest first. */
  async keys(options: CallOptions = {}): Promise<Schemas["Key"][]> {
    return (await this.#calls.call("get", "/v1/keys", { want: { list: "keys" }, ...options })).keys;
  }

  /** Makes an API key. If that may have been done, a key may be there whose text nobody has: revoke it. */
  createKey(wish: Schemas["KeyWish"], options: CallOptions = {}): Promise<Schemas["NewKey"]> {
    return this.#calls.call("post", "/v1/keys", { body: wish, ...options });
  }

  /** Revokes an API key by its id. */
  async revokeKey(id: string, options: CallOptions = {}): Promise<void> {
    await this.#calls.call("delete", "/v1/keys/{id}", { path: { id }, ...options });
  }

  /** Lists the tenants that have limits of their own, settings of channels, pending messages or keys. */
  async tenants(options: CallOptions = {}): Promise<Schemas["Tenant"][]> {
    return (await this.#calls.call("get", "/v1/tenants", { want: { list: "tenants" }, ...options })).tenants;
  }

  /** Changes a tenant's limits on all nodes. null gives one back to the nodes' default. */
  changeTenant(
    tenant: string,
    change: Schemas["TenantChange"],
    options: CallOptions = {},
  ): Promise<Schemas["Tenant"]> {
    return this.#calls.call("patch", "/v1/tenants/{tenant}", { path: { tenant }, body: change, ...options });
  }

  /** Returns the cluster as one node sees it. */
  cluster(options: CallOptions = {}): Promise<Schemas["Cluster"]> {
    return this.#calls.call("get", "/v1/cluster", options);
  }

  /** Returns what the cluster did in the last ten minutes. */
  stats(options: CallOptions = {}): Promise<Schemas["Stats"]> {
    return this.#calls.call("get", "/v1/stats", options);
  }

  /** Asks once whether the process is alive. */
  async health(options: CallOptions = {}): Promise<Schemas["Health"]> {
    return (await this.#calls.once("get", "/healthz", options)).data;
  }

  /** Asks once whether the node can serve. If not, the problem is "not-ready". */
  async ready(options: CallOptions = {}): Promise<Schemas["Health"]> {
    return (await this.#calls.once("get", "/readyz", options)).data;
  }

  /** Reads the node's metrics, in the text format of Prometheus. */
  async metrics(options: CallOptions = {}): Promise<string> {
    return (await this.call({ method: "GET", path: "/metrics", ...options })).text;
  }

  /** Reads the API's OpenAPI document. */
  openAPI(options: CallOptions = {}): Promise<Schemas["Document"]> {
    return this.#calls.call("get", "/openapi.json", options);
  }

  /** Makes a call for which there is no method. */
  call(call: Call): Promise<Answer> {
    return this.#transport.do(call);
  }
}

type ListQuery = NonNullable<paths["/v1/messages"]["get"]["parameters"]["query"]>;

/** Selects messages. */
export type ListFilter = Omit<ListQuery, "limit" | "cursor" | "from" | "to"> & {
  from?: Time;
  to?: Time;
  /** How many messages are in one answer. Default: 1,000, which is the maximum. */
  pageSize?: number;
};

type UpcomingQuery = NonNullable<paths["/v1/upcoming"]["get"]["parameters"]["query"]>;

/** The time in which messages are due: at most 500 slots, each as long as `step`. */
export type UpcomingRange = Omit<UpcomingQuery, "from" | "to"> & { from?: Time; to?: Time };

type FailuresQuery = NonNullable<paths["/v1/failures"]["get"]["parameters"]["query"]>;

/** Selects messages that failed. */
export type FailureFilter = Omit<FailuresQuery, "from" | "to"> & { from?: Time; to?: Time };

/** Selects messages for a job. */
export type JobFilter = Omit<Schemas["JobFilter"], "from" | "to"> & { from?: Time; to?: Time };

type ManyPath = `/v1/messages/${"cancel" | "redrive" | "purge"}`;

/** What to read from an inbox. */
export interface ReadOptions extends CallOptions {
  /** The nextCursor of an earlier page. Default: from the oldest message that is kept. */
  after?: string | undefined;
  limit?: number | undefined;
  /** How long to wait for a message if there is none; at most 30,000. */
  waitMs?: number | undefined;
}

/** Returns what became of each item of a request. */
function resultsOf<T extends { error?: Problem }, R>(
  results: T[],
  success: (result: T) => R,
): (R | ProblemError)[] {
  return results.map((result) =>
    result.error === undefined ? success(result) : new ProblemError(result.error.status, result.error),
  );
}

/** What an answer says of a message that was scheduled. */
const scheduled = (scheduleId: string | undefined) => ({ scheduleId, status: undefined });
/** What an answer says of a message that was cancelled. */
const cancelled = (scheduleId: string) => ({ scheduleId, status: "CANCELLED" });

function addressOf(server: string): string {
  const address = (server.includes("://") ? server : `http://${server}`).replace(/\/$/, "");
  if (!URL.canParse(address) || !/^https?:\/\/[^/]/.test(address) || address.endsWith("/v1")) {
    throw new TypeError(`"${server}" is not the address of a server: write it like http://127.0.0.1:8080`);
  }
  return address;
}

function condition(version: string | undefined): { "If-Match"?: string } {
  return version === undefined ? {} : { "If-Match": `"${version}"` };
}
