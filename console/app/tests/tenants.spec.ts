import type { Page } from "@playwright/test";
import { accessible, adminKey, expect, figureValue, fits, soon, test } from "./harness";

async function open(page: Page, url: string) {
  await page.addInitScript((key) => sessionStorage.setItem("postdate.credential", key), adminKey);
  await page.goto(url);
  await expect(page.getByRole("region", { name: "Tenants" }).or(page.locator(".empty").first())).toBeVisible();
}

const row = (page: Page, table: string, text: string) => page.getByRole("region", { name: table }).getByRole("row", { name: text });

test("limits of tenants are shown, changed, and given back to the defaults", async ({ start, page }) => {
  test.slow(); // on a busy machine
  const node = await start("--admin-key", adminKey, "--tenant-pending-max", "500");
  const tenant = async (name: string) => (await node.call("GET", "/v1/tenants", undefined, adminKey)).tenants.find((t: any) => t.tenant === name);
  for (const name of ["acme", "beta"]) {
    const { key } = await node.call("POST", "/v1/keys", { tenant: name, scopes: ["sched:w"] }, adminKey);
    await node.call("POST", "/v1/messages", { scheduleId: "m", channel: "inbox:a", executionTime: soon(3600), payload: name.repeat(100) }, key);
  }
  await open(page, `${node.url}/console/tenants`);
  await expect(row(page, "Tenants", "acme")).toContainText("1 of 500");
  await accessible(page);
  await fits(page);

  // By keyboard alone.
  const change = page.getByRole("button", { name: "Change limits of acme" });
  await change.focus();
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog", { name: "Limits of tenant acme" });
  await dialog.getByLabel("Pending messages").first().selectOption({ label: "At most:" });
  await dialog.getByLabel("Pending messages of this tenant").fill("-1");
  await page.keyboard.press("Enter");
  await expect(dialog).toBeVisible();
  await dialog.getByLabel("Pending messages of this tenant").fill("7");
  await dialog.getByLabel("Messages per second").first().selectOption({ label: "At most:" });
  await dialog.getByLabel("Messages per second of this tenant").fill("0.5");
  await dialog.getByLabel("Weight").first().selectOption({ label: "This weight:" });
  await dialog.getByLabel("Weight of this tenant").fill("3");
  await accessible(page);
  await fits(page);
  await dialog.getByLabel("Weight of this tenant").press("Enter");
  await expect(page.getByText("The limits of tenant acme are changed.")).toBeVisible();
  await expect(change).toBeFocused();
  expect(await tenant("acme")).toMatchObject({ pendingMax: 7, messagesPerSecond: 0.5, weight: 3, set: ["messagesPerSecond", "pendingMax", "weight"] });
  await expect(row(page, "Tenants", "acme")).toContainText("1 of 7 set");

  // No limit, and the default again.
  await change.click();
  await dialog.getByLabel("Pending messages").first().selectOption({ label: "No limit" });
  await dialog.getByLabel("Messages per second").first().selectOption({ label: "Default" });
  await dialog.getByRole("button", { name: "Change the limits" }).click();
  await expect(row(page, "Tenants", "acme")).toContainText("no limit set");
  expect(await tenant("acme")).toMatchObject({ pendingMax: 0, messagesPerSecond: 0, weight: 3, set: ["pendingMax", "weight"] });

  // What the API refuses is said, and nothing is lost.
  await change.click();
  await dialog.getByLabel("Requests per second").first().selectOption({ label: "At most:" });
  await dialog.getByLabel("Requests per second of this tenant").fill("0.0000001");
  await dialog.getByRole("button", { name: "Change the limits" }).click();
  await expect(dialog.getByRole("alert")).toContainText("requestsPerSecond");
  await expect(dialog.getByLabel("Requests per second of this tenant")).toHaveValue("0.0000001");
  await page.keyboard.press("Escape");
  await expect(dialog).toHaveCount(0);

  // A tenant that is not there yet.
  await page.getByRole("button", { name: "Set limits of another tenant" }).click();
  await page.getByLabel("Tenant", { exact: true }).fill("gamma");
  await page.getByRole("dialog").getByLabel("Channels").first().selectOption({ label: "At most:" });
  await page.getByLabel("Channels of this tenant").fill("2");
  await page.getByLabel("Channels of this tenant").press("Enter");
  await expect(row(page, "Tenants", "gamma")).toContainText("of 2 set");
  expect(await tenant("gamma")).toMatchObject({ channelsMax: 2, set: ["channelsMax"] });

  // Sorted, and only some: in the address.
  const names = page.getByRole("region", { name: "Tenants" }).locator("tbody tr td:first-child");
  await page.getByRole("region", { name: "Tenants" }).getByRole("button", { name: "Pending" }).click();
  await expect(names.last()).toHaveText("gamma");
  await page.getByLabel("Tenant contains").fill("ET");
  await expect(names).toHaveText(["beta"]);
  await expect(page.getByRole("region", { name: "Keys" }).locator("tbody tr")).toHaveCount(1);
  expect(page.url()).toBe(`${node.url}/console/tenants?tenant=ET`);
  await page.reload();
  await expect(names).toHaveText(["beta"]);
});

test("an administrator acts for another tenant, and no longer", async ({ guarded: node, page }) => {
  for (const name of ["acme", "beta", "gamma"]) {
    const { key } = await node.call("POST", "/v1/keys", { tenant: name, scopes: ["sched:w"] }, adminKey);
    if (name === "beta") await node.call("POST", "/v1/messages", { scheduleId: "m", channel: "inbox:a", executionTime: soon(3600), payload: 1 }, key);
  }
  await open(page, `${node.url}/console/tenants`);
  await page.getByRole("button", { name: "Act for beta" }).click();
  await expect(page.getByText("You act for tenant beta")).toBeVisible();
  const asked = page.waitForRequest((request) => request.url().endsWith("/v1/stats"));
  await page.getByRole("link", { name: "Now" }).click();
  expect((await asked).headers()["postdate-tenant"]).toBe("beta");
  await expect(figureValue(page, "Pending")).toHaveText("1");
  await page.getByRole("button", { name: "Back to my own" }).click();
  await expect(page.getByText("You act for tenant")).toHaveCount(0);
  const act = page.getByLabel("Act for tenant");
  await act.focus();
  await expect(act.getByRole("option")).toHaveText(["default (my own)", "acme", "beta", "gamma", "Another …"]);
  await act.selectOption("acme");
  await expect(page.getByText("You act for tenant acme")).toBeVisible();
  await act.selectOption({ label: "Another …" });
  await page.getByLabel("Tenant", { exact: true }).fill("no such name");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("dialog")).toBeVisible();
  await page.getByLabel("Tenant", { exact: true }).fill("delta");
  await page.keyboard.press("Enter");
  await expect(page.getByText("You act for tenant delta")).toBeVisible();
});

test("a key is created, shown once, used and revoked", async ({ guarded: node, page, context }) => {
  test.slow(); // on a busy machine
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await node.call("POST", "/v1/keys", { tenant: "beta", scopes: ["ops:r"], expires: "1s" }, adminKey);
  await open(page, `${node.url}/console/tenants`);
  const keys = async () => (await node.call("GET", "/v1/keys", undefined, adminKey)).keys as any[];
  await page.getByRole("button", { name: "Create a key" }).click();
  const dialog = page.getByRole("dialog", { name: "Create a key" });
  await dialog.getByRole("button", { name: "Create the key" }).click();
  await expect(dialog.getByRole("alert")).toContainText("name what the key is for");
  await dialog.getByLabel("Tenant", { exact: true }).fill("acme");
  await dialog.getByLabel("sched:r").check();
  await dialog.getByLabel("sched:w").check();
  await dialog.getByLabel("Channels that it may use").fill("rabit:x");
  await dialog.getByRole("button", { name: "Create the key" }).click();
  await expect(dialog.getByRole("alert")).toContainText("rabit:x");
  await dialog.getByLabel("Channels that it may use").fill("inbox:a*\n\n inbox:b ");
  await dialog.getByLabel("Expires").selectOption({ label: "After …" });
  await dialog.getByLabel("Expires after").fill("12h");
  await accessible(page);
  await fits(page);
  expect(await keys()).toHaveLength(1);
  await dialog.getByLabel("Expires after").press("Enter");

  const shown = page.getByRole("dialog", { name: "This is the key" });
  const secret = await shown.getByLabel("Key of tenant acme").inputValue();
  await accessible(page);
  await fits(page);
  await shown.getByRole("button", { name: "Copy the key" }).click();
  await expect(shown.getByText("Copied.")).toBeVisible();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(secret);
  await shown.getByRole("button", { name: "I have kept it" }).click();
  await expect(page.getByRole("button", { name: "Create a key" })).toBeFocused();
  const everything = await page.evaluate(() => JSON.stringify([{ ...sessionStorage }, { ...localStorage }, document.cookie, location.href, history.state]) + document.documentElement.outerHTML);
  expect(everything).not.toContain(secret);

  const [, made] = await keys();
  expect(made).toMatchObject({ tenant: "acme", scopes: ["sched:r", "sched:w"], channels: ["inbox:a*", "inbox:b"] });
  expect(Math.round((Date.parse(made.expiresAt) - Date.parse(made.createdAt)) / 60_000)).toBe(12 * 60);
  await node.call("POST", "/v1/messages", { scheduleId: "m", channel: "inbox:b", executionTime: soon(3600), payload: 1 }, secret);
  await expect(row(page, "Keys", made.id)).toContainText("inbox:a*, inbox:b");
  await expect(row(page, "Keys", "beta")).toContainText("expired");

  await page.getByRole("button", { name: `Revoke key ${made.id}` }).click();
  await expect(page.getByRole("dialog")).toContainText("It is a key of tenant acme");
  await page.getByRole("dialog").getByRole("button", { name: "Leave it" }).click();
  expect(await keys()).toHaveLength(2);
  await page.getByRole("button", { name: `Revoke key ${made.id}` }).click();
  // While it is revoked nothing closes the dialog, or nobody would learn what came of it.
  let go = () => {};
  await page.route(`**/v1/keys/${made.id}`, (route) => new Promise<void>((done) => (go = () => done(route.continue()))));
  await page.getByRole("button", { name: "Revoke the key" }).click();
  await expect(page.getByRole("dialog").getByRole("button", { name: "Leave it" })).toBeDisabled();
  for (let i = 0; i < 3; i++) await page.keyboard.press("Escape");
  await expect(page.getByRole("dialog")).toBeVisible();
  go();
  await expect(page.getByText(`Key ${made.id} is revoked.`)).toBeVisible();
  await expect(row(page, "Keys", made.id)).toHaveCount(0);
  await expect(node.call("GET", "/v1/messages/m", undefined, secret)).rejects.toThrow("401");

  // Without an answer nobody knows, and the page says so.
  await page.route("**/v1/keys", async (route) => {
    if (route.request().method() !== "POST") return route.fallback();
    await route.fetch();
    await route.abort();
  });
  await page.getByRole("button", { name: "Create a key" }).click();
  await dialog.getByLabel("ops:r").check();
  await dialog.getByRole("button", { name: "Create the key" }).click();
  await expect(dialog.getByRole("alert")).toContainText("it is not known whether this was done");
  await page.keyboard.press("Escape");
  await expect(row(page, "Keys", "default")).toContainText("ops:r");
});

test("a node that asks nobody has limits and no keys", async ({ node, page }) => {
  await page.goto(`${node.url}/console/tenants`);
  await expect(page.getByText("This node asks nobody for a key")).toBeVisible();
  await expect(page.getByRole("button", { name: "Create a key" })).toHaveCount(0);
  await page.getByRole("button", { name: "Set limits of another tenant" }).click();
  await page.getByLabel("Tenant", { exact: true }).fill("default");
  await page.getByRole("dialog").getByLabel("Pending bytes").first().selectOption({ label: "At most:" });
  await page.getByLabel("Pending bytes of this tenant").fill("1048576");
  await page.getByLabel("Pending bytes of this tenant").press("Enter");
  await expect(row(page, "Tenants", "default")).toContainText("of 1 MiB set");
  await expect(page.getByRole("button", { name: /^Act for/ })).toHaveCount(0);
});
