// How the page fares in Chromium, as figures of `results.json`: `node web/test/look.mjs URL` looks at a daemon,
// and `node web/test/look.mjs NUMBER` at a stand-in for a hub with so many sites, and as many links at one of them.

import { createServer } from "node:http";
import { Daemon } from "./daemon.mjs";
import { hub } from "./documents.mjs";
import { launch, open } from "./browser.mjs";

/** The page is opened so often; the first time the browser has nothing of it. */
const VIEWS = 5;
/** Seconds for which it is followed. */
const FOLLOWED = 10;

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];

/** Milliseconds until there is something to see; each time in a browser that has never been there. */
async function firstView(browser, url) {
  const { page, close } = await open(browser, "about:blank");
  await page.addInitScript(() => {
    const look = () => {
      // A card of a link, or a row of a site.
      if (document.querySelector(".card, tbody tr")) requestAnimationFrame(() => (window.seen ??= performance.now()));
      else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
  await page.goto(url);
  const seen = await page.waitForFunction(() => window.seen);
  const milliseconds = await seen.jsonValue();
  await close();
  return milliseconds;
}

/** The longest task while the page is followed, and how often it has shown something new. */
async function follow(browser, url, tick) {
  const { page, close } = await open(browser, url);
  await page.waitForSelector(".card, tbody tr");
  // What comes once, as the history, is part of opening it.
  await page.waitForTimeout(1500);
  await page.evaluate(() => {
    window.longest = 0;
    const note = (list) => list.getEntries().forEach((it) => (window.longest = Math.max(window.longest, it.duration)));
    new PerformanceObserver(note).observe({ type: "longtask" });
  });
  for (let second = 0; second < FOLLOWED; second += 1) {
    tick();
    await page.waitForTimeout(1000);
  }
  const longest = await page.evaluate(() => window.longest);
  await close();
  return longest;
}

/** A page of one line, which shows what Chromium itself takes on this machine at this moment. */
async function emptyPage() {
  const server = createServer((_, response) => {
    response.setHeader("content-type", "text/html");
    response.end(`<!doctype html><title>-</title><link rel="icon" href="data:,"><p class="card">-</p>`);
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const stop = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${server.address().port}/`, stop };
}

async function main(what) {
  const sites = Number(what);
  const standIn = sites > 0 ? await new Daemon((s) => hub(s, { sites, links: 16 })).start() : undefined;
  const url = standIn?.url ?? what;
  const empty = await emptyPage();
  const browser = await launch();
  try {
    const [views, least] = [[], []];
    for (let view = 0; view < VIEWS; view += 1) {
      least.push(await firstView(browser, empty.url));
      views.push(await firstView(browser, url));
    }
    const longest = await follow(browser, url, () => standIn?.tick());
    const figures = {
      first_view_seconds: median(views) / 1000,
      empty_view_seconds: median(least) / 1000,
      longest_task_seconds: longest / 1000,
    };
    console.log(JSON.stringify(figures));
  } finally {
    await browser.close();
    empty.stop();
    await standIn?.stop();
  }
}

await main(process.argv[2] ?? "");
