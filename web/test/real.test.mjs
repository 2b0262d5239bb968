// The page before a hub and an edge that run, once through: what the others look at is a stand-in.

import assert from "node:assert/strict";
import { test } from "node:test";
import { launch, open, violations } from "./browser.mjs";
import { Pair, lacking } from "./real.mjs";

const why = lacking();
if (why) console.log(`SKIPPED: the page before real daemons: ${why}`);

test("a link is paused and a site invited at daemons that run", { skip: why, timeout: 60_000 }, async (t) => {
  const pair = new Pair();
  t.after(() => pair.stop());
  await pair.start();
  const browser = await launch();
  t.after(() => browser.close());

  const edge = await open(browser, pair.edge);
  const card = edge.page.locator(".card").first();
  await card.getByText("up", { exact: true }).first().waitFor();
  assert.match(await card.textContent(), /dsl.*up/s);
  assert.deepEqual(await violations(edge.page), []);
  const events = edge.page.locator("section:has(#events)");
  await events.getByText("class default has a tunnel").first().waitFor();
  await card.getByRole("button", { name: "Pause dsl" }).click();
  await card.getByText("paused by the operator").waitFor();
  await events.getByText("an operator has paused link dsl").waitFor();
  await card.getByRole("button", { name: "Resume dsl" }).click();
  await card.getByRole("button", { name: "Pause dsl" }).waitFor();
  const kept = async () => {
    const { series } = await (await fetch("/v1/history?step=second&since=300&series=link/")).json();
    return series.length > 0 && series.map((it) => it.name).join();
  };
  const names = await edge.page.waitForFunction(kept, undefined, { polling: 500 });
  assert.equal(await names.jsonValue(), "link/dsl,link/lte");
  assert.deepEqual(edge.faults, []);

  const hub = await open(browser, pair.hub);
  await hub.page.getByRole("rowheader", { name: "van-07" }).last().waitFor();
  await hub.page.getByText("Invitations", { exact: true }).click();
  await hub.page.getByText("No invitation waits to be used.").waitFor();
  await hub.page.getByLabel("Site", { exact: true }).fill("van-08");
  await hub.page.getByLabel("Where it reaches this hub").fill("203.0.113.10:443");
  await hub.page.getByRole("button", { name: "Invite" }).click();
  await hub.page.getByText(/This token lets van-08 in once/).waitFor();
  assert.match(await hub.page.getByRole("textbox", { name: "Token" }).inputValue(), /^sennit_/);
  await hub.page.getByRole("button", { name: "Withdraw the invitation of van-08" }).click();
  await hub.page.getByText("No invitation waits to be used.").waitFor();
  assert.deepEqual(await violations(hub.page), []);
  assert.deepEqual(hub.faults, []);
});
