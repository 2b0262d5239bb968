// What the page does when something is wrong: the daemon, the way to it, the computer that shows it.

import assert from "node:assert/strict";
import { test } from "node:test";
import { violations } from "./browser.mjs";
import { edge, happened } from "./documents.mjs";
import { editable, look, picture, section } from "./pages.mjs";

const BUSY = { status: 429, code: "too_many_requests", detail: "too many streams are open" };

test("a daemon without room says why, is left alone for as long as it asks, and was not lost", async (t) => {
  const refuses = { ...BUSY, after: 4 };
  const { page, daemon, faults } = await look(t, edge, { daemon: { refuses }, seconds: 0 });
  const alert = page.getByRole("alert");
  await alert.waitFor();
  assert.match(
    await alert.textContent(),
    /Nothing new from the daemon\.\s+Too many streams are open\. It asks to wait for 4 s\./,
  );
  const asked = daemon.refused;
  await page.waitForTimeout(2000);
  assert.equal(daemon.refused, asked);
  assert.equal(await page.textContent(".pulse"), "waiting");
  assert.ok((await page.locator("header").boundingBox()).height < 100);
  assert.equal(await page.locator(".card").count(), 4);
  assert.deepEqual(await violations(page), []);
  await picture(page, "waiting");
  daemon.refuses = undefined;
  await page.waitForSelector(".pulse.live", { timeout: 10_000 });
  assert.equal(await alert.count(), 0);
  assert.match(await section(page, "events").textContent(), /Nothing has happened\./);
  assert.deepEqual(faults, []);
});

test("a proxy without a daemon behind it is no daemon", async (t) => {
  const { page } = await look(t, edge, { daemon: { refuses: { status: 503 } }, seconds: 0 });
  await page.getByRole("alert").getByText("It answers 503.").waitFor();
  assert.match(await page.getByRole("alert").textContent(), /The daemon is lost\./);
  assert.match(await section(page, "events").textContent(), /this page lost the daemon/);
});

test("what does not move any more is not shown as what is so now", async (t) => {
  const { page, daemon } = await look(t, edge, { seconds: 5 });
  const alert = page.getByRole("alert");
  daemon.speaks = false;
  // Bytes come, and never the end of a status.
  const mumbling = setInterval(() => daemon.mumble("data: {"), 500);
  t.after(() => clearInterval(mumbling));
  await alert.getByText("What it says takes long to arrive.").waitFor({ timeout: 10_000 });
  assert.equal(await page.locator(".all.stale").count(), 1);
  assert.deepEqual(await violations(page), []);
  clearInterval(mumbling);
  await alert.getByText("It says nothing.").waitFor({ timeout: 10_000 });
  daemon.speaks = true;
  await page.waitForSelector(".pulse.live", { timeout: 10_000 });
  assert.equal(await page.locator(".all.stale").count(), 0);
});

test("a computer that slept asks anew, and does not say that the daemon was lost", async (t) => {
  const options = { prepare: (page) => page.clock.install() };
  const { page, daemon, faults } = await look(t, edge, { options, seconds: 5 });
  const asked = daemon.asked.length;
  daemon.seconds += 7200;
  await page.clock.fastForward("02:00:00");
  await page.waitForSelector(".pulse.live");
  assert.equal(daemon.asked.length, asked + 1);
  assert.doesNotMatch(await section(page, "events").textContent(), /lost/);
  assert.deepEqual(faults, []);
});

const JOURNAL = [happened(3, "link_down", "link lte-a is down: no carrier", { link: "lte-a" })];

test("a browser whose clock is wrong by a day shows the time of the daemon", async (t) => {
  const prepare = (page) => page.clock.install({ time: "2026-11-25T14:00:00Z" });
  const options = { prepare, timezoneId: "Europe/Berlin" };
  const { page } = await look(t, edge, { options, daemon: { journal: JOURNAL }, seconds: 5 });
  const events = section(page, "events");
  assert.match(await events.locator("li").first().innerText(), /^15:00:03/);
  assert.match(await events.getByRole("heading").innerText(), /times in Europe\/Berlin/);
});

test("an event of another day has its date", async (t) => {
  const later = (s) => ({ ...edge(s), time: new Date(Date.parse(edge(s).time) + 2 * 86_400_000).toISOString() });
  const options = { timezoneId: "Europe/Berlin" };
  const { page } = await look(t, later, { options, daemon: { journal: JOURNAL }, seconds: 6 });
  const then = section(page, "events").locator("time").last();
  assert.equal(await then.innerText(), "26 Nov 15:00:03");
  assert.equal(await then.getAttribute("title"), "2026-11-26T14:00:03Z");
});

test("a browser that may keep nothing shows the page all the same", async (t) => {
  const forbid = () => {
    for (const name of ["localStorage", "sessionStorage"]) {
      Object.defineProperty(window, name, {
        get() {
          throw new DOMException("cookies are blocked", "SecurityError");
        },
      });
    }
  };
  const options = { prepare: (page) => page.addInitScript(forbid) };
  const { page, faults } = await look(t, edge, { options, daemon: { token: "right" } });
  await page.fill("input[type=password]", "right");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".card");
  await page.getByRole("button", { name: "Colours: auto" }).click();
  await page.getByRole("button", { name: "Colours: light" }).waitFor();
  assert.deepEqual(faults, []);
});

test("a page whose second half is lost on the way says so", async (t) => {
  let scripts = 0;
  const prepare = (page) =>
    page.route("**/*.js", (route) => {
      scripts += 1;
      return scripts > 1 ? route.abort() : route.continue();
    });
  const { page } = await look(t, edge, { options: { prepare }, seconds: 1 });
  await page.getByText("The rest of this page did not arrive.").waitFor();
  await page.unroute("**/*.js");
  await page.getByRole("button", { name: "Load it again" }).click();
  await page.waitForSelector("#events");
});

const FILE = "# mine\n[edge]\nmtu = 1400\n";
const TRIED = FILE.replace("1400", "1300");

/** Who opens the editor while a text is on trial for another second. */
async function watchTrial(t) {
  const { kept, answers } = editable(FILE);
  Object.assign(kept, { trial: TRIED, runs: TRIED, left: 1 });
  const seen = await look(t, edge, { daemon: { role: "admin", answers }, seconds: 2 });
  await seen.page.getByText("Config", { exact: true }).click();
  await seen.page.getByRole("timer").waitFor();
  return { ...seen, kept };
}

test("a trial that somebody else has kept is not told as taken back, and the next is of the file as it is", async (t) => {
  const { page, kept } = await watchTrial(t);
  Object.assign(kept, { file: TRIED, version: "v2", trial: undefined, left: undefined });
  await page.getByText("Somebody else has kept it, and it is in /etc/sennit/edge.toml.").waitFor();
  await page.getByRole("textbox", { name: "/etc/sennit/edge.toml" }).fill(FILE);
  await page.getByRole("button", { name: "Try it for 60 s" }).click();
  await page.getByText("It runs on trial.").waitFor();
  assert.equal(kept.asked[0].version, "v2");
});

test("a trial is taken back when the daemon says so, and goes on while it does not", async (t) => {
  const { page, kept } = await watchTrial(t);
  // The time has been made longer by somebody else.
  await page.waitForTimeout(1500);
  assert.ok(await page.getByRole("timer").isVisible());
  Object.assign(kept, { runs: FILE, trial: undefined, left: undefined });
  await page.getByText("Nobody has kept it, so it was taken back.").waitFor();
  assert.equal(await page.getByRole("textbox", { name: "/etc/sennit/edge.toml" }).inputValue(), TRIED);
});

test("what becomes of a trial that cuts off the page is told when the daemon is back", async (t) => {
  const { kept, answers } = editable(FILE);
  const { page } = await look(t, edge, { daemon: { role: "admin", answers }, seconds: 2 });
  await page.getByText("Config", { exact: true }).click();
  await page.getByRole("textbox", { name: "/etc/sennit/edge.toml" }).fill(TRIED);
  await page.getByText("edge.mtu: 1400 → 1300").waitFor();
  await page.route("**/v1/config", (route) => route.abort());
  await page.getByRole("button", { name: "Try it for 60 s" }).click();
  await page.getByText("The daemon is asked what became of it.").waitFor();
  Object.assign(kept, { trial: TRIED, runs: TRIED, left: 50 });
  await page.unroute("**/v1/config");
  await page.getByText("Taken back in 50 s").waitFor();
  await page.getByRole("button", { name: "Keep" }).click();
  await page.getByText("It stays").waitFor();
});

test("who does not want what the keyboard began is where the keyboard was", async (t) => {
  const { page } = await look(t, edge, { daemon: { role: "operate" }, seconds: 2 });
  const card = page.locator(".card").first();
  for (const name of [/^Drill/, /^Limit/]) {
    await card.getByRole("button", { name }).press("Enter");
    await card.getByRole("button", { name: "Do not" }).press("Enter");
    assert.ok(await card.getByRole("button", { name }).evaluate((it) => it === document.activeElement));
  }
});
