import { type Page } from "@playwright/test";
import { type Node, accessible, act, adminKey, expect, fits, logIn, reader, soon, test } from "./harness";

const nobody = "http://127.0.0.1:1/hook";

/** channel is what the API says of a channel. */
const channel = async (node: Node, name: string) =>
  (await node.call("GET", "/v1/channels")).channels.find((c: any) => c.channel === name);

const row = (page: Page, name: string) => page.getByRole("row").filter({ has: page.getByRole("link", { name, exact: true }) });

const press = (page: Page, name: string) => page.getByRole("button", { name }).click();

test("Channels shows which brokers are down, and finds channels by name", async ({ start, page }) => {
  const node = await start("--rabbitmq", "amqp://127.0.0.1:1/", "--webhook-allow", "127.0.0.0/8");
  const hostile = `https://example.com/<script>alert(1)</script>\u202e${"x".repeat(1800)}`;
  await node.call("PATCH", "/v1/channels", { channel: hostile, maxInFlight: 3 });
  await node.call("PATCH", "/v1/channels", { channel: "inbox:quiet", paused: true });
  for (const name of ["rabbitmq:orders", nobody]) {
    await node.call("POST", "/v1/messages", { scheduleId: `to-${name.length}`, channel: name, executionTime: soon(0), payload: 1 });
    await node.until("/v1/channels", ({ channels }: any) => channels.some((c: any) => c.channel === name && c.state === "down" && c.lastError));
  }
  await page.goto(`${node.url}/console/channels`);
  for (const name of ["rabbitmq:orders", nobody]) {
    await expect(row(page, name)).toContainText("down");
    await expect(row(page, name)).toContainText((await channel(node, name)).lastError);
  }
  await expect(row(page, "inbox:quiet")).toContainText("paused");
  await expect(row(page, hostile.replace("\u202e", "⟨U+202E⟩"))).toContainText("3 in flight, per node");
  await accessible(page);
  await fits(page);

  await page.getByLabel("Name contains").fill("QUIET");
  await expect(page.getByRole("row")).toHaveCount(2);
  await expect(page).toHaveURL(/name=QUIET/);
  await page.reload();
  await expect(page.getByRole("row")).toHaveCount(2);
  await page.getByLabel("Name contains").fill("nowhere");
  await expect(page.getByText("No name contains that.")).toBeVisible();
  await page.getByLabel("Name contains").fill("");

  // By keyboard: into a channel, out again, and back to it in the history.
  await row(page, nobody).getByRole("link").focus();
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog", { name: nobody });
  await expect(dialog).toContainText(/messages? waits? until it is up again/);
  await expect(dialog.getByRole("link", { name: "Its messages" })).toHaveAttribute("href", `/console/messages?channel=${encodeURIComponent(nobody)}`);
  await expect(dialog.getByRole("link", { name: "Its failed messages" })).toHaveAttribute("href", `/console/failed?channel=${encodeURIComponent(nobody)}`);
  await page.keyboard.press("Escape");
  await expect(page).not.toHaveURL(/channel=/);
  await expect(row(page, nobody).getByRole("link")).toBeFocused();
  await page.keyboard.press("Enter");
  await dialog.getByRole("button", { name: "Close" }).click();
  await expect(page).not.toHaveURL(/channel=/);
  await page.goBack();
  await expect(dialog).toBeVisible();

  await page.goto(`${node.url}/console/channels?channel=${encodeURIComponent(hostile)}`);
  await expect(page.getByRole("dialog")).toContainText("<script>alert(1)</script>");
  await accessible(page);
  await fits(page);
});

test("Channels pauses, limits and redirects what the API then says", async ({ node, page }) => {
  const name = "inbox:orders";
  await page.goto(`${node.url}/console/channels`);
  await expect(page.getByText("No channel has messages, or settings.")).toBeVisible();
  await page.getByLabel("Another channel").fill(name);
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog", { name, exact: true });
  await expect(dialog).toContainText("Nothing is set for this channel");
  await expect(page).toHaveURL(/channel=inbox%3Aorders/);

  await press(page, "Pause the channel");
  await expect(page.getByRole("dialog", { name: "?" })).toContainText("They can be cancelled meanwhile.");
  await accessible(page);
  await fits(page);
  await page.getByRole("dialog", { name: "?" }).getByRole("button", { name: "Leave it" }).click();
  expect(await channel(node, name)).toBeUndefined();
  await act(page, "Pause the channel");
  await expect(dialog).toContainText("It is paused.");
  await expect(dialog.getByLabel("State")).toContainText("paused");
  expect(await channel(node, name)).toMatchObject({ paused: true, state: "paused" });
  await act(page, "Resume the channel");
  await expect(dialog).toContainText("It is resumed.");
  await expect(dialog).toContainText("Nothing is set for this channel");
  expect(await channel(node, name)).toBeUndefined();

  await page.getByLabel("Messages per second").fill("2.5");
  await page.getByLabel("Messages in flight").fill("7");
  await press(page, "Set the limits");
  await expect(dialog).toContainText("The limits are now: 2.5/s, 7 in flight, per node.");
  expect(await channel(node, name)).toMatchObject({ maxPerSecond: 2.5, maxInFlight: 7, paused: false });
  await page.getByLabel("Messages per second").fill("0");
  await page.getByLabel("Messages in flight").fill(""); // stays as it is
  await press(page, "Set the limits");
  await expect(dialog).toContainText("The limits are now: 7 in flight, per node.");
  expect(await channel(node, name)).toMatchObject({ maxPerSecond: 0, maxInFlight: 7 });

  const failure = page.getByLabel("Where messages that cannot be delivered go");
  await failure.fill("nonsense");
  await press(page, "Set the failure channel");
  await expect(dialog).toContainText(`"nonsense" is not of the form broker:target`);
  await failure.fill("inbox:failed");
  await press(page, "Set the failure channel");
  await expect(dialog).toContainText("The failure channel is now inbox:failed.");
  expect(await channel(node, name)).toMatchObject({ failureChannel: "inbox:failed" });
  await act(page, "Remove the failure channel");
  await expect(dialog).toContainText("No failure channel is set.");
  await expect(failure).toHaveValue("");
  expect((await channel(node, name)).failureChannel).toBeUndefined();

  await node.kill();
  await page.getByLabel("Messages in flight").fill("8");
  await press(page, "Set the limits");
  await expect(dialog).toContainText("it is not known whether this was done");
});

test("Channels asks and changes only what somebody saw and changed", async ({ start, page }) => {
  const node = await start("--webhook-allow", "127.0.0.1");
  const name = `${nobody}\u202eb`;
  const failure = "http://127.0.0.1:2/";
  const seen = `${nobody}⟨U+202E⟩b`;
  const other = (change: object) => node.call("PATCH", "/v1/channels", { channel: name, ...change });
  await other({ maxPerSecond: 1, maxInFlight: 2, failureChannel: `${failure}\u202e` });
  await page.goto(`${node.url}/console/channels?channel=${encodeURIComponent(name)}`);
  const dialog = page.getByRole("dialog", { name: seen, exact: true });

  // Another operator pauses it while the question is up: it does not turn into its opposite.
  await dialog.getByRole("button", { name: "Pause the channel" }).click();
  const question = page.getByRole("dialog", { name: `Pause ${seen}?` });
  await other({ paused: true });
  await expect(dialog.getByLabel("State")).toContainText("paused");
  await question.getByRole("button", { name: "Pause the channel" }).click();
  await expect(dialog).toContainText("It is paused.");
  expect(await channel(node, name)).toMatchObject({ paused: true });

  // What it says of a resumed channel is so at once, before it is read again.
  await node.call("POST", "/v1/messages", { scheduleId: "m", channel: name, executionTime: soon(0), payload: 1 });
  await expect(dialog.getByLabel("State")).toContainText(/messages? waits? until it is resumed/);
  await page.route("**/v1/channels*", (route) => (route.request().method() === "GET" ? undefined : route.continue()));
  await act(page, "Resume the channel");
  await expect(dialog).toContainText("It is resumed.");
  await expect(dialog.getByLabel("State")).not.toContainText(/paused|resumed/);
  await page.unrouteAll();

  await other({ maxInFlight: 50 });
  await page.getByLabel("Messages per second").fill("3");
  await page.getByRole("button", { name: "Set the limits" }).click();
  await expect(dialog).toContainText("The limits are now: 3/s, 50 in flight, per node.");
  await expect(page.getByLabel("Messages in flight")).toHaveValue("50");
  await page.getByRole("button", { name: "Set the limits" }).click();
  await expect(dialog).toContainText("No limit is changed yet.");
  await page.getByRole("button", { name: "Set the failure channel" }).click();
  await expect(dialog).toContainText(`The failure channel is now ${failure}⟨U+202E⟩.`);
});

test("Channels shows rates, what waits for a channel, and channels at rest with messages for later", async ({ node, page }) => {
  const send = async (name: string, n: number, at: string) => {
    for (let i = 0; i < n; i++) await node.call("POST", "/v1/messages", { scheduleId: `${name}-${at}-${i}`, channel: name, executionTime: at, payload: 1 });
  };
  await node.call("PATCH", "/v1/channels", { channel: "inbox:paused", paused: true });
  await send("inbox:busy", 3, soon(0));
  await send("inbox:paused", 3, soon(0));
  await send("inbox:paused", 2, soon(3600_000));
  await send("inbox:later", 4, soon(86_400_000));
  await page.goto(`${node.url}/console/channels`);
  const cells = (name: string) => row(page, name).getByRole("cell");
  await expect(cells("inbox:paused")).toHaveText(["inbox:paused", "paused", "0/s", "3", "5", /./, /./, /./, /./, /./]);
  await expect(cells("inbox:later")).toHaveText(["inbox:later", "at rest", "0/s", "0", "4", "–", "0", "0", "–", "–"]);
  await expect(cells("inbox:busy")).toHaveText(["inbox:busy", "up", /^[\d.]+\/s$/, "0", "0", "–", "0", "0", "–", "–"]);
  await accessible(page);
  await fits(page);

  await row(page, "inbox:paused").getByRole("link").click();
  const dialog = page.getByRole("dialog");
  await expect(dialog).toContainText("3 messages wait until it is resumed");
  await expect(dialog).toContainText("5 stored and not settled");
  await page.getByRole("button", { name: "Close" }).click();

  // Estimates are marked, and what is not known is not shown as nothing.
  await page.route("**/v1/channels*", async (route) => {
    const answer = await route.fetch();
    const list = await answer.json();
    for (const c of list.channels) {
      c.exact = false;
      if (c.channel === "inbox:busy") for (const name of ["deliveredPerSecond", "pending", "due"]) delete c[name];
      if (c.channel === "inbox:later") c.pending = 1_234_567;
    }
    await route.fulfill({ response: answer, json: list });
  });
  await expect(cells("inbox:later")).toContainText(["about 1,234,567"]);
  await expect(cells("inbox:busy")).toHaveText(["inbox:busy", "up", "–", "–", "–", "–", "0", "0", "–", "–"]);
  await row(page, "inbox:paused").getByRole("link").click();
  await expect(dialog).toContainText("about 3 messages wait until it is resumed");
  await accessible(page);
  await fits(page);
});

test("Channels reads a long list page by page", async ({ node, page }) => {
  const names = Array.from({ length: 7 }, (_, i) => `inbox:of-${i}`);
  for (const name of names) await node.call("PATCH", "/v1/channels", { channel: name, maxInFlight: 1 });
  await page.route("**/v1/channels*", (route) => {
    const url = new URL(route.request().url());
    url.searchParams.set("limit", "3");
    return route.continue({ url: url.href });
  });
  await page.goto(`${node.url}/console/channels`);
  for (const name of names) await expect(row(page, name)).toBeVisible();
  await expect(page.getByText("Loading more")).toBeHidden();
  await node.call("PATCH", "/v1/channels", { channel: names[6], paused: true });
  await expect(row(page, names[6]!)).toContainText("paused");
  await expect(page.getByRole("row")).toHaveCount(1 + names.length);
});

test("Channels lets a reader change nothing", async ({ guarded, page }) => {
  await guarded.call("PATCH", "/v1/channels", { channel: "inbox:orders", paused: true }, adminKey);
  await page.goto(`${guarded.url}/console/channels`);
  await logIn(page, await reader(guarded));
  await row(page, "inbox:orders").getByRole("link").click();
  const dialog = page.getByRole("dialog");
  await expect(dialog).toContainText("paused");
  await expect(dialog.getByRole("button")).toHaveText(["Close"]);
  await dialog.getByRole("button").click();
  await expect(page.getByLabel("Another channel")).toBeHidden();
});
