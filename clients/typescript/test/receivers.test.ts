import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import {
  Dedupe,
  HeadersError,
  MemoryStore,
  readFailed,
  readHeaders,
  verifyWebhook,
  WebhookError,
} from "../src/receivers.ts";

interface Vectors {
  webhooks: {
    name: string;
    secrets: string[];
    now: string;
    headers: Record<string, string>;
    body: string;
    valid: boolean;
  }[];
  headers: {
    name: string;
    headers: Record<string, unknown>;
    messageId?: string;
    want: Record<string, unknown> | null;
  }[];
}

const path = new URL("../../scenario/receivers.json", import.meta.url);
const vectors = JSON.parse(readFileSync(path, "utf8")) as Vectors;

for (const { name, secrets, now, headers, body, valid } of vectors.webhooks) {
  void test(`webhook: ${name}`, () => {
    for (const form of [headers, new Headers(headers)]) {
      const verify = () => verifyWebhook(secrets, form, Buffer.from(body), { now: new Date(now) });
      if (valid) assert.equal(verify(), new Headers(headers).get("webhook-id"));
      else assert.throws(verify, WebhookError);
    }
  });
}

void test("a secret that is none is the receiver's fault", () => {
  const { headers, body, now } = vectors.webhooks[0] ?? assert.fail();
  for (const secret of ["hunter2", "", undefined]) {
    assert.throws(() => verifyWebhook(secret, headers, body, { now: new Date(now) }), {
      name: "TypeError",
      message: /verifyWebhook needs a secret/,
    });
  }
});

void test("a tolerance that is no number tolerates nothing", () => {
  const { secrets, headers, body, now } = vectors.webhooks[0] ?? assert.fail();
  const options = { now: new Date(now), toleranceMs: Number("5m") };
  assert.throws(() => verifyWebhook(secrets, headers, body, options), WebhookError);
});

const delivery = {
  "postdate-schedule-id": "order-1",
  "postdate-execution-time": "2027-01-31T09:30:00.000Z",
  "postdate-attempt": 2,
};

void test("RabbitMQ's mark of a possible duplicate is a boolean", () => {
  for (const [mark, want] of [
    [true, true],
    ["true", true],
    [false, false],
  ] as const) {
    const headers = { ...delivery, "postdate-possible-duplicate": mark };
    assert.equal(readHeaders(headers, "order-1").possibleDuplicate, want);
  }
});

void test("a time that only JavaScript takes for one is refused", () => {
  for (const text of ["1", "2027", "Sun Jan 31 2027", "2027-01-31 09:30:00"]) {
    const headers = { ...delivery, "postdate-execution-time": text };
    assert.throws(() => readHeaders(headers, "order-1"), HeadersError);
  }
});

void test("an inbox can be a failure channel", () => {
  const failed = vectors.headers.find(({ name }) => name === "a failure")?.headers ?? assert.fail();
  const headers = Object.fromEntries(
    Object.entries(failed).filter(([name]) => name.startsWith("postdate-failed-")),
  );
  assert.deepEqual(readFailed(headers), readHeaders(failed).failed);
  assert.equal(readFailed({}), undefined);
});

for (const { name, headers, messageId, want } of vectors.headers) {
  void test(`headers: ${name}`, () => {
    const bytes = Object.entries(headers).map(([key, value]) => [key, Buffer.from(String(value))]);
    for (const form of [headers, Object.fromEntries(bytes) as Record<string, unknown>]) {
      if (want === null) assert.throws(() => readHeaders(form, messageId), HeadersError);
      else {
        const failed = want.failed as { time: string } | undefined;
        assert.deepEqual(readHeaders(form, messageId), {
          traceparent: undefined,
          tracestate: undefined,
          ...want,
          executionTime: new Date(want.executionTime as string),
          failed: failed && { ...failed, time: new Date(failed.time) },
        });
      }
    }
  });
}

void test("a message is handled once, and again if it was not handled to the end", async () => {
  const dedupe = new Dedupe();
  let handled = 0;
  const failing = () => Promise.reject(new Error("the test lets it fail"));
  await assert.rejects(dedupe.once("a", failing));
  const handle = () => {
    handled++;
  };
  assert.equal(await dedupe.once("a", handle), true);
  assert.equal(await dedupe.once("a", handle), false);
  assert.equal(handled, 1);
});

void test("copies that come at the same time are handled one after the other", async () => {
  const dedupe = new Dedupe();
  const order: string[] = [];
  const slow = async () => {
    order.push("begun");
    await Promise.resolve();
    order.push("ended");
    if (order.length === 2) throw new Error("the test lets the first fail");
  };
  const copies = await Promise.allSettled([1, 2, 3].map(() => dedupe.once("a", slow)));
  assert.deepEqual(order, ["begun", "ended", "begun", "ended"]);
  assert.deepEqual(
    copies.map((copy) => (copy.status === "fulfilled" ? copy.value : "failed")),
    ["failed", true, false],
  );
});

void test("a store in memory forgets the oldest", () => {
  const store = new MemoryStore(2);
  for (const id of ["a", "b", "c"]) store.add(id);
  assert.deepEqual(
    ["a", "b", "c"].map((id) => store.has(id)),
    [false, true, true],
  );
});
