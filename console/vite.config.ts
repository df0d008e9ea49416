import { defineConfig } from "vitest/config";

const here = (path: string) => decodeURIComponent(new URL(path, import.meta.url).pathname);

export default defineConfig({
  // Relative, so that the console may be served below any path.
  base: "./",
  resolve: {
    alias: {
      // The project's own client; it imports stompjs, which is found here and not next to it.
      nebula: here("../nebula/browser/nebula.js"),
      "@stomp/stompjs": here("node_modules/@stomp/stompjs"),
    },
  },
  esbuild: { jsx: "automatic", jsxImportSource: "preact" },
  build: {
    outDir: here("../nebula/console/assets"),
    emptyOutDir: true,
    // Names with the hash of the content are cached for good; `index.html` is not cached.
    assetsDir: "static",
    // `data:` URLs would need an exception in the Content-Security-Policy.
    assetsInlineLimit: 0,
    // Its polyfill fetches what browsers of today preload by themselves.
    modulePreload: { polyfill: false },
    target: "es2022",
    sourcemap: false,
    reportCompressedSize: false,
    chunkSizeWarningLimit: 1000,
  },
  // `npm run dev`: the page comes from Vite, the broker from `nebula broker --http 61680`.
  server: { proxy: { "/stomp": { target: "ws://127.0.0.1:61680", ws: true } } },
  // Generous, because others use the machine too.
  test: { environment: "jsdom", include: ["src/**/*.test.{ts,tsx}"], setupFiles: "src/test-setup.ts", testTimeout: 60_000 },
});
