import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { ProblemError, type ClientOptions, type ReceivedMessage } from "../src/index.ts";
import { pauseLongestMs } from "../src/transport.ts";
import { clientOf, problem, type Answers } from "./server.ts";

const batch = ["a", "b", "c"].map((scheduleId) => ({ scheduleId, receipt: `of ${scheduleId}` }));

/** Returns a client of an inbox that has the batch each time, and what has happened. */
async function inboxOf(t: TestContext, options: ClientOptions = {}, instead: Answers = () => undefined) {
  const events: string[] = [];
  const client = await clientOf(
    t,
    (request, body, response) => {
      instead(request, body, response);
      if (response.writableEnded) return;
      if (!request.url?.endsWith("/ack")) {
        response.end(JSON.stringify({ messages: batch }));
        return;
      }
      const { receipts } = JSON.parse(body) as { receipts: string[] };
      events.push(`ack ${receipts.join()}`);
      response.end(JSON.stringify({ results: receipts.map((receipt) => ({ receipt, acked: true })) }));
    },
    options,
  );
  return { client, events };
}

void test("a worker acknowledges what was handled, after that", async (t) => {
  const { client, events } = await inboxOf(t);
  const stop = new AbortController();
  const handle = async ({ scheduleId }: ReceivedMessage) => {
    await new Promise(setImmediate); // time for an acknowledgement that comes too early
    events.push(scheduleId);
    if (scheduleId === "c") stop.abort();
    if (scheduleId === "b") throw new Error("the test lets it fail");
  };
  await client.consume("a", "me", handle, { signal: stop.signal });
  assert.deepEqual(events, ["a", "b", "c", "ack of a,of c"]);
});

void test("a worker that is stopped begins no other message", async (t) => {
  const { client, events } = await inboxOf(t);
  const stop = new AbortController();
  const handle = ({ scheduleId }: ReceivedMessage, signal: AbortSignal) => {
    events.push(scheduleId);
    stop.abort();
    assert.ok(signal.aborted);
  };
  await client.consume("a", "me", handle, { signal: stop.signal });
  assert.deepEqual(events, ["a", "ack of a"]);
});

void test(
  "a worker begins no message after three quarters of the visibility",
  { timeout: 20_000 },
  async (t) => {
    const stop = new AbortController();
    const { client, events } = await inboxOf(t, {}, (request) => {
      if (events.length > 0 && request.url?.endsWith("/receive")) stop.abort();
    });
    const handle = async ({ scheduleId }: ReceivedMessage, signal: AbortSignal) => {
      events.push(scheduleId);
      await new Promise((resolve) => {
        signal.addEventListener("abort", resolve);
      });
    };
    await client.consume("a", "me", handle, { signal: stop.signal, visibilityMs: 200 });
    assert.deepEqual(events, ["a", "ack of a"]);
  },
);

void test("a worker outlasts a server that is down, and no other problem", async (t) => {
  const set = setTimeout;
  const timers = t.mock.method(globalThis, "setTimeout", (run: () => void, ms?: number) =>
    set(run, ms === pauseLongestMs ? 0 : ms),
  );
  let asked = 0;
  const stop = new AbortController();
  const { client, events } = await inboxOf(t, { retryForMs: 0 }, (_, __, response) => {
    asked++;
    if (asked === 1) response.destroy().end();
    if (asked === 2) response.writeHead(500).end(JSON.stringify(problem("internal", 500)));
    if (asked === 5) response.writeHead(401).end(JSON.stringify(problem("unauthorized", 401)));
  });
  const handle = ({ scheduleId }: ReceivedMessage) => {
    events.push(scheduleId);
  };
  await assert.rejects(client.consume("a", "me", handle, { signal: stop.signal }), ProblemError);
  assert.deepEqual(events, ["a", "b", "c", "ack of a,of b,of c"]);
  const pauses = timers.mock.calls.filter((call) => call.arguments[1] === pauseLongestMs);
  assert.equal(pauses.length, 2);
});

void test("a reader that is stopped ends", async (t) => {
  const stop = new AbortController();
  const client = await clientOf(t, () => {
    stop.abort();
  });
  for await (const page of client.follow("a", { signal: stop.signal })) assert.fail(page.nextCursor);
});
