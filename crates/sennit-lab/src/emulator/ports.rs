//! A NAT box on packets: it changes ports, and leaves the addresses, which are those of the link
//! already.

use std::net::SocketAddr;
use std::time::Instant;

use sennit_netem::Nat;
use sennit_packet::checksum::update;
use sennit_packet::{IpPacket, Protocol};

const UDP_CHECKSUM: usize = 6;
const TCP_CHECKSUM: usize = 16;

/// Where the ports of a packet are, and whose they are.
struct Ports {
    protocol: u8,
    source: SocketAddr,
    destination: SocketAddr,
    /// Of the transport header.
    offset: usize,
    checksum: usize,
}

/// Gives what leaves through the box its port outside; whether it passes. What has no ports does.
pub(super) fn leave(nat: &mut Nat, packet: &mut [u8], now: Instant) -> bool {
    let Some(ports) = Ports::of(packet) else {
        return true;
    };
    let outside = nat.outbound(ports.protocol, ports.source, ports.destination, now);
    if let Some(port) = outside {
        ports.set(packet, 0, port);
    }
    outside.is_some()
}

/// Gives what arrives the port of the host inside; whether it passes.
pub(super) fn enter(nat: &mut Nat, packet: &mut [u8], now: Instant) -> bool {
    let Some(ports) = Ports::of(packet) else {
        return true;
    };
    let inside = nat.inbound(ports.protocol, ports.source, ports.destination.port(), now);
    if let Some(inside) = inside {
        ports.set(packet, 2, inside.port());
    }
    inside.is_some()
}

impl Ports {
    /// `None` for what has none, and for later fragments, which do not show theirs.
    fn of(packet: &[u8]) -> Option<Self> {
        let parsed = IpPacket::parse(packet).ok()?;
        let checksum = match parsed.protocol() {
            Protocol::UDP => UDP_CHECKSUM,
            Protocol::TCP => TCP_CHECKSUM,
            _ => return None,
        };
        let offset = parsed.transport_offset();
        if parsed.is_later_fragment() || packet.len() < offset + checksum + 2 {
            return None;
        }
        Some(Self {
            protocol: parsed.protocol().0,
            source: SocketAddr::new(parsed.src(), word(packet, offset)),
            destination: SocketAddr::new(parsed.dst(), word(packet, offset + 2)),
            offset,
            checksum: offset + checksum,
        })
    }

    /// Replaces the port that is so far into the header.
    fn set(&self, packet: &mut [u8], at: usize, port: u16) {
        let old = word(packet, self.offset + at);
        set_word(packet, self.offset + at, port);
        let sum = word(packet, self.checksum);
        // A UDP checksum of zero is none (RFC 768).
        if sum != 0 || self.protocol != Protocol::UDP.0 {
            set_word(packet, self.checksum, update(sum, old, port));
        }
    }
}

fn word(packet: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([packet[at], packet[at + 1]])
}

fn set_word(packet: &mut [u8], at: usize, value: u16) {
    packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use sennit_netem::NatConfig;
    use sennit_packet::checksum::Sum;

    use super::*;

    /// A UDP packet with a right checksum.
    fn udp(from: ([u8; 4], u16), to: ([u8; 4], u16)) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0];
        packet.extend(from.0);
        packet.extend(to.0);
        packet.extend(from.1.to_be_bytes());
        packet.extend(to.1.to_be_bytes());
        packet.extend([0, 12, 0, 0, 1, 2, 3, 4]);
        let sum = Sum::of(&packet[..20]).checksum();
        set_word(&mut packet, 10, sum);
        let pseudo = [&packet[12..20], &[0, 17, 0, 12]].concat();
        let sum = Sum::of(&[&pseudo, &packet[20..]].concat()).checksum();
        set_word(&mut packet, 26, sum);
        packet
    }

    #[test]
    fn ports_change_on_the_way_out_and_back_and_checksums_stay_right() {
        let (edge, hub) = (([10, 1, 0, 2], 5000), ([10, 9, 0, 1], 443));
        let now = Instant::now();
        let mut nat = Nat::new(NatConfig::default());
        let mut sent = udp(edge, hub);

        assert!(leave(&mut nat, &mut sent, now));

        let outside = word(&sent, 20);
        assert_ne!(outside, edge.1);
        assert_eq!(sent, udp((edge.0, outside), hub));
        let mut answer = udp(hub, (edge.0, outside));
        assert!(enter(&mut nat, &mut answer, now));
        assert_eq!(answer, udp(hub, edge));
        assert!(!enter(
            &mut nat,
            &mut udp((hub.0, 444), (edge.0, outside)),
            now
        ));
        assert!(
            !enter(&mut nat, &mut udp(hub, edge), now),
            "nobody has that port"
        );
    }

    #[test]
    fn what_has_no_ports_passes_unchanged() {
        let mut nat = Nat::new(NatConfig::default());
        let mut icmp = udp(([10, 1, 0, 2], 0x0800), ([10, 9, 0, 1], 1));
        icmp[9] = 1;
        let before = icmp.clone();
        assert!(leave(&mut nat, &mut icmp, Instant::now()));
        assert_eq!(icmp, before);
    }
}
