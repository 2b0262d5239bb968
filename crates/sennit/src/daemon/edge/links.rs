//! One worker's sockets on the edge's links.

mod rank;
#[cfg(test)]
mod tests;
mod words;

use std::{
    collections::BTreeSet,
    io,
    net::IpAddr,
    time::{Duration, Instant},
};

use super::{
    super::worker::Io,
    causes::explain,
    ground::Ground,
    running::Running,
    watch::{Complaint, Found},
    way::Way,
};
use crate::{
    config,
    control::LinkOrder,
    daemon::why::Standing,
    journal::{Event, Journal},
    status::{LinkCause, LinkStatus},
};
use sennit_engine::{Edge, LinkLabel, LinkUpdate, SocketId};

/// All links of the config.
pub(super) struct Links {
    /// By their numbers; a place may be empty.
    links: Vec<Option<Link>>,
    /// Sockets of links that were taken out of the config: what is on its way to them still counts.
    leaving: Vec<(SocketId, Instant)>,
    /// Names of those that have used up their caps.
    over: BTreeSet<String>,
    /// Those that help others which are full.
    helpers: BTreeSet<String>,
    /// When the interfaces are to be looked at again, without news of the kernel.
    look_at: Option<Instant>,
    ground: Ground,
    /// Whether the log hears of every change, and not only of what others cannot know.
    first: bool,
    journal: Journal,
}

struct Link {
    config: config::Link,
    /// What its sockets are bound to, IPv4 and IPv6.
    bound: [Option<Bound>; 2],
    /// What they were bound to last, and how often one of these was replaced by another.
    last: [Option<Bound>; 2],
    moves: u32,
    /// What is wrong with it, if anything.
    complaint: Option<Complaint>,
    /// Its packets were refused by this host.
    refusal: Option<Refusal>,
    /// Its operator wants it to carry nothing.
    paused: bool,
    /// Its tier, as costs and caps make it.
    rank: u8,
    /// What made it so.
    standing: Standing,
    /// It loses everything until then, as its operator wants to see what happens.
    cut_until: Option<Instant>,
    /// It carries nothing until then, as another is measured.
    rests_until: Option<Instant>,
    /// Largest IP packet that its interface sends, if that was found.
    mtu: Option<u32>,
    /// Since when that is so.
    since: Instant,
}

/// What a socket is bound to: an interface that is made anew has another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    address: IpAddr,
    interface: u32,
}

/// This host has refused to send packets of a link.
struct Refusal {
    error: String,
    since: Instant,
    last: Instant,
}

/// Sockets outlive their links for so long: more than any round trip.
const LEAVING: Duration = Duration::from_secs(2);
/// Why a link is down whose operator wants it so.
pub(crate) const PAUSED: &str = "paused by the operator";
/// Why a link is down that rests.
const RESTS: &str = "it rests while another link is measured";
/// What this host has refused for a link, as when it is short of descriptors or memory, is asked
/// for again after this.
const AGAIN: Duration = Duration::from_secs(5);
/// A firewall that refuses some packets and lets others pass is told of for so long.
const REFUSED_LATELY: Duration = Duration::from_secs(10);

impl Links {
    /// Links that nobody has looked at yet; at the first worker or another.
    pub(super) fn new(running: &Running, first: bool, journal: Journal, ground: Ground) -> Self {
        let links = running.links.iter().map(|it| it.as_ref().map(Link::new));
        let mut all = Self {
            links: links.collect(),
            leaving: Vec::new(),
            over: BTreeSet::new(),
            helpers: BTreeSet::new(),
            look_at: None,
            ground,
            first,
            journal,
        };
        all.order();
        all
    }

    /// Goes on with other links, each in its place.
    pub(super) fn change(
        &mut self,
        wanted: &[Option<config::Link>],
        (edge, io): (&mut Edge, &mut Io),
        now: Instant,
    ) {
        self.links.resize_with(wanted.len(), || None);
        for (index, (place, wanted)) in self.links.iter_mut().zip(wanted).enumerate() {
            let socket = SocketId(index as u32);
            match (place.as_mut(), wanted) {
                (Some(link), Some(wanted)) if link.config == *wanted => {}
                (Some(link), Some(wanted)) if link.config.name == wanted.name => {
                    link.reconfigure(wanted);
                    edge.handle_link(link.update(index), now);
                }
                (before, wanted) => {
                    if before.is_some() {
                        edge.remove_link(socket, now);
                        self.leaving.push((socket, now + LEAVING));
                    }
                    if wanted.is_some() {
                        self.leaving.retain(|(other, _)| *other != socket);
                    }
                    // A drill is of a link, and not of its place.
                    io.set_cut(socket, false);
                    if let Some(link) = place.as_ref().filter(|it| it.cut_until.is_some())
                        && self.first
                    {
                        link.tell_drill(false, &self.journal);
                    }
                    *place = wanted.as_ref().map(Link::new);
                }
            }
        }
        self.rank(edge, now);
    }

    /// The links that there are, with their numbers.
    fn all(&self) -> impl Iterator<Item = (usize, &Link)> {
        let places = self.links.iter().enumerate();
        places.filter_map(|(index, place)| Some((index, place.as_ref()?)))
    }

    fn all_mut(&mut self) -> impl Iterator<Item = (usize, &mut Link)> {
        let places = self.links.iter_mut().enumerate();
        places.filter_map(|(index, place)| Some((index, place.as_mut()?)))
    }

    /// Brings the sockets in line with what was found at the interfaces.
    pub(super) fn follow(&mut self, found: &[Found], edge: &mut Edge, io: &mut Io, now: Instant) {
        let (ground, first) = (self.ground.clone(), self.first);
        let journal = self.journal.clone();
        let mut is_refused = false;
        for (index, link) in self.all_mut() {
            let Some(found) = found.get(index) else {
                continue;
            };
            let before = (link.bound, link.complaint.clone());
            link.follow(found, index, &ground, io);
            is_refused |= found.is_unrouted || link.is_refused();
            let resized = std::mem::replace(&mut link.mtu, found.mtu) != found.mtu;
            if before == (link.bound, link.complaint.clone()) {
                if resized {
                    edge.handle_link(link.update(index), now);
                }
            } else {
                link.since = now;
                if first || link.complaint != found.complaint {
                    link.log();
                    journal.note(link.event());
                }
                edge.handle_link(link.update(index), now);
            }
        }
        self.look_at = is_refused.then(|| now + AGAIN);
    }

    /// Whether the interfaces are to be looked at again now.
    pub(super) fn is_to_look(&mut self, now: Instant) -> bool {
        self.look_at.take_if(|at| *at <= now).is_some()
    }

    /// The number of the link with this name.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        let mut all = self.all();
        all.find(|(_, link)| link.config.name == name)
            .map(|(index, _)| index)
    }

    /// Why the link of this name carries nothing although its interface is well, if it is so.
    pub(super) fn off(&self, name: &str) -> Option<&'static str> {
        let mut all = self.all();
        all.find(|(_, link)| link.config.name == name)
            .and_then(|(_, link)| link.off())
    }

    /// Does what the operator wants of a link.
    pub(super) fn handle_order(
        &mut self,
        index: usize,
        order: LinkOrder,
        (edge, io): (&mut Edge, &mut Io),
        now: Instant,
    ) {
        let socket = SocketId(index as u32);
        let Some(link) = self.links.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        match order {
            LinkOrder::Describe => {}
            LinkOrder::Pause | LinkOrder::Resume => {
                let pause = order == LinkOrder::Pause;
                if std::mem::replace(&mut link.paused, pause) != pause {
                    link.since = now;
                    if self.first {
                        tracing::info!(link = link.config.name, pause, "the operator has spoken");
                        let link = link.config.name.clone();
                        self.journal.note(match pause {
                            true => Event::LinkPaused { link },
                            false => Event::LinkResumed { link },
                        });
                    }
                    edge.handle_link(link.update(index), now);
                }
            }
            LinkOrder::Cut { milliseconds } => {
                let until = now + Duration::from_millis(milliseconds.into());
                let cut = until > now;
                if link.cut_until.is_some() != cut && self.first {
                    link.tell_drill(cut, &self.journal);
                }
                link.cut_until = cut.then_some(until);
                io.set_cut(socket, cut);
            }
            LinkOrder::Rest { milliseconds } => {
                let until = now + Duration::from_millis(milliseconds.into());
                let rests_until = Some(until).filter(|until| *until > now);
                let was_resting = std::mem::replace(&mut link.rests_until, rests_until);
                if was_resting.is_some() != rests_until.is_some() {
                    link.since = now;
                    edge.handle_link(link.update(index), now);
                }
            }
        }
    }

    /// Ends cuts and rests whose time is over, and closes the sockets of links that are gone.
    pub(super) fn handle_timeout(&mut self, edge: &mut Edge, io: &mut Io, now: Instant) {
        for (socket, _) in self.leaving.extract_if(.., |(_, at)| *at <= now) {
            for any in [IpAddr::from([0; 4]), IpAddr::from([0; 16])] {
                drop_socket(socket.0 as usize, any, io);
            }
        }
        let journal = self.first.then(|| self.journal.clone());
        for (index, link) in self.all_mut() {
            if link.cut_until.take_if(|until| *until <= now).is_some() {
                io.set_cut(SocketId(index as u32), false);
                journal.iter().for_each(|it| link.tell_drill(false, it));
            }
            if link.rests_until.take_if(|until| *until <= now).is_some() {
                link.since = now;
                edge.handle_link(link.update(index), now);
            }
        }
    }

    /// When [`Self::handle_timeout`] has something to do, or [`Self::is_to_look`].
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let leaving = self.leaving.iter().map(|(_, at)| *at);
        let timed = self.all();
        let timed = timed.flat_map(|(_, link)| [link.cut_until, link.rests_until]);
        timed.flatten().chain(leaving).chain(self.look_at).min()
    }

    /// How packets leave by each link, with what was found at its interface.
    pub(super) fn ways(&self, found: &[Found]) -> Vec<Way> {
        let links = self.all().filter(|(_, link)| link.off().is_none());
        let ways = links.filter_map(|(index, link)| {
            let found = found.get(index)?;
            Some(Way {
                socket: SocketId(index as u32),
                device: link.config.interface.clone(),
                index: found.interface,
                sources: found.sources,
                mark: self.ground.mark(index).ok(),
            })
        });
        ways.filter(|way| way.sources.iter().any(Option::is_some))
            .collect()
    }

    /// Tells a new engine of all links.
    pub(super) fn announce(&self, edge: &mut Edge, now: Instant) {
        for (index, link) in self.all() {
            edge.handle_link(link.update(index), now);
        }
    }

    /// The state of each link, with its number.
    pub(super) fn status(&self, now: Instant) -> Vec<(SocketId, LinkStatus)> {
        let first = self.all().map(|(_, link)| link.rank).min().unwrap_or(0);
        let each =
            |(index, link): (usize, &Link)| (SocketId(index as u32), link.status(first, now));
        self.all().map(each).collect()
    }

    /// This host has refused to send packets of a link, other than because the link is down.
    pub(super) fn handle_refusal(&mut self, index: usize, error: &io::Error, now: Instant) {
        let Some(link) = self.links.get_mut(index).and_then(Option::as_mut) else {
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
        let Some(link) = self.links.get(index).and_then(Option::as_ref) else {
            return;
        };
        for Bound { address, .. } in link.bound.into_iter().flatten() {
            let interface = &link.config.interface;
            let renewed = self
                .ground
                .open(index, interface, address)
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

    /// The links on which this host refuses to send, and that in words.
    pub(super) fn refusals(&self, now: Instant) -> Vec<(String, String)> {
        let refused =
            |(_, link): (usize, &Link)| Some((link.config.name.clone(), link.refused(now)?));
        self.all().filter_map(refused).collect()
    }
}

impl Link {
    fn new(config: &config::Link) -> Self {
        Self {
            config: config.clone(),
            bound: [None; 2],
            last: [None; 2],
            moves: 0,
            complaint: Some(Complaint {
                cause: LinkCause::NotLookedAt,
                text: "not looked at yet".into(),
            }),
            refusal: None,
            paused: false,
            rank: config.tier,
            standing: Standing {
                over: false,
                tier: config.tier,
                cost: config.cost,
            },
            cut_until: None,
            rests_until: None,
            mtu: None,
            since: Instant::now(),
        }
    }

    /// Under its name, it is to be something else.
    fn reconfigure(&mut self, wanted: &config::Link) {
        if self.config.interface != wanted.interface {
            self.bound = [None; 2];
        }
        self.config = wanted.clone();
    }

    fn follow(&mut self, found: &Found, index: usize, ground: &Ground, io: &mut Io) {
        self.complaint.clone_from(&found.complaint);
        let interface = found.interface;
        for address in found.sources.into_iter().flatten() {
            self.bind(Bound { address, interface }, index, ground, io);
        }
        for (family, any) in [(0, IpAddr::from([0; 4])), (1, IpAddr::from([0; 16]))] {
            if found.sources[family].is_none() {
                // It may be of another interface, or of a link that had this place.
                self.bound[family] = None;
                drop_socket(index, any, io);
            }
        }
    }

    /// Whether it cannot be used because this host does not let us.
    fn is_refused(&self) -> bool {
        let complaint = self.complaint.as_ref();
        complaint.is_some_and(|it| it.cause == LinkCause::Unusable)
    }

    /// Binds a socket there unless there is one.
    fn bind(&mut self, to: Bound, index: usize, ground: &Ground, io: &mut Io) {
        let address = to.address;
        let family = usize::from(address.is_ipv6());
        if self.bound[family] == Some(to) {
            return;
        }
        match ground.open(index, &self.config.interface, address) {
            Ok(socket) => {
                if let Err(error) = io.set_socket(SocketId(index as u32), address, Some(socket)) {
                    self.complaint = unusable(format!("cannot watch the socket: {error}"));
                    return;
                }
                self.bound[family] = Some(to);
                let last = self.last[family].replace(to);
                let moved = last.is_some_and(|last| last != to);
                self.moves = self.moves.wrapping_add(moved.into());
            }
            Err(error) => {
                self.bound[family] = None;
                self.complaint = unusable(explain(&error));
            }
        }
    }

    fn update(&self, index: usize) -> LinkUpdate {
        LinkUpdate {
            socket: SocketId(index as u32),
            label: LinkLabel {
                name: self.config.name.clone(),
                tier: self.rank,
                weight: self.config.weight,
            },
            v4: self.bound[0].is_some() && self.off().is_none(),
            v6: self.bound[1].is_some() && self.off().is_none(),
            moves: self.moves,
            mtu: self.mtu,
            paused: self.off().is_some(),
        }
    }
}

/// This host does not let us use a link.
fn unusable(text: String) -> Option<Complaint> {
    let cause = LinkCause::Unusable;
    Some(Complaint { cause, text })
}

fn drop_socket(index: usize, family_of: IpAddr, io: &mut Io) {
    if let Err(error) = io.set_socket(SocketId(index as u32), family_of, None) {
        tracing::warn!(link = index, %error, "cannot stop watching a socket");
    }
}
