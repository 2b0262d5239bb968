//! When the keys of a connection are renewed.

use std::time::{Duration, Instant};

use super::Tunnel;
use crate::{acks::ACK_DELAY, path::Path, renewal::Exhausted};

/// What was sealed with old keys is on its way for three probe timeouts at most (RFC 9001 §6.5).
const PROBES: u32 = 3;
/// Round trips in a probe timeout (RFC 9002 §6.2.1) whose variance is half of the round trip, with
/// which one begins.
const TRIPS: u32 = 3;

impl Tunnel {
    /// The handshake is confirmed, before which no keys may be renewed (RFC 9001 §6).
    pub(crate) fn handle_confirmed(&mut self) {
        self.keys = self.agreed().and_then(|agreed| agreed.keys);
    }

    /// Renews the keys if that is due; they are worth nothing any more if it would be but is not
    /// possible.
    pub(crate) fn handle_keys(&self, now: Instant) -> Result<(), Exhausted> {
        let Some(keys) = &self.keys else {
            return Ok(());
        };
        keys.handle_time(self.rekey, || self.longest_way(), now)
    }

    /// How long a packet may be on its way on any path.
    fn longest_way(&self) -> Duration {
        let srtt = self.paths.iter().map(Path::srtt).max();
        PROBES * (TRIPS * srtt.unwrap_or_default() + ACK_DELAY)
    }
}
