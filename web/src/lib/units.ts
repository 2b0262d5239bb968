/** Numbers for people: rates in bits, amounts in bytes, times in the unit that fits. */

const NOT_KNOWN = "–";

function short(value: number): string {
  return value.toFixed(value < 9.95 ? 1 : 0);
}

/** Bytes a second as bits a second. */
export function rate(bytes: number | null | undefined): string {
  if (bytes == null) return NOT_KNOWN;
  const bits = bytes * 8;
  if (bits < 1e3) return `${Math.round(bits)} b/s`;
  if (bits < 1e6) return `${short(bits / 1e3)} kb/s`;
  if (bits < 1e9) return `${short(bits / 1e6)} Mb/s`;
  return `${short(bits / 1e9)} Gb/s`;
}

export function amount(bytes: number | null | undefined): string {
  if (bytes == null) return NOT_KNOWN;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1023.5 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return unit === 0 ? `${value} B` : `${short(value)} ${units[unit]}`;
}

export function millis(seconds: number | null | undefined): string {
  if (seconds == null) return NOT_KNOWN;
  return `${short(seconds * 1e3)} ms`;
}

export function percent(ratio: number | null | undefined): string {
  if (ratio == null) return NOT_KNOWN;
  const value = ratio * 100;
  return `${value > 0 && value < 9.95 ? value.toFixed(1) : Math.round(value)} %`;
}

export function duration(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** Made when it is wanted: formats of dates take long to make, and nothing that is first to see needs one. */
function lazily<T>(make: () => T): () => T {
  let made: T | undefined;
  return () => (made ??= make());
}

/** The zone in which times are shown, like `Europe/Berlin`. */
export const zone = lazily(() => Intl.DateTimeFormat().resolvedOptions().timeZone);

const timeFormat = lazily(() => new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" }));
const dayFormat = lazily(() => new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" }));
const momentFormat = lazily(
  () =>
    new Intl.DateTimeFormat("en-GB", {
      day: "numeric",
      month: "short",
      year: "numeric",
      hour: "2-digit",
      minute: "2-digit",
      timeZoneName: "short",
    }),
);

/** The time of day, after its date unless that is the day of `now`. */
export function clock(unix: number, now = unix): string {
  const date = new Date(unix * 1e3);
  const isToday = date.toDateString() === new Date(now * 1e3).toDateString();
  return `${isToday ? "" : `${dayFormat().format(date)} `}${timeFormat().format(date)}`;
}

/** A moment on an axis with one each so many seconds: the date at midnight, and elsewhere the time of day. */
export function tick(unix: number, step: number): string {
  const date = new Date(unix * 1e3);
  const midnight = date.getHours() + date.getMinutes() + date.getSeconds() === 0;
  if (step >= 86_400 || midnight) return dayFormat().format(date);
  const time = timeFormat().format(date);
  return step < 60 ? time : time.slice(0, -3);
}

/** Date, time and zone, to the minute. */
export function moment(unix: number): string {
  return Number.isFinite(unix) ? momentFormat().format(unix * 1e3) : NOT_KNOWN;
}

/** To the second and in UTC, as on the command line. */
export function rfc3339(unix: number): string {
  return Number.isFinite(unix) ? new Date(unix * 1e3).toISOString().replace(/\.\d+Z$/, "Z") : "";
}

/** An address without its port. */
export function host(address: string): string {
  return address.replace(/:\d+$/, "").replace(/^\[(.*)\]$/, "$1");
}

/** `a`, `a and b`, `a, b and c`. */
export function list(words: string[]): string {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

/** The first of them by name, and how many more there are. */
export function some(words: string[]): string {
  const SHOWN = 4;
  if (words.length <= SHOWN + 1) return list(words);
  return list([...words.slice(0, SHOWN), `${words.length - SHOWN} more`]);
}

/** A text of the daemon as a sentence. */
export function sentence(text: string): string {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}
