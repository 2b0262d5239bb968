//! When packets are acknowledged: what both ends agree on, and the packets of one path whose turn
//! it is.
//!
//! noq 1.4 puts the acknowledgements of all paths into the next packet that it sends, and a packet
//! with nothing else goes to the path with the lowest number that is up, usually the one with the
//! least delay. Where that is a narrow link, the acknowledgements of wide ones fill it, and then
//! all paths wait for what stands there. So while it is crowded, a path whose packets are to be
//! acknowledged ([`Owed`]) gets a datagram of padding, with which the acknowledgements leave.

use std::time::{Duration, Instant};

/// The round trip that is assumed before the first sample: most links answer sooner, and the first
/// retransmission of a handshake is due after three of these.
pub(crate) const INITIAL_RTT: Duration = Duration::from_millis(100);
/// The far end acknowledges after so many packets.
pub(crate) const ACK_PACKETS: u32 = 10;
/// The far end acknowledges after this time if fewer than [`ACK_PACKETS`] come.
pub(crate) const ACK_DELAY: Duration = Duration::from_millis(5);

/// Packets of one path that noq has not acknowledged yet, counted as it does (RFC 9000 §13.2.1).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Owed {
    packets: u32,
    /// When the first of them came.
    since: Option<Instant>,
    /// One of them is more than padding. What acknowledges padding needs no padding, or it would
    /// never end.
    matters: bool,
}

impl Owed {
    /// A packet with datagrams has arrived.
    pub(crate) fn handle_packet(&mut self, matters: bool, now: Instant) {
        self.packets += 1;
        self.since = self.since.or(Some(now));
        self.matters |= matters;
    }

    /// Whether noq would acknowledge them now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let waited = self.since.map(|since| now.saturating_duration_since(since));
        self.packets >= ACK_PACKETS || waited.unwrap_or(Duration::ZERO) >= ACK_DELAY
    }

    /// When noq would at the latest.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.since.map(|since| since + ACK_DELAY)
    }

    /// Whether they are worth a datagram.
    pub(crate) fn matters(&self) -> bool {
        self.matters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_acknowledged_in_tens_or_soon() {
        let start = Instant::now();
        let mut owed = Owed::default();
        assert!(!owed.is_due(start));
        assert_eq!(owed.due_at(), None);
        owed.handle_packet(true, start);
        assert_eq!(owed.due_at(), Some(start + ACK_DELAY));
        assert!(!owed.is_due(start));
        assert!(owed.is_due(start + ACK_DELAY));
        (1..ACK_PACKETS).for_each(|_| owed.handle_packet(true, start));
        assert!(owed.is_due(start));
    }

    #[test]
    fn padding_alone_is_worth_no_padding() {
        let now = Instant::now();
        let mut owed = Owed::default();
        owed.handle_packet(false, now);
        assert!(!owed.matters());
        owed.handle_packet(true, now);
        owed.handle_packet(false, now);
        assert!(owed.matters());
    }
}
