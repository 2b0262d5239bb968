//! One worker's sockets on the edge's links.

use std::{
    error::Error,
    io, iter,
    net::IpAddr,
    time::{Duration, Instant},
};

use sennit_engine::{Edge, LinkLabel, LinkUpdate, SocketId};
use sennit_linux::{
    Instance,
    udp::{LinkBinding, LinkSocket},
};

use super::{super::worker::Io, names::Way, watch::Found};
use crate::{
    config::{self, EdgeConfig},
    status::{LinkState, LinkStatus},
};

/// All links of the config.
pub(super) struct Links {
    links: Vec<Link>,
    /// Whose marks the packets bear.
    instance: Instance,
    /// Whether the log hears of every change, and not only of what others cannot know.
    first: bool,
}

struct Link {
    config: config::Link,
    /// Addresses that its sockets are bound to, IPv4 and IPv6.
    bound: [Option<IpAddr>; 2],
    /// What is wrong with it, if anything.
    reason: Option<String>,
    /// Its packets were refused by this host.
    refusal: Option<Refusal>,
    /// Largest IP packet that its interface sends, if that was found.
    mtu: Option<u32>,
    /// Since when that is so.
    since: Instant,
}

/// This host has refused to send packets of a link.
struct Refusal {
    error: String,
    since: Instant,
    last: Instant,
}

/// A firewall that refuses some packets and lets others pass is told of for so long.
const REFUSED_LATELY: Duration = Duration::from_secs(10);

impl Links {
    /// Links that nobody has looked at yet; at the first worker or another.
    pub(super) fn new(config: &EdgeConfig, first: bool) -> Self {
        let links = config.links.iter().map(|config| Link {
            config: config.clone(),
            bound: [None; 2],
            reason: Some("not looked at yet".into()),
            refusal: None,
            mtu: None,
            since: Instant::now(),
        });
        Self {
            links: links.collect(),
            instance: Instance::of(&config.device),
            first,
        }
    }

    /// Brings the sockets in line with what was found at the interfaces.
    pub(super) fn follow(&mut self, found: &[Found], edge: &mut Edge, io: &mut Io, now: Instant) {
        for (index, (link, found)) in self.links.iter_mut().zip(found).enumerate() {
            let before = (link.bound, link.reason.clone());
            link.follow(found, index, self.instance, io);
            let resized = std::mem::replace(&mut link.mtu, found.mtu) != found.mtu;
            if before == (link.bound, link.reason.clone()) {
                if resized {
                    edge.handle_link(link.update(index), now);
                }
            } else {
                link.since = now;
                if self.first || link.reason != found.complaint {
                    link.log();
                }
                edge.handle_link(link.update(index), now);
            }
        }
    }

    /// How packets leave by each link, with what was found at its interface.
    pub(super) fn ways(&self, found: &[Found]) -> Vec<Way> {
        let links = self.links.iter().zip(found).enumerate();
        let ways = links.map(|(index, (link, found))| Way {
            socket: SocketId(index as u32),
            device: link.config.interface.clone(),
            sources: found.sources,
            mark: self.instance.link_mark(index).ok(),
        });
        ways.filter(|way| way.sources.iter().any(Option::is_some))
            .collect()
    }

    /// Tells a new engine of all links.
    pub(super) fn announce(&self, edge: &mut Edge, now: Instant) {
        for (index, link) in self.links.iter().enumerate() {
            edge.handle_link(link.update(index), now);
        }
    }

    pub(super) fn status(&self, now: Instant) -> Vec<LinkStatus> {
        self.links.iter().map(|link| link.status(now)).collect()
    }

    /// This host has refused to send packets of a link, other than because the link is down.
    pub(super) fn handle_refusal(&mut self, index: usize, error: &io::Error, now: Instant) {
        let Some(link) = self.links.get_mut(index) else {
            return;
        };
        match &mut link.refusal {
            Some(refusal) if now.saturating_duration_since(refusal.last) < REFUSED_LATELY => {
                refusal.last = now;
            }
            refusal => {
                tracing::warn!(link = link.config.name, %error, "the local firewall refuses to send");
                *refusal = Some(Refusal {
                    error: error.to_string(),
                    since: now,
                    last: now,
                });
            }
        }
    }

    /// Puts sockets with other ports in place of a link's.
    pub(super) fn renew(&mut self, id: SocketId, io: &mut Io) {
        let index = id.0 as usize;
        let Some(link) = self.links.get(index) else {
            return;
        };
        for address in link.bound.into_iter().flatten() {
            let renewed = link
                .open(address, index, self.instance)
                .map_err(|error| explain(&error))
                .and_then(|socket| {
                    let set = io.set_socket(id, address, Some(socket));
                    set.map_err(|error| error.to_string())
                });
            // The one so far stays.
            if let Err(error) = renewed {
                tracing::warn!(link = link.config.name, error, "cannot bind another port");
            }
        }
    }

    /// That this host refuses to send on a link of this name, in words.
    pub(super) fn refusal(&self, name: &str, now: Instant) -> Option<String> {
        let link = self.links.iter().find(|link| link.config.name == name)?;
        link.refused(now)
    }
}

impl Link {
    fn follow(&mut self, found: &Found, index: usize, instance: Instance, io: &mut Io) {
        self.reason.clone_from(&found.complaint);
        for address in found.sources.into_iter().flatten() {
            self.bind(address, index, instance, io);
        }
        for (family, any) in [(0, IpAddr::from([0; 4])), (1, IpAddr::from([0; 16]))] {
            if found.sources[family].is_none() && self.bound[family].take().is_some() {
                drop_socket(index, any, io);
            }
        }
    }

    /// Binds a socket to `address` unless there is one.
    fn bind(&mut self, address: IpAddr, index: usize, instance: Instance, io: &mut Io) {
        let family = usize::from(address.is_ipv6());
        if self.bound[family] == Some(address) {
            return;
        }
        match self.open(address, index, instance) {
            Ok(socket) => {
                if let Err(error) = io.set_socket(SocketId(index as u32), address, Some(socket)) {
                    self.reason = Some(format!("cannot watch the socket: {error}"));
                    return;
                }
                self.bound[family] = Some(address);
            }
            Err(error) => {
                self.bound[family] = None;
                self.reason = Some(explain(&error));
            }
        }
    }

    /// A socket with a port of the kernel's choice.
    fn open(
        &self,
        address: IpAddr,
        index: usize,
        instance: Instance,
    ) -> Result<LinkSocket, sennit_linux::Error> {
        let mark = instance.link_mark(index)?;
        LinkSocket::bind(&LinkBinding {
            device: &self.config.interface,
            address,
            mark: Some(mark),
        })
    }

    fn update(&self, index: usize) -> LinkUpdate {
        LinkUpdate {
            socket: SocketId(index as u32),
            label: LinkLabel {
                name: self.config.name.clone(),
                tier: self.config.tier,
                weight: self.config.weight,
            },
            v4: self.bound[0].is_some(),
            v6: self.bound[1].is_some(),
            mtu: self.mtu,
        }
    }

    fn log(&self) {
        let config::Link {
            name, interface, ..
        } = &self.config;
        match &self.reason {
            Some(reason) => tracing::warn!(link = name, interface, reason, "link is down"),
            None => tracing::info!(link = name, interface, "link is up"),
        }
    }

    fn refused(&self, now: Instant) -> Option<String> {
        let Refusal { error, since, last } = self.refusal.as_ref()?;
        let lately = now.saturating_duration_since(*last) < REFUSED_LATELY;
        let seconds = now.saturating_duration_since(*since).as_secs();
        lately.then(|| {
            format!("for {seconds} s the local firewall has refused to send on this link ({error})")
        })
    }

    fn status(&self, now: Instant) -> LinkStatus {
        let up = self.bound.iter().any(Option::is_some);
        LinkStatus {
            name: self.config.name.clone(),
            interface: self.config.interface.clone(),
            address: self.bound[0].or(self.bound[1]),
            tier: self.config.tier,
            weight: self.config.weight,
            state: if up { LinkState::Up } else { LinkState::Down },
            reason: self.reason.clone(),
            hub: self.refused(now),
            since_seconds: now.saturating_duration_since(self.since).as_secs_f64(),
        }
    }
}

/// An error and what caused it.
pub(super) fn explain(error: &dyn Error) -> String {
    let causes = iter::successors(Some(error), |&error| error.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

fn drop_socket(index: usize, family_of: IpAddr, io: &mut Io) {
    if let Err(error) = io.set_socket(SocketId(index as u32), family_of, None) {
        tracing::warn!(link = index, %error, "cannot stop watching a socket");
    }
}
