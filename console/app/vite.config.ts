import { defineConfig } from "vite";

// The names of built files come from their content, so browsers may keep them for ever. Nothing in them depends on
// the machine that builds them: a test builds them again and compares.
export default defineConfig({
  base: "/console/",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../dist",
    emptyOutDir: true,
    assetsInlineLimit: 0, // the icon stays a file, which browsers keep
    modulePreload: { polyfill: false },
    target: "es2022",
  },
  server: { proxy: { "^/(v1|console/config.json)": "http://127.0.0.1:8080" } },
});
