//! Handshakes over paths that carry no large packets.
//!
//! noq fills the datagrams of a handshake up to the size that all paths are to carry, which some do
//! not, and sends no smaller ones before a probe timeout, at each step of the handshake anew. So a
//! datagram of several packets leaves as several datagrams, and the probes of a ClientHello that is
//! in a large one, which are small, leave together with it. So one lost datagram delays nothing
//! there either. A hub that got no larger one answers likewise: the probes of a large Initial
//! packet leave right after it, and before what nobody can read who has not read them. A hub that
//! demands a proof of the address (Retry) has a ClientHello leave again, and with it probes.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use noq_proto::Transmit;
use sennit_masque::varint;

use super::{Tunnel, round::ONE};

/// Every path carries this (RFC 9000 §14), and ack-eliciting Initial packets are not in smaller
/// datagrams (§14.1).
const SMALL: usize = 1200;
/// The first probe timeout is three times the initial round trip, and twice that after a Retry, as
/// noq counts those before it; what is due later is neither.
const FIRST_PROBE: Duration = Duration::from_secs(1);

/// Probes of one timeout (RFC 9002 §6.2.4).
const PROBES: u8 = 2;

/// What is to be sent for the sake of paths that are small.
#[derive(Debug, Default)]
pub(super) struct Opening {
    /// What leaves later than noq gave it: the packets of a datagram that did not leave with its
    /// first, and what waits for probes. It is no more than noq's first window.
    rest: VecDeque<(Transmit, Vec<u8>)>,
    /// An Initial packet was in a large datagram.
    large: bool,
    /// The peer's first datagram was small, so larger ones of it may have been lost.
    peer_is_small: bool,
    /// Probes have been asked for.
    probed: bool,
    /// What the last large Initial packet showed: another one comes with a Retry, after which the
    /// handshake begins anew.
    token: Vec<u8>,
    /// So many of them are still to leave before all else.
    probes: u8,
}

impl Opening {
    /// What is left of a datagram.
    fn take_rest(&mut self, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let (mut transmit, bytes) = self.rest.pop_front()?;
        let start = buffer.len();
        buffer.extend_from_slice(&bytes);
        self.part(&mut transmit, start, buffer);
        Some(transmit)
    }

    /// Leaves the first packet of a large datagram alone in it; whether it is a large Initial one.
    fn part(&mut self, transmit: &mut Transmit, start: usize, buffer: &mut Vec<u8>) -> bool {
        let datagram = &buffer[start..];
        if datagram.len() <= SMALL {
            return false;
        }
        let Some(first) = Long::parse(datagram) else {
            return false;
        };
        if first.is_initial && first.token != self.token {
            self.token = first.token.to_vec();
            self.probed = false;
        }
        let (is_initial, len, whole) = (first.is_initial, first.len, datagram.len());
        self.large |= is_initial;
        if len < whole && (!is_initial || len >= SMALL) {
            let rest = buffer.split_off(start + len);
            transmit.size = len;
            let of_rest = Transmit {
                size: rest.len(),
                ..*transmit
            };
            self.rest.push_front((of_rest, rest));
        }
        is_initial && len > SMALL
    }
}

impl Tunnel {
    /// The datagram that the peer's handshake began with was of this size.
    pub(crate) fn note_first_datagram(&mut self, len: usize) {
        self.opening.peer_is_small = len <= SMALL;
    }

    /// What noq has to send by itself, of a handshake in small datagrams.
    pub(super) fn poll_small(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        if self.opening.probes > 0 {
            self.opening.probes -= 1;
            if let Some(probe) = self.ask_noq(ONE, now, buffer) {
                return Some(probe);
            }
        }
        if let Some(rest) = self.opening.take_rest(buffer) {
            return Some(rest);
        }
        let start = buffer.len();
        let mut transmit = self.ask_noq(ONE, now, buffer);
        let asks = self.opening.large && self.conn.side().is_client();
        if transmit.is_none() && asks && self.probe_early(now) {
            transmit = self.ask_noq(ONE, now, buffer);
        }
        if let Some(transmit) = &mut transmit {
            let is_large = self.opening.part(transmit, start, buffer);
            if is_large && self.opening.peer_is_small {
                self.answer_small(now);
            }
        }
        transmit
    }

    /// Puts probes before the rest of what noq has to send.
    fn answer_small(&mut self, now: Instant) {
        let mut packets = Vec::new();
        while let Some(transmit) = self.ask_noq(ONE, now, &mut packets) {
            let packets = std::mem::take(&mut packets);
            self.opening.rest.push_back((transmit, packets));
        }
        if self.probe_early(now) {
            self.opening.probes = PROBES;
        }
    }

    /// Has noq send the probes of a large Initial packet, which are due when it is not answered in
    /// time, once for each token; whether it does.
    fn probe_early(&mut self, now: Instant) -> bool {
        if !self.conn.is_handshaking() || std::mem::replace(&mut self.opening.probed, true) {
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
struct Long<'a> {
    is_initial: bool,
    /// Of an Initial packet.
    token: &'a [u8],
    /// With its header.
    len: usize,
}

impl<'a> Long<'a> {
    /// The first packet of a datagram, if it has a long header.
    fn parse(datagram: &'a [u8]) -> Option<Self> {
        let (&[first, _, _, _, _], rest) = datagram.split_first_chunk()?;
        if first & 0x80 == 0 {
            return None;
        }
        let is_initial = first & 0x30 == 0;
        let mut rest = without_id(without_id(rest)?)?;
        let mut token = &rest[..0];
        if is_initial {
            let length = usize::try_from(varint::take(&mut rest)?).ok()?;
            (token, rest) = rest.split_at_checked(length)?;
        }
        let length = usize::try_from(varint::take(&mut rest)?).ok()?;
        let header = datagram.len() - rest.len();
        Some(Self {
            is_initial,
            token,
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
            &[0xc3, 0, 0, 0, 1, 2, 7, 7, 1, 9, 3, 4, 5, 6, 0x40, 5][..],
            &[0; 5],
        ]
        .concat();
        let handshake = [&[0xe0, 0, 0, 0, 1, 0, 0, 4][..], &[0; 4]].concat();
        let both = [&initial[..], &handshake].concat();

        let first = Long::parse(&both).expect("a packet");
        assert!(first.is_initial);
        assert_eq!((first.token, first.len), (&[4, 5, 6][..], initial.len()));
        let second = Long::parse(&both[first.len..]).expect("a packet");
        assert!(!second.is_initial);
        assert_eq!(second.len, handshake.len());
        assert!(Long::parse(&[0x40; 30]).is_none(), "a short header");
        assert!(Long::parse(&initial[..8]).is_none(), "cut short");
    }
}
