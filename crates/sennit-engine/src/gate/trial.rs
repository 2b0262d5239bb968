//! Whether enough has arrived over a path to go by what it seems to carry.
//!
//! Before anything came back a path is only a window and a guess: all of that may stand before a
//! narrow link, or vanish. It is known once a window of the least size has arrived and, so that it
//! is known how the path takes that, something that left later.

/// Packets of full size in a first window (RFC 9002 §7.2).
const WINDOW: u64 = 10;
/// A packet this small is a probe or an acknowledgement.
const SMALL: u64 = 200;

/// What a path has to show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    /// Bytes of the window that did not arrive yet.
    missing: u64,
    /// The first packet that left after that.
    later: u64,
    over: bool,
}

impl Trial {
    /// For packets of at most `mtu` bytes.
    pub(super) fn new(mtu: u16) -> Self {
        Self {
            missing: WINDOW * u64::from(mtu),
            later: 0,
            over: false,
        }
    }

    /// The peer has packet `pn`; the newest sent is `newest`.
    pub(super) fn on_acked(&mut self, pn: u64, bytes: u64, newest: u64) {
        if self.over || bytes <= SMALL {
            return;
        }
        if self.missing > 0 {
            self.missing = self.missing.saturating_sub(bytes);
            self.later = newest + 1;
        } else if pn >= self.later {
            self.over = true;
        }
    }

    pub(super) fn is_over(self) -> bool {
        self.over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_known_when_a_window_and_something_later_has_arrived() {
        let mut trial = Trial::new(1200);
        for pn in 0..20 {
            trial.on_acked(pn, 1200, 30);
            assert!(!trial.is_over());
        }
        trial.on_acked(31, SMALL, 32);
        assert!(!trial.is_over());
        trial.on_acked(40, 1200, 50);
        assert!(trial.is_over());
    }
}
