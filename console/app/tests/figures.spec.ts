// Every figure of the console equals that of the API, and that of the metrics, once nothing moves.
import { expect, figure, figureValue, soon, test } from "./harness";

/** sum adds up the lines of a metric that have a label. */
function sum(metrics: string, name: string, label = ""): number {
  return metrics
    .split("\n")
    .filter((line) => line.startsWith(`${name}{`) && line.includes(label))
    .reduce((all, line) => all + Number(line.slice(line.lastIndexOf(" ") + 1)), 0);
}

test("figures equal the API's and the metrics'", async ({ start, page }) => {
  const node = await start();
  const at = soon(7200);
  for (let i = 0; i < 12; i++) {
    await node.call("POST", "/v1/messages", { scheduleId: `done${i}`, channel: "inbox:a", executionTime: soon(0), payload: i });
  }
  for (let i = 0; i < 30; i++) {
    await node.call("POST", "/v1/messages", { scheduleId: `later${i}`, channel: i < 20 ? "inbox:b" : "inbox:c", executionTime: at, payload: i });
  }
  for (let i = 0; i < 5; i++) await node.call("DELETE", `/v1/messages/later${i}`);
  const stats = await node.until("/v1/stats", (s) => s.total.delivered === 12 && s.total.cancelled === 5 && s.inHand === 0);
  const metrics = await (await fetch(`${node.url}/metrics`)).text();

  await page.goto(`${node.url}/console/now`);
  // The node is less than a minute old, so its last minute is all that it did.
  for (const [name, total, metric] of [
    ["Scheduled", stats.total.scheduled, sum(metrics, "postdate_scheduled_total")],
    ["Delivered", stats.total.delivered, sum(metrics, "postdate_settled_total", 'how="delivered"')],
    ["Failed", stats.total.failed, sum(metrics, "postdate_settled_total", 'how="failed"')],
    ["Cancelled", stats.total.cancelled, sum(metrics, "postdate_cancelled_total")],
  ]) {
    await expect(figure(page, name)).toContainText(new RegExp(`(^|\\D)${total} in the last \\d+ s`));
    expect(total, name).toBe(metric);
  }
  await expect(figureValue(page, "Pending")).toHaveText(String(stats.pending.messages));
  expect(stats.pending.messages).toBe(25);
  await expect(figureValue(page, "Overdue")).toHaveText("nothing");
  await expect(figureValue(page, "In hand")).toHaveText("0");
});
