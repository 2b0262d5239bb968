//! The end of a handshake, in the middle of which no timer may fire.

use std::time::Instant;

use noq_proto::Connection;

/// Keeps the timers of a connection still between the packet that completes its handshake and the
/// next that it sends.
///
/// A client whose packets were all acknowledged by then would probe with Initial packets, for which
/// it has no keys any more, and noq panics. What it sends next sets the timers anew.
pub(crate) struct Finish {
    /// The handshake was not complete when the connection was last asked for packets.
    was_handshaking: bool,
}

impl Default for Finish {
    fn default() -> Self {
        Self {
            was_handshaking: true,
        }
    }
}

impl Finish {
    /// Before the connection is asked for packets.
    pub(crate) fn note_sending(&mut self, conn: &Connection) {
        self.was_handshaking = conn.is_handshaking();
    }

    /// Fires what is due, unless the connection has to send first.
    pub(crate) fn handle_timeout(&self, conn: &mut Connection, now: Instant) {
        if !self.was_handshaking || conn.is_handshaking() {
            conn.handle_timeout(now);
        }
    }
}
