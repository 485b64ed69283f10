import { accessible, adminKey, expect, figure, figureValue, fits, soon, test } from "./harness";

test("Now shows what the API says, live", async ({ node, page }) => {
  await page.goto(`${node.url}/console`);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Now");
  await expect(figureValue(page, "Pending")).toHaveText("0");
  for (let i = 0; i < 7; i++) {
    await node.call("POST", "/v1/messages", { scheduleId: `m${i}`, channel: "inbox:a", executionTime: soon(i < 3 ? 0 : 3600), payload: i });
  }
  await expect(figureValue(page, "Pending")).toHaveText("4");
  await expect(figure(page, "Scheduled")).toContainText(/7 in the last \d+ s/);
  await expect(figure(page, "Delivered")).toContainText(/3 in the last \d+ s/);
  await accessible(page);
  await fits(page);

  // On a phone, a menu leads to the pages.
  await page.setViewportSize({ width: 375, height: 740 });
  const menu = page.getByRole("button", { name: "Menu" });
  const coming = page.getByRole("link", { name: "Coming" });
  await expect(menu).toHaveAttribute("aria-expanded", "false");
  await expect(coming).toBeHidden();
  await menu.click();
  await coming.click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Coming");
  await expect(coming).toBeHidden();
  await page.setViewportSize({ width: 1280, height: 800 });
  await expect(menu).toBeHidden();
  await page.getByRole("link", { name: "Now" }).click();
  await expect(figure(page, "Delivered")).toBeVisible();

  // What a page cannot draw leaves the others.
  await page.route("**/v1/stats", (route) => route.fulfill({ json: {} }));
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("This page could not be drawn");
  await page.getByRole("link", { name: "Messages", exact: true }).click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Messages");
  await page.unrouteAll();
  await page.getByRole("link", { name: "Now" }).click();
  await expect(figure(page, "Delivered")).toBeVisible();
  await page.getByRole("link", { name: "Messages that failed" }).click();
  await expect(page.getByRole("heading", { level: 1 })).toContainText("Failed");
});

test("Now says whose figures it shows", async ({ start, page }) => {
  const node = await start("--admin-key", adminKey, "--rabbitmq", "amqp://127.0.0.1:1/");
  const { key } = await node.call("POST", "/v1/keys", { tenant: "acme", scopes: ["ops:r"] }, adminKey);
  const logIn = async (secret: string) => {
    await page.getByLabel("API key").fill(secret);
    await page.getByRole("button", { name: "Log in" }).click();
  };
  const whose = page.locator("header.title p");
  await page.goto(`${node.url}/console`);
  await logIn(adminKey);
  await expect(whose).toContainText("in the whole cluster (other pages show the messages of one tenant, now default)");

  // A channel of another tenant is down: its name leads to it.
  await expect(figureValue(page, "Channels down")).toHaveText("0");
  const beta = await node.call("POST", "/v1/keys", { tenant: "beta", scopes: ["sched:w"] }, adminKey);
  await node.call("POST", "/v1/messages", { channel: "rabbitmq:orders", delay: "0s", payload: 1 }, beta.key);
  await expect(page.getByRole("listitem").filter({ hasText: "rabbitmq:orders" })).toContainText("of tenant beta");
  await expect(figureValue(page, "Channels down")).toHaveText("1");
  await accessible(page);
  await fits(page);
  await page.getByRole("button", { name: "rabbitmq:orders" }).click();
  await expect(page.getByText("You act for tenant beta")).toBeVisible();
  await expect(page.getByRole("dialog")).toContainText("rabbitmq:orders");
  await page.getByRole("button", { name: "Close" }).click();
  await page.getByRole("button", { name: "Back to my own" }).click();

  // One page after the other: a key that is not for the page where the operator was leads to its first one.
  await page.getByRole("link", { name: "Tenants and keys" }).click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Tenants and keys");
  await page.getByRole("button", { name: "Log out" }).click();
  await logIn(key);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Now");
  await expect(whose).toContainText("to the messages of tenant acme:");
  await expect(page.getByRole("link", { name: "Messages that failed" })).toHaveCount(0);
});
