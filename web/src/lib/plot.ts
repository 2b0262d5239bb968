/** The charts: throughput stacked by link, a lane for each link, and strips of one line for each. */

import uPlot from "uplot";
import type { Happening } from "./journal.svelte";
import { LANE_HEIGHT, paintLanes } from "./lanes";
import type { Mood } from "./standing";
import type { Column, Table } from "./table";
import { tick } from "./units";
import type { Window } from "./zoom";

export type Kind = "throughput" | "lanes" | "rtt" | "loss";

export interface Inks {
  lines: string[];
  axis: string;
  grid: string;
  surface: string;
  moods: Record<Mood, string>;
}

/** One cursor for all of them. */
const SYNC = "sennit";
/** Left of each chart, for its scale. */
const SCALE = 62;
/** A mouse that has moved less while its button was down has pointed, and chosen nothing. */
const DRAGGED = 6;

/** The colours that the style sheet gives now, as a canvas knows no variables. */
export function inks(element: HTMLElement): Inks {
  const style = getComputedStyle(element);
  const probe = document.createElement("span");
  element.append(probe);
  const color = (variable: string) => {
    probe.style.color = `var(--${variable})`;
    return style && getComputedStyle(probe).color;
  };
  const found = {
    lines: Array.from({ length: 8 }, (_, index) => color(`c${index}`)),
    axis: color("muted"),
    grid: color("line"),
    surface: color("surface"),
    moods: {
      good: color("good"),
      uneasy: color("uneasy"),
      bad: color("bad"),
      plain: color("muted"),
    },
  };
  probe.remove();
  return found;
}

/** For uPlot: times, and a column for each series in the order of [`series`]. */
export function aligned(kind: Kind, { times, sources }: Table): uPlot.AlignedData {
  if (kind === "lanes") return [times, ...sources.map((it) => it.alive)] as uPlot.AlignedData;
  if (kind !== "throughput") {
    return [times, ...sources.map((it) => it[kind])] as uPlot.AlignedData;
  }
  const down = stack(sources.map((it) => it.down), 1);
  const up = stack(sources.map((it) => it.up), -1);
  return [times, ...down, ...up] as uPlot.AlignedData;
}

/** Sums, the greatest first, as each is painted over the one before. */
function stack(columns: Column[], sign: number): Column[] {
  const sums: Column[] = [];
  let below: Column | undefined;
  for (const column of columns) {
    const under: Column | undefined = below;
    const sum = column.map((value, at) => {
      const base = under?.[at] ?? null;
      return value === null ? base : (base ?? 0) + sign * value * 8;
    });
    sums.unshift(sum);
    below = sum;
  }
  return sums;
}

function series(kind: Kind, names: string[], ink: Inks): uPlot.Series[] {
  const line = (index: number) => ink.lines[index % ink.lines.length]!;
  const plain = { points: { show: false }, spanGaps: false };
  // They are painted by hand.
  if (kind === "lanes") return names.map((label) => ({ ...plain, label, paths: () => null }));
  if (kind !== "throughput") {
    return names.map((label, index) => ({ ...plain, label, stroke: line(index), width: 1.75 }));
  }
  const layer = (index: number) => ({
    ...plain,
    label: names[index]!,
    stroke: ink.surface,
    fill: line(index),
    width: 1,
  });
  const layers = names.map((_, index) => layer(names.length - 1 - index));
  return [...layers, ...layers];
}

function ticks(kind: Kind): (u: uPlot, values: number[]) => string[] {
  if (kind === "lanes") return () => [];
  if (kind === "rtt") return (_, values) => values.map((it) => `${round(it * 1e3)} ms`);
  if (kind === "loss") return (_, values) => values.map((it) => `${round(it * 100)} %`);
  return (_, values) => values.map((it) => bits(Math.abs(it)));
}

function round(value: number): string {
  return String(Number(value.toFixed(1)));
}

function bits(value: number): string {
  if (value >= 1e9) return `${round(value / 1e9)} Gb/s`;
  if (value >= 1e6) return `${round(value / 1e6)} Mb/s`;
  if (value >= 1e3) return `${round(value / 1e3)} kb/s`;
  return `${round(value)} b/s`;
}

/** The least height of the scale, so that noise does not look like news. */
const FLOORS: Record<Kind, number> = { throughput: 8e3, lanes: 1, rtt: 0.01, loss: 0.01 };

function bounds(kind: Kind, least: number | null, most: number | null): [number, number] {
  const top = Math.max(most ?? 0, FLOORS[kind]) * 1.08;
  if (kind !== "throughput") return [0, top];
  const bottom = Math.min(least ?? 0, 0) * 1.08;
  return [Math.min(bottom, -0.06 * top), Math.max(top, -0.06 * bottom)];
}

export interface Picture {
  kind: Kind;
  width: number;
  height: number;
  names: string[];
  ink: Inks;
  /** What to show. */
  shown: () => Window;
  /** The newest first. */
  marks: () => Happening[];
  onCursor: (index: number | null) => void;
  /** Somebody has drawn over a part of it. */
  onChoose: (from: number, to: number) => void;
}

export function heightOf(kind: Kind, sources: number): number {
  return { throughput: 230, lanes: sources * LANE_HEIGHT + 14, rtt: 84, loss: 96 }[kind];
}

/** Has a part of it look chosen; nothing is without one. */
export function choose(u: uPlot, part: Window | undefined) {
  const [left, right] = part ? part.map((it) => u.valToPos(it, "x")) : [0, 0];
  const height = part ? u.bbox.height / devicePixelRatio : 0;
  u.setSelect({ left: left!, top: 0, width: right! - left!, height }, false);
}

export function draw(picture: Picture, data: uPlot.AlignedData, target: HTMLElement): uPlot {
  const { kind, ink } = picture;
  const axis = { stroke: ink.axis, font: "12px system-ui, sans-serif" };
  const grid = { stroke: ink.grid, width: 1 };
  const options: uPlot.Options = {
    width: picture.width,
    height: picture.height,
    legend: { show: false },
    padding: [10, 26, kind === "loss" ? 0 : 4, 0],
    cursor: {
      sync: { key: SYNC },
      drag: { x: true, y: false, setScale: false, dist: DRAGGED },
      y: false,
      points: { show: false },
    },
    scales: {
      x: { time: true, range: () => picture.shown() },
      y: { range: (_, least, most) => bounds(kind, least, most) },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        ticks: { ...grid, size: 4 },
        show: kind === "loss",
        size: 26,
        space: 70,
        values: (_, splits, _axis, _space, step) => splits.map((it) => tick(it, step)),
      },
      {
        ...axis,
        grid: { ...grid, show: kind !== "lanes" },
        ticks: { show: false },
        size: SCALE,
        space: kind === "throughput" ? 34 : 24,
        values: ticks(kind),
      },
    ],
    series: [{}, ...series(kind, picture.names, ink)],
    hooks: {
      draw: [(u) => paint(u, picture)],
      setCursor: [(u) => picture.onCursor(u.cursor.idx ?? null)],
      setSelect: [(u) => chosen(u, picture)],
    },
  };
  return new uPlot(options, data, target);
}

/** Takes what was drawn over; what is shown then need not look chosen. */
function chosen(u: uPlot, { onChoose }: Picture) {
  const { left, width } = u.select;
  if (width < DRAGGED) return;
  onChoose(u.posToVal(left, "x"), u.posToVal(left + width, "x"));
  choose(u, undefined);
}

/** The zero line, and what happened. */
function paint(u: uPlot, { kind, names, ink, marks }: Picture) {
  const { ctx, bbox } = u;
  if (kind === "lanes") return paintLanes(u, { names, ink, marks: marks() });
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top - 8 * devicePixelRatio, bbox.width, bbox.height + 8 * devicePixelRatio);
  ctx.clip();
  ctx.lineWidth = devicePixelRatio;
  if (kind === "throughput") {
    const zero = Math.round(u.valToPos(0, "y", true));
    ctx.strokeStyle = ink.axis;
    ctx.beginPath();
    ctx.moveTo(bbox.left, zero);
    ctx.lineTo(bbox.left + bbox.width, zero);
    ctx.stroke();
  }
  paintMarks(u, kind, ink, marks());
  ctx.restore();
}

/** From right to left; words are left out where the next mark is too near. */
function paintMarks(u: uPlot, kind: Kind, ink: Inks, marks: Happening[]) {
  const { left, width } = u.bbox;
  let [last, free] = [Infinity, left + width];
  for (const mark of marks) {
    const x = Math.round(u.valToPos(mark.time, "x", true));
    if (x < left || x > left + width || x === last) continue;
    last = x;
    paintMark(u, kind, ink.moods[mark.mood], x);
    if (kind === "throughput" && mark.label) free = paintLabel(u, ink, mark, x, free);
    else free = Math.min(free, x);
  }
}

function paintMark(u: uPlot, kind: Kind, color: string, x: number) {
  const { ctx, bbox } = u;
  ctx.strokeStyle = color;
  ctx.fillStyle = color;
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(x, bbox.top);
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
  ctx.setLineDash([]);
  if (kind !== "throughput") return;
  const size = 5 * devicePixelRatio;
  ctx.beginPath();
  ctx.moveTo(x - size, bbox.top - size);
  ctx.lineTo(x + size, bbox.top - size);
  ctx.lineTo(x, bbox.top + size);
  ctx.fill();
}

/** Right of the mark, or left of it where nothing else is; what is free then ends there. */
function paintLabel(u: uPlot, ink: Inks, { label, mood }: Happening, x: number, free: number): number {
  const { ctx, bbox } = u;
  const gap = 7 * devicePixelRatio;
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  const width = ctx.measureText(label).width;
  const right = x + gap + width <= free;
  if (!right && free < bbox.left + bbox.width) return x;
  const from = right ? x + gap : x - gap - width;
  // Legible over what is painted below it.
  ctx.strokeStyle = ink.surface;
  ctx.lineWidth = 3 * devicePixelRatio;
  ctx.fillStyle = ink.moods[mood];
  ctx.textAlign = "left";
  ctx.textBaseline = "top";
  ctx.strokeText(label, from, bbox.top);
  ctx.fillText(label, from, bbox.top);
  ctx.lineWidth = devicePixelRatio;
  return Math.min(x, from);
}
