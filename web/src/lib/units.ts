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

export function clock(unix: number): string {
  return new Date(unix * 1e3).toLocaleTimeString("en-GB");
}

/** `a`, `a and b`, `a, b and c`. */
export function list(words: string[]): string {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}
