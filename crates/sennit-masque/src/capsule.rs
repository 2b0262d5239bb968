//! Capsules: messages on the stream of a tunnel, RFC 9297 §3 and RFC 9484 §4.7.
//!
//! [`Capsule::encode`] and the parser apply the same rules, so a capsule that we send is one that
//! we would accept. [`CapsuleReader`] finds capsules in a stream that arrives in pieces, skips the
//! types it does not know without holding them, and holds at most [`MAX_CAPSULE`] bytes of one.

mod address;
mod authority;
mod lan;
mod link;
mod reader;
mod route;

pub use address::{AssignedAddress, RequestedAddress};
pub use authority::NextAuthority;
pub use lan::{MAX_REASON, RefusedPrefix};
pub use link::{LinkInfo, LinkState, MAX_LINK_NAME};
pub use reader::CapsuleReader;
pub use route::IpAddressRange;

use crate::varint;
use bytes::{BufMut, Bytes};

/// The largest capsule held: one full-size IP packet, or some thousands of addresses or routes.
pub const MAX_CAPSULE: usize = 64 << 10;

/// RFC 9297 §3.5
const DATAGRAM: u64 = 0x00;
/// RFC 9484 §4.7.1
const ADDRESS_ASSIGN: u64 = 0x01;
/// RFC 9484 §4.7.2
const ADDRESS_REQUEST: u64 = 0x02;
/// RFC 9484 §4.7.3
const ROUTE_ADVERTISEMENT: u64 = 0x03;
/// Sennit's own, sent only to a peer that agreed. Not of the form 0x29 * N + 0x17, which RFC 9297
/// §5.4 keeps for GREASE.
const LINK: u64 = 0x2b5e_1001;
/// Likewise.
const REFUSED_LAN: u64 = 0x2b5e_1002;
/// Likewise.
const TERMS: u64 = 0x2b5e_1003;
/// Likewise.
const AUTHORITY: u64 = 0x2b5e_1004;
/// The longest text of terms, in bytes: a line for each of many links.
const MAX_TERMS: usize = 4096;

/// One capsule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Capsule {
    /// An HTTP datagram, beginning with its context id; see
    /// [`split_context`](crate::datagram::split_context).
    Datagram(Bytes),
    /// All addresses that the receiver now has.
    AddressAssign(Vec<AssignedAddress>),
    /// Addresses that the sender would like; at least one.
    AddressRequest(Vec<RequestedAddress>),
    /// All ranges that the sender now routes, in the order of [`IpAddressRange`] and disjoint.
    RouteAdvertisement(Vec<IpAddressRange>),
    /// One path of a Sennit tunnel.
    Link(LinkInfo),
    /// All prefixes that an edge announced and its hub does not route.
    RefusedLan(Vec<RefusedPrefix>),
    /// What an edge wants of its hub for the class of this tunnel from now on, as parameters of the
    /// `sennit` header; visible ASCII.
    Terms(String),
    /// Another authority of the hub, which an edge should move to.
    Authority(NextAuthority),
}

/// Why a capsule is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CapsuleError {
    #[error("cut short")]
    Truncated,
    #[error("longer than its fields")]
    TrailingBytes,
    #[error("larger than {MAX_CAPSULE} bytes")]
    TooLarge,
    #[error("an IP version other than 4 and 6")]
    IpVersion,
    #[error("a prefix longer than its address")]
    PrefixLength,
    #[error("bits set beyond the prefix")]
    HostBits,
    #[error("no address is requested")]
    NoAddress,
    #[error("a request id of zero")]
    ZeroRequestId,
    #[error("a request id used twice, or over 62 bits")]
    RequestId,
    #[error("a range that ends before it starts, or in another IP version")]
    RangeReversed,
    #[error("ranges out of order")]
    RangeOrder,
    #[error("ranges that overlap")]
    RangeOverlap,
    #[error("a path id over 62 bits")]
    PathId,
    #[error("an unknown link state")]
    LinkState,
    #[error("a link name that is too long or not plain text")]
    LinkName,
    #[error("terms that are too long or not visible ASCII")]
    Terms,
    #[error("a reason that is too long or not plain text")]
    Reason,
}

impl Capsule {
    /// Appends the capsule to `out`.
    pub fn encode(&self, out: &mut impl BufMut) -> Result<(), CapsuleError> {
        let mut value = Vec::new();
        let kind = self.encode_value(&mut value)?;
        if value.len() > MAX_CAPSULE {
            return Err(CapsuleError::TooLarge);
        }
        varint::put(out, kind);
        varint::put(out, value.len() as u64);
        out.put_slice(&value);
        Ok(())
    }

    fn encode_value(&self, value: &mut Vec<u8>) -> Result<u64, CapsuleError> {
        match self {
            Self::Datagram(datagram) => {
                value.extend_from_slice(datagram);
                Ok(DATAGRAM)
            }
            Self::AddressAssign(addresses) => {
                address::put_assigned(value, addresses)?;
                Ok(ADDRESS_ASSIGN)
            }
            Self::AddressRequest(addresses) => {
                address::put_requested(value, addresses)?;
                Ok(ADDRESS_REQUEST)
            }
            Self::RouteAdvertisement(ranges) => {
                route::put(value, ranges)?;
                Ok(ROUTE_ADVERTISEMENT)
            }
            Self::Link(link) => {
                link.put(value)?;
                Ok(LINK)
            }
            Self::RefusedLan(refused) => {
                lan::put(value, refused)?;
                Ok(REFUSED_LAN)
            }
            Self::Terms(text) => {
                check_terms(text.as_bytes())?;
                value.extend_from_slice(text.as_bytes());
                Ok(TERMS)
            }
            Self::Authority(next) => {
                next.put(value);
                Ok(AUTHORITY)
            }
        }
    }

    /// Reads the value of a capsule of a type that [`is_known`].
    fn decode(kind: u64, value: Bytes) -> Result<Option<Self>, CapsuleError> {
        Ok(Some(match kind {
            DATAGRAM => Self::Datagram(value),
            ADDRESS_ASSIGN => Self::AddressAssign(address::take_assigned(&value)?),
            ADDRESS_REQUEST => Self::AddressRequest(address::take_requested(&value)?),
            ROUTE_ADVERTISEMENT => Self::RouteAdvertisement(route::take(&value)?),
            LINK => Self::Link(LinkInfo::take(&value)?),
            REFUSED_LAN => Self::RefusedLan(lan::take(&value)?),
            TERMS => Self::Terms(check_terms(&value)?.to_owned()),
            AUTHORITY => Self::Authority(NextAuthority::take(&value)?),
            _ => return Ok(None),
        }))
    }
}

const fn is_known(kind: u64) -> bool {
    matches!(
        kind,
        DATAGRAM
            | ADDRESS_ASSIGN
            | ADDRESS_REQUEST
            | ROUTE_ADVERTISEMENT
            | LINK
            | REFUSED_LAN
            | TERMS
            | AUTHORITY
    )
}

fn check_terms(text: &[u8]) -> Result<&str, CapsuleError> {
    let visible = text.iter().all(u8::is_ascii_graphic);
    let text = str::from_utf8(text).map_err(|_| CapsuleError::Terms)?;
    (visible && text.len() <= MAX_TERMS)
        .then_some(text)
        .ok_or(CapsuleError::Terms)
}

/// Takes `N` bytes off the front.
fn take_array<const N: usize>(input: &mut &[u8]) -> Result<[u8; N], CapsuleError> {
    let (array, rest) = input.split_first_chunk().ok_or(CapsuleError::Truncated)?;
    *input = rest;
    Ok(*array)
}

fn take_u8(input: &mut &[u8]) -> Result<u8, CapsuleError> {
    take_array::<1>(input).map(|[byte]| byte)
}

fn take_varint(input: &mut &[u8]) -> Result<u64, CapsuleError> {
    varint::take(input).ok_or(CapsuleError::Truncated)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Capsules that are legal, in all their kinds.
    pub(crate) fn any_capsule() -> impl Strategy<Value = Capsule> {
        prop_oneof![
            vec(any::<u8>(), 0..100).prop_map(|bytes| Capsule::Datagram(bytes.into())),
            vec(address::tests::any_assigned(), 0..5).prop_map(Capsule::AddressAssign),
            address::tests::any_requests().prop_map(Capsule::AddressRequest),
            route::tests::any_ranges().prop_map(Capsule::RouteAdvertisement),
            link::tests::any_link().prop_map(Capsule::Link),
            "[!-~]{0,200}".prop_map(Capsule::Terms),
            vec(lan::tests::any_refused(), 0..5).prop_map(Capsule::RefusedLan),
            authority::tests::any_authority().prop_map(Capsule::Authority),
        ]
    }

    pub(crate) fn encoded(capsule: &Capsule) -> Vec<u8> {
        let mut out = Vec::new();
        capsule.encode(&mut out).expect("legal");
        out
    }

    #[test]
    fn our_capsule_types_are_no_grease() {
        assert!(
            [LINK, REFUSED_LAN, TERMS, AUTHORITY]
                .iter()
                .all(|kind| kind % 0x29 != 0x17)
        );
    }

    #[test]
    fn a_capsule_over_the_limit_is_not_sent() {
        let mut out = Vec::new();
        let capsule = Capsule::Datagram(vec![0; MAX_CAPSULE + 1].into());
        assert_eq!(capsule.encode(&mut out), Err(CapsuleError::TooLarge));
        assert!(out.is_empty());
    }

    proptest! {
        #![proptest_config(crate::seeded())]

        #[test]
        fn any_value_is_a_capsule_that_encodes_to_itself_or_an_error(
            kind in prop_oneof![0u64..5, Just(LINK), Just(REFUSED_LAN), Just(AUTHORITY)],
            value: Vec<u8>,
        ) {
            if let Ok(Some(capsule)) = Capsule::decode(kind, value.clone().into()) {
                let again = encoded(&capsule);
                let decoded = CapsuleReader::default().poll(&mut again.into());
                prop_assert_eq!(decoded, Ok(Some(capsule)));
            }
        }

        #[test]
        fn every_cut_of_a_value_is_refused_or_ends_at_a_field(
            capsule in any_capsule(),
            cut: prop::sample::Index,
        ) {
            let mut value = Vec::new();
            let kind = capsule.encode_value(&mut value).expect("legal");
            value.truncate(cut.index(value.len() + 1));
            if let Ok(Some(shorter)) = Capsule::decode(kind, value.clone().into()) {
                let mut again = Vec::new();
                shorter.encode_value(&mut again).expect("legal");
                prop_assert_eq!(again, value);
            }
        }
    }
}
