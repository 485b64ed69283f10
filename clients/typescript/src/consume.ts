import type { components } from "./generated.ts";

/** A message as a consumer receives it. From its second delivery on it is a possibleDuplicate. */
export type ReceivedMessage = components["schemas"]["ReceivedMessage"];

/** Handles a message. The signal aborts when there is no more time for it. */
export type Handler = (message: ReceivedMessage, signal: AbortSignal) => Promise<void> | void;

/** What a worker needs of a client. */
export interface Worker {
  handle: Handler;
  /** Acknowledges messages, and tells the log what is not acknowledged. */
  ack(messages: ReceivedMessage[]): Promise<void>;
  log(message: string, fields: object): void;
}

/** How long the acknowledgement of what was handled may wait for the rest of a batch. */
const ackAfterMs = 1000;

/** Handles one batch until a time (by performance.now()), one message after the other, and acknowledges it. */
export async function handleAll(
  worker: Worker,
  messages: ReceivedMessage[],
  until: number,
  ended: AbortSignal | undefined,
): Promise<void> {
  const limit = new AbortController();
  const abort = () => {
    limit.abort(ended?.reason);
  };
  ended?.addEventListener("abort", abort, { once: true });
  const timer = setTimeout(() => {
    limit.abort(new Error("three quarters of the visibility are over"));
  }, until - performance.now());
  try {
    await handleEach(worker, messages, limit.signal);
  } finally {
    clearTimeout(timer);
    ended?.removeEventListener("abort", abort);
  }
}

async function handleEach(worker: Worker, messages: ReceivedMessage[], signal: AbortSignal): Promise<void> {
  let handled: ReceivedMessage[] = [];
  let acked = performance.now();
  for (const [n, message] of messages.entries()) {
    if (signal.aborted) {
      worker.log("messages come again: there was no time to handle them", { messages: messages.length - n });
      break;
    }
    try {
      await worker.handle(message, signal);
      handled.push(message);
    } catch (error) {
      const { scheduleId, deliveries } = message;
      worker.log("a message comes again: it was not handled", { scheduleId, deliveries, error });
    }
    if (performance.now() - acked > ackAfterMs) {
      await worker.ack(handled);
      handled = [];
      acked = performance.now();
    }
  }
  await worker.ack(handled);
}
