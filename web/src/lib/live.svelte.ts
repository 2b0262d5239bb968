/** The status each second, as the daemon streams it. */

import { drawn } from "./drawn";
import { wantsFlows } from "./flows";
import type { Told } from "./journal.svelte";
import { session } from "./memory";
import { mayAct, type Role } from "./rights";
import type { Status } from "./status";
import { sentence } from "./units";

/** Why the daemon did not do something. */
export interface Problem {
  /** A word for programs. */
  code: string;
  detail: string;
}

export interface Answer<T> {
  document?: T;
  problem?: Problem;
}

/** Asks the daemon for what is at a path. */
export type Ask = <T>(path: string) => Promise<Answer<T>>;

/** Whoever hears what the daemon says. */
export interface Hearer {
  onStatus(status: Status): void;
  onEvent(event: Told): void;
  /** From now on events come, and those before may have been missed. */
  onBegin(): void;
}

/** `waiting` is for a daemon that is there, and has nothing new for this page. */
export type Phase = "connecting" | "live" | "waiting" | "lost" | "locked" | "refused";

const TOKEN = "sennit-token";
/** The daemon speaks each second; after this it is not there, or the way to it is not. */
const SILENCE_MS = 5_000;
/** If the clock says that it was silent for longer, this computer was asleep. */
const ASLEEP_MS = 2 * SILENCE_MS;
/** Between two looks at whether it is silent. */
const LOOK_MS = 1_000;
/** An answer that takes longer is lost, as when a config on trial has cut off the page. */
const ANSWER_MS = 30_000;
/** A wait that is asked for is not longer than this. */
const LONGEST_WAIT_S = 60;
/** Why the page itself ends a stream: to open another at once. */
const AGAIN = "again";
const SILENCE = "silence";
const RETRY_MS = [500, 1_000, 2_000, 5_000];

/** Who asks must show a token, or may not ask. */
class Denied extends Error {
  constructor(
    readonly phase: "locked" | "refused",
    detail: string,
  ) {
    super(detail);
  }
}

/** The daemon answers, and not what it is asked for. */
class Answered extends Error {}

/** The daemon has no room now, and asks to wait for so long. */
class Busy extends Error {
  constructor(
    readonly milliseconds: number,
    detail: string,
  ) {
    super(detail);
  }
}

export class Live {
  phase = $state<Phase>("connecting");
  status = $state.raw<Status>();
  /** Why there is nothing, or nothing new. */
  trouble = $state("");
  /** When the daemon told its status last, by this clock. */
  toldAt = $state(Date.now());
  /** What is shown may not be so any more. */
  stale = $state(false);
  /** With the busiest flows, which cost the daemon a little more. */
  #flows = false;
  /** It is the reader who wants another token, and not the daemon. */
  asked = $state(false);
  /** A token that the daemon has not accepted yet: until then the one before it is kept. */
  #tried: string | undefined;
  /** What the daemon lets this reader do; nothing before it has said so. */
  role = $state<Role>();
  #abort = new AbortController();
  /** Counts beginnings and ends, so that who follows the daemon knows when it is over. */
  #turn = 0;

  constructor(readonly hearer: Hearer) {}

  token(): string | null {
    return session.read(TOKEN);
  }

  /** Tries this token at once. */
  unlock(token: string) {
    this.#tried = token;
    this.role = undefined;
    this.phase = "connecting";
    void this.run();
  }

  wantFlows(flows: boolean) {
    if (flows === this.#flows) return;
    this.#flows = flows;
    this.#abort.abort(AGAIN);
  }

  stop() {
    this.#turn += 1;
    this.#abort.abort("stop");
  }

  /** Asks the reader for another token. */
  lock() {
    this.stop();
    this.#tried = undefined;
    this.asked = true;
    this.phase = "locked";
    this.trouble = "";
  }

  /** Follows the daemon until it wants a token that is not there. */
  async run() {
    const turn = (this.#turn += 1);
    // What the page came with is to be seen before anything else is asked.
    if (this.#begin()) await drawn();
    let failures = 0;
    while (turn === this.#turn) {
      this.#abort = new AbortController();
      let asked = 0;
      try {
        await this.#follow(() => (failures = 0));
        if (turn !== this.#turn) return;
        if (this.#abort.signal.reason === AGAIN) continue;
        this.#miss("lost", "It ended the connection.");
      } catch (error) {
        if (turn !== this.#turn) return;
        if (error instanceof Denied) {
          this.phase = error.phase;
          this.trouble = error.message;
          return;
        }
        const { reason } = this.#abort.signal;
        if (reason === AGAIN) continue;
        if (error instanceof Busy) asked = this.#wait(error);
        else if (error instanceof Answered) this.#miss("lost", sentence(error.message));
        else this.#miss("lost", reason === SILENCE ? "It says nothing." : "It does not answer.");
      }
      const retry = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]!;
      failures += 1;
      await new Promise((done) => setTimeout(done, Math.max(retry, asked)));
    }
  }

  /** Takes the status that the page came with; whether it did. */
  #begin(): boolean {
    const block = document.getElementById("status");
    if (!block?.textContent) return false;
    block.remove();
    this.role = block.dataset.role as Role | undefined;
    this.#show(block.textContent);
    this.#flows = wantsFlows(this.status!.role);
    return true;
  }

  #miss(phase: "lost" | "waiting", trouble: string) {
    this.phase = phase;
    this.trouble = trouble;
    this.stale = true;
  }

  /** Says why, and for how many milliseconds. */
  #wait({ message, milliseconds }: Busy): number {
    const seconds = Math.round(milliseconds / 1e3);
    const asks = seconds > 0 ? ` It asks to wait for ${seconds} s.` : "";
    this.#miss("waiting", `${sentence(message)}${asks}`);
    return milliseconds;
  }

  async #follow(onWord: () => void) {
    const heard = this.#listen(this.#abort);
    try {
      const response = await this.#open(this.#abort.signal);
      this.hearer.onBegin();
      // Without it the page shows all that it shows to those who may only look.
      void this.#learnRole().catch(() => {});
      const reader = response.pipeThrough(new TextDecoderStream()).getReader();
      // Joined only when an event is whole: the one of a large hub comes in many pieces.
      let parts: string[] = [];
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        heard.byte();
        const ends = parts.at(-1)?.endsWith("\n") ? value.startsWith("\n") : false;
        parts.push(value);
        if (!ends && !value.includes("\n\n")) continue;
        const events = parts.join("").split("\n\n");
        parts = [events.pop() ?? ""];
        for (const event of events) if (this.#take(event, onWord)) heard.word();
      }
    } finally {
      heard.stop();
    }
  }

  /**
   * Ends a stream that is silent, and says so of one that never gets to the end of a status. By
   * the clock a computer that was asleep is told from a daemon that says nothing.
   */
  #listen(stream: AbortController) {
    let byte = performance.now();
    let word = byte;
    let clock = Date.now();
    const look = () => {
      const now = performance.now();
      if (Date.now() - clock > ASLEEP_MS) {
        this.phase = "connecting";
        this.stale = true;
        stream.abort(AGAIN);
      } else if (now - byte > SILENCE_MS) stream.abort(SILENCE);
      else if (now - word > SILENCE_MS) this.#miss("waiting", "What it says takes long to arrive.");
    };
    const looks = setInterval(look, LOOK_MS);
    return {
      byte() {
        byte = performance.now();
        clock = Date.now();
      },
      word: () => (word = performance.now()),
      stop: () => clearInterval(looks),
    };
  }

  async #open(signal: AbortSignal): Promise<ReadableStream<BufferSource>> {
    // Of a hub the page shows no paths, which are most of what it has to say.
    const url = `/v1/live?flows=${this.#flows}&paths=own`;
    const token = this.#tried ?? this.token();
    const response = await fetch(url, { signal, headers: bearer(token), cache: "no-store" });
    if (response.status === 401) {
      if (this.#tried === undefined) session.forget(TOKEN);
      this.#tried = undefined;
      throw new Denied("locked", token === null ? "" : "The daemon does not know this token.");
    }
    if (response.ok && response.body) {
      if (this.#tried !== undefined) session.write(TOKEN, this.#tried);
      this.#tried = undefined;
      return response.body as ReadableStream<BufferSource>;
    }
    const { code, detail } = await problem(response);
    if (response.status === 403 || response.status === 421) throw new Denied("refused", detail);
    // A proxy whose daemon is away answers 503 too, but not with this code.
    if (isBusy(code)) throw new Busy(wanted(response), detail);
    throw new Answered(detail);
  }

  headers(): Record<string, string> {
    return bearer(this.token());
  }

  async #learnRole() {
    const response = await fetch("/v1", { headers: this.headers(), cache: "no-store" });
    if (!response.ok) return;
    this.role = (await response.json()).role;
  }

  /** Whether the daemon takes orders from this reader. */
  get operates(): boolean {
    return mayAct(this.role, "operate");
  }

  /** Whether it also shows and changes what it runs with, and who may join. */
  get administers(): boolean {
    return mayAct(this.role, "admin");
  }

  /** Has the daemon do something; what is wrong with it, or nothing. */
  async command(command: object): Promise<string> {
    return (await this.call("POST", "/v1/command", command)).problem?.detail ?? "";
  }

  /** What the daemon answers, or why it does not. */
  async call<T>(method: string, path: string, body?: object): Promise<Answer<T>> {
    const headers = this.headers();
    if (body) headers["content-type"] = "application/json";
    try {
      const signal = AbortSignal.timeout(ANSWER_MS);
      const text = body && JSON.stringify(body);
      const response = await fetch(path, { method, headers, signal, cache: "no-store", body: text });
      if (response.ok) return { document: (await response.json()) as T };
      return { problem: await problem(response) };
    } catch {
      return { problem: { code: "lost", detail: "The daemon does not answer." } };
    }
  }

  /** Whether it is about the status. */
  #take(event: string, onWord: () => void): boolean {
    const lines = event.split("\n");
    const field = (name: string) =>
      lines
        .filter((line) => line.startsWith(`${name}:`))
        .map((line) => line.slice(name.length + 1).replace(/^ /, ""))
        .join("\n");
    const kind = field("event");
    if (kind === "problem") {
      const { code = "", detail = "it cannot tell its status" }: Partial<Problem> = JSON.parse(field("data"));
      this.#miss(isBusy(code) ? "waiting" : "lost", sentence(detail));
      return true;
    }
    if (kind === "event") this.hearer.onEvent(JSON.parse(field("data")) as Told);
    if (kind !== "status") return false;
    this.#show(field("data"));
    this.phase = "live";
    this.asked = false;
    this.trouble = "";
    this.stale = false;
    onWord();
    return true;
  }

  #show(document: string) {
    this.status = JSON.parse(document) as Status;
    this.toldAt = Date.now();
    this.hearer.onStatus(this.status);
  }
}

function bearer(token: string | null): Record<string, string> {
  return token === null ? {} : { authorization: `Bearer ${token}` };
}

function isBusy(code: string): boolean {
  return code === "busy" || code === "too_many_requests";
}

/** For how many milliseconds it wants to be left alone; 0 if it gives no seconds. */
function wanted(response: Response): number {
  const seconds = Number(response.headers.get("retry-after"));
  return seconds > 0 ? 1e3 * Math.min(seconds, LONGEST_WAIT_S) : 0;
}

/** What a problem document says (RFC 9457). */
async function problem(response: Response): Promise<Problem> {
  try {
    const { code, detail } = await response.json();
    if (typeof detail === "string") return { code: String(code ?? ""), detail };
  } catch {
    // It is none, and its number has to do.
  }
  return { code: "", detail: `It answers ${response.status}.` };
}
