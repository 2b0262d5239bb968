//! How often packets have to be sent again until they arrive.

/// Of this part of the packets no repair is waited for: one in 100,000 is what a transport bears
/// that fills a link.
const GIVEN_UP: f64 = 1e-5;
/// Packets that are counted before the older ones count for half.
const MEMORY: f64 = 2000.0;
/// What is assumed at first: one of so many.
const FIRST: f64 = 20.0;
/// More is waited for nowhere.
const MOST: u32 = 12;

/// The part of the packets that came only when they were sent again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeats {
    repeated: f64,
    total: f64,
}

impl Default for Repeats {
    fn default() -> Self {
        Self {
            repeated: 1.0,
            total: FIRST,
        }
    }
}

impl Repeats {
    pub(super) fn count(&mut self, repeated: bool) {
        if self.total >= MEMORY {
            self.repeated /= 2.0;
            self.total /= 2.0;
        }
        self.total += 1.0;
        self.repeated += if repeated { 1.0 } else { 0.0 };
    }

    /// How often a lost packet is sent again until it has arrived but for [`GIVEN_UP`], if what is
    /// sent again is lost as often as what was not.
    pub(super) fn rounds(&self) -> u32 {
        let part = self.repeated / self.total;
        if part <= GIVEN_UP {
            return 1;
        }
        // Of `part` to the power of n + 1 nothing comes with n repairs.
        let rounds = GIVEN_UP.ln() / part.min(0.9).ln() - 1.0;
        (rounds.ceil() as u32).clamp(1, MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(every: u32, packets: u32) -> u32 {
        let mut repeats = Repeats::default();
        for number in 1..=packets {
            repeats.count(number % every == 0);
        }
        repeats.rounds()
    }

    #[test]
    fn the_more_is_lost_the_more_repairs_are_waited_for() {
        assert_eq!(Repeats::default().rounds(), 3);
        assert_eq!(rounds(1000, 10_000), 1);
        assert_eq!(rounds(100, 10_000), 2);
        assert_eq!(rounds(10, 10_000), 4);
        assert_eq!(rounds(3, 10_000), 10);
        assert_eq!(rounds(2, 10_000), 12);
        assert_eq!(rounds(1000, 999), 1);
    }
}
