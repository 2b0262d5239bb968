//! Peers' addresses as noq gets them: IPv4 as IPv6 (RFC 4291 §2.5.5.2).
//!
//! Where only the port of an IPv4 peer changes, noq goes on with the round trip of before, gives
//! the new address three probe timeouts to prove itself, and asks it never again. A link that comes
//! back slower, behind a NAT that has forgotten it, would answer too late. With IPv6 noq begins
//! anew, as it may (RFC 9000 §9.4), and waits for three seconds.

use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};

/// What noq gets.
pub(crate) fn disguised(remote: SocketAddr) -> SocketAddr {
    match remote {
        SocketAddr::V4(v4) => SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0).into(),
        SocketAddr::V6(_) => remote,
    }
}

/// What is behind it.
pub(crate) fn plain(remote: SocketAddr) -> SocketAddr {
    let SocketAddr::V6(v6) = remote else {
        return remote;
    };
    let v4 = v6.ip().to_ipv4_mapped();
    v4.map_or(remote, |ip| SocketAddrV4::new(ip, v6.port()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_noq_gets_is_ipv6_and_comes_back_as_it_was() {
        for text in ["203.0.113.1:443", "[2001:db8::1]:443", "[fe80::1%7]:443"] {
            let remote: SocketAddr = text.parse().expect("an address");
            assert!(disguised(remote).is_ipv6());
            assert_eq!(plain(disguised(remote)), remote);
        }
    }
}
