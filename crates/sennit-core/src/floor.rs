//! The least of late.

use std::time::{Duration, Instant};

/// The least value of a span of time that was seen, and of at most as long before.
#[derive(Clone, Copy, Debug)]
pub struct Floor<T> {
    since: Instant,
    value: T,
    before: T,
}

impl<T: Copy + PartialOrd> Floor<T> {
    /// That of one value.
    pub fn new(value: T, now: Instant) -> Self {
        Self {
            since: now,
            value,
            before: value,
        }
    }

    /// The least value.
    pub fn get(&self) -> T {
        least(self.value, self.before)
    }

    /// Takes one more value into account, and forgets what is older than twice `span`.
    pub fn update(&mut self, value: T, span: Duration, now: Instant) {
        let age = now.saturating_duration_since(self.since);
        if age < span {
            self.value = least(self.value, value);
            return;
        }
        self.before = if age < 2 * span { self.value } else { value };
        (self.since, self.value) = (now, value);
    }
}

fn least<T: PartialOrd>(a: T, b: T) -> T {
    if b < a { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_two_spans_is_forgotten() {
        const SPAN: Duration = Duration::from_secs(10);
        let start = Instant::now();
        let mut floor = Floor::new(20, start);
        let mut after = |seconds, value| {
            floor.update(value, SPAN, start + Duration::from_secs(seconds));
            floor.get()
        };
        assert_eq!([after(1, 15), after(9, 30)], [15, 15]);
        assert_eq!([after(10, 30), after(19, 40), after(20, 50)], [15, 15, 30]);
        assert_eq!(after(60, 70), 70);
    }
}
