import type { Page } from "@playwright/test";
import { type Node, accessible, adminKey, expect, fits, logIn, reader, soon } from "./harness";
import { type Receiver, flags, test } from "./receiver";

const wild = "<script>alert(1)</script>\u202e" + "x".repeat(120);

/** fail makes messages that fail: of /orders three for one reason, two for another, one for a wild one; of /gone two. */
async function fail(node: Node, receiver: Receiver, key?: string) {
  const reasons: [string, string, number][] = [
    ["/orders", "no such customer", 3], ["/orders", "too late", 2], ["/orders", wild, 1], ["/gone", "moved away", 2],
  ];
  const messages = reasons.flatMap(([path, reason, n], r) =>
    Array.from({ length: n }, (_, i) => ({ scheduleId: `r${r}-${i}`, channel: receiver.url(path), executionTime: soon(0), payload: { reason } })));
  await node.call("POST", "/v1/messages/batch", messages, key);
  await failed(node, messages.length, key);
}

/** failed waits until so many messages have failed, and returns their ids. */
async function failed(node: Node, n: number, key?: string): Promise<string[]> {
  const { messages } = await node.until<any>("/v1/messages?status=DELIVERY_FAILED", (list) => list.messages.length === n, key);
  return messages.map((m: any) => m.scheduleId).sort();
}

const channelOf = (page: Page, path: string) => page.locator(".failed", { has: page.getByRole("heading", { name: path }) });
const progress = (page: Page) => page.getByRole("region", { name: "Progress" });

test("a group is redriven, or purged, and only that", async ({ start, receiver, page }) => {
  const node = await start(...flags);
  await fail(node, receiver);
  await page.goto(`${node.url}/console/failed`);
  const orders = channelOf(page, "/orders");
  const gone = channelOf(page, "/gone");
  await expect(page.locator(".failed").first()).toContainText("6 messages with 3 errors");
  await expect(orders.getByRole("listitem").first()).toContainText("400 Bad Request: no such customer");
  await expect(orders.getByRole("listitem").first()).toContainText("3 messages");
  await expect(orders.getByRole("listitem").first().getByRole("link")).toHaveAttribute("href", /^\/console\/message\?id=r0-\d$/);
  await expect(orders).toContainText("<script>alert(1)</script>⟨U+202E⟩xxx");
  await expect(gone).toContainText("410 Gone: moved away");
  await fits(page);

  // by keyboard: a group
  receiver.status = 200;
  const redrive = orders.getByRole("listitem").first().getByRole("button", { name: "Redrive this group" });
  await redrive.focus();
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog", { name: `Redrive 3 messages of ${receiver.url("/orders")}?` });
  await expect(dialog).toContainText("can arrive a second time");
  await accessible(page);
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await expect(progress(page)).toContainText("The job is done: 3 redriven, 0 could not be redriven.");
  await expect(orders).toContainText("3 messages with 2 errors");
  await expect.poll(() => receiver.got.toSorted()).toEqual(["r0-0", "r0-1", "r0-2"]);
  await node.until<any>("/v1/messages?status=DELIVERED", (list) => list.messages.length === 3);
  expect(await failed(node, 5)).toEqual(["r1-0", "r1-1", "r2-0", "r3-0", "r3-1"]);
  await accessible(page);

  // the job is in the address, until it is closed
  await page.reload();
  await expect(progress(page)).toContainText("no such customer");
  await expect(progress(page)).toContainText("The job is done: 3 redriven");
  await progress(page).getByRole("button", { name: "Close" }).click();
  await expect(page).not.toHaveURL(/job=/);

  await gone.getByRole("button", { name: "Purge this group" }).click();
  await expect(page.getByRole("dialog")).toContainText("What fails with the same error before the job begins is purged, too.");
  await page.getByRole("dialog", { name: `Purge 2 messages of ${receiver.url("/gone")}?` }).getByRole("button", { name: "Purge this group" }).click();
  await expect(progress(page)).toContainText("The job is done: 2 purged, 0 could not be purged.");
  await expect(gone).toHaveCount(0);
  expect(await failed(node, 3)).toEqual(["r1-0", "r1-1", "r2-0"]);
  const ids = (await node.call("GET", "/v1/messages?idPrefix=r3")).messages;
  expect(ids).toEqual([]);

  await orders.getByRole("button", { name: "Redrive all of this channel" }).click();
  await page.getByRole("dialog", { name: "Redrive 3 messages" }).getByRole("button", { name: "Redrive all of this channel" }).click();
  await expect(page.getByText("Nothing has failed.")).toBeVisible();
  await expect.poll(() => receiver.got.length).toBe(6);
});

test("a job's progress is seen while it runs, also after a reload; filters are in the address", async ({ start, receiver, page }) => {
  const node = await start(...flags);
  await fail(node, receiver);
  await node.call("POST", "/v1/messages", { scheduleId: "later", channel: "inbox:a", executionTime: soon(3600), payload: 1 });
  await node.call("PATCH", "/v1/tenants/default", { pendingMax: 1 }); // so a redrive waits
  receiver.status = 200;

  await page.goto(`${node.url}/console/failed`);
  await page.getByLabel("Channel").fill(receiver.url("/gone"));
  await page.keyboard.press("Enter");
  await expect(page.locator(".failed")).toHaveCount(1);
  await expect(channelOf(page, "/gone")).toContainText("2 messages");
  await page.getByLabel("Due from").fill("2027-01-31T09:30:00");
  await expect(page.getByText("Nothing that failed passes these filters.")).toBeVisible();
  await expect(page).toHaveURL(/from=2027-01-31T08%3A30%3A00.000Z/);
  await page.goBack();
  await channelOf(page, "/gone").getByRole("button", { name: "Redrive this group" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Redrive this group" }).click();
  await expect(progress(page)).toContainText("The job is running: 0 redriven");
  await expect(progress(page)).toContainText("It waits: ");
  await expect(progress(page).getByRole("progressbar")).toHaveAttribute("max", "2");
  await accessible(page);
  await fits(page);

  await page.reload();
  await expect(progress(page)).toContainText("The job is running: 0 redriven");
  expect(receiver.got).toEqual([]);
  await node.call("PATCH", "/v1/tenants/default", { pendingMax: 0 });
  await expect(progress(page)).toContainText("The job is done: 2 redriven");
  await expect(page.getByText("Nothing that failed passes these filters.")).toBeVisible();
  await expect.poll(() => receiver.got.toSorted()).toEqual(["r3-0", "r3-1"]);
});

test("what failed without a reason is redriven or purged with its whole channel", async ({ node, page }) => {
  const group = { channel: "inbox:a", lastError: "", count: 2, exact: true, lastFailedAt: soon(-9), example: "m" };
  await page.route("**/v1/failures*", (route) => route.fulfill({ json: { groups: [group], exact: true } }));
  let sent: any;
  await page.route("**/v1/messages/purge", (route) => {
    sent = route.request().postDataJSON();
    return route.continue();
  });
  await page.goto(`${node.url}/console/failed`);
  const channel = channelOf(page, "inbox:a");
  await expect(channel).toContainText("No error was given.");
  await expect(channel.getByRole("button")).toHaveText(["Redrive all of this channel", "Purge all of this channel"]);
  await channel.getByRole("button", { name: "Purge all" }).click();
  await expect(page.getByRole("dialog")).toContainText("What fails in this channel before the job begins is purged, too.");
  await page.getByRole("dialog").getByRole("button", { name: "Purge all" }).click();
  await expect(progress(page)).toContainText("The job is done");
  expect(sent).toEqual({ filter: { channel: "inbox:a" } });
});

test("a reader sees what failed, and no button that writes", async ({ start, receiver, page }) => {
  const node = await start(...flags, "--admin-key", adminKey);
  await fail(node, receiver, adminKey);
  await page.goto(`${node.url}/console/failed`);
  await logIn(page, await reader(node));
  await expect(channelOf(page, "/orders")).toContainText("6 messages with 3 errors");
  await expect(page.getByRole("button", { name: /Redrive|Purge/ })).toHaveCount(0);
});
