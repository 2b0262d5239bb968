//! What there is to know about an interface that is to carry a link.

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv6Addr},
};

use ipnet::IpNet;
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage},
    link::{LinkAttribute, LinkFlags, LinkMessage},
};
use rustix::net::netdevice::index_to_name;

use super::{Family, Netlink, Route, TABLE_MAIN};
use crate::{Error, error::Doing, udp::is_link_local};

/// Whether packets can leave by an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    Up,
    /// Switched on, but without a cable, a modem session, or a peer.
    NoCarrier,
    /// Switched off by the administrator.
    AdminDown,
}

impl LinkState {
    pub(super) fn of(flags: LinkFlags) -> Self {
        if !flags.contains(LinkFlags::Up) {
            Self::AdminDown
        } else if flags.contains(LinkFlags::Running | LinkFlags::LowerUp) {
            Self::Up
        } else {
            Self::NoCarrier
        }
    }
}

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::NoCarrier => "no carrier",
            Self::AdminDown => "switched off",
        })
    }
}

/// An address that packets can be sent from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    rank: Rank,
    pub net: IpNet,
}

/// Lower is better: what reaches further before what reaches less far (a unique local address,
/// RFC 4193, has no way to the internet), lasting before expiring, IPv4 before IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    link_local: bool,
    unique_local: bool,
    deprecated: bool,
    v6: bool,
}

impl InterfaceAddress {
    fn new(net: IpNet, deprecated: bool) -> Self {
        let (link_local, unique_local) = match net.addr() {
            IpAddr::V4(address) => (address.is_link_local(), false),
            IpAddr::V6(address) => (is_link_local(&address), address.is_unique_local()),
        };
        let rank = Rank {
            link_local,
            unique_local,
            deprecated,
            v6: net.addr().is_ipv6(),
        };
        Self { rank, net }
    }

    pub fn address(&self) -> IpAddr {
        self.net.addr()
    }

    pub fn is_link_local(&self) -> bool {
        self.rank.link_local
    }
}

/// A snapshot of an interface: its state, addresses and ways out.
#[derive(Clone, Debug)]
pub struct Interface {
    pub index: u32,
    /// As the kernel calls it, also where it was looked up by another of its names.
    pub name: String,
    pub mtu: u32,
    pub state: LinkState,
    /// Usable addresses, best first; those still being checked for duplicates are not usable.
    pub addresses: Vec<InterfaceAddress>,
    /// Its routes of the main table, best default first, without those that we added.
    pub routes: Vec<Route>,
}

impl Interface {
    pub fn lookup(netlink: &mut Netlink, name: &str) -> Result<Self, Error> {
        let mut query = LinkMessage::default();
        query
            .attributes
            .push(LinkAttribute::IfName(name.to_owned()));
        let replies = netlink
            .query(RouteNetlinkMessage::GetLink(query))
            .map_err(|error| match error.raw_os_error() {
                Some(libc::ENODEV | libc::EINVAL | libc::ERANGE) => {
                    Error::NoInterface(name.to_owned())
                }
                _ => Error::Os {
                    doing: format!("look up interface {name}"),
                    source: error,
                },
            })?;
        let link = replies.into_iter().find_map(|message| match message {
            RouteNetlinkMessage::NewLink(link) => Some(link),
            _ => None,
        });
        let link = link.ok_or_else(|| Error::NoInterface(name.to_owned()))?;
        Self::from_link(netlink, name, &link)
    }

    fn from_link(netlink: &mut Netlink, asked: &str, link: &LinkMessage) -> Result<Self, Error> {
        let index = link.header.index;
        let (mut name, mut mtu) = (asked, 0);
        for attribute in &link.attributes {
            match attribute {
                LinkAttribute::IfName(found) => name = found,
                LinkAttribute::Mtu(found) => mtu = *found,
                _ => {}
            }
        }
        Ok(Self {
            index,
            name: name.to_owned(),
            mtu,
            state: LinkState::of(link.header.flags),
            addresses: netlink.addresses(index)?,
            routes: netlink.ways_out(index)?,
        })
    }

    /// The address to send from to the given family: never link-local for IPv6, as hubs are far.
    pub fn source(&self, family: Family) -> Option<IpAddr> {
        self.source_or_kept(family, None)
    }

    /// The address to send from like [`Self::source`], but `kept` while no other is better: which
    /// of several equals the kernel names first changes with each new one.
    pub fn source_or_kept(&self, family: Family, kept: Option<IpAddr>) -> Option<IpAddr> {
        let fits = |it: &&InterfaceAddress| {
            Family::of(it.address()) == family && (family == Family::V4 || !it.is_link_local())
        };
        let mut candidates = self.addresses.iter().filter(fits);
        let best = candidates.next()?;
        let mut equals = candidates.take_while(|it| it.rank == best.rank);
        let same = equals.find(|it| Some(it.address()) == kept);
        Some(same.unwrap_or(best).address())
    }

    /// The next hop of the best default route, if that has one.
    pub fn gateway(&self, family: Family) -> Option<IpAddr> {
        let default = self
            .routes
            .iter()
            .find(|route| route.is_default() && route.family() == family);
        default.and_then(|route| route.gateway)
    }
}

/// An address of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAddress {
    pub address: IpAddr,
    /// The network that is reached directly by it.
    pub network: IpNet,
}

impl Netlink {
    /// The usable addresses of an interface, best first.
    pub fn addresses(&mut self, index: u32) -> Result<Vec<InterfaceAddress>, Error> {
        let messages = self.address_messages(index)?;
        let mut addresses: Vec<_> = messages.iter().filter_map(usable_address).collect();
        addresses.sort_by_key(|address| address.rank);
        Ok(addresses)
    }

    /// Every address of this host, on whatever interface.
    pub fn host_addresses(&mut self) -> Result<Vec<HostAddress>, Error> {
        let query = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let replies = self
            .dump(query)
            .doing(|| "list the addresses of this host".into())?;
        let addresses = replies.iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewAddress(message) => host_address(message),
            _ => None,
        });
        Ok(addresses.collect())
    }

    /// The addresses of an interface that carry our mark.
    pub(crate) fn our_addresses(&mut self, index: u32) -> Result<Vec<IpNet>, Error> {
        let mark = AddressAttribute::Protocol(super::PROTOCOL.into());
        let messages = self.address_messages(index)?;
        let ours = messages
            .iter()
            .filter(|message| message.attributes.contains(&mark));
        Ok(ours.filter_map(local_address).collect())
    }

    /// The interfaces that have addresses with our mark, by their names.
    pub(crate) fn names_with_our_addresses(&mut self) -> Result<Vec<String>, Error> {
        let mark = AddressAttribute::Protocol(super::PROTOCOL.into());
        let query = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let replies = self
            .dump(query)
            .doing(|| "list the addresses of this host".into())?;
        let indices = replies.iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewAddress(message) => {
                let ours = message.attributes.contains(&mark);
                ours.then_some(message.header.index)
            }
            _ => None,
        });
        let indices: BTreeSet<u32> = indices.collect();
        let names = indices.into_iter().filter_map(|index| self.name_of(index));
        Ok(names.collect())
    }

    /// The name of an interface by its index; one that has gone meanwhile has none.
    pub fn name_of(&self, index: u32) -> Option<String> {
        index_to_name(&self.socket, index).ok()
    }

    fn address_messages(&mut self, index: u32) -> Result<Vec<AddressMessage>, Error> {
        let mut query = AddressMessage::default();
        query.header.index = index;
        let replies = self
            .dump(RouteNetlinkMessage::GetAddress(query))
            .doing(|| format!("list the addresses of interface {index}"))?;
        let messages = replies.into_iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewAddress(message) => Some(message),
            _ => None,
        });
        Ok(messages.filter(|m| m.header.index == index).collect())
    }

    /// The main table as far as it leads out of one interface, best default first.
    fn ways_out(&mut self, index: u32) -> Result<Vec<Route>, Error> {
        let mut ways = Vec::new();
        for family in Family::BOTH {
            let mut routes = self.routes(family, TABLE_MAIN, index)?;
            routes.retain(|route| !route.is_ours());
            ways.append(&mut routes);
        }
        ways.sort_by_key(|route| (!route.is_default(), route.metric));
        Ok(ways)
    }
}

/// The address in a message, unless it cannot be sent from yet or at all.
pub(super) fn usable_address(message: &AddressMessage) -> Option<InterfaceAddress> {
    let has = |flag: AddressFlags| {
        let short = AddressHeaderFlags::from_bits_retain(flag.bits() as u8);
        (!short.is_empty() && message.header.flags.contains(short))
            || message.attributes.iter().any(|attribute| {
                matches!(attribute, AddressAttribute::Flags(flags) if flags.contains(flag))
            })
    };
    if has(AddressFlags::Tentative) && !has(AddressFlags::Optimistic)
        || has(AddressFlags::Dadfailed)
    {
        return None;
    }
    let net = local_address(message)?;
    let unusable = net.addr().is_multicast()
        || net.addr() == IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        || net.addr().is_unspecified();
    (!unusable).then(|| InterfaceAddress::new(net, has(AddressFlags::Deprecated)))
}

/// An address with its network. Where there is a peer, it is the peer's network.
fn host_address(message: &AddressMessage) -> Option<HostAddress> {
    let local = local_address(message)?;
    let far = message.attributes.iter().find_map(|it| match it {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    });
    Some(HostAddress {
        address: local.addr(),
        network: far.map_or(Some(local), |far| IpNet::new(far, local.prefix_len()).ok())?,
    })
}

/// Our end: `IFA_LOCAL` where there is one (on point-to-point links `IFA_ADDRESS` is the peer).
pub(super) fn local_address(message: &AddressMessage) -> Option<IpNet> {
    let mut ours = None;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(address) => ours = Some(*address),
            AddressAttribute::Address(address) => ours = ours.or(Some(*address)),
            _ => {}
        }
    }
    IpNet::new(ours?, message.header.prefix_len).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(address: &str, len: u8, flags: AddressFlags) -> AddressMessage {
        let mut message = AddressMessage::default();
        message.header.prefix_len = len;
        message.attributes = vec![
            AddressAttribute::Address(address.parse().unwrap()),
            AddressAttribute::Flags(flags),
        ];
        message
    }

    #[test]
    fn addresses_rank_by_reach_then_age_then_family() {
        let mut addresses: Vec<_> = [
            ("fe80::1", AddressFlags::Permanent),
            ("fd00::1", AddressFlags::Permanent),
            ("2001:db8::2", AddressFlags::Deprecated),
            ("169.254.3.4", AddressFlags::Permanent),
            ("2001:db8::1", AddressFlags::Permanent),
            ("192.0.2.1", AddressFlags::Permanent),
        ]
        .iter()
        .filter_map(|(address, flags)| usable_address(&message(address, 24, *flags)))
        .collect();

        addresses.sort_by_key(|address| address.rank);

        let order: Vec<_> = addresses.iter().map(|a| a.address().to_string()).collect();
        let expected = [
            "192.0.2.1",
            "2001:db8::1",
            "2001:db8::2",
            "fd00::1",
            "169.254.3.4",
            "fe80::1",
        ];
        assert_eq!(order, expected);
    }

    #[test]
    fn a_source_stays_until_another_is_better() {
        let interface = |addresses: &[(&str, AddressFlags)]| {
            let usable = addresses.iter();
            let usable = usable.filter_map(|(ip, flags)| usable_address(&message(ip, 64, *flags)));
            let mut addresses: Vec<_> = usable.collect();
            addresses.sort_by_key(|address| address.rank);
            Interface {
                index: 3,
                name: "eth1".into(),
                mtu: 1500,
                state: LinkState::Up,
                addresses,
                routes: Vec::new(),
            }
        };
        let kept = "2001:db8::1".parse().ok();
        let source = |addresses: &[(&str, AddressFlags)]| {
            let source = interface(addresses).source_or_kept(Family::V6, kept);
            source.map(|it| it.to_string())
        };
        let (new, old, lasting) = ("2001:db8::2", "2001:db8::1", AddressFlags::Permanent);

        let both = [(new, lasting), (old, lasting)];
        assert_eq!(interface(&both).source(Family::V6), new.parse().ok());
        assert_eq!(source(&both).as_deref(), Some(old));
        let expiring = [(new, lasting), (old, AddressFlags::Deprecated)];
        assert_eq!(source(&expiring).as_deref(), Some(new));
        assert_eq!(source(&[(new, lasting)]).as_deref(), Some(new));
        assert_eq!(
            source(&[("fd00::1", lasting), (old, lasting)]).as_deref(),
            Some(old)
        );
    }

    #[test]
    fn an_address_under_duplicate_detection_is_not_usable() {
        let tentative = message("2001:db8::1", 64, AddressFlags::Tentative);
        let failed = message("2001:db8::1", 64, AddressFlags::Dadfailed);

        assert_eq!(usable_address(&tentative), None);
        assert_eq!(usable_address(&failed), None);
    }

    #[test]
    fn on_a_point_to_point_link_ours_is_the_local_end() {
        let mut message = message("192.0.2.2", 32, AddressFlags::Permanent);
        let local = AddressAttribute::Local("192.0.2.1".parse().unwrap());
        message.attributes.push(local);

        let address = usable_address(&message).map(|a| a.address().to_string());

        assert_eq!(address.as_deref(), Some("192.0.2.1"));
    }

    #[test]
    fn carrier_and_switch_tell_apart_why_a_link_is_down() {
        let up = LinkFlags::Up | LinkFlags::Running | LinkFlags::LowerUp;

        assert_eq!(LinkState::of(up), LinkState::Up);
        assert_eq!(LinkState::of(LinkFlags::Up), LinkState::NoCarrier);
        assert_eq!(LinkState::of(LinkFlags::LowerUp), LinkState::AdminDown);
    }
}
