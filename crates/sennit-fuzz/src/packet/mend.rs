//! Makes the lengths and checksums of a packet right, as far as it has them, so that a changed byte
//! is not only ever a wrong checksum.

use sennit_packet::checksum::Sum;
use sennit_packet::{IpPacket, Protocol, Version};

/// What is too short for a header has nothing to mend.
pub(crate) fn mend(packet: &mut [u8]) {
    if packet.len() < 20 {
        return;
    }
    mend_length(packet);
    mend_v4_checksum(packet);
    mend_transport(packet);
}

fn mend_length(packet: &mut [u8]) {
    let (field, header) = match packet.first().map(|byte| byte >> 4) {
        Some(4) => (2, 0),
        Some(6) => (4, 40),
        _ => return,
    };
    let stated = packet.len().checked_sub(header).map(u16::try_from);
    if let Some(Ok(stated)) = stated {
        put(packet, field, stated);
    }
}

fn mend_v4_checksum(packet: &mut [u8]) {
    let header = match IpPacket::parse(packet) {
        Ok(parsed) if parsed.version() == Version::V4 => usize::from(packet[0] & 0xf) * 4,
        _ => return,
    };
    put(packet, 10, 0);
    let checksum = Sum::of(&packet[..header]).checksum();
    put(packet, 10, checksum);
}

fn mend_transport(packet: &mut [u8]) {
    let Ok(parsed) = IpPacket::parse(packet) else {
        return;
    };
    let (at, protocol, length) = (
        parsed.transport_offset(),
        parsed.protocol(),
        parsed.transport().len(),
    );
    let field = match protocol {
        Protocol::TCP => 16,
        Protocol::UDP => 6,
        Protocol::ICMP | Protocol::ICMPV6 => 2,
        _ => return,
    };
    if parsed.is_fragment() || length < field + 2 {
        return;
    }
    let addresses = match parsed.version() {
        Version::V4 => packet[12..20].to_vec(),
        Version::V6 => packet[8..40].to_vec(),
    };
    let pseudo = match protocol {
        Protocol::ICMP => Sum::default(),
        _ => Sum::pseudo_header(&addresses, protocol, length),
    };
    if protocol == Protocol::UDP {
        let length = u16::try_from(length).expect("a parsed packet is shorter than 64 KiB");
        put(packet, at + 4, length);
    }
    put(packet, at + field, 0);
    let checksum = match (pseudo + Sum::of(&packet[at..])).checksum() {
        0 if protocol == Protocol::UDP => 0xffff,
        checksum => checksum,
    };
    put(packet, at + field, checksum);
}

pub(super) fn put(packet: &mut [u8], at: usize, value: u16) {
    packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
