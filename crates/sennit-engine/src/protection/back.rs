//! Which sources came back by repairs, as the other end tells.

use std::time::Instant;

/// Sources are numbered anew after so many.
const NUMBERS: usize = 1 << 16;
/// It is remembered for each so many of their numbers when the first of them was last given away.
const SPAN: usize = 1 << 12;

/// Which sources came back, of the last ones that have each number: at 90,000 packets a second that
/// is another one after 0.7 s, which may be before the loss of the first is noticed.
#[derive(Debug)]
pub(super) struct Back {
    /// One bit for each number.
    bits: Box<[u64; NUMBERS / 64]>,
    /// When the first number of each [`SPAN`] was last given away.
    begun: [Option<Instant>; NUMBERS / SPAN],
}

impl Default for Back {
    fn default() -> Self {
        Self {
            bits: Box::new([0; NUMBERS / 64]),
            begun: [None; NUMBERS / SPAN],
        }
    }
}

impl Back {
    /// A source leaves with this number, and takes it from the one that had it before.
    pub(super) fn note_sent(&mut self, id: u16, now: Instant) {
        if usize::from(id).is_multiple_of(SPAN) {
            self.begun[usize::from(id) / SPAN] = Some(now);
        }
        self.set(id, false);
    }

    pub(super) fn set(&mut self, id: u16, back: bool) {
        let word = &mut self.bits[usize::from(id) / 64];
        *word = *word & !(1 << (id % 64)) | u64::from(back) << (id % 64);
    }

    /// Whether the source with this number that first left at `first_sent` is known to have come
    /// back. Nothing is known any more of one that left before its span of numbers began again.
    pub(super) fn has(&self, id: u16, first_sent: Instant) -> bool {
        let begun = self.begun[usize::from(id) / SPAN];
        let is_last = begun.is_none_or(|begun| first_sent >= begun);
        is_last && self.bits[usize::from(id) / 64] >> (id % 64) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A loss that was noticed late was taken for a newer source of the same number, of which
    /// tidings had said that it came back, and was never sent again.
    #[test]
    fn what_came_back_is_not_taken_for_what_had_its_number_before() {
        let start = Instant::now();
        let at = |source: u32| start + Duration::from_micros(11) * source;
        let mut back = Back::default();
        for source in 0..3 * NUMBERS as u32 {
            let id = source as u16;
            back.note_sent(id, at(source));
            assert!(!back.has(id, at(source)));
            back.set(id, true);
            assert!(back.has(id, at(source)), "{source}");
            if let Some(before) = source.checked_sub(NUMBERS as u32) {
                assert!(!back.has(id, at(before)), "{before}");
            }
        }
    }
}
