/** What goes over links or sites: a sample a second since the page is open, and before that what the daemon has kept. */

import { ALL_SITES, stepOf, toTable, type Kept } from "./kept";
import type { Ask } from "./live.svelte";
import { isAway, tunnelKey, type Site, type Status, type Traffic } from "./status";
import { broken, chain, columns, cut, filled, names, place, silent, weave, type Source, type Table } from "./table";

export interface Rates {
  down: number;
  up: number;
}

/** Seconds that are kept, as many as the daemon keeps. */
const KEEP = 3600;
/** Samples go in blocks, as moving all of them each second would cost more. */
const BLOCK = 60;
/** A longer silence is a hole; the daemon writes seconds down two by two. */
const HOLE = 5;
/** So many steps without a sample are a hole. */
const HOLE_STEPS = 3;
/** The daemon has written down what is so many seconds old. */
const WRITTEN = 5;
/** After so many seconds a question that failed is asked again. */
const RETRY = 10;
/** With more sites than this, the chart shows their sum. */
const SITES = 8;

/** What one second says of a link or site. */
interface Sample {
  rates?: Rates;
  rtt?: number;
  loss?: number;
  alive?: number;
}

interface Seen {
  time: number;
  down: number;
  up: number;
}

export class History implements Table {
  times: number[] = [];
  /** Those of now first, in the order of the status, which is that of the cards' colours. */
  sources: Source[] = [];
  /** So many of the sources are those of now. */
  current = 0;
  /** Of late, by link name, tunnel key or site name. */
  rates = $state.raw(new Map<string, Rates>());
  /** Counts samples, so that charts know when to draw. */
  version = $state(0);
  /** Counts what the daemon has told of the past. */
  told = $state(0);
  /** Why the past is not there. */
  trouble = $state("");
  /** Whether the daemon is asked for a past that the reader waits for. */
  waits = $state(false);
  #seen = new Map<string, Seen>();
  /** When the last status was made. */
  #taken: number | undefined;
  /** The daemon's clock less this one, in seconds. */
  #ahead = 0;
  #hub = false;
  /** Seconds that the reader looks at; nothing is asked for before somebody does. */
  #span = 0;
  /** What was kept of them in steps longer than a second. */
  #coarse: Table | undefined;
  /** When the daemon was asked last, and whether it has not answered yet. */
  #askedAt = 0;
  #asking = false;

  constructor(readonly ask: Ask) {}

  take(status: Status) {
    const time = Date.parse(status.time) / 1e3;
    const last = this.#taken;
    if (!Number.isFinite(time) || (last !== undefined && time <= last)) {
      if (last === undefined || time > last - HOLE) return;
      // The clock was put back, and what lies ahead of it would never be drawn over.
      this.#forget();
    }
    this.#taken = time;
    this.#hub = status.role === "hub";
    this.#ahead = time - Date.now() / 1e3;
    this.#measure(status, time);
    this.#append(status, time);
    this.version += 1;
    const missed = this.times.length === 1 || (last !== undefined && time - last > HOLE);
    if (this.#isDue(time, missed)) void this.#fetch();
  }

  /** By the daemon's clock, also while it says nothing. */
  now(): number {
    return Date.now() / 1e3 + this.#ahead;
  }

  /** Has the last so many seconds at hand, as far as the daemon has kept them. */
  async want(span: number) {
    if (span !== this.#span) this.#coarse = undefined;
    this.#span = span;
    this.waits = true;
    await this.#fetch();
  }

  /** The last so many seconds, as finely as they are there. */
  view(span: number): Table {
    const from = (this.times.at(-1) ?? 0) - span;
    const step = stepOf(span).seconds;
    const coarse = this.#coarse;
    if (step === 1 || !coarse) return broken(cut(this, place(this.times, from)), HOLE);
    const end = (coarse.times.at(-1) ?? 0) + step;
    const old = cut(coarse, place(coarse.times, from));
    const live = cut(this, place(this.times, Math.max(from, end)));
    return broken(chain([old, live], names(this, coarse)), HOLE_STEPS * step);
  }

  /** Whether the daemon knows what is missing here. */
  #isDue(time: number, missed: boolean): boolean {
    if (this.#span === 0 || this.#asking) return false;
    if (missed || (this.trouble !== "" && time > this.#askedAt + RETRY)) return true;
    const step = stepOf(this.#span).seconds;
    const steps = (at: number) => Math.floor((at - WRITTEN) / step);
    return step > 1 && steps(time) > steps(this.#askedAt);
  }

  async #fetch() {
    const span = this.#span;
    const step = stepOf(span);
    const old = this.#coarse?.times.at(-1);
    const since = Math.ceil(old === undefined ? span : Math.min(span, this.now() - old));
    this.#askedAt = this.now();
    this.#asking = true;
    const series = this.#hub ? "total" : "link/";
    const answer = await this.ask<Kept>(`/v1/history?step=${step.name}&since=${since}&series=${series}`);
    // The reader looks at something else by now, and that is asked for too.
    if (span !== this.#span) return;
    this.#asking = false;
    this.waits = false;
    this.trouble = answer.problem?.detail ?? "";
    if (!answer.document) return;
    const kept = toTable(answer.document, this.#hub);
    // A hub keeps the sum of its sites alone: what was seen here says more.
    const own = () => (this.#hub ? filled(this, kept, HOLE) : weave(this, kept));
    if (step.seconds === 1) Object.assign(this, own());
    else this.#coarse = this.#coarse ? weave(this.#coarse, kept) : kept;
    this.told += 1;
    this.version += 1;
  }

  #forget() {
    this.times = [];
    this.sources = [];
    this.current = 0;
    this.#coarse = undefined;
    this.#seen.clear();
  }

  #measure(status: Status, time: number) {
    const rates = new Map<string, Rates>();
    const seen = new Map<string, Seen>();
    const meter = (key: string, it: Omit<Traffic, "rtt_seconds" | "loss_ratio">) => {
      // Down is towards the site, at both ends.
      const hub = status.role === "hub";
      const now = {
        time,
        down: hub ? it.sent_bytes : it.received_bytes,
        up: hub ? it.received_bytes : it.sent_bytes,
      };
      const then = this.#seen.get(key);
      seen.set(key, now);
      // At first sight a link says itself what it carries.
      const { sent_bytes_per_second: sent, received_bytes_per_second: received } = it;
      if (!then && sent !== undefined && received !== undefined) {
        rates.set(key, { down: received, up: sent });
        return;
      }
      // Counters begin anew with their tunnels.
      if (!then || now.down < then.down || now.up < then.up) return;
      const span = time - then.time;
      rates.set(key, { down: (now.down - then.down) / span, up: (now.up - then.up) / span });
    };
    for (const link of status.links) meter(`link ${link.name}`, link);
    for (const tunnel of status.tunnels) meter(`tunnel ${tunnelKey(tunnel)}`, tunnel);
    for (const site of connected(status)) meter(`site ${site.name}`, site);
    this.#seen = seen;
    this.rates = rates;
  }

  #append(status: Status, time: number) {
    // What was kept of this second may be there already.
    if (time <= (this.times.at(-1) ?? 0)) return;
    this.#push(time, this.#samples(status));
    if (this.times.length <= KEEP + BLOCK) return;
    Object.assign(this, cut(this, this.times.length - KEEP));
    const says = (source: Source) => columns(source).some((column) => column.some((it) => it !== null));
    this.sources = this.sources.filter((source, index) => index < this.current || says(source));
  }

  #samples(status: Status) {
    const samples = new Map<string, Sample>();
    if (status.role === "edge") {
      for (const link of status.links) {
        const rates = this.rates.get(`link ${link.name}`);
        const alive = link.state === "up" ? 1 : 0;
        samples.set(link.name, { rates, rtt: link.rtt_seconds, loss: link.loss_ratio, alive });
      }
      return samples;
    }
    const sites = connected(status);
    if (sites.length <= SITES) {
      for (const site of sites) {
        samples.set(site.name, { rates: this.rates.get(`site ${site.name}`), ...best(site.links) });
      }
      return samples;
    }
    let all: Rates | undefined;
    for (const site of sites) {
      const rates = this.rates.get(`site ${site.name}`);
      if (rates) all = { down: (all?.down ?? 0) + rates.down, up: (all?.up ?? 0) + rates.up };
    }
    return samples.set(ALL_SITES, { rates: all });
  }

  #push(time: number, samples: Map<string, Sample>) {
    const known = new Map(this.sources.map((source) => [source.name, source]));
    const now = [...samples.keys()].map((name) => known.get(name) ?? silent(name, this.times.length));
    this.sources = [...now, ...this.sources.filter((source) => !samples.has(source.name))];
    this.current = now.length;
    this.times.push(time);
    for (const source of this.sources) {
      const sample = samples.get(source.name);
      source.down.push(sample?.rates?.down ?? null);
      source.up.push(sample?.rates?.up ?? null);
      source.rtt.push(sample?.rtt ?? null);
      source.loss.push(sample?.loss ?? null);
      source.alive.push(sample?.alive ?? null);
    }
  }
}

/** The sites that have a tunnel. */
function connected(status: Status): Site[] {
  return (status.sites ?? []).filter((site) => !isAway(site));
}

/** Of a site's links, the shortest round trip and the least loss. */
export function best(links: Traffic[]): { rtt?: number; loss?: number } {
  const least = (values: (number | undefined)[]) => {
    const known = values.filter((it) => it !== undefined);
    return known.length > 0 ? Math.min(...known) : undefined;
  };
  return {
    rtt: least(links.map((it) => it.rtt_seconds)),
    loss: least(links.map((it) => it.loss_ratio)),
  };
}
