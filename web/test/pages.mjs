// A browser for the tests of one file, and pages in it that look at a stand-in for a daemon.

import { mkdirSync } from "node:fs";
import { after, before } from "node:test";
import { launch, open } from "./browser.mjs";
import { Daemon } from "./daemon.mjs";

export const HOSTILE = `<script>alert(1)</script><img src=x onerror=alert(2)>&amp;`;
/** Where pictures are kept, if anywhere. */
const PICTURES = process.env.PICTURES;

let browser;
before(async () => (browser = await launch()));
after(() => browser?.close());

/** A page on a daemon that has run for this many seconds before it, and as many after. */
export async function look(t, status, { options, daemon = {}, seconds = 60 } = {}) {
  const there = await new Daemon(status, daemon).start();
  const seen = await open(browser, there.url, options);
  t.after(async () => {
    await seen.close();
    await there.stop().catch(() => {});
  });
  if (!daemon.token) {
    await seen.page.waitForSelector("h1");
    // The stream is opened once the page has been drawn.
    await seen.page.waitForTimeout(200);
    there.tick(seconds);
    await seen.page.waitForTimeout(100);
  }
  return { ...seen, daemon: there };
}

export async function picture(page, name) {
  if (!PICTURES) return;
  mkdirSync(PICTURES, { recursive: true });
  await page.screenshot({ path: `${PICTURES}/${name}.png`, fullPage: true });
}

/** Pixels by which the page is wider than its window. */
export function overflow(page) {
  return page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
}

/** What is in a section by the id of its heading. */
export function section(page, id) {
  return page.locator(`section:has(#${id})`);
}

/** An edge's config as the daemon keeps, checks and tries it. */
export function editable(file) {
  const kept = { file, version: "v1", runs: file, trial: undefined, left: undefined, asked: [] };
  const checked = ({ text }) => {
    const wrong = text.includes("mtu = 12");
    const findings = wrong
      ? [{ severity: "error", line: 3, column: 7, message: "an MTU below 1280", help: "write at least 1280" }]
      : [];
    const changes = wrong || text === kept.runs ? [] : [{ what: "edge.mtu", before: "1400", after: "1300" }];
    const diff = text === kept.file ? "" : `--- file\n+++ edited\n@@ -1,3 +1,3 @@\n-mtu = 1400\n+mtu = 1300\n`;
    return { document: { valid: !wrong, findings, host: [], changes, needs_restart: [], diff } };
  };
  const answers = {
    "GET /v1/config": () => {
      const { file: text, version, trial, left } = kept;
      return { document: { file: "/etc/sennit/edge.toml", text, version, trial, reverts_in_seconds: left } };
    },
    "POST /v1/config/check": checked,
    "PUT /v1/config": (wish) => {
      kept.asked.push(wish);
      kept.trial = kept.runs = wish.text;
      return { document: { applied: true, report: "" } };
    },
    "POST /v1/config/keep": () => {
      kept.file = kept.trial;
      return { document: {} };
    },
    "POST /v1/config/revert": () => ({ document: {} }),
  };
  return { kept, answers };
}
