/** A lane for each link: when it was up, and what happened to it. */

import type uPlot from "uplot";
import type { Happening } from "./journal.svelte";
import type { Inks } from "./plot";
import type { Column } from "./table";

/** Pixels of the page. */
export const LANE_HEIGHT = 18;
/** Of that is painted while the link is up, and while it is down. */
const [UP, DOWN] = [11, 3];
/** Letters of a name that fit beside its lane. */
const LETTERS = 10;

interface Lanes {
  names: string[];
  ink: Inks;
  marks: Happening[];
}

export function paintLanes(u: uPlot, { names, ink, marks }: Lanes) {
  names.forEach((name, lane) => {
    paintName(u, ink, name, lane);
    const column = (u.data[lane + 1] ?? []) as Column;
    for (const run of runs(u.data[0] as number[], column)) paintRun(u, ink, lane, run);
    for (const mark of marks) if (mark.links.includes(name)) paintEvent(u, ink, lane, mark);
  });
}

interface Run {
  from: number;
  to: number;
  /** Part of the time in which it was up. */
  alive: number;
}

/** Moments side by side at which it was the same. */
function runs(times: number[], column: Column): Run[] {
  const found: Run[] = [];
  column.forEach((alive, at) => {
    const time = times[at]!;
    const last = found.at(-1);
    const before = at > 0 ? column[at - 1] : null;
    if (last && before != null) last.to = time;
    if (alive != null && (alive !== before || !last)) found.push({ from: time, to: time, alive });
  });
  return found;
}

/** The middle of a lane, in pixels of the canvas. */
function middle(u: uPlot, lane: number): number {
  return u.bbox.top + (lane + 0.5) * LANE_HEIGHT * devicePixelRatio;
}

/** A bar for the time in which it was up, and below it a thin line for the rest. */
function paintRun(u: uPlot, ink: Inks, lane: number, { from, to, alive }: Run) {
  const { ctx, bbox } = u;
  const place = (time: number) => Math.min(Math.max(u.valToPos(time, "x", true), bbox.left), bbox.left + bbox.width);
  const [start, end] = [place(from), place(to)];
  const width = Math.max(end - start, to < u.scales.x!.min! ? 0 : devicePixelRatio);
  if (width <= 0 || from > u.scales.x!.max!) return;
  const bottom = middle(u, lane) + (UP / 2) * devicePixelRatio;
  if (alive < 1) {
    ctx.fillStyle = ink.moods.bad;
    ctx.fillRect(start, bottom - DOWN * devicePixelRatio, width, DOWN * devicePixelRatio);
  }
  const height = UP * alive * devicePixelRatio;
  ctx.fillStyle = ink.lines[lane % ink.lines.length]!;
  ctx.fillRect(start, bottom - height, width, height);
}

function paintEvent(u: uPlot, ink: Inks, lane: number, { time, mood }: Happening) {
  const { ctx, bbox } = u;
  const x = u.valToPos(time, "x", true);
  if (x < bbox.left || x > bbox.left + bbox.width) return;
  const [y, size] = [middle(u, lane), 5 * devicePixelRatio];
  ctx.beginPath();
  ctx.moveTo(x, y - size);
  ctx.lineTo(x + size, y);
  ctx.lineTo(x, y + size);
  ctx.lineTo(x - size, y);
  ctx.closePath();
  ctx.fillStyle = ink.moods[mood];
  ctx.strokeStyle = ink.surface;
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.fill();
  ctx.stroke();
}

/** Left of its lane, where the other charts have their scale. */
function paintName(u: uPlot, ink: Inks, name: string, lane: number) {
  const { ctx, bbox } = u;
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  ctx.fillStyle = ink.axis;
  const letters = [...name];
  const short = letters.length > LETTERS ? `${letters.slice(0, LETTERS - 1).join("")}…` : name;
  ctx.fillText(short, bbox.left - 6 * devicePixelRatio, middle(u, lane), bbox.left - 8 * devicePixelRatio);
}
