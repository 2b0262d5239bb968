/** What the daemon has kept of the past, `sennit.history/1`, for the charts. */

import { silent, type Column, type Table } from "./table";

export interface Kept {
  step_seconds: number;
  series: {
    name: string;
    /** When each step began, in seconds since 1970. */
    time: number[];
    sent_bytes_per_second: number[];
    received_bytes_per_second: number[];
    rtt_seconds: Column;
    loss_ratio: Column;
    up_ratio: Column;
  }[];
}

/** The sum of the sites of a hub, which keeps nothing of each. */
export const ALL_SITES = "all sites";

const HOUR = 3600;
const DAY = 24 * HOUR;
/** How finely the daemon keeps so many seconds, the finest first. */
const STEPS = [
  { name: "second", seconds: 1, kept: HOUR },
  { name: "minute", seconds: 60, kept: 7 * DAY },
  { name: "hour", seconds: HOUR, kept: Infinity },
] as const;

/** The finest step of which there are so many seconds. */
export function stepOf(span: number): { name: string; seconds: number } {
  return STEPS.find((step) => span <= step.kept)!;
}

/** Down is towards the site, at both ends. */
export function toTable({ step_seconds, series }: Kept, hub: boolean): Table {
  const times = [...new Set(series.flatMap((it) => it.time))].sort((a, b) => a - b);
  const rows = new Map(times.map((time, row) => [time, row]));
  const sources = series.map((it) => {
    const [down, up] = [it.received_bytes_per_second, it.sent_bytes_per_second];
    const loss = step_seconds === 1 ? evened(it.loss_ratio, up) : it.loss_ratio;
    const source = silent(it.name === "total" ? ALL_SITES : it.name.slice(it.name.indexOf("/") + 1), times.length);
    const fill = (column: Column, values: Column) => {
      it.time.forEach((time, at) => (column[rows.get(time)!] = values[at] ?? null));
    };
    fill(source.down, hub ? up : down);
    fill(source.up, hub ? down : up);
    fill(source.rtt, it.rtt_seconds);
    fill(source.loss, loss);
    fill(source.alive, it.up_ratio);
    return source;
  });
  return { times, sources };
}

/** Seconds of which the status tells the loss: half a minute to a minute. */
const EVENED_S = 45;

/** Loss of single seconds as the status tells it, so that one picture has both. What was sent is their weight. */
function evened(loss: Column, sent: number[]): Column {
  const weight = (at: number) => (loss[at] == null ? 0 : (sent[at] ?? 0));
  let [lost, all] = [0, 0];
  return loss.map((_, at) => {
    all += weight(at);
    lost += weight(at) * (loss[at] ?? 0);
    const old = at - EVENED_S;
    if (old >= 0) {
      all -= weight(old);
      lost -= weight(old) * (loss[old] ?? 0);
    }
    return all > 0.5 ? Math.max(0, lost / all) : null;
  });
}
