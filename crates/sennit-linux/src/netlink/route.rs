//! Routes as messages.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;
use netlink_packet_route::{
    AddressFamily,
    route::{
        RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteNextHop,
        RouteScope, RouteType, RouteVia,
    },
};

use super::{Family, PROTOCOL};

/// The table that everybody else uses.
pub const TABLE_MAIN: u32 = 254;

/// A unicast route by one next hop, or one that says that there is no way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    pub destination: IpNet,
    /// The next hop; `None` when the destination is on the link itself.
    pub gateway: Option<IpAddr>,
    /// Interface index; 0 when the destination is unreachable.
    pub device: u32,
    /// Whoever sends there is told so by ICMP, and nothing leaves.
    pub unreachable: bool,
    /// Preferred source address of what we send ourselves.
    pub source: Option<IpAddr>,
    pub table: u32,
    /// Lower is preferred.
    pub metric: u32,
    /// Who added it; [`PROTOCOL`] if we did.
    pub protocol: u8,
}

impl Route {
    /// A route of ours to `destination` straight out of `device`, at the kernel's usual metric.
    pub fn via_device(destination: IpNet, device: u32, table: u32) -> Self {
        let metric = match destination {
            IpNet::V4(_) => 0,
            IpNet::V6(_) => 1024,
        };
        Self {
            destination,
            gateway: None,
            device,
            unreachable: false,
            source: None,
            table,
            metric,
            protocol: PROTOCOL,
        }
    }

    /// A route of ours by which `destination` is unreachable, unless a route with a lower metric
    /// leads there.
    pub fn unreachable(destination: IpNet, table: u32, metric: u32) -> Self {
        Self {
            metric,
            unreachable: true,
            ..Self::via_device(destination, 0, table)
        }
    }

    pub fn family(&self) -> Family {
        Family::of(self.destination.addr())
    }

    pub fn is_default(&self) -> bool {
        self.destination.prefix_len() == 0
    }

    /// Whether it carries our mark.
    pub fn is_ours(&self) -> bool {
        self.protocol == PROTOCOL
    }

    /// Asks for the routes of one family that match all the attributes.
    pub(super) fn query(family: Family, attributes: Vec<RouteAttribute>) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = family.into();
        message.attributes = attributes;
        message
    }

    pub(super) fn to_message(&self) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: self.family().into(),
            destination_prefix_length: self.destination.prefix_len(),
            table: RouteHeader::RT_TABLE_UNSPEC,
            protocol: self.protocol.into(),
            scope: self.scope(),
            kind: self.kind(),
            ..RouteHeader::default()
        };
        let attributes = &mut message.attributes;
        attributes.push(RouteAttribute::Table(self.table));
        if !self.unreachable {
            attributes.push(RouteAttribute::Oif(self.device));
        }
        if !self.is_default() {
            attributes.push(RouteAttribute::Destination(
                self.destination.network().into(),
            ));
        }
        if let Some(gateway) = self.gateway {
            attributes.push(self.gateway_attribute(gateway));
            // The table need not know how the gateway is reached: it is on this device.
            message.header.flags = RouteFlags::Onlink;
        }
        attributes.extend(self.source.map(|ip| RouteAttribute::PrefSource(ip.into())));
        attributes.push(RouteAttribute::Priority(self.metric));
        message
    }

    fn kind(&self) -> RouteType {
        if self.unreachable {
            RouteType::Unreachable
        } else {
            RouteType::Unicast
        }
    }

    fn scope(&self) -> RouteScope {
        match (self.family(), self.gateway) {
            (Family::V4, None) if !self.unreachable => RouteScope::Link,
            _ => RouteScope::Universe,
        }
    }

    fn gateway_attribute(&self, gateway: IpAddr) -> RouteAttribute {
        match (self.family(), gateway) {
            (Family::V4, IpAddr::V6(gateway)) => RouteAttribute::Via(RouteVia::Inet6(gateway)),
            _ => RouteAttribute::Gateway(gateway.into()),
        }
    }

    /// One route per next hop of a message; none for other kinds than unicast and unreachable.
    pub(super) fn from_message(message: &RouteMessage) -> Vec<Self> {
        let Some(mut route) = Self::without_next_hop(message) else {
            return Vec::new();
        };
        let next_hops = message
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                RouteAttribute::MultiPath(next_hops) => Some(next_hops),
                _ => None,
            });
        match next_hops {
            Some(next_hops) => next_hops.iter().map(|hop| route.by(hop)).collect(),
            None => {
                route.gateway = gateway_of(&message.attributes);
                vec![route]
            }
        }
    }

    fn without_next_hop(message: &RouteMessage) -> Option<Self> {
        let header = &message.header;
        let family = match header.address_family {
            AddressFamily::Inet => Family::V4,
            AddressFamily::Inet6 => Family::V6,
            _ => return None,
        };
        let known = matches!(header.kind, RouteType::Unicast | RouteType::Unreachable);
        if !known || header.flags.contains(RouteFlags::Cloned) {
            return None;
        }
        let mut route = Self::via_device(family.default_prefix(), 0, header.table.into());
        route.unreachable = header.kind == RouteType::Unreachable;
        route.protocol = header.protocol.into();
        route.metric = 0;
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Destination(address) => {
                    let address = ip_of(address)?;
                    route.destination =
                        IpNet::new(address, header.destination_prefix_length).ok()?;
                }
                RouteAttribute::Oif(index) => route.device = *index,
                RouteAttribute::Table(table) => route.table = *table,
                RouteAttribute::Priority(metric) => route.metric = *metric,
                RouteAttribute::PrefSource(address) => route.source = ip_of(address),
                _ => {}
            }
        }
        if route.unreachable {
            // The kernel says that such an IPv6 route leads to the loopback device.
            route.device = 0;
        }
        Some(route)
    }

    fn by(&self, hop: &RouteNextHop) -> Self {
        Self {
            device: hop.interface_index,
            gateway: gateway_of(&hop.attributes),
            ..self.clone()
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.destination)?;
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        if self.unreachable {
            return write!(f, " as unreachable in table {}", self.table);
        }
        write!(f, " by interface {} in table {}", self.device, self.table)
    }
}

/// Asks by which route one address is reached.
pub(super) fn query_to(address: IpAddr) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = Family::of(address).into();
    message.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
    let destination = RouteAttribute::Destination(address.into());
    message.attributes.push(destination);
    message
}

/// Whether a route is one of the host's own addresses, or of several hosts: of anycast that is the
/// first address of each attached IPv6 prefix, which every router there has (RFC 4291 §2.6.1).
pub(super) fn is_for_host(message: &RouteMessage) -> bool {
    matches!(
        message.header.kind,
        RouteType::Local | RouteType::Anycast | RouteType::Broadcast | RouteType::Multicast
    )
}

fn gateway_of(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(address) => ip_of(address),
        RouteAttribute::Via(RouteVia::Inet(address)) => Some((*address).into()),
        RouteAttribute::Via(RouteVia::Inet6(address)) => Some((*address).into()),
        _ => None,
    })
}

fn ip_of(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(destination: &str, gateway: Option<&str>) -> Route {
        Route {
            gateway: gateway.map(|gateway| gateway.parse().unwrap()),
            metric: 50,
            ..Route::via_device(destination.parse().unwrap(), 7, 0x5300_0001)
        }
    }

    #[test]
    fn survives_the_way_through_a_message() {
        let routes = [
            route("0.0.0.0/0", Some("192.0.2.1")),
            route("0.0.0.0/0", Some("fe80::1")),
            route("10.9.0.0/16", None),
            route("::/0", Some("fe80::1")),
            route("2001:db8::/32", None),
            Route::unreachable("0.0.0.0/0".parse().unwrap(), 0x5300_0001, 50),
            Route::unreachable("2001:db8::/32".parse().unwrap(), 254, 50),
        ];
        for route in routes {
            assert_eq!(Route::from_message(&route.to_message()), [route]);
        }
    }

    #[test]
    fn a_multipath_route_counts_once_per_next_hop() {
        let mut message = route("0.0.0.0/0", None).to_message();
        let next_hops = [(3, "192.0.2.1"), (4, "198.51.100.1")].map(|(index, gateway)| {
            let mut hop = RouteNextHop::default();
            hop.interface_index = index;
            let gateway: IpAddr = gateway.parse().unwrap();
            hop.attributes.push(RouteAttribute::Gateway(gateway.into()));
            hop
        });
        message
            .attributes
            .push(RouteAttribute::MultiPath(next_hops.into()));

        let routes = Route::from_message(&message);

        let hops: Vec<_> = routes.iter().map(|r| (r.device, r.gateway)).collect();
        assert_eq!(
            hops,
            [
                (3, Some("192.0.2.1".parse().unwrap())),
                (4, Some("198.51.100.1".parse().unwrap()))
            ]
        );
    }

    #[test]
    fn only_the_way_to_another_host_leads_away() {
        let to = |kind| {
            let mut message = query_to("2001:db8::".parse().unwrap());
            message.header.kind = kind;
            is_for_host(&message)
        };
        let own = [RouteType::Local, RouteType::Anycast, RouteType::Broadcast];
        assert_eq!(own.map(to), [true; 3]);
        assert!(!to(RouteType::Unicast));
    }

    #[test]
    fn a_route_that_forbids_is_not_a_way() {
        let mut message = route("0.0.0.0/0", None).to_message();
        message.header.kind = RouteType::Prohibit;

        assert_eq!(Route::from_message(&message), []);
    }
}
