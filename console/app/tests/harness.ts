// What tests of the console share: real nodes as processes of their own, calls of their API past the console, and a
// page that fails its test if the browser complains of anything.
import { AxeBuilder } from "@axe-core/playwright";
import { type Page, test as base, expect } from "@playwright/test";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import type { AddressInfo, Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

export { expect };

export const adminKey = "the-operator-s-key-of-these-tests-0123456789";

/** Node is a process of `postdate serve`. */
export class Node {
  private said = "";
  private constructor(private readonly process: ChildProcess, private readonly folder: string) {}
  url = "";

  /** start starts a node with some flags, on an embedded store of its own unless they name another one. */
  static start(...flags: string[]): Promise<Node> {
    return Node.run(process.env.POSTDATE_TEST_BINARY!, flags);
  }

  /** plain is like start, with a binary that is not slowed by the race detector, if there is one. */
  static plain(...flags: string[]): Promise<Node> {
    return Node.run(process.env.POSTDATE_TEST_PLAIN_BINARY ?? process.env.POSTDATE_TEST_BINARY!, flags);
  }

  private static async run(binary: string, flags: string[]): Promise<Node> {
    const folder = await mkdtemp(join(tmpdir(), "postdate-console-"));
    if (!flags.includes("--store")) flags.push("--store", `pebble:${folder}/data`);
    const child = spawn(binary, ["serve", "--http", "127.0.0.1:0", ...flags], { cwd: folder, stdio: ["ignore", "pipe", "pipe"] });
    const node = new Node(child, folder);
    child.stderr!.on("data", (text) => (node.said += text));
    const lines = createInterface({ input: child.stdout! });
    const ready = await Promise.race([once(lines, "line"), once(child, "exit")]);
    if (typeof ready[0] !== "string") throw new Error(`the node ended: ${node.said}`);
    node.url = `http://${JSON.parse(ready[0]).http}`;
    return node;
  }

  /** kill ends the node as kill -9 does. */
  async kill() {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const gone = once(this.process, "exit");
    this.process.kill("SIGKILL");
    await gone;
  }

  async end() {
    await this.kill();
    await rm(this.folder, { recursive: true, force: true });
    if (this.said.includes("DATA RACE")) throw new Error(this.said);
  }

  /** call makes a call of the API, which must succeed, and returns its answer. */
  async call<T = any>(method: string, path: string, body?: unknown, key?: string): Promise<T> {
    const headers: Record<string, string> = { "Content-Type": "application/json" };
    if (key) headers.Authorization = `Bearer ${key}`;
    const answer = await fetch(this.url + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return text && (JSON.parse(text) as any);
  }

  /** until reads a path of the API until what it answers is as wanted. */
  async until<T = any>(path: string, wanted: (answer: T) => boolean, key?: string): Promise<T> {
    let last: T;
    await expect.poll(async () => wanted((last = await this.call<T>("GET", path, undefined, key))), { message: path, intervals: [50, 100, 250], timeout: 30_000 }).toBe(true);
    return last!;
  }
}

interface Fixtures {
  /** node is a node that asks nobody for a key. */
  node: Node;
  /** plain is like node, with a binary that is not slowed by the race detector, if there is one. */
  plain: Node;
  /** guarded is a node that asks for keys; the operator's is adminKey. */
  guarded: Node;
  /** start starts further nodes, which end with the test. */
  start(...flags: string[]): Promise<Node>;
}

export const test = base.extend<Fixtures>({
  start: async ({}, use) => {
    const nodes: Node[] = [];
    await use(async (...flags) => {
      const node = await Node.start(...flags);
      nodes.push(node);
      return node;
    });
    for (const node of nodes) await node.end();
  },
  node: async ({ start }, use) => use(await start()),
  plain: async ({}, use) => {
    const node = await Node.plain();
    await use(node);
    await node.end();
  },
  guarded: async ({ start }, use) => use(await start("--admin-key", adminKey)),

  // The browser complains of what its policy forbids, and of errors that nobody caught. It also writes a line for each
  // request that fails, which tests provoke.
  page: async ({ page }, use) => {
    const complaints: string[] = [];
    page.on("console", (message) => {
      if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) complaints.push(message.text());
    });
    page.on("pageerror", (error) => complaints.push(String(error)));
    await use(page);
    await page.unrouteAll({ behavior: "ignoreErrors" }); // what is still asked for is of no interest any more
    expect(complaints).toEqual([]);
  },
});

/** logIn logs in with a key. */
export async function logIn(page: Page, key: string) {
  await page.getByLabel("API key").fill(key);
  await page.getByRole("button", { name: "Log in", exact: true }).click();
}

/** reader makes a key of the tenant default that may only read. */
export async function reader(node: Node): Promise<string> {
  return (await node.call("POST", "/v1/keys", { tenant: "default", scopes: ["sched:r", "ops:r"] }, adminKey)).key;
}

/** figure is a figure of a page, and figureValue its number. */
export const figure = (page: Page, name: string) => page.locator(".figure", { has: page.getByText(name, { exact: true }) });
export const figureValue = (page: Page, name: string) => figure(page, name).locator("dd").first();

/** act presses a button, and the one of the same name in the dialog that asks whether to. */
export async function act(page: Page, name: string) {
  await page.getByRole("button", { name }).click();
  await page.getByRole("dialog", { name: "?" }).getByRole("button", { name }).click();
}

/** listen has a server listen on a free port, and returns its address. */
export async function listen(server: Server): Promise<string> {
  await once(server.listen(0, "127.0.0.1"), "listening");
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** soon is a time so many seconds ahead, as the API writes it. */
export const soon = (seconds: number) => new Date(Date.now() + 1000 * seconds).toISOString();

/** accessible checks that axe finds nothing to complain of, in light and dark colours. */
export async function accessible(page: Page) {
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" }); // colours change at once
    await expect(page.locator("html")).toHaveAttribute("data-theme", colorScheme);
    // It takes half the time in the page itself, and if it reports only violations. In dark it is in the page already.
    const axeSource = colorScheme === "dark" ? "void 0" : undefined;
    const axe = new AxeBuilder({ page, axeSource }).setLegacyMode().options({ resultTypes: ["violations"] });
    if ((await page.locator("dialog[open]").count()) > 0) axe.include("dialog[open]"); // nobody can use what is behind it
    if (colorScheme === "dark") axe.withRules("color-contrast"); // all else is the same
    const { violations } = await axe.analyze();
    expect(violations.map((v) => `${colorScheme}: ${v.id}: ${v.help}: ${v.nodes.map((n) => n.html).join(" ").slice(0, 500)}`)).toEqual([]);
  }
  await page.emulateMedia({ colorScheme: "light", reducedMotion: null });
}

/** fits checks that a page has no horizontal scroll bar on a phone. */
export async function fits(page: Page) {
  await page.setViewportSize({ width: 375, height: 740 });
  await expect.poll(() => page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(375);
  await page.setViewportSize({ width: 1280, height: 800 });
}
