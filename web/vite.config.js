import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

/** Beside each file its compressed twin, which is what the daemon sends. */
const twins = {
  name: "twins",
  closeBundle() {
    for (const file of readdirSync("dist", { recursive: true, withFileTypes: true })) {
      if (!file.isFile() || file.name.startsWith(".")) continue;
      const path = `${file.parentPath}/${file.name}`;
      writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }));
    }
  },
};

export default defineConfig({
  plugins: [svelte(), twins],
  base: "/",
  build: {
    target: "es2022",
    // Nothing inline: the Content-Security-Policy allows only files of the daemon.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rollupOptions: {
      output: {
        entryFileNames: "assets/page-[hash].js",
        chunkFileNames: "assets/page-[hash].js",
        assetFileNames: "assets/page-[hash][extname]",
      },
    },
  },
});
