//! Addresses assigned and requested, RFC 9484 §4.7.1 and §4.7.2.

use super::{CapsuleError, take_array, take_u8, take_varint};
use crate::prefix::{IpPrefix, PrefixError};
use crate::varint;
use bytes::BufMut;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A prefix from which the receiver may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssignedAddress {
    /// The request that this answers, or zero.
    pub request_id: u64,
    pub prefix: IpPrefix,
}

impl AssignedAddress {
    /// An assignment that answers no request.
    #[must_use]
    pub const fn unsolicited(prefix: IpPrefix) -> Self {
        Self {
            request_id: 0,
            prefix,
        }
    }

    /// The answer "no" to a request (RFC 9484 §4.7.2): the unspecified address, all bits counting.
    #[must_use]
    pub const fn refusal(request: &RequestedAddress) -> Self {
        let unspecified = match request.prefix.addr() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        Self {
            request_id: request.request_id,
            prefix: IpPrefix::host(unspecified),
        }
    }

    /// Whether it says that a request was not granted.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        let prefix = self.prefix;
        prefix.addr().is_unspecified() && prefix == IpPrefix::host(prefix.addr())
    }
}

/// A prefix that the sender would like to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestedAddress {
    /// Not zero, and never used twice by one sender.
    pub request_id: u64,
    /// With the unspecified address: any prefix of this length and IP version.
    pub prefix: IpPrefix,
}

pub(super) fn put_assigned(
    out: &mut Vec<u8>,
    addresses: &[AssignedAddress],
) -> Result<(), CapsuleError> {
    addresses
        .iter()
        .try_for_each(|address| put(out, address.request_id, address.prefix))
}

pub(super) fn take_assigned(mut input: &[u8]) -> Result<Vec<AssignedAddress>, CapsuleError> {
    let mut addresses = Vec::new();
    while !input.is_empty() {
        let (request_id, prefix) = take(&mut input)?;
        addresses.push(AssignedAddress { request_id, prefix });
    }
    Ok(addresses)
}

pub(super) fn put_requested(
    out: &mut Vec<u8>,
    addresses: &[RequestedAddress],
) -> Result<(), CapsuleError> {
    check(addresses)?;
    addresses
        .iter()
        .try_for_each(|address| put(out, address.request_id, address.prefix))
}

pub(super) fn take_requested(mut input: &[u8]) -> Result<Vec<RequestedAddress>, CapsuleError> {
    let mut addresses = Vec::new();
    while !input.is_empty() {
        let (request_id, prefix) = take(&mut input)?;
        addresses.push(RequestedAddress { request_id, prefix });
    }
    check(&addresses)?;
    Ok(addresses)
}

/// RFC 9484 §4.7.2: at least one request, no id of zero, none twice.
fn check(addresses: &[RequestedAddress]) -> Result<(), CapsuleError> {
    if addresses.is_empty() {
        return Err(CapsuleError::NoAddress);
    }
    let mut seen = BTreeSet::new();
    for address in addresses {
        if address.request_id == 0 {
            return Err(CapsuleError::ZeroRequestId);
        }
        if !seen.insert(address.request_id) {
            return Err(CapsuleError::RequestId);
        }
    }
    Ok(())
}

/// Both kinds have one layout: request id, IP version, address, prefix length.
fn put(out: &mut Vec<u8>, request_id: u64, prefix: IpPrefix) -> Result<(), CapsuleError> {
    if request_id > varint::MAX {
        return Err(CapsuleError::RequestId);
    }
    varint::put(out, request_id);
    put_prefix(out, prefix);
    Ok(())
}

/// IP version, address, prefix length.
pub(super) fn put_prefix(out: &mut Vec<u8>, prefix: IpPrefix) {
    out.put_u8(version(prefix.addr()));
    put_addr(out, prefix.addr());
    out.put_u8(prefix.prefix_len());
}

fn take(input: &mut &[u8]) -> Result<(u64, IpPrefix), CapsuleError> {
    let request_id = take_varint(input)?;
    Ok((request_id, take_prefix(input)?))
}

pub(super) fn take_prefix(input: &mut &[u8]) -> Result<IpPrefix, CapsuleError> {
    let version = take_u8(input)?;
    let addr = take_addr(input, version)?;
    IpPrefix::new(addr, take_u8(input)?).map_err(|error| match error {
        PrefixError::Length | PrefixError::Syntax => CapsuleError::PrefixLength,
        PrefixError::HostBits => CapsuleError::HostBits,
    })
}

pub(super) const fn version(addr: IpAddr) -> u8 {
    match addr {
        IpAddr::V4(_) => 4,
        IpAddr::V6(_) => 6,
    }
}

pub(super) fn put_addr(out: &mut Vec<u8>, addr: IpAddr) {
    match addr {
        IpAddr::V4(addr) => out.put_slice(&addr.octets()),
        IpAddr::V6(addr) => out.put_slice(&addr.octets()),
    }
}

pub(super) fn take_addr(input: &mut &[u8], version: u8) -> Result<IpAddr, CapsuleError> {
    match version {
        4 => Ok(IpAddr::from(take_array::<4>(input)?)),
        6 => Ok(IpAddr::from(take_array::<16>(input)?)),
        _ => Err(CapsuleError::IpVersion),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_prefix() -> impl Strategy<Value = IpPrefix> {
        let v4 = (any::<u32>(), 0u8..=32).prop_map(|(bits, len)| {
            let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            IpPrefix::new(Ipv4Addr::from_bits(bits & mask).into(), len).expect("masked")
        });
        let v6 = (any::<u128>(), 0u8..=128).prop_map(|(bits, len)| {
            let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
            IpPrefix::new(Ipv6Addr::from_bits(bits & mask).into(), len).expect("masked")
        });
        prop_oneof![v4, v6]
    }

    pub(crate) fn any_assigned() -> impl Strategy<Value = AssignedAddress> {
        (0..=varint::MAX, any_prefix())
            .prop_map(|(request_id, prefix)| AssignedAddress { request_id, prefix })
    }

    pub(crate) fn any_requests() -> impl Strategy<Value = Vec<RequestedAddress>> {
        prop::collection::btree_map(1..=varint::MAX, any_prefix(), 1..5).prop_map(|requests| {
            requests
                .into_iter()
                .map(|(request_id, prefix)| RequestedAddress { request_id, prefix })
                .collect()
        })
    }

    fn prefix(text: &str) -> IpPrefix {
        text.parse().expect("a prefix")
    }

    #[test]
    fn the_request_and_assignment_of_rfc_9484_8_1_decode() {
        let request = RequestedAddress {
            request_id: 1,
            prefix: prefix("0.0.0.0/32"),
        };
        assert_eq!(take_requested(&[1, 4, 0, 0, 0, 0, 32]), Ok(vec![request]));
        let assigned = AssignedAddress {
            request_id: 1,
            prefix: prefix("192.0.2.11/32"),
        };
        assert_eq!(
            take_assigned(&[1, 4, 192, 0, 2, 11, 32]),
            Ok(vec![assigned])
        );
    }

    #[test]
    fn an_empty_assignment_takes_all_addresses_back() {
        assert_eq!(take_assigned(&[]), Ok(vec![]));
    }

    #[test]
    fn an_empty_request_and_a_bad_request_id_are_refused() {
        assert_eq!(take_requested(&[]), Err(CapsuleError::NoAddress));
        assert_eq!(
            take_requested(&[0, 4, 0, 0, 0, 0, 32]),
            Err(CapsuleError::ZeroRequestId)
        );
        let twice = [[7, 4, 0, 0, 0, 0, 32], [7, 4, 0, 0, 0, 0, 24]].concat();
        assert_eq!(take_requested(&twice), Err(CapsuleError::RequestId));
    }

    #[test]
    fn a_bad_version_length_or_host_bit_is_refused() {
        assert_eq!(
            take_assigned(&[0, 5, 0, 0, 0, 0, 32]),
            Err(CapsuleError::IpVersion)
        );
        assert_eq!(
            take_assigned(&[0, 4, 0, 0, 0, 0, 33]),
            Err(CapsuleError::PrefixLength)
        );
        assert_eq!(
            take_assigned(&[0, 4, 192, 0, 2, 1, 24]),
            Err(CapsuleError::HostBits)
        );
        assert_eq!(
            take_assigned(&[0, 4, 192, 0, 2]),
            Err(CapsuleError::Truncated)
        );
    }

    #[test]
    fn a_refusal_says_which_request_it_refuses() {
        let request = RequestedAddress {
            request_id: 9,
            prefix: prefix("2001:db8::/64"),
        };
        let refusal = AssignedAddress::refusal(&request);
        assert_eq!((refusal.request_id, refusal.prefix), (9, prefix("::/128")));
        assert!(refusal.is_refusal());
        assert!(!AssignedAddress::unsolicited(prefix("0.0.0.0/0")).is_refusal());
        assert!(!AssignedAddress::unsolicited(prefix("10.0.0.1/32")).is_refusal());
    }

    #[test]
    fn a_request_id_that_no_varint_holds_is_not_sent() {
        let request = RequestedAddress {
            request_id: varint::MAX + 1,
            prefix: prefix("::/128"),
        };
        assert_eq!(
            put_requested(&mut Vec::new(), &[request]),
            Err(CapsuleError::RequestId)
        );
    }
}
