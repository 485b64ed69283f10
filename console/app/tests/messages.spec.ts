import type { Page } from "@playwright/test";
import { readFile } from "node:fs/promises";
import { type Node, accessible, act, adminKey, expect, fits, logIn, soon } from "./harness";
import { test } from "./receiver";

const table = (page: Page) => page.getByRole("region", { name: "Messages" });
const ids = (page: Page) => table(page).locator("tbody tr:not(.filler) td:first-child");
const said = (page: Page) => page.locator("p.act > output");
const open = (page: Page, node: Node, id: string) => page.goto(`${node.url}/console/message?id=${encodeURIComponent(id)}`);
const path = (id: string) => `/v1/messages/${encodeURIComponent(id)}`;

/** refusal makes a call that the API refuses, and returns its words. */
async function refusal(node: Node, method: string, id: string, headers = {}, body?: string): Promise<string> {
  const answer = await fetch(node.url + path(id), { method, headers: { "Content-Type": "application/json", ...headers }, body });
  expect(answer.ok).toBe(false);
  return (await answer.json()).detail;
}

test("Messages are found by their id and by each filter, and the address says which", async ({ node, page }) => {
  const hour = 3_600_000;
  const first = Math.ceil(Date.now() / hour) * hour + hour;
  for (let i = 0; i < 6; i++) {
    await node.call("POST", "/v1/messages", {
      scheduleId: `${i < 3 ? "order" : "bill"}-${i}`, channel: `inbox:${i % 2 ? "odd" : "even"}`, payload: i,
      executionTime: new Date(first + i * hour).toISOString(), labels: i < 2 ? ["customer:1", `n${i}`] : [],
    });
  }
  await node.call("DELETE", path("bill-5"));
  await page.goto(`${node.url}/console/messages`);
  await expect(ids(page)).toHaveText(["order-0", "order-1", "order-2", "bill-3", "bill-4"]);
  await expect(page).toHaveURL(`${node.url}/console/messages?status=PENDING`);
  await expect(table(page).getByRole("row", { name: "order-0" })).toContainText("customer:1, n0");
  await page.getByLabel("Status").selectOption("any");
  await expect(page).toHaveURL(`${node.url}/console/messages?status=any`);
  await expect(ids(page)).toHaveText(["order-0", "order-1", "order-2", "bill-3", "bill-4", "bill-5"]);
  await expect(page.getByText("6 messages: these are all.")).toBeVisible();

  // Labels that were seen are offered, and channels.
  const offered = (name: string) =>
    page.getByLabel(name, { exact: true }).evaluate((field: HTMLInputElement) => [...field.list!.options].map((option) => option.value));
  expect(await offered("Label")).toEqual(["customer:1", "n0", "n1"]);
  expect(await offered("Channel")).toEqual(["inbox:even", "inbox:odd"]);
  await node.call("PATCH", "/v1/channels", { channel: "inbox:set", maxPerSecond: 5 });
  await page.getByLabel("Channel", { exact: true }).focus();
  await expect.poll(() => offered("Channel")).toEqual(["inbox:even", "inbox:odd", "inbox:set"]);

  const find = async (name: string, value: string, address: string, found: string[]) => {
    const field = page.getByLabel(name, { exact: true });
    await field.fill(value);
    await field.press("Enter");
    await expect(page).toHaveURL(`${node.url}/console/messages?status=any&${address}`);
    await expect(ids(page)).toHaveText(found);
    await field.fill("");
    await field.press("Enter");
    await expect(ids(page)).toHaveCount(6);
  };
  await find("Id begins with", "bill", "idPrefix=bill", ["bill-3", "bill-4", "bill-5"]);
  await find("Label", "customer:1", "label=customer%3A1", ["order-0", "order-1"]);
  await find("Channel", "inbox:odd", "channel=inbox%3Aodd", ["order-1", "bill-3", "bill-5"]);
  // The browser is in Berlin; the address and the API are in UTC.
  const berlin = (at: number) => new Date(at).toLocaleString("sv", { timeZone: "Europe/Berlin" }).replace(" ", "T");
  const utc = (at: number) => encodeURIComponent(new Date(at).toISOString());
  const [from, to] = [first + 2 * hour, first + 4 * hour];
  await find("Due from", berlin(from), `from=${utc(from)}`, ["order-2", "bill-3", "bill-4", "bill-5"]);
  await find("Due before", berlin(to), `to=${utc(to)}`, ["order-0", "order-1", "order-2", "bill-3"]);

  await page.getByLabel("Status").selectOption("CANCELLED");
  await expect(ids(page)).toHaveText(["bill-5"]);
  await expect(page).toHaveURL(/status=CANCELLED$/);
  await accessible(page);
  await fits(page);
  await page.goBack();
  await expect(ids(page)).toHaveCount(6);

  // A link shows the same; what it cannot say is refused in the API's words.
  await page.goto(`${node.url}/console/messages?status=PENDING&from=${utc(from)}&channel=inbox:even`);
  await expect(ids(page)).toHaveText(["order-2", "bill-4"]);
  await expect(page.getByLabel("Due from")).toHaveValue(berlin(from).slice(0, 16));
  await node.call("DELETE", path("bill-4"));
  await page.getByRole("button", { name: "Search" }).click();
  await expect(ids(page)).toHaveText(["order-2"]);
  await page.goto(`${node.url}/console/messages?from=yesterday`);
  await expect(page.getByRole("alert")).toContainText(/^Due from: .*RFC 3339/);
  await page.goto(`${node.url}/console/messages?channel=orders`);
  await expect(page.getByRole("alert")).toContainText("orders");
  await expect(page.getByText("so far")).toHaveCount(0);
  await expect(page.getByRole("button", { name: "Search further" })).toHaveCount(0);

  await page.getByLabel("Id of a message").fill("nobody");
  await page.getByRole("button", { name: "Open" }).click();
  await expect(page.getByText(`nobody: ${await refusal(node, "GET", "nobody")}`)).toBeVisible();
  await page.getByLabel("Id of a message").fill("order-1");
  await page.getByRole("button", { name: "Open" }).click();
  await expect(page).toHaveURL(/message\?id=order-1$/);
  await page.getByRole("link", { name: "customer:1" }).click();
  await expect(ids(page)).toHaveText(["order-0", "order-1"]);

  // Long texts are cut, so that all columns are in sight. On a phone enough of them is left, and the table scrolls.
  const long = { scheduleId: "x".repeat(128), channel: `inbox:${"y".repeat(100)}`, labels: ["z".repeat(128)] };
  await node.call("POST", "/v1/messages", { ...long, delay: "9h", payload: 1 });
  await page.goto(`${node.url}/console/messages`);
  await expect(ids(page).last()).toHaveText(long.scheduleId);
  expect(await table(page).evaluate((region) => region.scrollWidth - region.clientWidth)).toBe(0);
  await page.setViewportSize({ width: 375, height: 740 });
  expect((await ids(page).last().boundingBox())!.width).toBeGreaterThan(100);
});

test("100,000 messages are listed page by page, and a long search asks before it goes on", async ({ plain: node, page }) => {
  const first = Date.now() + 3_600_000;
  const name = (i: number) => `m${String(i).padStart(6, "0")}`;
  for (let i = 0; i < 100_000; i += 10_000) {
    const batch = Array.from({ length: 10_000 }, (_, k) => ({
      scheduleId: name(i + k), channel: "inbox:a", executionTime: new Date(first + 1000 * (i + k)).toISOString(), payload: k,
    }));
    await node.call("POST", "/v1/messages/batch", batch);
  }
  await page.goto(`${node.url}/console/messages`);
  await expect(ids(page).first()).toHaveText("m000000");
  const pages: number[] = [];
  page.on("response", (answer) => void pages.push(answer.status()));
  await table(page).evaluate(async (region) => {
    const words = document.querySelector("p[role=status]")!;
    while (!words.textContent!.includes("these are all")) {
      region.scrollTop = region.scrollHeight;
      await new Promise(requestAnimationFrame);
    }
    region.scrollTop = region.scrollHeight;
  });
  await expect(page.getByText("100,000 messages: these are all.")).toBeVisible();
  expect(pages.length).toBeGreaterThanOrEqual(100);
  await expect(page.getByRole("link", { name: "m099999" })).toBeVisible();
  await expect(table(page).getByRole("table")).toHaveAttribute("aria-rowcount", "100001");
  expect(await ids(page).count()).toBeLessThan(100);
  await table(page).evaluate((region) => (region.scrollTop = region.scrollHeight / 2));
  await expect(page.getByRole("link", { name: name(50_000) })).toBeVisible();

  // The last one, by its prefix: the node looks at 10,000 a page, and the page asks after five without a message.
  await page.getByLabel("Id begins with").fill("m099999");
  await page.getByLabel("Id begins with").press("Enter");
  const until = new Date(first + 1000 * 49_999).toLocaleString("sv", { timeZone: "Europe/Berlin" });
  await expect(page.locator("p[role=status]")).toContainText(`0 messages so far.Searched what is due until ${until}.`);
  await page.getByRole("button", { name: "Search further" }).click();
  await expect(ids(page)).toHaveText(["m099999"]);
});

test("A message's page shows what is known of it", async ({ start, receiver, page, context }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  receiver.status = 500;
  const node = await start("--webhook-allow", "127.0.0.1");

  // JSON that JSON.parse would change
  const json = '{"big":12345678901234567890123,"price":1.10,"10":1,"2":[],"nested":[true,{"a":"x,\\"{y"}],"rtl":"a\u202eb"}';
  await fetch(`${node.url}/v1/messages`, {
    method: "POST",
    headers: { "Content-Type": "application/json", traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" },
    body: `{"scheduleId":"known","channel":"inbox:a","failureChannel":"inbox:f","delay":"2h","expiresAt":"2040-01-01T00:00:00Z",
      "labels":["campaign-7"],"key":"k\u200b1","headers":{"Shop":"north"},"retry":{"maxAttempts":3},"payload":${json}}`,
  });
  await open(page, node, "known");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("known");
  const payload = page.getByRole("region", { name: "Payload as" });
  const pretty = ["{", '  "big": 12345678901234567890123,', '  "price": 1.10,', '  "10": 1,', '  "2": [],', '  "nested": [', "    true,", "    {",
    '      "a": "x,\\"{y"', "    }", "  ],", '  "rtl": "a⟨U+202E⟩b"', "}"];
  await expect.poll(() => payload.textContent()).toBe(pretty.join("\n"));
  await page.getByRole("radio", { name: "Text" }).check();
  await expect.poll(() => payload.textContent()).toBe(json.replace("\u202e", "⟨U+202E⟩"));
  await page.getByRole("button", { name: "Copy the payload" }).click();
  await expect(page.getByText("Copied.")).toBeVisible();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(json);
  const loaded = page.waitForEvent("download");
  await page.getByRole("button", { name: "Download" }).click();
  expect(await readFile(await (await loaded).path(), "utf8")).toBe(json);
  await page.getByRole("button", { name: "Copy the trace id" }).click();
  await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toBe("0af7651916cd43dd8448eb211c80319c");
  for (const words of ["inbox:f", "k⟨U+200B⟩1", "at most 3 attempts", "2040-01-01 01:00:00"]) {
    await expect(page.getByText(words).first()).toBeVisible();
  }
  await expect(page.getByRole("row", { name: "Shop north" })).toBeVisible();
  await expect(page.locator(".timeline li")).toContainText(["Scheduled", "Due", "Expires"]);
  await accessible(page);
  await fits(page);

  await node.call("POST", "/v1/messages", { scheduleId: "bytes", channel: "inbox:a", delay: "2h", contentType: "application/x-bytes", payloadEncoding: "base64", payload: "/wBBQg==" });
  await open(page, node, "bytes");
  await expect(payload).toHaveText(/^000000 {2}ff 00 41 42 +\.\.AB$/);
  await expect(page.getByRole("radio")).toHaveCount(1);

  // Refused twice, in the receiver's words, and given up: the page follows, and then rests.
  await node.call("POST", "/v1/messages", { scheduleId: "refused", channel: receiver.url("/hook"), delay: "1s", payload: { reason: "not \u202etoday <img src=x onerror='window.hacked=1'>" }, retry: { maxAttempts: 2, minBackoff: "100ms" } });
  await open(page, node, "refused");
  await expect(page.getByText("PENDING")).toBeVisible();
  await expect(page.locator(".timeline li")).toContainText(["Scheduled", "Due", "refused", "refused", "Failed for good"]);
  const { attemptLog } = await node.call("GET", path("refused"));
  for (const attempt of attemptLog) {
    await expect(page.locator(`.timeline time[datetime="${attempt.time}"]`).first()).toBeVisible();
  }
  await expect(page.locator(".timeline q").first()).toHaveText(attemptLog[0].reason.replaceAll("\u202e", "⟨U+202E⟩"));
  expect(await page.evaluate(() => "hacked" in window)).toBe(false);
});

test("Actions do what they say", async ({ start, page }) => {
  const node = await start("--webhook-allow", "127.0.0.1");
  await node.call("POST", "/v1/messages", { scheduleId: "a", channel: "inbox:a", delay: "2h", payload: 1 });
  await open(page, node, "a");
  await page.getByRole("button", { name: "Move the message" }).click();
  const dialog = page.getByRole("dialog", { name: "When should it be due?" });
  await accessible(page);
  await fits(page);
  await dialog.getByLabel("Due, in Europe/Berlin").fill("2040-07-01T12:30:00");
  const { executionTime: before } = await node.call("GET", path("a"));
  await expect(page.locator(".timeline li")).toHaveText([/^Scheduled/, /^Due/]);
  await dialog.getByRole("button", { name: "Move the message" }).click();
  await expect(said(page)).toHaveText("It is due at 2040-07-01 12:30:00.");
  const moved = await node.call("GET", path("a"));
  expect(moved).toMatchObject({ executionTime: "2040-07-01T10:30:00.000Z", movedFrom: before });
  const berlin = (at: string) => new Date(at).toLocaleString("sv", { timeZone: "Europe/Berlin" });
  await expect(page.locator(".timeline li")).toHaveText([
    /^Scheduled/, new RegExp(`^Moved from ${berlin(before)} to 2040-07-01 12:30:00${berlin(moved.movedAt)}`), /^Due2040-07-01 12:30:00/,
  ]);
  await expect(page.locator(`.timeline time[title="${before}"]`)).toBeVisible();
  await accessible(page);
  await fits(page);

  await page.getByRole("button", { name: "Move the message" }).click();
  await dialog.getByRole("button", { name: "Tomorrow" }).click();
  await dialog.getByRole("button", { name: "Leave it" }).click();
  await expect(dialog).toHaveCount(0);
  expect((await node.call("GET", path("a"))).executionTime).toBe("2040-07-01T10:30:00.000Z");

  await act(page, "Send the message now");
  await expect(said(page)).toHaveText("It is due now; it goes out once its channel takes messages.");
  await node.until(path("a"), (m) => m.status === "DELIVERED");
  await expect(page.locator(".timeline li")).toHaveText([/^Scheduled/, /^Moved from 2040-07-01 12:30:00 to/, /^Due/, /^delivered Attempt/, /^Delivered/]);
  await expect(page.getByRole("button", { name: /the message$/ })).toHaveCount(0);

  await node.call("POST", "/v1/messages", { scheduleId: "b", channel: "inbox:a", delay: "2h", payload: 1 });
  await open(page, node, "b");
  await act(page, "Cancel the message");
  await expect(said(page)).toHaveText("It is cancelled: it is never delivered.");
  await expect(page.locator(".timeline li")).toContainText(["Scheduled", "Cancelled", "It would have been due"]);
  expect((await node.call("GET", path("b"))).status).toBe("CANCELLED");

  // It waits for its channel: once is enough to say so, and why.
  await node.call("PATCH", "/v1/channels", { channel: "inbox:p", paused: true });
  await node.call("POST", "/v1/messages", { scheduleId: "p", channel: "inbox:p", delay: "0s", payload: 1 });
  await node.until(path("p"), (m) => Boolean(m.parked));
  await open(page, node, "p");
  await expect(page.locator(".timeline li").last()).toHaveText("Waits for its channelthe channel is paused");
  await expect(page.getByText(/Last error|waiting for/)).toHaveCount(0);
  await expect(page.getByRole("link", { name: "inbox:p" })).toHaveAttribute("href", "/console/channels?channel=inbox%3Ap");

  // What failed can be tried again or purged. Nobody listens on port 1.
  await node.call("POST", "/v1/messages", { scheduleId: "c", channel: "http://127.0.0.1:1/", delay: "0s", payload: 1, retry: { maxParked: "100ms" }, failureChannel: "inbox:f" });
  const failed = await node.until(path("c"), (m) => m.status === "DELIVERY_FAILED");
  await open(page, node, "c");
  await expect(page.locator(".timeline li").last()).toContainText(failed.lastError);
  await act(page, "Redrive the message");
  await expect(said(page)).toHaveText("It is pending again, and due now.");
  await node.until(path("c"), (m) => m.status === "DELIVERY_FAILED" && m.version !== failed.version);
  await act(page, "Purge the message");
  await expect(said(page)).toHaveText("It is purged: deleted for good, and its id is free.");
  await expect(page.getByRole("alert")).toHaveText(await refusal(node, "GET", "c"));
  await expect(page.getByRole("button", { name: /the message$/ })).toHaveCount(0);

  // The message that it left has an id that only some calls take; an occurrence of a series has a slash in it.
  await open(page, node, `c!${failed.version}`);
  await expect(page.locator(".title").getByRole("link", { name: "c", exact: true })).toHaveAttribute("href", "/console/message?id=c");
  // Its channel is paused, so that no attempt is under way: during one a cancel is refused.
  await node.call("POST", "/v1/messages", { scheduleId: "s", channel: "inbox:p", payload: 1, recurrence: { every: "PT1H" } });
  const { scheduleId } = await node.call("POST", "/v1/messages/s/trigger");
  await node.until(path(scheduleId), (m) => Boolean(m.parked));
  await open(page, node, scheduleId);
  await expect(page.getByRole("link", { name: "the series s" })).toHaveAttribute("href", "/console/series?id=s");
  await expect(page.getByRole("button", { name: "Move the message" })).toHaveCount(0);
  await act(page, "Cancel the message");
  await expect(said(page)).toHaveText("It is cancelled: it is never delivered.");
  expect((await node.call("GET", path(scheduleId))).status).toBe("CANCELLED");
  await open(page, node, "s");
  await expect(page.getByRole("link", { name: "to its series" })).toBeVisible();
  await expect(page.getByRole("button", { name: /the message$/ })).toHaveCount(0);
});

test("A question stays what it was when it came up, and nothing is done to what changed meanwhile", async ({ start, page }) => {
  const node = await start("--webhook-allow", "127.0.0.1");
  const channel = "http://127.0.0.1:1/";
  await node.call("POST", "/v1/messages", { scheduleId: "q", channel, delay: "2h", payload: 1, retry: { maxParked: "100ms" } });
  await open(page, node, "q");
  const dialog = page.getByRole("dialog");
  const version = page.getByRole("definition").filter({ hasText: /^\d{8,}$/ });
  const ask = async (name: string, meanwhile: () => Promise<unknown>) => {
    await page.getByRole("button", { name }).click();
    await expect(dialog.getByLabel("The message")).toContainText(channel);
    await meanwhile();
  };
  const changed = async () => {
    await node.call("PATCH", path("q"), { delay: "1h" });
    await expect(version).toHaveText((await node.call("GET", path("q"))).version);
  };
  await ask("Cancel the message", changed);
  await expect(dialog).toContainText("It is then never delivered.");
  await accessible(page);
  await dialog.getByRole("button", { name: "Cancel the message" }).click();
  await expect(said(page)).toHaveText("It was changed meanwhile: look again.");
  await ask("Send the message now", changed);
  await dialog.getByRole("button", { name: "Send the message now" }).click();
  await expect(said(page)).toContainText("which If-Match does not name");
  expect((await node.call("GET", path("q"))).status).toBe("PENDING");

  // A question that is void goes: another one does not come in its place, under the same cursor.
  const fail = async () => {
    const { version: before, status } = await node.call("GET", path("q"));
    if (status === "PENDING") await node.call("PATCH", path("q"), { delay: "PT0S" });
    else await node.call("POST", "/v1/messages/redrive", { scheduleIds: ["q"] });
    return node.until(path("q"), (m) => m.status === "DELIVERY_FAILED" && m.version !== before);
  };
  await ask("Cancel the message", fail);
  await expect(page.getByText("DELIVERY_FAILED")).toBeVisible();
  await expect(dialog).toHaveCount(0);
  for (const name of ["Redrive the message", "Purge the message"]) {
    const { version: failed } = await fail();
    await act(page, name);
    await expect(said(page)).toHaveText("It was changed meanwhile: look again.");
    await expect(version).toHaveText(failed);
    expect((await node.call("GET", path("q"))).version).toBe(failed);
    await page.reload();
    await expect(version).toHaveText(failed);
  }
});

test("A refusal is told in the API's words, and no answer as not known", async ({ node, page }) => {
  for (const scheduleId of ["late", "changed", "lost"]) {
    await node.call("POST", "/v1/messages", { scheduleId, channel: "inbox:a", delay: "2h", payload: 1 });
  }
  // The page sees the message as it was, and acts on it as it is.
  const before = async (id: string) => {
    const message = await node.call("GET", path(id));
    await page.route(`**${path(id)}`, (route) => (route.request().method() === "GET" ? route.fulfill({ json: message }) : route.continue()));
    await open(page, node, id);
    await expect(page.getByText("PENDING")).toBeVisible();
    return message;
  };
  await before("late");
  await node.call("PATCH", path("late"), { delay: "PT0S" });
  await node.until(path("late"), (m) => m.status === "DELIVERED");
  await act(page, "Cancel the message");
  await expect(said(page)).toHaveText(await refusal(node, "DELETE", "late"));
  await page.unrouteAll();
  await page.getByRole("button", { name: "Refresh" }).click();
  await expect(page.getByText("DELIVERED", { exact: true })).toBeVisible();
  await expect(said(page)).toHaveText(/delivered/); // what was said stays

  const { version } = await before("changed");
  await node.call("PATCH", path("changed"), { channel: "inbox:b" });
  await act(page, "Send the message now");
  await expect(said(page)).toHaveText(await refusal(node, "PATCH", "changed", { "If-Match": `"${version}"` }, '{"delay":"PT0S"}'));
  expect((await node.call("GET", path("changed"))).status).toBe("PENDING");
  await page.unrouteAll();
  await page.getByRole("button", { name: "Refresh" }).click();
  await expect(page.getByText("inbox:b")).toBeVisible();

  // An answer of a proxy says nothing of a write; the node's own says what is known of it.
  await open(page, node, "lost");
  const detail = "the store did not answer: the message may or may not be cancelled";
  const answers = [
    { status: 502, contentType: "text/html", body: "<h1>Bad gateway</h1>" },
    { status: 504, contentType: "application/problem+json", body: JSON.stringify({ type: "about:blank", title: "t", status: 504, detail }) },
  ];
  for (const [i, words] of ["it is not known whether this was done", detail].entries()) {
    await page.route(`**${path("lost")}`, (route) => (route.request().method() === "GET" ? route.continue() : route.fulfill(answers[i])));
    await act(page, "Cancel the message");
    await expect(said(page)).toContainText(words);
    await page.unrouteAll();
  }
  await page.getByRole("button", { name: "Cancel the message" }).click();
  await node.kill();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel the message" }).click();
  await expect(said(page)).toContainText("it is not known whether this was done");
  await expect(page.getByRole("alert")).toContainText("This node does not answer.");
  await expect(page.getByText("PENDING")).toBeVisible();
});

test("Hostile content neither runs nor breaks the page", async ({ node, page }) => {
  const markup = "<script>window.hacked=1</script><img src=x onerror='window.hacked=1'>";
  const long = "x".repeat(256 << 10);
  const put = (scheduleId: string, payload: unknown, more = {}) =>
    node.call("POST", "/v1/messages", { scheduleId, channel: "inbox:a", delay: "2h", payload, ...more });
  await put("markup", `${markup}\u202Egnp.exe\u2066\u200b\ufeff`, {
    contentType: "text/html", headers: { Note: `${markup}`, ["H".repeat(60)]: "y".repeat(2000) }, key: `${markup}\u202e`, labels: ["l".repeat(128)],
  });
  await put("l".repeat(128), long.slice(2));
  await put("marks", "\u202e".repeat(80_000), { contentType: "text/plain" });
  const payload = page.getByRole("region", { name: "Payload as" });

  // JSON of so many levels is shown as text.
  await put("deep", Buffer.from("[".repeat(90_000) + "]".repeat(90_000)).toString("base64"), { contentType: "application/json", payloadEncoding: "base64" });
  await open(page, node, "deep");
  await expect(payload).toHaveText(/^\[+$/);
  await expect(page.getByRole("radio", { name: "JSON" })).toHaveCount(0);

  await open(page, node, "markup");
  await expect(payload).toHaveText(`${markup}⟨U+202E⟩gnp.exe⟨U+2066⟩⟨U+200B⟩⟨U+FEFF⟩`);
  await expect(page.getByRole("row", { name: markup })).toBeVisible();
  await expect(page.locator("script:not([src])")).toHaveCount(0);
  await accessible(page);
  await fits(page);

  await open(page, node, "l".repeat(128));
  await expect(payload).toContainText("xxxx");
  await fits(page);
  await page.getByRole("radio", { name: "Hex" }).check();
  await expect(payload).toContainText("000010  78 78");
  await page.getByRole("button", { name: "Show more of the payload" }).click();
  await expect(page.getByText(/^The first 65,536 of 1,2/)).toBeVisible();
  await open(page, node, "marks");
  await expect(payload).toHaveText(/^(⟨U\+202E⟩){4096}$/);
  await fits(page);

  await page.goto(`${node.url}/console/messages`);
  await expect(ids(page)).toHaveCount(4);
  await fits(page);
  await page.goto(`${node.url}/console/message?id=..`);
  await expect(page.getByText("The address names no message.")).toBeVisible();
  expect(await page.evaluate(() => "hacked" in window)).toBe(false);
});

test("Who may only read sees no button that writes", async ({ guarded, page }) => {
  const { key } = await guarded.call("POST", "/v1/keys", { tenant: "acme", scopes: ["sched:r"] }, adminKey);
  const writer = await guarded.call("POST", "/v1/keys", { tenant: "acme", scopes: ["sched:w"] }, adminKey);
  await guarded.call("POST", "/v1/messages", { scheduleId: "a", channel: "inbox:a", delay: "2h", payload: 1 }, writer.key);
  await open(page, guarded, "a");
  await logIn(page, key);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("a");
  await expect(page.getByText("PENDING")).toBeVisible();
  await expect(page.getByRole("button", { name: /the message$/ })).toHaveCount(0);
});

test("A message is found, opened and moved without a mouse", async ({ node, page }) => {
  await node.call("POST", "/v1/messages", { scheduleId: "by-keys", channel: "inbox:a", delay: "2h", payload: 1, labels: ["k"] });
  const tabTo = async (target: ReturnType<Page["getByRole"]>) => {
    await expect(target).toBeVisible();
    for (let i = 0; i < 40 && !(await target.evaluate((node) => node === document.activeElement)); i++) await page.keyboard.press("Tab");
    await expect(target).toBeFocused();
  };
  await page.goto(`${node.url}/console/messages`);
  await tabTo(page.getByLabel("Label"));
  await page.keyboard.type("k");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/label=k$/);
  await tabTo(page.getByRole("link", { name: "by-keys" }));
  await page.keyboard.press("Enter");
  const move = page.getByRole("button", { name: "Move the message" });
  await tabTo(move);
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog");
  await expect(dialog).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.locator("dialog")).toHaveCount(0); // the page knows a moment after the browser has hidden it
  await expect(move).toBeFocused();
  await page.keyboard.press("Enter");
  await tabTo(dialog.getByRole("button", { name: "In 1 h" }));
  await page.keyboard.press("Space");
  await tabTo(dialog.getByRole("button", { name: "Move the message" }));
  await page.keyboard.press("Enter");
  await expect(said(page)).toContainText("It is due at");
  await expect(move).toBeFocused();
  const { executionTime } = await node.call("GET", path("by-keys"));
  expect(Date.parse(executionTime)).toBeLessThan(Date.parse(soon(3601)));
  expect(Date.parse(executionTime)).toBeGreaterThan(Date.parse(soon(3000)));
});
