//! Address prefixes in CIDR notation.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// An IPv4 or IPv6 prefix whose host bits are zero. A bare address is a prefix of full length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix(IpNet);

/// Why a text or a pair of address and length is not a [`Prefix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    #[error("expected a prefix such as 10.9.0.0/16 or 2001:db8::/32")]
    Syntax,
    #[error("a prefix of this family is at most {max} bits long")]
    TooLong { max: u8 },
    #[error("{given} has bits set beyond its length; the prefix is {corrected}")]
    HostBits { given: IpNet, corrected: Prefix },
}

impl Prefix {
    /// A prefix of `bits` bits; the rest of `address` must be zero.
    pub fn new(address: IpAddr, bits: u8) -> Result<Self, PrefixError> {
        let max = IpNet::from(address).max_prefix_len();
        let given = IpNet::new(address, bits).map_err(|_| PrefixError::TooLong { max })?;
        Self::try_from(given)
    }

    /// The prefix of `bits` bits that `address` lies in; `bits` is cut to what the family has.
    pub fn around(address: IpAddr, bits: u8) -> Self {
        let bits = bits.min(IpNet::from(address).max_prefix_len());
        Self(IpNet::new_assert(address, bits).trunc())
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }

    /// Whether any address lies in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.0.contains(&other.0) || other.0.contains(&self.0)
    }

    /// The first address.
    pub fn first(&self) -> IpAddr {
        self.0.network()
    }

    /// The last address.
    pub fn last(&self) -> IpAddr {
        self.0.broadcast()
    }

    /// The prefix length in bits.
    pub fn bits(&self) -> u8 {
        self.0.prefix_len()
    }

    pub fn is_ipv4(&self) -> bool {
        self.first().is_ipv4()
    }

    /// This prefix as `ipnet` has it, with that crate's arithmetic.
    pub fn net(&self) -> IpNet {
        self.0
    }
}

impl TryFrom<IpNet> for Prefix {
    type Error = PrefixError;

    fn try_from(given: IpNet) -> Result<Self, PrefixError> {
        let corrected = Self(given.trunc());
        if corrected.0 == given {
            Ok(corrected)
        } else {
            Err(PrefixError::HostBits { given, corrected })
        }
    }
}

impl From<IpAddr> for Prefix {
    fn from(address: IpAddr) -> Self {
        Self(address.into())
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let Some((address, bits)) = text.split_once('/') else {
            let address: IpAddr = text.parse().map_err(|_| PrefixError::Syntax)?;
            return Ok(address.into());
        };
        let address = address.parse().map_err(|_| PrefixError::Syntax)?;
        let bits = bits.parse().map_err(|_| PrefixError::Syntax)?;
        Self::new(address, bits)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn reads_and_prints_both_families() {
        for text in [
            "0.0.0.0/0",
            "10.9.0.0/16",
            "192.0.2.7/32",
            "::/0",
            "2001:db8::/32",
        ] {
            assert_eq!(prefix(text).to_string(), text);
        }
    }

    #[test]
    fn a_bare_address_is_a_host_prefix() {
        assert_eq!(prefix("192.0.2.7"), prefix("192.0.2.7/32"));
        assert_eq!(prefix("2001:db8::1"), prefix("2001:db8::1/128"));
    }

    #[test]
    fn contains_its_own_addresses_and_no_other_family() {
        let inside = prefix("10.9.0.0/16");
        assert!(inside.contains("10.9.255.1".parse().unwrap()));
        assert!(!inside.contains("10.10.0.0".parse().unwrap()));
        assert!(!prefix("0.0.0.0/0").contains("::1".parse().unwrap()));
    }

    #[test]
    fn spans_its_first_to_its_last_address() {
        let prefix = prefix("10.9.128.0/17");
        assert_eq!(prefix.first(), "10.9.128.0".parse::<IpAddr>().unwrap());
        assert_eq!(prefix.last(), "10.9.255.255".parse::<IpAddr>().unwrap());
        assert_eq!(prefix.bits(), 17);
    }

    #[test]
    fn prefixes_overlap_when_one_holds_the_other() {
        assert!(prefix("10.0.0.0/8").overlaps(&prefix("10.9.0.0/16")));
        assert!(prefix("10.9.0.0/16").overlaps(&prefix("10.0.0.0/8")));
        assert!(!prefix("10.8.0.0/16").overlaps(&prefix("10.9.0.0/16")));
        assert!(!prefix("0.0.0.0/0").overlaps(&prefix("::/0")));
    }

    #[test]
    fn host_bits_are_refused_with_the_corrected_prefix() {
        let error = "10.9.1.0/16".parse::<Prefix>().unwrap_err();
        assert!(
            matches!(error, PrefixError::HostBits { corrected, .. } if corrected == prefix("10.9.0.0/16"))
        );
        assert_eq!(
            error.to_string(),
            "10.9.1.0/16 has bits set beyond its length; the prefix is 10.9.0.0/16"
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "/",
            "10.9.0.0/",
            "10.9.0/16",
            "10.9.0.0/-1",
            "fe80::1%eth0/64",
            "a/8",
        ] {
            assert_eq!(text.parse::<Prefix>(), Err(PrefixError::Syntax), "{text}");
        }
        assert_eq!(
            "10.0.0.0/33".parse::<Prefix>(),
            Err(PrefixError::TooLong { max: 32 })
        );
        assert_eq!(
            "::/129".parse::<Prefix>(),
            Err(PrefixError::TooLong { max: 128 })
        );
    }

    #[test]
    fn the_prefix_around_an_address_drops_its_host_bits() {
        let address = "10.9.1.77".parse().unwrap();
        assert_eq!(Prefix::around(address, 16), prefix("10.9.0.0/16"));
        assert_eq!(Prefix::around(address, 200), prefix("10.9.1.77/32"));
    }
}
