import type { Page } from "@playwright/test";
import { type Node, accessible, expect, figureValue, fits, test } from "./harness";

const minute = 60_000;
const iso = (at: number) => new Date(at).toISOString();

/** later is a whole hour that is at least an hour ahead. */
const later = () => Math.ceil(Date.now() / (60 * minute) + 1) * 60 * minute;

/** due schedules so many messages that are due at one time, from several connections. */
async function due(node: Node, messages: { channel: string; at: number; count: number }[]) {
  const lines = messages.flatMap(({ channel, at, count }) =>
    Array<string>(count).fill(JSON.stringify({ channel, executionTime: iso(at), payload: 1 })));
  const most = 10_000;
  const bodies = Array.from({ length: Math.ceil(lines.length / most) }, (_, i) => lines.slice(i * most, (i + 1) * most));
  const connection = async () => {
    for (let body = bodies.pop(); body; body = bodies.pop()) {
      const headers = { "Content-Type": "application/x-ndjson" };
      const answer = await fetch(`${node.url}/v1/messages/batch`, { method: "POST", headers, body: body.join("\n") });
      const text = await answer.text();
      expect([answer.status, text.match(/"created":true/g)?.length], text.slice(0, 300)).toEqual([200, body.length]);
    }
  };
  await Promise.all([connection(), connection(), connection(), connection()]);
}

interface Slot { from: string; count: number; exact: boolean; channels?: { channel: string; count: number }[] }

const upcoming = async (node: Node, from: number, to: number, step: number, channel = "") =>
  (await node.call<{ slots: Slot[] }>("GET", `/v1/upcoming?from=${iso(from)}&to=${iso(to)}&step=${step}s${channel && `&channel=${channel}`}`)).slots;

const sum = (slots: { count: number }[]) => slots.reduce((n, slot) => n + slot.count, 0);

const count = (n: number) => n.toLocaleString("en");

const peak = (page: Page) => page.locator(".peak");
const chart = (page: Page) => page.getByRole("img", { name: "Messages due" });
const reading = (page: Page) => page.locator(".reading");
const colourOf = (page: Page, channel: string) =>
  page.locator(".chart .key", { hasText: channel }).locator("i").evaluate((swatch) => getComputedStyle(swatch).backgroundColor);

/** rows are what the table shows. */
async function rows(page: Page) {
  const cells = page.getByRole("region", { name: "Slots" }).locator("tbody tr:not(.filler)");
  return cells.evaluateAll((rows) => rows.map((row) => [row.querySelector("time")!.dateTime, row.children[1]!.textContent, row.children[2]!.textContent]));
}

const asRows = (slots: Slot[]) =>
  slots.filter((slot) => slot.count > 0).map((slot) => [slot.from, count(slot.count), slot.exact ? "exactly" : "estimate"]);

/** range is what the address asks for. */
function range(page: Page): [number, number] {
  const { searchParams } = new URL(page.url());
  return [Date.parse(searchParams.get("from")!), Date.parse(searchParams.get("to")!)];
}

/** painted is the colour of the chart in the middle of a slot of n, some pixels above the axis. */
function painted(page: Page, slot: number, n: number, above = 3) {
  return chart(page).evaluate((box, [slot, n, above]) => {
    const canvas = box.querySelector("canvas")!;
    const over = box.querySelector<HTMLElement>(".u-over")!;
    const x = over.offsetLeft + ((slot! + 0.5) / n!) * over.clientWidth;
    const y = over.offsetTop + over.clientHeight - above!;
    const [r, g, b, a] = canvas.getContext("2d")!.getImageData(x * devicePixelRatio, y * devicePixelRatio, 1, 1).data;
    return a === 0 ? "" : `rgb(${r}, ${g}, ${b})`;
  }, [slot, n, above]);
}

/** place is where a part of the chart is on the screen. Figures may be there before it is drawn. */
async function place(page: Page, part: number) {
  let box = await page.locator(".u-over").boundingBox();
  while (!box) box = await page.locator(".u-over").boundingBox(); // the test's time bounds it
  return { clientX: box.x + part * box.width, clientY: box.y + box.height / 2 };
}

test("Coming shows what is due when, and zooms by mouse, finger and keyboard", async ({ node, page }) => {
  const at = later();
  const end = at + 60 * minute;
  const many = Array.from({ length: 13 }, (_, i) => ({ channel: `inbox:c${i}`, at: at + 40 * minute, count: 1 }));
  await due(node, [
    { channel: "inbox:orders", at: at + 5 * minute, count: 1230 },
    { channel: "inbox:mails", at: at + 5 * minute + 7000, count: 6 },
    { channel: "inbox:mails", at: at + 20 * minute, count: 9 },
    ...many,
  ]);
  await page.goto(`${node.url}/console/coming?from=${iso(at)}&to=${iso(end)}`);
  await expect(peak(page)).toHaveText(/^The most is due from \d\d:05.*: 1,236 messages in 1 minute, of these 1,230 for inbox:orders\.$/);
  await expect(figureValue(page, "Due in this time")).toHaveText("1,258");
  await expect(figureValue(page, "Overdue")).toHaveText("0");
  const said = await upcoming(node, at, end, 60);
  expect(await rows(page)).toEqual(asRows(said));
  const orders = await colourOf(page, "inbox:orders");
  const mails = await colourOf(page, "inbox:mails");
  expect(orders).not.toEqual(mails);
  await expect.poll(() => painted(page, 5, 60)).toBe(orders);
  expect(await painted(page, 6, 60)).toBe("");
  expect(await painted(page, 20, 60, 2)).toBe(mails); // 9 beside 1,236
  expect(await painted(page, 6, 60, 2)).toBe("");

  // The bars' values, by keyboard.
  await chart(page).focus();
  for (const slot of said) {
    await page.keyboard.press("ArrowRight");
    await expect(reading(page).locator("b")).toHaveText(new RegExp(`, 1 minute: ${count(slot.count)}$`));
    const rest = slot.count - sum(slot.channels!);
    const values = [...slot.channels!.map((c) => c.channel + " " + count(c.count)), ...(rest > 0 ? [`others ${rest}`] : [])];
    expect((await reading(page).locator("div").allInnerTexts()).map((text) => text.replace(/\s+/g, " ")).sort()).toEqual(values.sort());
  }
  await page.keyboard.press("Home");
  for (let i = 0; i < 5; i++) await page.keyboard.press("ArrowRight");
  await expect(reading(page)).toContainText("1,236");
  await page.keyboard.press("Enter");
  await expect.poll(() => range(page)).toEqual([at + 5 * minute, at + 6 * minute]);
  await expect(peak(page)).toContainText("1,230 messages in 1 second, all for inbox:orders");
  expect(await rows(page)).toEqual(asRows(await upcoming(node, at + 5 * minute, at + 6 * minute, 1)));
  expect(await colourOf(page, "inbox:mails")).toBe(mails);
  const second = { from: iso(at + 5 * minute + 7000), to: iso(at + 5 * minute + 8000) };
  const messages = new URL((await page.getByRole("region", { name: "Slots" }).getByRole("link").nth(1).getAttribute("href"))!, node.url);
  expect([messages.pathname, Object.fromEntries(messages.searchParams)]).toEqual(["/console/messages", { ...second, status: "PENDING" }]);

  // The buttons, and the way back.
  const press = (name: string) => page.getByRole("button", { name, exact: true }).press("Enter");
  await press("Later");
  await expect.poll(() => range(page)).toEqual([at + 5.5 * minute, at + 6.5 * minute]);
  await expect(peak(page)).toHaveText("Nothing is due in this time.");
  await press("Earlier");
  await press("Zoom out");
  await expect.poll(() => range(page)).toEqual([at + 4.5 * minute, at + 6.5 * minute]);
  await press("Zoom in");
  await expect.poll(() => range(page)).toEqual([at + 5 * minute, at + 6 * minute]);
  for (let i = 0; i < 5; i++) await page.goBack();
  await expect.poll(() => range(page)).toEqual([at, end]);
  await expect(figureValue(page, "Due in this time")).toHaveText("1,258");

  // A range that is drawn, with the mouse and with a finger.
  const [left, right] = [await place(page, 0.3), await place(page, 0.75)];
  await page.mouse.move(left.clientX, left.clientY);
  await page.mouse.down();
  await page.mouse.move(right.clientX, right.clientY, { steps: 5 });
  await page.mouse.up();
  await expect(figureValue(page, "Due in this time")).toHaveText("22");
  const [from, to] = range(page);
  expect(Math.abs(from - at - 18 * minute)).toBeLessThanOrEqual(minute);
  expect(Math.abs(to - at - 45 * minute)).toBeLessThanOrEqual(minute);
  await page.goBack();
  await expect(figureValue(page, "Due in this time")).toHaveText("1,258");
  const finger = async (from: number, to: number) => {
    const over = page.locator(".u-over");
    await over.dispatchEvent("pointerdown", { pointerType: "touch", ...(await place(page, from)) });
    await over.dispatchEvent("pointermove", { pointerType: "touch", ...(await place(page, to)) });
    await over.dispatchEvent("pointerup", { pointerType: "touch", ...(await place(page, to)) });
  };
  await finger(0.3, 0.31);
  expect(range(page)).toEqual([at, end]);
  await finger(0.6, 0.75);
  await expect(figureValue(page, "Due in this time")).toHaveText("13");
  await page.goBack();
});

test("Coming shows one channel, what is overdue, and what comes meanwhile", async ({ node, page }) => {
  const at = later();
  const day = at + 24 * 60 * minute;
  const long = "inbox:" + "x".repeat(64);
  await due(node, [
    { channel: "inbox:orders", at: at + 5 * minute, count: 30 },
    { channel: "inbox:mails", at: at + 6 * minute, count: 6 },
    { channel: "inbox:mails", at: at + 20 * minute, count: 9 },
    { channel: long, at: at + 50 * minute, count: 2 },
  ]);
  await page.goto(`${node.url}/console/coming?from=${iso(at)}&to=${iso(day)}`);
  await expect(figureValue(page, "Due in this time")).toHaveText("47");
  const mails = await colourOf(page, "inbox:mails");
  const channel = page.getByLabel("Channel");
  await expect(page.locator("datalist option")).toHaveCount(3);
  await channel.fill("inbox:mails");
  await channel.press("Enter");
  await expect(peak(page)).toHaveText(/: 15 messages in 30 minutes for inbox:mails\.$/);
  expect(new URL(page.url()).searchParams.get("channel")).toBe("inbox:mails");
  expect(await rows(page)).toEqual(asRows(await upcoming(node, at, day, 1800, "inbox:mails")));
  expect(await colourOf(page, "inbox:mails")).toBe(mails);
  await page.getByRole("region", { name: "Slots" }).getByRole("link").first().click();
  await expect.poll(() => range(page)).toEqual([at, at + 30 * minute]);
  await expect(peak(page)).toHaveText(/: 9 messages in 30 seconds for inbox:mails\.$/);
  await channel.fill("nowhere");
  await channel.press("Enter");
  await expect(page.getByRole("alert")).toContainText("nowhere");
  await channel.fill("inbox:mails");
  await channel.press("Enter");
  await expect(peak(page)).toHaveText(/ for inbox:mails\.$/);
  expect(await colourOf(page, "inbox:mails")).toBe(mails); // a fault does not change it
  await page.getByRole("button", { name: "All channels" }).click();
  await expect(figureValue(page, "Due in this time")).toHaveText("45");
  await expect(page.getByRole("alert")).toHaveCount(0);

  // A preset moves on with time, and what comes meanwhile appears.
  await page.getByRole("button", { name: "15 minutes" }).click();
  await expect(page).toHaveURL(/for=15m/);
  await expect(peak(page)).toHaveText("Nothing is due in this time.");
  await due(node, [{ channel: "inbox:orders", at: Date.now() + 10 * minute, count: 3 }]);
  await expect(figureValue(page, "Due in this time")).toHaveText("3");

  // By a clock that is ahead, much is overdue.
  await page.clock.setFixedTime(at + 15 * minute);
  await page.goto(`${node.url}/console/coming?from=${iso(at)}&to=${iso(at + 60 * minute)}`);
  await expect(figureValue(page, "Overdue")).toHaveText("39");
  await expect(peak(page)).toHaveText(/^The most was due from \d\d:05: 30 messages in 1 minute, all for inbox:orders\.$/);
  await expect(page.getByText("The line marks now")).toBeVisible();
  await chart(page).focus();
  await page.keyboard.press("End");
  await expect(reading(page)).toContainText("1 minute: 0");
  await accessible(page);
  await fits(page);
});

test("Now and Coming show a million pending messages", async ({ plain: node, page, context }) => {
  test.setTimeout(480_000);
  const at = later();
  const total = 1_000_000;
  const spread = Array.from({ length: 600 }, (_, i) => ({ channel: `inbox:c${i % 7}`, at: at + i * minute, count: 1500 }));
  const began = Date.now();
  await due(node, [{ channel: "inbox:peak", at: at + 90 * minute + 1000, count: total - 600 * 1500 }, ...spread]);
  console.log(`a million messages were scheduled in ${Date.now() - began} ms`);

  const asked = new Map<Page, number[]>();
  const coming = await context.newPage();
  for (const each of [page, coming]) {
    const times: number[] = [];
    asked.set(each, times);
    each.on("request", (request) => request.url().includes("/v1/") && times.push(performance.now()));
  }
  await page.goto(`${node.url}/console/now`);
  await expect(figureValue(page, "Pending")).toHaveText(count(total));

  const end = at + 600 * minute;
  await coming.goto(`${node.url}/console/coming?from=${iso(at)}&to=${iso(end)}`);
  const said = await upcoming(node, at, end, 600);
  await expect(figureValue(coming, "Due in this time")).toHaveText(`about ${count(sum(said))}`);
  expect(Math.abs(sum(said) - total)).toBeLessThan(total / 20);
  await expect(peak(coming)).toHaveText(new RegExp(`: about ${count(Math.max(...said.map((slot) => slot.count)))} messages in 10 minutes, of these [\\d,]+ for inbox:peak\\.$`));
  expect(await rows(coming)).toEqual(asRows(said).slice(0, (await rows(coming)).length));

  // Each page goes on to ask, and none of them more than once a second after its first look.
  for (const [each, times] of asked) {
    const first = times.length;
    await each.bringToFront();
    await expect.poll(() => times.length, { timeout: 30_000 }).toBeGreaterThan(first + 2);
    const seconds = (times.at(-1)! - times[first]!) / 1000;
    expect(times.length - 1 - first).toBeLessThanOrEqual(seconds + 1);
  }

  // Closer, there is little enough to count.
  await coming.goto(`${node.url}/console/coming?from=${iso(at)}&to=${iso(at + 10 * minute)}`);
  await expect(figureValue(coming, "Due in this time")).toHaveText(count(15_000));
  await accessible(coming);
});
