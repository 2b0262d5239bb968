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

export class Editor {
  file = $state("");
  text = $state("");
  /** Of this text, once the daemon has said something. */
  check = $state.raw<Check>();
  /** Seconds until it is taken back; absent while nothing is on trial. */
  left = $state<number>();
  trouble = $state("");
  /** What was done last. */
  news = $state("");
  loaded = $state(false);
  #version = "";
  #endsAt = 0;
  #pause: ReturnType<typeof setTimeout> | undefined;
  #ticks: ReturnType<typeof setInterval> | undefined;
  #checks = 0;

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
    if (!document) return this.#fail(problem);
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
    clearTimeout(this.#pause);
    clearInterval(this.#ticks);
  }

  async #end(how: string, news: string) {
    const { problem } = await this.live.call("POST", `${PATH}/${how}`);
    if (problem) return this.#fail(problem);
    this.#count(undefined);
    await this.load();
    this.news = news;
  }

  #fail(problem: Problem | undefined) {
    this.trouble = problem?.detail ?? "It does not answer.";
  }

  async #look() {
    this.#checks += 1;
    const turn = this.#checks;
    const { document, problem } = await this.live.call<Check>("POST", `${PATH}/check`, { text: this.text });
    // Somebody has typed on, and what was said is of another text.
    if (turn !== this.#checks) return;
    if (!document) return this.#fail(problem);
    this.trouble = "";
    this.check = document;
  }

  #count(seconds: number | undefined) {
    clearInterval(this.#ticks);
    this.left = seconds;
    if (seconds === undefined) return;
    this.#endsAt = Date.now() + seconds * 1e3;
    this.#ticks = setInterval(() => {
      const left = (this.#endsAt - Date.now()) / 1e3;
      if (left > 0) {
        this.left = left;
        return;
      }
      this.#count(undefined);
      this.news = "Nobody has kept it, so it was taken back.";
      void this.#look();
    }, 250);
  }
}
