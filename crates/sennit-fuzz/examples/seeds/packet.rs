//! Packets as another implementation builds them.

use etherparse::{IpFragOffset, IpNumber, Ipv4Options, PacketBuilder, TcpOptionElement};
use sennit_packet::gso::VirtioNetHdr;

use crate::Seed;
use crate::script::Script;

const V4: ([u8; 4], [u8; 4]) = ([192, 0, 2, 1], [198, 51, 100, 2]);
const V6: ([u8; 16], [u8; 16]) = (
    [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
);
const MEND: u8 = 1;

pub(crate) fn all() -> Vec<Seed> {
    [ip(), segments(), batches(), thin()].concat()
}

fn ip() -> Vec<Seed> {
    let about = |reason: u8, flags: u8, packet: &[u8]| {
        let head = Script::default().u16(1280).bytes(&[reason]).u16(1400);
        head.bytes(&[flags]).bytes(packet).done()
    };
    let v4 = |reason, packet: &[u8]| about(reason, 0, packet);
    let v6 = |reason, packet: &[u8]| about(reason, 2, packet);
    let inputs = [
        ("tcp4-syn", v4(0, &syn(false, 0))),
        ("tcp4-syn-odd-option", v4(0, &syn(false, 1))),
        ("tcp6-syn", v6(0, &syn(true, 0))),
        ("tcp6-syn-odd-option", v6(0, &syn(true, 3))),
        ("udp4", v4(1, &udp(false, 100))),
        ("udp6", v6(1, &udp(true, 100))),
        ("udp6-too-big", v6(0, &udp(true, 1400))),
        ("udp4-ect", v4(2, &with(udp(false, 40), 1, 0b10))),
        ("udp6-ect", v6(2, &with(udp(true, 40), 1, 0x10))),
        ("udp4-last-hop", v4(5, &with(udp(false, 40), 8, 1))),
        ("udp6-last-hop", v6(5, &with(udp(true, 40), 7, 1))),
        ("udp4-options", v4(3, &options())),
        ("udp4-first-fragment", v4(1, &with(udp(false, 40), 6, 0x20))),
        ("udp4-later-fragment", v4(1, &with(udp(false, 40), 7, 5))),
        (
            "udp4-multicast",
            about(1, MEND, &with(udp(false, 40), 16, 224)),
        ),
        (
            "udp4-from-nobody",
            about(1, MEND, &with(udp(false, 40), 12, 0)),
        ),
        (
            "udp6-multicast",
            about(0, MEND | 2, &with(udp(true, 40), 24, 0xff)),
        ),
        ("ping4", v4(5, &ping(false))),
        ("ping6", v6(5, &ping(true))),
        ("icmp4-error", about(1, MEND, &with(ping(false), 20, 3))),
        ("icmp6-error", about(1, MEND | 2, &with(ping(true), 40, 2))),
        (
            "extensions",
            about(4, MEND | 2, &extended(&[0, 43, 60, 51], 17)),
        ),
        (
            "routing",
            about(4, MEND | 2, &with(extended(&[43], 6), 43, 1)),
        ),
        (
            "fragment6",
            about(4, MEND | 2, &with(extended(&[44], 17), 43, 1)),
        ),
        (
            "later-fragment6",
            about(4, MEND | 2, &with(extended(&[44], 17), 43, 8)),
        ),
        ("sctp6", about(1, MEND | 2, &extended(&[], 132))),
        ("empty", v4(0, &[])),
    ];
    inputs
        .into_iter()
        .map(|(name, bytes)| ("packet_ip", name, bytes))
        .collect()
}

fn segments() -> Vec<Seed> {
    let read = |longer: u8, header: VirtioNetHdr, packet: &[u8]| {
        let head = Script::default().bytes(&[MEND, longer]);
        head.bytes(&header.encode()).bytes(packet).done()
    };
    let header = |gso_type, gso_size, csum_start, csum_offset| VirtioNetHdr {
        flags: VirtioNetHdr::NEEDS_CSUM,
        gso_type,
        hdr_len: 0,
        gso_size,
        csum_start,
        csum_offset,
    };
    let (tcp4, tcp6) = (VirtioNetHdr::GSO_TCPV4, VirtioNetHdr::GSO_TCPV6);
    let udp_l4 = VirtioNetHdr::GSO_UDP_L4;
    let ecn = VirtioNetHdr::GSO_ECN;
    let routed = extended(&[43], 17);
    let inputs = [
        (
            "tso4",
            read(0, header(tcp4, 100, 20, 16), &tcp(false, 0x10, 350)),
        ),
        (
            "tso6",
            read(0, header(tcp6, 100, 40, 16), &tcp(true, 0x10, 350)),
        ),
        (
            "tso4-flags",
            read(0, header(tcp4 | ecn, 100, 20, 16), &tcp(false, 0xd9, 350)),
        ),
        (
            "tso6-flags",
            read(0, header(tcp6 | ecn, 100, 40, 16), &tcp(true, 0xd9, 350)),
        ),
        (
            "uso4",
            read(0, header(udp_l4, 100, 20, 6), &udp(false, 350)),
        ),
        ("uso6", read(0, header(udp_l4, 100, 40, 6), &udp(true, 350))),
        ("uso6-routed", read(0, header(udp_l4, 3, 48, 6), &routed)),
        (
            "tso4-64k",
            read(255, header(tcp4, 1400, 20, 16), &tcp(false, 0x18, 100)),
        ),
        (
            "tso4-tiny",
            read(255, header(tcp4, 1, 20, 16), &tcp(false, 0x10, 100)),
        ),
        (
            "tso4-no-payload",
            read(0, header(tcp4, 100, 20, 16), &tcp(false, 0x10, 0)),
        ),
        (
            "partial-tcp4",
            read(0, header(0, 0, 20, 16), &tcp(false, 0x10, 50)),
        ),
        ("partial-udp6", read(0, header(0, 0, 40, 6), &udp(true, 50))),
        (
            "partial-outside",
            read(0, header(0, 0, 40, 900), &udp(true, 50)),
        ),
        (
            "plain",
            read(0, VirtioNetHdr::default(), &tcp(false, 0x10, 50)),
        ),
        (
            "wrong-family",
            read(0, header(tcp6, 100, 20, 16), &tcp(false, 0x10, 350)),
        ),
        (
            "no-size",
            read(0, header(tcp4, 0, 20, 16), &tcp(false, 0x10, 350)),
        ),
    ];
    inputs
        .into_iter()
        .map(|(name, bytes)| ("packet_segments", name, bytes))
        .collect()
}

fn thin() -> Vec<Seed> {
    let about = |flags: u8, first: &[u8], other: &[u8]| {
        let head = Script::default().bytes(&[flags]).u16(160);
        head.bytes(&[0, 0, 0, 9, 0, 0, 0, 1])
            .block(first)
            .bytes(other)
            .done()
    };
    let mut rtp = udp(false, 40);
    rtp[28] = 0x80;
    let [tcp4, tcp6] = [false, true].map(|is_v6| tcp(is_v6, 0x10, 100));
    let carried = [
        0xcf, 1, 0, 9, 0x18, 0, 0, 0, 1, 0, 0, 0, 2, 3, 4, 1, 1, 1, 1, 1,
    ];
    let inputs = [
        ("tcp4", about(9, &tcp4, &with(tcp4.clone(), 5, 1))),
        ("tcp4-partial", about(4, &tcp4, &tcp4)),
        ("tcp4-corrupt", about(0, &tcp4, &with(tcp4.clone(), 60, 1))),
        ("tcp6", about(8, &tcp6, &with(tcp6.clone(), 51, 9))),
        ("udp4", about(8, &udp(false, 100), &udp(false, 40))),
        ("udp6", about(8, &udp(true, 100), &udp(true, 40))),
        ("rtp", about(11, &rtp, &with(rtp.clone(), 31, 1))),
        ("rtp-jump", about(10, &rtp, &with(rtp.clone(), 33, 7))),
        ("ping4", about(8, &ping(false), &ping(false))),
        ("carried", about(1, &tcp4, &carried)),
        ("fields", about(3, &rtp, &[0xff, 0, 1, 2, 3, 4])),
        (
            "extensions",
            about(8, &extended(&[0, 43], 17), &extended(&[0, 43], 17)),
        ),
    ];
    inputs
        .into_iter()
        .map(|(name, bytes)| ("packet_thin", name, bytes))
        .collect()
}

/// A batch in the making.
struct Batch(Script);

impl Batch {
    fn of(tier: u8) -> Self {
        Self(Script::default().bytes(&[tier]))
    }

    fn raw(self, packet: &[u8]) -> Self {
        Self(self.0.bytes(&[0]).block(packet))
    }

    fn next(self, len: u16, flags: u8) -> Self {
        Self(self.0.bytes(&[2]).u16(len).bytes(&[flags]))
    }

    fn train(self, first: &[u8], count: usize, len: u16) -> Self {
        (0..count).fold(self.raw(first), |batch, _| batch.next(len, 0))
    }

    /// Two flows, packet by packet.
    fn woven(self, a: &[u8], b: &[u8], count: usize, len: u16) -> Self {
        let start = self.raw(a).raw(b);
        (0..count).fold(start, |batch, _| Self(batch.0.bytes(&[3])).next(len, 0))
    }

    fn done(self) -> Vec<u8> {
        self.0.done()
    }
}

fn batches() -> Vec<Seed> {
    let (tso, uso) = (1, 2);
    let [tcp4, tcp6] = [false, true].map(|is_v6| tcp(is_v6, 0x10, 100));
    let [udp4, udp6] = [false, true].map(|is_v6| udp(is_v6, 100));
    let mut corrupt = tcp4.clone();
    corrupt[60] ^= 1;
    let fragment = with(tcp4.clone(), 6, 0x20);
    let unidentified = with(with(tcp4.clone(), 6, 0), 10, 0);
    let inputs = [
        ("tcp4", Batch::of(tso).train(&tcp4, 5, 100)),
        ("tcp6", Batch::of(tso).train(&tcp6, 5, 100)),
        ("udp4", Batch::of(uso).train(&udp4, 5, 100)),
        ("udp6", Batch::of(uso).train(&udp6, 5, 100)),
        ("no-offload", Batch::of(0).train(&tcp4, 5, 100)),
        ("udp4-without-uso", Batch::of(tso).train(&udp4, 5, 100)),
        (
            "short-last",
            Batch::of(tso).train(&tcp4, 3, 100).next(40, 0).next(100, 0),
        ),
        (
            "longer",
            Batch::of(tso)
                .train(&tcp4, 3, 100)
                .next(140, 0)
                .next(140, 0),
        ),
        (
            "psh-fin",
            Batch::of(tso)
                .train(&tcp4, 3, 100)
                .next(100, 8)
                .next(100, 1),
        ),
        ("too-many", Batch::of(tso).train(&tcp4, 150, 100)),
        (
            "too-long",
            Batch::of(tso).train(&tcp(false, 0x10, 1460), 60, 1460),
        ),
        (
            "udp-too-long",
            Batch::of(uso).train(&udp(true, 1452), 60, 1452),
        ),
        ("woven-tcp-udp", Batch::of(uso).woven(&tcp4, &udp4, 6, 100)),
        ("woven-v4-v6", Batch::of(uso).woven(&tcp4, &tcp6, 6, 100)),
        (
            "corrupt",
            Batch::of(tso)
                .train(&tcp4, 2, 100)
                .raw(&corrupt)
                .next(100, 0),
        ),
        ("corrupt-first", Batch::of(tso).train(&corrupt, 3, 100)),
        (
            "fragment",
            Batch::of(tso)
                .train(&tcp4, 2, 100)
                .raw(&fragment)
                .raw(&tcp4),
        ),
        ("no-df", Batch::of(tso).train(&unidentified, 3, 100)),
        ("cwr", Batch::of(tso).train(&tcp(false, 0x90, 100), 3, 100)),
        ("ack", Batch::of(tso).train(&tcp(false, 0x10, 0), 3, 0)),
        (
            "garbage",
            Batch::of(uso).raw(&[]).raw(&[0x45]).raw(&[0x60; 40]),
        ),
        (
            "ping",
            Batch::of(uso)
                .raw(&ping(false))
                .raw(&ping(true))
                .raw(&ping(false)),
        ),
    ];
    let seed = |(name, batch): (_, Batch)| ("packet_coalesce", name, batch.done());
    inputs.into_iter().map(seed).collect()
}

fn built<L>(step: etherparse::PacketBuilderStep<L>, payload: usize) -> Vec<u8>
where
    etherparse::PacketBuilderStep<L>: Write,
{
    let mut packet = Vec::new();
    step.write_to(&mut packet, &vec![7; payload]);
    packet
}

/// `etherparse` has a `write` for each kind of last step.
trait Write {
    fn write_to(self, packet: &mut Vec<u8>, payload: &[u8]);
}

macro_rules! last_steps {
    ($($last:ty),*) => {$(
        impl Write for etherparse::PacketBuilderStep<$last> {
            fn write_to(self, packet: &mut Vec<u8>, payload: &[u8]) {
                self.write(packet, payload).expect("a Vec takes all");
            }
        }
    )*};
}

last_steps!(
    etherparse::TcpHeader,
    etherparse::UdpHeader,
    etherparse::Icmpv4Header,
    etherparse::Icmpv6Header
);

fn base(is_v6: bool) -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
    if is_v6 {
        PacketBuilder::ipv6(V6.0, V6.1, 64)
    } else {
        PacketBuilder::ipv4(V4.0, V4.1, 64)
    }
}

fn udp(is_v6: bool, payload: usize) -> Vec<u8> {
    built(base(is_v6).udp(1000, 2000), payload)
}

/// A segment with all `flags` and a timestamp option.
fn tcp(is_v6: bool, flags: u8, payload: usize) -> Vec<u8> {
    let options = [
        TcpOptionElement::Noop,
        TcpOptionElement::Noop,
        TcpOptionElement::Timestamp(1, 2),
    ];
    let step = base(is_v6).tcp(40_000, 443, u32::MAX - 200, 500);
    let step = step.options(&options).expect("they fit");
    let mut packet = built(step, payload);
    let offset = if is_v6 { 40 } else { 20 };
    let (before, after) = (packet[offset + 13], flags);
    packet[offset + 13] = after;
    // RFC 1624: the flags are the low half of a word.
    let checksum = u16::from_be_bytes([packet[offset + 16], packet[offset + 17]]);
    let checksum = sennit_packet::checksum::update(checksum, before.into(), after.into());
    packet[offset + 16..offset + 18].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// A SYN whose MSS option stands behind `padding` bytes.
fn syn(is_v6: bool, padding: usize) -> Vec<u8> {
    let mut options = vec![TcpOptionElement::Noop; padding];
    options.push(TcpOptionElement::MaximumSegmentSize(1460));
    let step = base(is_v6).tcp(40_000, 443, 1, 500).syn();
    built(step.options(&options).expect("they fit"), 0)
}

fn ping(is_v6: bool) -> Vec<u8> {
    if is_v6 {
        built(base(true).icmpv6_echo_request(1, 2), 32)
    } else {
        built(base(false).icmpv4_echo_request(1, 2), 32)
    }
}

fn options() -> Vec<u8> {
    let mut header = etherparse::Ipv4Header::new(0, 64, IpNumber::UDP, V4.0, V4.1).expect("short");
    header.options = Ipv4Options::try_from(&[7, 7, 4, 0, 0, 0, 0, 0][..]).expect("two words");
    header.fragment_offset = IpFragOffset::ZERO;
    let ip = etherparse::IpHeaders::Ipv4(header, Default::default());
    built(PacketBuilder::ip(ip).udp(1000, 2000), 40)
}

/// The packet with one byte changed.
fn with(mut packet: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    packet[at] = value;
    packet
}

/// An IPv6 packet with extension headers of 8 bytes, and 40 bytes for whatever comes last. Lengths
/// and checksums are left to the target to mend.
fn extended(extensions: &[u8], last: u8) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, 0, 64];
    packet.extend(V6.0);
    packet.extend(V6.1);
    let mut next_field = 6;
    for &kind in extensions {
        packet[next_field] = kind;
        next_field = packet.len();
        packet.extend([0; 8]);
    }
    packet[next_field] = last;
    packet.extend([0x50; 40]);
    packet
}
