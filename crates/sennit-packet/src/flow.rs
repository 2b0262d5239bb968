//! The five-tuple that queues, schedulers and resequencers sort packets by.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::ip::IpPacket;
use crate::protocol::Protocol;

/// Source, destination, protocol and ports of a packet.
///
/// Protocols without ports have ports of zero, and so have all fragments, the first one too:
/// that keeps the fragments of one datagram together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub protocol: Protocol,
    pub src_port: u16,
    pub dst_port: u16,
}

impl FlowKey {
    pub fn of(packet: &IpPacket<'_>) -> Self {
        let whole = !packet.is_fragment();
        Self::with(packet, packet.ports().filter(|_| whole))
    }

    /// The key of the whole datagram, whose ports its first fragment has too; later ones have none.
    pub fn of_datagram(packet: &IpPacket<'_>) -> Self {
        Self::with(packet, packet.ports())
    }

    fn with(packet: &IpPacket<'_>, ports: Option<(u16, u16)>) -> Self {
        let (src_port, dst_port) = ports.unwrap_or_default();
        let (src, dst, protocol) = (packet.src(), packet.dst(), packet.protocol());
        Self {
            src,
            dst,
            protocol,
            src_port,
            dst_port,
        }
    }

    /// The key of the packets that answer this flow.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self {
            src: self.dst,
            dst: self.src,
            src_port: self.dst_port,
            dst_port: self.src_port,
            ..self
        }
    }

    /// A hash that is the same on every machine and in every release for the same seed.
    ///
    /// A secret seed keeps senders from aiming at one bucket; it is no cryptographic promise.
    pub fn hash64(self, seed: u64) -> u64 {
        let [src, dst] = [self.src, self.dst].map(address_words);
        let ports = u64::from(self.src_port) << 16 | u64::from(self.dst_port);
        let rest = ports << 8 | u64::from(self.protocol.0);
        // The digits of pi: constants with nothing up their sleeve.
        let state = fold(seed ^ 0x243f_6a88_85a3_08d3, rest ^ 0x1319_8a2e_0370_7344);
        let state = fold(state ^ src[0], 0xa409_3822_299f_31d0 ^ src[1]);
        let state = fold(
            state ^ dst[0],
            0x082e_fa98_ec4e_6c89 ^ dst[1].rotate_left(32),
        );
        fold(state, 0x4528_21e6_38d0_1377)
    }
}

/// Like `tcp 10.0.0.2:40000 to 10.9.0.2:443`: no sign that a shell would take for its own.
impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            src,
            dst,
            protocol,
            src_port,
            dst_port,
        } = self;
        if (*src_port, *dst_port) == (0, 0) {
            return write!(f, "{protocol} {src} to {dst}");
        }
        let (src, dst) = (
            SocketAddr::new(*src, *src_port),
            SocketAddr::new(*dst, *dst_port),
        );
        write!(f, "{protocol} {src} to {dst}")
    }
}

fn address_words(address: IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    };
    halves(bits)
}

/// Both halves of a full product, mixed.
fn fold(a: u64, b: u64) -> u64 {
    let [high, low] = halves(u128::from(a) * u128::from(b));
    high ^ low
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the halves of a u128 are the point"
)]
fn halves(value: u128) -> [u64; 2] {
    [(value >> 64) as u64, value as u64]
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    fn key() -> FlowKey {
        FlowKey {
            src: "192.0.2.1".parse().unwrap(),
            dst: "198.51.100.2".parse().unwrap(),
            protocol: Protocol::TCP,
            src_port: 40_000,
            dst_port: 443,
        }
    }

    fn packet() -> Vec<u8> {
        let mut packet = Vec::new();
        PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 2], 64)
            .tcp(40_000, 443, 1, 1000)
            .write(&mut packet, &[])
            .unwrap();
        packet
    }

    #[test]
    fn a_packet_has_the_key_of_its_flow() {
        assert_eq!(FlowKey::of(&IpPacket::parse(&packet()).unwrap()), key());
    }

    #[test]
    fn all_fragments_of_a_datagram_share_a_key() {
        let (mut first, mut later) = (packet(), packet());
        first[6] = 0x20;
        later[6..8].copy_from_slice(&[0x00, 0x05]);
        let [first, later] = [&first, &later].map(|b| FlowKey::of(&IpPacket::parse(b).unwrap()));
        assert_eq!(first, later);
        assert_eq!((first.src_port, first.dst_port), (0, 0));
    }

    #[test]
    fn the_first_fragment_knows_the_ports_of_its_datagram() {
        let (mut first, mut later) = (packet(), packet());
        first[6] = 0x20;
        later[6..8].copy_from_slice(&[0x00, 0x05]);
        let [first, later] =
            [&first, &later].map(|b| FlowKey::of_datagram(&IpPacket::parse(b).unwrap()));
        assert_eq!(first, key());
        assert_eq!((later.src_port, later.dst_port), (0, 0));
    }

    #[test]
    fn reversing_twice_is_the_same_flow() {
        let reversed = key().reversed();
        assert_eq!(
            (reversed.src, reversed.src_port),
            (key().dst, key().dst_port)
        );
        assert_eq!(reversed.reversed(), key());
    }

    #[test]
    fn the_hash_never_changes_between_releases() {
        assert_eq!(key().hash64(1), 0xfea0_ac45_0198_553b);
    }

    #[test]
    fn every_field_and_the_seed_change_the_hash() {
        let key = key();
        let other: IpAddr = "203.0.113.9".parse().unwrap();
        let variants = [
            FlowKey { src: other, ..key },
            FlowKey { dst: other, ..key },
            FlowKey {
                protocol: Protocol::UDP,
                ..key
            },
            FlowKey { src_port: 1, ..key },
            FlowKey { dst_port: 1, ..key },
            key.reversed(),
        ];
        for variant in variants {
            assert_ne!(variant.hash64(7), key.hash64(7), "{variant}");
        }
        assert_ne!(key.hash64(7), key.hash64(8));
    }

    /// 4096 flows that differ only in one port fall into 64 buckets as evenly as chance allows:
    /// the chi-squared statistic of 63 degrees of freedom exceeds 119 once in 50 000 tries.
    #[test]
    fn neighbouring_ports_spread_evenly() {
        let mut buckets = [0_u32; 64];
        for src_port in 0..4096 {
            let hash = FlowKey { src_port, ..key() }.hash64(42);
            buckets[usize::try_from(hash % 64).unwrap()] += 1;
        }
        let squares = buckets
            .iter()
            .map(|&count| (f64::from(count) - 64.0).powi(2) / 64.0);
        let chi_squared: f64 = squares.sum();
        assert!(chi_squared < 119.0, "{chi_squared}");
    }
}
