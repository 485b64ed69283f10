import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { test } from "node:test";
import { Gatherer, type Item } from "../src/gather.ts";
import { bytesOf, Client, NoAnswerError, ProblemError, type components } from "../src/index.ts";
import { sleep } from "../src/transport.ts";
import { clientOf, problem, type Answers } from "./server.ts";

void test("concurrent schedules share a request, and each has its own result", async (t) => {
  const requests: number[] = [];
  const client = await clientOf(t, (request, body, response) => {
    assert.equal(request.url, "/v1/messages/batch");
    const items = JSON.parse(body) as { scheduleId: string; payload: number }[];
    requests.push(items.length);
    const results = items.map(({ scheduleId, payload }) =>
      payload === 1 ? { error: problem("exists", 409) } : { scheduleId, status: "PENDING", created: true },
    );
    response.end(JSON.stringify({ results }));
  });
  const message = (payload: number) => ({ channel: "inbox:a", delay: 1, payload });
  const results = await Promise.allSettled(
    Array.from({ length: 1200 }, (_, n) => client.schedule(message(n))),
  );
  assert.deepEqual(requests, [500, 500, 200]);
  assert.ok(results.every(({ status }, n) => (status === "rejected") === (n === 1)));
  const reason: unknown = results[1]?.status === "rejected" && results[1].reason;
  assert.ok(reason instanceof ProblemError && reason.type === "exists" && !reason.mayBeDone);
  const ids = results.flatMap((result) => (result.status === "fulfilled" ? [result.value.scheduleId] : []));
  assert.equal(new Set(ids).size, 1199);
  for (const id of ids)
    assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});

void test("a request that is refused for one item is halved", async (t) => {
  const client = await clientOf(t, (request, body, response) => {
    interface Given {
      scheduleId: string;
      payload: string;
    }
    const items = [JSON.parse(body) as Given | Given[]].flat();
    const tooLarge = items.some(({ payload }) => payload === "large");
    response.statusCode = tooLarge ? 413 : 200;
    const results = items.map(({ scheduleId }) => ({ scheduleId, status: "PENDING" }));
    response.end(JSON.stringify(tooLarge ? {} : request.url === "/v1/messages" ? results[0] : { results }));
  });
  const payloads = ["a", "b", "large", "c", "d"];
  const calls = payloads.map((payload) => client.schedule({ channel: "inbox:a", delay: 1, payload }));
  const states = (await Promise.allSettled(calls)).map(({ status }) => status);
  assert.deepEqual(states, ["fulfilled", "fulfilled", "rejected", "fulfilled", "fulfilled"]);
});

void test(
  "a halved request ends when the last caller without an answer gives up",
  { timeout: 20_000 },
  async (t) => {
    const left = new AbortController();
    const urls: (string | undefined)[] = [];
    let end: () => void;
    const ended = new Promise<void>((resolve) => (end = resolve));
    const client = await clientOf(t, (request, body, response) => {
      urls.push(request.url);
      if (urls.length === 1) response.writeHead(413).end("{}");
      else if (urls.length === 2)
        response.end(JSON.stringify({ ...(JSON.parse(body) as Item), status: "PENDING" }));
      else {
        response.on("close", end);
        left.abort();
      }
    });
    const message = { channel: "inbox:a", delay: 1, payload: 1 };
    const answered = client.schedule(message);
    const unanswered = client.schedule(message, { signal: left.signal });
    await assert.rejects(unanswered, (error: unknown) => error instanceof NoAnswerError && error.mayBeDone);
    await answered;
    await ended;
    assert.deepEqual(urls, ["/v1/messages/batch", "/v1/messages", "/v1/messages"]);
  },
);

void test("a problem of all is not looked for in halves", async (t) => {
  let asked = 0;
  let said: object = {};
  const client = await clientOf(t, (_, __, response) => {
    asked++;
    response.writeHead(400).end(JSON.stringify(said));
  });
  const message = { channel: "inbox:a", delay: 1, payload: 1 };
  for (const [problemOfAll, requests] of [
    [problem("invalid-parameter", 400), 3],
    [{ ...problem("malformed-json", 400), offset: 1 }, 15],
    [{}, 15],
  ] as const) {
    asked = 0;
    said = problemOfAll;
    const calls = Array.from({ length: 8 }, () => client.schedule(message));
    for (const result of await Promise.allSettled(calls)) {
      assert.ok(result.status === "rejected" && result.reason instanceof ProblemError);
    }
    assert.equal(asked, requests);
  }
});

void test("a call that ends before it is sent is not done, later it may be", async (t) => {
  let arrived: (value: undefined) => void;
  const arrival = new Promise((resolve) => (arrived = resolve));
  const client = await clientOf(t, () => {
    arrived(undefined);
  });
  const early = new AbortController();
  const late = new AbortController();
  const message = { channel: "inbox:a", delay: 1, payload: 1 };
  const calls = [early, late].map(({ signal }) =>
    client.schedule(message, { signal }).then(
      () => assert.fail(),
      (error: unknown) => error,
    ),
  );
  early.abort();
  await arrival;
  late.abort();
  const [first, second] = await Promise.all(calls);
  assert.ok(first instanceof NoAnswerError && !first.mayBeDone);
  assert.ok(second instanceof NoAnswerError && second.mayBeDone);
});

void test("the next server is asked if one fails", async (t) => {
  const dead = await clientOf(t, (_, __, response) => response.destroy());
  let asked = 0;
  const client = await clientOf(t, (_, __, response) => {
    asked++;
    response.end(JSON.stringify({ status: "PENDING" }));
  });
  const both = new Client({ server: [dead.server, client.server] });
  await both.get("a");
  await both.get("a");
  assert.equal(asked, 2);
});

void test("an earlier try that was lost is not forgotten", async (t) => {
  let asked = 0;
  const client = await clientOf(t, (_, __, response) => {
    if (asked++ === 0) response.destroy();
    else response.writeHead(503, { "Retry-After": "3600" }).end(JSON.stringify(problem("unavailable", 503)));
  });
  await assert.rejects(client.cancel("a"), (error: unknown) => {
    return error instanceof NoAnswerError && error.mayBeDone;
  });
  assert.equal(asked, 2);
});

void test("a call is not tried again before the server wants it", async (t) => {
  let asked = 0;
  const client = await clientOf(t, (_, __, response) => {
    asked++;
    response.writeHead(503, { "Retry-After": "3600" }).end(JSON.stringify(problem("unavailable", 503)));
  });
  await assert.rejects(client.get("a"), (error: unknown) => {
    return error instanceof ProblemError && error.retryAfterMs === 3_600_000;
  });
  assert.equal(asked, 1);
});

void test("a request that nobody waits for any more is ended", { timeout: 20_000 }, async (t) => {
  let urls = "";
  let arrived: () => void;
  const arrival = new Promise<void>((resolve) => (arrived = resolve));
  let ended: () => void;
  const end = new Promise<void>((resolve) => (ended = resolve));
  const client = await clientOf(t, (request, _, response) => {
    urls += request.url ?? "";
    response.on("close", () => {
      ended();
    });
    arrived();
  });
  const stops = [new AbortController(), new AbortController()];
  const calls = Promise.allSettled(stops.map(({ signal }, n) => client.cancel(`m${String(n)}`, { signal })));
  await arrival;
  for (const stop of stops) stop.abort();
  await Promise.all([calls, end]);
  assert.equal(urls, "/v1/messages/cancel");
});

void test("an answer that makes no sense is not asked for again", async (t) => {
  const message = { channel: "inbox:a", delay: 1, payload: 1 };
  for (const [text, why] of [
    ["<html>", /not what a Postdate server says: .*token/],
    ["null", /it is null/],
    ["{}", /it has no results/],
    ['{"results": [{"scheduleId": "a"}]}', /it has 1 results for 2 items/],
    ['{"results": [null, {}]}', /number 0 of its results is another/],
    ['{"results": [{"error": {}}, {"scheduleId": "c", "status": "CANCELLED"}]}', /number 1 of its results/],
  ] as const) {
    let asked = 0;
    const client = await clientOf(t, (_, __, response) => {
      asked++;
      response.end(text);
    });
    for (const call of [
      () => client.scheduleAll([message, message]),
      () => Promise.all([client.schedule(message), client.schedule(message)]),
      () => client.cancelAll(["a", "b"]),
      () => Promise.all([client.cancel("a"), client.cancel("b")]),
      () => client.ack("a", "me", ["1", "2"]),
    ]) {
      asked = 0;
      await assert.rejects(call, (error: unknown) => {
        return error instanceof NoAnswerError && error.mayBeDone && why.test(error.message);
      });
      assert.equal(asked, 1);
    }
  }
});

void test("an answer that is about something else is none", async (t) => {
  const message = { scheduleId: "a", channel: "inbox:a", delay: 1, payload: 1 };
  const pending = { scheduleId: "a", status: "PENDING" };
  const other = { scheduleId: "b", status: "CANCELLED" };
  let said: object;
  const client = await clientOf(t, (_, __, response) => response.writeHead(201).end(JSON.stringify(said)));
  const lost = (error: unknown) => error instanceof NoAnswerError && error.mayBeDone;
  const both = (call: (id: string) => Promise<unknown>) => Promise.all(["a", "b"].map(call));
  for (said of [{}, pending, other]) await assert.rejects(client.cancel("a"), lost);
  for (said of [{}, { scheduleId: "a" }, { status: "PENDING" }, other]) {
    await assert.rejects(client.schedule(message), lost);
    await assert.rejects(client.put(message), lost);
    await assert.rejects(client.move("a", "2027-01-31T09:30:00Z"), lost);
  }
  said = { results: [pending, { ...pending, scheduleId: "b" }] };
  await assert.rejects(
    both((id) => client.cancel(id)),
    lost,
  );
  await assert.rejects(client.cancelAll(["a", "b"]), lost);
  said = {};
  await assert.rejects(client.trigger("a"), lost);
  await assert.rejects(client.cancelWhere({}), lost);
  await assert.rejects(client.receive("a", "me"), lost);
  await assert.rejects(
    client.consume("a", "me", () => assert.fail()),
    lost,
  );
  await assert.rejects(client.waitJob("a"), NoAnswerError);
});

void test("the id that a message got is in the error of its schedule", async (t) => {
  for (const answer of [(r: ServerResponse) => r.destroy(), (r: ServerResponse) => r.writeHead(500).end()]) {
    const sent: string[] = [];
    const client = await clientOf(
      t,
      (_, body, response) => {
        sent.push(...[JSON.parse(body) as { scheduleId: string }].flat().map(({ scheduleId }) => scheduleId));
        answer(response);
      },
      { retryForMs: 0 },
    );
    const message = { channel: "inbox:a", delay: 1, payload: 1 };
    const traced = { ...message, traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" };
    const calls = [message, message, traced].map((given) => client.schedule(given));
    const ids = (await Promise.allSettled(calls)).map((result) => {
      const error: unknown = result.status === "rejected" && result.reason;
      assert.ok((error instanceof NoAnswerError || error instanceof ProblemError) && error.mayBeDone);
      return error.scheduleId;
    });
    assert.deepEqual(new Set(ids), new Set(sent));
    assert.equal(new Set(ids).size, 3);
  }
});

void test("what may have been done is repeated only where that is safe", async (t) => {
  let asked = 0;
  const answer: Answers = (_, __, response) => {
    asked++;
    response.destroy();
  };
  const client = await clientOf(t, answer, { retryForMs: 500 });
  const message = { scheduleId: "a", channel: "inbox:a", delay: 1, payload: 1 };
  for (const call of [
    () => client.put(message),
    () => client.move("a", "2027-01-31T09:30:00Z"),
    () => client.trigger("a"),
    () => client.purge(["a"]),
    () => client.cancelWhere({}),
    () => client.redriveWhere({}),
    () => client.purgeWhere({}),
    () => client.defineTask({} as components["schemas"]["TaskDefinition"]),
    () => client.createKey({} as components["schemas"]["KeyWish"]),
    () => client.call({ method: "POST", path: "/" }),
  ]) {
    asked = 0;
    await assert.rejects(call, (error: unknown) => error instanceof NoAnswerError && error.mayBeDone);
    assert.equal(asked, 1);
  }
});

void test("an id that is none is refused, and stops no other call", async (t) => {
  const client = await clientOf(t, (_, __, response) =>
    response.end(JSON.stringify({ scheduleId: "a", status: "CANCELLED" })),
  );
  for (const id of [undefined, ""] as string[]) await assert.rejects(client.cancel(id), TypeError);
  const message = { scheduleId: "", channel: "inbox:a", delay: 1, payload: 1 };
  await assert.rejects(client.schedule(message), TypeError);
  await assert.rejects(async () => client.get(undefined as unknown as string), TypeError);
  await client.cancel("a");
});

void test("what a gatherer cannot send stops no other call", async () => {
  const calls = {
    alone: ({ scheduleId }: Item) => Promise.resolve(scheduleId),
    together: () => assert.fail(),
    server: () => "",
  };
  const gatherer = new Gatherer(calls, 1);
  const bad = { scheduleId: "a", body: undefined } as unknown as Item;
  await assert.rejects(gatherer.call(bad, undefined), TypeError);
  assert.equal(await gatherer.call({ scheduleId: "b", body: "" }, undefined), "b");
});

void test("a variable of the environment that is empty is not set", () => {
  process.env.POSTDATE_SERVER = "";
  assert.equal(new Client().server, "http://127.0.0.1:8080");
});

void test("a proxy's redirect and its page are problems without a type", async (t) => {
  for (const status of [302, 502]) {
    const answer: Answers = (_, __, response) => response.writeHead(status, { Location: "/" }).end("<html>");
    const client = await clientOf(t, answer, { retryForMs: 0 });
    await assert.rejects(client.trigger("a"), (error: unknown) => {
      return error instanceof ProblemError && error.type === undefined && error.mayBeDone === status >= 500;
    });
  }
});

void test("bytes and times have their forms", async (t) => {
  let body: unknown;
  const client = await clientOf(t, (_, text, response) => {
    body = JSON.parse(text);
    response.end(JSON.stringify({ scheduleId: "a", status: "PENDING" }));
  });
  const executionTime = new Date("2027-01-31T09:30:00Z");
  await client.schedule({
    scheduleId: "a",
    channel: "inbox:a",
    executionTime,
    payload: Uint8Array.of(0, 1, 255),
  });
  const wire = { payload: "AAH/", payloadEncoding: "base64" } as const;
  const time = "2027-01-31T09:30:00.000Z";
  assert.deepEqual(body, { scheduleId: "a", channel: "inbox:a", executionTime: time, ...wire });
  await client.patch("a", { payload: Uint8Array.of(0, 1, 255) });
  assert.deepEqual(body, wire); // the message keeps its content type
  assert.deepEqual(bytesOf(wire), Uint8Array.of(0, 1, 255));
});

void test("bytes of all kinds are bytes, and what JSON loses is refused", async (t) => {
  let body = { payload: "" };
  const client = await clientOf(t, (_, text, response) => {
    body = JSON.parse(text) as typeof body;
    response.end(JSON.stringify({ scheduleId: "a", status: "PENDING" }));
  });
  const { buffer } = Uint8Array.of(9, 0, 1, 255);
  for (const payload of [buffer.slice(1), new DataView(buffer, 1), new Uint8ClampedArray(buffer, 1)]) {
    await client.patch("a", { payload });
    assert.deepEqual(body, { payload: "AAH/", payloadEncoding: "base64" });
  }
  for (const payload of [new Map(), new Set(), NaN, Promise.resolve()])
    await assert.rejects(client.patch("a", { payload }), TypeError);
  await assert.rejects(client.move("a", new Date(NaN)), TypeError);
  await assert.rejects(client.schedule({ channel: "inbox:a", delay: NaN, payload: 1 }), TypeError);
});

void test("a list goes by times, page by page", async (t) => {
  const urls: (string | undefined)[] = [];
  const client = await clientOf(t, (request, _, response) => {
    urls.push(request.url);
    response.end(JSON.stringify(urls.length === 1 ? { messages: [], nextCursor: "c" } : { messages: [] }));
  });
  for await (const message of client.list({ from: new Date(0), pageSize: 2 }))
    assert.fail(message.scheduleId);
  const first = "/v1/messages?from=1970-01-01T00%3A00%3A00.000Z&limit=2";
  assert.deepEqual(urls, [first, `${first}&cursor=c`]);
});

void test("an id that would be another path is refused", async () => {
  const client = new Client({ server: "127.0.0.1:1" });
  for (const id of ["", ".", ".."]) await assert.rejects(async () => client.get(id), TypeError);
});

void test("a client takes an address, and a fetch of one's own", async () => {
  const urls: unknown[] = [];
  const own = (url: unknown) => {
    urls.push(url);
    return Promise.resolve(new Response("{}"));
  };
  await new Client({ server: new Client("node:8080").server, fetch: own }).health();
  assert.deepEqual(urls, ["http://node:8080/healthz"]);
});

void test("an address that is none is refused", () => {
  for (const server of ["", "ftp://a", "http://a/v1", "not a url", []])
    assert.throws(() => new Client({ server }), TypeError);
});

void test("numbers with which no call would end are refused", () => {
  for (const options of [{ requests: 0 }, { timeoutMs: NaN }, { timeoutMs: 0 }, { retryForMs: NaN }])
    assert.throws(() => new Client(options), TypeError);
});

void test("what cannot be a header is refused, and not quoted", async (t) => {
  for (const options of [{ apiKey: "secret\nkey" }, { apiKey: "secret\u2026" }, { tenant: "secret\0" }]) {
    assert.throws(
      () => new Client(options),
      (error: unknown) => error instanceof TypeError && error.stack?.includes("secret") === false,
    );
  }
  const client = await clientOf(t, () => assert.fail());
  const message = { scheduleId: "a", channel: "inbox:a", delay: 1, payload: 1, traceparent: "a\nb: c" };
  await assert.rejects(client.schedule(message), TypeError);
  await assert.rejects(client.put(message), TypeError);
  await assert.rejects(client.patch("a", {}, { ifVersion: "a\nb" }), TypeError);
});

void test("a wait may be as long as one likes", async (t) => {
  const timers = t.mock.method(globalThis, "setTimeout");
  const client = await clientOf(t, (_, __, response) => response.end("{}"), { timeoutMs: Infinity });
  await client.health();
  const stop = new AbortController();
  const slept = sleep(30 * 24 * 3600 * 1000, stop.signal);
  stop.abort();
  await slept;
  const waits = timers.mock.calls.map((call) => call.arguments[1] ?? 0);
  assert.equal(Math.max(...waits), 2 ** 31 - 1); // a longer timer goes off at once
});
