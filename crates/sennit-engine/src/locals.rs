//! Names for local endpoints that the QUIC engine can carry.
//!
//! noq tells local endpoints apart by IP address alone, but two links may well have the same
//! address (two LTE routers that both hand out 192.168.8.100), and the first path of a connection
//! has none. So the engine never shows noq a real local address: each pair of socket and source
//! address gets a number, and noq sees that number as an address in 0.0.0.0/8, which no network
//! uses (RFC 1122 §3.2.1.3).

use std::net::{IpAddr, Ipv4Addr};

use crate::ids::SocketId;

/// Where a packet leaves from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Local {
    /// The socket.
    pub socket: SocketId,
    /// The source address, where the socket has more than one.
    pub ip: Option<IpAddr>,
}

/// A local address can only be one the kernel delivered to, so there are few; the limit guards
/// against a mistake in that reasoning.
const LIMIT: usize = 4096;

/// The table of numbers.
#[derive(Debug, Default)]
pub(crate) struct Locals {
    known: Vec<Local>,
}

impl Locals {
    /// The stand-in address for a local endpoint.
    pub(crate) fn alias(&mut self, local: Local) -> IpAddr {
        let known = self.known.iter().position(|known| *known == local);
        let index = known.unwrap_or_else(|| self.add(local));
        let [_, _, high, low] = (index as u32).to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(0, 1, high, low))
    }

    /// The local endpoint behind a stand-in address.
    pub(crate) fn resolve(&self, alias: IpAddr) -> Option<Local> {
        let IpAddr::V4(alias) = alias else {
            return None;
        };
        let [0, 1, high, low] = alias.octets() else {
            return None;
        };
        self.known
            .get(usize::from(u16::from_be_bytes([high, low])))
            .copied()
    }

    fn add(&mut self, local: Local) -> usize {
        if self.known.len() == LIMIT {
            return LIMIT - 1;
        }
        self.known.push(local);
        self.known.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_addresses_on_different_sockets_stay_apart() {
        let mut locals = Locals::default();
        let ip = Some("192.168.8.100".parse().unwrap());
        let (a, b) = (
            Local {
                socket: SocketId(0),
                ip,
            },
            Local {
                socket: SocketId(1),
                ip,
            },
        );
        let (alias_a, alias_b) = (locals.alias(a), locals.alias(b));
        assert_ne!(alias_a, alias_b);
        assert_eq!(locals.alias(a), alias_a);
        assert_eq!(locals.resolve(alias_b), Some(b));
        assert_eq!(locals.resolve("0.1.0.2".parse().unwrap()), None);
        assert_eq!(locals.resolve("192.168.8.100".parse().unwrap()), None);
    }
}
