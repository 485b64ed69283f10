// Drives a node through every operation, with the types that openapi-typescript makes and openapi-fetch.
//
// node every.ts URL KEY prints the name of each operation that succeeded.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import createClient from "openapi-fetch";
import type { components, paths } from "./postdate.d.ts";

type Problem = components["schemas"]["Problem"];
type Schedule = components["schemas"]["Schedule"];

const [url, key] = process.argv.slice(2) as [string, string];
const client = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } });

// Names the operations that succeed, as the document does.
const document = JSON.parse(readFileSync(new URL("openapi.json", import.meta.url), "utf8"));
client.use({
  onResponse({ request, response, schemaPath }) {
    if (response.ok) console.log(document.paths[schemaPath][request.method.toLowerCase()].operationId);
  },
});

/** Returns the answer of a call that is to succeed. */
async function ok<T>(call: Promise<{ data?: T; error?: unknown }>): Promise<T> {
  const { data, error } = await call;
  if (data === undefined) throw new Error(JSON.stringify(error));
  return data;
}

const channel = "inbox:typescript";
const payload = { order: [1, null, "é"] };
const soon = new Date(Date.now() + 3_600_000).toISOString();
const schedule = (scheduleId: string, more: Partial<Schedule>): Schedule => ({ scheduleId, channel, payload, ...more });
const at = (id: string) => ({ params: { path: { id } } });

const made = await ok(client.POST("/v1/messages", { body: schedule("ts-1", { executionTime: soon }) }));
assert.equal(made.status, "PENDING");
assert.equal(made.executionTime, soon);
await ok(client.PUT("/v1/messages/{id}", { ...at("ts-2"), body: schedule("ts-2", { delay: "PT1H", priority: "high", labels: ["a", "b"] }) }));
await ok(client.PATCH("/v1/messages/{id}", { ...at("ts-2"), body: { delay: "PT2H", labels: ["b", "c"] } }));
const message = await ok(client.GET("/v1/messages/{id}", at("ts-2")));
assert.deepEqual(message.payload, payload);
assert.equal(message.priority, "high");
assert.deepEqual(message.labels, ["b", "c"]);
const found = await ok(client.GET("/v1/messages", { params: { query: { label: "c", idPrefix: "ts-" } } }));
assert.deepEqual(found.messages.map((m) => m.scheduleId), ["ts-2"]);
await ok(client.PATCH("/v1/messages/{id}", { ...at("ts-2"), body: { labels: null } }));
assert.equal((await ok(client.GET("/v1/messages/{id}", at("ts-2")))).labels, undefined);

const rule: components["schemas"]["Recurrence"] = { cron: "30 2 * * *", timezone: "Europe/Berlin", gap: "skip" };
await ok(client.PUT("/v1/messages/{id}", { ...at("ts-series"), body: schedule("ts-series", { recurrence: rule }) }));
await ok(client.PATCH("/v1/messages/{id}", { ...at("ts-series"), body: { recurrence: { gap: null, maxRuns: 5 } } }));
const begun = await ok(client.POST("/v1/messages/{id}/trigger", at("ts-series")));
assert.ok(begun.scheduleId.startsWith("ts-series/"));
assert.equal((await ok(client.GET("/v1/messages/{id}", at("ts-series")))).series?.fired, 1);

const { results } = await ok(
  client.POST("/v1/messages/batch", {
    body: [schedule("ts-3", { delay: "1h" }), schedule("ts-4", { delay: "never" }), schedule("ts-5", { delay: "0s" })],
  }),
);
assert.equal(results[0]?.created, true);
const refused: Problem | undefined = results[1]?.error;
assert.equal(refused?.type, "urn:postdate:problem:invalid-field");
assert.equal(refused?.pointer, "/delay");

const page = await ok(client.GET("/v1/messages", { params: { query: { status: "PENDING", channel } } }));
assert.ok(page.messages.some((m) => m.scheduleId === "ts-1"));
const came = new Set<string>();
for (let after = ""; !came.has("ts-5") || !came.has("ts-series"); ) {
  const read = await ok(
    client.GET("/v1/inbox/{name}", { params: { path: { name: "typescript" }, query: { after, wait: "30s" } } }),
  );
  assert.ok(read.messages.length > 0, "nothing came for 30 seconds");
  for (const m of read.messages) came.add(m.scheduleId);
  after = read.nextCursor;
}

const worker = { params: { path: { name: "typescript", consumer: "worker" } } };
const received = await ok(
  client.POST("/v1/inbox/{name}/consumers/{consumer}/receive", {
    ...worker,
    body: { limit: 1, wait: "0s", visibility: "PT1M" },
  }),
);
const receipt = received.messages[0]?.receipt ?? "";
assert.equal(received.messages[0]?.deliveries, 1);
const acks = await ok(
  client.POST("/v1/inbox/{name}/consumers/{consumer}/ack", { ...worker, body: { receipts: [receipt, "none"] } }),
);
assert.equal(acks.results[0]?.acked, true);
assert.ok(acks.results[1]?.error);

const gone = await ok(client.DELETE("/v1/messages/{id}", at("ts-1")));
assert.equal(gone.status satisfies "CANCELLED", "CANCELLED");
const cancelled = await ok(client.POST("/v1/messages/cancel", { body: { scheduleIds: ["ts-2", "ts-5"] } }));
assert.ok("results" in cancelled);
assert.equal(cancelled.results[0]?.status, "CANCELLED");
assert.equal(cancelled.results[1]?.error?.messageStatus, "DELIVERED");
for (const again of ["/v1/messages/redrive", "/v1/messages/purge"] as const) {
  const outcomes = await ok(client.POST(again, { body: { scheduleIds: ["ts-5"] } }));
  assert.ok("results" in outcomes);
  assert.equal(outcomes.results[0]?.error?.status, 409);
}
const delivered = await ok(client.GET("/v1/messages/{id}", at("ts-5")));
assert.equal(delivered.attemptLog?.[0]?.outcome, "delivered");

const started = await ok(client.POST("/v1/messages/cancel", { body: { filter: { idPrefix: "nobody-" } } }));
assert.ok("jobId" in started);
const job = await ok(client.GET("/v1/jobs/{id}", at(started.jobId)));
assert.equal(job.failed, 0);
assert.equal(job.filter.idPrefix, "nobody-");

const failures = await ok(client.GET("/v1/failures", { params: { query: { channel } } }));
assert.ok(failures.exact);

const upcoming = await ok(client.GET("/v1/upcoming", { params: { query: { step: "PT10M", channel } } }));
assert.equal(upcoming.slots.length, 6);

const { occurrences } = await ok(
  client.POST("/v1/recurrences/preview", { body: { recurrence: rule, from: "2027-03-27T00:00:00Z", count: 3 } }),
);
assert.equal(occurrences[1]?.time, "2027-03-29T00:30:00.000Z"); // no 2:30 on the 28th

const frequency: components["schemas"]["TaskFrequency"] = { timeUnit: "HOURS", time: 1 };
await ok(
  client.POST("/schedulers", {
    body: { host: "default", name: "ts", action: "INSERT", frequency, topic: channel, data: [1] },
  }),
);
const tasks = await ok(client.GET("/schedulers", { params: { query: { name: "ts", unit: "HOURS" } } }));
assert.deepEqual(tasks[0]?.frequency, frequency);

const failureChannel = "inbox:failed";
const changed = await ok(
  client.PATCH("/v1/channels", { body: { channel, paused: true, maxPerSecond: 0.5, failureChannel } }),
);
assert.equal(changed.maxPerSecond, 0.5);
assert.equal(changed.failureChannel, failureChannel);
const { channels } = await ok(client.GET("/v1/channels"));
assert.equal(channels.find((c) => c.channel === channel)?.state, "paused");

const wish: components["schemas"]["KeyWish"] = { tenant: "typescript", scopes: ["sched:r"], expires: "1h" };
const { id } = await ok(client.POST("/v1/keys", { body: wish }));
assert.ok((await ok(client.GET("/v1/keys"))).keys.some((k) => k.id === id));
const caller = await ok(client.GET("/v1/whoami"));
assert.ok(caller.asked && caller.keyId === "admin-key" && caller.scopes.includes("admin"));
assert.ok((await ok(client.DELETE("/v1/keys/{id}", at(id)))).revoked);
const tenant = await ok(
  client.PATCH("/v1/tenants/{tenant}", {
    params: { path: { tenant: "typescript" } },
    body: { pendingMax: 7, weight: null },
  }),
);
assert.deepEqual((await ok(client.GET("/v1/tenants"))).tenants.find((t) => t.tenant === "typescript"), tenant);

assert.ok((await ok(client.GET("/v1/cluster"))).buckets.length > 0);
const figures = await ok(client.GET("/v1/stats"));
assert.ok(figures.ownSeries && figures.nodes.length === 1 && figures.slots.length === 61);
assert.equal((await ok(client.GET("/healthz"))).status, "ok");
assert.equal((await ok(client.GET("/readyz"))).status, "ready");
assert.match(await ok(client.GET("/metrics", { parseAs: "text" })), /postdate_/);
assert.equal((await ok(client.GET("/openapi.json"))).openapi, "3.1.0");

// A refusal has its type too.
const refusal: Problem | undefined = (await client.GET("/v1/messages/{id}", at("none"))).error;
assert.equal(refusal?.type, "urn:postdate:problem:not-found");
