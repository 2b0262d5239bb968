//! `sennit-packet`: what a TUN device or a peer hands over as IP packets.

mod batch;
mod mend;
mod thin;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sennit_packet::coalesce::{Coalescer, MAX_SEGMENTS, Write};
use sennit_packet::gso::{Segments, Tier, VirtioNetHdr};
use sennit_packet::icmp::{self, Reason};
use sennit_packet::{
    FlowKey, IpPacket, Protocol, TcpFlags, Version, rewrite, verify_header, verify_transport,
};

use crate::input::Input;

pub(crate) use mend::mend;
pub use thin::thin;

/// More segments than this of one super-packet are only sampled.
const CHECKED_SEGMENTS: usize = 512;

/// One packet: its view, what a router does to it, and the ICMP error about it.
///
/// Script: MTU (2), reason (1), room for the error (2), flags (1: mend the packet, 2: an IPv6
/// router), then the packet.
pub fn ip(data: &[u8]) {
    let mut input = Input::new(data);
    let (mtu, reason, room, flags) = (input.u16(), input.byte(), input.u16(), input.byte());
    let mut bytes = input.rest().to_vec();
    if flags & 1 != 0 {
        mend(&mut bytes);
    }
    check_view(&bytes);
    check_rewriting(&bytes, mtu);
    let router = if flags & 2 == 0 {
        IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1))
    } else {
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))
    };
    check_icmp(&bytes, reason_of(reason, mtu), router, room.into());
}

fn check_view(bytes: &[u8]) {
    let Ok(packet) = IpPacket::parse(bytes) else {
        assert!(!verify_header(bytes) && !verify_transport(bytes));
        return;
    };
    assert_eq!(packet.total_len(), bytes.len());
    assert_eq!(packet.bytes(), bytes);
    assert_eq!(
        packet.transport(),
        &bytes[packet.transport_offset()..],
        "the transport header is where it is said to be"
    );
    let is_v4 = packet.version() == Version::V4;
    assert_eq!(
        (packet.src().is_ipv4(), packet.dst().is_ipv4()),
        (is_v4, is_v4)
    );
    assert!(packet.dscp() < 64 && packet.ecn() < 4);
    assert!(packet.is_fragment() || !packet.is_later_fragment());
    if let Some((source, _)) = packet.ports() {
        assert_eq!(packet.transport()[..2], source.to_be_bytes());
        assert!(!packet.is_later_fragment());
    }
    if packet.tcp_flags().is_some() {
        assert_eq!(packet.protocol(), Protocol::TCP);
        assert!(packet.transport().len() >= 20);
    }
    let flow = FlowKey::of(&packet);
    assert_eq!(flow.reversed().reversed(), flow);
    assert_eq!(flow.hash64(7), flow.reversed().reversed().hash64(7));
    assert!(flow.to_string().starts_with(&packet.protocol().to_string()));
}

/// Rewriting changes what it says, and leaves right checksums right and wrong ones wrong.
fn check_rewriting(bytes: &[u8], mtu: u16) {
    let mut hop_less = bytes.to_vec();
    if rewrite::decrement_ttl(&mut hop_less).is_ok() {
        assert_eq!(parse(&hop_less).ttl(), parse(bytes).ttl() - 1);
        same_verdicts(bytes, &hop_less);
    } else {
        assert_eq!(hop_less, bytes);
    }
    let mut marked = bytes.to_vec();
    if rewrite::set_ecn_ce(&mut marked) {
        assert_eq!(parse(&marked).ecn(), 0b11);
        assert_eq!(parse(&marked).dscp(), parse(bytes).dscp());
        same_verdicts(bytes, &marked);
    } else {
        assert_eq!(marked, bytes);
    }
    let mut clamped = bytes.to_vec();
    if rewrite::clamp_mss(&mut clamped, mtu) {
        same_verdicts(bytes, &clamped);
        assert!(!rewrite::clamp_mss(&mut clamped, mtu), "clamped once");
    } else {
        assert_eq!(clamped, bytes);
    }
}

fn same_verdicts(before: &[u8], after: &[u8]) {
    let verdicts = |bytes| (verify_header(bytes), verify_transport(bytes));
    assert_eq!(verdicts(before), verdicts(after));
}

fn reason_of(byte: u8, mtu: u16) -> Reason {
    match byte % 6 {
        0 => Reason::TooBig { mtu: mtu.into() },
        1 => Reason::NoRoute,
        2 => Reason::HostUnreachable,
        3 => Reason::Prohibited,
        4 => Reason::SourcePolicy,
        _ => Reason::TimeExceeded,
    }
}

fn check_icmp(bytes: &[u8], reason: Reason, router: IpAddr, room: usize) {
    let mut out = vec![0xaa; room];
    let Some(length) = icmp::error(bytes, reason, router, &mut out) else {
        assert!(out.iter().all(|&byte| byte == 0xaa));
        return;
    };
    let (answer, behind) = out.split_at(length);
    assert!(behind.iter().all(|&byte| byte == 0xaa));
    assert!(length <= if router.is_ipv4() { 576 } else { 1280 });
    let (original, packet) = (parse(bytes), parse(answer));
    assert_eq!((packet.src(), packet.dst()), (router, original.src()));
    assert!(verify_header(answer) && verify_transport(answer));
    assert!(
        bytes.starts_with(&packet.transport()[8..]),
        "quotes the packet"
    );
    let mut second = vec![0; 1500];
    let about_error = icmp::error(answer, Reason::NoRoute, router, &mut second);
    assert_eq!(about_error, None, "no error answers an error");
}

fn parse(bytes: &[u8]) -> IpPacket<'_> {
    IpPacket::parse(bytes).expect("a packet stays a packet")
}

/// A read from a TUN device: what it is cut into, and that joined again.
///
/// Script: flags (1: mend the packet), bytes to append in units of 256 (1), the virtio header (10),
/// then the packet.
pub fn segments(data: &[u8]) {
    let mut input = Input::new(data);
    let (flags, longer) = (input.byte(), usize::from(input.byte()) * 256);
    let header = VirtioNetHdr::decode(&input.array::<{ VirtioNetHdr::LEN }>());
    let header = header.expect("it has ten bytes");
    assert_eq!(VirtioNetHdr::decode(&header.encode()), Some(header));
    let mut bytes = input.rest().to_vec();
    bytes.resize((bytes.len() + longer).min(65_535), flags);
    if flags & 1 != 0 {
        mend(&mut bytes);
    }
    let Ok(segments) = Segments::new(&header, &bytes) else {
        return;
    };
    check_bounds(&segments);
    if header.gso_type & !VirtioNetHdr::GSO_ECN == VirtioNetHdr::GSO_NONE {
        check_single(&header, &segments);
    } else {
        check_split(&header, &segments);
    }
}

fn check_bounds(segments: &Segments<'_>) {
    let count = segments.count();
    assert!(count >= 1);
    let longest = segments.segment_len(0).expect("there is a first");
    let last = segments.segment_len(count - 1).expect("there is a last");
    assert!(last <= longest);
    let mut out = vec![0xaa; longest + 1];
    assert_eq!(segments.segment_len(count), None);
    assert_eq!(segments.write(count, &mut out), None);
    assert_eq!(segments.write(0, &mut out[..longest - 1]), None);
    assert!(out.iter().all(|&byte| byte == 0xaa), "nothing was written");
    assert_eq!(segments.write(0, &mut out), Some(longest));
    assert_eq!(out[longest], 0xaa, "nothing was written behind");
}

fn written(segments: &Segments<'_>, index: usize) -> Vec<u8> {
    let length = segments.segment_len(index).expect("there is such a one");
    let mut out = vec![0; length];
    assert_eq!(segments.write(index, &mut out), Some(length));
    out
}

/// Of a single packet at most the checksum changes.
fn check_single(header: &VirtioNetHdr, segments: &Segments<'_>) {
    let (bytes, out) = (segments.packet().bytes(), written(segments, 0));
    assert_eq!(segments.count(), 1);
    if header.flags & VirtioNetHdr::NEEDS_CSUM == 0 {
        assert_eq!(segments.as_is(), Some(bytes));
        assert_eq!(out, bytes);
        return;
    }
    let field = usize::from(header.csum_start) + usize::from(header.csum_offset);
    assert_eq!(out[..field], bytes[..field]);
    assert_eq!(out[field + 2..], bytes[field + 2..]);
}

/// Segments are whole packets that share the headers of the super-packet and its payload.
fn check_split(header: &VirtioNetHdr, segments: &Segments<'_>) {
    let whole = segments.packet();
    let at = whole.transport_offset();
    let is_tcp = whole.protocol() == Protocol::TCP;
    let header_len = at + if is_tcp { tcp_len(whole) } else { 8 };
    let payload = &whole.bytes()[header_len..];
    let size = usize::from(header.gso_size);
    let count = segments.count();
    assert_eq!(count, payload.len().div_ceil(size).max(1));
    for index in sample(count) {
        let out = written(segments, index);
        let segment = parse(&out);
        assert!(verify_header(&out) && verify_transport(&out));
        assert_eq!(FlowKey::of(&segment), FlowKey::of(whole));
        assert_eq!(
            (segment.ttl(), segment.dscp(), segment.ecn()),
            (whole.ttl(), whole.dscp(), whole.ecn())
        );
        let end = payload.len().min((index + 1) * size);
        assert_eq!(out[header_len..], payload[index * size..end]);
        if is_tcp {
            check_tcp(
                whole,
                &segment,
                index * size,
                (index == 0, index + 1 == count),
            );
        }
    }
    if count <= CHECKED_SEGMENTS {
        check_joined_again((0..count).map(|index| written(segments, index)).collect());
    }
}

fn tcp_len(packet: &IpPacket<'_>) -> usize {
    usize::from(packet.transport()[12] >> 4) * 4
}

fn sample(count: usize) -> Vec<usize> {
    if count <= CHECKED_SEGMENTS {
        (0..count).collect()
    } else {
        vec![0, 1, count / 2, count - 2, count - 1]
    }
}

fn check_tcp(
    whole: &IpPacket<'_>,
    segment: &IpPacket<'_>,
    offset: usize,
    (is_first, is_last): (bool, bool),
) {
    let sequence = |packet: &IpPacket<'_>| {
        u32::from_be_bytes(
            *packet.transport()[4..]
                .first_chunk()
                .expect("a whole header"),
        )
    };
    let offset = u32::try_from(offset).expect("a packet is shorter than 64 KiB");
    assert_eq!(sequence(segment), sequence(whole).wrapping_add(offset));
    let flags = |packet: &IpPacket<'_>| packet.tcp_flags().expect("it is TCP");
    let mut expected = flags(whole);
    if !is_first {
        expected = expected & !TcpFlags::CWR;
    }
    if !is_last {
        expected = expected & !(TcpFlags::FIN | TcpFlags::PSH);
    }
    assert_eq!(flags(segment), expected);
}

/// Whatever the far end joins of the segments, it stands for just them.
fn check_joined_again(segments: Vec<Vec<u8>>) {
    let mut coalescer = Coalescer::new(Tier::TsoUso);
    let left: Vec<Vec<u8>> = coalescer
        .coalesce(&segments)
        .flat_map(|write| cut(&write))
        .collect();
    let meaning = |packets: Vec<Vec<u8>>| packets.iter().map(|p| meaning(p)).collect::<Vec<_>>();
    assert_eq!(meaning(left), meaning(segments));
}

/// A batch of packets for a TUN device, joined as its tier allows.
///
/// Script: tier (1), then packets as [`batch`] has them.
pub fn coalesce(data: &[u8]) {
    let mut input = Input::new(data);
    let tiers = [Tier::None, Tier::Tso, Tier::TsoUso];
    let tier = tiers[usize::from(input.byte()) % tiers.len()];
    let batch = batch::read(&mut input);
    let mut coalescer = Coalescer::new(tier);
    let first = check_batch(&mut coalescer, tier, &batch);
    let again = check_batch(&mut coalescer, tier, &batch);
    assert_eq!(first, again, "a batch leaves no trace in the next");
}

/// Checks the writes of a batch, and returns for each packet that left its place in the batch.
fn check_batch(coalescer: &mut Coalescer, tier: Tier, batch: &[Vec<u8>]) -> Vec<usize> {
    let writes: Vec<Write<'_, Vec<u8>>> = coalescer.coalesce(batch).collect();
    let packets: usize = writes.iter().map(Write::packets).sum();
    assert_eq!(packets, batch.len(), "no packet is lost or doubled");
    let mut order = Vec::new();
    for write in &writes {
        let members = members(write, batch);
        check_write(write, &members, tier, batch);
        order.extend(members);
    }
    check_order(&order, batch);
    order
}

/// The packets of a write, found by where its payload slices lie; empty ones lie nowhere.
fn members(write: &Write<'_, Vec<u8>>, batch: &[Vec<u8>]) -> Vec<usize> {
    let place = |piece: &[u8]| {
        let at = piece.as_ptr();
        batch
            .iter()
            .position(|packet| packet.as_ptr_range().contains(&at))
    };
    write.payloads().filter_map(place).collect()
}

fn check_write(write: &Write<'_, Vec<u8>>, members: &[usize], tier: Tier, batch: &[Vec<u8>]) {
    let mut bytes = vec![0; write.total_len()];
    assert_eq!(write.copy_to(&mut bytes), Some(bytes.len()));
    if write.packets() == 1 {
        assert_eq!(*write.header(), VirtioNetHdr::default());
        assert!(members.iter().all(|&index| batch[index] == bytes));
        return;
    }
    assert_eq!(members.len(), write.packets());
    assert!(write.packets() <= MAX_SEGMENTS && bytes.len() <= 65_535);
    let least = match parse(&bytes).protocol() {
        Protocol::TCP => Tier::Tso,
        _ => Tier::TsoUso,
    };
    assert!(tier >= least, "the device takes this kind");
    let pushes = |packet: &[u8]| {
        let flags = parse(packet).tcp_flags();
        flags.is_some_and(|flags| flags.intersects(TcpFlags::PSH))
    };
    let pushed = members.iter().any(|&index| pushes(&batch[index]));
    for (place, (&index, packet)) in (1..).zip(members.iter().zip(cut(write))) {
        let original = &batch[index];
        assert!(verify_header(original) && verify_transport(original));
        assert!(verify_transport(&packet));
        assert_eq!(pushes(&packet), pushed && place == members.len());
        assert_eq!(unpushed(&packet), unpushed(original));
    }
}

/// What a packet means apart from PSH and the checksum that covers it.
fn unpushed(packet: &[u8]) -> Vec<u8> {
    let mut bytes = meaning(packet);
    let parsed = parse(packet);
    if parsed.protocol() == Protocol::TCP {
        let at = parsed.transport_offset();
        bytes[at + 13] &= !TcpFlags::PSH.0;
        bytes[at + 16..at + 18].fill(0);
    }
    bytes
}

/// The packets that a kernel makes of a write.
fn cut(write: &Write<'_, Vec<u8>>) -> Vec<Vec<u8>> {
    let mut bytes = vec![0; write.total_len()];
    write
        .copy_to(&mut bytes)
        .expect("it has the room it asks for");
    if write.packets() == 1 {
        return vec![bytes];
    }
    let segments = Segments::new(write.header(), &bytes).expect("what is joined can be cut");
    assert_eq!(segments.count(), write.packets());
    (0..segments.count())
        .map(|index| written(&segments, index))
        .collect()
}

/// The packet without the identification that means nothing with DF set (RFC 6864 §4.1), and the
/// checksum that covers it.
fn meaning(packet: &[u8]) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    let is_unidentified = IpPacket::parse(packet).is_ok_and(|packet| {
        packet.version() == Version::V4 && packet.dont_fragment() && !packet.is_fragment()
    });
    if is_unidentified {
        bytes[4..6].fill(0);
        bytes[10..12].fill(0);
    }
    bytes
}

/// Packets that may belong to one flow leave in the order they came in.
fn check_order(order: &[usize], batch: &[Vec<u8>]) {
    let parsed: Vec<_> = order
        .iter()
        .filter_map(|&index| Some((index, IpPacket::parse(&batch[index]).ok()?)))
        .collect();
    for (place, (index, packet)) in parsed.iter().enumerate() {
        for (later, other) in &parsed[place + 1..] {
            assert!(index < later || !may_be_one_flow(packet, other));
        }
    }
}

/// A fragment does not tell its ports.
fn may_be_one_flow(a: &IpPacket<'_>, b: &IpPacket<'_>) -> bool {
    let key = |packet: &IpPacket<'_>| (packet.src(), packet.dst(), packet.protocol());
    let ports = a.is_fragment() || b.is_fragment() || a.ports() == b.ports();
    key(a) == key(b) && ports
}
