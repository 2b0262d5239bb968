//! What a client has of its rate.

use std::time::{Duration, Instant};

use sennit_packet::Bitrate;

/// What a client may send at once, of what its rate gives it in this time.
pub(super) const BURST: Duration = Duration::from_millis(100);
/// The least burst, in bytes: the largest packet fits in any rate.
const LEAST_BURST: f64 = 65_536.0;

/// What one client has of its rate in one direction, in bytes.
#[derive(Debug)]
pub(super) struct Allowance {
    pub(super) left: f64,
    pub(super) at: Instant,
}

impl Allowance {
    /// Takes `bytes`; false if that is too much now.
    pub(super) fn take(&mut self, bytes: usize, rate: Bitrate, now: Instant) -> bool {
        let rate = rate.as_bytes_per_second_f64();
        let earned = now.saturating_duration_since(self.at).as_secs_f64() * rate;
        let most = (rate * BURST.as_secs_f64()).max(LEAST_BURST);
        (self.left, self.at) = ((self.left + earned).min(most), now);
        let enough = self.left >= bytes as f64;
        if enough {
            self.left -= bytes as f64;
        }
        enough
    }
}
