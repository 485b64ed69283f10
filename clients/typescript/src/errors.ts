import type { components } from "./generated.ts";

/** A problem as the API answers it (RFC 9457). */
export type Problem = components["schemas"]["Problem"];

type NameOf<Type> = Type extends `urn:postdate:problem:${infer Name}` ? Name : never;

/** What kind of problem it is, such as "too-late". The list is part of the API's contract. */
export type ProblemName = NameOf<components["schemas"]["ProblemType"]>;

/** What every call that fails throws: a {@link ProblemError} or a {@link NoAnswerError}. */
export abstract class PostdateError extends Error {
  /** Whether a call that changes something may have taken effect all the same. */
  abstract readonly mayBeDone: boolean;
  /** Of a schedule: the message's id, so that the call can be repeated with the same one. */
  abstract readonly scheduleId: string | undefined;

  /** Returns the error as that of a schedule. */
  abstract of(scheduleId: string): PostdateError;
}

/** The server's answer is an error. */
export class ProblemError extends PostdateError {
  override readonly name = "ProblemError";
  readonly mayBeDone: boolean;
  readonly scheduleId: string | undefined;

  /** What kind of problem it is; undefined: it comes from a proxy, say, and not from Postdate. */
  readonly type: ProblemName | undefined;
  /** The status code of HTTP. */
  readonly status: number;
  /** Everything that the answer says: detail, pointer, messageStatus and so on. */
  readonly problem: Partial<Problem>;
  /** Names the request in the node's log. */
  readonly requestId: string | undefined;
  /** How long the server asks to wait. */
  readonly retryAfterMs: number | undefined;

  readonly #headers: Headers | undefined;

  constructor(status: number, problem: Partial<Problem>, headers?: Headers, scheduleId?: string) {
    super(problem.detail ?? problem.title ?? `the server answered ${String(status)}`);
    this.status = status;
    this.problem = problem;
    this.scheduleId = scheduleId;
    this.#headers = headers;
    this.type = problem.type?.replace("urn:postdate:problem:", "") as ProblemName | undefined;
    this.requestId = headers?.get("X-Request-Id") ?? undefined;
    const seconds = Number(headers?.get("Retry-After") ?? NaN); // a date would need a clock that is right
    this.retryAfterMs = Number.isNaN(seconds) ? undefined : seconds * 1000;
    this.mayBeDone =
      status >= 500 && this.type !== "unavailable" && this.type !== "not-ready" && this.type !== "full";
  }

  of(scheduleId: string): ProblemError {
    return new ProblemError(this.status, this.problem, this.#headers, scheduleId);
  }
}

/** There was no answer, or none that can be read. Its `cause` says why. */
export class NoAnswerError extends PostdateError {
  override readonly name = "NoAnswerError";
  readonly mayBeDone: boolean;
  readonly scheduleId: string | undefined;

  /** The server that was asked; undefined: the call was not sent. */
  readonly server: string | undefined;

  constructor(server: string | undefined, mayBeDone: boolean, cause: unknown, scheduleId?: string) {
    const why = cause instanceof Error && cause.cause instanceof Error ? cause.cause : cause;
    const reason = why instanceof Error ? why.message || why.name : String(why);
    super(
      mayBeDone
        ? `no answer from ${String(server)} (${reason}): the call may have been done or not; ` +
            (scheduleId === undefined
              ? "a cancel, a receive or an acknowledgement is safe to repeat; look before you repeat another call"
              : `repeat it with the scheduleId ${scheduleId}, which is safe`)
        : server === undefined
          ? `the call was not sent (${reason}): nothing was done`
          : `no answer from ${server} (${reason}): nothing was done; see that a Postdate node serves there, and ` +
            "repeat the call",
      { cause },
    );
    this.server = server;
    this.mayBeDone = mayBeDone;
    this.scheduleId = scheduleId;
  }

  of(scheduleId: string): NoAnswerError {
    return new NoAnswerError(this.server, this.mayBeDone, this.cause, scheduleId);
  }
}

/** An answer came that makes no sense. To try again does not help. */
export class GarbledError extends Error {
  override readonly name = "GarbledError";
}
