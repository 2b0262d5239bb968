//! Which addresses are the internet: one table for all that keeps somebody to it.

use std::net::IpAddr;

use ipnet::IpNet;

/// IPv4 space that is not the internet: this network, private, shared, loopback, link-local,
/// IETF protocols, benchmarks, multicast and reserved (RFC 6890).
pub(super) const NOT_PUBLIC_V4: &[&str] = &[
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/3",
];
/// All IPv6 space that is given to anybody as a public address (RFC 4291 §2.4, RFC 6052).
pub(super) const PUBLIC_V6: &[&str] = &["64:ff9b::/96", "2000::/3"];
/// Of that, what a translator (RFC 6052 §3.1) or a 6to4 router (RFC 7526) of the hub's would turn
/// into IPv4 space that is not the internet.
pub(super) const NOT_PUBLIC_V6: &[&str] = &[
    "64:ff9b::/104",
    "64:ff9b::a00:0/104",
    "64:ff9b::6440:0/106",
    "64:ff9b::7f00:0/104",
    "64:ff9b::a9fe:0/112",
    "64:ff9b::ac10:0/108",
    "64:ff9b::c000:0/120",
    "64:ff9b::c0a8:0/112",
    "64:ff9b::c612:0/111",
    "64:ff9b::e000:0/99",
    "2002::/16",
];

/// Whether an address is one of the internet, as the tables of our devices judge it.
pub fn is_public(address: IpAddr) -> bool {
    let lies_in = |space: &[&str]| space.iter().any(|net| parsed(net).contains(&address));
    match address {
        IpAddr::V4(_) => !lies_in(NOT_PUBLIC_V4),
        IpAddr::V6(_) => lies_in(PUBLIC_V6) && !lies_in(NOT_PUBLIC_V6),
    }
}

fn parsed(net: &str) -> IpNet {
    net.parse().expect("the tables above hold prefixes")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_is_special_or_not_given_to_anybody_is_not_the_internet() {
        for address in [
            "198.18.0.1",
            "192.0.0.9",
            "100.64.0.1",
            "240.0.0.1",
            "2002:c0a8:1::1",
            "64:ff9b:1::1",
            "64:ff9b::c0a8:1",
            "fec0::1",
            "fd00::1",
            "4000::1",
            "::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        for address in ["198.17.0.1", "1.1.1.1", "2600::1", "64:ff9b::101:101"] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn ipv6_that_stands_for_ipv4_is_the_internet_only_where_that_is() {
        let nets = |list: &[&str]| -> Vec<IpNet> { list.iter().map(|net| parsed(net)).collect() };
        let translated = nets(NOT_PUBLIC_V4).into_iter().map(|net| {
            let IpNet::V4(net) = net else { panic!("{net}") };
            let bits = 0x64_ff9b_u128 << 96 | u128::from(u32::from(net.addr()));
            let whole = ipnet::Ipv6Net::new(bits.into(), 96 + net.prefix_len());
            IpNet::V6(whole.unwrap())
        });
        let six_to_four = "2002::/16".parse().unwrap();
        let expected: Vec<_> = translated.chain([six_to_four]).collect();
        assert_eq!(
            nets(NOT_PUBLIC_V6).into_iter().collect::<BTreeSet<_>>(),
            expected.into_iter().collect()
        );
    }
}
