//! What the kernel says of a run of datagrams.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    time::Duration,
};

use noq_udp::{EcnCodepoint, RecvMeta};

use super::control::{int, messages};
use crate::sys::{Envelope, TIMESTAMP};

/// Reads an envelope; `None` if the sender has no IP address.
pub(super) fn meta(envelope: &Envelope) -> Option<RecvMeta> {
    let mut meta = RecvMeta::default();
    meta.addr = sender(envelope.name())?;
    (meta.len, meta.stride) = (envelope.len(), envelope.len());
    for (level, kind, value) in messages(envelope.control()) {
        read(level, kind, value, &mut meta);
    }
    Some(meta)
}

/// Takes one control message into account, if it is one of ours and whole.
fn read(level: libc::c_int, kind: libc::c_int, value: &[u8], meta: &mut RecvMeta) -> Option<()> {
    match (level, kind) {
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            // One byte or an int, of which the lower two bits count.
            let bits = int(value).map_or_else(|| value.first().copied(), |bits| Some(bits as u8));
            meta.ecn = EcnCodepoint::from_bits(bits?);
        }
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            // struct in_pktinfo: interface index, address of ours, destination of the packet
            let address: [u8; 4] = *value.get(8..)?.first_chunk()?;
            meta.dst_ip = Some(IpAddr::V4(Ipv4Addr::from(address)));
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            // struct in6_pktinfo: destination, interface index
            let address: [u8; 16] = *value.first_chunk()?;
            meta.dst_ip = Some(IpAddr::V6(Ipv6Addr::from(address)));
        }
        (libc::SOL_UDP, libc::UDP_GRO) => meta.stride = usize::try_from(int(value)?).ok()?,
        (libc::SOL_SOCKET, TIMESTAMP) => {
            let (seconds, rest) = value.split_first_chunk()?;
            let seconds = u64::try_from(i64::from_ne_bytes(*seconds)).ok()?;
            let nanos = u32::try_from(i64::from_ne_bytes(*rest.first_chunk()?)).ok()?;
            meta.timestamp = Some(Duration::new(seconds, nanos));
        }
        _ => {}
    }
    Some(())
}

/// A `struct sockaddr_in` or `sockaddr_in6`.
fn sender(name: &[u8; size_of::<libc::sockaddr_in6>()]) -> Option<SocketAddr> {
    let family = libc::sa_family_t::from_ne_bytes(*name.first_chunk()?);
    let port = u16::from_be_bytes(*name.get(2..)?.first_chunk()?);
    let after = name.get(4..)?;
    match libc::c_int::from(family) {
        libc::AF_INET => {
            let address: [u8; 4] = *after.first_chunk()?;
            Some(SocketAddr::from((address, port)))
        }
        libc::AF_INET6 => {
            let flow = u32::from_ne_bytes(*after.first_chunk()?);
            let address: [u8; 16] = *after.get(4..)?.first_chunk()?;
            let scope = u32::from_ne_bytes(*after.get(20..)?.first_chunk()?);
            Some(SocketAddrV6::new(address.into(), port, flow, scope).into())
        }
        _ => None,
    }
}
