/** What happened: the daemon's journal, `sennit.events/1`, and what only this page has seen. */

import type { Ask } from "./live.svelte";
import type { Mood } from "./standing";
import { millis } from "./units";

/** An event as the daemon tells it, with the fields that the page reads. */
export interface Told {
  /** Greater than those before it: milliseconds since 1970, unless the clock was put back. */
  id: number;
  time: string;
  text: string;
  event: string;
  link?: string;
  from?: string;
  to?: string[];
  site?: string;
  state?: string;
  gap_seconds?: number;
}

export interface Happening {
  id: number;
  /** Seconds since 1970. */
  time: number;
  mood: Mood;
  what: string;
  /** Names of the links that it is about. */
  links: string[];
  /** Charts have a line for it, with these words beside it if there are any. */
  marks: boolean;
  label: string;
}

/** At opening; more are asked for when they are wanted. */
const FIRST = 200;
/** As many as the daemon keeps. */
const MOST = 5000;
/** Those that come together are put in order together. */
const GATHER_MS = 50;
const RETRY_MS = 10_000;

const MOODS: Record<string, Mood> = {
  link_up: "good",
  link_resumed: "good",
  link_down: "bad",
  drill_started: "uneasy",
  drill_ended: "good",
  started_without: "bad",
  tunnel_up: "good",
  tunnel_moved: "good",
  tunnel_down: "bad",
  path_up: "good",
  path_down: "uneasy",
  failover: "uneasy",
  refused: "bad",
  lan_refused: "uneasy",
  host_restored: "uneasy",
  expelled: "uneasy",
  cap: "uneasy",
  class_starved: "uneasy",
  class_served: "good",
  hub_degraded: "bad",
  hub_recovered: "good",
  reload_reverted: "uneasy",
  reload_refused: "uneasy",
  journal_set_aside: "uneasy",
  events_lost: "uneasy",
};
/** What shows in a chart: what changes how traffic goes. */
const MARKS = new Set([
  "started",
  "stopped",
  "link_up",
  "link_down",
  "link_paused",
  "link_resumed",
  "link_limited",
  "drill_started",
  "drill_ended",
  "tunnel_up",
  "tunnel_moved",
  "tunnel_down",
  "failover",
  "cap",
  "reloaded",
  "reload_reverted",
]);

export class Journal {
  /** The newest first. */
  events = $state.raw<Happening[]>([]);
  /** Why the journal is not there. */
  trouble = $state("");
  /** Whether there is nothing older. */
  whole = $state(false);
  marks = $derived(this.events.filter((it) => it.marks));
  /** Events are wanted once there is a place for them. */
  #begun = false;
  /** The newest of which all before it were read. */
  #newest: number | undefined;
  /** Whether some between it and those of the stream may be missing. */
  #behind = true;
  /** Seconds back to which it was read on purpose. */
  #reached = 0;
  #waiting: Happening[] = [];
  #gathering: ReturnType<typeof setTimeout> | undefined;
  #retry: ReturnType<typeof setTimeout> | undefined;

  constructor(readonly ask: Ask) {}

  /** Reads the newest; from then on it misses none. */
  async begin() {
    this.#begun = true;
    await this.catchUp();
  }

  /** Reads what has happened since it was read last. */
  async catchUp() {
    if (!this.#begun) return;
    clearTimeout(this.#retry);
    this.#behind = true;
    const query = this.#newest === undefined ? `limit=${FIRST}` : `after=${this.#newest}`;
    const told = await this.#read(query);
    if (!told) {
      this.#retry = setTimeout(() => void this.catchUp(), RETRY_MS);
      return;
    }
    if (this.#newest === undefined) this.whole = told.length < FIRST;
    this.#newest = Math.max(this.#newest ?? 0, ...told.map((it) => it.id));
    this.#behind = false;
    this.#add(told.map(happening));
  }

  /** Reads back to so many seconds ago, or all that there is. */
  async reach(seconds: number, now: number) {
    const oldest = this.events.at(-1);
    if (this.whole || seconds <= this.#reached || (oldest && oldest.time < now - seconds)) return;
    const told = await this.#read(Number.isFinite(seconds) ? `since=${seconds}` : "");
    if (!told) return;
    this.#reached = seconds;
    this.whole = !Number.isFinite(seconds);
    this.#add(told.map(happening));
  }

  /** Takes what the stream tells. */
  take(told: Told) {
    if (!this.#begun) return;
    if (!this.#behind) this.#newest = told.id;
    this.#gather(happening(told));
  }

  /** Adds what only this page has seen. */
  note(time: number, mood: Mood, what: string) {
    // Between those of the daemon, whose numbers are whole.
    const id = Math.round(time * 1e3) + 0.5;
    this.#gather({ id, time, mood, what, links: [], marks: true, label: "" });
  }

  async #read(query: string): Promise<Told[] | undefined> {
    const answer = await this.ask<{ events: Told[] }>(`/v1/events?${query}`);
    this.trouble = answer.problem?.detail ?? "";
    return answer.document?.events;
  }

  #gather(event: Happening) {
    this.#waiting.push(event);
    this.#gathering ??= setTimeout(() => {
      this.#gathering = undefined;
      this.#add(this.#waiting.splice(0));
    }, GATHER_MS);
  }

  #add(events: Happening[]) {
    const known = new Set(this.events.map((it) => it.id));
    const added = events.filter((it) => !known.has(it.id));
    if (added.length === 0) return;
    this.events = [...added, ...this.events].sort((a, b) => b.id - a.id).slice(0, MOST);
  }
}

function happening(told: Told): Happening {
  const { id, event, link, from, to = [], site, state, gap_seconds: gap } = told;
  const mood = event === "cap" && state === "over" ? "bad" : (MOODS[event] ?? "plain");
  return {
    id,
    time: Date.parse(told.time) / 1e3,
    mood,
    what: told.text,
    links: [link, from, ...to].filter((it) => it !== undefined),
    // The tunnels of many sites come and go all the time.
    marks: MARKS.has(event) && site === undefined,
    label: gap ? `gap ${millis(gap)}` : "",
  };
}
