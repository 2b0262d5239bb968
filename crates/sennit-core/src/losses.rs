//! What became of the packets of the last minute, counted where it is learned, so that asking for
//! it changes nothing.

use std::time::{Duration, Instant};

/// What is called lately is at least this old, and at most twice as old.
const SPAN: Duration = Duration::from_secs(30);

/// Packets that arrived lately, and packets that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentLosses {
    /// Since when the present span is counted.
    since: Option<Instant>,
    present: Count,
    before: Count,
}

/// Packets of which it is known whether they arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// They arrived.
    pub arrived: u32,
    /// They were lost.
    pub lost: u32,
}

impl Count {
    /// All of them.
    pub fn packets(self) -> u32 {
        self.arrived.saturating_add(self.lost)
    }

    /// The part that was lost, if there are any.
    pub fn loss(self) -> Option<f64> {
        let packets = self.packets();
        (packets > 0).then(|| f64::from(self.lost) / f64::from(packets))
    }
}

impl RecentLosses {
    /// A packet arrived.
    pub fn count_arrived(&mut self, now: Instant) {
        let present = &mut self.begin(now).present;
        present.arrived = present.arrived.saturating_add(1);
    }

    /// A packet was lost.
    pub fn count_lost(&mut self, now: Instant) {
        let present = &mut self.begin(now).present;
        present.lost = present.lost.saturating_add(1);
    }

    /// The packets of the present span and the one before.
    pub fn lately(&self, now: Instant) -> Count {
        let Self {
            present, before, ..
        } = self.at(now);
        Count {
            arrived: present.arrived.saturating_add(before.arrived),
            lost: present.lost.saturating_add(before.lost),
        }
    }

    fn begin(&mut self, now: Instant) -> &mut Self {
        *self = self.at(now);
        self.since.get_or_insert(now);
        self
    }

    /// These counts as they are at `now`.
    fn at(self, now: Instant) -> Self {
        let age = |since| now.saturating_duration_since(since);
        match self.since.map(age) {
            Some(age) if age >= SPAN => Self {
                since: Some(now),
                present: Count::default(),
                before: if age < 2 * SPAN {
                    self.present
                } else {
                    Count::default()
                },
            },
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_is_forgotten_after_two_spans_at_most_and_not_before_one() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut losses = RecentLosses::default();
        assert_eq!(losses.lately(start).loss(), None, "nothing is known");
        // Three handshake packets that nobody answered.
        for second in 0..3 {
            losses.count_lost(at(second));
        }
        assert_eq!(losses.lately(at(29)).loss(), Some(1.0));
        losses.count_arrived(at(29));
        assert_eq!(losses.lately(at(29)).loss(), Some(0.75));
        losses.count_arrived(at(31));
        assert_eq!(
            losses.lately(at(59)),
            Count {
                arrived: 2,
                lost: 3
            }
        );
        losses.count_arrived(at(62));
        assert_eq!(losses.lately(at(62)).loss(), Some(0.0));
        assert_eq!(losses.lately(at(200)).loss(), None, "that is long ago");
    }
}
