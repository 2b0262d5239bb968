//! IP prefixes whose host bits are zero, as RFC 9484 wants them everywhere.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An IP prefix: an address and how many of its bits count. The others are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpPrefix {
    addr: IpAddr,
    len: u8,
}

/// Why something is not a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    #[error("not an IP address with an optional prefix length")]
    Syntax,
    #[error("the prefix is longer than the address")]
    Length,
    #[error("bits beyond the prefix are set")]
    HostBits,
}

impl IpPrefix {
    /// The prefix of `len` bits that begins at `addr` (RFC 9484 §4.7.1: the other bits are zero).
    pub fn new(addr: IpAddr, len: u8) -> Result<Self, PrefixError> {
        if len > bits(addr) {
            return Err(PrefixError::Length);
        }
        let prefix = Self { addr, len };
        if prefix.first() == addr {
            Ok(prefix)
        } else {
            Err(PrefixError::HostBits)
        }
    }

    /// A single address.
    #[must_use]
    pub const fn host(addr: IpAddr) -> Self {
        Self {
            addr,
            len: bits(addr),
        }
    }

    #[must_use]
    pub const fn addr(&self) -> IpAddr {
        self.addr
    }

    /// How many bits of the address count.
    #[must_use]
    pub const fn prefix_len(&self) -> u8 {
        self.len
    }

    /// The first and last address.
    #[must_use]
    pub fn range(&self) -> (IpAddr, IpAddr) {
        let last = match self.addr {
            IpAddr::V4(addr) => Ipv4Addr::from_bits(addr.to_bits() | !self.mask_v4()).into(),
            IpAddr::V6(addr) => Ipv6Addr::from_bits(addr.to_bits() | !self.mask_v6()).into(),
        };
        (self.addr, last)
    }

    #[must_use]
    pub fn contains(&self, addr: IpAddr) -> bool {
        let (first, last) = self.range();
        (first..=last).contains(&addr)
    }

    fn first(&self) -> IpAddr {
        match self.addr {
            IpAddr::V4(addr) => Ipv4Addr::from_bits(addr.to_bits() & self.mask_v4()).into(),
            IpAddr::V6(addr) => Ipv6Addr::from_bits(addr.to_bits() & self.mask_v6()).into(),
        }
    }

    fn mask_v4(&self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.len)).unwrap_or(0)
    }

    fn mask_v6(&self) -> u128 {
        u128::MAX
            .checked_shl(128 - u32::from(self.len))
            .unwrap_or(0)
    }
}

const fn bits(addr: IpAddr) -> u8 {
    match addr {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

/// `192.0.2.0/24`, or an address alone for a single host.
impl FromStr for IpPrefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (addr, len) = match text.split_once('/') {
            Some((addr, len)) => (addr, Some(len)),
            None => (text, None),
        };
        let addr = addr.parse().map_err(|_| PrefixError::Syntax)?;
        match len {
            None => Ok(Self::host(addr)),
            // `parse` alone would accept a sign.
            Some(len) if !len.is_empty() && len.bytes().all(|byte| byte.is_ascii_digit()) => {
                Self::new(addr, len.parse().map_err(|_| PrefixError::Length)?)
            }
            Some(_) => Err(PrefixError::Syntax),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<IpPrefix, PrefixError> {
        text.parse()
    }

    #[test]
    fn text_is_read_and_written() {
        for text in [
            "0.0.0.0/0",
            "192.0.2.0/24",
            "192.0.2.1/32",
            "::/0",
            "2001:db8::/32",
        ] {
            assert_eq!(
                parse(text).map(|prefix| prefix.to_string()),
                Ok(text.to_owned())
            );
        }
        assert_eq!(parse("192.0.2.1"), parse("192.0.2.1/32"));
    }

    #[test]
    fn bad_text_says_what_is_wrong() {
        assert_eq!(parse("192.0.2.0/33"), Err(PrefixError::Length));
        assert_eq!(parse("192.0.2.0/999"), Err(PrefixError::Length));
        assert_eq!(parse("192.0.2.1/24"), Err(PrefixError::HostBits));
        assert_eq!(parse("2001:db8::1/64"), Err(PrefixError::HostBits));
        for text in [
            "",
            "/",
            "/8",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0/8",
            "fe80::1%eth0",
        ] {
            assert_eq!(parse(text), Err(PrefixError::Syntax), "{text}");
        }
    }

    #[test]
    fn a_range_covers_just_the_prefix() {
        let prefix = parse("192.0.2.128/25").expect("legal");
        let (first, last) = prefix.range();
        assert_eq!(
            (first.to_string(), last.to_string()),
            ("192.0.2.128".into(), "192.0.2.255".into())
        );
        assert!(prefix.contains(last));
        assert!(!prefix.contains("192.0.3.0".parse().expect("legal")));
        assert!(!prefix.contains("::".parse().expect("legal")));
    }

    proptest! {
        #![proptest_config(crate::seeded())]

        #[test]
        fn a_prefix_contains_an_address_when_the_masked_bits_agree(
            a: u128,
            b: u128,
            len in 0u8..=128,
        ) {
            let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
            let prefix = IpPrefix::new(Ipv6Addr::from_bits(a & mask).into(), len).expect("masked");
            prop_assert!(prefix.contains(Ipv6Addr::from_bits(a & mask | b & !mask).into()));
            prop_assert_eq!(prefix.contains(Ipv6Addr::from_bits(b).into()), a & mask == b & mask);
        }
    }
}
