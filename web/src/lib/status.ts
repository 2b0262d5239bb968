/** What the page reads of `sennit.status/1`; the schema in the book tells all of it. */

export type State = "up" | "connecting" | "degraded" | "down";
export type PathState = "up" | "probation" | "suspect" | "down";

export interface Traffic {
  sent_bytes: number;
  received_bytes: number;
  /** Of a link, in the last second that is known. */
  sent_bytes_per_second?: number;
  received_bytes_per_second?: number;
  delivered_bytes_per_second?: number;
  rtt_seconds?: number;
  loss_ratio?: number;
}

export interface Link extends Traffic {
  name: string;
  interface: string;
  address?: string;
  /** Where the hub sees it. */
  public?: { seen: string[]; translated: boolean }[];
  tier: number;
  weight: number;
  state: "up" | "down";
  cause?: string;
  reason?: string;
  hub?: string;
  since_seconds: number;
  /** It is in reserve. */
  standby?: boolean;
  up_limit_bytes_per_second?: number;
  down_limit_bytes_per_second?: number;
  up_limited_by_operator?: boolean;
  down_limited_by_operator?: boolean;
  account?: Account;
}

/** What a link has carried in its billing cycle. */
export interface Account {
  cost: number;
  cap_bytes?: number;
  used_bytes: number;
  /** What the cycle comes to if it goes on like this. */
  forecast_bytes?: number;
  /** The day on which the next cycle begins. */
  cycle_end: string;
  days_left: number;
  /** The cap is used up. */
  demoted: boolean;
}

/** What becomes of packets that belong into the tunnel while there is none. */
export interface Leak {
  policy: "block" | "allow";
  /** Whether the kernel keeps them in; absent if it cannot be asked. */
  in_force?: boolean;
  held_before_start: boolean;
  /** What belongs into the tunnel. */
  routes?: string[];
  /** What of that leaves beside it all the same, the widest first; the first few. */
  beside?: Beside[];
  beside_count?: number;
}

/** A route of the host that is longer than one into the tunnel. */
export interface Beside {
  prefix: string;
  interface: string;
}

/** What a class has of a link, in one direction. */
export interface SharedLink {
  link_bytes_per_second?: number;
  given_bytes_per_second?: number;
  sent_bytes_per_second: number;
  link_queue_seconds?: number;
  held: boolean;
}

export interface Queue {
  waiting_bytes: number;
  delay_seconds: number;
  dropped_packets: number;
  marked_packets: number;
  overflowed_packets: number;
}

export interface Path {
  id: number;
  link?: string;
  remote: string;
  state: PathState;
  reason?: string;
  rtt_seconds?: number;
  rtt_min_seconds?: number;
  loss_ratio?: number;
  rate_bytes_per_second?: number;
  congestion?: string;
  cwnd_bytes: number;
  mtu_bytes: number;
  share_ratio?: number;
  shared?: SharedLink;
  shared_down?: SharedLink;
  why?: string;
}

export interface Flow {
  flow: string;
  sent_bytes: number;
  age_seconds: number;
  rate_bytes_per_second: number;
  placement: "striped" | "one_link" | "copies" | "silent";
  links: { link: string; share_ratio: number }[];
  why: string[];
}

export interface Tunnel {
  class: string;
  site: string;
  policy: string;
  delivery: string;
  state: State;
  reason?: string;
  /** The links that it may use, if those are not all. */
  links?: string[];
  sent_bytes: number;
  received_bytes: number;
  queue?: Queue;
  queue_down?: Queue;
  order?: { held_packets: number; late_packets: number; missed_packets: number };
  repair?: { repeated_packets: number; abandoned_packets: number };
  paths: Path[];
  /** In place of the paths of a hub: the links that carry what is sent. */
  shares?: { link: string; share_ratio: number }[];
  flow_count?: number;
  flows?: Flow[];
}

export interface Site {
  name: string;
  state: State;
  /** Only while it is away. */
  last_seen?: string;
  classes: string[];
  sent_bytes: number;
  received_bytes: number;
  links: (Traffic & { name: string; state: "up" | "down" })[];
}

export interface Status {
  schema: string;
  time: string;
  role: "edge" | "hub";
  version: string;
  state: State;
  reason?: string;
  uptime_seconds: number;
  device: string;
  addresses: string[];
  notes?: string[];
  links: Link[];
  tunnels: Tunnel[];
  sites?: Site[];
  leak?: Leak;
  refused_lan?: { prefix: string; reason: string }[];
}

/** Whether a site has no tunnel. */
export function isAway(site: Site): boolean {
  return site.classes.length === 0;
}

/** Whether it is here with all its tunnels and all its links. */
export function isWell(site: Site): boolean {
  return site.state === "up" && site.links.every((link) => link.state === "up");
}

/** A class of an edge, or of one site of a hub. */
export function tunnelKey(tunnel: Tunnel): string {
  return JSON.stringify([tunnel.site, tunnel.class]);
}

/** Each with a key of its own: a site may give several classes the same name. */
export function keyed<T>(items: T[], name: (item: T) => string): { key: string; item: T }[] {
  const seen = new Map<string, number>();
  return items.map((item) => {
    const word = name(item);
    const count = seen.get(word) ?? 0;
    seen.set(word, count + 1);
    return { key: `${count} ${word}`, item };
  });
}
