import { accessible, expect, figure, figureValue, fits, soon, test } from "./harness";

test("Now shows what the API says, live", async ({ node, page }) => {
  await page.goto(`${node.url}/console`);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Now");
  await expect(figureValue(page, "Pending")).toHaveText("0");
  for (let i = 0; i < 7; i++) {
    await node.call("POST", "/v1/messages", { scheduleId: `m${i}`, channel: "inbox:a", executionTime: soon(i < 3 ? 0 : 3600), payload: i });
  }
  await expect(figureValue(page, "Pending")).toHaveText("4");
  await expect(figure(page, "Scheduled")).toContainText("7 in the last minute");
  await expect(figure(page, "Delivered")).toContainText("3 in the last minute");
  await accessible(page);
  await fits(page);
});
