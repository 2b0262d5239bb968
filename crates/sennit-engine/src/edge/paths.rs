//! A path on every link, beside the one that won the race.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use super::{Edge, EdgeEvent, Role, Stage, change::GONE, race::Dial};
use crate::{
    facts::LinkLabel,
    ids::{ConnId, SocketId},
    locals::Local,
    node::Conn,
    path::Path,
    remotes::disguised,
    tunnel::POOR,
};
use noq_proto::{FourTuple, PathError, PathId, PathStatus};
use sennit_core::PathState;

/// A path that could not be opened is tried again after this.
const PATH_RETRY: Duration = Duration::from_millis(500);
/// A path that is to be opened is waited for this long. Meanwhile noq asks every two seconds, and
/// each time takes a few hundred bytes of memory.
const OPENING: Duration = Duration::from_secs(3600);
/// One that is led over a link that works is heard of at the hub after so long.
const LED_FOR: Duration = Duration::from_secs(10);
/// What it asks leaves for the first minute, and then for a moment of each half minute, or two
/// minutes where nothing flows: 1200 bytes every two seconds would be 50 MB a day on a link on
/// which nothing passes.
const EAGER: Duration = Duration::from_secs(60);
const ASKS_EVERY: Duration = Duration::from_secs(30);
const ASKS_IDLE: Duration = Duration::from_secs(120);
const ASKS_FOR: Duration = Duration::from_secs(3);

/// A path that noq was asked to open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) socket: SocketId,
    pub(super) remote: SocketAddr,
    began: Instant,
    /// Since when it asks as often as noq does.
    eager: Instant,
    /// It is to end. noq forgets a path only once both ends have closed it, and the hub has not
    /// heard of this one: so it is opened over a link that works, and closed at once.
    pub(super) ends: bool,
    /// It is to begin anew when it has ended.
    again: bool,
    /// Since when it is led over such a link.
    led: Option<Instant>,
}

impl Attempt {
    /// Whether a path is wanted by it.
    fn is_wanted(&self) -> bool {
        !self.ends || self.again
    }
}

/// Where a tunnel asks for a path, and since when.
fn asks(conn: &Conn<Role>) -> impl Iterator<Item = (SocketId, Instant)> {
    let attempts = conn.role.opening.values().filter(|it| it.is_wanted());
    attempts.map(|attempt| (attempt.socket, attempt.eager))
}

impl Edge {
    /// A path on every link that is up and has none.
    pub(super) fn widen(&mut self, index: usize, id: ConnId, now: Instant) {
        let Some(conn) = self.node.get(id) else {
            return;
        };
        for path in &conn.tunnel.paths {
            let link = self.links.get(&path.socket);
            let payload = link.map_or(u16::MAX, |link| link.payload_to(path.remote()));
            path.gate.set_interface(payload);
        }
        let has_many = conn.tunnel.conn.is_multipath_negotiated();
        if !matches!(conn.role.stage, Stage::Up(_)) {
            return;
        }
        let links = self.links_of(index);
        if !self.leave_links(index, id, &links, now) || !has_many {
            return;
        }
        self.close_gone_paths(id, now);
        self.drop_small_paths(index, id, now);
        self.drop_dead_paths(id, now);
        self.steer_attempts(index, id, now);
        for socket in links {
            let Some(conn) = self.node.get(id) else {
                return;
            };
            let has_path = conn.tunnel.paths.iter().any(|path| path.socket == socket)
                || conn
                    .role
                    .opening
                    .values()
                    .any(|attempt| attempt.socket == socket);
            let dial = &self.slots[index].dial;
            if has_path {
                continue;
            }
            if dial.may_try(socket, now) {
                self.open_path(index, id, socket, now);
            } else if let Some(&at) = dial.not_before.get(&socket) {
                self.slots[index].dial.look_at(at);
            }
        }
        // Small paths show themselves only after a while.
        self.slots[index].dial.look_at(now + Duration::from_secs(1));
    }

    fn open_path(&mut self, index: usize, id: ConnId, socket: SocketId, now: Instant) {
        let Some(conn) = self.node.get(id) else {
            return;
        };
        let Some(link) = self.links.get(&socket) else {
            return;
        };
        let home = Some(conn.role.remote).filter(|&remote| link.reaches(remote));
        // What is at other addresses may be another host.
        let others = || self.is_at_hub(id).then(|| self.hubs_for(socket, 0));
        let Some(remote) = home.or_else(|| others()?.first().copied()) else {
            return;
        };
        let alias = self.node.alias(Local { socket, ip: None });
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let network = FourTuple::new(disguised(remote), Some(alias));
        match conn
            .tunnel
            .conn
            .open_path(network, PathStatus::Available, now)
        {
            Ok(path) => {
                let attempt = Attempt {
                    socket,
                    remote,
                    began: now,
                    eager: conn.role.tried.remove(&socket).unwrap_or(now),
                    ends: false,
                    again: false,
                    led: None,
                };
                conn.role.opening.insert(path, attempt);
            }
            // More connection IDs are on their way.
            Err(PathError::RemoteCidsExhausted | PathError::MaxPathIdReached) => {}
            Err(error) => tracing::debug!(%error, "cannot open a path"),
        }
        self.slots[index].dial.hold(socket, PATH_RETRY, now);
    }

    /// A link has other addresses now, or works, or is gone: what is tried over it may pass, or
    /// cannot any more, and a path to where it does not lead any more makes room for another.
    pub(super) fn ask_again(&mut self, socket: SocketId, now: Instant) {
        let link = self.links.get(&socket).cloned();
        let leads = !self.hubs_for(socket, 0).is_empty();
        for id in self.live() {
            let Some(conn) = self.node.get_mut(id) else {
                continue;
            };
            conn.role.tried.remove(&socket);
            let is_past = |remote: SocketAddr| {
                let link = link.as_ref();
                link.is_none_or(|link| link.is_up() && !link.reaches(remote))
            };
            let attempts = conn.role.opening.values_mut();
            for attempt in attempts.filter(|attempt| attempt.socket == socket) {
                attempt.eager = now;
                attempt.ends |= is_past(attempt.remote);
            }
            let tunnel = &mut conn.tunnel;
            let paths = tunnel.paths.iter().filter(|path| path.socket == socket);
            for path in paths.filter(|path| leads && is_past(path.remote())) {
                // Fails for the last path, without which the tunnel is cut off, and another wins.
                let _ = tunnel.conn.close_path(now, path.id, POOR);
            }
        }
    }

    /// Whether another class, before this one, tries the same way: where nothing flows, one asks
    /// for all. One that is cut off asks for nobody.
    fn others_try(&self, index: usize, (socket, remote): (SocketId, SocketAddr)) -> bool {
        let before = self.slots[..index].iter();
        let heard = before.filter(|slot| slot.dial.is_settled());
        let mut conns = heard.filter_map(|slot| self.node.get(slot.live?));
        conns.any(|conn| {
            let mut attempts = conn.role.opening.values().filter(|attempt| !attempt.ends);
            attempts.any(|attempt| (attempt.socket, attempt.remote) == (socket, remote))
        })
    }

    /// Links by which a tunnel asks for a path, and since when.
    pub(super) fn unanswered(&self, conn: &Conn<Role>) -> Vec<(String, Instant)> {
        let name = |socket| Some(self.links.get(&socket)?.label.name.clone());
        let named = asks(conn).filter_map(|(socket, since)| Some((name(socket)?, since)));
        named.collect()
    }

    /// Links by which some class asks for a path, and since when.
    pub fn unanswered_links(&self) -> BTreeMap<SocketId, Instant> {
        let mut all = BTreeMap::new();
        let conns = self.live().into_iter().filter_map(|id| self.node.get(id));
        for (socket, asked) in conns.flat_map(asks) {
            let since = all.entry(socket).or_insert(asked);
            *since = asked.min(*since);
        }
        all
    }

    /// Has attempts ask less often, and ends those that are to end or have lasted for long.
    fn steer_attempts(&mut self, index: usize, id: ConnId, now: Instant) {
        let Some(conn) = self.node.get(id) else {
            return;
        };
        let attempts = conn.role.opening.iter();
        let left: Vec<PathId> = attempts
            .filter(|(_, attempt)| self.others_try(index, (attempt.socket, attempt.remote)))
            .map(|(&path, _)| path)
            .collect();
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let idle = conn.tunnel.is_idle(now);
        let every = if idle { ASKS_IDLE } else { ASKS_EVERY };
        let works = conn.tunnel.paths.iter().find(|path| is_up(path));
        let works = works.map(|path| (path.socket, path.remote()));
        let since = |then: Instant| now.saturating_duration_since(then);
        let mut heard_of = Vec::new();
        for (&path, attempt) in &mut conn.role.opening {
            attempt.again |= works.is_some() && since(attempt.began) >= OPENING;
            attempt.ends |= attempt.again;
            let asks = since(attempt.eager).as_millis() % every.as_millis() < ASKS_FOR.as_millis();
            let pauses = since(attempt.eager) >= EAGER && (!asks || idle && left.contains(&path));
            if attempt.ends {
                conn.detours.insert(attempt.socket, works);
                attempt.led = works.and(attempt.led.or(Some(now)));
                if attempt.led.is_some_and(|led| since(led) >= LED_FOR) {
                    heard_of.push(path);
                }
            } else if pauses {
                conn.detours.insert(attempt.socket, None);
            } else {
                conn.detours.remove(&attempt.socket);
            }
        }
        for path in heard_of {
            // Fails only for a path that is closed already.
            let _ = conn.tunnel.conn.close_path(now, path, POOR);
        }
    }

    /// Leaves all links but those of its class; false if that ended its tunnel, because no path
    /// elsewhere works.
    fn leave_links(
        &mut self,
        index: usize,
        id: ConnId,
        of_class: &[SocketId],
        now: Instant,
    ) -> bool {
        let all = &self.links;
        let is_left = |socket| all.contains_key(&socket) && !of_class.contains(&socket);
        let Some(conn) = self.node.get_mut(id) else {
            return false;
        };
        for attempt in conn.role.opening.values_mut() {
            attempt.ends |= is_left(attempt.socket);
        }
        let tunnel = &mut conn.tunnel;
        let mut paths = tunnel.paths.iter();
        if !paths.any(|path| is_left(path.socket)) {
            return true;
        }
        let works = |path: &Path| matches!(path.state().0, PathState::Up | PathState::Probation);
        let mut paths = tunnel.paths.iter();
        if paths.any(|path| !is_left(path.socket) && works(path)) {
            for path in tunnel.paths.iter().filter(|path| is_left(path.socket)) {
                // Fails only for a path that is closed already.
                let _ = tunnel.conn.close_path(now, path.id, GONE);
            }
            return true;
        }
        self.retire_tunnel(index, "the class may not use its link any more", now);
        self.slots[index].dial = Dial::new(now);
        false
    }

    pub(super) fn handle_path_up(&mut self, id: ConnId, path: PathId, now: Instant) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let Some(&Attempt { socket, ends, .. }) = conn.role.opening.get(&path) else {
            return;
        };
        if ends {
            // Fails only for a path that is closed already.
            let _ = conn.tunnel.conn.close_path(now, path, POOR);
            return;
        }
        conn.role.opening.remove(&path);
        conn.detours.remove(&socket);
        self.adopt(id, path, socket, now);
        self.announce_links(id);
        self.tell_path(id, path);
        self.ask_again(socket, now);
    }

    pub(super) fn handle_path_down(
        &mut self,
        id: ConnId,
        path: PathId,
        link: Option<String>,
        reason: String,
        now: Instant,
    ) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let slot = conn.role.slot;
        if self.has_left(slot, id) {
            return;
        }
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        conn.tunnel.allow_spare_paths(now);
        // A path that never came up is simply tried again.
        if let Some(Attempt { socket, eager, .. }) = conn.role.opening.remove(&path) {
            conn.detours.remove(&socket);
            if self.links.contains_key(&socket) {
                conn.role.tried.insert(socket, eager);
            }
            self.slots[slot].dial.hold(socket, PATH_RETRY, now);
        } else {
            let class = self.slots[slot].class.name.clone();
            let link = link.unwrap_or_else(|| format!("path {path}"));
            self.events.push_back(EdgeEvent::PathClosed {
                class,
                link,
                reason,
            });
        }
        self.settle(now);
    }

    /// Takes a validated path into use.
    pub(super) fn adopt(&mut self, id: ConnId, path: PathId, socket: SocketId, now: Instant) {
        let Some(link) = self.links.get(&socket) else {
            return;
        };
        let (label, up): (LinkLabel, bool) = (link.label.clone(), link.is_up());
        let away = link.away();
        self.node.adopt_path(id, path, label, now);
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        for path in conn
            .tunnel
            .paths
            .iter_mut()
            .filter(|adopted| adopted.id == path)
        {
            path.socket = socket;
            path.health.handle_link(up, now);
            path.away = away;
        }
    }

    /// A path is trusted again or no longer. What other classes try on the same link passes too,
    /// if it does.
    pub(super) fn handle_path_state(&mut self, id: ConnId, path: PathId, now: Instant) {
        self.tell_path(id, path);
        let Some(conn) = self.node.get(id) else {
            return;
        };
        let mut paths = conn.paths().iter();
        let works = paths.find(|known| known.id == path && is_up(known));
        if let Some(socket) = works.map(|path| path.socket) {
            self.ask_again(socket, now);
        }
    }

    fn tell_path(&mut self, id: ConnId, path: PathId) {
        let conn = self.node.get(id);
        let Some(conn) = conn.filter(|conn| !self.has_left(conn.role.slot, id)) else {
            return;
        };
        let Some(path) = conn.paths().iter().find(|known| known.id == path) else {
            return;
        };
        let (state, reason) = path.health.state();
        let link = path.link.name.clone();
        let class = self.slots[conn.role.slot].class.name.clone();
        self.events.push_back(EdgeEvent::Path {
            class,
            link,
            state,
            before: path.health.before(),
            reason,
            heard: path.health.lost_from(),
        });
    }
}

pub(super) fn is_up(path: &Path) -> bool {
    path.state().0 == PathState::Up
}
