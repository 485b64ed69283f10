// The pages with a real RabbitMQ and a real Kafka, which go and come back while somebody looks.
import { type Node, expect, figureValue, soon, test } from "./harness";

const names = ["rabbitmq", "kafka"] as const;

/** control calls what stops and starts the brokers, and counts what they have got. */
async function control(method: string, path: string): Promise<string> {
  const answer = await fetch(`${process.env.POSTDATE_TEST_BROKERS}/${path}`, { method });
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status}`);
  return answer.text();
}

const both = (method: string, path = "") => Promise.all(names.map((name) => control(method, name + path)));

/** schedule schedules so many messages for each of the brokers, due now. */
async function schedule(node: Node, id: string, n: number) {
  const messages = names.flatMap((name) => Array.from({ length: n }, (_, i) =>
    ({ scheduleId: `${id}-${name}-${i}`, channel: `${name}:orders`, executionTime: soon(0), payload: i })));
  await node.call("POST", "/v1/messages/batch", messages);
}

test("Channels says that brokers are down, and that they are back, as it happens", async ({ start, page }) => {
  const { POSTDATE_TEST_RABBITMQ: rabbitmq, POSTDATE_TEST_KAFKA: kafka } = process.env;
  if (!rabbitmq || !kafka || !process.env.POSTDATE_TEST_BROKERS) {
    throw new Error("POSTDATE_TEST_BROKERS names nothing that stops brokers: run go test ./console, which starts them");
  }
  const node = await start("--rabbitmq", rabbitmq, "--kafka", kafka);
  const link = (name: string) => page.getByRole("link", { name, exact: true });
  const row = (name: string) => page.getByRole("row").filter({ has: link(`${name}:orders`) });
  const delivered = (n: number) => expect(page.getByRole("row").filter({ hasText: "DELIVERED" })).toHaveCount(n);
  const done = (n: number) => node.until("/v1/messages?status=DELIVERED", (list: any) => list.messages.length === n); // a list stays as it was read

  await schedule(node, "before", 3);
  await done(6);
  await page.goto(`${node.url}/console/messages?status=DELIVERED`);
  await delivered(6);
  expect(await both("GET")).toEqual(["3", "3"]);
  await page.evaluate(() => (document.body.dataset.loaded = "once")); // no page is loaded anew from here on

  await link("Channels").click();
  await both("POST", "/stop");
  await schedule(node, "meanwhile", 2);
  await node.until("/v1/channels", ({ channels }: any) =>
    channels.length === 2 && channels.every((c: any) => c.state === "down" && c.parked && c.lastError));
  for (const name of names) {
    await expect(row(name)).toContainText("down");
    await expect(row(name).getByRole("cell").nth(3)).toHaveText("2"); // due
    await expect(row(name)).toContainText("connection refused"); // after the broker's last words, the network's
  }
  await link("kafka:orders").click();
  const dialog = page.getByRole("dialog", { name: "kafka:orders" });
  await expect(dialog).toContainText("2 messages wait until it is up again");
  await expect(dialog.getByLabel("State")).toContainText("connection refused");
  await dialog.getByRole("button", { name: "Close" }).click();
  await link("Now").click();
  await expect(figureValue(page, "Channels down")).toHaveText("2");

  await both("POST", "/start");
  await expect(figureValue(page, "Channels down")).toHaveText("0", { timeout: 90_000 }); // brokers start slowly on a busy machine
  await expect(figureValue(page, "Pending")).toHaveText("0");
  await link("Channels").click();
  await expect(page.getByRole("row").filter({ hasText: "down" })).toHaveCount(0);
  await done(10);
  await link("Messages").click();
  await page.getByLabel("Status").selectOption("DELIVERED");
  await delivered(10);
  await expect(page.locator("body")).toHaveAttribute("data-loaded", "once");
  // A confirm can be lost with its broker: then a message comes twice, never less than once.
  for (const got of await both("GET")) expect(Number(got)).toBeGreaterThanOrEqual(5);
});
