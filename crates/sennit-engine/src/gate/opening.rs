//! How fast the first packets arrive that left a path at once.
//!
//! Of a path that has carried nothing yet only its round trip is known. Packets that leave together
//! are spread by the narrowest part of the way, so the time between the first and the last of them
//! tells roughly what it carries. That is no more than a hint: hosts and jitter blur it. What the
//! path delivers later takes its place.

use std::time::{Duration, Instant};

/// Packets of full size that are sent for this: the first window has room for them (`model`), and
/// at 3 Mbit/s they take a tenth of a second.
pub(crate) const PACKETS: usize = 24;
/// Bytes that must have arrived after the first acknowledgement before a rate is made of them:
/// acknowledgements come for ten packets at once, or for two.
const MEASURED: u64 = 8000;
/// Fewer packets than this that left together are no train.
const LEAST: u32 = 16;
/// Bytes of a packet that counts.
const FULL: u16 = 1000;

/// The packets of one path that left together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Opening {
    train: Option<Train>,
    is_over: bool,
}

#[derive(Clone, Copy, Debug)]
struct Train {
    first: u64,
    last: u64,
    sent: Instant,
    packets: u32,
    acked: u32,
    bytes: u64,
    /// When the first acknowledgement came, and of how many bytes.
    began: Option<(Instant, u64)>,
    /// The greatest rate so far, in bytes per second.
    best: u64,
}

impl Opening {
    /// A packet of `bytes` leaves.
    pub(super) fn on_sent(&mut self, pn: u64, bytes: u16, now: Instant) {
        if self.is_over || self.train.is_some_and(|train| train.is_long()) && !self.extends(now) {
            return;
        }
        if bytes < FULL {
            self.train = None;
        } else if self.extends(now) {
            if let Some(train) = &mut self.train {
                train.last = pn;
                train.packets += 1;
            }
        } else {
            self.train = Some(Train {
                first: pn,
                last: pn,
                sent: now,
                packets: 1,
                acked: 0,
                bytes: 0,
                began: None,
                best: 0,
            });
        }
    }

    /// Numbers need not follow each other: QUIC leaves some out at random (RFC 9000 §21.4).
    fn extends(&self, now: Instant) -> bool {
        self.train.is_some_and(|train| train.sent == now)
    }

    /// Whether a packet is one of those that left together.
    pub(super) fn has(&self, pn: u64) -> bool {
        self.train
            .is_some_and(|train| train.is_long() && train.has(pn))
    }

    /// A packet arrived. Returns the rate, in bytes per second, if more is known of it now: an
    /// acknowledgement that is held back for company makes a train seem slower than it was, so the
    /// quickest part of it counts.
    pub(super) fn on_acked(
        &mut self,
        pn: u64,
        bytes: u64,
        least_rtt: Option<Duration>,
        now: Instant,
    ) -> Option<u64> {
        let train = self.train.as_mut().filter(|_| !self.is_over)?;
        if !train.has(pn) || !train.is_long() {
            return None;
        }
        train.acked += 1;
        train.bytes += bytes;
        self.is_over = train.acked == train.packets;
        let rate = train.rate(bytes, least_rtt, now)?;
        let is_more = rate > train.best;
        train.best = train.best.max(rate);
        is_more.then_some(rate)
    }
}

impl Train {
    fn has(&self, pn: u64) -> bool {
        (self.first..=self.last).contains(&pn)
    }

    fn is_long(&self) -> bool {
        self.packets >= LEAST
    }

    /// Bytes per second of what has arrived by now, of which the last were `bytes`.
    fn rate(&mut self, bytes: u64, least_rtt: Option<Duration>, now: Instant) -> Option<u64> {
        let (began, at_once) = self.began.get_or_insert((now, 0));
        if *began == now {
            *at_once += bytes;
        }
        let later = self.bytes - *at_once;
        if later < MEASURED {
            return None;
        }
        let after_first = rate(later, now.saturating_duration_since(*began));
        // Jitter that keeps the order lets what it held up arrive at once; then only this is left.
        let whole = now
            .saturating_duration_since(self.sent)
            .saturating_sub(least_rtt.unwrap_or_default());
        let rates = [after_first, rate(self.bytes, whole)];
        rates.into_iter().flatten().min()
    }
}

/// `None` if nothing was measured.
fn rate(bytes: u64, time: Duration) -> Option<u64> {
    let is_measured = bytes > 0 && !time.is_zero();
    is_measured.then(|| (bytes as f64 / time.as_secs_f64()) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const RTT: Duration = Duration::from_millis(100);

    /// What is found of packets that leave `apart` and arrive one every millisecond, acknowledged
    /// `at_once`.
    fn found(apart: Duration, at_once: u64) -> Option<u64> {
        found_of(|index| index, apart, at_once)
    }

    /// What is found of a train of packets that have these numbers.
    fn found_of(number: impl Fn(u64) -> u64, apart: Duration, at_once: u64) -> Option<u64> {
        let start = Instant::now();
        let mut opening = Opening::default();
        for index in 0..PACKETS as u64 {
            opening.on_sent(number(index), 1400, start + apart * index as u32);
        }
        let mut found = None;
        for index in 0..PACKETS as u64 {
            let last = (index / at_once + 1) * at_once - 1;
            // The last ones are held back.
            let held = if index >= 20 { 40 } else { 0 };
            let now = start + RTT + MS * (last as u32 + held);
            found = opening
                .on_acked(number(index), 1400, Some(RTT), now)
                .or(found);
        }
        found
    }

    #[test]
    fn packets_that_left_at_once_tell_the_rate() {
        for at_once in [1, 2, 10] {
            let rate = found(Duration::ZERO, at_once).expect("a train");
            assert!((1_300_000..1_500_000).contains(&rate), "{at_once}: {rate}");
        }
    }

    #[test]
    fn a_number_that_is_left_out_does_not_end_a_train() {
        let rate = found_of(|index| index + u64::from(index > 10), Duration::ZERO, 2);
        assert!(rate.is_some_and(|rate| (1_300_000..1_500_000).contains(&rate)));
    }

    #[test]
    fn packets_that_left_one_by_one_tell_nothing() {
        assert_eq!(found(MS, 2), None);
    }
}
