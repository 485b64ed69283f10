import type { components } from "./generated.ts";
import { newId } from "./ids.ts";

type Schemas = components["schemas"];

/** A duration: milliseconds, or a text like "15m" or "PT15M". */
export type Duration = number | string;

/** A time: a Date, or RFC 3339 like "2027-01-31T09:30:00Z". */
export type Time = Date | string;

/** Times and durations in the forms of JavaScript. */
interface When {
  executionTime?: Time;
  delay?: Duration;
  expiresAt?: Time;
}

/** A message to schedule. */
export type Message = Omit<Schemas["Schedule"], keyof When | "payload"> &
  When & {
    /** A value that becomes JSON; a text, if contentType says so; or bytes, as an ArrayBuffer or a view of one. */
    payload: unknown;
    /** The W3C trace context that goes with the message. Such a call shares no request with others. */
    traceparent?: string;
    /** What vendors add to traceparent. It counts only with that. */
    tracestate?: string;
  };

/** A change of a message. What it does not have stays as it is. */
export type Change = Omit<Schemas["Change"], keyof When | "payload"> &
  Omit<When, "expiresAt"> & { payload?: unknown };

/** Returns a message with an id. */
export function named(message: Message): Message & { scheduleId: string } {
  const scheduleId = message.scheduleId ?? newId();
  checkId(scheduleId);
  return { ...message, scheduleId };
}

/** Refuses what is no id, which a program in JavaScript can give. */
export function checkId(scheduleId: unknown): void {
  if (typeof scheduleId !== "string" || scheduleId === "")
    throw new TypeError(`the scheduleId is ${JSON.stringify(scheduleId)}: give a text that is not empty`);
}

/** Returns a message in the form of the API. */
export function scheduleOf(message: Message): Schemas["Schedule"] {
  return {
    ...message,
    traceparent: undefined,
    tracestate: undefined,
    ...formOf(message),
  } as Schemas["Schedule"];
}

/** Returns a change in the form of the API. */
export function changeOf(change: Change): Schemas["Change"] {
  return { ...change, ...formOf(change) } as Schemas["Change"];
}

/** Returns what JSON has no form for, in the form of the API. Dates become texts on their own. */
function formOf(given: Change): Partial<Schemas["Change"]> {
  for (const [name, value] of Object.entries(given)) {
    if (isLostInJson(value)) throw new TypeError(`${name} is ${String(value)}, which JSON has no form for`);
  }
  const { delay, payload } = given;
  const bytes = bytesIn(payload);
  return {
    ...(typeof delay === "number" && { delay: `${String(delay)}ms` }),
    ...(bytes && {
      payload: btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join("")),
      payloadEncoding: "base64",
    }),
  };
}

/** Whether JSON.stringify makes null or {} of it. */
function isLostInJson(value: unknown): boolean {
  if (typeof value === "number" || value instanceof Date) return !Number.isFinite(Number(value));
  return value instanceof Map || value instanceof Set || value instanceof Promise;
}

function bytesIn(payload: unknown): Uint8Array | undefined {
  if (payload instanceof ArrayBuffer) return new Uint8Array(payload);
  if (!ArrayBuffer.isView(payload)) return undefined;
  return new Uint8Array(payload.buffer, payload.byteOffset, payload.byteLength);
}

/** Returns the bytes of a payload that came in base64. Of others, `payload` is the value or the text itself. */
export function bytesOf(message: { payload: unknown; payloadEncoding?: "base64" }): Uint8Array {
  if (message.payloadEncoding !== "base64")
    throw new TypeError("the payload is not in base64: use it as it is");
  return Uint8Array.from(atob(message.payload as string), (character) => character.charCodeAt(0));
}
