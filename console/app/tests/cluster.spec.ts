import { once } from "node:events";
import { createServer } from "node:net";
import { type Page } from "@playwright/test";
import { type Node, accessible, expect, fits, listen, test } from "./harness";

interface Bucket { bucket: number; owner: string; token: number }

const buckets = async (node: Node): Promise<Bucket[]> => (await node.call("GET", "/v1/cluster")).buckets;

const cells = (page: Page) => page.getByRole("listbox", { name: "Buckets" }).getByRole("option");

/** shown are the owners on the map, by bucket. */
const shown = (page: Page) =>
  cells(page).evaluateAll((all) => all.map((cell) => /owner (.*?)( since|,|$)/.exec(cell.getAttribute("aria-label")!)![1]));

const rowOf = (page: Page, table: string, first: string) =>
  page.getByRole("region", { name: table, exact: true }).getByRole("row", { name: new RegExp(`^${first} `) });

const detail = (page: Page, name: string) => page.locator(".facts div", { has: page.getByText(name, { exact: true }) }).locator("dd");

test("Cluster shows a node that is alone with all its buckets", async ({ start, page }) => {
  const node = await start("--node-id", "solo", "--buckets", "300");
  await page.goto(`${node.url}/console/cluster`);
  await expect(rowOf(page, "Nodes", "solo")).toContainText("alive");
  await expect(rowOf(page, "Nodes", "solo")).toContainText("300");
  await expect(cells(page)).toHaveCount(300);
  const api = await buckets(node);
  expect(await shown(page)).toEqual(api.map((b) => b.owner));
  await expect(page.getByRole("alert")).toHaveCount(0);
  await expect(page.getByText("Nothing since")).toBeVisible();

  // One stop of the Tab key leads to all buckets, and the URL says which one is looked at.
  const map = page.getByRole("listbox", { name: "Buckets" });
  await map.focus();
  for (const key of ["Home", "ArrowRight", "ArrowDown", "ArrowUp", "End", "ArrowLeft"]) await page.keyboard.press(key);
  const picked = map.getByRole("option", { selected: true });
  await expect(picked).toHaveAccessibleName("Bucket 298, owner solo");
  await expect(map).toHaveAttribute("aria-activedescendant", (await picked.getAttribute("id"))!);
  await expect(page).toHaveURL(/bucket=298/);
  await expect(detail(page, "Token")).toHaveText(String(api[298]!.token));
  await page.getByRole("option", { name: "Bucket 17," }).click();
  await expect(page).toHaveURL(/bucket=17/);
  await page.reload();
  await expect(detail(page, "Bucket")).toHaveText("17");

  await page.getByRole("button", { name: "Bucket", exact: true }).click();
  await expect(rowOf(page, "Buckets", "299")).toHaveAttribute("aria-rowindex", "2");
  await accessible(page);
  await fits(page);
});

test("Cluster shows how nodes take over a dead node's buckets", async ({ start, page }) => {
  test.setTimeout(120_000);
  const store = process.env.POSTDATE_TEST_MONGODB_URI;
  if (!store) throw new Error("POSTDATE_TEST_MONGODB_URI names no MongoDB: set it to the address of a database of a replica set");
  const gossip = await freeAddress();
  const member = (name: string, at: string) =>
    start("--store", store, "--buckets", "24", "--node-id", name, "--gossip", at, "--join", gossip);
  const a = await member("a", gossip);
  const [, c] = await Promise.all([member("b", "127.0.0.1:0"), member("c", "127.0.0.1:0")]);
  await a.until("/v1/cluster", ({ members, buckets }: any) =>
    members.every((m: any) => m.lease) && ["a", "b", "c"].every((name) => buckets.some((b: Bucket) => b.owner === name)));

  await page.goto(`${a.url}/console/cluster`);
  for (const name of ["a", "b", "c"]) {
    await expect(rowOf(page, "Nodes", name)).toContainText("alive");
    await expect(rowOf(page, "Nodes", name).getByRole("progressbar", { name: `Lease of ${name}` })).toBeVisible();
  }
  await expect(rowOf(page, "Nodes", "a")).toContainText("answers here");
  await expect.poll(async () => JSON.stringify(await shown(page)) === JSON.stringify((await buckets(a)).map((b) => b.owner))).toBe(true);
  const before = await buckets(a);
  const lost = before.filter((b) => b.owner === "c");

  await c.kill();
  await expect(rowOf(page, "Nodes", "c")).toContainText(/lost|does not answer/);
  const { buckets: after } = await a.until<{ buckets: Bucket[] }>("/v1/cluster", ({ buckets }) => buckets.every((b) => b.owner !== "c" && b.owner !== ""));
  const changes = page.getByRole("region", { name: "What changed while this page is open" });
  for (const was of lost) {
    const now = after[was.bucket]!;
    expect(now.token).toBeGreaterThan(was.token);
    const line = changes.getByRole("row").filter({ has: page.getByText(`Bucket ${was.bucket} went from c to ${now.owner}`, { exact: true }) });
    await expect(line.getByRole("cell").last()).toHaveText(String(now.token));
    await expect(page.getByRole("option", { name: `Bucket ${was.bucket}, owner ${now.owner} since` })).toBeVisible();
  }
  expect(await shown(page)).toEqual(after.map((b) => b.owner));
  await expect(changes.getByText("Node c is lost: it does not answer any more")).toBeVisible();
  await expect(rowOf(page, "Nodes", "c")).toContainText("lost");
  await expect(rowOf(page, "Nodes", "c").getByRole("cell").nth(3)).toHaveText("0");
  await accessible(page);
  await fits(page);

  // Only the buckets of b step forward, on the map and in the table.
  await page.getByRole("button", { name: /^b / }).click();
  await expect(page).toHaveURL(/node=b/);
  const ofB = after.filter((b) => b.owner === "b");
  await expect(page.getByRole("region", { name: "Buckets", exact: true }).getByRole("row")).toHaveCount(1 + ofB.length);
  await page.goBack();
  await expect(page).not.toHaveURL(/node=b/);

  await member("c", "127.0.0.1:0");
  await expect(changes.getByText("Node c is here")).toBeVisible();
  await expect(rowOf(page, "Nodes", "c")).toContainText("alive");
  const { buckets: back } = await a.until<{ buckets: Bucket[] }>("/v1/cluster", ({ buckets }) => buckets.some((b) => b.owner === "c"));
  const { bucket } = back.find((b) => b.owner === "c")!;
  await expect(changes.getByText(new RegExp(`^Bucket ${bucket} went from ${after[bucket]!.owner} to `)).last()).toBeVisible();
  await expect(changes.getByText(new RegExp(`^Bucket ${bucket} went from (a|b|nobody) to c$`)).first()).toBeVisible(); // nobody: between the two
});

/** freeAddress is an address at which nobody listens. */
async function freeAddress(): Promise<string> {
  const server = createServer();
  const address = await listen(server);
  await once(server.close(), "close");
  return address;
}
