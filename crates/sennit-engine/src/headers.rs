//! What stands around an inner packet on a path, in bytes: for those who predict or plan.
//!
//! Everything here is taken from the parts that write it, so that a prediction changes with them.

mod sample;

use sennit_core::frame::{Half, Header, SourceHead, ThinHeader};
use sennit_fec::Repair;
use sennit_masque::{StreamId, varint};

use sennit_packet::{
    IpPacket,
    checksum::Progress,
    thin::{Pace, Template},
};

use crate::{
    acks::ACK_PACKETS,
    cid,
    codec::{Abilities, Codec, Peer},
};

/// Bytes of a short header before the connection ID (RFC 9000 §17.3.1).
pub const SHORT_HEADER: usize = 1;
/// Bytes of the longest packet number.
pub const PACKET_NUMBER_MOST: usize = 4;
/// Bytes of the AEAD tag of every cipher of QUIC (RFC 9001 §5.3).
pub const TAG: usize = 16;
/// Bytes of a DATAGRAM frame's type and longest length (RFC 9221 §4).
pub const DATAGRAM_MOST: usize = 1 + 8;
/// Packets of a path that one acknowledgement is sent for, while many arrive.
pub const ACK_EVERY: usize = ACK_PACKETS as usize;

/// How an inner packet travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In context 0, as every RFC 9484 peer understands it.
    Bare,
    /// In context 2 or 8: behind a number, a flow and a time.
    Numbered,
    /// In context 20: without what the flow's packets have in common ([`thinned`]).
    Thin,
    /// In context 10: half of it.
    Half,
    /// In context 16: as a repair of it and others that are no longer. What repairs protect travels
    /// as [`Self::Numbered`] does, in context 14.
    Repair,
}

/// What an inner packet carries, as far as thin packets tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP with so many bytes of options; twelve are a timestamp.
    Tcp {
        /// A multiple of four.
        options: usize,
    },
    /// UDP that is no RTP.
    Udp,
}

/// How many of the first bytes of an inner packet of `len` bytes are left out when it is thin, and
/// how many stand for them: of a packet whose flow goes on, as [`sennit_packet::thin`] makes it of
/// two samples. `None` for what travels whole.
pub fn thinned(v6: bool, transport: Transport, len: usize) -> Option<(usize, usize)> {
    let [first, later] = [0, 1].map(|number| sample::packet(v6, transport, len, number));
    let first = IpPacket::parse(&first).ok()?;
    let template = Template::of(&first, 0, Pace::default())?;
    let thin = template.shrink(&later, 1, Progress::Whole)?;
    Some((thin.replaces, thin.bytes().len()))
}

/// Bytes of one kind around an inner packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// What they are.
    pub what: &'static str,
    /// How many.
    pub bytes: usize,
}

/// What a QUIC packet has before its `inner` bytes of an IP packet, outermost first, with a packet
/// number of so many bytes. [`TAG`] follows them.
pub fn before(form: Form, inner: usize, packet_number: usize) -> Vec<Part> {
    let peer = match form {
        Form::Bare => Peer::Standard,
        Form::Numbered | Form::Thin | Form::Half | Form::Repair => Peer::Sennit(Abilities::OURS),
    };
    // A tunnel's request is the first stream.
    let codec = Codec::new(StreamId(0), peer);
    let ours = match form {
        Form::Bare => 0,
        Form::Numbered => Header::LEN,
        Form::Thin => ThinHeader::LEN,
        Form::Half => Header::LEN + Half::LEN,
        Form::Repair => Repair::LEN + size_of::<SourceHead>(),
    };
    let prefix = codec.overhead() - if codec.is_numbered() { Header::LEN } else { 0 };
    let length = varint::size((prefix + ours + inner) as u64);
    let part = |what, bytes| Part { what, bytes };
    let mut parts = vec![
        part("QUIC short header", SHORT_HEADER),
        part("connection ID", cid::LEN),
        part("packet number", packet_number),
        part("DATAGRAM frame", 1 + length),
        part("stream and context", prefix),
    ];
    match form {
        Form::Bare => {}
        Form::Numbered => parts.push(part("number, flow, time", Header::LEN)),
        Form::Thin => parts.push(part("number, flow, time, thin", ThinHeader::LEN)),
        Form::Half => {
            parts.push(part("number, flow, time", Header::LEN));
            parts.push(part("which half", Half::LEN));
        }
        Form::Repair => {
            parts.push(part("repair header", Repair::LEN));
            parts.push(part("number, flow, flags", size_of::<SourceHead>()));
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(form: Form) -> usize {
        before(form, 1300, 2).iter().map(|part| part.bytes).sum()
    }

    #[test]
    fn a_number_costs_its_header_and_a_half_its_own() {
        assert_eq!(sum(Form::Numbered) - sum(Form::Bare), Header::LEN);
        assert_eq!(sum(Form::Half) - sum(Form::Numbered), Half::LEN);
        assert_eq!(sum(Form::Repair), sum(Form::Numbered));
    }

    #[test]
    fn thin_packets_lose_as_much_as_the_book_says() {
        let tcp = Transport::Tcp { options: 12 };
        let saved = |v6, transport, len| {
            let (gone, left) = thinned(v6, transport, len).expect("they are thin");
            gone + Header::LEN - left - ThinHeader::LEN
        };
        assert_eq!((saved(false, tcp, 1400), saved(true, tcp, 1400)), (40, 60));
        assert_eq!(saved(false, Transport::Udp, 1400), 28 + 2 - 3);
    }

    #[test]
    fn the_largest_headers_are_what_the_transport_leaves_room_for() {
        let most = before(Form::Numbered, 1300, PACKET_NUMBER_MOST);
        let most: usize = most.iter().map(|part| part.bytes).sum();
        let settings = crate::Settings {
            inner_mtu: 1400,
            issuer: crate::Issuer { hub: 0, worker: 0 },
            seed: [0; 32],
            reset_key: [0; 32],
            rekey: crate::Rekey::default(),
        };
        assert!(most + TAG <= usize::from(settings.outer_mtu() - 1400));
    }
}
