import { defineConfig } from "@playwright/test";

// The browser is the headless shell of the distribution's Chromium. --no-sandbox, as tests may run as root, who has no
// sandbox. --disable-gpu: to draw is quicker than to emulate a GPU.
export default defineConfig({
  testDir: "tests",
  outputDir: process.env.POSTDATE_TEST_OUTPUT ?? "test-results",
  workers: 3,
  fullyParallel: true,
  forbidOnly: true,
  reporter: "list",
  timeout: 180_000, // for busy machines: times are for benchmarks
  expect: { timeout: 30_000 },
  use: {
    locale: "en-GB",
    timezoneId: "Europe/Berlin",
    viewport: { width: 1280, height: 800 },
    launchOptions: { executablePath: process.env.POSTDATE_TEST_CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] },
  },
});
