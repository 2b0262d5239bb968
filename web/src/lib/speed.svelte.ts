/** Speed tests: the one that runs, and what was found of each link. */

import type { Live, Problem } from "./live.svelte";

export interface Way {
  bits_per_second: number;
  bytes: number;
  seconds: number;
  idle_rtt_seconds?: number;
  loaded_rtt_seconds?: number;
}

export interface Measured {
  /** Absent for the tunnel with all its links. */
  link?: string;
  down?: Way;
  up?: Way;
}

interface Speedtest {
  state: "none" | "running" | "done" | "failed";
  measured: Measured[];
  now?: { link?: string; way: "down" | "up"; elapsed_seconds: number; most_seconds: number; bits_per_second?: number };
  interrupted: boolean;
  problem?: Problem & { message: string };
}

const PATH = "/v1/speedtest";
const POLL_MS = 500;
/** So many answers in a row may be missing before the daemon is taken for gone. */
const MOST_FAILURES = 60;
/** Whoever is told so is told so again. */
const DENIED = ["unauthorized", "forbidden", "not_found"];
/** Between the two directions of a test, for the progress of both as one. */
const WAYS = ["down", "up"];

export class Speed {
  /** The test that runs. */
  running = $state.raw<Speedtest>();
  /** Links as keys; the tunnel is the empty one. */
  results = $state.raw(new Map<string, Measured>());
  /** Why there is no result, by link. */
  problems = $state.raw(new Map<string, Problem>());
  #wanted = "";

  constructor(readonly live: Live) {}

  /** The link that is measured; empty for the tunnel, absent while nothing is. */
  get target(): string | undefined {
    return this.running && (this.running.now?.link ?? this.#wanted);
  }

  /** Of both directions, 0 to 1. */
  get progress(): number {
    const now = this.running?.now;
    if (!now) return 0;
    return (WAYS.indexOf(now.way) + Math.min(now.elapsed_seconds / now.most_seconds, 1)) / WAYS.length;
  }

  /** Follows the test that runs already, if one does: somebody else has started it, or this page before it was loaded anew. */
  async find() {
    const { document } = await this.live.call<Speedtest>("GET", PATH);
    if (document?.state === "running") await this.#follow(document);
  }

  /** Starts a test, and follows it until it is over. */
  async start(link: string, metered: boolean) {
    this.#wanted = link;
    this.#say(link, undefined);
    const wish = { links: link ? [link] : [], metered };
    const { document, problem } = await this.live.call<Speedtest>("POST", PATH, wish);
    if (document) return this.#follow(document);
    this.#say(link, problem);
    if (problem?.code === "speedtest_runs") await this.find();
  }

  async #follow(test: Speedtest) {
    if (this.running) return;
    let failures = 0;
    while (test.state === "running") {
      const last = test.measured.at(-1);
      if (last) this.#wanted = last.link ?? "";
      this.running = test;
      await new Promise((done) => setTimeout(done, POLL_MS));
      const { document, problem } = await this.live.call<Speedtest>("GET", PATH);
      failures = document ? 0 : failures + 1;
      if (problem && (failures > MOST_FAILURES || DENIED.includes(problem.code))) {
        this.#say(this.#wanted, problem);
        break;
      }
      test = document ?? test;
    }
    this.running = undefined;
    if (test.problem) this.#say(this.#wanted, { code: test.problem.code, detail: test.problem.message });
    for (const measured of test.measured) {
      if (measured.down || measured.up) this.results = new Map(this.results).set(measured.link ?? "", measured);
    }
  }

  async stop() {
    const { problem } = await this.live.call("DELETE", PATH);
    if (problem) this.#say(this.target ?? "", problem);
  }

  /** What was found wrong is not said any more. */
  forgive(link: string) {
    this.#say(link, undefined);
  }

  #say(link: string, problem: Problem | undefined) {
    const problems = new Map(this.problems);
    if (problem) problems.set(link, problem);
    else problems.delete(link);
    this.problems = problems;
  }
}
