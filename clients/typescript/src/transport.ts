import { GarbledError, NoAnswerError, PostdateError, ProblemError } from "./errors.ts";

/** A call at the level of HTTP. */
export interface Call {
  method: string;
  /** With its query, such as /v1/messages?limit=10. */
  path: string;
  /** JSON, unless the headers have another Content-Type. */
  body?: string | undefined;
  headers?: Record<string, string | undefined> | undefined;
  /** It is safe to do the call twice, so it is tried again if it may have been done. A GET always is. */
  repeatable?: boolean | undefined;
  /** How long the server may wait before it answers. */
  waitMs?: number | undefined;
  /** Ends the call. */
  signal?: AbortSignal | undefined;
}

/** A server's answer that is no error. */
export interface Answer {
  server: string;
  status: number;
  headers: Headers;
  text: string;
  /** When the request was begun to which this is the answer, by performance.now(). */
  askedAt: number;
}

export interface TransportOptions {
  servers: string[];
  headers: Record<string, string>;
  timeoutMs: number;
  retryForMs: number;
  fetch: typeof fetch;
}

/*
 * The pause before all servers are tried again doubles from the least to the longest. It is shortened by up to a
 * half at random, so that callers do not come back at the same time.
 */
const pauseLeastMs = 100;
export const pauseLongestMs = 2000;

/** A timer of JavaScript that is longer goes off at once. */
const timerLongestMs = 2 ** 31 - 1;

/** Makes requests, to one server until it fails, then to the next. */
export class Transport {
  readonly #options: TransportOptions;
  readonly #headers: Headers;
  #current = 0;

  constructor(options: TransportOptions) {
    this.#options = options;
    this.#headers = withHeaders(new Headers(), options.headers);
  }

  /** The server that the next request goes to. */
  get server(): string {
    const { servers } = this.#options;
    return servers[this.#current % servers.length] ?? "";
  }

  /** Makes a call, and tries it again where that may help and is safe. */
  do(call: Call): Promise<Answer> {
    return this.retry(call.repeatable === true || call.method === "GET", call.signal, () => this.try(call));
  }

  /** Repeats what makes one try, as long as that may help and is safe. */
  async retry<T>(
    repeatable: boolean,
    signal: AbortSignal | undefined,
    attempt: () => Promise<T>,
  ): Promise<T> {
    const begun = performance.now(); // a clock that nobody sets
    const { servers, retryForMs } = this.#options;
    let lost = false;
    let longest = pauseLeastMs;
    for (let n = 1; ; n++) {
      try {
        return await attempt();
      } catch (error) {
        if (!isPassing(error)) throw this.#since(lost && !isConclusive(error), error);
        lost ||= error.mayBeDone;
        let pause = 0; // before the next server
        if (n % servers.length === 0) {
          pause = Math.max(longest * (1 - Math.random() / 2), retryAfter(error));
          longest = Math.min(2 * longest, pauseLongestMs);
        }
        const over = performance.now() - begun + pause > retryForMs;
        if (signal?.aborted || (lost && !repeatable) || over) throw this.#since(lost, error);
        await sleep(pause, signal);
        if (signal?.aborted) throw this.#since(lost, new NoAnswerError(this.server, false, signal.reason));
      }
    }
  }

  /** Returns the error of a call. If an earlier try was lost, its outcome is unknown, whatever the last one says. */
  #since(lost: boolean, error: unknown): unknown {
    if (!lost || (error instanceof PostdateError && error.mayBeDone)) return error;
    return new NoAnswerError(this.server, true, new Error("an earlier try was lost", { cause: error }));
  }

  /** Makes one request. If it fails and another server may do better, the next goes there. */
  async try(call: Call): Promise<Answer> {
    const current = this.#current;
    try {
      return await this.#request(this.server, call);
    } catch (error) {
      if (isPassing(error) && !call.signal?.aborted && this.#current === current) this.#current++;
      throw error;
    }
  }

  async #request(server: string, call: Call): Promise<Answer> {
    if (call.signal?.aborted) throw new NoAnswerError(undefined, false, call.signal.reason);
    const headers = new Headers(this.#headers);
    if (call.body !== undefined) headers.set("Content-Type", "application/json");
    withHeaders(headers, call.headers ?? {});
    const abort = new AbortController();
    const limit = this.#options.timeoutMs + (call.waitMs ?? 0);
    const timer = setTimeout(
      () => {
        abort.abort(new Error(`none within ${String(limit)} ms`));
      },
      Math.min(limit, timerLongestMs),
    );
    const leave = () => {
      abort.abort(call.signal?.reason);
    };
    call.signal?.addEventListener("abort", leave, { once: true });
    const askedAt = performance.now();
    const { fetch } = this.#options;
    try {
      const response = await fetch(server + call.path, {
        method: call.method,
        headers,
        body: call.body ?? null,
        redirect: "manual", // one may turn a POST into a GET
        signal: abort.signal,
      });
      const text = await response.text();
      if (!response.ok) throw problemOf(response, text);
      return { server, status: response.status, headers: response.headers, text, askedAt };
    } catch (error) {
      if (error instanceof ProblemError) throw error;
      throw new NoAnswerError(server, call.method !== "GET" && !wasNotConnected(error), error);
    } finally {
      clearTimeout(timer);
      call.signal?.removeEventListener("abort", leave);
    }
  }
}

/** Adds to headers. A value may be a secret, so no error quotes it. */
function withHeaders(headers: Headers, more: Record<string, string | undefined>): Headers {
  for (const [name, value] of Object.entries(more)) {
    try {
      if (value !== undefined) headers.set(name, value);
    } catch {
      throw new TypeError(`what is given for the header ${name} has characters that no header can have`);
    }
  }
  return headers;
}

function problemOf(response: Response, text: string): ProblemError {
  let problem: unknown;
  try {
    problem = JSON.parse(text);
  } catch {
    // A proxy's page: only its status is known.
  }
  return new ProblemError(response.status, problem ?? {}, response.headers);
}

/** Whether the same call may succeed later or at another server. */
function isPassing(error: unknown): error is PostdateError {
  if (error instanceof NoAnswerError) return !(error.cause instanceof GarbledError);
  return error instanceof ProblemError && [408, 429, 502, 503, 504, 507].includes(error.status);
}

/** Whether an error is that of a server that is down, for which a worker waits. */
export function isOutage(error: unknown): boolean {
  return error instanceof ProblemError ? error.status >= 500 : isPassing(error);
}

/** Whether an error decides the outcome of a call even if an earlier try was lost. */
function isConclusive(error: unknown): boolean {
  return error instanceof ProblemError && ["not-found", "exists", "too-late"].includes(error.type ?? "");
}

function retryAfter(error: PostdateError): number {
  return (error instanceof ProblemError ? error.retryAfterMs : undefined) ?? 0;
}

/** Whether an error of fetch says that there was no connection on which a request could have gone out. */
function wasNotConnected(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (error instanceof AggregateError) return error.errors.every(wasNotConnected);
  const { syscall, code } = error as { syscall?: string; code?: string };
  return (
    syscall === "connect" ||
    syscall === "getaddrinfo" ||
    /^(UND_ERR_CONNECT_TIMEOUT|ERR_TLS_CERT_|CERT_|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_)/.test(code ?? "") ||
    wasNotConnected(error.cause)
  );
}

/** Waits for a time, or until a signal. */
export function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, signal?.aborted ? 0 : Math.min(ms, timerLongestMs));
    signal?.addEventListener("abort", end, { once: true });
  });
}
