import type { Page } from "@playwright/test";
import { type Node, accessible, adminKey, expect, fits, logIn, test } from "./harness";
import { Issuer, audience, clientId } from "./issuer";

const make = (node: Node, wish: object) => node.call<{ id: string; key: string }>("POST", "/v1/keys", wish, adminKey);

/** stored is all that the page keeps in the browser. */
const stored = (page: Page) => page.evaluate(() => JSON.stringify([{ ...sessionStorage }, { ...localStorage }, document.cookie, location.href, history.state]));

test("a key logs in, and the API says why another one does not", async ({ guarded, page }) => {
  await page.goto(`${guarded.url}/console/tenants?tenant=a`);
  await logIn(page, "pd_wrong");
  await expect(page.getByRole("alert")).toHaveText("nobody has this key: it is mistyped, or it was revoked");
  expect(await stored(page)).not.toContain("pd_wrong");
  await accessible(page);
  await fits(page);

  // The page that was asked for comes after the login, and stays when the page is loaded again.
  await page.getByLabel("API key").fill(` ${adminKey} `);
  await page.getByLabel("API key").press("Enter");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Tenants and keys");
  expect(page.url()).toBe(`${guarded.url}/console/tenants?tenant=a`);
  await expect(page.locator(".who")).toContainText("The operator's key");
  await expect(page.locator(".who")).toContainText("Expiresnever");
  const kept = JSON.parse(await stored(page));
  expect(kept[0]).toEqual({ "postdate.credential": adminKey });
  expect(JSON.stringify(kept.slice(1))).not.toContain(adminKey);
  await page.reload();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Tenants and keys");

  await page.getByRole("button", { name: "Log out" }).click();
  await expect(page.getByLabel("API key")).toBeVisible();
  await expect(page.getByRole("alert")).toHaveCount(0);
  expect(await stored(page)).not.toContain(adminKey);
  await page.reload();
  await expect(page.getByLabel("API key")).toBeVisible();
});

test("a reader sees the pages that its key is for, until the key is revoked or ends", async ({ guarded, page }) => {
  const reader = await make(guarded, { tenant: "acme", scopes: ["sched:r", "ops:r"], channels: ["inbox:a*"] });
  await page.goto(`${guarded.url}/console`);
  await logIn(page, reader.key);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Now");
  const who = page.locator(".who");
  await expect(who).toContainText(`Key ${reader.id}`);
  await expect(who).toContainText("Tenantacme");
  await expect(who).toContainText("sched:r, ops:r");
  await expect(who).toContainText("inbox:a*");
  await expect(page.getByRole("link", { name: "Tenants and keys" })).toHaveCount(0);
  await expect(page.getByLabel("Act for tenant")).toHaveCount(0);
  await page.goto(`${guarded.url}/console/nothing`);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("There is no such page");
  await page.goto(`${guarded.url}/console/tenants`);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Now");

  await expect(page.getByText("Scheduled", { exact: true })).toBeVisible();
  await guarded.call("DELETE", `/v1/keys/${reader.id}`, undefined, adminKey);
  await expect(page.getByRole("alert")).toHaveText("nobody has this key: it is mistyped, or it was revoked");
  expect(await stored(page)).not.toContain(reader.key);

  const short = await make(guarded, { tenant: "acme", scopes: ["ops:r"], expires: "4s" });
  await logIn(page, short.key);
  await expect(who).toContainText(`Key ${short.id}`);
  await expect(page.getByRole("alert")).toHaveText(`the key ${short.id} has expired: ask an administrator for another one`);
  expect(await stored(page)).not.toContain(short.key);

  const none = await make(guarded, { tenant: "acme", scopes: ["channels:w"] });
  await page.goto(`${guarded.url}/console/`);
  await logIn(page, none.key);
  await expect(page.getByText("This key is for no page of the console")).toBeVisible();
});

test("a refusal that comes late, for a call of an earlier session, does not end the session of now", async ({ guarded, page }) => {
  const admin = await make(guarded, { tenant: "acme", scopes: ["admin", "ops:r"] });
  let go: (() => void) | undefined;
  await page.route("**/v1/tenants", async (route) => {
    await new Promise<void>((done) => (go = done));
    await route.continue();
  });
  await page.goto(`${guarded.url}/console/now`);
  await logIn(page, admin.key);
  await page.getByLabel("Act for tenant").focus(); // reads the tenants
  await expect.poll(() => go !== undefined).toBe(true);
  await page.getByRole("button", { name: "Log out" }).click();
  await guarded.call("DELETE", `/v1/keys/${admin.id}`, undefined, adminKey);
  await logIn(page, adminKey);
  await expect(page.locator(".who")).toContainText("The operator's key");
  const late = page.waitForResponse("**/v1/tenants");
  go!();
  expect((await late).status()).toBe(401);
  await page.waitForResponse("**/v1/stats", { timeout: 30_000 }); // the page goes on
  await expect(page.locator(".who")).toContainText("The operator's key");
  expect(await stored(page)).toContain(adminKey);
});

test("a node that asks nobody needs no login, and one that does not answer is tried again", async ({ node, page }) => {
  await page.route("**/console/config.json", (route) => route.abort());
  await page.goto(`${node.url}/console/now`);
  await expect(page.getByRole("alert")).toHaveText("This node does not answer. The console tries again by itself.");
  await accessible(page);
  await page.unroute("**/console/config.json");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Now");
  await expect(page.getByRole("button", { name: "Log out" })).toHaveCount(0);
});

test.describe("at an issuer", () => {
  let issuer: Issuer;
  let node: Node;
  test.beforeEach(async ({ start }) => {
    issuer = await Issuer.start();
    node = await start("--admin-key", adminKey, "--oidc-issuer", issuer.url, "--oidc-audience", audience, "--oidc-client-id", clientId);
  });
  test.afterEach(() => issuer.end());

  const toIssuer = async (page: Page) => {
    await page.getByRole("button", { name: `Log in at ${new URL(issuer.url).host}` }).click();
    await expect(page.getByRole("heading", { name: "Log in as alice?" })).toBeVisible();
  };

  test("a login leads to the page that was asked for, and is renewed until it is ended there", async ({ page }) => {
    await page.goto(`${node.url}/console/now?x=1`);
    await accessible(page);
    await fits(page);
    await toIssuer(page);
    issuer.lasts = 6;
    await page.getByRole("link", { name: "Yes" }).click();
    await expect(page.getByRole("heading", { level: 1 })).toHaveText("Now");
    expect(page.url()).toBe(`${node.url}/console/now?x=1`);
    await expect(page.locator(".who summary")).toHaveText("alice");
    await expect(page.locator(".who")).toContainText("Tenantacme");
    const token = await page.evaluate(() => sessionStorage.getItem("postdate.credential"));
    const me = await node.call("GET", "/v1/whoami", undefined, token!);
    expect(me).toMatchObject({ subject: "alice", tenant: "acme", scopes: ["sched:r", "ops:r"] });

    await expect.poll(() => issuer.given.refresh_token).toBeGreaterThan(0);
    await expect.poll(() => page.evaluate(() => sessionStorage.getItem("postdate.credential"))).not.toBe(token);
    await expect(page.locator(".who summary")).toHaveText("alice");
    expect(issuer.given.authorization_code).toBe(1);
    issuer.ended = true;
    await expect(page.getByRole("alert")).toHaveText(`${new URL(issuer.url).host} has ended the session: invalid_grant (it is used or has ended). Log in again.`);
    expect(Object.keys(JSON.parse(await stored(page))[0])).toEqual([]);
  });

  test("an error in place of what the node says of itself is no answer, before a login and on the way back", async ({ page }) => {
    const config = "**/console/config.json";
    const again = "This node does not answer. The console tries again by itself.";
    const errors = [{ status: 502, json: { keys: true } }, { json: { message: "wait" } }];
    let asked = 0;
    const fail = () => page.route(config, (route) => route.fulfill(errors[asked++ % errors.length]));
    await fail();
    await page.goto(`${node.url}/console/now`);
    await expect(page.getByRole("alert")).toHaveText(again);
    await expect.poll(() => asked).toBeGreaterThanOrEqual(errors.length);
    await expect(page.getByRole("alert")).toHaveText(again);
    await page.unroute(config);
    await toIssuer(page);
    await fail();
    await page.getByRole("link", { name: "Yes" }).click();
    await expect(page.getByRole("alert")).toHaveText(again);
    await page.unroute(config);
    await expect(page.locator(".who summary")).toHaveText("alice");
    await expect(page.getByText(/^Version/)).not.toHaveText("Version undefined");
  });

  test("a call that waits for a renewal goes to the tenant for which it was made, or nowhere", async ({ page }) => {
    const path = "/v1/messages/m";
    const message = { scheduleId: "m", channel: "inbox:a", delay: "2h", payload: 1 };
    const keys: string[] = [];
    for (const tenant of ["acme", "other"]) {
      const { key } = await make(node, { tenant, scopes: ["sched:r", "sched:w"] });
      await node.call("POST", "/v1/messages", message, key);
      keys.push(key);
    }
    issuer.claims = { tenant: "acme", scope: "admin sched:r sched:w ops:r" };
    await page.addInitScript(() => (AbortSignal.timeout = () => new AbortController().signal)); // it is this test that ends the wait
    await page.goto(`${node.url}/console/message?id=m`);
    await toIssuer(page);
    issuer.lasts = 8;
    await page.getByRole("link", { name: "Yes" }).click();
    await expect(page.getByText("PENDING")).toBeVisible();
    let renew: (() => void) | undefined;
    await page.route(`${issuer.url}/token`, async (route) => {
      await new Promise<void>((go) => (renew = go));
      await route.continue();
    });
    await expect.poll(() => renew !== undefined, { timeout: 10_000 }).toBe(true);
    const sent: string[] = [];
    page.on("request", (r) => r.url().includes(path) && sent.push(`${r.method()} ${r.headers()["postdate-tenant"]}`));
    await page.getByRole("button", { name: "Cancel the message" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel the message" }).click();
    await page.getByLabel("Act for tenant").selectOption("Another …");
    await page.getByRole("dialog").getByLabel("Tenant").fill("other");
    await page.getByRole("dialog").getByRole("button", { name: "Act for it" }).click();
    await expect(page.getByText("You act for tenant other")).toBeVisible();
    renew!();
    await expect.poll(() => sent).toContain("GET other");
    expect(sent.filter((s) => s.startsWith("DELETE"))).toEqual([]);
    for (const key of keys) expect((await node.call("GET", path, undefined, key)).status).toBe("PENDING");
  });

  test("an issuer that hangs does not stop the console while its token is good", async ({ page }) => {
    await page.goto(`${node.url}/console/now`);
    await toIssuer(page);
    await page.getByRole("link", { name: "Yes" }).click();
    await expect(page.getByText("Scheduled", { exact: true })).toBeVisible();
    let asked = 0;
    await page.route(`${issuer.url}/**`, () => void asked++); // and no answer
    await page.evaluate(() => {
      const renewal = JSON.parse(sessionStorage.getItem("postdate.renewal")!);
      sessionStorage.setItem("postdate.renewal", JSON.stringify({ ...renewal, at: 0 }));
    });
    await page.reload();
    await expect(page.getByText("Scheduled", { exact: true })).toBeVisible({ timeout: 20_000 });
    expect(asked).toBeGreaterThan(0);
    await page.getByRole("button", { name: "Log out" }).click();
    await page.getByRole("button", { name: /^Log in at/ }).click();
    await expect(page.getByRole("alert")).toContainText("did not answer within 5 seconds", { timeout: 20_000 });
  });

  test("what goes wrong is said in words, and leaves nobody logged in", async ({ page }) => {
    const host = new URL(issuer.url).host;
    await page.goto(`${node.url}/console/now`);
    await toIssuer(page);
    await page.getByRole("link", { name: "No" }).click();
    await expect(page.getByRole("alert")).toHaveText(`${host} refused the login: access_denied (alice said <b>no</b>).`);
    expect(page.url()).toBe(`${node.url}/console/now`);

    issuer.claims = { ...issuer.claims, aud: "somebody-else" };
    await toIssuer(page);
    await page.getByRole("link", { name: "Yes" }).click();
    await expect(page.getByRole("alert")).toContainText("somebody-else");
    expect(Object.keys(JSON.parse(await stored(page))[0])).toEqual([]);

    // An answer that this tab did not ask for is not looked at: neither a code nor words that somebody put in a link.
    await page.goto(`${node.url}/console/login?error=access_denied&error_description=call+me&state=s`);
    await expect(page.getByRole("alert")).toHaveText(`The login at ${host} failed: this tab did not ask for it. Log in again.`);
    await toIssuer(page);
    const back = new URL((await page.getByRole("link", { name: "Yes" }).getAttribute("href"))!);
    back.searchParams.set("state", "another");
    await page.goto(back.href);
    await expect(page.getByRole("alert")).toContainText(`The login at ${host} failed`);
    expect(issuer.given.authorization_code).toBe(1);

    // What the tab's storage says is no way to another site.
    issuer.claims = { tenant: "acme", scope: "ops:r" };
    await toIssuer(page);
    const yes = (await page.getByRole("link", { name: "Yes" }).getAttribute("href"))!;
    await page.goto(`${node.url}/console/assets/none`);
    await page.evaluate(() => {
      const waiting = JSON.parse(sessionStorage.getItem("postdate.login")!);
      sessionStorage.setItem("postdate.login", JSON.stringify({ ...waiting, page: "//evil.test/console/" }));
    });
    await page.goto(yes);
    await expect(page.getByRole("heading", { level: 1 })).toHaveText("Now");
    expect(page.url()).toBe(`${node.url}/console/now`);
    await page.getByRole("button", { name: "Log out" }).click();
    await expect(page.getByLabel("API key")).toBeVisible();
    expect(Object.keys(JSON.parse(await stored(page))[0])).toEqual([]);

    issuer.end();
    await page.getByRole("button", { name: `Log in at ${host}` }).click();
    await expect(page.getByRole("alert")).toContainText(`${host} does not answer this page.`);
    await logIn(page, adminKey);
    await expect(page.getByRole("heading", { level: 1 })).toHaveText("Now");
  });
});
