import { createHmac, timingSafeEqual } from "node:crypto";

/*
 * For programs that receive messages from webhooks, RabbitMQ and Kafka.
 */

/** Headers as the libraries have them: of fetch, of Node's http, of amqplib (properties.headers), of kafkajs. */
export type MessageHeaders = Headers | Readonly<Record<string, unknown>>;

/** What the headers of a message say. */
export interface Delivery {
  /**
   * The same for each attempt: drop repetitions by it, except those of a signed webhook (see verifyWebhook). Of a
   * series it names the occurrence too.
   */
  messageId: string;
  /** The same for all occurrences of a series. */
  scheduleId: string;
  executionTime: Date;
  /** From 1. */
  attempt: number;
  /** The receiver may have the message already. */
  possibleDuplicate: boolean;
  traceparent: string | undefined;
  tracestate: string | undefined;
  /** Only on a failure channel: the message that could not be delivered. */
  failed: Failed | undefined;
}

/** What is said of a message that could not be delivered. */
export interface Failed {
  messageId: string;
  /** Where it went; of a URL, the scheme and host. */
  channel: string;
  reason: string;
  attempts: number;
  time: Date;
  /** It may have arrived all the same. */
  possibleDuplicate: boolean;
}

/** The headers do not say what a message of Postdate says. */
export class HeadersError extends Error {
  override readonly name = "HeadersError";
}

/**
 * Reads the headers of a message. On RabbitMQ the message id is a property: give it as `messageId`
 * (properties.messageId).
 */
export function readHeaders(headers: MessageHeaders, messageId?: string): Delivery {
  return {
    messageId: messageId ?? read(headers, "message-id") ?? required(headers, "ce-id"),
    scheduleId: required(headers, "postdate-schedule-id"),
    executionTime: time(headers, "postdate-execution-time"),
    attempt: number(headers, "postdate-attempt", 1),
    possibleDuplicate: read(headers, "postdate-possible-duplicate") === "true",
    traceparent: read(headers, "traceparent"),
    tracestate: read(headers, "tracestate"),
    failed: readFailed(headers),
  };
}

/**
 * Reads what the headers of a message on a failure channel say of the one that failed. If that channel is an inbox,
 * give it the `headers` of the message, which has the rest as fields.
 */
export function readFailed(headers: MessageHeaders): Failed | undefined {
  if (read(headers, "postdate-failed-id") === undefined) return undefined;
  return {
    messageId: required(headers, "postdate-failed-id"),
    channel: required(headers, "postdate-failed-channel"),
    reason: required(headers, "postdate-failed-reason"),
    attempts: number(headers, "postdate-failed-attempts", 0),
    time: time(headers, "postdate-failed-time"),
    possibleDuplicate: read(headers, "postdate-failed-possible-duplicate") === "true",
  };
}

/** Date takes much else. */
const rfc3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/;

function time(headers: MessageHeaders, name: string): Date {
  const text = required(headers, name);
  const at = new Date(rfc3339.test(text) ? text : NaN);
  if (Number.isNaN(at.getTime())) throw new HeadersError(`${name} is no time: ${text}`);
  return at;
}

function number(headers: MessageHeaders, name: string, least: number): number {
  const text = required(headers, name);
  const value = /^\d{1,9}$/.test(text) ? Number(text) : NaN;
  if (!(value >= least)) throw new HeadersError(`${name} is no number from ${String(least)}: ${text}`);
  return value;
}

function required(headers: MessageHeaders, name: string): string {
  const value = read(headers, name);
  if (value === undefined)
    throw new HeadersError(`there is no header ${name}: the message is not from Postdate`);
  return value;
}

function read(headers: MessageHeaders, name: string): string | undefined {
  if (headers instanceof Headers) return headers.get(name) ?? undefined;
  const found = headers[name] ?? Object.entries(headers).find(([given]) => given.toLowerCase() === name)?.[1];
  const value: unknown = Array.isArray(found) ? found[0] : found;
  if (value instanceof Uint8Array) return new TextDecoder().decode(value);
  return ["string", "number", "boolean"].includes(typeof value) ? String(value) : undefined;
}

/** A request is not what somebody who has the secret sent, or not a fresh one. Answer it 401. */
export class WebhookError extends Error {
  override readonly name = "WebhookError";
}

export interface VerifyOptions {
  /** How far the sender's clock may be from this one. Default: 5 minutes, as Standard Webhooks has it. */
  toleranceMs?: number;
  /** Default: the time. */
  now?: Date;
}

/**
 * Verifies a webhook's signature, as Standard Webhooks has it, and returns the webhook-id, which is the same for each
 * attempt. Drop repetitions by that: the signature covers no other header. `body` are the bytes of the request,
 * before anything parsed them. Of several secrets (whsec_…), one is enough, so that you can replace one.
 */
export function verifyWebhook(
  secrets: string | string[] | undefined,
  headers: MessageHeaders,
  body: Uint8Array | string,
  { toleranceMs = 300_000, now = new Date() }: VerifyOptions = {},
): string {
  const id = read(headers, "webhook-id");
  const timestamp = read(headers, "webhook-timestamp");
  const signatures = read(headers, "webhook-signature");
  if (!id || !timestamp || !signatures) throw new WebhookError("the request is not signed");
  if (!/^\d{1,12}$/.test(timestamp) || !(Math.abs(Number(timestamp) * 1000 - now.getTime()) <= toleranceMs)) {
    throw new WebhookError(
      "the request is too old, or a clock is wrong: compare this machine's with the node's",
    );
  }
  const given = signatures.split(" ").filter((signature) => signature.startsWith("v1,"));
  for (const secret of [secrets].flat()) {
    const mac = createHmac("sha256", keyOf(secret)).update(`${id}.${timestamp}.`).update(body).digest();
    for (const signature of given) {
      const bytes = Buffer.from(signature.slice("v1,".length), "base64");
      if (bytes.length === mac.length && timingSafeEqual(bytes, mac)) return id;
    }
  }
  throw new WebhookError("no signature is by a secret that is known here");
}

function keyOf(secret: string | undefined): Buffer {
  const key = Buffer.from(secret?.replace(/^whsec_/, "") ?? "", "base64");
  if (!secret?.startsWith("whsec_") || key.length < 16) {
    throw new TypeError("verifyWebhook needs a secret: whsec_ and the base64 of at least 16 bytes");
  }
  return key;
}

/** Remembers which messages were handled. A store that several processes share makes one of them know of another's. */
export interface SeenStore {
  has(messageId: string): boolean | Promise<boolean>;
  add(messageId: string): void | Promise<void>;
}

/** A store in memory, of the last ids. */
export class MemoryStore implements SeenStore {
  readonly #ids = new Set<string>();
  readonly #max: number;

  constructor(max = 100_000) {
    this.#max = max;
  }

  has(messageId: string): boolean {
    return this.#ids.has(messageId);
  }

  add(messageId: string): void {
    this.#ids.add(messageId);
    for (const oldest of this.#ids) {
      if (this.#ids.size <= this.#max) break;
      this.#ids.delete(oldest);
    }
  }
}

/**
 * Handles each message once, as far as its store remembers. An id is stored once its message is handled, so one that
 * was not handled to the end is handled again when it comes again: nothing is lost, and after a crash, or in two
 * processes at the same time, a message may be handled twice.
 */
export class Dedupe {
  readonly #store: SeenStore;
  readonly #inHand = new Map<string, Promise<void>>();

  constructor(store: SeenStore = new MemoryStore()) {
    this.#store = store;
  }

  /** Handles a message unless it was handled before, and says whether it did. */
  async once(messageId: string, handle: () => Promise<void> | void): Promise<boolean> {
    for (let other; (other = this.#inHand.get(messageId)) !== undefined;) {
      await other.catch(() => undefined); // if it failed, it is this call's turn
    }
    let handled = false;
    const work = (async () => {
      if (await this.#store.has(messageId)) return;
      await handle();
      handled = true;
      await this.#store.add(messageId);
    })();
    this.#inHand.set(messageId, work);
    try {
      await work;
    } finally {
      this.#inHand.delete(messageId);
    }
    return handled;
  }
}
