//! Inner packets as they are, to see what becomes of them.

use sennit_packet::checksum::Sum;

use super::Transport;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// What aligns a timestamp (RFC 7323, appendix A): two times no operation, kind and length.
const TIMESTAMP: [u8; 4] = [1, 1, 8, 10];
const NO_OPERATION: u8 = 1;
const V6_HEADER: usize = 40;

/// The packet of this number of a flow, with data.
pub(super) fn packet(v6: bool, transport: Transport, len: usize, number: u32) -> Vec<u8> {
    let mut packet = match v6 {
        false => v4_header(transport, len),
        true => v6_header(transport, len),
    };
    match transport {
        Transport::Tcp { options } => put_tcp(&mut packet, options, number),
        Transport::Udp => {
            let bytes = (len - packet.len()) as u16;
            packet.extend_from_slice(&[0x9c, 0x40, 0x10, 0x92]);
            packet.extend_from_slice(&bytes.to_be_bytes());
            packet.extend_from_slice(&[0x12, 0x34]);
        }
    }
    packet.resize(len.max(packet.len()), 7);
    packet
}

fn protocol(transport: Transport) -> u8 {
    match transport {
        Transport::Tcp { .. } => TCP,
        Transport::Udp => UDP,
    }
}

fn v4_header(transport: Transport, len: usize) -> Vec<u8> {
    let [high, low] = (len as u16).to_be_bytes();
    let kind = protocol(transport);
    let mut header = vec![0x45, 0, high, low, 0, 9, 0x40, 0, 61, kind, 0, 0];
    header.extend_from_slice(&[192, 0, 2, 1, 198, 51, 100, 2]);
    let sum = Sum::of(&header).checksum();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

fn v6_header(transport: Transport, len: usize) -> Vec<u8> {
    let [high, low] = (len.saturating_sub(V6_HEADER) as u16).to_be_bytes();
    let mut header = vec![0x60, 0, 0, 0, high, low, protocol(transport), 61];
    header.resize(V6_HEADER, 0x20);
    header
}

fn put_tcp(packet: &mut Vec<u8>, options: usize, number: u32) {
    let words = 5 + options / 4;
    packet.extend_from_slice(&[0x9c, 0x40, 0x14, 0x51]);
    packet.extend_from_slice(&(1000 + 1348 * number).to_be_bytes());
    packet.extend_from_slice(&77_u32.to_be_bytes());
    packet.extend_from_slice(&[(words << 4) as u8, 0x10, 1, 0xf5, 0x12, 0x34, 0, 0]);
    if options == TIMESTAMP.len() + 8 {
        packet.extend_from_slice(&TIMESTAMP);
        packet.extend_from_slice(&(5000 + number).to_be_bytes());
        packet.extend_from_slice(&4000_u32.to_be_bytes());
    } else {
        packet.resize(packet.len() + options, NO_OPERATION);
    }
}
