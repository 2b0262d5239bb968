//! Handshakes over paths that carry no large packets.
//!
//! noq fills the datagrams of a handshake up to the size that all paths are to carry, which some do
//! not, and sends no smaller ones before a probe timeout, at each step of the handshake anew. So a
//! datagram of several packets leaves as several datagrams, and the probes of a ClientHello that is
//! in a large one, which are small, leave together with it. So one lost datagram delays nothing
//! there either.

use std::time::{Duration, Instant};

use noq_proto::Transmit;
use sennit_masque::varint;

use super::{Tunnel, round::ONE};

/// Every path carries this (RFC 9000 §14), and ack-eliciting Initial packets are not in smaller
/// datagrams (§14.1).
const SMALL: usize = 1200;
/// The first probe timeout is three times the initial round trip; what is due later is not that.
const FIRST_PROBE: Duration = Duration::from_secs(1);

/// What is to be sent for the sake of paths that are small.
#[derive(Debug, Default)]
pub(super) struct Opening {
    /// The packets of a datagram that did not leave with its first.
    rest: Option<(Transmit, Vec<u8>)>,
    /// An Initial packet was in a large datagram.
    large: bool,
    /// Its probes have left.
    probed: bool,
}

impl Opening {
    /// What is left of a datagram.
    fn take_rest(&mut self, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let (mut transmit, bytes) = self.rest.take()?;
        let start = buffer.len();
        buffer.extend_from_slice(&bytes);
        self.part(&mut transmit, start, buffer);
        Some(transmit)
    }

    /// Leaves the first packet of a large datagram alone in it.
    fn part(&mut self, transmit: &mut Transmit, start: usize, buffer: &mut Vec<u8>) {
        let datagram = &buffer[start..];
        if datagram.len() <= SMALL {
            return;
        }
        let Some(first) = Long::parse(datagram) else {
            return;
        };
        self.large |= first.is_initial;
        if first.len >= datagram.len() || first.is_initial && first.len < SMALL {
            return;
        }
        let rest = buffer.split_off(start + first.len);
        transmit.size = first.len;
        let of_rest = Transmit {
            size: rest.len(),
            ..*transmit
        };
        self.rest = Some((of_rest, rest));
    }
}

impl Tunnel {
    /// What noq has to send by itself, of a handshake in small datagrams.
    pub(super) fn poll_small(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        if self.opening.rest.is_some() {
            return self.opening.take_rest(buffer);
        }
        let start = buffer.len();
        let mut transmit = self.ask_noq(ONE, now, buffer);
        if transmit.is_none() && self.probe_early(now) {
            transmit = self.ask_noq(ONE, now, buffer);
        }
        if let Some(transmit) = &mut transmit {
            self.opening.part(transmit, start, buffer);
        }
        transmit
    }

    /// Has noq send the probes of a large ClientHello, which are due when it is not answered in
    /// time; whether it does.
    fn probe_early(&mut self, now: Instant) -> bool {
        let asks = self.opening.large && self.conn.is_handshaking() && self.conn.side().is_client();
        if !asks || std::mem::replace(&mut self.opening.probed, true) {
            return false;
        }
        let due = self.conn.poll_timeout();
        let due = due.filter(|&due| due <= now + FIRST_PROBE);
        if let Some(due) = due {
            let conn = &mut self.conn;
            self.mishap.contain(now, || conn.handle_timeout(due));
        }
        due.is_some()
    }
}

/// A packet with a long header (RFC 9000 §17.2).
struct Long {
    is_initial: bool,
    /// With its header.
    len: usize,
}

impl Long {
    /// The first packet of a datagram, if it has a long header.
    fn parse(datagram: &[u8]) -> Option<Self> {
        let (&[first, _, _, _, _], rest) = datagram.split_first_chunk()?;
        if first & 0x80 == 0 {
            return None;
        }
        let is_initial = first & 0x30 == 0;
        let mut rest = without_id(without_id(rest)?)?;
        if is_initial {
            let token = usize::try_from(varint::take(&mut rest)?).ok()?;
            rest = rest.get(token..)?;
        }
        let length = usize::try_from(varint::take(&mut rest)?).ok()?;
        let header = datagram.len() - rest.len();
        Some(Self {
            is_initial,
            len: header + length,
        })
    }
}

/// What follows a connection ID.
fn without_id(bytes: &[u8]) -> Option<&[u8]> {
    let (&length, rest) = bytes.split_first()?;
    rest.get(usize::from(length)..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_a_datagram_are_told_apart() {
        // Two IDs of 2 and 1 bytes, a token of 3, and 0x4005 = 5 bytes of packet.
        let initial = [
            &[0xc3, 0, 0, 0, 1, 2, 7, 7, 1, 9, 3, 0, 0, 0, 0x40, 5][..],
            &[0; 5],
        ]
        .concat();
        let handshake = [&[0xe0, 0, 0, 0, 1, 0, 0, 4][..], &[0; 4]].concat();
        let both = [&initial[..], &handshake].concat();

        let first = Long::parse(&both).expect("a packet");
        assert!(first.is_initial);
        assert_eq!(first.len, initial.len());
        let second = Long::parse(&both[first.len..]).expect("a packet");
        assert!(!second.is_initial);
        assert_eq!(second.len, handshake.len());
        assert!(Long::parse(&[0x40; 30]).is_none(), "a short header");
        assert!(Long::parse(&initial[..8]).is_none(), "cut short");
    }
}
