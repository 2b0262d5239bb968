//! What happens to links while we run.
//!
//! The kernel repeats itself: every change of any attribute of a link, every renewed lease and
//! every refreshed route is a message. The monitor remembers what it has said and reports only what
//! differs: a link that can or cannot carry packets, or not as large ones as before, an address
//! that can or cannot be used. That something of ours was deleted is reported each time.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::AddressMessage,
    link::{LinkAttribute, LinkMessage},
    route::RouteMessage,
};
use rustix::net::{SocketFlags, sockopt};

use super::{
    BUFFER, LinkState, Netlink, Route, Rule, TABLE_MAIN, interface::local_address,
    interface::usable_address, messages, open_socket, receive,
};
use crate::{Error, error::Doing};

/// Groups of linux/rtnetlink.h: links; addresses, routes and rules of IPv4; the same of IPv6.
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | 0x4_0000;

/// Enough for thousands of changes between two looks of the worker.
const RECEIVE_BUFFER: usize = 1 << 20;

/// A change of a link. `index` is the kernel's interface index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The link can carry packets.
    Up { index: u32, name: String },
    /// The link cannot carry packets, for the reason in `state`.
    Down {
        index: u32,
        name: String,
        state: LinkState,
    },
    /// The link takes larger packets than before, or no longer does.
    MtuChanged { index: u32, mtu: u32 },
    /// The interface does not exist any more, or has another name now.
    Gone { index: u32, name: String },
    /// Packets can be sent from this address.
    AddressAdded { index: u32, address: IpAddr },
    /// Packets can no longer be sent from this address.
    AddressRemoved { index: u32, address: IpAddr },
    /// A route of the main table that leads out of this interface came or went.
    RouteChanged { index: u32 },
    /// A route or rule with our mark was deleted, by whomever.
    OursDeleted,
    /// More happened than the kernel remembers: look everything up again.
    Overflow,
}

/// A non-blocking stream of [`LinkEvent`]s, readable when there may be one.
#[derive(Debug)]
pub struct Monitor {
    socket: OwnedFd,
    buffer: Vec<u8>,
    known: Known,
}

/// What has been reported so far, and what is still to be reported.
#[derive(Debug, Default)]
struct Known {
    links: BTreeMap<u32, Link>,
    addresses: BTreeSet<(u32, IpAddr)>,
    pending: VecDeque<LinkEvent>,
}

/// What counts of an interface.
#[derive(Debug)]
struct Link {
    name: String,
    state: LinkState,
    mtu: u32,
}

impl Monitor {
    /// Starts with the present state of all interfaces, which is not reported.
    pub fn open() -> Result<Self, Error> {
        let socket = open_socket(GROUPS, SocketFlags::NONBLOCK)
            .doing(|| "watch the network interfaces".into())?;
        // Not being root is no reason to fail: the default holds hundreds of changes.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER);
        let mut monitor = Self {
            socket,
            buffer: vec![0; BUFFER],
            known: Known::default(),
        };
        monitor.take_stock()?;
        Ok(monitor)
    }

    /// The next change, or `None` when there is none for now.
    pub fn poll_event(&mut self) -> io::Result<Option<LinkEvent>> {
        loop {
            if let Some(event) = self.known.pending.pop_front() {
                return Ok(Some(event));
            }
            match receive(&self.socket, &mut self.buffer) {
                Ok(datagram) => {
                    for message in messages(datagram) {
                        if let NetlinkPayload::InnerMessage(message) = message.payload {
                            self.known.handle_message(&message);
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if is_overflow(&error) => {
                    self.drain()?;
                    self.take_stock().map_err(io::Error::other)?;
                    return Ok(Some(LinkEvent::Overflow));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Forgets what is older than the coming stock: the message that would correct it may be lost.
    fn drain(&mut self) -> io::Result<()> {
        loop {
            match receive(&self.socket, &mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if !is_overflow(&error) => return Err(error),
                _ => {}
            }
        }
    }

    /// Makes the present state the known one.
    fn take_stock(&mut self) -> Result<(), Error> {
        let mut known = Known::default();
        for message in Netlink::open()?.links_and_addresses()? {
            known.handle_message(&message);
        }
        known.pending.clear();
        self.known = known;
        Ok(())
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Netlink {
    fn links_and_addresses(&mut self) -> Result<Vec<RouteNetlinkMessage>, Error> {
        let links = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let addresses = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let mut all = self.dump(links).doing(|| "list the interfaces".into())?;
        all.extend(self.dump(addresses).doing(|| "list the addresses".into())?);
        Ok(all)
    }
}

impl Known {
    fn handle_message(&mut self, message: &RouteNetlinkMessage) {
        match message {
            RouteNetlinkMessage::NewLink(link) => self.handle_link(link),
            RouteNetlinkMessage::DelLink(link) => self.handle_link_gone(link),
            RouteNetlinkMessage::NewAddress(address) => self.handle_address(address),
            RouteNetlinkMessage::DelAddress(address) => self.handle_address_gone(address),
            RouteNetlinkMessage::NewRoute(route) => self.handle_route(route),
            RouteNetlinkMessage::DelRoute(route) => {
                self.handle_route(route);
                if Route::from_message(route).iter().any(Route::is_ours) {
                    self.handle_ours_deleted();
                }
            }
            RouteNetlinkMessage::DelRule(rule) if Rule::from_message(rule).is_ours() => {
                self.handle_ours_deleted();
            }
            _ => {}
        }
    }

    fn handle_link(&mut self, link: &LinkMessage) {
        let index = link.header.index;
        let Some(new) = Link::of(link) else { return };
        let (name, state, mtu) = (new.name.clone(), new.state, new.mtu);
        let before = self.links.insert(index, new);
        let known = before.as_ref().filter(|before| before.name == name);
        if known.is_some_and(|before| before.mtu != mtu) {
            self.pending.push_back(LinkEvent::MtuChanged { index, mtu });
        }
        let changed = known.is_none_or(|before| before.state != state);
        if let Some(Link { name: old, .. }) = before.filter(|before| before.name != name) {
            self.pending.push_back(LinkEvent::Gone { index, name: old });
        }
        if changed {
            self.pending.push_back(match state {
                LinkState::Up => LinkEvent::Up { index, name },
                LinkState::NoCarrier | LinkState::AdminDown => {
                    LinkEvent::Down { index, name, state }
                }
            });
        }
    }

    fn handle_link_gone(&mut self, link: &LinkMessage) {
        let index = link.header.index;
        // Bridges say that a port left them in the same words; that has no entry of its own.
        if link.header.interface_family != netlink_packet_route::AddressFamily::Unspec {
            return;
        }
        self.addresses.retain(|(owner, _)| *owner != index);
        if let Some(Link { name, .. }) = self.links.remove(&index) {
            self.pending.push_back(LinkEvent::Gone { index, name });
        }
    }

    fn handle_address(&mut self, message: &AddressMessage) {
        let index = message.header.index;
        match usable_address(message) {
            Some(found) => {
                let address = found.address();
                if self.addresses.insert((index, address)) {
                    let event = LinkEvent::AddressAdded { index, address };
                    self.pending.push_back(event);
                }
            }
            // Duplicate detection started over, or failed.
            None => self.handle_address_gone(message),
        }
    }

    fn handle_address_gone(&mut self, message: &AddressMessage) {
        let Some(net) = local_address(message) else {
            return;
        };
        let (index, address) = (message.header.index, net.addr());
        if self.addresses.remove(&(index, address)) {
            let event = LinkEvent::AddressRemoved { index, address };
            self.pending.push_back(event);
        }
    }

    fn handle_route(&mut self, message: &RouteMessage) {
        for route in Route::from_message(message) {
            if route.table == TABLE_MAIN && !route.is_ours() {
                let event = LinkEvent::RouteChanged {
                    index: route.device,
                };
                self.push_unless_last(event);
            }
        }
    }

    fn handle_ours_deleted(&mut self) {
        self.push_unless_last(LinkEvent::OursDeleted);
    }

    /// A table that is being rebuilt says the same a hundred times.
    fn push_unless_last(&mut self, event: LinkEvent) {
        if self.pending.back() != Some(&event) {
            self.pending.push_back(event);
        }
    }
}

fn is_overflow(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS)
}

impl Link {
    fn of(message: &LinkMessage) -> Option<Self> {
        let (mut name, mut mtu) = (None, 0);
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(found) => name = Some(found.clone()),
                LinkAttribute::Mtu(found) => mtu = *found,
                _ => {}
            }
        }
        let state = LinkState::of(message.header.flags);
        Some(Self {
            name: name?,
            state,
            mtu,
        })
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::{
        address::{AddressAttribute, AddressFlags},
        link::LinkFlags,
    };

    use super::*;
    use crate::netlink::Family;

    const UP: LinkFlags = LinkFlags::Up
        .union(LinkFlags::Running)
        .union(LinkFlags::LowerUp);

    fn link(name: &str, flags: LinkFlags) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = 3;
        message.header.flags = flags;
        message.attributes.push(LinkAttribute::IfName(name.into()));
        message
    }

    fn address(flags: AddressFlags) -> AddressMessage {
        let mut message = AddressMessage::default();
        message.header.index = 3;
        message.header.prefix_len = 64;
        message.attributes = vec![
            AddressAttribute::Address("2001:db8::1".parse().unwrap()),
            AddressAttribute::Flags(flags),
        ];
        message
    }

    fn events(messages: impl IntoIterator<Item = RouteNetlinkMessage>) -> Vec<LinkEvent> {
        let mut known = Known::default();
        for message in messages {
            known.handle_message(&message);
        }
        known.pending.into()
    }

    #[test]
    fn a_link_is_reported_when_its_state_changes_only() {
        let (name, index) = (String::from("eth1"), 3);
        let messages = [
            UP,
            UP,
            LinkFlags::Up,
            LinkFlags::empty(),
            LinkFlags::empty(),
        ]
        .map(|flags| RouteNetlinkMessage::NewLink(link("eth1", flags)));

        let down = |state| LinkEvent::Down {
            index,
            name: name.clone(),
            state,
        };
        let expected = [
            LinkEvent::Up {
                index,
                name: name.clone(),
            },
            down(LinkState::NoCarrier),
            down(LinkState::AdminDown),
        ];
        assert_eq!(events(messages), expected);
    }

    #[test]
    fn an_mtu_is_reported_when_it_changes_only() {
        let messages = [1500, 1500, 1300].map(|mtu| {
            let mut message = link("eth1", UP);
            message.attributes.push(LinkAttribute::Mtu(mtu));
            RouteNetlinkMessage::NewLink(message)
        });

        let changed = LinkEvent::MtuChanged {
            index: 3,
            mtu: 1300,
        };
        assert_eq!(events(messages)[1..], [changed]);
    }

    #[test]
    fn a_renamed_link_is_another_link() {
        let messages = ["eth1", "wan"].map(|name| RouteNetlinkMessage::NewLink(link(name, UP)));

        let up = |name: &str| LinkEvent::Up {
            index: 3,
            name: name.into(),
        };
        let gone = LinkEvent::Gone {
            index: 3,
            name: "eth1".into(),
        };
        assert_eq!(events(messages), [up("eth1"), gone, up("wan")]);
    }

    #[test]
    fn an_address_is_reported_once_it_is_usable_and_once_it_is_not() {
        let messages = [
            RouteNetlinkMessage::NewAddress(address(AddressFlags::Tentative)),
            RouteNetlinkMessage::NewAddress(address(AddressFlags::empty())),
            RouteNetlinkMessage::NewAddress(address(AddressFlags::empty())),
            RouteNetlinkMessage::DelAddress(address(AddressFlags::empty())),
            RouteNetlinkMessage::DelAddress(address(AddressFlags::empty())),
        ];

        let (index, address) = (3, "2001:db8::1".parse().unwrap());
        let expected = [
            LinkEvent::AddressAdded { index, address },
            LinkEvent::AddressRemoved { index, address },
        ];
        assert_eq!(events(messages), expected);
    }

    #[test]
    fn our_own_routes_and_rules_are_no_news_until_they_are_deleted() {
        let everything = "0.0.0.0/0".parse().unwrap();
        let mut route = Route::via_device(everything, 3, TABLE_MAIN);
        let ours = RouteNetlinkMessage::NewRoute(route.to_message());
        let ours_gone = RouteNetlinkMessage::DelRoute(route.to_message());
        route.protocol = 4;
        let theirs = RouteNetlinkMessage::DelRoute(route.to_message());

        let changed = LinkEvent::RouteChanged { index: 3 };
        assert_eq!(events([ours, theirs.clone(), theirs]), [changed]);
        assert_eq!(events([ours_gone]), [LinkEvent::OursDeleted]);

        let mut rule = Rule::lookup(Family::V6, 10_000, TABLE_MAIN);
        let ours = RouteNetlinkMessage::NewRule(rule.to_message());
        let ours_gone = RouteNetlinkMessage::DelRule(rule.to_message());
        rule.protocol = 4;
        let theirs = RouteNetlinkMessage::DelRule(rule.to_message());
        let heard = events([ours, theirs, ours_gone.clone(), ours_gone]);
        assert_eq!(heard, [LinkEvent::OursDeleted]);
    }

    #[test]
    fn a_deleted_interface_takes_its_addresses_along() {
        let gone = RouteNetlinkMessage::DelLink(link("eth1", LinkFlags::empty()));
        let added = RouteNetlinkMessage::NewAddress(address(AddressFlags::empty()));
        let messages = [
            RouteNetlinkMessage::NewLink(link("eth1", UP)),
            added.clone(),
            gone,
            added,
        ];

        let (index, address) = (3, "2001:db8::1".parse().unwrap());
        let (name, added) = ("eth1".into(), LinkEvent::AddressAdded { index, address });
        let gone = LinkEvent::Gone { index, name };
        assert_eq!(events(messages)[1..], [added.clone(), gone, added]);
    }
}
