//! How much of a window was used.

/// The most bytes that were in flight during this round trip and the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) newest_sent: u64,
    round_ends: u64,
    this_round: u64,
    last_round: u64,
}

impl Usage {
    pub(super) fn on_sent(&mut self, pn: u64, in_flight: u64) {
        self.newest_sent = pn;
        self.this_round = self.this_round.max(in_flight);
    }

    pub(super) fn on_ack(&mut self, pn: u64, in_flight: u64) {
        if pn >= self.round_ends {
            self.round_ends = self.newest_sent + 1;
            self.last_round = self.this_round;
            self.this_round = in_flight;
        }
    }

    pub(super) fn peak(&self) -> u64 {
        self.this_round.max(self.last_round)
    }

    /// Whether nearly all of such a window was used.
    pub(super) fn fills(&self, window: u64) -> bool {
        let used = self.peak();
        used + used / 4 >= window
    }
}
