import { accessible, act, adminKey, expect, fits, logIn, reader } from "./harness";
import { flags, test } from "./receiver";

const daily = (timezone: string, more = {}) => ({ cron: "30 2 * * *", timezone, ...more });

test("the list has all series, in pages, and its filters are in the address", async ({ node, page }) => {
  const messages = Array.from({ length: 230 }, (_, i) => ({
    scheduleId: `s${i}`, channel: i === 7 ? "inbox:seven" : "inbox:a", payload: i, labels: i % 100 === 3 ? ["three"] : undefined,
    recurrence: { cron: `${i % 60} ${i % 24} 1 1 *`, timezone: "Asia/Tokyo" },
  }));
  await node.call("POST", "/v1/messages/batch", messages);
  await node.call("POST", "/v1/messages", { scheduleId: "alone", channel: "inbox:a", delay: "1h", payload: 1 });
  await node.call("POST", "/v1/messages", { scheduleId: "few", channel: "inbox:a", payload: 1, recurrence: { every: "PT0.1S", maxRuns: 3 } });
  await node.call("PATCH", "/v1/messages/s3", { paused: true });
  await node.call("DELETE", "/v1/messages/s103");
  await node.until<any>("/v1/messages/few", (m) => m.status === "DELIVERED");

  await page.goto(`${node.url}/console/series`);
  const table = page.getByRole("region", { name: "Series" });
  const row = (id: string) => table.getByRole("row").filter({ has: page.getByRole("link", { name: id, exact: true }) });
  await expect(row("few")).toContainText(/ended.*every 0.1 s.*DELIVERED.*3/);
  await expect(table.locator("table")).toHaveAttribute("aria-rowcount", "101");
  await accessible(page);
  await fits(page);
  for (const rows of ["201", "232"]) { // with that of the names
    await table.evaluate((scroller) => scroller.scrollTo(0, scroller.scrollHeight));
    await expect(table.locator("table")).toHaveAttribute("aria-rowcount", rows);
  }

  await page.getByLabel("Label").fill("three");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\?label=three$/);
  await expect(row("s3")).toContainText(/paused.*3 3 1 1 \* Asia\/Tokyo/);
  await expect(row("s103")).toContainText("cancelled");
  await expect(row("s203")).toContainText("running");
  await page.getByLabel("Channel").fill("inbox:seven");
  await page.keyboard.press("Enter");
  await expect(page.getByText("No series passes these filters.")).toBeVisible();
  await page.goBack();
  await expect(row("s203")).toBeVisible();
  await page.goto(`${node.url}/console/series?idPrefix=s7&channel=inbox:seven`);
  await expect(page.getByLabel("Id begins with")).toHaveValue("s7");
  await expect(table.getByRole("row")).toHaveCount(2);
  await node.call("DELETE", "/v1/messages/s7");
  await expect(row("s7")).toContainText("cancelled"); // it is live
  await row("s7").getByRole("link").click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Series s7");
});

test("the list goes on past empty pages, and asks before it goes far", async ({ node, page }) => {
  const series = async (id: string) => {
    await node.call("POST", "/v1/messages", { scheduleId: id, channel: "inbox:a", payload: 1, recurrence: daily("UTC") });
    return node.call("GET", `/v1/messages/${id}`);
  };
  // "one", an empty page, "two", six empty pages, "three"
  const pages: object[][] = [[await series("one")], [], [await series("two")], [], [], [], [], [], [], [await series("three")]];
  await page.route("**/v1/messages?*recurring=true*", (route) => {
    const at = Number(new URL(route.request().url()).searchParams.get("cursor") ?? 0);
    const more = at + 1 < pages.length && { nextCursor: String(at + 1), searchedUntil: "2030-01-01T11:00:00.000Z" };
    return route.fulfill({ json: { messages: pages[at], ...more } });
  });
  await page.clock.install();
  await page.goto(`${node.url}/console/series`);
  const link = (name: string) => page.getByRole("link", { name, exact: true });
  const further = page.getByRole("button", { name: "Search further" });
  const pass = async (until: () => Promise<boolean>) => {
    await expect.poll(async () => (await until()) || (await page.clock.runFor(1000), false), { intervals: [20], timeout: 20_000 }).toBe(true);
  };
  await pass(() => link("two").isVisible());
  await pass(() => further.isVisible());
  await expect(link("three")).toHaveCount(0);
  await expect(page.getByText("Searched what is due until 2030-01-01 12:00:00.")).toBeVisible();
  await further.click();
  await pass(() => link("three").isVisible());
  await expect(further).toHaveCount(0);
});

test("a series is paused, resumed, triggered and cancelled", async ({ node, page }) => {
  const id = "report";
  const read = () => node.call("GET", `/v1/messages/${id}`);
  await node.call("POST", "/v1/messages", { scheduleId: id, channel: "inbox:reports", payload: 1, recurrence: daily("Europe/Berlin", { jitter: "PT1M", maxRuns: 100 }) });
  await page.goto(`${node.url}/console/series?id=${id}`);
  const rule = page.locator(".facts");
  await expect(rule).toContainText("minute 30, hour 2");
  await expect(rule).toContainText("It ends after 100 occurrences.");
  await expect(rule).toContainText("begins later by a part of 1 min");
  await expect(page.getByText("No occurrence has come yet.")).toBeVisible();

  await page.getByRole("button", { name: "Pause the series" }).focus();
  await page.keyboard.press("Enter");
  await expect(page.getByText("It is paused. An occurrence that was already due may still be delivered, and no other.")).toBeVisible();
  expect((await read()).series.paused).toBe(true);
  await expect(page.getByRole("button", { name: "Resume the series" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.getByText("It is resumed")).toBeVisible();
  expect((await read()).series.paused).toBe(false);
  await expect(page.locator(".series .badge").first()).toHaveText("running");

  // what somebody else has changed is not paused unseen
  const stale = `**/v1/messages/${id}`;
  await page.route(stale, (route) => (route.request().method() === "GET" ? undefined : route.continue()));
  await node.call("PATCH", `/v1/messages/${id}`, { payload: 2 });
  await page.getByRole("button", { name: "Pause the series" }).click();
  await expect(page.locator("output.fault")).toContainText("version");
  expect((await read()).series.paused).toBe(false);
  await page.unroute(stale);

  // what was triggered waits for its channel, as a message of its own
  await node.call("PATCH", "/v1/channels", { channel: "inbox:reports", paused: true });
  await page.reload();
  await page.getByRole("button", { name: "Trigger an occurrence" }).click();
  const dialog = page.getByRole("dialog", { name: `Begin an occurrence of ${id} now?` });
  await accessible(page);
  await dialog.getByRole("button", { name: "Trigger an occurrence" }).click();
  await expect(page.getByText(`An occurrence was begun, as message ${id}/`)).toBeVisible();
  const [outcome] = (await read()).series.history;
  expect(outcome.status).toBe("PENDING");
  const outcomes = page.getByRole("region", { name: "Last outcomes" });
  const own = `/console/message?id=${encodeURIComponent(`${id}/${outcome.executionTime}`)}`;
  await expect(outcomes.getByRole("link")).toHaveAttribute("href", own);
  await expect(page.getByRole("link", { name: "The occurrence that was triggered" })).toHaveAttribute("href", own);
  await node.call("PATCH", "/v1/channels", { channel: "inbox:reports", paused: false });
  await expect(outcomes).toContainText("DELIVERED");
  await expect(outcomes.getByRole("columnheader", { name: "Message" })).toHaveCount(0); // no occurrence is pending any more
  expect((await node.call("GET", "/v1/inbox/reports")).messages).toHaveLength(1);
  await accessible(page);
  await fits(page);

  await page.getByRole("button", { name: "Cancel the series" }).click();
  await page.getByRole("dialog", { name: `Cancel the series ${id}?` }).getByRole("button", { name: "Cancel the series" }).click();
  await expect(page.getByText("It is cancelled: no occurrence begins any more.")).toBeVisible();
  expect((await read()).status).toBe("CANCELLED");
  await expect(page.locator(".series .badge").first()).toHaveText("cancelled");
  await expect(page.getByRole("button", { name: /Pause|Trigger|Cancel/ })).toHaveCount(0);
});

test("a cancel that comes too late for an occurrence says so", async ({ start, receiver, page }) => {
  const node = await start(...flags);
  receiver.hold = true;
  await node.call("POST", "/v1/messages", { scheduleId: "slow", channel: receiver.url("/"), payload: {}, recurrence: { every: "PT1S" } });
  await expect.poll(() => receiver.holds).toBe(1);
  await page.goto(`${node.url}/console/series?id=slow`);
  await act(page, "Cancel the series");
  await expect(page.locator("output.fault")).toContainText("may have begun");
  await expect(page.locator(".series .badge").first()).toHaveText("ending");
  receiver.status = 200;
  receiver.release();
  await expect(page.locator(".series .badge").first()).toHaveText("cancelled");
  await expect(page.getByRole("button", { name: "Cancel the series" })).toHaveCount(0);
  expect(receiver.got).toHaveLength(1);
});

test("occurrences to come are shown where clocks are set, in two zones", async ({ node, page }) => {
  await node.call("POST", "/v1/messages", { scheduleId: "berlin", channel: "inbox:a", payload: 1, recurrence: daily("Europe/Berlin") });
  await node.call("POST", "/v1/messages", { scheduleId: "york", channel: "inbox:a", payload: 1, recurrence: daily("America/New_York") });
  await node.call("POST", "/v1/messages", { scheduleId: "alone", channel: "inbox:a", payload: 1, delay: "1h" });
  const { series } = await node.call("GET", "/v1/messages/berlin");

  await page.goto(`${node.url}/console/series?id=berlin`);
  const coming = page.getByRole("region", { name: "Occurrences to come" });
  await expect(coming.locator("time").first()).toHaveAttribute("datetime", series.next);
  await expect(coming.getByRole("row")).toHaveCount(11);
  await page.getByLabel("From (Europe/Berlin)").fill("2027-03-27T00:00:00");
  await expect(page).toHaveURL(/from=2027-03-26T23%3A00%3A00.000Z/);
  const gap = coming.getByRole("row", { name: /Sun 2027-03-28 03:00:00 GMT\+2/ });
  await expect(gap).toContainText("2027-03-28 02:30 does not exist: the clock goes from 02:00 to 03:00");

  await page.goto(`${node.url}/console/series?id=york&from=2027-03-13T00:00:00Z`);
  await expect(coming.getByRole("columnheader", { name: "In America/New_York" })).toBeVisible();
  await expect(coming.getByRole("row", { name: /Sun 2027-03-14 03:00:00 GMT-4 Sun 2027-03-14 08:00:00 GMT\+1 2027-03-14 02:30 does not exist/ })).toBeVisible();
  await page.goto(`${node.url}/console/series?id=york&from=soon`);
  await expect(page.getByRole("alert")).toContainText('"soon" is not RFC 3339');

  await page.goto(`${node.url}/console/series?id=alone`);
  await expect(page.getByText("This message does not recur.")).toBeVisible();
  await page.goto(`${node.url}/console/series?id=nothing`);
  await expect(page.getByRole("alert")).toContainText("there is no message");
});

test("a reader sees a series, and no button that writes", async ({ guarded, page }) => {
  await guarded.call("POST", "/v1/messages", { scheduleId: "report", channel: "inbox:a", payload: 1, recurrence: daily("UTC") }, adminKey);
  await page.goto(`${guarded.url}/console/series?id=report`);
  await logIn(page, await reader(guarded));
  await expect(page.locator(".series .badge").first()).toHaveText("running");
  await expect(page.getByRole("button", { name: /Pause|Trigger|Cancel/ })).toHaveCount(0);
});
