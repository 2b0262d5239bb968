// Documents that fit `sennit.status/1`, and move as those of a daemon do.

const START = Date.parse("2026-11-26T14:00:00Z");
const MB = 125_000;

function wave(seconds, mean, swing, period, phase = 0) {
  return mean + swing * Math.sin((2 * Math.PI * seconds) / period + phase);
}

/** What a rate that swings has carried since the start. */
function carried(seconds, mean, swing, period, phase = 0) {
  let sum = 0;
  for (let i = 0; i <= seconds; i += 1) sum += Math.max(0, wave(i, mean, swing, period, phase));
  return Math.round(sum);
}

function path(id, link, more) {
  return {
    id,
    link,
    local: "192.0.2.7:4000",
    remote: "203.0.113.10:443",
    state: "up",
    since_seconds: 60,
    rtt_min_seconds: 0.02,
    sent_packets: 1000,
    lost_packets: 1,
    recent_packets: 1000,
    recent_lost_packets: 1,
    loss_ratio: 0.001,
    rate_bytes_per_second: 20 * MB,
    cwnd_bytes: 500_000,
    congestion: "bbr3",
    congestion_cause: "usual",
    congestion_reason: "nothing asks for another",
    in_flight_bytes: 1000,
    mtu_bytes: 1452,
    mtu_source: "probed",
    fec: { sources_sent: 0, repairs_sent: 0, sources_received: 0, repairs_received: 0 },
    sent_bytes: 1,
    received_bytes: 1,
    why: "",
    ...more,
  };
}

/** What a class has of a link in one direction. */
function shared(rate, carries, more) {
  return {
    link_bytes_per_second: carries,
    link_cause: "clear",
    link_queue_seconds: 0.001,
    guaranteed_bytes_per_second: carries / 5,
    given_bytes_per_second: carries / 2,
    sent_bytes_per_second: rate,
    held: false,
    ...more,
  };
}

function tunnel(seconds, name, more) {
  return {
    class: name,
    site: "van-07",
    policy: "bond",
    delivery: "repair",
    state: "up",
    since_seconds: seconds,
    resumed: false,
    early: false,
    key_updates: 0,
    sent_bytes: carried(seconds, 20 * MB, 6 * MB, 30),
    received_bytes: carried(seconds, 180 * MB, 20 * MB, 40),
    wrong_source_packets: 0,
    wrong_destination_packets: 0,
    queue: { waiting_bytes: 14_000, delay_seconds: 0.011, dropped_packets: 12, marked_packets: 3, overflowed_packets: 0 },
    order: {
      held_packets: 1,
      missed_packets: 0,
      late_packets: 0,
      duplicate_packets: 0,
      overflows: 0,
    },
    repair: { repeated_packets: 0, abandoned_packets: 0 },
    fec: {
      setting: "auto",
      reason: "the links lose too little",
      sources_sent: 0,
      repairs_sent: 0,
      overhead_ratio: 0,
      repairs_unsent: 0,
      spared_packets: 0,
      sources_received: 0,
      repairs_received: 0,
      recovered_packets: 0,
      too_late_packets: 0,
      failed_repairs: 0,
      lost_packets: 0,
      residual_loss_ratio: 0,
      malformed_repairs: 0,
      far_recovered_packets: 0,
      far_lost_packets: 0,
    },
    headers: { thin_sent_packets: 0, saved_bytes: 0, thin_received_packets: 0, unknown_packets: 0 },
    paths: [],
    flow_count: 0,
    flows: [],
    ...more,
  };
}

function flow(name, rate, links, why, more) {
  return {
    flow: name,
    protocol: name.split(" ")[0],
    source: "192.168.8.21",
    source_port: 40000,
    destination: "142.250.1.1",
    destination_port: 443,
    age_seconds: 75,
    silent_seconds: 0,
    sent_bytes: rate * 75,
    sent_packets: 1000,
    rate_bytes_per_second: rate,
    placement: links.length > 1 ? "striped" : "one_link",
    thin: false,
    ordered: true,
    links: links.map(([link, share_ratio]) => ({ link, share_ratio })),
    queue: {
      waiting_bytes: 0,
      delay_seconds: 0,
      dropped_packets: 0,
      marked_packets: 0,
      overflowed_packets: 0,
      neighbours: 0,
    },
    why,
    ...more,
  };
}

/** An edge with four links: two carry, one stands by, and one is down. lte-a is lost at `lostAt`. */
export function edge(seconds, { hostile = "", lostAt = Infinity } = {}) {
  const gone = seconds >= lostAt;
  const rtt = (mean, swing, period) => Math.max(0.004, wave(seconds, mean, swing, period));
  const link = (name, device, more) => ({
    name: name + hostile,
    interface: device,
    address: "192.0.2.7",
    tier: 1,
    weight: 1,
    state: "up",
    since_seconds: seconds,
    delivered_bytes_per_second: 1,
    sent_bytes: 0,
    received_bytes: 0,
    ...more,
  });
  const down = { state: "down", cause: "no_address", reason: "wwan0 has no address" };
  return {
    schema: "sennit.status/1",
    time: new Date(START + seconds * 1000).toISOString(),
    role: "edge",
    version: "0.1.0",
    state: "degraded",
    reason: gone ? "2 of 4 links do not work" : "link marina does not work",
    uptime_seconds: 3_500_000 + seconds,
    device: "sennit0",
    addresses: ["10.90.0.7", "fd90::7"],
    notes: hostile ? [`a note with ${hostile}`] : [],
    links: [
      link("starlink", "eth1", {
        sent_bytes: carried(seconds, 12 * MB, 3 * MB, 30),
        received_bytes: carried(seconds, 148 * MB, 22 * MB, 45),
        rtt_seconds: rtt(0.038, 0.009, 15),
        loss_ratio: Math.max(0, wave(seconds, 0.004, 0.006, 60)),
      }),
      link("lte-a", "wwan0", {
        sent_bytes: carried(Math.min(seconds, lostAt), 18 * MB, 4 * MB, 25),
        received_bytes: carried(Math.min(seconds, lostAt), 64 * MB, 9 * MB, 33, 2),
        ...(gone ? down : { rtt_seconds: rtt(0.052, 0.006, 22), loss_ratio: 0 }),
      }),
      link("lte-b", "wwan1", { tier: 2, standby: true, rtt_seconds: rtt(0.061, 0.004, 50), loss_ratio: 0 }),
      link("marina", "wlan0", { ...down, address: null, reason: "wlan0 has no carrier" }),
    ].map(({ address, ...it }) => (address === null ? it : { ...it, address })),
    tunnels: [
      tunnel(seconds, `default${hostile}`, {
        paths: [
          path(0, `starlink${hostile}`, {
            share_ratio: gone ? 1 : 0.69,
            rtt_seconds: 0.038,
            why: "it carries as much as congestion control lets it, 171 Mb/s",
          }),
          ...(gone
            ? []
            : [
                path(1, `lte-a${hostile}`, {
                  share_ratio: 0.31,
                  rtt_seconds: 0.052,
                  why: "it takes what starlink has no room for",
                }),
              ]),
          path(2, `lte-b${hostile}`, {
            share_ratio: 0,
            rtt_seconds: 0.061,
            why: "it waits until links of tier 1 fail",
          }),
        ],
        flow_count: 3,
        flows: [
          flow(
            `tcp 192.168.8.21:40000 to 142.250.1.1:443${hostile}`,
            2.4 * MB,
            gone ? [[`starlink${hostile}`, 1]] : [[`starlink${hostile}`, 0.7], [`lte-a${hostile}`, 0.3]],
            ["it fills more than one link, so its packets take turns on both", `the far end puts them in order${hostile}`],
          ),
          flow("tcp 192.168.8.40:51022 to 10.9.0.2:22", 1800, [[`starlink${hostile}`, 1]], [
            "it sends too little to fill a link, and starlink has the shortest round trip",
          ]),
        ],
      }),
      tunnel(seconds, "voice", {
        policy: "redundant",
        delivery: "datagram",
        sent_bytes: carried(seconds, 0.2 * MB, 0.02 * MB, 9),
        received_bytes: carried(seconds, 0.2 * MB, 0.02 * MB, 9),
        queue: { waiting_bytes: 0, delay_seconds: 0, dropped_packets: 0, marked_packets: 0, overflowed_packets: 0 },
        queue_down: {
          waiting_bytes: 0,
          delay_seconds: 0.003,
          dropped_packets: 4,
          marked_packets: 5,
          overflowed_packets: 6,
          told_seconds: 0.4,
        },
        paths: [
          path(0, `starlink${hostile}`, {
            share_ratio: 0.5,
            why: "each packet takes two links",
            shared: shared(0.2 * MB, 20 * MB, { held: true }),
            shared_down: shared(0.3 * MB, 180 * MB, { loss_ratio: 0, told_seconds: 0.4 }),
          }),
          ...(gone
            ? []
            : [path(1, `lte-a${hostile}`, { share_ratio: 0.5, why: "each packet takes two links" })]),
        ],
        flow_count: 1,
        flows: [
          flow(
            "udp 192.168.8.33:8801 to 170.114.4.2:8801",
            0.2 * MB,
            [[`starlink${hostile}`, 1], [`lte-a${hostile}`, 1]],
            ["the class copies each packet to two links"],
            { placement: "copies" },
          ),
        ],
      }),
    ],
  };
}

/**
 * What the history has of these series at a moment, of the last `since` seconds: each step alike, the
 * first series 10 Mb/s down and 1 up, the second twice as much.
 */
export function kept(names, seconds, step, since) {
  const length = { second: 1, minute: 60, hour: 3600 }[step];
  // It writes seconds down two by two.
  const now = Math.floor(START / 1000 + seconds) - (step === "second" ? 2 : 0);
  const first = Math.ceil((now - since) / length);
  const whole = Math.floor(now / length) - (step === "second" ? 0 : 1);
  const time = Array.from({ length: Math.max(0, whole - first + 1) }, (_, at) => length * (first + at));
  return names.map((name, at) => ({
    name,
    time,
    sent_bytes_per_second: time.map(() => MB * (at + 1)),
    received_bytes_per_second: time.map(() => 10 * MB * (at + 1)),
    rtt_seconds: time.map(() => (name.startsWith("link/") ? 0.04 * (at + 1) : null)),
    loss_ratio: time.map(() => (name.startsWith("link/") ? 0.02 : null)),
    up_ratio: time.map(() => 1),
  }));
}

/** An event of the journal. */
export function happened(seconds, event, text, more = {}) {
  const id = START + Math.round(seconds * 1000);
  return { id, time: new Date(id).toISOString(), text, event, ...more };
}

/** A site that has no tunnel, and left so many hours ago. */
function absent(name, hours) {
  const last_seen = new Date(START - hours * 3.6e6).toISOString().replace(".000", "");
  return { name, state: "down", last_seen, classes: [], sent_bytes: 0, received_bytes: 0, links: [] };
}

/** A hub with this many sites of two links each, and others that are away. */
export function hub(seconds, { sites = 5, links = 2, away = 0, hostile = "" } = {}) {
  const traffic = (index) => ({
    sent_bytes: carried(seconds, (3 + (index % 7)) * MB, 2 * MB, 20 + (index % 5), index),
    received_bytes: carried(seconds, (1 + (index % 3)) * MB, 0.5 * MB, 20, index),
  });
  const names = Array.from({ length: sites }, (_, index) => `site-${String(index).padStart(3, "0")}${hostile}`);
  const kinds = ["starlink", "lte-a", "lte-b"];
  return {
    schema: "sennit.status/1",
    time: new Date(START + seconds * 1000).toISOString(),
    role: "hub",
    version: "0.1.0",
    state: "up",
    uptime_seconds: 90_000 + seconds,
    device: "sennit0",
    addresses: ["10.90.0.1"],
    links: [],
    tunnels: names.map((site, index) =>
      tunnel(seconds, "default", {
        site,
        ...traffic(index),
        paths: Array.from({ length: links }, (_, at) =>
          path(at, kinds[at] ?? `link-${at}`, { share_ratio: 1 / links, rtt_seconds: 0.03 + at / 100 }),
        ),
      }),
    ),
    sites: [
      ...Array.from({ length: away }, (_, index) => absent(`gone-${String(index).padStart(3, "0")}`, away - index)),
      ...names.map((name, index) => ({
        name,
        state: index === 3 ? "degraded" : "up",
        classes: ["default"],
        ...traffic(index),
        links: Array.from({ length: links }, (_, at) => ({
          name: kinds[at] ?? `link-${at}`,
          state: index === 3 && at === 1 ? "down" : "up",
          sent_bytes: 1,
          received_bytes: 1,
          delivered_bytes_per_second: 0,
          rtt_seconds: wave(seconds, 0.03 + at / 100, 0.004, 17, index),
          loss_ratio: 0.001,
        })),
      })),
    ],
  };
}
