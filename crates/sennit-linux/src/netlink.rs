//! Links, addresses, routes and rules, by rtnetlink.
//!
//! [`Netlink`] is the blocking side for setting things up: each call sends one request and waits
//! for the kernel's answer, which comes at once. [`Monitor`] is the non-blocking side: a worker
//! polls it and learns what happens to the links. Both see the network namespace of the thread
//! that opened them.

mod interface;
mod monitor;
mod route;
mod rule;

use std::{io, net::IpAddr, os::fd::OwnedFd};

use ipnet::IpNet;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST,
    NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressMessage, AddressProtocol},
    link::{AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkFlags, LinkMessage},
    route::{RouteAttribute, RouteMessage},
};
use rustix::net::{
    AddressFamily as SocketFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind,
    netlink::SocketAddrNetlink, recv, send, socket_with,
};
use serde::{Deserialize, Serialize};

pub use self::{
    interface::{HostAddress, Interface, InterfaceAddress, LinkState},
    monitor::{LinkEvent, Monitor},
    route::{Route, TABLE_MAIN},
    rule::{Rule, Selector},
};
use crate::{Error, error::Doing, sys};

/// The mark on every route, rule and address that Sennit adds: the route protocol number.
/// `ip route show table all proto 83` lists them.
pub const PROTOCOL: u8 = 83;

/// Larger than the 32 KiB that the kernel puts into one datagram at most.
const BUFFER: usize = 65_536;

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }

    /// Everything: `0.0.0.0/0` or `::/0`.
    pub fn default_prefix(self) -> IpNet {
        match self {
            Self::V4 => IpNet::V4(ipnet::Ipv4Net::default()),
            Self::V6 => IpNet::V6(ipnet::Ipv6Net::default()),
        }
    }
}

impl From<Family> for AddressFamily {
    fn from(family: Family) -> Self {
        match family {
            Family::V4 => Self::Inet,
            Family::V6 => Self::Inet6,
        }
    }
}

/// A blocking connection to the kernel's routing configuration.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    pub fn open() -> Result<Self, Error> {
        let socket =
            open_socket(0, SocketFlags::empty()).doing(|| "open a netlink socket".into())?;
        // Before Linux 4.20 dumps come unfiltered; readers filter anyway.
        let _ = sys::netlink_filter_dumps(&socket);
        Ok(Self {
            socket,
            sequence: 0,
            buffer: vec![0; BUFFER],
        })
    }

    /// Brings an interface up that holds so many packets until they are taken.
    pub(crate) fn set_up(&mut self, index: u32, mtu: u32, queue: u32) -> Result<(), Error> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        message.attributes = vec![LinkAttribute::Mtu(mtu), LinkAttribute::TxQueueLen(queue)];
        self.change(RouteNetlinkMessage::SetLink(message), 0)
            .doing(|| format!("bring interface {index} up"))
    }

    /// Sets the MTU of an interface.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> Result<(), Error> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes.push(LinkAttribute::Mtu(mtu));
        self.change(RouteNetlinkMessage::SetLink(message), 0)
            .doing(|| format!("set the MTU of interface {index} to {mtu}"))
    }

    /// Keeps the kernel from giving a tunnel device an address of its own and talking from it:
    /// router solicitations have no business in the tunnel. Nothing happens without IPv6.
    pub(crate) fn suppress_link_local(&mut self, index: u32) {
        let mut message = LinkMessage::default();
        message.header.index = index;
        let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        message.attributes = vec![LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(
            vec![mode],
        )])];
        if let Err(error) = self.change(RouteNetlinkMessage::SetLink(message), 0) {
            tracing::debug!(%error, index, "no IPv6 on the tunnel device");
        }
    }

    /// Gives an interface an address with the length of its prefix; having it already is fine, and
    /// so is IPv6 on a host without it, here as for routes and rules: false then.
    pub fn add_address(&mut self, index: u32, address: IpNet) -> Result<bool, Error> {
        let message = RouteNetlinkMessage::NewAddress(address_message(index, address));
        let outcome = self.change(message, NLM_F_CREATE | NLM_F_REPLACE);
        unless_absent(Family::of(address.addr()), outcome)
            .doing(|| format!("add address {address} to interface {index}"))
    }

    /// Takes an address away; not having it is fine.
    pub fn delete_address(&mut self, index: u32, address: IpNet) -> Result<(), Error> {
        let message = RouteNetlinkMessage::DelAddress(address_message(index, address));
        unless(
            &[libc::EADDRNOTAVAIL, libc::ENODEV],
            self.change(message, 0),
        )
        .doing(|| format!("delete address {address} from interface {index}"))
    }

    /// Adds a route, replacing one with the same prefix, table and metric; false if the host does
    /// not have its family.
    pub fn add_route(&mut self, route: &Route) -> Result<bool, Error> {
        let message = RouteNetlinkMessage::NewRoute(route.to_message());
        let outcome = self.change(message, NLM_F_CREATE | NLM_F_REPLACE);
        unless_absent(route.family(), outcome).doing(|| format!("add route {route}"))
    }

    /// Deletes a route; one that does not exist is fine.
    pub fn delete_route(&mut self, route: &Route) -> Result<(), Error> {
        let message = RouteNetlinkMessage::DelRoute(route.to_message());
        unless(&[libc::ESRCH, libc::ENODEV], self.change(message, 0))
            .doing(|| format!("delete route {route}"))
    }

    /// The unicast routes of one family in one table that lead out of one interface.
    pub fn routes(&mut self, family: Family, table: u32, device: u32) -> Result<Vec<Route>, Error> {
        let filter = vec![RouteAttribute::Table(table), RouteAttribute::Oif(device)];
        let mut routes = self.query_routes(Route::query(family, filter))?;
        routes.retain(|route| route.table == table && route.device == device);
        Ok(routes)
    }

    /// The unicast routes of one family in the main table.
    pub fn main_routes(&mut self, family: Family) -> Result<Vec<Route>, Error> {
        let filter = vec![RouteAttribute::Table(TABLE_MAIN)];
        let mut routes = self.query_routes(Route::query(family, filter))?;
        routes.retain(|route| route.table == TABLE_MAIN);
        Ok(routes)
    }

    /// The routes of one family that carry our mark, in all tables.
    pub fn our_routes(&mut self, family: Family) -> Result<Vec<Route>, Error> {
        let mut query = Route::query(family, Vec::new());
        query.header.protocol = PROTOCOL.into();
        let mut routes = self.query_routes(query)?;
        routes.retain(Route::is_ours);
        Ok(routes)
    }

    fn query_routes(&mut self, query: RouteMessage) -> Result<Vec<Route>, Error> {
        let replies = match self.dump(RouteNetlinkMessage::GetRoute(query)) {
            // How a filtered dump says that this table is empty, or the family unknown.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENOENT | libc::EAFNOSUPPORT)
                ) =>
            {
                Vec::new()
            }
            replies => replies.doing(|| "list the routes".into())?,
        };
        let routes = replies.iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewRoute(message) => Some(Route::from_message(message)),
            _ => None,
        });
        Ok(routes.flatten().collect())
    }

    /// Whether what is sent to an address from here stays on this host, or goes to a whole network
    /// at once: as the kernel routes it now, whatever addresses interfaces are known to have.
    ///
    /// # Errors
    /// Also if there is no way to the address.
    pub fn is_for_host(&mut self, address: IpAddr) -> Result<bool, Error> {
        let replies = self
            .query(RouteNetlinkMessage::GetRoute(route::query_to(address)))
            .doing(|| format!("look up the way to {address}"))?;
        let mut kinds = replies.iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewRoute(message) => Some(route::is_for_host(message)),
            _ => None,
        });
        Ok(kinds.next().unwrap_or(true))
    }

    /// Adds a routing rule; having it already is fine. False if the host does not have its family.
    pub fn add_rule(&mut self, rule: &Rule) -> Result<bool, Error> {
        let message = RouteNetlinkMessage::NewRule(rule.to_message());
        let outcome = self.change(message, NLM_F_CREATE | NLM_F_EXCL);
        unless_absent(rule.family, unless(&[libc::EEXIST], outcome))
            .doing(|| format!("add rule {rule}"))
    }

    /// Deletes a routing rule; one that does not exist is fine.
    pub fn delete_rule(&mut self, rule: &Rule) -> Result<(), Error> {
        let message = RouteNetlinkMessage::DelRule(rule.to_message());
        unless(&[libc::ENOENT], self.change(message, 0)).doing(|| format!("delete rule {rule}"))
    }

    /// The routing rules of one family; none if the kernel does not have it.
    pub fn rules(&mut self, family: Family) -> Result<Vec<Rule>, Error> {
        let replies = match self.dump(RouteNetlinkMessage::GetRule(Rule::query(family))) {
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => Vec::new(),
            replies => replies.doing(|| "list the routing rules".into())?,
        };
        let rules = replies.iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewRule(message) => Some(Rule::from_message(message)),
            _ => None,
        });
        Ok(rules.collect())
    }

    /// Sends a request that changes something, and waits for its acknowledgement.
    fn change(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.exchange(message, NLM_F_ACK | flags).map(drop)
    }

    /// Asks for one object.
    fn query(&mut self, message: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.exchange(message, NLM_F_ACK)
    }

    /// Asks for all objects of a kind, again if they changed meanwhile.
    fn dump(&mut self, message: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        /// A table that changes all the time is still better known roughly than not at all.
        const ATTEMPTS: usize = 5;
        for _ in 1..ATTEMPTS {
            match self.exchange(message.clone(), NLM_F_DUMP) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => return outcome,
            }
        }
        self.exchange(message, NLM_F_DUMP)
    }

    fn exchange(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.sequence_number = self.sequence;
        header.flags = NLM_F_REQUEST | flags;
        let mut request = NetlinkMessage::new(header, message.into());
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        send(&self.socket, &bytes, SendFlags::empty())?;
        self.collect_replies()
    }

    /// Reads up to the acknowledgement, the end of the dump, or the refusal.
    fn collect_replies(&mut self) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut replies = Vec::new();
        let mut interrupted = false;
        loop {
            let received = receive(&self.socket, &mut self.buffer)?;
            for message in messages(received) {
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
                match message.payload {
                    NetlinkPayload::InnerMessage(inner) => replies.push(inner),
                    NetlinkPayload::Error(refusal) if refusal.code.is_some() => {
                        return Err(refusal.to_io());
                    }
                    NetlinkPayload::Error(_) | NetlinkPayload::Done(_) if interrupted => {
                        return Err(io::ErrorKind::Interrupted.into());
                    }
                    NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(replies),
                    _ => {}
                }
            }
        }
    }
}

/// A routing socket that hears the multicast groups in `groups`.
fn open_socket(groups: u32, flags: SocketFlags) -> io::Result<OwnedFd> {
    let socket = socket_with(
        SocketFamily::NETLINK,
        SocketType::RAW,
        flags | SocketFlags::CLOEXEC,
        None,
    )?;
    bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// Reads one datagram, waiting for it if the socket is blocking.
fn receive<'a>(socket: &OwnedFd, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let (len, _) = rustix::io::retry_on_intr(|| recv(socket, &mut *buffer, RecvFlags::empty()))?;
    Ok(&buffer[..len])
}

/// The messages of one datagram; those that cannot be understood are left out.
fn messages(mut datagram: &[u8]) -> impl Iterator<Item = NetlinkMessage<RouteNetlinkMessage>> + '_ {
    std::iter::from_fn(move || {
        loop {
            let length = u32::from_ne_bytes(*datagram.first_chunk()?) as usize;
            let message = datagram.get(..length)?;
            datagram = datagram
                .get(length.next_multiple_of(4).max(16)..)
                .unwrap_or_default();
            match NetlinkMessage::deserialize(message) {
                Ok(message) => return Some(message),
                Err(error) => tracing::debug!(%error, "unknown netlink message"),
            }
        }
    })
}

/// Treats the given refusals as success.
fn unless(fine: &[i32], outcome: io::Result<()>) -> io::Result<()> {
    let code = |error: &io::Error| error.raw_os_error().unwrap_or_default();
    match outcome {
        Err(error) if fine.contains(&code(&error)) => Ok(()),
        outcome => outcome,
    }
}

/// Treats it as no failure that a host without IPv6, or with IPv6 switched off, refuses to use it;
/// false then.
fn unless_absent(family: Family, outcome: io::Result<()>) -> io::Result<bool> {
    const ABSENT: [i32; 3] = [libc::EAFNOSUPPORT, libc::EOPNOTSUPP, libc::EACCES];
    let is_absence =
        |error: &io::Error| error.raw_os_error().is_some_and(|it| ABSENT.contains(&it));
    match outcome {
        Err(error) if family == Family::V6 && is_absence(&error) => Ok(false),
        outcome => outcome.map(|()| true),
    }
}

fn address_message(index: u32, address: IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.index = index;
    message.header.prefix_len = address.prefix_len();
    message.header.family = Family::of(address.addr()).into();
    message.attributes = vec![
        AddressAttribute::Local(address.addr()),
        AddressAttribute::Address(address.addr()),
        // Nobody on a tunnel can have the same address: it is usable at once.
        AddressAttribute::Flags(AddressFlags::Nodad),
        AddressAttribute::Protocol(AddressProtocol::Other(PROTOCOL)),
    ];
    message
}
