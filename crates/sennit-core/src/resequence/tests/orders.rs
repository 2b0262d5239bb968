//! Every order in which a few packets may arrive, with every pause between them and any of them
//! lost, against a model of what a resequencer does: it waits, or gives up on what is missing.
//!
//! The model does not know when to give up. For that there are bounds, from below and from above,
//! on how long each packet waits.

use super::*;

/// Pauses before a packet: shorter than [`SLACK`], or so long that the wait for a repair ends in
/// the second and the longest wait in the third.
const PAUSES: [Duration; 2] = [MS, Duration::from_millis(90)];
/// Packets of one path overtake each other by this much without meaning anything.
const SLACK: Duration = Duration::from_millis(2);
/// A packet that comes late makes the next ones wait for this much longer, up to so much.
const LATE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(100));
/// Number of the packet before the first: the third one's is zero.
const BEFORE: u32 = u32::MAX - 2;

/// What is sent, and how.
#[derive(Debug)]
struct Case {
    packets: u32,
    /// Packets that arrive, at most.
    arrivals: usize,
    /// A packet may arrive again.
    copies: bool,
    flows: u32,
    paths: u32,
    /// Milliseconds from one packet to the next at the sender.
    apart: u32,
    repair: Duration,
}

/// Packets that leave at once on one path and are not sent again.
const BURST: Case = Case {
    packets: 6,
    arrivals: 6,
    copies: false,
    flows: 1,
    paths: 1,
    apart: 0,
    repair: Duration::ZERO,
};

impl Case {
    /// Nothing is given up on earlier for a packet that is held `since` then, when the last one
    /// `arrived` then.
    fn earliest(&self, since: Instant, arrived: Instant) -> Instant {
        if !self.repair.is_zero() {
            since + self.repair
        } else if self.apart == 0 {
            (arrived + SLACK).min(since + LONGEST)
        } else {
            since
        }
    }

    /// The first packet that is held waits no longer, when `late` ones came late and all came
    /// within `span`.
    fn longest(&self, late: u64, span: Duration) -> Duration {
        let late = (LATE.0 * late as u32).min(LATE.1);
        let differ = if self.paths > 1 {
            span + MS * self.apart * self.packets
        } else {
            Duration::ZERO
        };
        (LONGEST.max(differ + self.repair + late) + late).min(LONGEST_OF_ALL)
    }
}

/// One flow of which packets are held, passed on or given up on.
struct Model {
    next: u32,
    /// What is held, and since when what is missing before it is waited for.
    held: BTreeMap<u32, Instant>,
    released: Vec<u32>,
}

impl Model {
    fn has_had(&self, place: u32) -> bool {
        self.held.contains_key(&place) || self.released.contains(&place)
    }

    fn arrive(&mut self, place: u32, now: Instant) {
        if place < self.next {
            self.released.push(place);
            return;
        }
        // What is missing before it was missing already when one arrived that follows it.
        let mut behind = self.held.range(place..).map(|(_, since)| *since);
        let since = behind.next().unwrap_or(now);
        self.held.insert(place, since);
        self.release();
    }

    /// Since when the first packet is held.
    fn since(&self) -> Option<Instant> {
        self.held.values().next().copied()
    }

    /// Gives up on what is missing before the first packet that is held; returns how many.
    fn give_up(&mut self) -> u64 {
        let first = *self.held.keys().next().expect("only what is held waits");
        let missing = first - self.next;
        self.next = first;
        self.release();
        missing.into()
    }

    fn release(&mut self) {
        while self.held.remove(&self.next).is_some() {
            self.released.push(self.next);
            self.next += 1;
        }
    }
}

/// A resequencer, what it has passed on of each flow, and the models of them.
struct Run<'a> {
    case: &'a Case,
    came: &'a [(u32, Duration)],
    start: Instant,
    now: Instant,
    /// When something arrived last.
    arrived: Instant,
    resequencer: Resequencer<(usize, u32)>,
    released: Vec<Vec<u32>>,
    flows: Vec<Model>,
    stats: ResequenceStats,
}

impl<'a> Run<'a> {
    fn new(case: &'a Case, came: &'a [(u32, Duration)]) -> Self {
        let now = Instant::now();
        let mut resequencer = Resequencer::new(now);
        for flow in 0..case.flows {
            let before = Header {
                ordered: false,
                ..header(flow, BEFORE, 0)
            };
            resequencer.handle_packet(&before, 0, (0, 0), 0, |_| {}, now);
        }
        let flow = |_| Model {
            next: 0,
            held: BTreeMap::new(),
            released: Vec::new(),
        };
        Self {
            case,
            came,
            start: now,
            now,
            arrived: now,
            released: vec![Vec::new(); case.flows as usize],
            flows: (0..case.flows).map(flow).collect(),
            stats: resequencer.stats(),
            resequencer,
        }
    }

    fn play(mut self) {
        for &(packet, pause) in self.came {
            self.wait(pause);
            self.arrive(packet);
        }
        self.wait(LONGEST_OF_ALL);
        let story = (self.case, self.came);
        let mut flows = self.flows.iter();
        assert!(flows.all(|flow| flow.held.is_empty()), "{story:?}");
        assert_eq!(self.resequencer.stats(), self.stats, "{story:?}");
        assert_eq!(self.resequencer.held_bytes(), 0, "{story:?}");
    }

    fn arrive(&mut self, packet: u32) {
        let (flow, place) = (packet % self.case.flows, packet / self.case.flows);
        let path = place % self.case.paths;
        let seq = BEFORE.wrapping_add(1 + place);
        let header = header(flow, seq, self.case.apart * packet);
        let (flow, now) = (flow as usize, self.now);
        let released = &mut self.released;
        let release = |(flow, place): (usize, u32)| released[flow].push(place);
        self.resequencer
            .handle_packet(&header, path, (flow, place), 1000, release, now);
        self.arrived = now;

        let model = &mut self.flows[flow];
        if model.has_had(place) {
            self.stats.duplicates += 1;
        } else {
            self.stats.late += u64::from(place < model.next);
            self.stats.held += u64::from(place > model.next);
            model.arrive(place, now);
        }
        self.compare();
    }

    /// Lets time pass, and whatever is due meanwhile.
    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        let story = (self.case, self.came);
        while let Some(due) = self.due().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            assert!(self.expire(), "woken for nothing: {story:?}");
        }
        self.now = until;
        self.expire();
    }

    fn due(&self) -> Option<Instant> {
        self.resequencer.poll_timeout(self.case.repair, self.now)
    }

    /// Lets the resequencer give up; true if it did, which was neither too early nor too late.
    fn expire(&mut self) -> bool {
        let (case, now, arrived) = (self.case, self.now, self.arrived);
        let story = (case, self.came);
        let longest = case.longest(self.stats.late, arrived - self.start);
        for flow in &self.flows {
            let is_over = |since: &Instant| now > *since + longest;
            assert!(!flow.held.values().any(is_over), "too late: {story:?}");
        }
        let released = &mut self.released;
        let release = |(flow, place): (usize, u32)| released[flow].push(place);
        self.resequencer.handle_timeout(case.repair, release, now);

        let mut gave_up = false;
        for (flow, released) in self.flows.iter_mut().zip(&self.released) {
            while flow.released.len() < released.len() {
                let is_time = |since| now >= case.earliest(since, arrived);
                assert!(flow.since().is_some_and(is_time), "too early: {story:?}");
                self.stats.missed += flow.give_up();
                gave_up = true;
            }
        }
        self.compare();
        gave_up
    }

    fn compare(&self) {
        let story = (self.case, self.came);
        for ((flow, released), index) in self.flows.iter().zip(&self.released).zip(0..) {
            assert_eq!(*released, flow.released, "{story:?}");
            let found = &self.resequencer.flows[&index];
            let since = found.gap().map(|gap| gap.since);
            assert_eq!(since, flow.since(), "{story:?}");
            let first = found.held.iter().position(Option::is_some);
            let first = first.map(|ahead| found.next + ahead as i64);
            assert_eq!(found.first, first, "{story:?}");
        }
    }
}

/// The sender's clock wraps 20 ms after the first packet.
fn header(flow: u32, seq: u32, sent: u32) -> Header {
    Header {
        flow: flow as u8,
        ordered: true,
        early: Duration::ZERO,
        seq,
        sent_micros: sent_micros(80 + sent),
    }
}

/// Plays what has come so far with nothing after it, and with everything that may come next.
fn play(case: &Case, came: &mut Vec<(u32, Duration)>) {
    Run::new(case, came).play();
    if came.len() == case.arrivals {
        return;
    }
    for packet in 0..case.packets {
        if !case.copies && came.iter().any(|(other, _)| *other == packet) {
            continue;
        }
        for pause in PAUSES {
            came.push((packet, pause));
            play(case, came);
            came.pop();
        }
    }
}

#[test]
fn in_every_order_a_burst_is_waited_for_as_long_as_a_path_reorders_it() {
    for (flows, paths) in [(1, 1), (2, 2)] {
        let case = Case {
            flows,
            paths,
            ..BURST
        };
        play(&case, &mut Vec::new());
    }
}

#[test]
fn in_every_order_repairs_are_waited_for_and_not_for_ever() {
    for (flows, paths) in [(1, 2), (2, 1)] {
        let case = Case {
            flows,
            paths,
            apart: 10,
            repair: MS * 40,
            ..BURST
        };
        play(&case, &mut Vec::new());
    }
}

#[test]
fn in_every_order_what_is_not_waited_for_is_passed_on_when_it_comes() {
    let case = Case {
        paths: 2,
        apart: 10,
        ..BURST
    };
    play(&case, &mut Vec::new());
}

#[test]
fn in_every_order_of_packets_and_copies_each_is_passed_on_once() {
    for (flows, paths, repair) in [(1, 1, Duration::ZERO), (2, 2, MS * 40)] {
        let case = Case {
            packets: 4,
            arrivals: 5,
            copies: true,
            flows,
            paths,
            repair,
            ..BURST
        };
        play(&case, &mut Vec::new());
    }
}

#[test]
fn a_number_is_known_exactly_if_it_is_within_half_of_32_bits_of_the_next() {
    let half = 1_i64 << 31;
    let mut flow = Flow::<()>::new();
    for next in [0, half, 2 * half, -2 * half, Header::FIRST.into()] {
        flow.next = next;
        for at in [-2 * half, -half, -JUMP, 0, JUMP, half, 2 * half] {
            for ahead in at - 300..at + 300 {
                let found = flow.ahead((next + ahead) as u32);
                let is_near = (-half..half).contains(&ahead);
                assert_eq!(found == ahead, is_near, "{next} {ahead}");
            }
        }
    }
}
