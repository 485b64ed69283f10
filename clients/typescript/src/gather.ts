import { NoAnswerError, ProblemError } from "./errors.ts";

/** One of the calls that share a request. */
export interface Item {
  scheduleId: string;
  /** Its JSON in the request. */
  body: string;
}

/** How the calls of a gatherer are made. */
export interface Calls<Result> {
  /** Makes one call. */
  alone(item: Item, signal: AbortSignal): Promise<Result>;
  /** Makes several in one request. */
  together(items: Item[], signal: AbortSignal): Promise<(Result | ProblemError)[]>;
  /** The server that is asked. */
  server(): string;
}

interface Waiting<Result> extends Item {
  resolve(result: Result): void;
  reject(error: unknown): void;
  request?: Request;
}

/** A request, and how many callers still wait for an answer: their own, for a halved request gives them one by one. */
interface Request {
  callers: number;
  abort: AbortController;
}

const itemsMax = 500;
/** A batch has at most 64 MiB, and a character at most three bytes. */
const charactersMax = 16 << 20;

/**
 * Lets concurrent calls share requests. At most so many senders are at work: each takes what waits, sends it as one
 * request, and looks again. A sender begins once the code that runs has ended, so calls that are made together go
 * together.
 */
export class Gatherer<Result> {
  readonly #calls: Calls<Result>;
  readonly #sendersMax: number;
  #waiting: Waiting<Result>[] = [];
  #senders = 0;

  constructor(calls: Calls<Result>, sendersMax: number) {
    this.#calls = calls;
    this.#sendersMax = sendersMax;
  }

  /** Makes a call, alone or with others. */
  call(item: Item, signal: AbortSignal | undefined): Promise<Result> {
    if (signal?.aborted) return Promise.reject(new NoAnswerError(undefined, false, signal.reason));
    let waiting!: Waiting<Result>;
    const answer = new Promise<Result>((resolve, reject) => {
      waiting = { ...item, resolve, reject };
    });
    this.#waiting.push(waiting);
    const leave = () => {
      this.#leave(waiting, signal?.reason);
    };
    signal?.addEventListener("abort", leave, { once: true });
    if (this.#senders < this.#sendersMax) {
      this.#senders++;
      setTimeout(() => void this.#send());
    }
    return answer.finally(() => {
      signal?.removeEventListener("abort", leave);
      const { request } = waiting;
      if (request !== undefined && --request.callers === 0) request.abort.abort(signal?.reason);
    });
  }

  /** Withdraws a call, or no longer waits for its answer. */
  #leave(waiting: Waiting<Result>, reason: unknown): void {
    if (waiting.request === undefined) {
      this.#waiting = this.#waiting.filter((other) => other !== waiting);
      waiting.reject(new NoAnswerError(undefined, false, reason));
      return;
    }
    waiting.reject(new NoAnswerError(this.#calls.server(), true, reason));
  }

  async #send(): Promise<void> {
    try {
      for (let items = this.#take(); items.length > 0; items = this.#take()) {
        const request = { callers: items.length, abort: new AbortController() };
        for (const item of items) item.request = request;
        const problem = await this.#deliver(items, request.abort.signal);
        if (problem !== undefined) await this.#halve(items, request.abort.signal);
      }
    } catch (error) {
      for (const item of this.#waiting.splice(0)) item.reject(error);
    } finally {
      this.#senders--;
    }
  }

  /** Takes as much of what waits as fits into a request. */
  #take(): Waiting<Result>[] {
    let count = 0;
    let characters = 0;
    for (const { body } of this.#waiting) {
      characters += body.length + 1;
      if (count === itemsMax || (count > 0 && characters > charactersMax)) break;
      count++;
    }
    return this.#waiting.splice(0, count);
  }

  /**
   * Makes one request and gives each caller its answer. It returns the problem instead if the request was refused
   * because of one item, or of their number.
   */
  async #deliver(items: Waiting<Result>[], signal: AbortSignal): Promise<ProblemError | undefined> {
    const [first, second] = items;
    try {
      if (first !== undefined && second === undefined) {
        first.resolve(await this.#calls.alone(first, signal));
        return undefined;
      }
      const results = await this.#calls.together(items, signal);
      items.forEach((item, n) => {
        const result = results[n] as Result | ProblemError;
        if (result instanceof ProblemError) item.reject(result);
        else item.resolve(result);
      });
    } catch (error) {
      const refused = error instanceof ProblemError && [400, 413].includes(error.status);
      if (second !== undefined && refused) return error;
      for (const item of items) item.reject(error);
    }
    return undefined;
  }

  /** Delivers the halves of what was refused, which keeps the problem of one item from the others. */
  async #halve(items: Waiting<Result>[], signal: AbortSignal): Promise<void> {
    const middle = items.length >> 1;
    const [one, two] = [items.slice(0, middle), items.slice(middle)];
    const first = await this.#deliver(one, signal);
    const second = await this.#deliver(two, signal);
    if (concernsAll(first, second)) {
      for (const item of items) item.reject(first);
      return;
    }
    if (first !== undefined) await this.#halve(one, signal);
    if (second !== undefined) await this.#halve(two, signal);
  }
}

/** Whether both halves have the same problem, and no place in them is named that is to blame. */
function concernsAll(first: ProblemError | undefined, second: ProblemError | undefined): boolean {
  const { type, pointer, offset } = first?.problem ?? {};
  return (
    first?.status === 400 &&
    type !== undefined &&
    (pointer ?? offset) === undefined &&
    JSON.stringify(first.problem) === JSON.stringify(second?.problem)
  );
}
