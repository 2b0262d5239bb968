//! The links of an edge, or of all edges of a hub, as the classes share them.
//!
//! Each class has a path of its own on each link, with its own congestion control; what they have
//! in common is the [`Link`]: who uses it, what all of them deliver there together, what went over
//! it, and how they share it. Which connection is asked first is decided by [`crate::turns`]; how
//! much it may send on a link is decided here, by [`Links::grant`].

use std::{collections::BTreeMap, sync::Arc};

use sennit_core::ClassId;

use crate::{
    facts::LinkFacts,
    ids::{ConnId, LinkId, SocketId},
    transport::MOST_LINKS,
};

/// By what a link is known again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// An edge knows its own by their sockets.
    Socket(SocketId),
    /// A hub knows those of a site by their names.
    Named(Arc<str>, String),
}

impl Key {
    fn site(&self) -> Option<&str> {
        match self {
            Self::Socket(_) => None,
            Self::Named(site, _) => Some(site),
        }
    }
}

/// How classes share a link.
#[derive(Clone, Copy, Debug, Default)]
enum Sharing {
    /// Each sends what its own congestion control allows, and they meet in the link's queue.
    #[default]
    Everyone,
}

/// One link.
#[derive(Debug, Default)]
struct Link {
    name: String,
    sharing: Sharing,
    /// The tunnels with a path on it.
    users: BTreeMap<ConnId, User>,
    sent_bytes: u64,
    received_bytes: u64,
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
    next: u32,
}

/// The links as one tunnel sees them.
#[derive(Debug)]
pub(crate) struct Seat<'a> {
    links: &'a mut Links,
    conn: ConnId,
    class: ClassId,
}

impl Seat<'_> {
    /// Bytes that it may send on a link now.
    pub(crate) fn grant(&self, link: LinkId) -> u64 {
        self.links.grant(link, self.class)
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
        for (id, link) in &mut self.all {
            if used.contains(id) {
                let user = User { class, delivers: 0 };
                link.users.entry(conn).or_insert(user).class = class;
            } else {
                link.users.remove(&conn);
            }
        }
        let few = self.all.len() <= MOST_LINKS;
        let all = &mut self.all;
        self.by_key.retain(|key, id| {
            let is_ours = few && key.site().is_none();
            let stays = is_ours || all.get(id).is_some_and(|link| !link.users.is_empty());
            if !stays {
                all.remove(id);
            }
            stays
        });
        used
    }

    fn find(&mut self, key: Key, name: &str) -> LinkId {
        let next = &mut self.next;
        let id = *self.by_key.entry(key).or_insert_with(|| {
            *next += 1;
            LinkId(*next)
        });
        let link = self.all.entry(id).or_default();
        if link.name != name {
            name.clone_into(&mut link.name);
        }
        id
    }

    /// Bytes that a class may send on a link now. This is where classes that want the same link are
    /// told whose turn it is.
    fn grant(&self, link: LinkId, _class: ClassId) -> u64 {
        match self.all.get(&link).map(|link| link.sharing) {
            Some(Sharing::Everyone) | None => u64::MAX,
        }
    }

    /// The path of a tunnel delivers so much, in bytes per second.
    fn note_rate(&mut self, link: LinkId, conn: ConnId, rate: u64) {
        let link = self.all.get_mut(&link);
        if let Some(user) = link.and_then(|link| link.users.get_mut(&conn)) {
            user.delivers = rate;
        }
    }

    /// UDP packets with so many bytes left on a link.
    pub(crate) fn note_sent(&mut self, link: LinkId, bytes: usize) {
        if let Some(link) = self.all.get_mut(&link) {
            link.sent_bytes += bytes as u64;
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

    /// Facts about each link.
    pub(crate) fn facts(&self) -> Vec<LinkFacts> {
        let facts = self.by_key.iter().filter_map(|(key, id)| {
            let link = self.all.get(id)?;
            let mut classes: Vec<ClassId> = link.users.values().map(|user| user.class).collect();
            classes.sort_unstable();
            Some(LinkFacts {
                id: *id,
                name: link.name.clone(),
                site: key.site().map(str::to_owned),
                classes,
                delivers: link.users.values().map(|user| user.delivers).sum(),
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
        links.note_sent(of_bulk[0], 1200);
        links.note_sent(of_calls[1], 300);
        links.note_received(of_calls[1], 80);

        let facts = links.facts();
        assert_eq!(facts[1].classes, [CALLS.1, BULK.1]);
        assert_eq!((facts[0].delivers, facts[1].delivers), (0, 51_000));
        assert_eq!((facts[1].sent_bytes, facts[1].received_bytes), (1500, 80));
        assert_eq!(links.grant(of_bulk[0], BULK.1), u64::MAX);
    }

    #[test]
    fn an_edge_keeps_its_links_and_a_hub_forgets_those_of_sites_that_are_gone() {
        let mut links = Links::default();
        let before = links.set_used(CALLS, [ours(0, "dsl")].into_iter());
        links.note_sent(before[0], 1200);
        links.set_used(CALLS, std::iter::empty());
        let after = links.set_used(CALLS, [ours(0, "dsl2")].into_iter());
        assert_eq!(before, after);
        assert_eq!(links.facts()[0].sent_bytes, 1200);
        assert_eq!(links.facts()[0].name, "dsl2");

        let mut links = Links::default();
        links.set_used(CALLS, [named("van", "lte")].into_iter());
        links.set_used(BULK, [named("ship", "lte")].into_iter());
        assert_eq!(links.facts().len(), 2);
        links.set_used(CALLS, std::iter::empty());
        let left = links.facts();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].site.as_deref(), Some("ship"));
    }
}
