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
/// Packets that have arrived when the time is taken: acknowledgements come for ten packets at once,
/// or for two, and the last ones are held back for company.
const MEASURED: u32 = 20;
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
    sent: Instant,
    packets: u32,
    acked: u32,
    bytes: u64,
    /// When the first acknowledgement came, and of how many bytes.
    began: Option<(Instant, u64)>,
}

impl Opening {
    /// A packet of `bytes` leaves.
    pub(super) fn on_sent(&mut self, pn: u64, bytes: u16, now: Instant) {
        if self.is_over || self.train.is_some_and(|train| train.is_long()) && !self.extends(pn, now)
        {
            return;
        }
        if bytes < FULL {
            self.train = None;
        } else if self.extends(pn, now) {
            if let Some(train) = &mut self.train {
                train.packets += 1;
            }
        } else {
            self.train = Some(Train {
                first: pn,
                sent: now,
                packets: 1,
                acked: 0,
                bytes: 0,
                began: None,
            });
        }
    }

    fn extends(&self, pn: u64, now: Instant) -> bool {
        self.train
            .is_some_and(|train| train.sent == now && pn == train.first + u64::from(train.packets))
    }

    /// Whether a packet is one of those that left together.
    pub(super) fn has(&self, pn: u64) -> bool {
        self.train
            .is_some_and(|train| train.is_long() && train.has(pn))
    }

    /// A packet arrived; with the last one that is needed the rate is known, in bytes per second.
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
        let (began, at_once) = train.began.get_or_insert((now, 0));
        if *began == now {
            *at_once += bytes;
        }
        if train.acked < MEASURED.min(train.packets) {
            return None;
        }
        self.is_over = true;
        let after_first = now.saturating_duration_since(*began);
        // Jitter that keeps the order lets what it held up arrive at once; then only this is left.
        let whole = now
            .saturating_duration_since(train.sent)
            .saturating_sub(least_rtt.unwrap_or_default());
        let rates = [
            rate(train.bytes - *at_once, after_first),
            rate(train.bytes, whole),
        ];
        rates.into_iter().flatten().min()
    }
}

impl Train {
    fn has(&self, pn: u64) -> bool {
        (self.first..self.first + u64::from(self.packets)).contains(&pn)
    }

    fn is_long(&self) -> bool {
        self.packets >= LEAST
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
        let start = Instant::now();
        let mut opening = Opening::default();
        for pn in 0..PACKETS as u64 {
            opening.on_sent(pn, 1400, start + apart * pn as u32);
        }
        (0..PACKETS as u64).find_map(|pn| {
            let last = (pn / at_once + 1) * at_once - 1;
            let now = start + RTT + MS * last as u32;
            opening.on_acked(pn, 1400, Some(RTT), now)
        })
    }

    #[test]
    fn packets_that_left_at_once_tell_the_rate() {
        for at_once in [1, 2, 10] {
            let rate = found(Duration::ZERO, at_once).expect("a train");
            assert!((1_300_000..1_500_000).contains(&rate), "{at_once}: {rate}");
        }
    }

    #[test]
    fn packets_that_left_one_by_one_tell_nothing() {
        assert_eq!(found(MS, 2), None);
    }
}
