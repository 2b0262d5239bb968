//! Drops the second copy of a packet that was sent on two links.
//!
//! A sliding window of sequence numbers, as in RFC 4303 §3.4.3: what is older than the window is
//! taken for a duplicate, because by then its twin has long arrived or is of no use.

/// How many sequence numbers back a first copy may still arrive.
///
/// 8192 packets are 80 ms at 1 Gbit/s and 2.6 s at 30 Mbit/s: more than the delay difference of
/// any two links at a rate that such links carry.
const WINDOW: u32 = 8192;
const WORDS: usize = (WINDOW / 64) as usize;

/// The receive window of one numbered sequence.
#[derive(Clone, Debug)]
pub struct Dedup {
    seen: Box<[u64; WORDS]>,
    newest: Option<u32>,
}

impl Default for Dedup {
    fn default() -> Self {
        Self {
            seen: Box::new([0; WORDS]),
            newest: None,
        }
    }
}

impl Dedup {
    /// Whether `seq` is seen for the first time. Sequence numbers wrap.
    pub fn first(&mut self, seq: u32) -> bool {
        let Some(newest) = self.newest else {
            self.newest = Some(seq);
            self.set(seq);
            return true;
        };
        let ahead = seq.wrapping_sub(newest);
        if ahead != 0 && ahead < u32::MAX / 2 {
            self.advance(newest, ahead);
            self.newest = Some(seq);
            self.set(seq);
            return true;
        }
        newest.wrapping_sub(seq) < WINDOW && self.set(seq)
    }

    /// Clears the slots between the old newest number and the new one.
    fn advance(&mut self, newest: u32, ahead: u32) {
        if ahead >= WINDOW {
            self.seen.fill(0);
            return;
        }
        for step in 1..=ahead {
            let (word, bit) = slot(newest.wrapping_add(step));
            self.seen[word] &= !bit;
        }
    }

    /// Marks `seq`; false if it was marked before.
    fn set(&mut self, seq: u32) -> bool {
        let (word, bit) = slot(seq);
        let fresh = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        fresh
    }
}

fn slot(seq: u32) -> (usize, u64) {
    let index = seq % WINDOW;
    ((index / 64) as usize, 1 << (index % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_each_number_once_in_any_order() {
        let mut dedup = Dedup::default();
        let order = [5, 6, 5, 9, 7, 8, 9, 7, 4];
        let passed: Vec<_> = order.into_iter().filter(|&seq| dedup.first(seq)).collect();
        assert_eq!(passed, [5, 6, 9, 7, 8, 4]);
    }

    #[test]
    fn what_fell_out_of_the_window_is_a_duplicate() {
        let mut dedup = Dedup::default();
        assert!(dedup.first(10));
        assert!(dedup.first(10 + WINDOW));
        assert!(!dedup.first(10));
        assert!(dedup.first(11));
    }

    #[test]
    fn survives_the_wrap_of_the_sequence() {
        let mut dedup = Dedup::default();
        for step in 0..10_000_u32 {
            let seq = (u32::MAX - 5000).wrapping_add(step);
            assert!(dedup.first(seq));
            assert!(!dedup.first(seq));
        }
    }

    /// Numbers that have a slot in common, are at both ends of a window, or lie beyond it.
    const NUMBERS: [u32; 8] = [
        0,
        1,
        64,
        WINDOW - 1,
        WINDOW,
        WINDOW + 1,
        2 * WINDOW,
        3 * WINDOW + 1,
    ];

    /// Whether a number is new after these: it is none of them, and none is a window ahead of it.
    fn is_new(number: u32, came: &[u32]) -> bool {
        came.iter()
            .all(|&other| other != number && other < number + WINDOW)
    }

    /// Lets each of the numbers come next, and each of them again after it, `left` in all.
    fn come(dedup: &Dedup, came: &mut Vec<u32>, left: u32) {
        if left == 0 {
            return;
        }
        for number in NUMBERS {
            let mut dedup = dedup.clone();
            // They wrap in the middle of the first window.
            let first = dedup.first(number.wrapping_sub(WINDOW / 2));
            assert_eq!(first, is_new(number, came), "{number} after {came:?}");
            came.push(number);
            come(&dedup, came, left - 1);
            came.pop();
        }
    }

    #[test]
    fn in_every_order_a_number_passes_once_and_only_while_it_is_in_the_window() {
        come(&Dedup::default(), &mut Vec::new(), 7);
    }

    #[test]
    fn a_long_jump_ahead_forgets_everything_older() {
        let mut dedup = Dedup::default();
        assert!(dedup.first(1));
        assert!(dedup.first(1_000_000));
        assert!(dedup.first(1_000_000 - WINDOW + 1));
        assert!(!dedup.first(1));
    }
}
