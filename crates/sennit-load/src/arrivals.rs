//! What a receiver says about numbered messages.
//!
//! Numbers count from zero in the order of sending. The clocks of sender and receiver need not
//! agree: of one-way delays only the differences are used.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::times::{Bucket, TimeFigures, Times};

/// Messages so far behind the newest are not told from copies of what came before.
const WINDOW: u64 = 1 << 16;
/// Delays of so many numbers are kept, to be compared with those of their neighbours: 128 KB, and
/// 16 ms of a million messages a second.
const KEPT: u64 = 1 << 14;

/// Delays are not kept by their distance to one that is longer than the least by more than this.
const FAR: Duration = Duration::from_millis(10);

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
    /// By number, the last [`KEPT`] delays by both clocks in nanoseconds, of those that arrived.
    delays: Vec<i64>,
    /// Differences between the delays of messages that were sent one after the other.
    ipdv: Times,
    /// What all delays are.
    offsets: Option<Offsets>,
}

/// Delays by both clocks. Which was the least is known at the end only, so they are kept by their
/// distance to one that is not much longer than that, each to a thousandth of the distance.
#[derive(Clone, Debug)]
struct Offsets {
    anchor: i64,
    least: i64,
    /// Of those that are as long as the anchor or longer.
    above: Times,
    below: Times,
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
    /// One-way delay above the least of the run, by both clocks. Drift between them is in it.
    pub delay_variation: TimeFigures,
    /// Those differences one by one, roughly.
    #[serde(default)]
    pub ipdv_histogram: Vec<Bucket>,
    /// Those delays one by one, roughly.
    #[serde(default)]
    pub delay_variation_histogram: Vec<Bucket>,
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
            delays: vec![0; KEPT as usize],
            ipdv: Times::default(),
            offsets: None,
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
        self.compare(number, delay);
        let offsets = self.offsets.get_or_insert_with(|| Offsets::new(delay));
        offsets.note(delay);
    }

    /// Compares a delay with those of the numbers before and after it, if they are there already;
    /// if not, they are compared when they come. So each pair counts once, in whatever order.
    fn compare(&mut self, number: u64, delay: i64) {
        let neighbours = [number.checked_sub(1), number.checked_add(1)];
        for neighbour in neighbours.into_iter().flatten() {
            if let Some(other) = self.delay_of(neighbour) {
                self.ipdv.note(apart(delay, other));
            }
        }
        if self.next - number <= KEPT {
            self.delays[(number % KEPT) as usize] = delay;
        }
    }

    /// The delay of a message that arrived, if it is one of the last.
    fn delay_of(&self, number: u64) -> Option<i64> {
        let behind = self.next.checked_sub(number)?;
        let (word, bit) = place(number);
        let known = (1..=KEPT).contains(&behind) && self.seen[word] & bit != 0;
        known.then(|| self.delays[(number % KEPT) as usize])
    }

    /// Whether this number is new; `None` if nobody can tell any more.
    fn first_of(&mut self, number: u64) -> Option<bool> {
        let next = number.checked_add(1)?;
        if number >= self.next {
            let skipped = number - self.next;
            if skipped >= WINDOW {
                self.seen.fill(0);
            } else {
                (self.next..number).for_each(|missing| self.set(missing, false));
            }
            self.next = next;
            self.set(number, true);
            return Some(true);
        }
        if self.next - number > WINDOW {
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

    /// Different messages that arrived.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Messages that were under way longer than the fastest by more than this.
    #[must_use]
    pub fn later_than(&self, more: Duration) -> u64 {
        let mut delays = Times::default();
        if let Some(offsets) = &self.offsets {
            offsets.add_to(&mut delays, offsets.least);
        }
        let late = delays.each().filter(|(delay, _)| *delay > more);
        late.map(|(_, count)| u64::from(count)).sum()
    }

    /// What they come to, of so many that were sent if that is known.
    #[must_use]
    pub fn figures(&self, sent: Option<u64>) -> ArrivalFigures {
        Self::together(&[self], sent)
    }

    /// What messages on several connections come to, of so many that were sent on all of them. They
    /// have the same two clocks.
    #[must_use]
    pub fn together(all: &[&Self], sent: Option<u64>) -> ArrivalFigures {
        let sum = |number: fn(&Self) -> u64| all.iter().map(|one| number(one)).sum::<u64>();
        let offsets = || all.iter().filter_map(|one| one.offsets.as_ref());
        let least = offsets().map(|one| one.least).min();
        let (mut ipdv, mut delays) = (Times::default(), Times::default());
        all.iter().for_each(|one| ipdv.add(&one.ipdv));
        for (one, least) in offsets().zip(least.into_iter().cycle()) {
            one.add_to(&mut delays, least);
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
            ipdv_histogram: ipdv.buckets(),
            delay_variation_histogram: delays.buckets(),
        }
    }
}

impl Offsets {
    fn new(first: i64) -> Self {
        Self {
            anchor: first,
            least: first,
            above: Times::default(),
            below: Times::default(),
        }
    }

    fn note(&mut self, delay: i64) {
        self.least = self.least.min(delay);
        if delay < self.anchor && apart(delay, self.anchor) > FAR {
            self.anchor_at(delay);
        }
        let side = match delay >= self.anchor {
            true => &mut self.above,
            false => &mut self.below,
        };
        side.note(apart(delay, self.anchor));
    }

    /// Keeps all by their distance to this delay, which is the least of them.
    fn anchor_at(&mut self, least: i64) {
        let mut above = Times::default();
        self.add_to(&mut above, least);
        *self = Self {
            anchor: least,
            above,
            ..Self::new(least)
        };
    }

    /// Adds how much longer than the least each was.
    fn add_to(&self, delays: &mut Times, least: i64) {
        let anchor = apart(self.anchor, least);
        for (above, count) in self.above.each() {
            delays.note_many(anchor + above, count);
        }
        for (below, count) in self.below.each() {
            delays.note_many(anchor.saturating_sub(below), count);
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
        close(figures.delay_variation.max_seconds, 4.0);
        let count = |all: &[Bucket]| all.iter().map(|bucket| bucket.count).sum::<u64>();
        assert_eq!(count(&figures.ipdv_histogram), 3);
        let delays = &figures.delay_variation_histogram;
        assert_eq!(count(delays), 4);
        let longest = delays.last().expect("there are some").up_to_seconds;
        assert!((0.004..0.0042).contains(&longest), "{longest}");
    }

    /// The first second of a run passes a full queue, which is empty ever after.
    #[test]
    fn a_delay_counts_above_the_least_of_the_run_though_that_came_last() {
        let queued = (0..100).map(|number| (number, 500));
        let order: Vec<_> = queued.chain([(100, 20)]).collect();

        let found = arrivals(&order).figures(None).delay_variation;

        let half = found.p50_seconds.expect("there are delays");
        assert!((half - 0.48).abs() < 1e-3, "{found:?}");
        assert_eq!(found.count, 101);
    }

    #[test]
    fn who_is_late_is_late_against_the_fastest() {
        let arrivals = arrivals(&[(0, 90), (1, 100), (2, 20), (3, 79), (4, 200)]);

        assert_eq!(arrivals.later_than(MS * 60), 3);
        assert_eq!(Arrivals::default().later_than(MS), 0);
    }

    #[test]
    fn all_connections_have_one_least_delay() {
        let (near, far) = (arrivals(&[(0, 20)]), arrivals(&[(0, 50), (1, 50)]));

        let found = Arrivals::together(&[&near, &far], None).delay_variation;

        let half = found.p50_seconds.expect("there are delays");
        assert!((half - 0.03).abs() < 1e-4, "{found:?}");
    }

    /// RFC 3393 pairs neighbours by their sending, so a message that was overtaken has two.
    #[test]
    fn each_pair_of_neighbours_counts_once_in_whatever_order_they_arrive() {
        let order = [(0, 5), (2, 5), (1, 45), (3, 5), (1, 50), (5, 5)];

        let ipdv = arrivals(&order).figures(None).ipdv;

        // 0 to 1, 1 to 2, 2 to 3: number 4 is lost, and has no neighbours.
        assert_eq!(ipdv.count, 3);
        let longest = ipdv.max_seconds.expect("there are pairs");
        assert!((longest - 0.04).abs() < 1e-4, "{ipdv:?}");
    }

    #[test]
    fn the_greatest_number_is_nobodys() {
        let mut arrivals = arrivals(&[(0, 5)]);

        arrivals.note(u64::MAX, 100, MS, MS);

        assert_eq!(arrivals.figures(Some(1)).received, 1);
    }

    #[test]
    fn numbers_that_were_forgotten_have_no_neighbours() {
        let order = [(0, 5), (KEPT + 1, 5), (1, 900)];

        let figures = arrivals(&order).figures(None);

        assert_eq!((figures.received, figures.ipdv.count), (3, 0));
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
