//! Inner packets on their way into a tunnel: from what a TUN device delivers (perhaps one 64 KB
//! super-packet) to stand-alone packets of the tunnel's MTU, each with room for its prefix.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration, Instant},
};

use bytes::{BufMut, Bytes, BytesMut};
use sennit_core::{frame::HEADROOM, queue::Queued};
use sennit_packet::{
    FlowKey, IpPacket, Protocol,
    checksum::Progress,
    gso::{Segments, VirtioNetHdr},
    icmp, rewrite,
};
use sennit_prefetch::prefetch;

/// An inner packet on its way to the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The IP packet.
    pub bytes: Bytes,
    /// How much of its checksum is done.
    pub checksum: Progress,
}

impl Packet {
    /// Whether it is one IP packet, with a checksum to complete if it is said to have one.
    pub(crate) fn is_well_formed(&self) -> bool {
        IpPacket::parse(&self.bytes).is_ok_and(|packet| {
            self.checksum == Progress::Whole || packet.checksum_field().is_some()
        })
    }
}

impl AsRef<[u8]> for Packet {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// One whose checksum is whole.
impl From<Bytes> for Packet {
    fn from(bytes: Bytes) -> Self {
        Self {
            bytes,
            checksum: Progress::Whole,
        }
    }
}

/// Why a packet was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Not a well-formed IP packet, or its offload header does not fit it.
    Malformed,
    /// Bigger than the tunnel's MTU; an ICMP error says so.
    TooBig,
}

/// Bytes that a packet has once it is cut, if it is a super-packet: those of its first segment.
pub(crate) fn size_on_wire(header: &VirtioNetHdr, packet: &IpPacket<'_>) -> usize {
    if header.gso_size == 0 {
        return packet.total_len();
    }
    let transport = if packet.protocol() == Protocol::UDP {
        8
    } else {
        20
    };
    let first = packet.transport_offset() + transport + usize::from(header.gso_size);
    first.min(packet.total_len())
}

/// Cuts `packet` into packets of at most `mtu` bytes and gives each to `sink`, with the hash of its
/// flow for this seed. Their checksums are partial if that of `packet` is and the other end takes
/// it: `partial`.
pub(crate) fn segment(
    header: &VirtioNetHdr,
    (packet, seed): (IpPacket<'_>, u64),
    mtu: usize,
    partial: bool,
    mut sink: impl FnMut(Queued),
) -> Result<(), Refused> {
    let mut segments = Segments::of(header, packet).map_err(|_| Refused::Malformed)?;
    let checksum = if partial {
        segments.leave_checksums()
    } else {
        Progress::Whole
    };
    let count = segments.count();
    let longest = segments.segment_len(0).ok_or(Refused::Malformed)?;
    if longest > mtu {
        return Err(Refused::TooBig);
    }
    let flow = FlowKey::of(segments.packet()).hash64(seed) as u32;
    let in_order = segments.packet().tcp_payload_len() > 0;
    // One allocation for the whole super-packet; each segment is a slice of it.
    let place = HEADROOM + longest;
    let mut chunk = BytesMut::with_capacity(count * place);
    for index in 0..count {
        // What the memory was used for before has long left the caches.
        let next = chunk.spare_capacity_mut().get(place..2 * place);
        prefetch(next.unwrap_or_default());
        chunk.put_bytes(0, HEADROOM);
        segments.append(index, |piece| chunk.extend_from_slice(piece));
        let mut buffer = chunk.split();
        if count == 1 {
            rewrite::clamp_mss_in(&mut buffer[HEADROOM..], &packet, mtu as u16);
        }
        sink(Queued {
            buffer,
            flow,
            in_order,
            checksum,
            returned: false,
        });
    }
    Ok(())
}

/// ICMP errors may cost no more than this (RFC 1812 §4.3.2.8 asks for a limit, RFC 4443 §2.4(f)
/// suggests a token bucket).
const ERRORS_PER_SECOND: f64 = 100.0;
const ERROR_BURST: f64 = 20.0;
/// A quoted IPv6 packet fills the minimum MTU (RFC 4443 §2.4(c)).
const ERROR_LEN: usize = 1280;

/// Makes ICMP errors about inner packets, at a bounded rate.
#[derive(Debug)]
pub(crate) struct Errors {
    tokens: f64,
    updated: Instant,
}

impl Errors {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            tokens: ERROR_BURST,
            updated: now,
        }
    }

    /// An error about `packet`, from `source`, if one may be sent.
    pub(crate) fn about(
        &mut self,
        packet: &[u8],
        reason: icmp::Reason,
        source: IpAddr,
        now: Instant,
    ) -> Option<Bytes> {
        let elapsed: Duration = now.saturating_duration_since(self.updated);
        self.updated = now;
        self.tokens = (self.tokens + ERRORS_PER_SECOND * elapsed.as_secs_f64()).min(ERROR_BURST);
        if self.tokens < 1.0 {
            return None;
        }
        let mut out = BytesMut::zeroed(ERROR_LEN);
        let len = icmp::error(packet, reason, source, &mut out)?;
        self.tokens -= 1.0;
        out.truncate(len);
        Some(out.freeze())
    }
}

/// Whether a packet must not leave its link: multicast and link-local (RFC 9484 §8). Kernels send
/// such packets into any interface that is up.
pub(crate) fn stays_local(packet: &IpPacket<'_>) -> bool {
    let local = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    packet.dst().is_multicast() || local(packet.dst()) || local(packet.src())
}

/// Whether somebody far away may send to this address: not "this" host or network, loopback,
/// link-local, multicast, broadcast or reserved space (RFC 6890), in either family, nor IPv6 that
/// a translator or a 6to4 router would turn into such (RFC 6052 §3.1, RFC 3964 §5.1).
pub(crate) fn is_deliverable(destination: IpAddr) -> bool {
    match destination {
        IpAddr::V4(v4) => {
            let [first, ..] = v4.octets();
            !(first == 0 || v4.is_loopback() || v4.is_link_local() || first >= 224)
        }
        IpAddr::V6(v6) => {
            let first_half_is_zero = v6.to_bits() >> 64 == 0;
            let special = v6.is_multicast() || v6.is_unicast_link_local() || first_half_is_zero;
            let inside = embedded(v6).map(IpAddr::V4);
            !(special || inside.is_some_and(|v4| !is_deliverable(v4)))
        }
    }
}

/// The IPv4 address that an IPv6 address stands for, where everybody knows how to find it.
fn embedded(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = v6.to_bits();
    let v4 = match v6.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => bits as u32,
        [0x2002, ..] => (bits >> 80) as u32,
        _ => return None,
    };
    Some(v4.into())
}

/// The address of `ours` that answers for errors about a packet of this family.
pub(crate) fn error_source(
    packet: &IpPacket<'_>,
    mut ours: impl Iterator<Item = IpAddr>,
) -> Option<IpAddr> {
    ours.find(|address| address.is_ipv4() == packet.src().is_ipv4())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever knows the hashes of flows could have his own meet one of another in its queue.
    #[test]
    fn flows_have_other_hashes_at_each_endpoint() {
        let packet = [
            0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 7, 0, 8,
            0, 0,
        ];
        let hash = |seed| {
            let settings = crate::Settings {
                inner_mtu: 1400,
                issuer: crate::Issuer { hub: 0, worker: 0 },
                seed: [seed; 32],
                reset_key: [0; 32],
                rekey: crate::Rekey::default(),
            };
            let packet = (IpPacket::parse(&packet).unwrap(), settings.flow_seed());
            let mut flow = None;
            let sink = |queued: Queued| flow = Some(queued.flow);
            segment(&VirtioNetHdr::default(), packet, 1400, false, sink).unwrap();
            flow
        };
        assert_eq!(hash(1), hash(1));
        assert_ne!(hash(1), hash(2));
    }

    #[test]
    fn nobody_reaches_a_hosts_own_space_by_another_name() {
        let deliverable = |text: &str| is_deliverable(text.parse().unwrap());
        for special in [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "64:ff9b::169.254.169.254",
            "64:ff9b::127.0.0.1",
            "2002:a9fe:a9fe::1",
            "2002:7f00:1::",
            "::1",
            "fe80::1",
        ] {
            assert!(!deliverable(special), "{special}");
        }
        for usual in [
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
            "64:ff9b:1::7f00:1",
            "2001:db8::1",
        ] {
            assert!(deliverable(usual), "{usual}");
        }
    }
}
