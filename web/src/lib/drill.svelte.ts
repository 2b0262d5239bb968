/** A drill: a link is lost on purpose while the daemon pings, and this page asks how that goes. */

import type { Live } from "./live.svelte";

export interface Drilled {
  cut_seconds: number;
  gap_seconds: number;
  gap_before_seconds: number;
  survived: boolean;
  interrupted: boolean;
  sent_pings: number;
  answered_pings: number;
}

interface Run {
  state: "none" | "waiting" | "lost" | "done" | "failed";
  result?: Drilled;
  problem?: string;
}

/** The daemon ends a drill that nobody asks after for four seconds. */
const POLL_MS = 500;
/** So many answers in a row may be missing: the page itself may come over the link. */
const MOST_FAILURES = 20;

export class Drill {
  /** How far the one that runs is. */
  phase = $state<"waiting" | "lost">();
  result = $state.raw<Drilled>();
  problem = $state("");

  constructor(
    readonly live: () => Live,
    /** The name of the link. */
    readonly link: () => string,
  ) {}

  get #path() {
    return `/v1/links/${encodeURIComponent(this.link())}/drill`;
  }

  async start(milliseconds: number) {
    this.result = undefined;
    this.problem = "";
    const path = this.#path;
    const { document, problem } = await this.live().call<Run>("POST", path, { milliseconds });
    if (document) await this.#follow(path, document);
    else this.problem = problem?.detail ?? "";
  }

  async stop() {
    const { problem } = await this.live().call("DELETE", this.#path);
    if (problem) this.problem = problem.detail;
  }

  async #follow(path: string, run: Run) {
    let failures = 0;
    while (run.state === "waiting" || run.state === "lost") {
      this.phase = run.state;
      await new Promise((done) => setTimeout(done, POLL_MS));
      const { document, problem } = await this.live().call<Run>("GET", path);
      failures = document ? 0 : failures + 1;
      if (problem && failures > MOST_FAILURES) {
        this.problem = problem.detail;
        break;
      }
      run = document ?? run;
    }
    this.phase = undefined;
    this.result = run.result;
    if (run.state === "failed") this.problem = run.problem ?? "The drill has failed.";
  }
}
