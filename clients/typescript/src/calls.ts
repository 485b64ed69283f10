import { GarbledError, NoAnswerError } from "./errors.ts";
import type { paths } from "./generated.ts";
import type { Answer, Transport } from "./transport.ts";

/*
 * The types of the document's calls: what a call takes and answers follows from its path and method, so the
 * compiler checks each of the client's methods against the document.
 */

export type Method = "get" | "put" | "post" | "delete" | "patch";

type PathOf<O> = O extends { parameters: { path: infer Path } } ? { path: Path } : { path?: never };
type QueryOf<O> = O extends { parameters: { query?: infer Query } }
  ? { query?: NonNullable<Query> }
  : unknown;
type BodyOf<O> = O extends { requestBody: { content: { "application/json": infer Body } } }
  ? { body: Body }
  : { body?: never };
type AnswerOf<O> = O extends { responses: infer Responses }
  ? JsonOf<Responses[keyof Responses & (200 | 201 | 202)]>
  : never;
type JsonOf<R> = R extends { content: { "application/json": infer Json } } ? Json : never;

/** What a call takes. */
export type Arguments<P extends keyof paths, M extends Method> = PathOf<paths[P][M]> &
  QueryOf<paths[P][M]> &
  BodyOf<paths[P][M]> &
  More;

/** What a call answers. */
export type Data<P extends keyof paths, M extends Method> = AnswerOf<paths[P][M]>;

interface More {
  headers?: Record<string, string | undefined>;
  repeatable?: boolean;
  waitMs?: number;
  signal?: AbortSignal | undefined;
}

/** Makes calls of the document. */
export class Caller {
  readonly transport: Transport;

  constructor(transport: Transport) {
    this.transport = transport;
  }

  /** Makes a call, and tries it again where that may help and is safe. */
  async call<P extends keyof paths, M extends Method>(
    method: M,
    path: P,
    args: Arguments<P, M>,
  ): Promise<Data<P, M>> {
    return (await this.answer(method, path, args)).data;
  }

  /** Is call, and also returns the answer as it is at the level of HTTP. */
  answer<P extends keyof paths, M extends Method>(
    method: M,
    path: P,
    args: Arguments<P, M>,
  ): Promise<Answer & { data: Data<P, M> }> {
    const repeatable = args.repeatable === true || method === "get";
    return this.transport.retry(repeatable, args.signal, () => this.once(method, path, args));
  }

  /** Makes a call with one try. */
  async once<P extends keyof paths, M extends Method>(
    method: M,
    path: P,
    args: Arguments<P, M>,
  ): Promise<Answer & { data: Data<P, M> }> {
    const {
      body,
      query,
      path: values,
      ...more
    } = args as More & Partial<Record<"body" | "query" | "path", object>>;
    const answer = await this.transport.try({
      method: method.toUpperCase(),
      path: fill(path, values) + queryOf(query),
      body: body === undefined ? undefined : JSON.stringify(body),
      ...more,
    });
    return { ...answer, data: parse(answer, method !== "get") as Data<P, M> };
  }
}

/** Reads the JSON of an answer. None of the API's is null. */
export function parse({ server, text }: Answer, mayBeDone = true): unknown {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw garbled(server, mayBeDone, (error as Error).message);
  }
  if (value === null) throw garbled(server, mayBeDone, "it is null");
  return value;
}

/** Returns the results of an answer, which must be one for each item. */
export function allOf<T>({ server }: Answer, results: T[] | undefined, items: unknown[]): T[] {
  if (results?.length === items.length) return results;
  const found = String(results?.length ?? 0);
  throw garbled(server, true, `it has ${found} results for ${String(items.length)} items`);
}

/** Returns the error of an answer that makes no sense. */
export function garbled(server: string, mayBeDone: boolean, why: string): NoAnswerError {
  const cause = new GarbledError(`the answer is not what a Postdate server says: ${why}`);
  return new NoAnswerError(server, mayBeDone, cause);
}

/** Fills values into a path such as /v1/messages/{id}. */
function fill(path: string, values: object = {}): string {
  return path.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = String((values as Record<string, unknown>)[name]);
    if (/^\.{0,2}$/.test(value)) throw new TypeError(`"${value}" is no ${name}: it would be another path`);
    return encodeURIComponent(value);
  });
}

function queryOf(query: object = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined);
  if (given.length === 0) return "";
  return (
    "?" +
    new URLSearchParams(given.map(([name, value]): [string, string] => [name, textOf(value)])).toString()
  );
}

function textOf(value: unknown): string {
  return value instanceof Date ? value.toISOString() : String(value);
}
