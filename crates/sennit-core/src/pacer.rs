//! A token bucket per path: spreads a congestion window over its round trip.
//!
//! The QUIC engine's own pacer is switched off, because a packet it holds back would sit in a queue
//! that no longer knows which path it was meant for. Here a path simply has no budget until it has
//! earned some, so the packet stays in the class queue where AQM and the scheduler still see it.

use std::time::{Duration, Instant};

/// The bucket may hold this much sending time, so that one wake-up fills a GSO batch.
const BURST: Duration = Duration::from_millis(1);
/// And never less than this many packets, so that slow paths still send in small batches.
const MIN_BURST_PACKETS: u64 = 4;

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

    /// Earns credit for the time since the last call and returns it, in bytes.
    ///
    /// `rate` is in bytes per second and `packet` the size of a full packet in bytes.
    pub fn credit(&mut self, rate: u64, packet: u64, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.updated);
        self.updated = now;
        let burst = (rate as f64 * BURST.as_secs_f64()).max((MIN_BURST_PACKETS * packet) as f64);
        self.credit = (self.credit + rate as f64 * elapsed.as_secs_f64()).min(burst);
        self.credit.max(0.0) as u64
    }

    /// Spends credit. A packet that was sent regardless (an ACK, a probe) may push it below zero.
    pub fn spend(&mut self, bytes: u64) {
        self.credit -= bytes as f64;
    }

    /// When there will be credit for `bytes` more.
    pub fn ready_at(&self, rate: u64, bytes: u64) -> Instant {
        let missing = (bytes as f64 - self.credit).max(0.0);
        self.updated + Duration::from_secs_f64((missing / rate.max(1) as f64).min(1.0))
    }
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
    fn says_when_the_next_packet_may_leave() {
        let start = Instant::now();
        let mut pacer = Pacer::new(start);
        pacer.credit(1_000_000, 1000, start);
        pacer.spend(4000);
        let ready = pacer.ready_at(1_000_000, 1000);
        assert_eq!(ready, start + Duration::from_millis(1));
        assert_eq!(pacer.credit(1_000_000, 1000, ready), 1000);
    }
}
