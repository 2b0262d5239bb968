/** The config as it is edited: what is wrong with it, what it would change, and a trial of it. */

import type { Live, Problem } from "./live.svelte";

export interface Finding {
  severity: "error" | "warning";
  line: number;
  column: number;
  message: string;
  label?: string;
  help?: string;
}

interface Change {
  what: string;
  before?: string;
  after?: string;
}

interface Check {
  valid: boolean;
  findings: Finding[];
  host: { severity: "error" | "warning"; message: string; help?: string }[];
  changes: Change[];
  needs_restart: Change[];
  diff: string;
}

interface Text {
  file: string;
  text: string;
  version: string;
  trial?: string;
  reverts_in_seconds?: number;
}

const PATH = "/v1/config";
/** After the last key, before the daemon is asked what it thinks. */
const PAUSE_MS = 350;
/** Long enough to see that all still works. */
export const TRIAL_SECONDS = 60;
const SHOW = "Show the file again to see it.";
/** Until a daemon is asked again that did not say what became of a trial. */
const AGAIN_MS = 2_000;

export class Editor {
  file = $state("");
  text = $state("");
  /** Of this text, once the daemon has said something. */
  check = $state.raw<Check>();
  /** Seconds until it is taken back, 0 until it is known what became of it; absent without a trial. */
  left = $state<number>();
  trouble = $state("");
  /** What was done last. */
  news = $state("");
  loaded = $state(false);
  #version = "";
  #pause: ReturnType<typeof setTimeout> | undefined;
  #ticks: ReturnType<typeof setInterval> | undefined;
  #again: ReturnType<typeof setTimeout> | undefined;
  #checks = 0;
  #stopped = false;

  constructor(readonly live: Live) {}

  /** Shows the file, or what runs if that is on trial. */
  async load() {
    const { document, problem } = await this.live.call<Text>("GET", PATH);
    if (!document) return this.#fail(problem);
    this.trouble = "";
    this.file = document.file;
    this.text = document.trial ?? document.text;
    this.#version = document.version;
    this.loaded = true;
    this.#count(document.reverts_in_seconds);
    await this.#look();
  }

  edit(text: string) {
    this.text = text;
    this.news = "";
    this.check = undefined;
    clearTimeout(this.#pause);
    this.#pause = setTimeout(() => void this.#look(), PAUSE_MS);
  }

  get canTry(): boolean {
    return this.left === undefined && this.check?.valid === true && this.check.diff !== "";
  }

  /** Has the daemon run with it, until it is kept or the time is over. */
  async try() {
    const wish = { text: this.text, version: this.#version, confirm_seconds: TRIAL_SECONDS };
    const { document, problem } = await this.live.call<{ applied: boolean; report: string }>("PUT", PATH, wish);
    if (!document) {
      this.#fail(problem);
      // It may run all the same, as when it has cut off this page.
      if (problem?.code === "lost") this.#ask();
      return;
    }
    this.trouble = document.applied ? "" : document.report;
    if (document.applied) {
      this.news = "It runs on trial.";
      this.#count(TRIAL_SECONDS);
    }
  }

  async keep() {
    await this.#end("keep", `It stays, and is in ${this.file}.`);
  }

  async revert() {
    await this.#end("revert", "It is taken back.");
  }

  stop() {
    this.#stopped = true;
    clearTimeout(this.#pause);
    clearTimeout(this.#again);
    clearInterval(this.#ticks);
  }

  async #end(how: string, news: string) {
    const { problem } = await this.live.call("POST", `${PATH}/${how}`);
    if (problem) {
      // Somebody else may have been faster.
      await this.#settle();
      if (this.left !== undefined) this.#fail(problem);
      return;
    }
    this.#count(undefined);
    await this.load();
    this.news = news;
  }

  #fail(problem: Problem | undefined) {
    this.trouble = problem?.detail ?? "It does not answer.";
  }

  /** What the daemon says of the text, if it is still the same then. */
  async #look(): Promise<Check | undefined> {
    this.#checks += 1;
    const turn = this.#checks;
    const { document, problem } = await this.live.call<Check>("POST", `${PATH}/check`, { text: this.text });
    // Somebody has typed on, and what was said is of another text.
    if (turn !== this.#checks) return;
    if (!document) return void this.#fail(problem);
    this.trouble = "";
    this.check = document;
    return document;
  }

  #count(seconds: number | undefined) {
    clearInterval(this.#ticks);
    clearTimeout(this.#again);
    this.left = seconds;
    if (seconds === undefined) return;
    const endsAt = Date.now() + seconds * 1e3;
    this.#ticks = setInterval(() => {
      this.left = Math.max(0, (endsAt - Date.now()) / 1e3);
      if (this.left === 0) this.#ask();
    }, 250);
  }

  /** Nothing is edited until the daemon has said what became of the trial. */
  #ask() {
    clearInterval(this.#ticks);
    this.left = 0;
    void this.#settle();
  }

  /** Asks what became of the trial: others may have kept it, or begun one of their own. */
  async #settle() {
    const tried = this.text;
    const { document, problem } = await this.live.call<Text>("GET", PATH);
    if (!document) {
      this.#fail(problem);
      return this.#askAgain();
    }
    this.trouble = "";
    const runs = document.trial ?? document.text;
    const left = document.reverts_in_seconds;
    if (left !== undefined && runs === tried) return this.#count(left);
    const check = await this.#look();
    if (!check) return this.#askAgain();
    this.#count(undefined);
    if (left !== undefined) this.news = `Something else is on trial now. ${SHOW}`;
    // Without a change between the file and what runs.
    else if (document.text === tried && check.changes.length === 0) {
      this.#version = document.version;
      this.news = `Somebody else has kept it, and it is in ${this.file}.`;
    } else if (document.version === this.#version) this.news = "Nobody has kept it, so it was taken back.";
    else this.news = `${this.file} holds something else now. ${SHOW}`;
  }

  #askAgain() {
    clearTimeout(this.#again);
    if (!this.#stopped) this.#again = setTimeout(() => void this.#settle(), AGAIN_MS);
  }
}
