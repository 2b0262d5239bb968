//! Thin packets: any packet of any template, and any bytes that are said to be one.

use sennit_packet::checksum::Progress;
use sennit_packet::thin::{Pace, Template};
use sennit_packet::{IpPacket, PacketError};

use super::mend;
use crate::input::Input;

const COUNTS_ID: u8 = 1;
const RTP: u8 = 2;
const PARTIAL: u8 = 4;
const MEND: u8 = 8;

/// A template, and what is made and restored with it.
///
/// Script: flags (1: the identification counts, 2: RTP, 4: a partial checksum, 8: mend the packet),
/// RTP's stride (2), number of the template's packet (4) and how much later the other one is (4),
/// the template's packet (a block), then the other one, which is also read as a thin packet.
pub fn thin(data: &[u8]) {
    let mut input = Input::new(data);
    let (flags, stride, seq, passed) = (input.byte(), input.u16(), input.u32(), input.u32());
    let (mut first, mut other) = (input.block().to_vec(), input.rest().to_vec());
    mend(&mut first);
    let pace = Pace {
        counts_id: flags & COUNTS_ID != 0,
        rtp: (flags & RTP != 0).then_some(stride),
    };
    let Some(template) = IpPacket::parse(&first)
        .ok()
        .and_then(|packet| Template::of(&packet, seq, pace))
    else {
        return;
    };
    assert_eq!(
        Template::parse(template.headers(), seq, pace).as_ref(),
        Some(&template)
    );
    let now = seq.wrapping_add(passed);
    check_bytes(&template, &other, now);
    if flags & MEND != 0 {
        mend(&mut other);
    }
    let checksum = if flags & PARTIAL != 0 {
        Progress::Partial
    } else {
        Progress::Whole
    };
    check_packet(&template, &other, now, checksum);
    check_packet(&template, &first, seq, Progress::Whole);
}

/// What is shrunk comes back bit by bit.
fn check_packet(template: &Template, packet: &[u8], seq: u32, checksum: Progress) {
    let Some(thin) = template.shrink(packet, seq, checksum) else {
        return;
    };
    let wire = [thin.bytes(), &packet[thin.replaces..]].concat();
    assert!(wire.len() < packet.len());
    let back = template.expand(&wire, seq).expect("what was shrunk");
    assert!([back.head(), back.payload].concat() == packet);
    assert_eq!((back.checksum, back.packet_len()), (checksum, packet.len()));
}

/// Any bytes are refused, or a packet that could be read but for what follows the headers.
fn check_bytes(template: &Template, bytes: &[u8], seq: u32) {
    let Some(back) = template.expand(bytes, seq) else {
        return;
    };
    let packet = [back.head(), back.payload].concat();
    assert!(packet.len() <= usize::from(u16::MAX) + 40);
    match IpPacket::parse(&packet) {
        Ok(packet) => assert_eq!(packet.total_len(), back.packet_len()),
        Err(PacketError::Truncated | PacketError::TooManyExtensions) => {
            assert_eq!(packet[0] >> 4, 6, "extension headers are not looked into");
        }
        Err(error) => panic!("{error}"),
    }
}
