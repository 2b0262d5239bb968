//! The headers between the fixed IPv6 header and the transport header (RFC 8200 §4).

use super::{Fragment, IPV6_HEADER, PacketError, Protocol, Upper};
use crate::wire::u16_at;

/// Chains longer than any sane sender makes; RFC 8504 §5.3 lets a node limit them to 8.
pub(super) const MAX_EXTENSIONS: usize = 8;

const HOP_BY_HOP: Protocol = Protocol(0);
const ROUTING: Protocol = Protocol(43);
const FRAGMENT: Protocol = Protocol(44);
const AUTHENTICATION: Protocol = Protocol(51);
const DESTINATION: Protocol = Protocol(60);
const MOBILITY: Protocol = Protocol(135);
const HIP: Protocol = Protocol(139);
const SHIM6: Protocol = Protocol(140);

/// Finds the transport header of an IPv6 packet (RFC 8200 §4).
pub(super) fn walk(bytes: &[u8]) -> Result<Upper, PacketError> {
    let mut upper = Upper {
        protocol: Protocol(bytes[6]),
        offset: IPV6_HEADER,
        fragment: Fragment::default(),
        routed: false,
        authenticated: false,
    };
    for _ in 0..=MAX_EXTENSIONS {
        let rest = bytes.get(upper.offset..).ok_or(PacketError::Truncated)?;
        let Some(length) = extension_len(upper.protocol, rest)? else {
            return Ok(upper);
        };
        match upper.protocol {
            FRAGMENT => {
                let field = u16_at(rest, 2);
                upper.fragment = Fragment {
                    offset: field >> 3,
                    more: field & 1 != 0,
                    id: u32::from(u16_at(rest, 4)) << 16 | u32::from(u16_at(rest, 6)),
                };
            }
            ROUTING => upper.routed |= rest[3] != 0,
            AUTHENTICATION => upper.authenticated = true,
            _ => {}
        }
        upper.protocol = Protocol(rest[0]);
        upper.offset += length;
        if upper.fragment.offset != 0 {
            return Ok(upper);
        }
    }
    Err(PacketError::TooManyExtensions)
}

/// The length of the extension header that `rest` starts with, `None` at the transport header.
fn extension_len(protocol: Protocol, rest: &[u8]) -> Result<Option<usize>, PacketError> {
    let unit = match protocol {
        HOP_BY_HOP | ROUTING | DESTINATION | MOBILITY | HIP | SHIM6 => 8,
        AUTHENTICATION => 4,
        FRAGMENT => 0,
        _ => return Ok(None),
    };
    // All of them take at least 8 bytes: next header, length in units beyond 8, and six more.
    let header = rest.first_chunk::<8>().ok_or(PacketError::Truncated)?;
    let length = 8 + usize::from(header[1]) * unit;
    if length > rest.len() {
        Err(PacketError::Truncated)
    } else {
        Ok(Some(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::IpPacket;
    use crate::ip::tests::v6;

    fn extension(next: Protocol, length: u8) -> Vec<u8> {
        let mut header = vec![0; 8 + usize::from(length) * 8];
        header[..2].copy_from_slice(&[next.0, length]);
        header
    }

    #[test]
    fn ports_are_found_behind_extension_headers() {
        let mut headers = extension(DESTINATION, 1);
        headers.extend(extension(AUTHENTICATION, 0));
        // RFC 4302 §2.2: the length of an authentication header counts 4-byte words beyond two.
        headers.extend([17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        headers.extend([0, 53, 1, 0, 0, 8, 0, 0]);
        let bytes = v6(HOP_BY_HOP, &headers);
        let packet = IpPacket::parse(&bytes).unwrap();

        assert_eq!(packet.protocol(), Protocol::UDP);
        assert_eq!(packet.transport_offset(), 40 + 16 + 8 + 12);
        assert_eq!(packet.ports(), Some((53, 256)));
    }

    #[test]
    fn fragments_are_told_apart() {
        let fragment = |field: u16| {
            let [high, low] = field.to_be_bytes();
            let bytes = [17, 0, high, low, 0, 0, 0, 1, 0, 53, 1, 0, 0, 8, 0, 0];
            v6(FRAGMENT, &bytes)
        };
        let (atomic, first, later) = (fragment(0), fragment(1), fragment(8 | 1));
        let [atomic, first, later] = [&atomic, &first, &later].map(|b| IpPacket::parse(b).unwrap());

        assert!(!atomic.is_fragment());
        assert!(first.is_fragment() && !first.is_later_fragment());
        assert!(later.is_fragment() && later.is_later_fragment());
        assert_eq!(first.ports(), Some((53, 256)));
        assert_eq!(later.ports(), None);
        assert_eq!(later.protocol(), Protocol::UDP);
    }

    #[test]
    fn what_lies_in_a_later_fragment_is_no_header() {
        let bytes = v6(
            FRAGMENT,
            &[DESTINATION.0, 0, 0, 8, 0, 0, 0, 1, 17, 255, 0, 0],
        );
        let packet = IpPacket::parse(&bytes).unwrap();
        assert_eq!(packet.protocol(), DESTINATION);
        assert_eq!(packet.transport_offset(), 48);
    }

    #[test]
    fn an_extension_header_may_not_run_past_the_packet() {
        let bytes = v6(HOP_BY_HOP, &extension(Protocol::UDP, 1)[..8]);
        assert_eq!(IpPacket::parse(&bytes).unwrap_err(), PacketError::Truncated);
        let bytes = v6(FRAGMENT, &[17, 0, 0]);
        assert_eq!(IpPacket::parse(&bytes).unwrap_err(), PacketError::Truncated);
    }

    #[test]
    fn a_chain_of_extension_headers_is_bounded() {
        let chain = |count: usize| {
            let mut headers = extension(DESTINATION, 0).repeat(count - 1);
            headers.extend(extension(Protocol::UDP, 0));
            v6(DESTINATION, &headers)
        };
        assert!(IpPacket::parse(&chain(MAX_EXTENSIONS)).is_ok());
        let error = IpPacket::parse(&chain(MAX_EXTENSIONS + 1)).unwrap_err();
        assert_eq!(error, PacketError::TooManyExtensions);
    }
}
