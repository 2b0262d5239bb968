//! What a receiver says about numbered messages.
//!
//! Numbers count from zero in the order of sending. The clocks of sender and receiver need not
//! agree: of one-way delays only the differences are used.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::times::{TimeFigures, Times};

/// Messages so far behind the newest are not told from copies of what came before.
const WINDOW: u64 = 1 << 16;

/// Messages of one sender.
#[derive(Clone, Debug)]
pub struct Arrivals {
    /// One bit for each number below `next`, of the last [`WINDOW`].
    seen: Vec<u64>,
    /// One more than the greatest number that arrived.
    next: u64,
    received: u64,
    bytes: u64,
    duplicates: u64,
    reordered: u64,
    too_old: u64,
    /// Of the message that arrived last: its number, and its delay by both clocks in nanoseconds.
    last: Option<(u64, i64)>,
    least_delay: Option<i64>,
    /// Differences between the delays of messages that were sent one after the other.
    ipdv: Times,
    /// Delays by both clocks in nanoseconds, less the least so far.
    delays: Times,
}

/// What the messages come to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ArrivalFigures {
    /// As the sender says; if it does not, one more than the greatest number that arrived.
    pub sent: u64,
    /// Different messages that arrived.
    pub received: u64,
    /// Payload bytes of these.
    pub bytes: u64,
    /// Messages that never arrived.
    pub lost: u64,
    /// Lost over sent.
    pub loss_ratio: f64,
    /// Messages that arrived after one with a greater number (RFC 4737 §3).
    pub reordered: u64,
    /// Copies of messages that had arrived.
    pub duplicates: u64,
    /// IPDV (RFC 3393): absolute differences between the one-way delays of consecutive messages.
    pub ipdv: TimeFigures,
    /// One-way delay above the least of the run, by both clocks; drift between them is in it.
    pub delay_variation: TimeFigures,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self {
            seen: vec![0; (WINDOW / 64) as usize],
            next: 0,
            received: 0,
            bytes: 0,
            duplicates: 0,
            reordered: 0,
            too_old: 0,
            last: None,
            least_delay: None,
            ipdv: Times::default(),
            delays: Times::default(),
        }
    }
}

impl Arrivals {
    /// Takes a message of `bytes` into account: `sent` by the sender's clock and `arrived` by the
    /// receiver's, each since some instant of its own.
    pub fn note(&mut self, number: u64, bytes: usize, sent: Duration, arrived: Duration) {
        let Some(first) = self.first_of(number) else {
            return;
        };
        if !first {
            self.duplicates += 1;
            return;
        }
        self.received += 1;
        self.bytes += bytes as u64;
        let delay = nanos(arrived).wrapping_sub(nanos(sent));
        if let Some((last, before)) = self.last
            && number == last + 1
        {
            self.ipdv.note(apart(delay, before));
        }
        self.last = Some((number, delay));
        let least = *self.least_delay.get_or_insert(delay);
        self.least_delay = Some(least.min(delay));
        self.delays.note(apart(delay, least.min(delay)));
    }

    /// Whether this number is new; `None` if nobody can tell any more.
    fn first_of(&mut self, number: u64) -> Option<bool> {
        if number >= self.next {
            let skipped = number - self.next;
            if skipped >= WINDOW {
                self.seen.fill(0);
            } else {
                (self.next..number).for_each(|missing| self.set(missing, false));
            }
            self.next = number + 1;
            self.set(number, true);
            return Some(true);
        }
        if self.next - number > WINDOW {
            self.too_old += 1;
            return None;
        }
        let (word, bit) = place(number);
        let first = self.seen[word] & bit == 0;
        self.reordered += u64::from(first);
        self.set(number, true);
        Some(first)
    }

    fn set(&mut self, number: u64, arrived: bool) {
        let (word, bit) = place(number);
        match arrived {
            true => self.seen[word] |= bit,
            false => self.seen[word] &= !bit,
        }
    }

    /// What they come to, of so many that were sent if that is known.
    #[must_use]
    pub fn figures(&self, sent: Option<u64>) -> ArrivalFigures {
        Self::together(&[self], sent)
    }

    /// What the messages of several senders come to, of so many that all of them sent.
    #[must_use]
    pub fn together(all: &[&Self], sent: Option<u64>) -> ArrivalFigures {
        let sum = |number: fn(&Self) -> u64| all.iter().map(|one| number(one)).sum::<u64>();
        let (mut ipdv, mut delays) = (Times::default(), Times::default());
        for one in all {
            ipdv.add(&one.ipdv);
            delays.add(&one.delays);
        }
        let received = sum(|one| one.received);
        let sent = sent.unwrap_or_else(|| sum(|one| one.next)).max(received);
        let lost = sent - received;
        ArrivalFigures {
            sent,
            received,
            bytes: sum(|one| one.bytes),
            lost,
            loss_ratio: lost as f64 / sent.max(1) as f64,
            reordered: sum(|one| one.reordered),
            duplicates: sum(|one| one.duplicates),
            ipdv: ipdv.figures(),
            delay_variation: delays.figures(),
        }
    }
}

fn place(number: u64) -> (usize, u64) {
    let index = number % WINDOW;
    ((index / 64) as usize, 1 << (index % 64))
}

fn nanos(time: Duration) -> i64 {
    time.as_nanos() as i64
}

fn apart(a: i64, b: i64) -> Duration {
    Duration::from_nanos(a.abs_diff(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Messages sent each 10 ms that arrive in this order, each so many ms after it was sent.
    fn arrivals(order: &[(u64, u32)]) -> Arrivals {
        let mut arrivals = Arrivals::default();
        for &(number, delay) in order {
            let sent = MS * 10 * number as u32;
            // The receiver's clock is a minute ahead.
            let arrived = Duration::from_secs(60) + sent + MS * delay;
            arrivals.note(number, 100, sent, arrived);
        }
        arrivals
    }

    #[test]
    fn losses_copies_and_reordering_are_told_apart() {
        let order = [(0, 5), (1, 5), (3, 5), (2, 25), (3, 30), (6, 5)];

        let figures = arrivals(&order).figures(Some(8));

        assert_eq!((figures.sent, figures.received, figures.lost), (8, 5, 3));
        assert_eq!((figures.reordered, figures.duplicates), (1, 1));
        assert_eq!((figures.bytes, figures.loss_ratio), (500, 0.375));
        assert_eq!(arrivals(&order).figures(None).lost, 2);
    }

    #[test]
    fn the_variation_of_the_delay_needs_no_common_clock() {
        let figures = arrivals(&[(0, 5), (1, 8), (2, 8), (3, 4)]).figures(None);

        let close = |value: Option<f64>, millis: f64| {
            let value = value.expect("there are differences") * 1e3;
            assert!((value - millis).abs() < 0.02, "{value} {millis}");
        };
        assert_eq!(figures.ipdv.count, 3);
        close(figures.ipdv.max_seconds, 4.0);
        close(figures.ipdv.p50_seconds, 3.0);
        close(figures.delay_variation.max_seconds, 3.0);
    }

    #[test]
    fn a_leap_forgets_what_was_before_it() {
        let mut arrivals = arrivals(&[(0, 5), (WINDOW * 2, 5)]);

        arrivals.note(1, 100, MS, MS);
        arrivals.note(WINDOW * 2 - 1, 100, MS, MS);

        let figures = arrivals.figures(None);
        assert_eq!((figures.received, figures.reordered), (3, 1));
        assert_eq!(figures.duplicates, 0);
    }
}
