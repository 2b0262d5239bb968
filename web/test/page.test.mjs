import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { violations } from "./browser.mjs";
import { Daemon } from "./daemon.mjs";
import { edge, hub, kept } from "./documents.mjs";
import { complaints } from "./fit.mjs";
import { HOSTILE, editable, look, overflow, picture, section } from "./pages.mjs";

test("it is less than 200 KB compressed", () => {
  const dist = new URL("../dist/", import.meta.url);
  const twins = readdirSync(dist, { recursive: true }).filter((name) => name.endsWith(".gz"));
  const size = twins.reduce((sum, name) => sum + readFileSync(new URL(name, dist)).length, 0);
  console.log(`${twins.length} files, ${(size / 1000).toFixed(1)} kB compressed`);
  assert.ok(twins.length >= 4 && size < 200_000);
});

test("the documents of these tests fit the schema, and a wrong one does not", () => {
  const file = new URL("../../docs/src/schemas/sennit.status-1.json", import.meta.url);
  const schema = JSON.parse(readFileSync(file, "utf8"));
  for (const document of [edge(5), edge(50, { lostAt: 40 }), hub(5, { away: 3 })]) {
    assert.deepEqual(complaints(schema, document), []);
  }
  assert.notDeepEqual(complaints(schema, { ...edge(5), state: "fine" }), []);
  assert.notDeepEqual(complaints(schema, { ...edge(5), colour: "blue" }), []);
  assert.deepEqual(complaints(schema, costly(5)), []);
  const api = JSON.parse(readFileSync(new URL("../../docs/src/schemas/openapi.json", import.meta.url), "utf8"));
  const history = { schema: "sennit.history/1", step_seconds: 60, series: kept(["link/lte-a"], 5, "minute", 600) };
  assert.deepEqual(complaints({ ...api, $ref: "#/components/schemas/History" }, history), []);
});

/** An edge that blocks what belongs into the tunnel, with a link that its cap will not last and one where it is used up. */
function costly(seconds) {
  const status = edge(seconds);
  const beside = [
    { prefix: "10.64.0.0/10", interface: "eth1" },
    { prefix: "192.168.8.0/24", interface: "lan0" },
  ];
  status.leak = { policy: "block", in_force: true, held_before_start: true, routes: ["0.0.0.0/0", "::/0"], beside, beside_count: 5 };
  const account = { cost: 2, cap_bytes: 100 * 2 ** 30, used_bytes: 38 * 2 ** 30, cycle_end: "2026-12-14", days_left: 18, demoted: false };
  status.links[1].account = { ...account, forecast_bytes: 131 * 2 ** 30 };
  status.links[2].account = { ...account, cost: 0, used_bytes: 101 * 2 ** 30, demoted: true };
  return status;
}

test("what becomes of traffic without a tunnel, and how links stand with their caps", async (t) => {
  const { page, faults } = await look(t, costly, { seconds: 2 });
  const verdict = page.getByRole("region", { name: "Verdict" });
  assert.match(await verdict.innerText(), /Without a tunnel: ● blocked .*What belongs into it is unreachable, and was before this edge started\./s);
  const cards = await page.locator(".card").allInnerTexts();
  assert.match(cards[1], /cap will not last.*38 GiB of 100 GiB used; the cycle ends on 2026-12-14, in 18 days; 131 GiB by then.*its cost is 2/s);
  assert.match(cards[2], /cap used up.*in reserve behind all other links.*101 GiB of 100 GiB/s);
  assert.doesNotMatch(cards[0], /used/);
  assert.deepEqual(await violations(page), []);
  await picture(page, "caps");
  for (const [leak, said] of [
    [{ policy: "block", in_force: false, held_before_start: false }, /not blocked .*does not hold \(leak = "block"\): somebody has taken its routes/s],
    [{ policy: "allow", in_force: false, held_before_start: false }, /open .*leaves in the clear/s],
  ]) {
    const other = await look(t, (s) => ({ ...edge(s), leak }), { seconds: 1 });
    assert.match(await other.page.getByRole("region", { name: "Verdict" }).innerText(), said);
  }
  assert.deepEqual(faults, []);
});

test("what goes beside the tunnel is shown, and only what should not is an alarm", async (t) => {
  const { page, faults } = await look(t, costly, { seconds: 2 });
  const told = await section(page, "beside").innerText();
  assert.match(told, /Into it\s+0\.0\.0\.0\/0, ::\/0/);
  assert.match(told, /10\.64\.0\.0\/10 by eth1\s+192\.168\.8\.0\/24 by lan0\s+and 3 more/);
  assert.match(told, /● blocked/);
  assert.equal(await page.getByRole("alert").count(), 0);
  assert.deepEqual(faults, []);

  const taken = (s) => {
    const status = costly(s);
    status.leak.beside.unshift({ prefix: "0.0.0.0/1", interface: "tun0" });
    return status;
  };
  const open = (s) => {
    const leak = { policy: "allow", in_force: false, held_before_start: false };
    return { ...edge(s), state: "down", reason: "the hub does not answer", leak };
  };
  for (const [status, words] of [
    [taken, /Traffic bypasses the tunnel\.\s+0\.0\.0\.0\/1 leaves by tun0 beside the tunnel/],
    [open, /Traffic bypasses the tunnel\.\s+There is no tunnel\. What belongs into it leaves in the clear/],
  ]) {
    const other = await look(t, status, { seconds: 1 });
    assert.match(await other.page.getByRole("alert").innerText(), words);
    assert.deepEqual(await violations(other.page), []);
    await picture(other.page, status === taken ? "bypass-route" : "bypass-open");
  }
  const none = await look(t, edge, { seconds: 1 });
  assert.match(await section(none.page, "beside").innerText(), /The config routes nothing into it/);
});

test("a link says what part of the traffic it has, and as what the hub sees it", async (t) => {
  const behind = (s) => {
    const status = edge(s);
    status.links[1].public = [{ seen: ["198.51.100.7:1024", "198.51.100.7:1025"], translated: true }];
    status.links[0].public = [{ seen: ["[2001:db8::7]:443"], translated: false }];
    return status;
  };
  const { page } = await look(t, behind, { seconds: 5 });
  const cards = await page.locator(".card").allInnerTexts();
  assert.match(cards[1], /192\.0\.2\.7 · seen as 198\.51\.100\.7\n/);
  assert.doesNotMatch(cards[0], /seen as/);
  const share = (card) => Number(card.match(/Share\s+(\d+) %/)[1]);
  assert.ok(share(cards[0]) > 60 && share(cards[0]) + share(cards[1]) >= 99, cards.join());
  assert.match(await section(page, "account").innerText(), /Goes through now\s+\d+ Mb\/s\s+Of that most by one link\s+1\d\d Mb\/s, starlink/);
});

test("who may only look learns why there are no buttons, and shows a token that has more", async (t) => {
  const { page, daemon, faults } = await look(t, edge, { seconds: 2 });
  const buttons = page.getByRole("button", { name: /^(Pause|Limit|Drill|Speed test)/ });
  assert.equal(await buttons.count(), 0);
  await page.getByText("To pause, limit, drill or measure them takes the role operate.").waitFor();
  await page.getByRole("link", { name: "you may look" }).press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "rights");
  const rights = section(page, "rights");
  const row = (name) => rights.getByRole("row", { name }).locator("td").allInnerTexts();
  assert.deepEqual(await row(/see everything/), ["yes", "yes", "yes"]);
  assert.deepEqual(await row(/pause, resume and limit/), ["no", "yes", "yes"]);
  assert.deepEqual(await row(/see the config/), ["no", "no", "yes"]);
  assert.match(await rights.innerText(), /your role is read.*role operate or admin.*operate_token or admin_token/s);
  assert.deepEqual(await violations(page), []);
  await picture(page, "rights");
  await rights.getByRole("button", { name: "Use another token" }).click();
  await page.getByText("A token says what you may do.").waitFor();
  assert.equal(await page.locator(".card").count(), 0);
  daemon.role = "operate";
  await page.fill("input[type=password]", "operators-own");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Pause starlink" }).waitFor();
  assert.equal(daemon.streams.size, 1);
  await page.getByRole("button", { name: "Use another token" }).click();
  await page.getByRole("button", { name: "Go on without it" }).click();
  await page.locator(".card").first().waitFor();
  assert.deepEqual(faults, []);
  const admin = await look(t, hub, { daemon: { role: "admin" }, seconds: 1 });
  assert.equal(await admin.page.getByRole("button", { name: "Use another token" }).count(), 0);
  assert.doesNotMatch(await section(admin.page, "rights").innerText(), /pause/);
});

test("what a link carries is known at first sight", async (t) => {
  const told = (s) => {
    const status = edge(s);
    Object.assign(status.links[0], { sent_bytes_per_second: 1e6, received_bytes_per_second: 2e6 });
    return status;
  };
  const { page } = await look(t, told, { daemon: { speaks: false }, seconds: 0 });
  assert.match(await page.locator(".card").first().innerText(), /↓ 16 Mb\/s.*↑ 8\.0 Mb\/s/s);
});

test("what one may do comes with the page", async (t) => {
  const refuses = { status: 503, detail: "not now" };
  const { page } = await look(t, edge, { daemon: { role: "operate", refuses }, seconds: 0 });
  await page.getByRole("button", { name: "Pause starlink" }).waitFor();
});

test("links are seen before anything is asked, and the daemon is asked for its status once", async (t) => {
  const watch = () => {
    window.order = [];
    const ask = window.fetch;
    window.fetch = (...asked) => {
      window.order.push(asked[0]);
      return ask(...asked);
    };
    const look = () => {
      const isThere = document.querySelector(".card");
      requestAnimationFrame(isThere ? () => window.order.push("seen") : look);
    };
    requestAnimationFrame(look);
  };
  const options = { prepare: (page) => page.addInitScript(watch) };
  const { page, daemon } = await look(t, edge, { options, seconds: 2 });
  await page.waitForSelector("#events");
  const order = await page.evaluate(() => window.order);
  assert.deepEqual(order.slice(0, 2), ["seen", "/v1/live?flows=true&paths=own"]);
  assert.equal(daemon.asked.length, 1);
});

test("an edge: verdict, links with reasons, classes, flows with reasons", async (t) => {
  const { page, faults } = await look(t, edge);
  assert.match(await page.textContent("h1"), /Degraded\. Link marina does not work\./);
  const cards = await page.locator(".card").allTextContents();
  assert.equal(cards.length, 4);
  assert.match(cards[0], /starlink.*up.*1\d\d Mb\/s.*it carries as much as congestion control lets it/s);
  assert.match(cards[2], /standby.*waits until links of tier 1 fail/s);
  assert.match(cards[3], /down.*wlan0 has no carrier/s);
  const classes = await page.textContent("section:has(> #classes)");
  assert.match(classes, /default.*starlink 69 %, lte-a 31 %.*voice/s);
  await page.click(".why summary");
  assert.match(await page.textContent("section:has(#flows)"), /packets take turns on both/);
  await page.locator(".charts").scrollIntoViewIfNeeded();
  await page.locator("canvas").nth(3).waitFor();
  assert.equal(await page.locator("canvas").count(), 4);
  assert.deepEqual(faults, []);
  await picture(page, "edge-light");
});

test("what the page came with is shown before the daemon has said anything else, and runs nothing", async (t) => {
  const named = (s) => {
    const status = edge(s);
    status.links[0].name = `</script>${HOSTILE}`;
    return status;
  };
  const { page, faults } = await look(t, named, { daemon: { speaks: false }, seconds: 0 });
  const cards = await page.locator(".card").allTextContents();
  assert.equal(cards.length, 4);
  assert.ok(cards[0].includes(`</script>${HOSTILE}`));
  assert.equal(await page.locator("script#status").count(), 0);
  assert.deepEqual(faults, []);
});

test("what a class has of a link is shown in both directions", async (t) => {
  const { page, faults } = await look(t, edge, { seconds: 2 });
  const rows = await page.locator("section:has(> #shared) tbody tr").all();
  const cells = (row) => row.locator("th, td").allInnerTexts();
  const words = await Promise.all(rows.map(async (row) => (await cells(row)).join("|")));
  assert.deepEqual(words, [
    "voice|starlink|up, held|20 Mb/s|10 Mb/s|200 kb/s|0.0 ms|0|0|1.0 ms",
    "voice|starlink|down|180 Mb/s|90 Mb/s|300 kb/s|3.0 ms|10|5|1.0 ms",
  ]);
  assert.deepEqual(faults, []);
});

test("bounds of a link are shown, and whose they are", async (t) => {
  const bounded = (s) => {
    const status = edge(s);
    const up = { up_limit_bytes_per_second: 1e6, up_limited_by_operator: true };
    Object.assign(status.links[0], { ...up, down_limit_bytes_per_second: 4e6, limited_by_operator: true });
    return status;
  };
  const { page, daemon } = await look(t, bounded, { daemon: { role: "operate" }, seconds: 2 });
  const card = page.locator(".card").first();
  const words = await card.textContent();
  assert.match(words, /at most 8\.0 Mb\/s up, as the operator says.*at most 32 Mb\/s down, as the config says/s);
  // What the config says does not become the operator's.
  await card.getByRole("button", { name: /^Limit/ }).click();
  await card.getByRole("button", { name: "Limit starlink" }).click();
  await page.waitForTimeout(200);
  const bounds = { up_bytes_per_second: 1e6, down_bytes_per_second: 0 };
  assert.deepEqual(daemon.commands, [{ command: "limit", link: "starlink", bounds }]);
});

test("a class that may use some links names them, and a link that none may use is no trouble", async (t) => {
  const confined = (s) => {
    const status = edge(s);
    status.links[2].name = "spare";
    for (const tunnel of status.tunnels) {
      tunnel.links = ["starlink", "lte-a"];
      tunnel.paths = tunnel.paths.filter((path) => tunnel.links.includes(path.link));
    }
    return status;
  };
  const { page } = await look(t, confined, { seconds: 2 });
  await section(page, "classes").getByText("over starlink, lte-a only").nth(1).waitFor();
  const card = await page.locator(".card").nth(2).innerText();
  assert.match(card, /spare.*unused.*no class may use it/s);
});

test("a link keeps its colour in the chart when another is taken away", async (t) => {
  const shrinking = (s) => {
    const status = edge(s);
    if (s > 5) status.links.shift();
    return status;
  };
  const { page } = await look(t, shrinking, { seconds: 10 });
  const color = (element) => element.evaluate((it) => it.className.match(/\bc\d\b/)[0]);
  const rows = await section(page, "throughput").locator("tbody tr").all();
  const cards = await page.locator(".card").all();
  assert.equal(rows.length, 3);
  for (const [at, card] of cards.entries()) assert.equal(await color(rows[at]), await color(card));
});

test("a hub with many sites is asked once, and for no paths", async (t) => {
  const { daemon } = await look(t, hub, { seconds: 3 });
  assert.deepEqual(daemon.asked.map((it) => it.get("paths")), ["own"]);
});

test("who may operate pauses a link, and loses it only when sure", async (t) => {
  const wishes = [];
  const result = { cut_seconds: 5, gap_seconds: 0.231, gap_before_seconds: 0.012, survived: true, interrupted: false };
  const polls = ["waiting", "lost", "done"];
  const answers = {
    "POST /v1/links/starlink/drill": (wish) => {
      wishes.push(wish);
      return { document: { state: "waiting" } };
    },
    "GET /v1/links/starlink/drill": () => {
      const state = polls.shift();
      const found = { ...result, sent_pings: 2800, answered_pings: 2710 };
      return { document: { state, ...(state === "done" && { result: found }) } };
    },
  };
  const { page, daemon } = await look(t, edge, { daemon: { role: "operate", answers }, seconds: 5 });
  const card = page.locator(".card").first();
  await card.getByRole("button", { name: "Pause starlink" }).click();
  await card.getByRole("button", { name: /Drill/ }).click();
  assert.deepEqual(await violations(page), []);
  await card.getByRole("button", { name: "Do not" }).click();
  await card.getByRole("button", { name: /Drill/ }).click();
  await card.getByRole("button", { name: "Lose it for 5 s" }).press("Enter");
  await page.waitForTimeout(200);
  assert.match(await page.evaluate(() => document.activeElement.textContent), /^Limit\s*starlink/, "a link that is lost has no drill");
  await card.getByText("It is lost, and pings go on.").waitFor();
  assert.deepEqual(await violations(page), []);
  await card.getByText("Nothing came through for 231 ms (before: 12 ms); 90 of 2800 pings were lost.").waitFor();
  assert.deepEqual(wishes, [{ milliseconds: 5000 }]);
  await card.getByRole("button", { name: /^Limit/ }).click();
  assert.deepEqual(await violations(page), []);
  await card.getByLabel("down").fill("8.4");
  await card.getByRole("button", { name: "Limit starlink" }).click();
  await page.waitForTimeout(200);
  assert.deepEqual(daemon.commands, [
    { command: "link", link: "starlink", order: "pause" },
    {
      command: "limit",
      link: "starlink",
      bounds: { up_bytes_per_second: 0, down_bytes_per_second: 1_050_000 },
    },
  ]);
  const reader = await look(t, edge, { seconds: 1 });
  assert.equal(await reader.page.getByRole("button", { name: /Pause/ }).count(), 0);
});

test("who may operate measures a link, sees how far it is, and what it carries", async (t) => {
  const wishes = [];
  const test = { schema: "sennit.speedtest/1", state: "none", most_bytes: 1, measured: [], interrupted: false };
  const way = (bits_per_second) => ({ bits_per_second, bytes: 1, seconds: 8, idle_rtt_seconds: 0.03, loaded_rtt_seconds: 0.06 });
  let polls = 0;
  const answers = {
    "POST /v1/speedtest": (wish) => {
      wishes.push(wish);
      if (!wish.metered) return { status: 409, document: { code: "metered", detail: "lte-a may carry 20 MB in each direction" } };
      return { document: { ...test, state: "running", measured: [{ link: "lte-a" }] } };
    },
    "GET /v1/speedtest": () => {
      if (wishes.length === 0) return { document: test };
      polls += 1;
      const now = { link: "lte-a", way: "up", elapsed_seconds: 4, most_seconds: 8, bits_per_second: 5e6 };
      if (polls < 4) return { document: { ...test, state: "running", measured: [{ link: "lte-a" }], now } };
      const measured = [{ link: "lte-a", down: way(42e6), up: way(5.5e6) }];
      return { document: { ...test, state: "done", measured } };
    },
  };
  const { page, faults } = await look(t, edge, { daemon: { role: "operate", answers }, seconds: 5 });
  const card = page.locator(".card").nth(1);
  await card.getByRole("button", { name: "Speed test of lte-a" }).click();
  await card.getByText("lte-a may carry 20 MB in each direction").waitFor();
  assert.deepEqual(await violations(page), []);
  await card.getByRole("button", { name: "Measure lte-a" }).click();
  const progress = card.getByRole("progressbar", { name: "Measuring lte-a" });
  await card.getByText("up 5.0 Mb/s").waitFor();
  assert.equal(await progress.getAttribute("value"), "0.75");
  assert.ok(await page.getByRole("button", { name: "Speed test of the tunnel" }).isDisabled());
  assert.deepEqual(await violations(page), []);
  await picture(page, "speedtest-runs");
  await card.getByText("42 Mb/s").waitFor();
  assert.match(await card.getByRole("status").textContent(), /lte-a carries.*down.*42 Mb\/s.*30 ms.*60 ms.*up.*5\.5 Mb\/s/s);
  assert.deepEqual(await violations(page), []);
  await picture(page, "speedtest");
  assert.deepEqual(wishes, [
    { links: ["lte-a"], metered: false },
    { links: ["lte-a"], metered: true },
  ]);
  assert.deepEqual(faults, []);
});

test("a speed test that runs is followed by a page that is loaded, whatever becomes of one answer", async (t) => {
  const test = { schema: "sennit.speedtest/1", state: "running", most_bytes: 1, measured: [{ link: "lte-a" }], interrupted: false };
  const now = { link: "lte-a", way: "down", elapsed_seconds: 2, most_seconds: 8, bits_per_second: 5e6 };
  let polls = 0;
  let done = false;
  const answers = {
    "POST /v1/speedtest": () => ({ status: 409, document: { code: "speedtest_runs", detail: "a speed test runs already" } }),
    "DELETE /v1/speedtest": () => ({ status: 503, document: { code: "busy", detail: "the daemon is stopping" } }),
    "GET /v1/speedtest": () => {
      polls += 1;
      if (polls === 2) return { status: 503, document: { code: "busy", detail: "not now" } };
      if (!done) return { document: { ...test, now } };
      const down = { bits_per_second: 42e6, bytes: 1, seconds: 8 };
      return { document: { ...test, state: "done", measured: [{ link: "lte-a", down }] } };
    },
  };
  const { page, faults } = await look(t, edge, { daemon: { role: "operate", answers }, seconds: 2 });
  const card = page.locator(".card").nth(1);
  const progress = card.getByRole("progressbar", { name: "Measuring lte-a" });
  await progress.waitFor();
  await page.waitForTimeout(1500);
  assert.ok(polls >= 3 && (await progress.isVisible()), "a missing answer ends nothing");
  await card.getByRole("button", { name: "Stop measuring lte-a" }).click();
  await card.getByRole("alert").getByText("the daemon is stopping").waitFor();
  done = true;
  await card.getByText("42 Mb/s").waitFor();
  // Somebody else was first.
  done = false;
  await page.locator(".card").first().getByRole("button", { name: "Speed test of starlink" }).click();
  await page.locator(".card").first().getByText("a speed test runs already").waitFor();
  await progress.waitFor();
  done = true;
  await progress.waitFor({ state: "detached" });
  assert.deepEqual(faults, []);
});

test("who administers edits the config, sees what is wrong, tries it and keeps it", async (t) => {
  const text = "# mine\n[edge]\nmtu = 1400\n";
  const { kept, answers } = editable(text);
  const { page, faults } = await look(t, edge, { daemon: { role: "admin", answers }, seconds: 5 });
  await page.getByText("Config", { exact: true }).click();
  const area = page.getByRole("textbox", { name: "/etc/sennit/edge.toml" });
  assert.equal(await area.inputValue(), text);
  const attempt = page.getByRole("button", { name: "Try it for 60 s" });
  assert.ok(await attempt.isDisabled());

  await area.fill(text.replace("1400", "12"));
  await page.getByText("an MTU below 1280").waitFor();
  assert.ok(await attempt.isDisabled());
  assert.deepEqual(await violations(page), []);
  await page.getByRole("button", { name: "Line 3, column 7" }).click();
  assert.equal(await area.evaluate((it) => it.value.slice(it.selectionStart, it.selectionEnd)), "12");
  await picture(page, "config-error");

  await area.fill(text.replace("1400", "1300"));
  await page.getByText("edge.mtu: 1400 → 1300").waitFor();
  assert.match(await page.getByRole("region", { name: "What you have changed" }).textContent(), /-mtu = 1400\n\+mtu = 1300/);
  await attempt.click();
  await page.getByRole("timer").waitFor();
  assert.match(await page.getByRole("timer").textContent(), /Taken back in (60|59) s/);
  assert.deepEqual(await violations(page), []);
  await picture(page, "config-trial");
  await page.getByRole("button", { name: "Keep" }).click();
  await page.getByText("It stays, and is in /etc/sennit/edge.toml.").waitFor();
  assert.equal(kept.file, "# mine\n[edge]\nmtu = 1300\n");
  assert.deepEqual(kept.asked, [{ text: kept.file, version: "v1", confirm_seconds: 60 }]);
  assert.deepEqual(faults, []);
  const operator = await look(t, edge, { daemon: { role: "operate", answers }, seconds: 1 });
  assert.equal(await operator.page.getByText("Config", { exact: true }).count(), 0);
});

test("the config editor fits a phone, and shows text as text", async (t) => {
  const { answers } = editable(`# ${HOSTILE}\n[edge]\nmtu = 1400\n`);
  const options = { viewport: { width: 360, height: 740 } };
  const { page, faults } = await look(t, edge, { daemon: { role: "admin", answers }, options, seconds: 2 });
  await page.getByText("Config", { exact: true }).click();
  await page.getByRole("textbox", { name: "/etc/sennit/edge.toml" }).fill("mtu = 12");
  await page.getByText("an MTU below 1280").waitFor();
  assert.equal(await overflow(page), 0);
  assert.equal(await page.locator("main script, main img").count(), 0);
  assert.deepEqual(faults, []);
});

test("who administers a hub invites a site, and gets a token and its QR code", async (t) => {
  const wishes = [];
  const open = [{ site: "ship-3", created: "2026-11-26T10:00:00Z", expires: "2026-11-27T10:00:00Z", expired: false }];
  const answers = {
    "GET /v1/invitations": () => ({ document: { port: 443, invitations: open } }),
    "POST /v1/invitations": (wish) => {
      wishes.push(wish);
      if (wish.lans.length > 0) return { status: 400, document: { code: "bad_request", detail: "127.0.0.0/8 cannot be behind a site" } };
      open.unshift({ ...open[0], site: wish.site });
      const qr = ["1111111", "1000001", "1011101", "1011101", "1011101", "1000001", "1111111"];
      return { document: { site: wish.site, token: "sennit_AQAAAA", expires: "2026-11-27T14:00:00Z", qr } };
    },
    "DELETE /v1/invitations/van-99": () => {
      open.shift();
      return { document: {} };
    },
    "DELETE /v1/invitations/ship-3": () => {
      return { status: 404, document: { code: "not_found", detail: "site `ship-3` has no invitation that waits to be used" } };
    },
  };
  const { page, faults } = await look(t, hub, { daemon: { role: "admin", answers }, seconds: 3 });
  await page.getByText("Invitations", { exact: true }).click();
  await page.getByText("ship-3", { exact: true }).waitFor();
  await page.getByLabel("Site", { exact: true }).fill("van-99");
  await page.getByLabel("Where it reaches this hub").fill("203.0.113.10:443, [2001:db8::1]:443");
  await page.getByLabel("Networks behind it").fill("127.0.0.0/8");
  await page.getByRole("button", { name: "Invite" }).click();
  await page.getByText("cannot be behind a site").waitFor();
  await page.getByLabel("Networks behind it").fill("");
  await page.getByRole("button", { name: "Invite" }).click();
  const code = page.getByRole("img", { name: "The token as a QR code" });
  await code.waitFor();
  assert.equal(await page.getByRole("textbox", { name: "Token" }).inputValue(), "sennit_AQAAAA");
  assert.match(await code.locator("path").getAttribute("d"), /^M0 0h7v1h-7zM0 1h1v1h-1zM6 1h1v1h-1z/);
  await page.getByText("van-99", { exact: true }).last().waitFor();
  assert.deepEqual(wishes[1], { site: "van-99", hubs: ["203.0.113.10:443", "[2001:db8::1]:443"], lans: [] });
  assert.deepEqual(await violations(page), []);
  await picture(page, "invitations");
  await page.getByRole("button", { name: "Withdraw the invitation of van-99" }).click();
  await code.waitFor({ state: "detached" });
  await page.getByText("van-99").first().waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Withdraw the invitation of ship-3" }).click();
  await page.getByText("has no invitation that waits").waitFor();
  assert.deepEqual(faults, []);
  for (const [status, role] of [[hub, "operate"], [edge, "admin"]]) {
    const other = await look(t, status, { daemon: { role, answers }, seconds: 1 });
    assert.equal(await other.page.getByText("Invitations", { exact: true }).count(), 0);
  }
});

test("names are shown, not run", async (t) => {
  for (const status of [(s) => edge(s, { hostile: HOSTILE }), (s) => hub(s, { hostile: HOSTILE })]) {
    const { page, faults } = await look(t, status, { seconds: 5 });
    assert.ok((await page.textContent("main")).includes(HOSTILE));
    assert.equal(await page.locator("main script, main img").count(), 0);
    assert.equal(await overflow(page), 0);
    assert.deepEqual(faults, []);
  }
});

test("a phone of 360 pixels needs no sideways scroll", async (t) => {
  for (const [name, status] of Object.entries({ edge, hub })) {
    const options = { viewport: { width: 360, height: 740 }, deviceScaleFactor: 2 };
    const { page } = await look(t, status, { options });
    assert.equal(await overflow(page), 0, name);
    await picture(page, `${name}-360`);
  }
});

test("axe finds nothing against WCAG AA, dark or light", async (t) => {
  for (const colorScheme of ["dark", "light"]) {
    for (const [name, status] of Object.entries({ edge, hub })) {
      const { page } = await look(t, status, { options: { colorScheme }, seconds: 40 });
      await page.evaluate(() => document.querySelectorAll("details").forEach((it) => (it.open = true)));
      assert.deepEqual(await violations(page), [], `${name}, ${colorScheme}`);
      if (colorScheme === "dark" || name === "hub") await picture(page, `${name}-${colorScheme}`);
    }
  }
});

test("the keyboard reaches everything, and moves through time", async (t) => {
  const { page } = await look(t, edge);
  const all = "a, button:enabled, input, select, summary, [tabindex='0']";
  const wanted = await page.locator(all).count();
  const reached = new Set();
  for (let i = 0; i < wanted + 1; i += 1) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate((all) => {
      const visible = getComputedStyle(document.activeElement).outlineStyle !== "none";
      return visible ? [...document.querySelectorAll(all)].indexOf(document.activeElement) : -1;
    }, all);
    if (at >= 0) reached.add(at);
  }
  assert.equal(reached.size, wanted);
  await page.focus("[role=slider]");
  await page.locator("canvas").first().waitFor();
  await page.keyboard.press("ArrowLeft");
  assert.match(await page.innerText("caption"), /^At \d\d:\d\d:\d\d$/);
  await page.keyboard.press("Escape");
  assert.equal(await page.innerText("caption"), "Now");
});

test("it says that the daemon is lost, and comes back with it", async (t) => {
  const { page, daemon, faults } = await look(t, edge, { seconds: 5 });
  await daemon.stop();
  await page.waitForSelector("[role=alert] >> text=The daemon is lost");
  assert.match(await page.textContent(".pulse"), /lost/);
  await picture(page, "lost");
  const again = await new Daemon((s) => edge(s + 30)).start(daemon.port);
  t.after(() => again.stop());
  await page.waitForSelector(".pulse.live", { timeout: 10_000 });
  assert.equal(await page.locator("[role=alert]").count(), 0);
  assert.match(await page.textContent("section:has(#events)"), /this page has the daemon back/);
  assert.deepEqual(faults, []);
});

test("it asks for a token where one is needed, and keeps it in the tab", async (t) => {
  const { page } = await look(t, edge, { daemon: { token: "right" } });
  await page.fill("input[type=password]", "wrong");
  await page.keyboard.press("Enter");
  await page.waitForSelector("text=does not know this token");
  assert.deepEqual(await violations(page), []);
  await picture(page, "token");
  await page.fill("input[type=password]", "right");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".card");
  await page.reload();
  await page.waitForSelector(".card");
  assert.equal(await page.evaluate(() => localStorage.getItem("sennit-token")), null);
  await page.getByRole("button", { name: "Use another token" }).click();
  await page.fill("input[type=password]", "wrong");
  await page.keyboard.press("Enter");
  await page.waitForSelector("text=does not know this token");
  await page.getByRole("button", { name: "Go on without it" }).click();
  await page.waitForSelector(".card");
});
