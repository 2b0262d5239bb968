//! The address plan of a lab: who has which address, in one place.
//!
//! | where | IPv4 | IPv6 |
//! | --- | --- | --- |
//! | link *n* (from 1), hub `.1`, edge `.2` | 198.18.*n*.0/24 (RFC 2544) | fd18:*n*::/64 |
//! | the hub's own, on its `lo` | 198.19.0.1 | fd19::1 |
//! | edge *e* (from 0) `.1` and LAN host `.2` | 192.168.(8+*e*).0/24 | fd08:*e*::/64 |
//! | hub `.1` and server `.10` | 203.0.113.0/24 (RFC 5737) | 2001:db8:113::/64 (RFC 3849) |
//! | forged sources of a flood, routed to the server | 100.64.0.0/10 (RFC 6598) | |
//! | hub `.1` and edge in the tunnel | 10.200.0.0/16 | fd5e:1::/64 |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address of each family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dual {
    /// In a /24.
    pub v4: Ipv4Addr,
    /// In a /64.
    pub v6: Ipv6Addr,
}

impl Dual {
    /// One of them.
    pub fn ip(self, ipv6: bool) -> IpAddr {
        if ipv6 { self.v6.into() } else { self.v4.into() }
    }

    /// One of them as text.
    pub fn text(self, ipv6: bool) -> String {
        self.ip(ipv6).to_string()
    }
}

/// The hub's address, reached over every link.
pub const HUB: Dual = Dual {
    v4: Ipv4Addr::new(198, 19, 0, 1),
    v6: Ipv6Addr::new(0xfd19, 0, 0, 0, 0, 0, 0, 1),
};

/// The host behind the edge, or behind the first of several.
pub const LAN: Dual = Lan { edge: 0 }.host();

/// The hub's address towards the server.
pub const HUB_SERVER: Dual = server(1, 0x1);

/// The host behind the hub.
pub const SERVER: Dual = server(10, 0x10);

/// What a tunnel gives addresses of.
pub const INNER_PREFIXES: [&str; 2] = ["10.200.0.0/16", "fd5e:1::/64"];

/// The hub's address in the tunnel.
pub const INNER_HUB: Dual = inner(1);

/// The edge's address in a tunnel that does not give it one itself.
pub const INNER_EDGE: Dual = inner(2);

/// The prefixes that hold all link addresses.
pub const LINK_PREFIXES: [&str; 2] = ["198.18.0.0/16", "fd18::/16"];

/// Where forged sources are, which the hub takes for hosts behind the server (RFC 6598).
pub const FORGED: (Ipv4Addr, u8) = (Ipv4Addr::new(100, 64, 0, 0), 10);

/// The largest number of links of one edge.
pub const LINKS_MAX: usize = 16;

/// The largest number of links of all edges: they share an octet of the plan.
pub const LINKS_OF_ALL_MAX: usize = 240;

/// The edge's usual host number on a link.
pub const EDGE: u8 = 2;

const fn server(v4: u8, v6: u16) -> Dual {
    Dual {
        v4: Ipv4Addr::new(203, 0, 113, v4),
        v6: Ipv6Addr::new(0x2001, 0xdb8, 0x113, 0, 0, 0, 0, v6),
    }
}

const fn inner(host: u8) -> Dual {
    Dual {
        v4: Ipv4Addr::new(10, 200, 0, host),
        v6: Ipv6Addr::new(0xfd5e, 1, 0, 0, 0, 0, 0, host as u16),
    }
}

/// Where the LAN of one edge is in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lan {
    edge: u8,
}

impl Lan {
    /// Behind the edge at this index; a lab has no more edges than [`LINKS_OF_ALL_MAX`].
    pub fn of(edge: usize) -> Self {
        let edge = u8::try_from(edge).expect("edges are counted with their links");
        Self { edge }
    }

    /// The edge's address in it.
    pub const fn edge(self) -> Dual {
        self.address(1)
    }

    /// The host in it.
    pub const fn host(self) -> Dual {
        self.address(2)
    }

    /// All of its addresses.
    pub fn prefixes(self) -> [String; 2] {
        let Dual { v4, v6 } = self.address(0);
        [format!("{v4}/24"), format!("{v6}/64")]
    }

    const fn address(self, host: u8) -> Dual {
        Dual {
            v4: Ipv4Addr::new(192, 168, 8 + self.edge, host),
            v6: Ipv6Addr::new(0xfd08, self.edge as u16, 0, 0, 0, 0, 0, host as u16),
        }
    }
}

/// Where one link is in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subnet {
    number: u8,
}

impl Subnet {
    /// Of the link at this index among those of all edges, which is below [`LINKS_OF_ALL_MAX`].
    pub fn of(index: usize) -> Self {
        let number = u8::try_from(index + 1).expect("a lab has few links");
        Self { number }
    }

    /// The hub's end, which is the edge's gateway.
    pub fn hub(self) -> Dual {
        self.host(1)
    }

    /// The edge's usual end.
    pub fn edge(self) -> Dual {
        self.host(EDGE)
    }

    /// Any address on the link.
    pub fn host(self, host: u8) -> Dual {
        Dual {
            v4: Ipv4Addr::new(198, 18, self.number, host),
            v6: Ipv6Addr::new(0xfd18, self.number.into(), 0, 0, 0, 0, 0, host.into()),
        }
    }

    /// All of the link's addresses.
    pub fn prefixes(self) -> [String; 2] {
        let Dual { v4, v6 } = self.host(0);
        [format!("{v4}/24"), format!("{v6}/64")]
    }

    /// The edge's routing table for what is sent from its end.
    pub fn table(self) -> u32 {
        1000 + u32::from(self.number)
    }

    /// The metric of the edge's default route over this link.
    pub fn metric(self) -> u32 {
        1000 + u32::from(self.number)
    }
}

/// A name at one of so many edges, which count from 1.
pub(crate) fn numbered(name: &str, edge: usize, edges: usize) -> String {
    match edges {
        1 => name.to_owned(),
        _ => format!("{name}-{}", edge + 1),
    }
}
