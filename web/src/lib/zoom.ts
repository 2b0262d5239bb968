/** The part of time that charts show, in seconds since 1970. */

export type Window = [from: number, to: number];

/** Shorter than this nothing is to be seen. */
const SHORTEST_S = 10;

/** Half as much, in which a moment stays where it is. */
export function closer(shown: Window, moment: number): Window {
  return scaled(shown, moment, 0.5);
}

/** Twice as much. */
export function wider(shown: Window, moment: number): Window {
  return scaled(shown, moment, 2);
}

function scaled([from, to]: Window, moment: number, factor: number): Window {
  const length = Math.max(SHORTEST_S, factor * (to - from));
  const part = (Math.min(Math.max(moment, from), to) - from) / (to - from);
  const start = moment - part * length;
  return [start, start + length];
}

/** Earlier or later by a part of what is shown, and not later than there is something. */
export function moved([from, to]: Window, part: number, newest: number): Window {
  const by = Math.min(part * (to - from), newest - to);
  return [from + by, to + by];
}

/** From one moment to another, in whichever order; nothing if that is next to none. */
export function between(one: number, other: number): Window | undefined {
  const [from, to] = [Math.min(one, other), Math.max(one, other)];
  if (to <= from) return undefined;
  const more = Math.max(0, SHORTEST_S - (to - from)) / 2;
  return [from - more, to + more];
}

/** The window that an address names, as one that somebody was sent. */
export function named(hash: string): Window | undefined {
  const [, from, to] = hash.match(/^#(\d{9,11})-(\d{9,11})$/) ?? [];
  return from && to ? between(Number(from), Number(to)) : undefined;
}

/** Has the address of the page name it. */
export function name(shown: Window | undefined) {
  const hash = shown ? `#${shown.map(Math.round).join("-")}` : location.pathname;
  window.history.replaceState(null, "", hash);
}
