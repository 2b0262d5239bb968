//! Routes advertised, RFC 9484 §4.7.3.

use super::address::{put_addr, take_addr, version};
use super::{CapsuleError, take_u8};
use crate::prefix::IpPrefix;
use bytes::BufMut;
use std::cmp::Ordering;
use std::net::IpAddr;

/// A range of addresses that the sender routes. Ranges sort into the order in which RFC 9484 wants
/// them: by IP version, then protocol, then address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpAddressRange {
    start: IpAddr,
    end: IpAddr,
    protocol: u8,
}

impl IpAddressRange {
    /// The range from `start` to `end`, both included, for one IP `protocol`, or zero for all.
    pub fn new(start: IpAddr, end: IpAddr, protocol: u8) -> Result<Self, CapsuleError> {
        if start > end || start.is_ipv4() != end.is_ipv4() {
            return Err(CapsuleError::RangeReversed);
        }
        Ok(Self {
            start,
            end,
            protocol,
        })
    }

    /// All addresses of a prefix, for all protocols.
    #[must_use]
    pub fn of_prefix(prefix: &IpPrefix) -> Self {
        let (start, end) = prefix.range();
        Self {
            start,
            end,
            protocol: 0,
        }
    }

    #[must_use]
    pub const fn start(&self) -> IpAddr {
        self.start
    }

    /// The last address.
    #[must_use]
    pub const fn end(&self) -> IpAddr {
        self.end
    }

    /// The one IP protocol it is for; zero means all.
    #[must_use]
    pub const fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Whether both have addresses in common. Never true across IP versions, which `IpAddr` orders
    /// apart.
    fn overlaps(&self, other: &Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    fn order(&self) -> (bool, u8, IpAddr, IpAddr) {
        (self.start.is_ipv6(), self.protocol, self.start, self.end)
    }
}

impl Ord for IpAddressRange {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for IpAddressRange {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

pub(super) fn put(out: &mut Vec<u8>, ranges: &[IpAddressRange]) -> Result<(), CapsuleError> {
    check(ranges)?;
    for range in ranges {
        out.put_u8(version(range.start));
        put_addr(out, range.start);
        put_addr(out, range.end);
        out.put_u8(range.protocol);
    }
    Ok(())
}

pub(super) fn take(mut input: &[u8]) -> Result<Vec<IpAddressRange>, CapsuleError> {
    let mut ranges = Vec::new();
    while !input.is_empty() {
        let version = take_u8(&mut input)?;
        let start = take_addr(&mut input, version)?;
        let end = take_addr(&mut input, version)?;
        ranges.push(IpAddressRange::new(start, end, take_u8(&mut input)?)?);
    }
    check(&ranges)?;
    Ok(ranges)
}

/// RFC 9484 §4.7.3: in order, and nothing twice, also not through "all protocols".
fn check(ranges: &[IpAddressRange]) -> Result<(), CapsuleError> {
    for (a, b) in ranges.iter().zip(ranges.iter().skip(1)) {
        let same = (a.start.is_ipv6(), a.protocol) == (b.start.is_ipv6(), b.protocol);
        if same && a.overlaps(b) {
            return Err(CapsuleError::RangeOverlap);
        }
        if a > b {
            return Err(CapsuleError::RangeOrder);
        }
    }
    check_all_protocols(ranges)
}

/// Ranges for all protocols are sorted and disjoint by now, so only the last one that starts
/// before the end of a range can overlap it.
fn check_all_protocols(ranges: &[IpAddressRange]) -> Result<(), CapsuleError> {
    let (all, single): (Vec<&IpAddressRange>, Vec<_>) =
        ranges.iter().partition(|range| range.protocol == 0);
    let hidden = |range: &&IpAddressRange| {
        let before = all.partition_point(|other| other.start <= range.end);
        before
            .checked_sub(1)
            .is_some_and(|last| all[last].overlaps(range))
    };
    match single.into_iter().find(hidden) {
        Some(_) => Err(CapsuleError::RangeOverlap),
        None => Ok(()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    /// Few addresses and protocols, so that neighbours meet and overlap.
    fn any_range() -> impl Strategy<Value = IpAddressRange> {
        (any::<bool>(), 0u8..40, 0u8..6, 0u8..3).prop_map(|(v6, start, len, protocol)| {
            let addr = |low: u8| match v6 {
                true => IpAddr::from(Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(low))),
                false => IpAddr::from(Ipv4Addr::new(192, 0, 2, low)),
            };
            IpAddressRange::new(addr(start), addr(start + len), protocol).expect("start <= end")
        })
    }

    /// What the RFC says, pair by pair.
    fn is_legal(ranges: &[IpAddressRange]) -> bool {
        let pairs = ranges
            .iter()
            .enumerate()
            .flat_map(|(index, a)| ranges[index + 1..].iter().map(move |b| (a, b)));
        pairs.into_iter().all(|(a, b)| {
            let (version_a, version_b) = (version(a.start), version(b.start));
            let ordered = version_a < version_b
                || version_a == version_b && a.protocol < b.protocol
                || version_a == version_b && a.protocol == b.protocol && a.end < b.start;
            let all = a.protocol == 0 || b.protocol == 0;
            ordered && !(all && version_a == version_b && a.start <= b.end && b.start <= a.end)
        })
    }

    pub(crate) fn any_ranges() -> impl Strategy<Value = Vec<IpAddressRange>> {
        prop::collection::vec(any_range(), 0..8).prop_map(|mut ranges| {
            ranges.sort();
            ranges.into_iter().fold(Vec::new(), |mut legal, range| {
                legal.push(range);
                if !is_legal(&legal) {
                    legal.pop();
                }
                legal
            })
        })
    }

    fn range(start: [u8; 4], end: [u8; 4], protocol: u8) -> Vec<u8> {
        [&[4][..], &start, &end, &[protocol]].concat()
    }

    #[test]
    fn the_full_tunnel_route_of_rfc_9484_8_1_decodes() {
        let all: IpPrefix = "0.0.0.0/0".parse().expect("a prefix");
        let wire = range([0; 4], [255; 4], 0);
        assert_eq!(take(&wire), Ok(vec![IpAddressRange::of_prefix(&all)]));
    }

    #[test]
    fn an_empty_advertisement_withdraws_all_routes() {
        assert_eq!(take(&[]), Ok(vec![]));
    }

    #[test]
    fn a_reversed_range_is_refused() {
        let wire = range([10, 0, 0, 2], [10, 0, 0, 1], 0);
        assert_eq!(take(&wire), Err(CapsuleError::RangeReversed));
    }

    #[test]
    fn ranges_out_of_order_are_refused() {
        let (low, high) = (
            range([10, 0, 0, 0], [10, 0, 0, 9], 6),
            range([10, 0, 1, 0], [10, 0, 1, 9], 6),
        );
        assert_eq!(
            take(&[high, low.clone()].concat()),
            Err(CapsuleError::RangeOrder)
        );
        let other = range([10, 9, 0, 0], [10, 9, 0, 9], 1);
        assert_eq!(
            take(&[low.clone(), other].concat()),
            Err(CapsuleError::RangeOrder)
        );
        let v6 = [&[6][..], &[0; 16], &[0; 16], &[0]].concat();
        assert_eq!(take(&[v6, low].concat()), Err(CapsuleError::RangeOrder));
    }

    #[test]
    fn ranges_that_overlap_are_refused_also_through_all_protocols() {
        let (a, b) = (
            range([10, 0, 0, 0], [10, 0, 0, 9], 0),
            range([10, 0, 0, 9], [10, 0, 1, 0], 0),
        );
        assert_eq!(
            take(&[a.clone(), b].concat()),
            Err(CapsuleError::RangeOverlap)
        );
        let tcp = range([10, 0, 0, 3], [10, 0, 0, 4], 6);
        assert_eq!(take(&[a, tcp].concat()), Err(CapsuleError::RangeOverlap));
    }

    #[test]
    fn a_range_cut_short_or_of_a_bad_version_is_refused() {
        let whole = range([10, 0, 0, 0], [10, 0, 0, 9], 6);
        for len in 1..whole.len() {
            assert_eq!(take(&whole[..len]), Err(CapsuleError::Truncated), "{len}");
        }
        assert_eq!(take(&[5]), Err(CapsuleError::IpVersion));
    }

    proptest! {
        #![proptest_config(crate::seeded())]

        #[test]
        fn what_is_accepted_is_what_the_rfc_allows(
            mut ranges in prop::collection::vec(any_range(), 0..5),
            sorted: bool,
        ) {
            if sorted {
                ranges.sort();
            }
            prop_assert_eq!(check(&ranges).is_ok(), is_legal(&ranges));
        }
    }
}
