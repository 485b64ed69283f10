export * from "./client.ts";
export type { Handler, ReceivedMessage } from "./consume.ts";
export * from "./errors.ts";
export type { components, operations, paths } from "./generated.ts";
export { bytesOf, type Change, type Duration, type Message, type Time } from "./messages.ts";
export type { Answer, Call } from "./transport.ts";
