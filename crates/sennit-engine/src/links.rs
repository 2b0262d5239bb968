//! The links of an edge, or of all edges of a hub, as the classes share them.
//!
//! Each class has a path of its own on each link, with its own congestion control; what they have
//! in common is the [`Link`]: who uses it, what all of them deliver there together, what went over
//! it, and how they share it. Which connection is asked first is decided by [`crate::turns`]; how
//! much it may send on a link is decided by [`crate::sharing`], which a [`Seat`] asks.

use std::{
    collections::BTreeMap,
    ops::Bound::{Included, Unbounded},
    sync::Arc,
    time::Instant,
};

use sennit_core::{ClassId, frame::Fare};
use sennit_packet::Bitrate;

use crate::{
    facts::{LinkFacts, PathShare},
    ids::{ConnId, LinkId, SiteId, SocketId},
    sharing::{self, Grant, Load, Look, RoundTrips, Sharing, Spent, Tins},
    transport::MOST_LINKS,
};

/// By what a link is known again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// An edge knows its own by their sockets.
    Socket(SocketId),
    /// A hub knows those of a site by their names.
    Named(SiteId, String),
}

impl Key {
    fn site(&self) -> Option<&SiteId> {
        match self {
            Self::Socket(_) => None,
            Self::Named(site, _) => Some(site),
        }
    }

    fn owner(&self) -> Option<SiteId> {
        self.site().cloned()
    }
}

/// How classes share a link.
#[derive(Clone, Debug)]
struct Shared {
    sharing: Arc<Sharing>,
    tins: Arc<Tins>,
}

/// One link.
#[derive(Debug)]
struct Link {
    key: Key,
    name: String,
    /// Without it each sends what its own congestion control allows, and they meet in the link's
    /// queue.
    shared: Option<Shared>,
    /// The tunnels with a path on it.
    users: BTreeMap<ConnId, User>,
    sent_bytes: u64,
    received_bytes: u64,
}

impl Link {
    /// One that nobody uses yet.
    fn new(key: Key) -> Self {
        Self {
            key,
            name: String::new(),
            shared: None,
            users: BTreeMap::new(),
            sent_bytes: 0,
            received_bytes: 0,
        }
    }

    /// Its classes share it so from now on, or not at all.
    fn share(&mut self, sharing: Option<&Arc<Sharing>>) {
        let classes = self.users.values().map(|user| user.class);
        if let Some(Shared { tins, .. }) = &self.shared {
            classes.clone().for_each(|class| tins.leave(class));
        }
        self.shared = sharing.map(|sharing| Shared {
            tins: sharing.link(&self.name),
            sharing: Arc::clone(sharing),
        });
        if let Some(Shared { tins, .. }) = &self.shared {
            classes.for_each(|class| tins.enter(class));
        }
    }
}

/// A tunnel with a path on a link.
#[derive(Clone, Copy, Debug)]
struct User {
    class: ClassId,
    /// What its path delivered when it was last looked at, in bytes per second.
    delivers: u64,
}

/// All links.
#[derive(Debug, Default)]
pub(crate) struct Links {
    all: BTreeMap<LinkId, Link>,
    by_key: BTreeMap<Key, LinkId>,
    /// Those that a tunnel has paths on, so that a site which names its links anew costs nothing
    /// for those of others.
    by_conn: BTreeMap<ConnId, Vec<LinkId>>,
    next: u32,
    /// How links are shared: an edge's own, and on a hub those of its sites.
    sharings: BTreeMap<Option<SiteId>, Arc<Sharing>>,
}

/// The links as one tunnel sees them.
#[derive(Debug)]
pub(crate) struct Seat<'a> {
    links: &'a mut Links,
    conn: ConnId,
    class: ClassId,
}

impl Seat<'_> {
    /// What it may send on a link now.
    pub(crate) fn grant(&self, link: LinkId, look: Look, now: Instant) -> Grant {
        match self.shared(link) {
            Some(Shared { sharing, tins }) => sharing.grant(tins, self.class, look, now),
            None => Grant::ALL,
        }
    }

    /// It was `due` for what a link grants, and has come only now.
    pub(crate) fn note_lateness(&self, link: LinkId, due: Instant, now: Instant) {
        if let Some(Shared { sharing, .. }) = self.shared(link) {
            sharing.note_lateness(due, now);
        }
    }

    /// It was told to wait for a link, and has nothing to send any more.
    pub(crate) fn release(&self, link: LinkId) {
        if let Some(Shared { sharing, tins }) = self.shared(link) {
            sharing.release(tins, self.class);
        }
    }

    /// Whether classes share a link by rules.
    pub(crate) fn is_shared(&self, link: LinkId) -> bool {
        self.shared(link).is_some()
    }

    /// Whether it is found what a link carries, and given out by that.
    pub(crate) fn is_guided(&self, link: LinkId) -> bool {
        self.shared(link)
            .is_some_and(|shared| shared.tins.is_found())
    }

    /// Its path on a link has sent so much, and heard this of its round trips since the last time.
    pub(crate) fn note_path(
        &self,
        link: LinkId,
        load: Load,
        round_trips: RoundTrips,
        now: Instant,
    ) {
        if let Some(Shared { sharing, tins }) = self.shared(link) {
            sharing.note_path(tins, self.class, (load, round_trips), now);
        }
    }

    /// How its class fares on a link of which its `path` lost so many millionths, as the other end
    /// is told it.
    pub(crate) fn fare(&self, link: LinkId, path: u32, lost: u32, now: Instant) -> Option<Fare> {
        let (share, others) = self.shared(link)?.tins.describe(self.class, Some(now));
        Some(sharing::fare(path, &share, others, lost))
    }

    fn shared(&self, link: LinkId) -> Option<&Shared> {
        self.links.all.get(&link)?.shared.as_ref()
    }

    /// Its path on a link delivers so much, in bytes per second.
    pub(crate) fn note_rate(&mut self, link: LinkId, rate: u64) {
        self.links.note_rate(link, self.conn, rate);
    }
}

impl Links {
    /// A tunnel of a class has paths on exactly these links, given with their names; returns their
    /// ids. Links that nobody uses any more are forgotten, but for an edge's own.
    pub(crate) fn set_used<'a>(
        &mut self,
        (conn, class): (ConnId, ClassId),
        links: impl Iterator<Item = (Key, &'a str)>,
    ) -> Vec<LinkId> {
        let used: Vec<LinkId> = links.map(|(key, name)| self.find(key, name)).collect();
        for id in &used {
            let user = User { class, delivers: 0 };
            if let Some(link) = self.all.get_mut(id) {
                link.users.entry(conn).or_insert(user).class = class;
                if let Some(shared) = &link.shared {
                    shared.tins.enter(class);
                }
            }
        }
        let before = if used.is_empty() {
            self.by_conn.remove(&conn)
        } else {
            self.by_conn.insert(conn, used.clone())
        };
        for id in before.into_iter().flatten().filter(|id| !used.contains(id)) {
            self.leave(id, conn);
        }
        used
    }

    /// A tunnel has no path on a link any more.
    fn leave(&mut self, id: LinkId, conn: ConnId) {
        let few = self.all.len() <= MOST_LINKS;
        let Some(link) = self.all.get_mut(&id) else {
            return;
        };
        if let Some(left) = link.users.remove(&conn)
            && !link.users.values().any(|user| user.class == left.class)
            && let Some(shared) = &link.shared
        {
            shared.tins.leave(left.class);
        }
        let is_ours = few && link.key.site().is_none();
        if link.users.is_empty() && !is_ours {
            self.by_key.remove(&link.key);
            self.all.remove(&id);
        }
    }

    fn find(&mut self, key: Key, name: &str) -> LinkId {
        let sharing = self.sharings.get(&key.owner());
        let next = &mut self.next;
        let id = *self.by_key.entry(key.clone()).or_insert_with(|| {
            *next += 1;
            LinkId(*next)
        });
        let link = self.all.entry(id).or_insert_with(|| Link::new(key));
        if link.name != name {
            // The socket's number has passed to another link, which has carried nothing yet.
            (link.sent_bytes, link.received_bytes) = (0, 0);
        }
        if link.name != name || link.users.is_empty() {
            name.clone_into(&mut link.name);
            link.share(sharing);
        }
        id
    }

    /// How the links of a site are shared from now on, or of an edge.
    pub(crate) fn set_sharing(&mut self, site: Option<&SiteId>, sharing: Option<Arc<Sharing>>) {
        let owner = site.cloned();
        let first = site.map(|site| Key::Named(site.clone(), String::new()));
        let from = first.as_ref().map_or(Unbounded, Included);
        let links = self.by_key.range::<Key, _>((from, Unbounded));
        for (_, id) in links.take_while(|(key, _)| key.site() == site) {
            if let Some(link) = self.all.get_mut(id) {
                link.share(sharing.as_ref());
            }
        }
        match sharing {
            Some(sharing) => self.sharings.insert(owner, sharing),
            None => self.sharings.remove(&owner),
        };
    }

    /// How the links of a site are shared, if they are.
    pub(crate) fn sharing(&self, site: Option<&SiteId>) -> Option<&Arc<Sharing>> {
        self.sharings.get(&site.cloned())
    }

    /// The path of a tunnel delivers so much, in bytes per second.
    fn note_rate(&mut self, link: LinkId, conn: ConnId, rate: u64) {
        let link = self.all.get_mut(&link);
        if let Some(user) = link.and_then(|link| link.users.get_mut(&conn)) {
            user.delivers = rate;
        }
    }

    /// UDP packets of a class left on a link: with so many bytes, which with the headers around
    /// them are `spent`.
    pub(crate) fn note_sent(
        &mut self,
        (link, class): (LinkId, ClassId),
        bytes: usize,
        spent: Spent,
        now: Instant,
    ) {
        let Some(link) = self.all.get_mut(&link) else {
            return;
        };
        link.sent_bytes += bytes as u64;
        if let Some(Shared { sharing, tins }) = &link.shared {
            sharing.spend(tins, class, spent, now);
        }
    }

    /// UDP packets with so many bytes arrived on a link.
    pub(crate) fn note_received(&mut self, link: LinkId, bytes: usize) {
        if let Some(link) = self.all.get_mut(&link) {
            link.received_bytes += bytes as u64;
        }
    }

    /// What a tunnel of a class sees of the links while it plans what to send.
    pub(crate) fn seat(&mut self, conn: ConnId, class: ClassId) -> Seat<'_> {
        Seat {
            links: self,
            conn,
            class,
        }
    }

    /// How a class fares on a link, if classes share it by rules.
    pub(crate) fn describe(
        &self,
        link: LinkId,
        class: ClassId,
        now: Option<Instant>,
    ) -> Option<PathShare> {
        let Shared { sharing, tins } = self.all.get(&link)?.shared.as_ref()?;
        Some(sharing.describe(tins, class, now))
    }

    /// Facts about each link.
    pub(crate) fn facts(&self) -> Vec<LinkFacts> {
        let facts = self.by_key.iter().filter_map(|(key, id)| {
            let link = self.all.get(id)?;
            let mut classes: Vec<ClassId> = link.users.values().map(|user| user.class).collect();
            classes.sort_unstable();
            let delivers = link.users.values().map(|user| user.delivers);
            Some(LinkFacts {
                id: *id,
                name: link.name.clone(),
                site: key.site().cloned(),
                classes,
                delivers: Bitrate::bytes_per_second(delivers.sum()),
                sent_bytes: link.sent_bytes,
                received_bytes: link.received_bytes,
            })
        });
        facts.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: (ConnId, ClassId) = (ConnId(3), ClassId(0));
    const BULK: (ConnId, ClassId) = (ConnId(1), ClassId(1));

    fn spent(bytes: u64) -> Spent {
        Spent {
            bytes,
            granted: true,
        }
    }

    fn ours(socket: u32, name: &str) -> (Key, &str) {
        (Key::Socket(SocketId(socket)), name)
    }

    fn named<'a>(site: &str, name: &'a str) -> (Key, &'a str) {
        (Key::Named(site.into(), name.to_owned()), name)
    }

    #[test]
    fn classes_meet_on_their_links() {
        let mut links = Links::default();
        let both = [ours(0, "dsl"), ours(1, "lte")];
        let of_calls = links.set_used(CALLS, both.into_iter());
        let of_bulk = links.set_used(BULK, [ours(1, "lte")].into_iter());
        assert_eq!(of_calls[1], of_bulk[0]);
        links.note_rate(of_calls[1], CALLS.0, 1000);
        links.note_rate(of_bulk[0], BULK.0, 50_000);
        // Who has no path there says nothing of it.
        links.note_rate(of_calls[0], BULK.0, 7);
        let now = Instant::now();
        links.note_sent((of_bulk[0], BULK.1), 1200, spent(1228), now);
        links.note_sent((of_calls[1], CALLS.1), 300, spent(328), now);
        links.note_received(of_calls[1], 80);

        let facts = links.facts();
        assert_eq!(facts[1].classes, [CALLS.1, BULK.1]);
        let delivers = |n: usize| facts[n].delivers.as_bytes_per_second();
        assert_eq!((delivers(0), delivers(1)), (0, 51_000));
        assert_eq!((facts[1].sent_bytes, facts[1].received_bytes), (1500, 80));
        let look = Look {
            wanted: 1_000_000,
            least: 1500,
        };
        let grant = links.seat(BULK.0, BULK.1).grant(of_bulk[0], look, now);
        assert_eq!(grant, Grant::ALL);
    }

    #[test]
    fn what_a_link_has_carried_does_not_pass_to_the_one_that_gets_its_place() {
        let mut links = Links::default();
        let before = links.set_used(CALLS, [ours(0, "dsl")].into_iter());
        links.note_sent((before[0], CALLS.1), 1200, spent(1228), Instant::now());
        links.note_received(before[0], 700);
        links.set_used(CALLS, std::iter::empty());

        links.set_used(CALLS, [ours(0, "lte")].into_iter());

        let lte = &links.facts()[0];
        assert_eq!(lte.name, "lte");
        assert_eq!((lte.sent_bytes, lte.received_bytes), (0, 0));
    }

    #[test]
    fn an_edge_keeps_its_links_and_a_hub_forgets_those_of_sites_that_are_gone() {
        let mut links = Links::default();
        let before = links.set_used(CALLS, [ours(0, "dsl")].into_iter());
        links.note_sent((before[0], CALLS.1), 1200, spent(1228), Instant::now());
        links.set_used(CALLS, std::iter::empty());
        let after = links.set_used(CALLS, [ours(0, "dsl")].into_iter());
        assert_eq!(before, after);
        assert_eq!(links.facts()[0].sent_bytes, 1200);

        let mut links = Links::default();
        links.set_used(CALLS, [named("van", "lte")].into_iter());
        links.set_used(BULK, [named("ship", "lte")].into_iter());
        assert_eq!(links.facts().len(), 2);
        links.set_used(CALLS, std::iter::empty());
        let left = links.facts();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].site.as_ref(), Some(&"ship".into()));
    }

    #[test]
    fn a_site_that_names_its_links_anew_and_leaves_has_nothing_kept_of_it() {
        let mut links = Links::default();
        let both = [named("van", "lte"), named("van", "lte")];
        links.set_used(CALLS, both.into_iter());
        links.set_used(BULK, [named("ship", "lte")].into_iter());
        for name in ["dsl", "sat", "sat"] {
            links.set_used(CALLS, [named("van", name)].into_iter());
            assert_eq!((links.all.len(), links.by_key.len()), (2, 2), "{name}");
        }
        links.set_used(CALLS, std::iter::empty());
        assert_eq!(links.by_conn.len(), 1);
        links.set_used(BULK, std::iter::empty());
        let kept = (links.all.len(), links.by_key.len(), links.by_conn.len());
        assert_eq!(kept, (0, 0, 0));
    }

    #[test]
    fn only_the_links_of_a_site_are_shared_as_it_wishes() {
        let mut links = Links::default();
        let sites = ["ship", "van", "yacht"];
        for (site, conn) in sites.into_iter().zip(1..) {
            let used = (ConnId(conn), ClassId(0));
            links.set_used(used, [named(site, "dsl"), named(site, "lte")].into_iter());
        }
        let plan = sharing::Plan {
            asked: true,
            ..sharing::Plan::default()
        };
        let sharing = Sharing::downward(plan, Instant::now());
        links.set_sharing(Some(&"van".into()), sharing);
        let shared = links.by_key.iter().map(|(key, id)| {
            let site = key.site().expect("a site has it").as_str();
            (site, links.all[id].shared.is_some())
        });
        let expected = sites.map(|site| (site, site == "van"));
        assert!(shared.eq(expected.into_iter().flat_map(|it| [it, it])));
    }
}
