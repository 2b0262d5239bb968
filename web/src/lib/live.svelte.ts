/** The status each second, as the daemon streams it. */

import type { Status } from "./status";

type Role = "read" | "operate" | "admin";

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

export type Phase = "connecting" | "live" | "lost" | "locked" | "refused";

const TOKEN = "sennit-token";
/** The daemon speaks each second; after this it is not there, or the way to it is not. */
const SILENCE_MS = 5_000;
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

export class Live {
  phase = $state<Phase>("connecting");
  status = $state.raw<Status>();
  /** Why there is nothing, or nothing new. */
  trouble = $state("");
  /** When the daemon was lost, by this clock. */
  lostAt = $state(0);
  /** With the busiest flows, which cost the daemon a little more. */
  #flows = false;
  /** What the daemon lets this reader do; nothing before it has said so. */
  #role = $state<Role>();
  #abort = new AbortController();
  #stopped = false;

  constructor(readonly onStatus: (status: Status) => void) {}

  token(): string | null {
    return sessionStorage.getItem(TOKEN);
  }

  /** Tries this token at once. */
  unlock(token: string) {
    sessionStorage.setItem(TOKEN, token);
    this.phase = "connecting";
    void this.run();
  }

  wantFlows(flows: boolean) {
    if (flows === this.#flows) return;
    this.#flows = flows;
    this.#abort.abort(AGAIN);
  }

  stop() {
    this.#stopped = true;
    this.#abort.abort("stop");
  }

  /** Follows the daemon until it wants a token that is not there. */
  async run() {
    this.#begin();
    let failures = 0;
    while (!this.#stopped) {
      this.#abort = new AbortController();
      try {
        await this.#follow(() => (failures = 0));
        if (this.#abort.signal.reason === AGAIN) continue;
        this.#lose("It ended the connection.");
      } catch (error) {
        if (error instanceof Denied) {
          this.phase = error.phase;
          this.trouble = error.message;
          return;
        }
        const { reason } = this.#abort.signal;
        if (reason === AGAIN) continue;
        this.#lose(reason === SILENCE ? "It says nothing." : "It does not answer.");
      }
      const wait = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]!;
      failures += 1;
      await new Promise((done) => setTimeout(done, wait));
    }
  }

  /** The status that the page came with, if it did. */
  #begin() {
    const block = document.getElementById("status");
    block?.remove();
    if (block?.textContent) this.#show(block.textContent);
  }

  #lose(trouble: string) {
    if (this.phase !== "lost") this.lostAt = Date.now();
    this.phase = "lost";
    this.trouble = trouble;
  }

  async #follow(onWord: () => void) {
    const { signal } = this.#abort;
    const controller = this.#abort;
    let silence = setTimeout(() => controller.abort(SILENCE), SILENCE_MS);
    try {
      const response = await this.#open(signal);
      // Without it the page shows all that it shows to those who may only look.
      void this.#learnRole().catch(() => {});
      const reader = response.pipeThrough(new TextDecoderStream()).getReader();
      // Joined only when an event is whole: the one of a large hub comes in many pieces.
      let parts: string[] = [];
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(silence);
        silence = setTimeout(() => controller.abort(SILENCE), SILENCE_MS);
        const ends = parts.at(-1)?.endsWith("\n") ? value.startsWith("\n") : false;
        parts.push(value);
        if (!ends && !value.includes("\n\n")) continue;
        const events = parts.join("").split("\n\n");
        parts = [events.pop() ?? ""];
        for (const event of events) this.#take(event, onWord);
      }
    } finally {
      clearTimeout(silence);
    }
  }

  async #open(signal: AbortSignal): Promise<ReadableStream<BufferSource>> {
    // Of a hub the page shows sites and no paths, which are most of what it has to say.
    const url = `/v1/live?flows=${this.#flows}&paths=own`;
    const response = await fetch(url, { signal, headers: this.headers(), cache: "no-store" });
    if (response.status === 401) {
      const wrong = this.token() !== null;
      sessionStorage.removeItem(TOKEN);
      throw new Denied("locked", wrong ? "The daemon does not know this token." : "");
    }
    if (response.status === 403 || response.status === 421) {
      throw new Denied("refused", await detail(response));
    }
    if (!response.ok || !response.body) throw new Error(await detail(response));
    return response.body as ReadableStream<BufferSource>;
  }

  headers(): Record<string, string> {
    const token = this.token();
    return token === null ? {} : { authorization: `Bearer ${token}` };
  }

  async #learnRole() {
    const response = await fetch("/v1", { headers: this.headers(), cache: "no-store" });
    if (!response.ok) return;
    this.#role = (await response.json()).role;
  }

  /** Whether the daemon takes orders from this reader. */
  get operates(): boolean {
    return this.#role === "operate" || this.#role === "admin";
  }

  /** Whether it also shows and changes what it runs with, and who may join. */
  get administers(): boolean {
    return this.#role === "admin";
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
      const response = await fetch(path, { method, headers, cache: "no-store", body: body && JSON.stringify(body) });
      if (response.ok) return { document: (await response.json()) as T };
      return { problem: await problem(response) };
    } catch {
      return { problem: { code: "lost", detail: "The daemon does not answer." } };
    }
  }

  #take(event: string, onWord: () => void) {
    const lines = event.split("\n");
    const field = (name: string) =>
      lines
        .filter((line) => line.startsWith(`${name}:`))
        .map((line) => line.slice(name.length + 1).replace(/^ /, ""))
        .join("\n");
    const kind = field("event");
    if (kind === "problem") {
      this.#lose(JSON.parse(field("data")).detail ?? "It cannot tell its status.");
      return;
    }
    if (kind !== "status") return;
    this.#show(field("data"));
    onWord();
  }

  #show(document: string) {
    this.status = JSON.parse(document) as Status;
    this.phase = "live";
    this.trouble = "";
    this.onStatus(this.status);
  }
}

/** What a problem document says (RFC 9457). */
async function problem(response: Response): Promise<Problem> {
  try {
    const { code, detail } = await response.json();
    if (typeof detail === "string") return { code: String(code), detail };
  } catch {
    // It is none, and its number has to do.
  }
  return { code: "", detail: `It answers ${response.status}.` };
}

/** The sentence of a problem document. */
export async function detail(response: Response): Promise<string> {
  return (await problem(response)).detail;
}
