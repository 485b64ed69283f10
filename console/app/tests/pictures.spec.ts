// The pictures of the README and of docs/console.md, of `postdate demo --console`. They are made at every run, so that
// they can be made; POSTDATE_TEST_PICTURES names the folder of those to keep, and has the demo run for a while first.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { expect, test } from "./harness";

const folder = process.env.POSTDATE_TEST_PICTURES;
const fullSlots = folder ? 15 : 1; // of ten seconds each

test("the demo's console can be photographed", async ({ page }, info) => {
  if (folder) test.setTimeout(300_000);
  const demo = spawn(process.env.POSTDATE_TEST_BINARY!, ["demo", "--console"], { stdio: ["ignore", "pipe", "inherit"] });
  try {
    let console = "";
    for await (const line of createInterface({ input: demo.stdout! })) {
      console = /\S+\/console$/.exec(line)?.[0] ?? "";
      if (console) break;
    }
    const stats = async () => (await fetch(console.replace("/console", "/v1/stats"))).json();
    await expect
      .poll(async () => (await stats()).slots.filter((s: any) => s.delivered > 0).length, { timeout: 280_000 })
      .toBeGreaterThanOrEqual(fullSlots);
    const pictures: [string, string, "light" | "dark"][] = [
      ["now", "/now", "light"],
      ["coming", "/coming", "light"],
      ["messages", "/messages", "dark"],
      ["message", "/message?id=newsletter-0001", "light"],
      ["failed", "/failed", "dark"],
      ["cluster", "/cluster", "light"],
    ];
    for (const [name, path, colorScheme] of pictures) {
      await page.emulateMedia({ colorScheme });
      await page.goto(console + path);
      await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
      await page.waitForLoadState("networkidle").catch(() => {});
      await page.screenshot({ path: folder ? `${folder}/${name}.png` : info.outputPath(`${name}.png`) });
    }
  } finally {
    demo.kill("SIGINT");
    if (demo.exitCode === null) await once(demo, "exit");
  }
});
