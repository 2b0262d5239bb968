import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

export default defineConfig({
  plugins: [svelte()],
  base: "/",
  build: {
    target: "es2022",
    // Nothing inline: the Content-Security-Policy allows only files of the daemon.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rollupOptions: {
      output: {
        entryFileNames: "assets/page-[hash].js",
        assetFileNames: "assets/page-[hash][extname]",
      },
    },
  },
});
