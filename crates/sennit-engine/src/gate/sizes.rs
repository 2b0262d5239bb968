//! Whether a path carries full-size packets.
//!
//! noq would take any unlucky loss of large packets for a path MTU that shrank, and then shrink the
//! packets of the whole tunnel for a minute. All paths of a tunnel must carry the same size, so its
//! detection is switched off, and a path is judged by this instead: nothing of full size arrives
//! although smaller packets, sent in between, do.

/// A packet this much smaller than the largest is of full size too: lengths and numbers inside vary.
const SLACK: u16 = 32;
/// Losses in a row that condemn a path over which nothing of full size ever came,
const NEVER_ARRIVED: u32 = 6;
/// and one over which it did: a path that loses a third of everything gets here once in 10^19 packets.
const NO_LONGER_ARRIVES: u32 = 40;
/// And this often a smaller packet arrived in between: an outage swallows both.
const INTERLEAVED: u32 = 3;

/// The evidence of one path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    full: u16,
    proven: bool,
    lost_in_row: u32,
    interleaved: u32,
    newest_lost: u64,
    newest_small: u64,
}

impl Sizes {
    /// For packets of at most `mtu` bytes.
    pub(super) fn new(mtu: u16) -> Self {
        Self {
            full: mtu.saturating_sub(SLACK),
            proven: false,
            lost_in_row: 0,
            interleaved: 0,
            newest_lost: 0,
            newest_small: 0,
        }
    }

    pub(super) fn on_acked(&mut self, pn: u64, bytes: u64) {
        if bytes < u64::from(self.full) {
            self.newest_small = self.newest_small.max(pn);
        } else {
            (self.proven, self.lost_in_row, self.interleaved) = (true, 0, 0);
        }
    }

    pub(super) fn on_lost(&mut self, pn: u64, bytes: u64) {
        if bytes < u64::from(self.full) {
            return;
        }
        self.lost_in_row += 1;
        if (self.newest_lost + 1..pn).contains(&self.newest_small) {
            self.interleaved += 1;
        }
        self.newest_lost = pn;
    }

    /// The last news of full size was not good, or there was none.
    pub(super) fn is_in_doubt(&self) -> bool {
        !self.proven || self.lost_in_row > 0
    }

    pub(super) fn is_too_small(&self) -> bool {
        let most = if self.proven {
            NO_LONGER_ARRIVES
        } else {
            NEVER_ARRIVED
        };
        self.lost_in_row >= most && self.interleaved >= INTERLEAVED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: u64 = 1442;
    const SMALL: u64 = 60;

    #[test]
    fn a_path_that_carries_only_small_packets_is_found_out() {
        let mut sizes = Sizes::new(1450);
        for pn in (0..16).step_by(2) {
            assert!(sizes.is_in_doubt());
            sizes.on_acked(pn, SMALL);
            sizes.on_lost(pn + 1, FULL);
        }
        assert!(sizes.is_too_small());
    }

    #[test]
    fn an_outage_is_no_matter_of_size() {
        let mut sizes = Sizes::new(1450);
        sizes.on_acked(0, FULL);
        for pn in 1..500 {
            sizes.on_lost(pn, if pn % 10 == 0 { SMALL } else { FULL });
        }
        for pn in 500..510 {
            sizes.on_acked(pn, SMALL);
        }
        assert!(!sizes.is_too_small() && sizes.is_in_doubt());
        sizes.on_acked(510, FULL);
        assert!(!sizes.is_in_doubt());
    }

    #[test]
    fn a_path_that_loses_a_third_of_everything_is_large_enough() {
        let mut sizes = Sizes::new(1450);
        let mut seed = 1_u32;
        for pn in 0..1_000_000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let bytes = if pn % 5 == 0 { SMALL } else { FULL };
            if (seed >> 8).is_multiple_of(3) {
                sizes.on_lost(pn, bytes);
            } else {
                sizes.on_acked(pn, bytes);
            }
            assert!(!sizes.is_too_small() || pn < 100);
        }
    }

    #[test]
    fn a_path_that_shrinks_later_is_found_out() {
        let mut sizes = Sizes::new(1450);
        sizes.on_acked(0, FULL);
        for pn in 1..200 {
            if pn % 5 == 0 {
                sizes.on_acked(pn, SMALL);
            } else {
                sizes.on_lost(pn, FULL);
            }
        }
        assert!(sizes.is_too_small());
    }
}
