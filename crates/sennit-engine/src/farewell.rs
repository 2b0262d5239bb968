//! How often a connection that is over says so.
//!
//! noq 1.4 answers each packet that still comes with a CONNECTION_CLOSE, where fewer and fewer
//! answers are asked for (RFC 9000 §10.2.1). It also begins a CLOSE anew with the lowest of the
//! packet number spaces until it came to the highest; where its pacer lets one packet through at a
//! time it never does, if the lowest one's packet is padded (§14.1).

use std::{num::NonZeroUsize, time::Instant};

use noq_proto::{Connection, Transmit};

/// Lets a connection that is over send a CLOSE at once, and then after 1, 2, 4, 8, … packets that
/// came for it.
#[derive(Debug, Default)]
pub(crate) struct Farewell {
    /// Packets that came since the connection is over.
    heard: u64,
    /// How often it has said so.
    said: u32,
}

impl Farewell {
    /// A packet came for the connection, which has taken it in.
    pub(crate) fn note_heard(&mut self, conn: &Connection) {
        self.heard += u64::from(conn.is_closed());
    }

    /// Asks the connection for packets, unless it is over and has said so often enough.
    pub(crate) fn poll_transmit(
        &mut self,
        conn: &mut Connection,
        now: Instant,
        most: NonZeroUsize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if !conn.is_closed() {
            return conn.poll_transmit(now, most, buffer);
        }
        if !self.is_due() {
            return None;
        }
        let transmit = conn.poll_transmit(now, most, buffer)?;
        self.said += 1;
        Some(transmit)
    }

    fn is_due(&self) -> bool {
        self.said == 0 || self.heard >> (self.said - 1) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_over_answers_fewer_and_fewer_packets() {
        let mut farewell = Farewell::default();
        let mut answered = Vec::new();
        for heard in 0..=100 {
            farewell.heard = heard;
            while farewell.is_due() {
                farewell.said += 1;
                answered.push(heard);
            }
        }
        assert_eq!(answered, [0, 1, 2, 4, 8, 16, 32, 64]);
    }
}
