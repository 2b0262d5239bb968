//! Recovery: what was lost on a path and is sent again, until when, and how long the far end waits
//! for it.
//!
//! A lost datagram comes from the ledger of the path that lost it ([`Tunnel::collect_lost`]), waits
//! here, and leaves with the next batch by the path on which it arrives first
//! ([`Tunnel::repair_due`]). What a receiver waits before it gives up on a missing packet
//! ([`Tunnel::repair_time`]) follows from the same figures. Whatever else makes up for losses
//! enters here: it has something to send when a batch is filled, hears of what is lost, and says
//! how long it may take.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;
use sennit_core::{Delivery, PathSet, Policy, Worth};

use super::{
    DataPlane, Tunnel,
    batch::{BATCH, NEVER},
};
use crate::{
    gate::Payload,
    path::{Path, number},
};

/// A lost packet is sent again while the flow's transport could still use it: two repairs over
/// links of 125 ms one way, because the first one is often lost as well where a queue overflows.
/// The far end may have given up by then; late is still better than never.
const REPAIR_FOR: Duration = Duration::from_millis(500);
/// A loss on a long path is noticed late, so a packet is sent again for as many of its round trips.
const REPAIR_ROUNDS: u32 = 3;
/// A class of reliable delivery has repairs for as long as the tunnel itself hopes.
const RELIABLE_FOR: Duration = Duration::from_secs(10);
/// A lost packet is sent again this many times at most, unless delivery is to be reliable.
const REPEATS: u8 = 3;
/// Bytes that wait to be sent again, at most: 64 ms at 1 Gbit/s.
const REPAIR_LIMIT: usize = 8 << 20;
/// A lost packet is noticed by its sender after a round trip and the path's jitter, half of which
/// has passed when it is missed here, and then has to travel: a repair never takes more round trips
/// of the slowest path.
const LONGEST_ROUNDS: f64 = 1.25;
/// What acknowledgements and timers add to [`LONGEST_ROUNDS`].
const REPAIR_SLACK: Duration = Duration::from_millis(15);
/// A flow is kept waiting for a repair no longer than this, whatever a path's round trip is said to
/// be: a repair over a geostationary satellite (600 ms) takes 765 ms, and a TCP that hears nothing
/// for longer starts over.
const LONGEST_REPAIR: Duration = Duration::from_millis(800);
/// A flow is kept waiting this long for a path that brings nothing of its own, or whose round trip
/// has just grown.
const USUAL_REPAIR: Duration = Duration::from_millis(200);
/// A round trip is taken for usual up to this many times the least.
const USUAL_RTT: f64 = 1.5;

/// How a class makes up for losses, and the lost datagrams that are on their way to another path.
#[derive(Debug)]
pub(super) struct Recovery {
    delivery: Delivery,
    waiting: VecDeque<Payload>,
    bytes: usize,
}

impl Recovery {
    pub(super) fn new(delivery: Delivery) -> Self {
        Self {
            delivery,
            waiting: VecDeque::new(),
            bytes: 0,
        }
    }

    pub(super) fn set_delivery(&mut self, delivery: Delivery) {
        self.delivery = delivery;
    }

    /// Takes a lost datagram if it is worth sending again; `slowest` is the longest round trip of a
    /// path.
    fn handle_lost(&mut self, payload: Payload, slowest: Duration, now: Instant) -> bool {
        let fits = self.bytes + payload.bytes.len() <= REPAIR_LIMIT;
        let taken = fits && self.is_worth_repair(&payload, slowest, now);
        if taken {
            self.bytes += payload.bytes.len();
            self.waiting.push_back(payload);
        }
        taken
    }

    /// Whether a datagram is young enough to be sent again, and was not sent too often.
    fn is_worth_repair(&self, payload: &Payload, slowest: Duration, now: Instant) -> bool {
        let (patience, repeats) = match self.delivery {
            Delivery::Datagram | Delivery::Repair => {
                (REPAIR_FOR.max(REPAIR_ROUNDS * slowest), REPEATS)
            }
            Delivery::Reliable => (RELIABLE_FOR, NEVER),
        };
        let age = now.saturating_duration_since(payload.first_sent);
        payload.repeats < repeats && age < patience
    }

    /// Puts back what [`Self::pop`] gave.
    fn put_back(&mut self, payload: Payload) {
        self.bytes += payload.bytes.len();
        self.waiting.push_front(payload);
    }

    fn pop(&mut self) -> Option<Payload> {
        let payload = self.waiting.pop_front()?;
        self.bytes -= payload.bytes.len();
        Some(payload)
    }
}

/// How long a packet may be missing because it is sent again. `of_all` and `of_used` are the
/// longest round trip of a path, and the longest usual one of a path that brings packets of its
/// own.
fn repair_time(of_all: Duration, of_used: Duration) -> Duration {
    let time = |slowest: Duration| slowest.mul_f64(LONGEST_ROUNDS) + REPAIR_SLACK;
    let used = time(of_used).min(LONGEST_REPAIR);
    time(of_all).min(USUAL_REPAIR).max(used)
}

impl Tunnel {
    /// Whether lost datagrams are sent again. What is sent twice anyway is not.
    pub(super) fn repairs(&self) -> bool {
        self.recovery.delivery != Delivery::Datagram
            && self.scheduler.policy() != Policy::Redundant
            && self.is_numbered()
    }

    fn slowest(&self) -> Duration {
        let round_trips = self.paths.iter().map(Path::srtt);
        round_trips.max().unwrap_or_default()
    }

    /// Collects what the paths have lost.
    pub(super) fn collect_lost(&mut self, now: Instant) {
        let slowest = self.slowest();
        for path in &self.paths {
            if !path.gate.ledger().has_lost() {
                continue;
            }
            for payload in path.gate.ledger().take_lost() {
                if !self.recovery.handle_lost(payload, slowest, now) {
                    self.stats.unrepaired += 1;
                }
            }
        }
    }

    pub(super) fn has_repairs(&self) -> bool {
        let given_up = |path: &Path| path.gate.ledger().has_given_up();
        !self.recovery.waiting.is_empty() || self.paths.iter().any(given_up)
    }

    /// The next datagram to be sent again.
    fn next_repair(&mut self, slowest: Duration, now: Instant) -> Option<Payload> {
        if let Some(payload) = self.recovery.pop() {
            return Some(payload);
        }
        loop {
            let given_up = |path: &Path| path.gate.ledger().take_given_up();
            let payload = self.paths.iter().find_map(given_up)?;
            if self.recovery.is_worth_repair(&payload, slowest, now) {
                return Some(payload);
            }
            self.stats.unrepaired += 1;
        }
    }

    /// Stages what was lost for the path on which it arrives first.
    pub(super) fn repair_due(&mut self, now: Instant) -> Option<PathSet> {
        if !self.has_repairs() {
            return None;
        }
        let views = self.round.views.iter().enumerate();
        let (path, _) = views
            .filter(|(_, view)| view.usable && view.worth == Worth::Full && view.budget > 0)
            .min_by_key(|(_, view)| (view.tier, view.srtt))?;
        let paths = PathSet::default().with(path);
        let (fit, slowest) = (self.fit(paths), self.slowest());
        while self.round.batch.len() < BATCH && self.round.views[path].budget > 0 {
            let Some(payload) = self.next_repair(slowest, now) else {
                break;
            };
            if !self.is_taken(payload.bytes.len(), fit, self.round.batch.load()) {
                self.recovery.put_back(payload);
                break;
            }
            self.note_carried(payload.bytes.len(), paths, now);
            let again = Payload {
                bytes: self.redate(&payload.bytes, now),
                first_sent: payload.first_sent,
                repeats: payload.repeats.saturating_add(1),
            };
            self.stats.repaired += 1;
            self.push(again, paths, fit);
        }
        Some(paths)
    }

    /// The datagram with the time at which it is sent now.
    fn redate(&self, datagram: &Bytes, now: Instant) -> Bytes {
        let again = |data: &DataPlane| data.codec.redate(datagram, data.numbering.clock(now));
        self.data.as_ref().map_or_else(|| datagram.clone(), again)
    }

    /// How long a packet may be missing here because it is sent again.
    pub(super) fn repair_time(&self) -> Duration {
        if !self.repairs() {
            return Duration::ZERO;
        }
        let resequencer = self.data.as_ref().map(|data| &data.resequencer);
        let polled = self.round.polled;
        let is_used =
            |path: &&Path| resequencer.is_some_and(|it| it.is_used(number(path.id), polled));
        let of_used = self.paths.iter().filter(is_used).map(usual_rtt).max();
        repair_time(self.slowest(), of_used.unwrap_or_default())
    }
}

/// The smoothed round trip of a path, without what it has just grown by.
fn usual_rtt(path: &Path) -> Duration {
    let least = path.gate.min_rtt().unwrap_or_default();
    path.srtt().min(least.mul_f64(USUAL_RTT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(first_sent: Instant, repeats: u8) -> Payload {
        Payload {
            bytes: Bytes::from_static(b"packet"),
            first_sent,
            repeats,
        }
    }

    #[test]
    fn what_is_lost_is_sent_again_while_it_is_young_and_not_too_often() {
        let start = Instant::now();
        let near = Duration::from_millis(20);
        let mut recovery = Recovery::new(Delivery::Repair);
        let mut takes = |repeats, slowest, after: Duration| {
            recovery.handle_lost(lost(start, repeats), slowest, start + after)
        };
        assert!(takes(0, near, REPAIR_FOR - Duration::from_millis(1)));
        assert!(!takes(0, near, REPAIR_FOR));
        assert!(!takes(REPEATS, near, Duration::ZERO));
        // Over a satellite it takes longer to learn of a loss.
        assert!(takes(
            0,
            Duration::from_millis(600),
            Duration::from_millis(1799)
        ));
        assert!(!takes(
            0,
            Duration::from_millis(600),
            Duration::from_millis(1800)
        ));
    }

    #[test]
    fn reliable_delivery_goes_on_for_long() {
        let start = Instant::now();
        let mut recovery = Recovery::new(Delivery::Reliable);
        let mut takes = |repeats, seconds| {
            let now = start + Duration::from_secs(seconds);
            recovery.handle_lost(lost(start, repeats), Duration::ZERO, now)
        };
        assert!(takes(REPEATS, 9));
        assert!(!takes(0, 10));
        assert!(!takes(NEVER, 0));
    }

    #[test]
    fn what_waits_to_be_sent_again_is_bounded() {
        let now = Instant::now();
        let mut recovery = Recovery::new(Delivery::Repair);
        let big = Payload {
            bytes: Bytes::from(vec![0; REPAIR_LIMIT / 2]),
            ..lost(now, 0)
        };
        let mut take = || recovery.handle_lost(big.clone(), Duration::ZERO, now);
        assert!(take() && take() && !take());
        let first = recovery.pop().unwrap();
        assert!(recovery.handle_lost(first, Duration::ZERO, now));
    }

    #[test]
    fn a_flow_waits_for_repairs_over_the_paths_that_it_uses() {
        let millis = Duration::from_millis;
        assert_eq!(repair_time(millis(40), millis(40)), millis(65));
        // A far path that is not used is waited for only so long.
        assert_eq!(repair_time(millis(600), millis(40)), USUAL_REPAIR);
        assert_eq!(repair_time(millis(600), millis(600)), millis(765));
        assert_eq!(repair_time(millis(900), millis(900)), LONGEST_REPAIR);
    }
}
