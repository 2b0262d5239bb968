//! What carries an inner connection looks like this to those who pass its packets on.

use std::time::Instant;

/// One end of an inner connection: packets in, packets out, and when it wants to act.
pub(crate) trait Endpoint {
    /// Takes a packet from the other end.
    fn handle_packet(&mut self, packet: &[u8], now: Instant);
    /// The next packet to send, until there is none.
    fn poll_packet(&mut self, now: Instant) -> Option<Vec<u8>>;
    /// When to ask for packets again.
    fn poll_timeout(&self) -> Option<Instant>;
    /// Bytes that have arrived, each counted once.
    fn received(&self) -> u64;
}
