// Chromium, and what the tests ask of a page.

import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const PLACES = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

export async function launch() {
  const executablePath = PLACES.find((place) => place && existsSync(place));
  if (!executablePath) throw new Error("there is no Chromium: `apt install chromium`, or name it in CHROMIUM");
  return chromium.launch({ executablePath, args: ["--no-sandbox"] });
}

/**
 * A page that counts what it must not do: errors, what the policy forbids, and asking others.
 * `prepare` has it before it is at the address.
 */
export async function open(browser, url, { prepare, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  const faults = [];
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("console", (message) => {
    // That the daemon is away is what some tests are about, and Chromium logs it as an error.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) faults.push(message.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(url)) faults.push(`asks ${request.url()}`);
  });
  page.on("dialog", (dialog) => {
    faults.push(`dialog ${dialog.message()}`);
    void dialog.dismiss();
  });
  await prepare?.(page);
  await page.goto(url);
  return { page, faults, close: () => context.close() };
}

/** What axe finds against WCAG 2.2 AA. */
export async function violations(page) {
  // Not by a script element, which the policy forbids.
  await page.evaluate(AXE);
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  const found = await page.evaluate((values) => axe.run({ runOnly: { type: "tag", values }, resultTypes: ["violations"] }), tags);
  return found.violations.map(
    (it) => `${it.id}: ${it.nodes.map((node) => `${node.html} ${node.failureSummary}`).join("; ")}`,
  );
}
