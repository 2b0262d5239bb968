//! A token bucket per path: spreads a congestion window over its round trip.
//!
//! The QUIC engine's own pacer is switched off, because a packet it holds back would sit in a queue
//! that no longer knows which path it was meant for. Here a path simply has no budget until it has
//! earned some, so the packet stays in the class queue where AQM and the scheduler still see it.

use std::time::{Duration, Instant};

/// The bucket may hold this much sending time of a path.
const BURST: Duration = Duration::from_millis(1);
/// What a path earns while it waits for credit is not lost to a host that wakes up late, up to
/// this (docs/decisions/0016).
const LATE: Duration = Duration::from_millis(32);
/// The bucket may hold at least this many packets, so that slow paths still send in small batches.
const MIN_BURST_PACKETS: u64 = 4;
/// A path that has used up its credit waits for this part of a burst before it sends again. Waking
/// for every single packet would make all batches small and cost several times as much CPU.
const QUANTUM: f64 = 0.5;

/// Sending credit of one path, in bytes.
#[derive(Clone, Debug)]
pub struct Pacer {
    credit: f64,
    updated: Instant,
}

impl Pacer {
    /// A pacer that may send one burst at once.
    pub fn new(now: Instant) -> Self {
        Self {
            credit: f64::MAX,
            updated: now,
        }
    }

    /// Earns credit for the time since the last call and returns what may be sent, in bytes: all of
    /// it, or nothing while it is less than a worthwhile batch.
    ///
    /// `rate` is in bytes per second and `packet` the size of a full packet in bytes.
    pub fn credit(&mut self, rate: u64, packet: u64, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.updated);
        self.updated = now;
        let burst = burst(rate, packet);
        let quantum = QUANTUM * burst;
        let most = if self.credit < quantum {
            burst.max(rate as f64 * LATE.as_secs_f64())
        } else {
            burst
        };
        self.credit = (self.credit + rate as f64 * elapsed.as_secs_f64()).min(most);
        if self.credit < quantum {
            0
        } else {
            self.credit as u64
        }
    }

    /// Spends credit. A packet that was sent regardless (an ACK, a probe) may push it below zero.
    pub fn spend(&mut self, bytes: u64) {
        self.credit -= bytes as f64;
    }

    /// When [`Self::credit`] will allow something again.
    pub fn ready_at(&self, rate: u64, packet: u64) -> Instant {
        let missing = QUANTUM * burst(rate, packet) - self.credit;
        if missing <= 0.0 {
            return self.updated;
        }
        // A nanosecond more, so that rounding does not leave it a fraction of a byte short.
        let wait = Duration::from_secs_f64((missing / rate.max(1) as f64).min(1.0));
        self.updated + wait + Duration::from_nanos(1)
    }
}

fn burst(rate: u64, packet: u64) -> f64 {
    (rate as f64 * BURST.as_secs_f64()).max((MIN_BURST_PACKETS * packet) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_at_the_rate_it_was_given() {
        let start = Instant::now();
        let (rate, packet) = (1_000_000, 1000);
        let mut pacer = Pacer::new(start);
        let mut sent = 0;
        for millis in 0..1000 {
            let now = start + Duration::from_millis(millis);
            while pacer.credit(rate, packet, now) >= packet {
                pacer.spend(packet);
                sent += packet;
            }
        }
        let burst = MIN_BURST_PACKETS * packet;
        assert!((999_000..=1_000_000 + burst).contains(&sent), "sent {sent}");
    }

    #[test]
    fn idle_time_earns_no_more_than_one_burst() {
        let start = Instant::now();
        let mut pacer = Pacer::new(start);
        pacer.credit(1_000_000, 1000, start);
        assert_eq!(
            pacer.credit(1_000_000, 1000, start + Duration::from_secs(60)),
            4000
        );
    }

    #[test]
    fn a_late_wake_up_costs_nothing() {
        let start = Instant::now();
        let mut pacer = Pacer::new(start);
        pacer.credit(10_000_000, 1000, start);
        pacer.spend(10_000);
        let late = start + Duration::from_millis(5);
        assert_eq!(pacer.credit(10_000_000, 1000, late), 50_000);
    }

    #[test]
    fn says_when_the_next_batch_may_leave() {
        let start = Instant::now();
        let mut pacer = Pacer::new(start);
        pacer.credit(1_000_000, 1000, start);
        pacer.spend(4000);
        let ready = pacer.ready_at(1_000_000, 1000);
        assert_eq!(
            pacer.credit(1_000_000, 1000, start + Duration::from_micros(1999)),
            0
        );
        assert!(ready - start <= Duration::from_micros(2001));
        assert_eq!(pacer.credit(1_000_000, 1000, ready), 2000);
    }
}
