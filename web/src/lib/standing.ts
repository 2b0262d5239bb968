/** How things stand, in words: the verdict on the whole, and the standing of each link. */

import { isAway, isWell, type Account, type Beside, type Leak, type Link, type Path, type Status } from "./status";
import { amount, duration, sentence, some } from "./units";

export type Mood = "good" | "uneasy" | "bad" | "plain";

/** A mood is told by its sign as well, for those who do not see its colour. */
export const SIGNS: Record<Mood, string> = { good: "●", uneasy: "▲", bad: "✕", plain: "○" };

export interface Standing {
  word: string;
  mood: Mood;
  /** Why it is so, the most telling first. */
  why: string[];
}

/** Paused by an operator, which is no trouble. */
export function isPaused(link: Link): boolean {
  return link.cause === "paused" || link.reason === "paused by the operator";
}

export function pathsOf(status: Status, link: string): { class: string; path: Path }[] {
  return status.tunnels.flatMap((tunnel) =>
    tunnel.paths.filter((path) => path.link === link).map((path) => ({ class: tunnel.class, path })),
  );
}

const PATH_WORDS: [Path["state"], string, Mood][] = [
  ["suspect", "suspect", "uneasy"],
  ["probation", "returning", "uneasy"],
  ["down", "no answer", "bad"],
];

export function standing(status: Status, link: Link): Standing {
  const paths = pathsOf(status, link.name);
  if (isPaused(link)) return { word: "paused", mood: "plain", why: ["paused by the operator"] };
  if (link.state === "down") {
    const since = `for ${duration(link.since_seconds)}`;
    const why = [link.reason, link.hub, since].filter((it) => it !== undefined);
    return { word: "down", mood: "bad", why };
  }
  if (paths.length === 0) {
    const barred = status.tunnels.every((tunnel) => tunnel.links && !tunnel.links.includes(link.name));
    if (barred && status.tunnels.length > 0) {
      return { word: "unused", mood: "plain", why: ["no class may use it, as the config says"] };
    }
    const reason = status.tunnels.find((tunnel) => tunnel.reason)?.reason;
    return { word: "no path", mood: "uneasy", why: [link.hub ?? reason ?? "no tunnel uses it yet"] };
  }
  const states = paths.map(({ path }) => path.state);
  const why = reasons(paths);
  if (states.includes("up") && link.standby) return { word: "standby", mood: "plain", why };
  if (states.includes("up")) return { word: "up", mood: "good", why };
  const [, word, mood] = PATH_WORDS.find(([state]) => states.includes(state)) ?? PATH_WORDS.at(-1)!;
  return { word, mood, why };
}

/** What the paths say, with the class before it where classes differ. */
function reasons(paths: { class: string; path: Path }[]): string[] {
  const said = paths.map((it) => ({ class: it.class, why: it.path.why || it.path.reason || "" }));
  const different = new Set(said.map((it) => it.why));
  if (different.size === 1) return [...different].filter((it) => it !== "");
  return said.filter((it) => it.why !== "").map((it) => `${it.class}: ${it.why}`);
}

/** What becomes, while there is no tunnel, of packets that belong into it; in the words of `sennit status`. */
export function leaking({ policy, in_force, held_before_start }: Leak): Standing {
  const told = (word: string, mood: Mood, why: string): Standing => ({ word, mood, why: [why] });
  if (policy === "allow") return told("open", "uneasy", 'what belongs into it leaves in the clear (leak = "allow")');
  if (in_force === false) {
    const why = "somebody has taken its routes or rules from this host; an edge that runs puts them back";
    return told("not blocked", "bad", `what the config says does not hold (leak = "block"): ${why}`);
  }
  if (!in_force) return told("not known", "uneasy", "nobody can see whether what belongs into it leaves in the clear");
  const before = held_before_start
    ? ", and was before this edge started"
    : "; before this edge started it was not: sennit-guard sees to that";
  return told("blocked", "good", `what belongs into it is unreachable${before}`);
}

/** A prefix of as few bits or fewer is more than somebody's own network. */
const WIDE = 8;
/** Networks that nobody has on the internet (RFC 1918, RFC 4193), as wide as they are. */
const PRIVATE = /^(10\.|fc|fd)/;

function isWide({ prefix }: Beside): boolean {
  return Number(prefix.split("/")[1]) <= WIDE && !PRIVATE.test(prefix);
}

/** What leaves the site outside the tunnel now though it belongs into it, in sentences. */
export function bypassing({ leak, state }: Status): string[] {
  if (!leak) return [];
  const told: string[] = [];
  const isOpen = leak.policy === "allow" || leak.in_force === false;
  if (isOpen && (state === "down" || state === "connecting")) {
    told.push(`There is no tunnel. ${sentence(leaking(leak).why[0]!)}`);
  }
  for (const wide of (leak.beside ?? []).filter(isWide)) {
    told.push(`${wide.prefix} leaves by ${wide.interface} beside the tunnel, as a route of this host says.`);
  }
  return told;
}

/** How a link stands with its cap. */
export function spending(account: Account): Standing {
  const { cap_bytes: cap, used_bytes: used, forecast_bytes: forecast } = account;
  const days = `${account.days_left} day${account.days_left === 1 ? "" : "s"}`;
  const of = cap === undefined ? "" : ` of ${amount(cap)}`;
  const comes = forecast === undefined ? "" : `; ${amount(forecast)} by then if it goes on like this`;
  const why = [`${amount(used)}${of} used; the cycle ends on ${account.cycle_end}, in ${days}${comes}`];
  if (account.cost > 0) why.push(`its cost is ${account.cost}`);
  if (account.demoted) return { word: "cap used up", mood: "bad", why: ["in reserve behind all other links", ...why] };
  if (cap !== undefined && (forecast ?? 0) > cap) return { word: "cap will not last", mood: "uneasy", why };
  return { word: "", mood: "plain", why };
}

export interface Verdict {
  mood: Mood;
  head: string;
  rest: string[];
}

const HEADS: Record<Status["state"], [string, Mood]> = {
  up: ["Healthy", "good"],
  degraded: ["Degraded", "uneasy"],
  connecting: ["Connecting", "uneasy"],
  down: ["Down", "bad"],
};

export function verdict(status: Status): Verdict {
  const [word, mood] = HEADS[status.state];
  const told = status.role === "edge" ? aboutLinks(status) : aboutSites(status);
  const head = `${word}. ${status.reason ? sentence(status.reason) : told}`;
  const rest = status.reason ? [told] : [];
  rest.push(...(status.notes ?? []).map(sentence));
  for (const { prefix, reason } of status.refused_lan ?? []) {
    rest.push(sentence(`the hub does not route ${prefix}: ${reason}`));
  }
  return { mood, head, rest };
}

function aboutLinks(status: Status): string {
  if (status.links.length === 0) return "No link is configured.";
  const groups = new Map<string, string[]>();
  for (const link of status.links) {
    const { word } = standing(status, link);
    groups.set(word, [...(groups.get(word) ?? []), link.name]);
  }
  const working = groups.get("up") ?? [];
  const count = status.links.length;
  const parts = [`${working.length} of ${count} link${count === 1 ? "" : "s"} up`];
  for (const [word, names] of groups) {
    if (word !== "up") parts.push(`${some(names)} ${word}`);
  }
  return `${parts.join("; ")}.`;
}

function aboutSites(status: Status): string {
  const sites = status.sites ?? [];
  const here = sites.filter((site) => !isAway(site));
  const gone = sites.length - here.length;
  const away = gone > 0 ? `; ${gone} away` : "";
  if (here.length === 0) return `No site has a tunnel${away}.`;
  const well = here.filter(isWell).length;
  const all = `${here.length} site${here.length === 1 ? "" : "s"} connected`;
  return `${all}${well === here.length ? "" : `, ${well} of them with all their links`}${away}.`;
}
