//! Racing for a connection.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use noq_proto::ClientConfig;
use sennit_core::{PathState, health::Reason};
use sennit_masque as masque;

use super::{
    Edge, EdgeEvent, Purpose, Role, Stage,
    race::{ATTEMPT, Attempt, Exchange, RETRY_MAX},
};
use crate::{
    ids::{ConnId, SocketId},
    locals::Local,
    node::Node,
    path::Path,
};

/// If nothing is heard on any path for so long, the hub may have forgotten the connection, or be
/// gone while another of its addresses is not. It says that it has forgotten one (RFC 9000 §10.3),
/// but noq knows its word on the first path only.
const CUT_OFF: Duration = Duration::from_millis(1500);
/// If the hub has not answered the request after so long and so many round trips, a new connection
/// may do better: retransmissions on a link that loses much come ever more rarely.
const OVERDUE: Duration = Duration::from_secs(1);
const OVERDUE_ROUNDS: u32 = 3;
/// If the hub is heard, but says on all paths that it hears nothing, another of its addresses or a
/// new connection over another link may do better after so long: with the handshake and the time
/// that the old connection has then, a tunnel is back within three seconds.
const UNHEARD: Duration = Duration::from_secs(2);
/// Addresses of the hub that are tried at once on a link; if there are more, the others have their
/// turn after these.
const RACED: usize = 4;
/// A hub that is there answers the post-quantum handshake within this time and is never asked for a
/// classic one.
const CLASSIC_AFTER: Duration = Duration::from_secs(1);
/// An attempt that is kept for longer than usual is looked at this often, also by those who wait
/// for its end.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Edge {
    /// Starts whatever should be running and is not.
    pub(super) fn settle(&mut self, now: Instant) {
        self.look_at_ports(now);
        for index in 0..self.slots.len() {
            if self.slots[index].gone {
                continue;
            }
            self.slots[index].dial.next_look = None;
            self.end_left(index, now);
            if self.ends_leaving(index, now) {
                continue;
            }
            let Some(id) = self.slots[index].live else {
                self.race_or_promote(index, now);
                continue;
            };
            let answer_by = self.slots[index].dial.answer_by;
            if answer_by.is_some_and(|at| now >= at) {
                let id = self.slots[index].next.unwrap_or(id);
                self.give_up(id, "the hub does not answer the request".into(), now);
                continue;
            }
            if let Some(at) = answer_by {
                self.slots[index].dial.look_at(at);
            }
            let replaces = self.may_replace(index, now);
            if replaces {
                self.race_or_promote(index, now);
            } else {
                self.end_race(index, now);
            }
            if self.moves(index) {
                self.widen(index, id, now);
            } else if !replaces && (answer_by.is_none() || self.slots[index].next.is_some()) {
                self.slots[index].dial.calm(now);
                self.widen(index, id, now);
            }
        }
    }

    /// Asks for another port for every link on which nothing passes for long.
    fn look_at_ports(&mut self, now: Instant) {
        let links: Vec<SocketId> = self.links.keys().copied().collect();
        for socket in links {
            let passes = self.passes(socket, now);
            if !self.ports.look(socket, passes, now) {
                continue;
            }
            // A handshake is bound to the port that it began with.
            self.end_attempts_over(socket, "the link gets another port", now);
            if let Some(link) = self.links.get(&socket) {
                let link = link.label.name.clone();
                self.events.push_back(EdgeEvent::NewPort { socket, link });
            }
        }
    }

    /// Closes the handshakes over a link, which cannot be completed there any more.
    pub(super) fn end_attempts_over(&mut self, socket: SocketId, reason: &str, now: Instant) {
        for slot in &mut self.slots {
            for id in slot.dial.take_attempts_over(socket) {
                close_attempt(&mut self.node, id, reason, now);
            }
        }
    }

    /// Closes the handshakes of a class over links that it may not use any more.
    fn end_attempts_elsewhere(&mut self, index: usize, links: &[SocketId], now: Instant) {
        let dial = &mut self.slots[index].dial;
        for id in dial.take_if(|(link, _, _), _| !links.contains(link)) {
            let reason = "the class may not use the link any more";
            close_attempt(&mut self.node, id, reason, now);
        }
    }

    /// The links that a class may use. An enrolment is of no class, and may use all.
    pub(super) fn links_of(&self, index: usize) -> Vec<SocketId> {
        let class = &self.slots[index].class;
        let any = matches!(self.purpose, Purpose::Enrol(_));
        let links = self.links.iter();
        let links = links.filter(|(_, link)| any || class.may_use(&link.label.name));
        links.map(|(&socket, _)| socket).collect()
    }

    /// Whether anything passes on a link, for any class; `None` if nothing is expected to.
    fn passes(&self, socket: SocketId, now: Instant) -> Option<bool> {
        if !self.links.get(&socket)?.is_up() {
            return None;
        }
        let is_up = |path: &Path| path.health.state().0 == PathState::Up;
        let found = self.slots.iter().filter_map(|slot| {
            let Some(conn) = slot.live.and_then(|id| self.node.get(id)) else {
                let tried = slot.dial.is_tried(socket);
                return tried.then(|| self.slow.passes(socket, now));
            };
            let mut paths = conn.paths().iter().filter(|path| path.socket == socket);
            match paths.next() {
                Some(path) if path.is_trusted() => Some(true),
                Some(path) => match path.state() {
                    (PathState::Up | PathState::Probation, _) => Some(true),
                    // The only way from the hub may be one on which it hears nothing.
                    (_, Reason::PeerHearsNothing) => Some(!conn.paths().iter().any(is_up)),
                    (_, Reason::Silent) => Some(false),
                    (_, _) => None,
                },
                None => {
                    let mut opening = conn.role.opening.values();
                    let tried = opening.any(|attempt| attempt.socket == socket)
                        || slot.dial.is_held_briefly(socket, now);
                    tried.then_some(false)
                }
            }
        });
        found.reduce(|one, other| one || other)
    }

    /// Whether the class has a connection of which nothing is heard for long, so that another one
    /// is welcome. Before the hub's answer nothing asks for signs of life: one that has
    /// acknowledged all may take its time.
    pub(super) fn is_cut_off(&mut self, index: usize, now: Instant) -> bool {
        let slot = &mut self.slots[index];
        let Some(conn) = slot.live.and_then(|id| self.node.get(id)) else {
            return false;
        };
        let waits = slot.dial.answer_by.is_some();
        let lost = |path: &Path| match waits {
            true => path.gate.in_flight() > 0,
            false => matches!(path.state().0, PathState::Suspect | PathState::Down),
        };
        if !conn.paths().iter().all(lost) {
            slot.dial.handle_heard();
            return false;
        }
        let began = *slot.dial.cut_off.get_or_insert(now);
        // A path on which the hub hears nothing may be the way from it.
        let heard = conn.paths().iter().map(|path| path.health.heard());
        let since = heard.fold(began, Instant::max);
        let due = (since + CUT_OFF).min(began + UNHEARD);
        if now < due {
            slot.dial.look_at(due);
        }
        now >= due
    }

    /// Whether another connection is welcome in place of the one that there is, or of the one that
    /// is asked for beside it.
    pub(super) fn may_replace(&mut self, index: usize, now: Instant) -> bool {
        let moves = self.moves(index);
        if self.slots[index].next.is_some() {
            return moves && self.is_overdue(index, now);
        }
        if moves {
            return true;
        }
        // The hub may also have started anew between its two answers.
        self.is_cut_off(index, now) || self.is_overdue(index, now)
    }

    /// Whether the hub's answer to the request is late on a link that loses. A hub that
    /// acknowledges all has much to do, and more handshakes would be more of it; but it may also be
    /// gone since, so it is asked for another sign of life. A token for joining is spent with the
    /// first request that arrives.
    fn is_overdue(&mut self, index: usize, now: Instant) -> bool {
        let slot = &mut self.slots[index];
        if slot.dial.answer_by.is_none() {
            return false;
        }
        let asked = slot.next.or(slot.live);
        let conn = asked.and_then(|id| self.node.get(id));
        let Some(conn) = conn.filter(|_| !matches!(self.purpose, Purpose::Enrol(_))) else {
            return false;
        };
        let round = conn.paths().iter().map(Path::srtt).max();
        let patience = OVERDUE.max(OVERDUE_ROUNDS * round.unwrap_or_default());
        let due = slot.dial.asked + patience;
        if now < due {
            slot.dial.look_at(due);
        }
        let loses = |path: &Path| {
            path.gate.in_flight() > 0 || path.gate.ledger().losses().lately(now).lost > 0
        };
        // What has begun goes on, whatever is acknowledged in between.
        let races = !slot.dial.attempts.is_empty();
        let is_lost = races || conn.paths().iter().any(loses);
        if now >= due && !is_lost {
            slot.dial.asked = now;
            slot.dial.look_at(now + patience);
            if let Some(conn) = asked.and_then(|id| self.node.get_mut(id)) {
                conn.tunnel.ping();
            }
        }
        now >= due && is_lost
    }

    /// Closes the attempts that are under way.
    pub(super) fn end_race(&mut self, index: usize, now: Instant) {
        for id in self.slots[index].dial.take_attempts() {
            close_attempt(&mut self.node, id, "another connection was faster", now);
        }
    }

    /// Goes on with the connection that is ready, once the one before it has had its time.
    fn race_or_promote(&mut self, index: usize, now: Instant) {
        let waits = self.slots[index].live.is_some() && !self.moves(index);
        let dial = &self.slots[index].dial;
        let spare = dial.spare.filter(|&(id, _)| self.is_ready(id));
        // The link of the one that was ready first may be gone since.
        let mut attempts = dial.attempts.values().map(|&(id, _)| id);
        let ready = attempts.find(|&id| self.is_ready(id));
        let slot = &mut self.slots[index];
        slot.dial.spare = spare;
        if let Some(id) = ready {
            slot.dial.keep_spare(id, now);
        }
        match slot.dial.spare {
            Some((id, at)) if now < at && (waits || slot.dial.is_classic(id)) => {
                slot.dial.look_at(at);
            }
            Some((id, _)) => self.promote(self.by_another_way(index).unwrap_or(id), now),
            None => self.race(index, now),
        }
    }

    /// An attempt that is ready over a link which the connection that is replaced did not use.
    fn by_another_way(&self, index: usize) -> Option<ConnId> {
        let slot = &self.slots[index];
        let before = slot.live.and_then(|id| self.node.get(id))?;
        let used = |socket| before.paths().iter().any(|path| path.socket == socket);
        let attempts = slot.dial.attempts.iter();
        let usual = attempts
            .filter(|((socket, _, exchange), _)| *exchange == Exchange::Usual && !used(*socket));
        usual.map(|(_, &(id, _))| id).find(|&id| self.is_ready(id))
    }

    fn is_ready(&self, id: ConnId) -> bool {
        let conn = self.node.get(id);
        conn.is_some_and(|conn| conn.role.stage == Stage::Ready && !conn.tunnel.conn.is_closed())
    }

    /// One handshake per link that is up.
    fn race(&mut self, index: usize, now: Instant) {
        self.drop_stale_attempts(index, now);
        let links = self.links_of(index);
        self.end_attempts_elsewhere(index, &links, now);
        for socket in links {
            if self.slots[index].dial.is_tried(socket) {
                self.join_classic(index, socket, now);
                continue;
            }
            if !self.may_begin(socket, now) {
                self.slots[index].dial.look_at(now + LOOK_AGAIN);
                continue;
            }
            let dial = &self.slots[index].dial;
            if dial.may_try(socket, now) {
                if self.begin_slowly(index, socket, now) {
                    continue;
                }
                let turn = self.slots[index].dial.next_turn(socket);
                for remote in self.hubs_for(socket, turn) {
                    self.attempt(index, (socket, remote, Exchange::Usual), now, now);
                }
            } else if let Some(&at) = dial.not_before.get(&socket) {
                self.slots[index].dial.look_at(at);
            }
        }
    }

    /// Begins classic handshakes beside the post-quantum ones of a link that go unanswered there.
    fn join_classic(&mut self, index: usize, socket: SocketId, now: Instant) {
        let dial = &mut self.slots[index].dial;
        let Some(since) = dial
            .without_classic(socket)
            .filter(|_| self.classic.is_some() && !self.slow.has(socket, now))
        else {
            return;
        };
        let due = since + CLASSIC_AFTER;
        if now < due {
            return dial.look_at(due);
        }
        let tried = dial.attempts.keys().filter(|(link, _, _)| *link == socket);
        let remotes: Vec<SocketAddr> = tried.map(|&(_, remote, _)| remote).collect();
        for remote in remotes {
            self.attempt(index, (socket, remote, Exchange::Classic), since, now);
        }
    }

    /// A classic handshake is complete. Perhaps the hub was only away: if it answers a post-quantum
    /// one soon, that is taken.
    pub(super) fn ask_once_more(&mut self, classic: ConnId, now: Instant) {
        let Some(conn) = self.node.get(classic) else {
            return;
        };
        let (index, to) = (conn.role.slot, (conn.role.link, conn.role.remote));
        let dial = &mut self.slots[index].dial;
        if !dial.keep_classic(classic, now + CLASSIC_AFTER) {
            return;
        }
        let usual = (to.0, to.1, Exchange::Usual);
        // That one sends ever more rarely.
        if let Some((before, _)) = dial.attempts.remove(&usual) {
            close_attempt(&mut self.node, before, "begun anew", now);
        }
        self.attempt(index, usual, now, now);
        self.settle(now);
    }

    fn drop_stale_attempts(&mut self, index: usize, now: Instant) {
        self.find_slow(index, now);
        let (slow, dial) = (&self.slow, &mut self.slots[index].dial);
        let is_old = |since: Instant| now.saturating_duration_since(since) >= ATTEMPT;
        let attempts = dial.attempts.iter();
        let stale: Vec<(Attempt, ConnId)> = attempts
            .map(|(&to, &(id, since))| (to, id, since))
            .filter(|&(to, id, since)| is_old(since) && !slow.keeps(to.0, id, now))
            .map(|(to, id, _)| (to, id))
            .collect();
        // Whoever looks for another reason in between must not forget when these are due.
        let left = dial.attempts.values().map(|&(_, since)| since + ATTEMPT);
        let next = left.map(|due| if due > now { due } else { now + LOOK_AGAIN });
        if let Some(due) = next.min() {
            dial.look_at(due);
        }
        for id in dial.take_too_late(now) {
            close_attempt(&mut self.node, id, "no answer in time", now);
        }
        let silent: BTreeSet<SocketId> = stale.iter().map(|((socket, _, _), _)| *socket).collect();
        for socket in silent {
            *dial.stalled.entry(socket).or_default() += 1;
        }
        for (to, id) in stale {
            self.slow.give_up(to.0, id);
            let is_slow = self.slow.has(to.0, now);
            let dial = &mut self.slots[index].dial;
            dial.unanswered.insert(to.0);
            dial.failures += 1;
            if is_slow || !dial.is_kept_late(to) {
                dial.attempts.remove(&to);
                close_attempt(&mut self.node, id, "no answer in time", now);
            }
            let silent = self.slots[index].dial.unanswered.iter();
            let links = silent.filter_map(|socket| self.links.get(socket));
            let names: Vec<&str> = links.map(|link| link.label.name.as_str()).collect();
            let reason = format!("the hub does not answer on link {}", names.join(", "));
            let moves = self.moves(index);
            let slot = &mut self.slots[index];
            if slot.live.is_none() {
                slot.reason = reason;
            } else if moves {
                slot.stays = Some(reason);
            }
        }
    }

    /// Begins a handshake of the race that began at `since`.
    pub(super) fn attempt(&mut self, index: usize, to: Attempt, since: Instant, now: Instant) {
        let (socket, remote, exchange) = to;
        let crypto = match (exchange, &self.classic) {
            (Exchange::Classic, Some(classic)) => classic,
            (Exchange::Classic, None) | (Exchange::Usual, _) => &self.crypto,
        };
        let first_id = self.first_ids.next();
        let class = &self.slots[index].class;
        let settings = self.node.settings();
        let mut config = ClientConfig::new(crypto.clone());
        config.initial_dst_cid_provider(Arc::new(move || first_id));
        let mut transport = settings.transport(class.treatment.congestion);
        // What stands on the way shows in where the hub sees packets come from.
        transport.receive_observed_address_reports(true);
        if let Some(rtt) = self.slow.rtt(socket, now) {
            transport.initial_rtt(rtt);
        }
        config.transport_config(Arc::new(transport));
        let role = Role {
            name: self.name_of(socket, remote),
            ..Role::new((index, class.treatment), to)
        };
        let local = Local { socket, ip: None };
        let treatment = class.treatment;
        let name = self.config.server_name.clone();
        let node = &mut self.node;
        match node.connect(config, remote, &name, local, treatment, role, now) {
            Ok(id) => {
                let dscp = self.slots[index].class.dscp;
                if let Some(conn) = self.node.get_mut(id) {
                    conn.dscp = dscp;
                }
                self.request_early(id);
                let slot = &mut self.slots[index];
                slot.dial.attempts.insert(to, (id, since));
                slot.dial.look_at(since + ATTEMPT);
                if slot.live.is_none() && !slot.dial.is_failing() {
                    slot.reason = "waiting for the hub to answer".into();
                }
            }
            Err(error) => {
                let reason = format!("cannot start a handshake: {error}");
                self.slots[index].dial.hold(socket, RETRY_MAX, now);
                let class = self.slots[index].class.name.clone();
                self.events.push_back(EdgeEvent::Refused {
                    class,
                    reason,
                    lasting: false,
                });
            }
        }
    }

    /// Addresses of the hub that the link can reach: all of them, or others at every turn.
    pub(super) fn hubs_for(&self, socket: SocketId, turn: usize) -> Vec<SocketAddr> {
        let Some(link) = self.links.get(&socket) else {
            return Vec::new();
        };
        let mut reachable: Vec<SocketAddr> = Vec::new();
        let found = self.resolved.get(&socket).into_iter().flatten();
        let found = found.map(|(_, address)| address);
        for &hub in self.config.hubs.iter().chain(found) {
            if link.reaches(hub) && !reachable.contains(&hub) {
                reachable.push(hub);
            }
        }
        if let Some(start) = (turn * RACED).checked_rem(reachable.len()) {
            reachable.rotate_left(start);
        }
        reachable.truncate(RACED);
        reachable
    }
}

/// Ends a handshake that nobody needs any more.
pub(super) fn close_attempt(node: &mut Node<Role>, id: ConnId, reason: &str, now: Instant) {
    node.close(id, masque::Code::H3_NO_ERROR.0, reason, now);
    if let Some(conn) = node.get_mut(id) {
        conn.role.stage = Stage::Closing;
    }
}
