/** What the page has seen since it was opened: a sample a second, and what changed. */

import { standing, type Mood } from "./standing";
import { isAway, tunnelKey, type Site, type Status, type Traffic } from "./status";

type Column = (number | null)[];

/** One colour of the charts. */
export interface Source {
  name: string;
  down: Column;
  up: Column;
  rtt: Column;
  loss: Column;
}

export interface Mark {
  time: number;
  mood: Mood;
  what: string;
}

export interface Rates {
  down: number;
  up: number;
}

/** Seconds that are kept. */
const KEEP = 900;
/** Samples go in blocks, as moving all of them each second would cost more. */
const BLOCK = 60;
/** A longer silence is a gap in the charts. */
const GAP = 3;
const MARKS = 100;
/** With more sites than this, the chart shows their sum. */
const SITES = 8;

interface Seen {
  time: number;
  down: number;
  up: number;
}

export class History {
  times: number[] = [];
  /** Those of now first, in the order of the status, which is that of the cards' colours. */
  sources: Source[] = [];
  /** So many of the sources are those of now. */
  current = 0;
  marks = $state.raw<Mark[]>([]);
  /** Of late, by link name, tunnel key or site name. */
  rates = $state.raw(new Map<string, Rates>());
  /** Counts samples, so that charts know when to draw. */
  version = $state(0);
  #seen = new Map<string, Seen>();
  #before: Status | undefined;
  /** The daemon's clock less this one, in seconds. */
  #ahead = 0;

  take(status: Status) {
    const time = Date.parse(status.time) / 1e3;
    const last = this.times.at(-1);
    if (!Number.isFinite(time) || (last !== undefined && time <= last)) {
      if (last === undefined || time > last - GAP) return;
      // The clock was put back, and what lies ahead of it would never be drawn over.
      this.#forget();
    }
    this.#ahead = time - Date.now() / 1e3;
    this.#measure(status, time);
    this.#append(status, time);
    this.#compare(status, time);
    this.#before = status;
    this.version += 1;
  }

  /** By the daemon's clock, also while it says nothing. */
  now(): number {
    return Date.now() / 1e3 + this.#ahead;
  }

  note(time: number, mood: Mood, what: string) {
    this.marks = [{ time, mood, what }, ...this.marks].slice(0, MARKS);
  }

  #forget() {
    this.times = [];
    this.sources = [];
    this.current = 0;
    this.#seen.clear();
  }

  #measure(status: Status, time: number) {
    const rates = new Map<string, Rates>();
    const seen = new Map<string, Seen>();
    const meter = (key: string, it: Traffic | { sent_bytes: number; received_bytes: number }) => {
      // Down is towards the site, at both ends.
      const hub = status.role === "hub";
      const now = {
        time,
        down: hub ? it.sent_bytes : it.received_bytes,
        up: hub ? it.received_bytes : it.sent_bytes,
      };
      const then = this.#seen.get(key);
      seen.set(key, now);
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
    const last = this.times.at(-1);
    if (last !== undefined && time - last > GAP) this.#push(last + 1, new Map());
    this.#push(time, this.#samples(status));
    if (this.times.length <= KEEP + BLOCK) return;
    this.times.splice(0, BLOCK);
    for (const source of this.sources) {
      for (const column of columns(source)) column.splice(0, BLOCK);
    }
    const says = (source: Source) => columns(source).some((column) => column.some((it) => it !== null));
    this.sources = this.sources.filter((source, index) => index < this.current || says(source));
  }

  #samples(status: Status) {
    const samples = new Map<string, { rates?: Rates; rtt?: number; loss?: number }>();
    if (status.role === "edge") {
      for (const link of status.links) {
        const rates = this.rates.get(`link ${link.name}`);
        samples.set(link.name, { rates, rtt: link.rtt_seconds, loss: link.loss_ratio });
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
    const all = { down: 0, up: 0 };
    for (const site of sites) {
      const rates = this.rates.get(`site ${site.name}`);
      all.down += rates?.down ?? 0;
      all.up += rates?.up ?? 0;
    }
    return samples.set("all sites", { rates: all });
  }

  #push(time: number, samples: Map<string, { rates?: Rates; rtt?: number; loss?: number }>) {
    const known = new Map(this.sources.map((source) => [source.name, source]));
    const empty = () => this.times.map(() => null);
    const added = (name: string) => ({ name, down: empty(), up: empty(), rtt: empty(), loss: empty() });
    const now = [...samples.keys()].map((name) => known.get(name) ?? added(name));
    this.sources = [...now, ...this.sources.filter((source) => !samples.has(source.name))];
    this.current = now.length;
    this.times.push(time);
    for (const source of this.sources) {
      const sample = samples.get(source.name);
      source.down.push(sample?.rates?.down ?? null);
      source.up.push(sample?.rates?.up ?? null);
      source.rtt.push(sample?.rtt ?? null);
      source.loss.push(sample?.loss ?? null);
    }
  }

  /** What changed since the last sample. */
  #compare(status: Status, time: number) {
    const before = this.#before;
    if (!before) return;
    for (const link of status.links) {
      const old = before.links.find((it) => it.name === link.name);
      const now = standing(status, link);
      if (!old) this.note(time, "plain", `${link.name} is a link now`);
      else if (standing(before, old).word !== now.word) {
        const why = now.mood !== "good" && now.why[0] ? `: ${now.why[0]}` : "";
        this.note(time, now.mood, `${link.name} is ${now.word}${why}`);
      }
    }
    this.#compareSites(before, status, time);
    if (before.state !== status.state) {
      const mood = status.state === "up" ? "good" : status.state === "down" ? "bad" : "uneasy";
      const why = status.reason ? `: ${status.reason}` : "";
      this.note(time, mood, `the ${status.role} is ${status.state}${why}`);
    }
  }

  #compareSites(before: Status, status: Status, time: number) {
    const old = new Map(connected(before).map((site) => [site.name, site]));
    for (const site of connected(status)) {
      const was = old.get(site.name);
      old.delete(site.name);
      if (!was) this.note(time, "good", `${site.name} joined`);
      else if (was.state !== site.state) {
        this.note(time, site.state === "up" ? "good" : "uneasy", `${site.name} is ${site.state}`);
      }
    }
    for (const name of old.keys()) this.note(time, "bad", `${name} left`);
  }
}

function columns(source: Source): Column[] {
  return [source.down, source.up, source.rtt, source.loss];
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
