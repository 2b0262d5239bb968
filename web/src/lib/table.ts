/** Samples side by side: the moments, and a column for each thing that was looked at. */

export type Column = (number | null)[];

/** One colour of the charts. */
export interface Source {
  name: string;
  down: Column;
  up: Column;
  rtt: Column;
  loss: Column;
  /** Part of the time in which it was up, 0 to 1. */
  alive: Column;
}

export interface Table {
  /** Seconds since 1970, the oldest first. */
  times: number[];
  sources: Source[];
}

const KINDS = ["down", "up", "rtt", "loss", "alive"] as const;

/** With all its columns made anew. */
function source(name: string, column: (kind: (typeof KINDS)[number]) => Column): Source {
  const made = Object.fromEntries(KINDS.map((kind) => [kind, column(kind)]));
  return { name, ...made } as unknown as Source;
}

export function columns(source: Source): Column[] {
  return KINDS.map((kind) => source[kind]);
}

/** A source that has not been looked at. */
export function silent(name: string, length: number): Source {
  return source(name, () => Array<number | null>(length).fill(null));
}

/** The rows from one place to another. */
export function cut({ times, sources }: Table, from: number, to = times.length): Table {
  const part = (whole: Source) => source(whole.name, (kind) => whole[kind].slice(from, to));
  return { times: times.slice(from, to), sources: sources.map(part) };
}

/** The place of the first row that is not before this moment. */
export function place(times: number[], moment: number): number {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle]! < moment) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The place of the row that is nearest to this moment; -1 if there is none. */
export function nearest(times: number[], moment: number): number {
  const after = Math.min(place(times, moment), times.length - 1);
  const before = after - 1;
  if (before < 0) return after;
  return moment - times[before]! < times[after]! - moment ? before : after;
}

/** The rows of a part of time. */
export function within(table: Table, from: number, to: number): Table {
  return cut(table, place(table.times, from), place(table.times, to + SAME));
}

/** The mean of what is known. */
export function mean(column: Column): number | null {
  const known = column.filter((it) => it !== null);
  return known.length > 0 ? known.reduce((sum, it) => sum + it, 0) / known.length : null;
}

/** One after the other, with a column for each of these sources: where a table lacks it, it is silent. */
export function chain(tables: Table[], names: string[]): Table {
  const joined = (name: string): Source => {
    const parts = tables.map((it) => it.sources.find((has) => has.name === name) ?? silent(name, it.times.length));
    return source(name, (kind) => parts.flatMap((it) => it[kind]));
  };
  return { times: tables.flatMap((it) => it.times), sources: names.map(joined) };
}

/** The names of all sources, each once. */
export function names(...tables: { sources: Source[] }[]): string[] {
  return [...new Set(tables.flatMap((it) => it.sources.map((source) => source.name)))];
}

/** With a silent row in each hole of more than so many seconds, lest a line be drawn across it. */
export function broken(table: Table, most: number): Table {
  const { times } = table;
  const parts: Table[] = [];
  let from = 0;
  for (let at = 1; at < times.length; at += 1) {
    const before = times[at - 1]!;
    if (times[at]! - before <= most) continue;
    parts.push(cut(table, from, at), { times: [before + most / 2], sources: [] });
    from = at;
  }
  if (from === 0) return table;
  return chain([...parts, cut(table, from)], names(table));
}

/** With the rows of another in the place of its own of that time; what is at hand before and after stays. */
export function weave(table: Table, newer: Table): Table {
  const [first, last] = [newer.times[0], newer.times.at(-1)];
  if (first === undefined || last === undefined) return table;
  const before = cut(table, 0, place(table.times, first - SAME));
  let rest = place(table.times, last + SAME);
  // The first sample of a page has no rates yet.
  while (rest < table.times.length && table.sources.every((it) => it.down[rest] == null)) rest += 1;
  return chain([before, newer, cut(table, rest)], names(table, newer));
}

/** With the rows of another before its own, and in each hole of more than so many seconds. */
export function filled(table: Table, kept: Table, most: number): Table {
  const { times } = table;
  const between = (start: number, end: number) =>
    cut(kept, place(kept.times, start + SAME), place(kept.times, end - SAME));
  const parts: Table[] = [];
  let from = 0;
  for (let at = 0; at <= times.length; at += 1) {
    const [before, after] = [times[at - 1] ?? -Infinity, times[at] ?? Infinity];
    if (after - before <= most) continue;
    parts.push(cut(table, from, at), between(before, after));
    from = at;
  }
  return chain(parts, names(table, kept));
}

/** Half of the shortest step: what is nearer to each other is one moment. */
const SAME = 0.5;
