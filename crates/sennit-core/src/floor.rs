//! Windowed minimum that no single wrong value can lower.
//!
//! A measurement of time may be too short: the host stopped between two readings of a clock, or
//! somebody set it. In a minimum over minutes one such value would stand for minutes. So a value
//! counts once it is *borne out* by another one, at another time, that is as low: the minimum is
//! that of all values but those of one moment. A path that has really become shorter is known to be
//! so a moment later.

use std::{
    iter,
    ops::Add,
    time::{Duration, Instant},
};

/// Values this close to each other may be wrong for the same reason: all that a thread reads after
/// it was held up, which is seldom for more than a tenth of this.
const MOMENT: Duration = Duration::from_millis(50);

/// The least value that was borne out; of the only moment, as long as there is no other.
#[derive(Clone, Copy, Debug)]
struct Least<T> {
    value: T,
    /// When it was seen first.
    at: Instant,
    /// The least of all other moments.
    other: Option<T>,
}

impl<T: Copy + PartialOrd> Least<T> {
    fn new(value: T, now: Instant) -> Self {
        Self {
            value,
            at: now,
            other: None,
        }
    }

    fn get(&self) -> T {
        self.other.unwrap_or(self.value)
    }

    fn update(&mut self, value: T, now: Instant) {
        let is_apart = now.saturating_duration_since(self.at) >= MOMENT;
        if value < self.value {
            if is_apart {
                self.other = Some(self.value);
            }
            (self.value, self.at) = (value, now);
        } else if is_apart {
            self.other = Some(self.other.map_or(value, |other| least(other, value)));
        }
    }

    /// That of all values of both, of which `before` are older.
    fn with(self, before: Self) -> Self {
        let (first, second) = if before.value < self.value {
            (before, self)
        } else {
            (self, before)
        };
        let is_apart = self.at.saturating_duration_since(before.at) >= MOMENT;
        let others = [first.other, is_apart.then_some(second.value), second.other];
        Self {
            other: others.into_iter().flatten().reduce(least),
            ..first
        }
    }
}

/// The least value of a span of time that was seen and borne out, and of at most as long before.
#[derive(Clone, Copy, Debug)]
pub struct Floor<T> {
    since: Instant,
    least: Least<T>,
    before: Option<Least<T>>,
}

impl<T: Copy + PartialOrd> Floor<T> {
    /// That of one value.
    pub fn new(value: T, now: Instant) -> Self {
        Self {
            since: now,
            least: Least::new(value, now),
            before: None,
        }
    }

    /// The least value.
    pub fn get(&self) -> T {
        self.before
            .map_or(self.least, |before| self.least.with(before))
            .get()
    }

    /// Takes one more value into account, and forgets what is older than twice `span`.
    pub fn update(&mut self, value: T, span: Duration, now: Instant) {
        let age = now.saturating_duration_since(self.since);
        if age < span {
            self.least.update(value, now);
            return;
        }
        self.before = (age < 2 * span).then_some(self.least);
        (self.since, self.least) = (now, Least::new(value, now));
    }

    /// All values so far were this much greater.
    pub fn shift(&mut self, by: T)
    where
        T: Add<Output = T>,
    {
        for least in iter::once(&mut self.least).chain(&mut self.before) {
            least.value = least.value + by;
            least.other = least.other.map(|other| other + by);
        }
    }
}

fn least<T: PartialOrd>(a: T, b: T) -> T {
    if b < a { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SPAN: Duration = Duration::from_secs(10);

    /// What the floor is after each of these values, given in milliseconds since the start.
    fn floors(values: &[(u32, u32)]) -> Vec<u32> {
        let start = Instant::now();
        let (at, value) = values[0];
        let mut floor = Floor::new(value, start + at * MS);
        let mut seen = vec![floor.get()];
        for (at, value) in &values[1..] {
            floor.update(*value, SPAN, start + *at * MS);
            seen.push(floor.get());
        }
        seen
    }

    #[test]
    fn what_is_older_than_two_spans_is_forgotten() {
        let values = [(0, 15), (1000, 15), (9000, 30), (10_000, 30)];
        assert_eq!(floors(&values), [15; 4]);
        let values = [
            (0, 15),
            (1000, 15),
            (10_000, 30),
            (19_000, 40),
            (20_000, 50),
        ];
        assert_eq!(floors(&values), [15, 15, 15, 15, 40]);
        let values = [(0, 15), (1000, 15), (60_000, 70)];
        assert_eq!(floors(&values), [15, 15, 70]);
    }

    #[test]
    fn one_wrong_value_counts_for_nothing() {
        let values = [(0, 20), (500, 1), (1000, 21), (9000, 20), (12_000, 20)];
        assert_eq!(floors(&values), [20; 5]);
    }

    #[test]
    fn many_wrong_values_of_one_moment_count_for_nothing() {
        let values = [(0, 20), (500, 5), (501, 1), (510, 3), (545, 1), (2000, 22)];
        assert_eq!(floors(&values), [20; 6]);
    }

    #[test]
    fn a_wrong_first_value_is_corrected_by_what_follows() {
        let values = [(0, 1), (10, 20), (150, 22), (300, 21), (11_000, 30)];
        assert_eq!(floors(&values), [1, 1, 22, 21, 21]);
    }

    #[test]
    fn a_path_that_becomes_shorter_is_known_to_be_so_after_a_moment() {
        let values = [(0, 20), (500, 10), (540, 10), (600, 11), (800, 10)];
        assert_eq!(floors(&values), [20, 20, 20, 11, 10]);
    }

    #[test]
    fn what_is_shifted_is_forgotten_as_if_it_had_been_so() {
        let start = Instant::now();
        let mut floor = Floor::new(15, start);
        for (at, value) in [(1, 15), (11, 30), (12, 30)] {
            floor.update(value, SPAN, start + Duration::from_secs(at));
        }
        floor.shift(500);
        assert_eq!(floor.get(), 515);
        floor.update(540, SPAN, start + Duration::from_secs(21));
        floor.update(540, SPAN, start + Duration::from_secs(22));
        assert_eq!(floor.get(), 530);
    }

    #[test]
    fn a_value_is_borne_out_by_one_of_the_span_before() {
        let values = [(0, 15), (9000, 30), (10_000, 16)];
        assert_eq!(floors(&values), [15, 30, 16]);
        // Not by one of the same moment.
        let values = [(0, 30), (9990, 1), (10_000, 2)];
        assert_eq!(floors(&values), [30, 30, 30]);
    }
}
