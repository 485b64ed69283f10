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
  want?: Wanted;
  waitMs?: number;
  signal?: AbortSignal | undefined;
}

/** Texts that an object must have, by name; undefined: any text. */
type Fields = Record<string, string | undefined>;

/** What an answer must say. If it does not, it is not the answer to what was asked. */
export interface Wanted {
  fields?: Fields;
  /** The name of a list of objects. */
  list?: string;
  /** What its results must say, one for each item in their order. Those with an error need not. */
  results?: Fields[];
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
      want,
      ...more
    } = args as More & Partial<Record<"body" | "query" | "path", object>>;
    const answer = await this.transport.try({
      method: method.toUpperCase(),
      path: fill(path, values) + queryOf(query),
      body: body === undefined ? undefined : JSON.stringify(body),
      ...more,
    });
    return { ...answer, data: read(answer, want, method !== "get") as Data<P, M> };
  }
}

/** Reads the JSON of an answer, which must say what is wanted. */
export function read({ server, text }: Answer, want: Wanted = {}, mayBeDone = true): unknown {
  let said: unknown;
  try {
    said = JSON.parse(text);
  } catch (error) {
    throw garbled(server, mayBeDone, (error as Error).message);
  }
  const wrong = wrongOf(said, want);
  if (wrong !== undefined) throw garbled(server, mayBeDone, wrong);
  return said;
}

function wrongOf(said: unknown, { fields = {}, results, list }: Wanted): string | undefined {
  if (!isObject(said)) return `it is ${String(said)}`;
  if (!has(said, fields)) return `its ${Object.keys(fields).join(" or ")} is another`;
  const name = results ? "results" : list;
  if (name === undefined) return undefined;
  const items = said[name];
  if (!Array.isArray(items)) return `it has no ${name}`;
  if (results && items.length !== results.length)
    return `it has ${String(items.length)} results for ${String(results.length)} items`;
  const wrong = items.findIndex(
    (item: unknown, n) => !isObject(item) || !(isObject(item.error) || has(item, results?.[n] ?? {})),
  );
  return wrong < 0 ? undefined : `number ${String(wrong)} of its ${name} is another`;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

function has(said: Record<string, unknown>, fields: Fields): boolean {
  return Object.entries(fields).every(
    ([name, text]) => typeof said[name] === "string" && said[name] === (text ?? said[name]),
  );
}

/** Returns the error of an answer that makes no sense. */
function garbled(server: string, mayBeDone: boolean, why: string): NoAnswerError {
  const cause = new GarbledError(`the answer is not what a Postdate server says: ${why}`);
  return new NoAnswerError(server, mayBeDone, cause);
}

/** Fills values into a path such as /v1/messages/{id}. */
function fill(path: string, values: object = {}): string {
  return path.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = (values as Record<string, unknown>)[name];
    if (typeof value !== "string" || /^\.{0,2}$/.test(value))
      throw new TypeError(`"${String(value)}" is no ${name}: it would be another path`);
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
