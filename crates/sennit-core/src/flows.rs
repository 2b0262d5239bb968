//! What became of each flow, for whoever asks: the account behind `sennit why FLOW`.
//!
//! Queues and schedulers know a flow only by its hash. Here it has its addresses, which are read
//! from the first packet, and what left for it on each path. Memory is bounded: a few flows of each
//! queue of [`crate::queue`]. A new one takes the place of one that fell silent; while none is, it
//! is not remembered, and nothing but this account misses it.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    net::{IpAddr, SocketAddr},
    str::FromStr,
    time::{Duration, Instant},
};

use sennit_packet::{Bitrate, FlowKey, IpPacket, Protocol};

use crate::{
    queue::{FLOWS, QueueStats, WAYS},
    schedule::PathSet,
};

/// Flows remembered of each queue: about 200 KB in all, if every place is taken.
pub const PER_QUEUE: usize = 4;
/// Paths that are told apart; a tunnel has no more.
pub const PATHS: usize = 16;
/// Half of what is called recent is older than this.
pub const WINDOW: Duration = Duration::from_secs(1);
/// After this long without a packet a flow is not worth telling of.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// A run of packets is written down after this long, even if it goes on.
const RUN: Duration = Duration::from_millis(20);

/// The flows of one tunnel, in one direction.
#[derive(Debug)]
pub struct Flows {
    queues: Vec<Vec<Flow>>,
    /// A mark of each, close together: whoever chooses among all reads nothing else.
    marks: Vec<[Mark; PER_QUEUE]>,
    /// When the first came.
    epoch: Option<Instant>,
    /// Not yet written down: flows send many packets in a row over the same path.
    run: Option<Run>,
}

/// What a flow is chosen by.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// The second since the first flow came in which it sent last, the first being 1; 0 is nobody.
    heard: u32,
    /// Bytes per second that it sent of late then.
    rate: u32,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    hash: u32,
    paths: PathSet,
    /// Where the flow is in its queue, if it is remembered.
    index: Option<usize>,
    packets: u32,
    bytes: u32,
    ordered: bool,
    last: Instant,
    until: Instant,
}

#[derive(Debug)]
struct Flow {
    hash: u32,
    key: FlowKey,
    since: Instant,
    last: Instant,
    /// When its order last mattered.
    ordered: Option<Instant>,
    packets: u64,
    bytes: u64,
    /// What its queue had done before it came.
    before: QueueStats,
    recent: Recent,
}

/// Bytes of late, of which half is forgotten with every [`WINDOW`].
#[derive(Clone, Copy, Debug)]
struct Recent {
    since: Instant,
    /// How much time they stand for, at `since`.
    span: Duration,
    bytes: u32,
    paths: [u32; PATHS],
}

/// What is known of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowAccount {
    /// Its addresses and ports.
    pub key: FlowKey,
    /// Its hash.
    pub hash: u32,
    /// Since its first packet left.
    pub age: Duration,
    /// Since its last packet left.
    pub silent: Duration,
    /// Inner packets sent.
    pub packets: u64,
    /// Inner bytes sent, copies not counted.
    pub bytes: u64,
    /// What it sent of late, in inner bytes.
    pub rate: Bitrate,
    /// Whether the far end puts it in order.
    pub ordered: bool,
    /// Bytes of late on each path.
    pub paths: [u32; PATHS],
    /// What its queue had done before it came.
    pub before: QueueStats,
    /// Other flows that lately used its queue.
    pub neighbours: usize,
}

impl Default for Flows {
    fn default() -> Self {
        Self {
            queues: (0..FLOWS).map(|_| Vec::new()).collect(),
            marks: vec![[Mark::default(); PER_QUEUE]; FLOWS],
            epoch: None,
            run: None,
        }
    }
}

impl Flows {
    /// `packet` of the flow with this hash leaves on `paths`, and is put in order if `ordered`.
    /// `before` is what its queue has done so far.
    pub fn handle_sent(
        &mut self,
        hash: u32,
        packet: &[u8],
        ordered: bool,
        paths: PathSet,
        before: impl FnOnce() -> QueueStats,
        now: Instant,
    ) {
        // What was dropped leaves only its number.
        if packet.is_empty() {
            return;
        }
        let same = |run: &&mut Run| run.hash == hash && run.paths == paths && now < run.until;
        if let Some(run) = self.run.as_mut().filter(same) {
            run.count(packet.len(), ordered, now);
            return;
        }
        self.end_run();
        self.epoch.get_or_insert(now);
        let place = hash as usize % FLOWS;
        let known = self.queues[place].iter().position(|flow| flow.hash == hash);
        let index = known.or_else(|| {
            let key = FlowKey::of(&IpPacket::parse(packet).ok()?);
            let before = before();
            let moved = self.take_moved(place, &key);
            let flow = moved.unwrap_or_else(|| Flow::new(hash, key, before, now));
            let flow = Flow {
                hash,
                before,
                ..flow
            };
            admit(&mut self.queues[place], flow, now)
        });
        let mut run = Run {
            hash,
            paths,
            index,
            packets: 0,
            bytes: 0,
            ordered: false,
            last: now,
            until: now + RUN,
        };
        run.count(packet.len(), ordered, now);
        self.run = Some(run);
    }

    /// What is known of a flow from when it had another queue than this, which is one of the same
    /// few.
    fn take_moved(&mut self, place: usize, key: &FlowKey) -> Option<Flow> {
        let first = place - place % WAYS;
        let queues = self.queues[first..first + WAYS].iter_mut();
        let mut queues = queues.zip(&mut self.marks[first..first + WAYS]);
        queues.find_map(|(queue, marks)| {
            let index = queue.iter().position(|flow| flow.key == *key)?;
            let flow = queue.swap_remove(index);
            marks[index] = marks[queue.len()];
            marks[queue.len()] = Mark::default();
            Some(flow)
        })
    }

    /// Writes down the run of packets so far.
    fn end_run(&mut self) {
        if let Some(run) = self.run.take()
            && let Some(index) = run.index
        {
            let (place, heard) = (run.hash as usize % FLOWS, self.second(run.last));
            let flow = &mut self.queues[place][index];
            flow.count(&run);
            let rate = u32::try_from(flow.recent.rate(run.last)).unwrap_or(u32::MAX);
            self.marks[place][index] = Mark { heard, rate };
        }
    }

    /// Seconds since the first flow came, the first being 1; 0 before that.
    fn second(&self, now: Instant) -> u32 {
        let since = |epoch| now.saturating_duration_since(epoch).as_secs() as u32;
        self.epoch.map_or(0, |epoch| 1 + since(epoch))
    }

    /// From now on the numbers of paths mean others.
    pub fn forget_paths(&mut self) {
        self.end_run();
        for flow in self.queues.iter_mut().flatten() {
            flow.recent.paths = [0; PATHS];
        }
    }

    /// The `limit` busiest of the flows that match, and how many match.
    pub fn busiest(
        &mut self,
        pattern: Option<&FlowPattern>,
        limit: usize,
        now: Instant,
    ) -> (Vec<FlowAccount>, usize) {
        self.end_run();
        let (chosen, count) = self.choose(pattern, limit, now);
        let account = |(place, index): (usize, usize)| {
            let queue: &[Flow] = &self.queues[place];
            queue[index].account(queue, now)
        };
        let mut found: Vec<FlowAccount> = chosen.into_iter().map(account).collect();
        found.sort_unstable_by_key(|flow| Reverse((flow.rate, Reverse(flow.silent), flow.bytes)));
        (found, count)
    }

    /// Where the `limit` busiest of the flows that match are, and how many match. Without a pattern
    /// only their marks are read: a thousand flows hold up a packet hardly longer than one.
    fn choose(
        &self,
        pattern: Option<&FlowPattern>,
        limit: usize,
        now: Instant,
    ) -> (Vec<(usize, usize)>, usize) {
        let second = self.second(now);
        let is_meant = |(place, index): (usize, usize)| {
            pattern.is_none_or(|pattern| pattern.matches(&self.queues[place][index].key))
        };
        // The least busy of those that are chosen so far is at the top.
        let (mut chosen, mut count) = (BinaryHeap::new(), 0);
        for (place, marks) in self.marks.iter().enumerate() {
            for (index, mark) in marks.iter().enumerate() {
                let Some(rate) = mark.rate_in(second).filter(|_| is_meant((place, index))) else {
                    continue;
                };
                count += 1;
                let rank = Reverse(((rate, mark.heard), (place, index)));
                if chosen.len() < limit {
                    chosen.push(rank);
                } else if let Some(mut least) = chosen.peek_mut()
                    && least.0.0 < rank.0.0
                {
                    *least = rank;
                }
            }
        }
        let places = chosen.into_iter().map(|Reverse((_, at))| at);
        (places.collect(), count)
    }
}

/// Finds a place for a flow: a new one, or that of the one that is silent for longest.
fn admit(queue: &mut Vec<Flow>, flow: Flow, now: Instant) -> Option<usize> {
    if queue.len() < PER_QUEUE {
        queue.push(flow);
        return Some(queue.len() - 1);
    }
    let (index, silent) = queue
        .iter()
        .map(|flow| now.saturating_duration_since(flow.last))
        .enumerate()
        .max_by_key(|&(_, silent)| silent)?;
    (silent >= WINDOW).then(|| {
        queue[index] = flow;
        index
    })
}

impl Mark {
    /// What its flow sends as of this second, if that is worth telling of: of a silent one half is
    /// forgotten with every [`WINDOW`].
    fn rate_in(self, second: u32) -> Option<u32> {
        let silent = second.saturating_sub(self.heard);
        let is_known = self.heard > 0 && u64::from(silent) < FORGET_AFTER.as_secs();
        is_known.then(|| self.rate.checked_shr(silent).unwrap_or(0))
    }
}

impl Run {
    fn count(&mut self, bytes: usize, ordered: bool, now: Instant) {
        self.packets += 1;
        self.bytes += bytes as u32;
        self.ordered |= ordered;
        self.last = now;
    }
}

impl Flow {
    fn new(hash: u32, key: FlowKey, before: QueueStats, now: Instant) -> Self {
        Self {
            hash,
            key,
            since: now,
            last: now,
            ordered: None,
            packets: 0,
            bytes: 0,
            before,
            recent: Recent {
                since: now,
                span: Duration::ZERO,
                bytes: 0,
                paths: [0; PATHS],
            },
        }
    }

    fn count(&mut self, run: &Run) {
        self.last = run.last;
        if run.ordered {
            self.ordered = Some(run.last);
        }
        self.packets += u64::from(run.packets);
        self.bytes += u64::from(run.bytes);
        self.recent.age(run.last);
        self.recent.bytes = self.recent.bytes.saturating_add(run.bytes);
        for path in run.paths.iter().filter(|&path| path < PATHS) {
            let sum = &mut self.recent.paths[path];
            *sum = sum.saturating_add(run.bytes);
        }
    }

    fn account(&self, queue: &[Self], now: Instant) -> FlowAccount {
        let mut recent = self.recent;
        recent.age(now);
        let active = |flow: &&Self| now.saturating_duration_since(flow.last) < 2 * WINDOW;
        let others = queue.iter().filter(|flow| flow.hash != self.hash);
        // The last packet alone does not say it: an acknowledgement between data has no order to
        // keep.
        let ordered = |at| self.last.saturating_duration_since(at) < WINDOW;
        FlowAccount {
            key: self.key,
            hash: self.hash,
            age: now.saturating_duration_since(self.since),
            silent: now.saturating_duration_since(self.last),
            packets: self.packets,
            bytes: self.bytes,
            rate: Bitrate::bytes_per_second(recent.rate(now)),
            ordered: self.ordered.is_some_and(ordered),
            paths: recent.paths,
            before: self.before,
            neighbours: others.filter(active).count(),
        }
    }
}

impl Recent {
    fn age(&mut self, now: Instant) {
        let age = now.saturating_duration_since(self.since);
        if age < WINDOW {
            return;
        }
        let windows = (age.as_millis() / WINDOW.as_millis()) as u32;
        self.since += windows * WINDOW;
        for bytes in self.paths.iter_mut().chain([&mut self.bytes]) {
            *bytes = bytes.checked_shr(windows).unwrap_or(0);
        }
        let kept = 0.5_f64.powi(windows.min(64) as i32);
        self.span = self.span.mul_f64(kept) + WINDOW.mul_f64(1.0 - kept);
    }

    /// Bytes per second. What has only begun counts as half a window.
    fn rate(&self, now: Instant) -> u64 {
        let span = self.span + now.saturating_duration_since(self.since);
        (f64::from(self.bytes) / span.max(WINDOW / 2).as_secs_f64()) as u64
    }
}

/// Which flows somebody means: `10.9.0.2`, `10.9.0.2:5201`, `:5201`, `udp`, `tcp 10.9.0.2:5201` or
/// `tcp 10.0.0.2:40000 to 10.9.0.2:5201`. Both directions of a connection match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowPattern {
    protocol: Option<Protocol>,
    ends: [End; 2],
}

/// One end of a flow, as far as it was named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct End {
    address: Option<IpAddr>,
    port: Option<u16>,
}

/// The text names no flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAFlow;

impl FlowPattern {
    /// Whether it means this flow.
    pub fn matches(&self, flow: &FlowKey) -> bool {
        let [one, other] = self.ends;
        let (src, dst) = ((flow.src, flow.src_port), (flow.dst, flow.dst_port));
        self.protocol.is_none_or(|it| it == flow.protocol)
            && (one.matches(src) && other.matches(dst) || one.matches(dst) && other.matches(src))
    }
}

impl FromStr for FlowPattern {
    type Err = NotAFlow;

    fn from_str(text: &str) -> Result<Self, NotAFlow> {
        let text = text.replace("->", " ").replace('>', " ");
        let words: Vec<&str> = text.split_whitespace().filter(|it| *it != "to").collect();
        let (&first, rest) = words.split_first().ok_or(NotAFlow)?;
        let protocol = protocol(first);
        let ends = if protocol.is_some() { rest } else { &words };
        let end = |index: usize| match ends.get(index) {
            Some(end) => end.parse(),
            None => Ok(End::default()),
        };
        if ends.len() > 2 {
            return Err(NotAFlow);
        }
        Ok(Self {
            protocol,
            ends: [end(0)?, end(1)?],
        })
    }
}

fn protocol(word: &str) -> Option<Protocol> {
    let known = [
        Protocol::TCP,
        Protocol::UDP,
        Protocol::ICMP,
        Protocol::ICMPV6,
        Protocol::SCTP,
    ];
    known.into_iter().find(|known| known.to_string() == word)
}

impl End {
    fn matches(self, (address, port): (IpAddr, u16)) -> bool {
        self.address.is_none_or(|it| it == address) && self.port.is_none_or(|it| it == port)
    }
}

impl FromStr for End {
    type Err = NotAFlow;

    fn from_str(text: &str) -> Result<Self, NotAFlow> {
        if let Ok(both) = text.parse::<SocketAddr>() {
            return Ok(Self {
                address: Some(both.ip()),
                port: Some(both.port()),
            });
        }
        let bare = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        if let Ok(address) = bare.unwrap_or(text).parse() {
            return Ok(Self {
                address: Some(address),
                port: None,
            });
        }
        let port = text.strip_prefix(':').ok_or(NotAFlow)?;
        Ok(Self {
            address: None,
            port: Some(port.parse().map_err(|_| NotAFlow)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The start of a UDP packet from 10.0.0.2, port `port`, to 10.9.0.2:5201.
    fn packet(port: u16) -> Vec<u8> {
        let mut packet = vec![0; 1000];
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&1000_u16.to_be_bytes());
        packet[9] = 17;
        packet[12..16].copy_from_slice(&[10, 0, 0, 2]);
        packet[16..20].copy_from_slice(&[10, 9, 0, 2]);
        packet[20..22].copy_from_slice(&port.to_be_bytes());
        packet[22..24].copy_from_slice(&5201_u16.to_be_bytes());
        packet[24..26].copy_from_slice(&980_u16.to_be_bytes());
        packet
    }

    fn on(paths: &[usize]) -> PathSet {
        paths
            .iter()
            .fold(PathSet::default(), |set, &path| set.with(path))
    }

    fn send(flows: &mut Flows, hash: u32, paths: &[usize], now: Instant) {
        let packet = packet(hash as u16);
        flows.handle_sent(hash, &packet, true, on(paths), QueueStats::default, now);
    }

    #[test]
    fn a_flow_has_its_addresses_its_rate_and_its_paths() {
        let start = Instant::now();
        let mut flows = Flows::default();
        for step in 0..5000_u32 {
            let now = start + step * Duration::from_millis(1);
            send(&mut flows, 7, &[if step % 4 == 0 { 3 } else { 1 }], now);
        }

        let (seen, count) = flows.busiest(None, 10, start + Duration::from_secs(5));

        let flow = seen[0];
        assert_eq!((seen.len(), count), (1, 1));
        assert_eq!(flow.key.to_string(), "udp 10.0.0.2:7 to 10.9.0.2:5201");
        assert_eq!((flow.packets, flow.bytes), (5000, 5_000_000));
        let rate = flow.rate.as_bytes_per_second();
        assert!(rate.abs_diff(1_000_000) < 10_000, "{flow:?}");
        let share = f64::from(flow.paths[3]) / f64::from(flow.paths[1] + flow.paths[3]);
        assert!((share - 0.25).abs() < 0.01, "{flow:?}");
        assert!(flow.ordered);
    }

    #[test]
    fn a_copy_counts_for_its_path_and_not_for_the_rate() {
        let now = Instant::now();
        let mut flows = Flows::default();
        send(&mut flows, 7, &[0, 1], now);

        let flow = flows.busiest(None, 1, now).0[0];

        assert_eq!((flow.rate, flow.bytes), (Bitrate::bps(16_000), 1000));
        assert_eq!(flow.paths[..3], [1000, 1000, 0]);
    }

    #[test]
    fn what_was_on_paths_that_are_others_now_is_forgotten() {
        let now = Instant::now();
        let mut flows = Flows::default();
        send(&mut flows, 7, &[1], now);
        flows.forget_paths();
        let flow = flows.busiest(None, 1, now).0[0];
        assert_eq!((flow.paths, flow.bytes), ([0; PATHS], 1000));
    }

    #[test]
    fn a_flow_that_gets_another_queue_is_the_same_flow() {
        let start = Instant::now();
        let mut flows = Flows::default();
        send(&mut flows, 7, &[1], start);
        let now = start + WINDOW;
        flows.handle_sent(2, &packet(7), true, on(&[1]), QueueStats::default, now);

        let (seen, count) = flows.busiest(None, 10, now);

        assert_eq!(count, 1);
        assert_eq!((seen[0].hash, seen[0].packets), (2, 2));
        assert_eq!((seen[0].age, seen[0].neighbours), (WINDOW, 0));
    }

    #[test]
    fn a_flow_that_falls_silent_fades_and_is_forgotten() {
        let start = Instant::now();
        let mut flows = Flows::default();
        send(&mut flows, 7, &[1], start);

        let later = flows.busiest(None, 1, start + 10 * WINDOW).0[0];
        assert_eq!((later.rate, later.silent), (Bitrate::ZERO, 10 * WINDOW));
        let (seen, count) = flows.busiest(None, 1, start + FORGET_AFTER);
        assert_eq!((seen.len(), count), (0, 0));
    }

    #[test]
    fn memory_is_bounded_and_the_silent_make_room() {
        let start = Instant::now();
        let queues = FLOWS as u32;
        let mut flows = Flows::default();
        for nth in 0..256 {
            send(&mut flows, nth * queues, &[0], start);
        }
        let (seen, count) = flows.busiest(None, 100, start);
        assert_eq!((seen.len(), count), (PER_QUEUE, PER_QUEUE));
        assert_eq!(seen[0].neighbours, PER_QUEUE - 1);
        assert!(
            seen.iter()
                .all(|flow| flow.hash < PER_QUEUE as u32 * queues)
        );

        send(&mut flows, 0, &[0], start + WINDOW);
        send(&mut flows, 9 * queues, &[0], start + WINDOW);

        let (seen, _) = flows.busiest(None, 100, start + WINDOW);
        let has = |hash| seen.iter().any(|flow| flow.hash == hash);
        assert!(has(0) && has(9 * queues), "{seen:?}");
        assert_eq!(seen.len(), PER_QUEUE);
    }

    #[test]
    fn of_many_the_busiest_are_told() {
        let now = Instant::now();
        let mut flows = Flows::default();
        for hash in 0..50 {
            for _ in 0..=hash {
                send(&mut flows, hash, &[0], now);
            }
        }
        let (seen, count) = flows.busiest(None, 3, now);
        let hashes: Vec<u32> = seen.iter().map(|flow| flow.hash).collect();
        assert_eq!((hashes, count), (vec![49, 48, 47], 50));

        let one: FlowPattern = "10.0.0.2:12".parse().unwrap();
        let (seen, count) = flows.busiest(Some(&one), 3, now);
        assert_eq!((seen[0].hash, seen.len(), count), (12, 1, 1));
    }

    #[test]
    fn of_a_thousand_flows_those_that_are_told_are_chosen_before_they_are_looked_into() {
        let now = Instant::now();
        let mut flows = Flows::default();
        let all = (PER_QUEUE * FLOWS) as u32;
        for hash in 0..all {
            for _ in 0..if hash % 64 == 5 { 9 } else { 1 } {
                send(&mut flows, hash, &[0], now);
            }
        }
        flows.end_run();

        let (chosen, count) = flows.choose(None, 16, now);
        assert_eq!((chosen.len(), count), (16, all as usize));
        assert!(
            chosen.iter().all(|(place, _)| place % 64 == 5),
            "{chosen:?}"
        );
        let (chosen, count) = flows.choose(None, 0, now);
        assert_eq!((chosen.len(), count), (0, all as usize));
    }

    #[test]
    fn one_that_sends_is_told_before_one_that_sent_more_and_stopped() {
        let start = Instant::now();
        let mut flows = Flows::default();
        for _ in 0..8 {
            send(&mut flows, 7, &[0], start);
        }
        let busiest = |flows: &mut Flows, now| flows.busiest(None, 1, now).0[0].hash;
        send(&mut flows, 9, &[0], start);
        assert_eq!(busiest(&mut flows, start), 7);

        send(&mut flows, 9, &[0], start + 5 * WINDOW);
        assert_eq!(busiest(&mut flows, start + 5 * WINDOW), 9);
    }

    #[test]
    fn a_flow_is_meant_by_any_part_of_it_and_by_both_directions() {
        let flow = FlowKey::of(&IpPacket::parse(&packet(40_000)).unwrap());
        let names = [
            "udp",
            "10.9.0.2",
            "10.9.0.2:5201",
            "10.0.0.2",
            ":5201",
            "udp :40000",
            "10.0.0.2 10.9.0.2",
            "udp 10.0.0.2:40000 to 10.9.0.2:5201",
            "udp 10.0.0.2:40000>10.9.0.2:5201",
            "10.9.0.2:5201 -> 10.0.0.2:40000",
        ];
        for name in names {
            let pattern: FlowPattern = name.parse().unwrap();
            assert!(pattern.matches(&flow), "{name}");
            assert!(pattern.matches(&flow.reversed()), "{name}");
        }
        let others = [
            "tcp",
            "tcp 10.9.0.2:5201",
            "10.9.0.3",
            "10.9.0.2:40000",
            "10.9.0.2 to 10.9.0.2",
            "[fd00::1]:5201",
        ];
        for name in others {
            let pattern: FlowPattern = name.parse().unwrap();
            assert!(!pattern.matches(&flow), "{name}");
        }
        assert_eq!(
            flow.to_string()
                .parse::<FlowPattern>()
                .map(|it| it.matches(&flow)),
            Ok(true)
        );
    }

    #[test]
    fn what_is_no_flow_is_refused() {
        for text in [
            "",
            "lte-a",
            "to",
            "10.9.0",
            ":70000",
            "tcp udp",
            "10.0.0.1 10.0.0.2 10.0.0.3",
        ] {
            assert_eq!(text.parse::<FlowPattern>(), Err(NotAFlow), "{text}");
        }
    }
}
