// What was before the page was opened, and while it was away: the daemon's history and its journal.

import assert from "node:assert/strict";
import { test } from "node:test";
import { violations } from "./browser.mjs";
import { Daemon } from "./daemon.mjs";
import { edge, happened, hub, kept } from "./documents.mjs";
import { HOSTILE, look, overflow, picture, section } from "./pages.mjs";

const LINKS = ["link/starlink", "link/lte-a", "link/lte-b", "link/marina"];
const past = (...asked) => kept([...LINKS, "class/default", "total"], ...asked);
const UTC = { timezoneId: "UTC" };

const STARTED = happened(-4000, "started", "started, version 0.1.0", { version: "0.1.0" });
const MOVED = happened(-200, "failover", "class default moved from link lte-a to starlink after 0.180 s", {
  class: "default",
  from: "lte-a",
  to: ["starlink"],
  gap_seconds: 0.18,
});
const RELOADED = happened(-100, "reloaded", "another config: edge.mtu", { changed: ["edge.mtu"] });
const JOURNAL = [STARTED, MOVED, RELOADED];

/** What the table under the charts says of a link or site. */
async function row(page, name) {
  const found = section(page, "throughput").locator("tbody tr", { hasText: name });
  return (await found.locator("td").allInnerTexts()).join("|");
}

const caption = (page) => page.innerText("caption");
const events = (page) => section(page, "events").locator("li bdi").allInnerTexts();

/** Has the keyboard at the charts, once they are drawn. */
async function atCharts(page) {
  await page.focus("[role=slider]");
  await page.locator("canvas").first().waitFor();
}

test("what the daemon has kept is there at opening, and live samples go on at its end", async (t) => {
  const { page, daemon, faults } = await look(t, edge, { options: UTC, daemon: { kept: past }, seconds: 10 });
  const asked = daemon.queries.filter((it) => it.startsWith("history"));
  assert.deepEqual(asked, ["history?step=second&since=300&series=link/"]);
  await atCharts(page);
  await page.keyboard.press("Home");
  assert.match(await caption(page), /At 13:55:1\d/);
  assert.equal(await row(page, "starlink"), "10 Mb/s|1.0 Mb/s|40 ms|2.0 %");
  assert.equal(await row(page, "lte-a"), "20 Mb/s|2.0 Mb/s|80 ms|2.0 %");
  await page.keyboard.press("End");
  assert.match(await caption(page), /At 14:00:10/);
  assert.match(await row(page, "starlink"), /^1\d\d Mb\/s/);
  // Two minutes of a link are there as well.
  assert.match(await page.locator(".card path.down").first().getAttribute("d"), /^M0 20/);
  assert.doesNotMatch(await page.textContent("main"), /since this page was opened/);
  assert.deepEqual(faults, []);
  await picture(page, "past");
});

test("a moment that somebody points at stays, while time goes on", async (t) => {
  const { page, daemon, faults } = await look(t, edge, { options: UTC, daemon: { kept: past }, seconds: 10 });
  await atCharts(page);
  for (let i = 0; i < 3; i += 1) await page.keyboard.press("PageUp");
  const [said, told] = [await caption(page), await row(page, "starlink")];
  assert.match(said, /^At 13:5\d:\d\d/);
  for (let i = 0; i < 3; i += 1) {
    daemon.tick(2);
    await page.waitForTimeout(100);
  }
  assert.deepEqual([await caption(page), await row(page, "starlink")], [said, told]);
  // One step from there, and not from where it stood before.
  await page.keyboard.press("ArrowRight");
  assert.notEqual(await caption(page), said);
  await page.keyboard.press("ArrowLeft");
  assert.equal(await caption(page), said);
  const area = await page.locator(".charts .u-over").first().boundingBox();
  await page.mouse.move(area.x + area.width / 2, area.y + area.height / 2);
  const under = await caption(page);
  daemon.tick(5);
  await page.waitForTimeout(100);
  assert.equal(await caption(page), under, "a mouse that rests points at the same");
  assert.deepEqual(faults, []);
});

test("a long span is asked for when it is chosen, in the steps in which it is kept", async (t) => {
  const options = { ...UTC, viewport: { width: 360, height: 740 } };
  const { page, daemon, faults } = await look(t, edge, { options, daemon: { kept: past, journal: JOURNAL }, seconds: 10 });
  const spans = [
    ["1 h", "second", 3600, "13:00:10"],
    ["24 h", "minute", 86_400, "25 Nov 14:01:00"],
    ["7 d", "minute", 604_800, "19 Nov 14:01:00"],
    ["30 d", "hour", 2_592_000, "27 Oct 15:00:00"],
    ["1 y", "hour", 31_536_000, "26 Nov 15:00:00"],
  ];
  for (const [word, step, since, first] of spans) {
    const query = `history?step=${step}&since=${since}&series=link/`;
    assert.ok(!daemon.queries.includes(query));
    const answered = page.waitForResponse((it) => it.url().includes(query));
    await page.getByRole("button", { name: word, exact: true }).click();
    await (await answered).finished();
    await page.waitForTimeout(200);
    await atCharts(page);
    await page.keyboard.press("Home");
    assert.equal(await caption(page), `At ${first}`, word);
    assert.equal(await row(page, "starlink"), "10 Mb/s|1.0 Mb/s|40 ms|2.0 %", word);
    await page.keyboard.press("End");
    assert.match(await caption(page), /At 14:00:10/);
    await page.keyboard.press("Escape");
    assert.match(await row(page, "starlink"), /^1\d\d Mb\/s/, word);
    await picture(page, `span-${word.replace(" ", "-")}`);
  }
  assert.equal(await overflow(page), 0);
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(faults, []);
});

test("each minute that has passed is added to a day", async (t) => {
  const { page, daemon } = await look(t, edge, { options: UTC, daemon: { kept: past }, seconds: 10 });
  await page.getByRole("button", { name: "24 h", exact: true }).click();
  await page.waitForTimeout(200);
  const asked = daemon.queries.length;
  daemon.tick(110);
  await page.waitForTimeout(300);
  const [query, ...more] = daemon.queries.slice(asked);
  const since = Number(query.match(/^history\?step=minute&since=(\d+)&series=link\/$/)[1]);
  assert.ok(since > 60 && since < 300, query);
  assert.ok(more.length <= 1, more.join());
});

test("a hub has kept the sum of its sites", async (t) => {
  const total = (...asked) => kept(["total", "class/default"], ...asked);
  const { page, daemon, faults } = await look(t, hub, { options: UTC, daemon: { kept: total }, seconds: 10 });
  assert.ok(daemon.queries.includes("history?step=second&since=300&series=total"));
  await atCharts(page);
  await page.keyboard.press("Home");
  const names = () => section(page, "throughput").locator("tbody th").allInnerTexts();
  assert.deepEqual(await names(), ["all sites"]);
  // Down is to the sites, which is what a hub sends.
  assert.equal(await row(page, "all sites"), "1.0 Mb/s|10 Mb/s|–|–");
  await page.keyboard.press("Escape");
  assert.equal((await names()).length, 5);
  assert.deepEqual(faults, []);
});

test("the journal is shown in its own words, as it was and as it goes on, and nothing is guessed", async (t) => {
  const losing = (s) => edge(s, { lostAt: 3 });
  const { page, daemon, faults } = await look(t, losing, { options: UTC, daemon: { journal: JOURNAL }, seconds: 5 });
  const words = JOURNAL.map((it) => it.text).reverse();
  assert.deepEqual(await events(page), words);
  const capped = `the cap of link lte-a (${HOSTILE}) is used up`;
  daemon.happen(happened(5, "cap", capped, { link: "lte-a", state: "over" }));
  const first = section(page, "events").locator("li").first();
  await first.getByText(capped).waitFor();
  assert.equal(await first.getAttribute("class").then((it) => it.includes("bad")), true);
  assert.match(await first.innerText(), /^14:00:05/);
  assert.deepEqual(await events(page), [capped, ...words]);
  const about = page.getByLabel("About");
  await about.selectOption("starlink");
  assert.deepEqual(await events(page), [MOVED.text]);
  await about.selectOption("marina");
  await page.getByText("Nothing has happened.").waitFor();
  assert.deepEqual(await violations(page), []);
  assert.equal(await page.locator("main script, main img").count(), 0);
  assert.deepEqual(faults, []);
});

/** Pixels of the first chart that have the colour of events that are no good news. */
function painted(page) {
  return page.evaluate(() => {
    const word = document.querySelector("li.uneasy .sign");
    const color = getComputedStyle(word).color.match(/\d+/g).map(Number);
    const canvas = document.querySelector(".charts canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (let at = 0; at < data.length; at += 4) count += color.every((part, of) => data[at + of] === part) ? 1 : 0;
    return count;
  });
}

test("an event has its mark in the charts, and its words at that moment", async (t) => {
  const daemon = { kept: past, journal: JOURNAL };
  const { page, faults } = await look(t, edge, { options: UTC, daemon, seconds: 10 });
  await atCharts(page);
  await page.waitForTimeout(200);
  assert.ok((await painted(page)) > 20);
  await page.keyboard.press("Home");
  for (let i = 0; i < 3; i += 1) await page.keyboard.press("PageDown");
  assert.match(await caption(page), /At 13:56:4.*class default moved from link lte-a to starlink after 0\.180 s/s);
  assert.match(await page.getAttribute("[role=slider]", "aria-valuetext"), /^13:56:4.; class default moved/);
  assert.deepEqual(await violations(page), []);
  await picture(page, "marks");
  assert.deepEqual(faults, []);
  // A path is no more than an event of the list.
  const path = happened(-200, "path_down", "class voice does not use link lte-a", { class: "voice", link: "lte-a" });
  const other = await look(t, edge, { options: UTC, daemon: { kept: past, journal: [path] }, seconds: 10 });
  await atCharts(other.page);
  await other.page.waitForTimeout(200);
  assert.equal(await painted(other.page), 0);
});

test("older events are asked for, as far back as there are any", async (t) => {
  const many = Array.from({ length: 260 }, (_, at) => happened(at - 9000, "reloaded", `config ${at}`));
  const { page } = await look(t, edge, { daemon: { journal: many }, seconds: 2 });
  assert.equal((await events(page)).length, 12);
  const older = page.getByRole("button", { name: "Older events" });
  for (let i = 0; i < 4; i += 1) await older.press("Enter");
  assert.ok(await older.evaluate((it) => it === document.activeElement));
  await older.press("Enter");
  await page.getByText("config 0", { exact: true }).waitFor();
  assert.equal(await older.count(), 0);
  await page.getByRole("button", { name: "Fewer events" }).click();
  assert.equal((await events(page)).length, 12);
});

test("what the page has missed while it was away is fetched", async (t) => {
  const daemon = { kept: past, journal: JOURNAL };
  const { page, daemon: there, faults } = await look(t, edge, { options: UTC, daemon, seconds: 5 });
  await there.stop();
  await page.waitForSelector("[role=alert] >> text=The daemon is lost");
  const missed = happened(20, "link_down", "link lte-a is down: wwan0 has no address", { link: "lte-a" });
  const later = (s, ...asked) => past(s + 60, ...asked);
  const options = { kept: later, journal: [...JOURNAL, missed] };
  const again = await new Daemon((s) => edge(s + 60), options).start(there.port);
  t.after(() => again.stop());
  await page.waitForSelector(".pulse.live", { timeout: 10_000 });
  await section(page, "events").getByText(missed.text).waitFor();
  assert.ok(again.queries.includes(`events?after=${RELOADED.id}`), again.queries.join());
  assert.ok(again.queries.includes("history?step=second&since=300&series=link/"), again.queries.join());
  const told = await events(page);
  assert.equal(told.filter((it) => it === MOVED.text).length, 1);
  assert.ok(told.includes("this page lost the daemon"));
  await atCharts(page);
  await page.keyboard.press("End");
  await page.keyboard.press("PageUp");
  assert.match(await caption(page), /At 14:00:[23]\d/);
  assert.equal(await row(page, "lte-a"), "20 Mb/s|2.0 Mb/s|80 ms|2.0 %");
  assert.deepEqual(faults, []);
});

test("a daemon that cannot read its history or journal says why, and the rest goes on", async (t) => {
  const torn = (what) => () => ({ status: 503, document: { code: "busy", detail: `${what} cannot be read: disk I/O error` } });
  const answers = { "GET /v1/history": torn("the history"), "GET /v1/events": torn("the journal") };
  const { page } = await look(t, edge, { daemon: { answers }, seconds: 10 });
  await page.getByText("The past cannot be shown. The history cannot be read: disk I/O error.").waitFor();
  await page.getByText("Events are missing. The journal cannot be read: disk I/O error.").waitFor();
  assert.match(await row(page, "starlink"), /^1\d\d Mb\/s/);
  assert.deepEqual(await violations(page), []);
});

test("nothing that is shown first waits for history or journal", async (t) => {
  const never = () => new Promise(() => {});
  const answers = { "GET /v1/history": never, "GET /v1/events": never };
  const { page } = await look(t, edge, { daemon: { answers }, seconds: 10 });
  assert.equal(await page.textContent(".pulse"), "live");
  assert.match(await page.locator(".card").first().textContent(), /1\d\d Mb\/s/);
  await atCharts(page);
  await page.keyboard.press("ArrowLeft");
  assert.match(await caption(page), /At \d\d:\d\d:\d\d/);
});

/** Draws over a part of the first chart, given in parts of its width. */
async function draw(page, from, to) {
  await page.locator(".charts").scrollIntoViewIfNeeded();
  const area = await page.locator(".charts .u-over").first().boundingBox();
  const x = (part) => area.x + part * area.width;
  const y = area.y + area.height / 2;
  await page.mouse.move(x(from), y);
  await page.mouse.down();
  for (let step = 1; step <= 8; step += 1) await page.mouse.move(x(from + ((to - from) * step) / 8), y);
  await page.mouse.up();
  await page.mouse.move(area.x + 10, area.y - 60);
}

/** Seconds of the day in `Mean from 13:56:25 to 13:57:40`. */
function shown(caption) {
  const times = caption.match(/^Mean from (\d\d):(\d\d):(\d\d) to (\d\d):(\d\d):(\d\d)/);
  assert.ok(times, caption);
  const [h, m, s, ...to] = times.slice(1).map(Number);
  return [h * 3600 + m * 60 + s, to[0] * 3600 + to[1] * 60 + to[2]];
}

const HALF_PAST = 13 * 3600 + 55 * 60 + 10;

test("who draws over a chart sees that part of time, and its means", async (t) => {
  const { page, daemon, faults } = await look(t, edge, { options: UTC, daemon: { kept: past, journal: JOURNAL }, seconds: 10 });
  await atCharts(page);
  await draw(page, 0.25, 0.5);
  const [from, to] = shown(await caption(page));
  assert.ok(Math.abs(from - HALF_PAST - 75) <= 3 && Math.abs(to - from - 75) <= 4, `${from} ${to}`);
  assert.equal(await row(page, "starlink"), "10 Mb/s|1.0 Mb/s|40 ms|2.0 %");
  assert.equal(await page.getByRole("button", { name: "5 min", exact: true }).getAttribute("aria-pressed"), "false");
  // It stands still while time goes on.
  daemon.tick(5);
  await page.waitForTimeout(200);
  assert.deepEqual(shown(await caption(page)), [from, to]);
  assert.deepEqual(await violations(page), []);
  await picture(page, "zoom");
  // Whoever is sent the address sees the same.
  await page.reload();
  await page.locator("caption", { hasText: "Mean from" }).waitFor();
  const [again] = shown(await caption(page));
  assert.ok(Math.abs(again - from) <= 1);
  await page.getByRole("button", { name: "Up to now" }).click();
  assert.equal(await caption(page), "Now");
  assert.equal(new URL(page.url()).hash, "");
  await draw(page, 0.5, 0.502);
  assert.doesNotMatch(await caption(page), /Mean/, "to point at a moment is not to choose");
  assert.deepEqual(faults, []);
});

test("the keyboard chooses a part of time, and goes back", async (t) => {
  const { page } = await look(t, edge, { options: UTC, daemon: { kept: past }, seconds: 10 });
  await atCharts(page);
  const press = async (...keys) => {
    for (const one of keys) await page.keyboard.press(one);
  };
  await press("Home", "PageDown", "Shift+PageDown", "Shift+PageDown");
  assert.match(await page.getAttribute("[role=slider]", "aria-valuetext"), /chosen from 13:55:4\d to 13:56:4\d/);
  await press("Enter");
  const [from, to] = shown(await caption(page));
  assert.equal(to - from, 60);
  await press("+");
  assert.equal(shown(await caption(page))[1] - shown(await caption(page))[0], 30);
  await press("-", "-");
  const wide = shown(await caption(page));
  assert.equal(wide[1] - wide[0], 120);
  await page.getByRole("button", { name: "Earlier" }).press("Enter");
  assert.equal(shown(await caption(page))[0], wide[0] - 60);
  await page.getByRole("button", { name: "Later" }).press("Enter");
  assert.deepEqual(shown(await caption(page)), wide);
  await page.focus("[role=slider]");
  await press("ArrowLeft");
  assert.match(await caption(page), /^At /);
  await press("Escape");
  assert.deepEqual(shown(await caption(page)), wide);
  await press("Escape");
  assert.equal(await caption(page), "Now");
});

test("what is chosen of a long time is shown as finely as it is kept", async (t) => {
  const { page, daemon } = await look(t, edge, { options: UTC, daemon: { kept: past }, seconds: 10 });
  await page.getByRole("button", { name: "24 h", exact: true }).click();
  await page.waitForTimeout(200);
  await atCharts(page);
  const asked = daemon.queries.length;
  await draw(page, 0.97, 0.995);
  await page.waitForTimeout(300);
  assert.ok(daemon.queries.slice(asked).includes("history?step=second&since=3600&series=link/"), daemon.queries.slice(asked).join());
  assert.equal(await row(page, "lte-a"), "20 Mb/s|2.0 Mb/s|80 ms|2.0 %");
});

/** Pixels of the lanes that have the colour of what is bad. */
function ill(page) {
  return page.evaluate(() => {
    const probe = document.createElement("span");
    probe.style.color = "var(--bad)";
    document.body.append(probe);
    const color = getComputedStyle(probe).color.match(/\d+/g).map(Number);
    const canvas = document.querySelectorAll(".charts canvas")[1];
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (let at = 0; at < data.length; at += 4) count += color.every((part, of) => data[at + of] === part) ? 1 : 0;
    return count;
  });
}

test("each link has a lane that says when it was down", async (t) => {
  const whole = (s) => {
    const status = edge(s);
    for (const link of status.links) Object.assign(link, { state: "up", cause: undefined, reason: undefined });
    return status;
  };
  const torn = (...asked) => {
    const series = past(...asked);
    const from = series[1].time.length - 100;
    series[1].up_ratio = series[1].up_ratio.map((up, at) => (at > from && at < from + 50 ? 0 : up));
    return series;
  };
  const fine = await look(t, whole, { options: UTC, daemon: { kept: past }, seconds: 10 });
  await atCharts(fine.page);
  await fine.page.waitForTimeout(200);
  assert.equal(await ill(fine.page), 0);
  const { page, faults } = await look(t, whole, { options: UTC, daemon: { kept: torn, journal: JOURNAL }, seconds: 10 });
  await atCharts(page);
  await page.waitForTimeout(200);
  assert.ok((await ill(page)) > 50);
  // What is seen is told as well.
  await page.keyboard.press("End");
  for (let i = 0; i < 75; i += 1) await page.keyboard.press("ArrowLeft");
  const told = await section(page, "throughput").locator("tbody th").allInnerTexts();
  assert.match(told[1], /lte-a\s*down/);
  assert.doesNotMatch(told[0], /down/);
  assert.deepEqual(await violations(page), []);
  await picture(page, "lanes");
  assert.deepEqual(faults, []);
});

test("zooming fits a phone, and needs no keyboard there", async (t) => {
  const options = { ...UTC, viewport: { width: 360, height: 740 } };
  const { page } = await look(t, edge, { options, daemon: { kept: past }, seconds: 10 });
  await page.getByRole("button", { name: "Zoom in" }).click();
  await page.getByRole("button", { name: "Earlier" }).click();
  const [from, to] = shown(await caption(page));
  assert.equal(to - from, 150);
  assert.equal(await overflow(page), 0);
  await page.getByRole("button", { name: "Zoom out" }).click();
  assert.equal(await caption(page), "Now");
  await picture(page, "zoom-360");
});
