//! A hub that has other addresses from now on.
//!
//! A tunnel *moves* if it runs to an address that the config has no more. It carries as before
//! while its class races to the addresses of now. The connection that wins asks for the tunnel
//! *beside* the old one, and takes its place once the hub has granted it: until then nothing is
//! lost if the hub is not there. For a moment longer the old one still hands on what is on its way
//! (docs/decisions/0036).
//!
//! What was asked for is waited for, though the config may be another by then: a hub that has
//! granted it sends over it already.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc, time::Instant};

use sennit_core::PathState;
use sennit_masque as masque;

use super::{
    Edge, EdgeEvent, Purpose, Stage,
    change::{GONE, LEAVES_WITHIN},
    dial::close_attempt,
    race::Dial,
};
use crate::{
    ids::{ConnId, FoundHub, HubName, SocketId},
    path::Path,
};

/// Why a tunnel moves, for people.
const ELSEWHERE: &str = "it runs to an address of the hub that is not in the config any more";

impl Edge {
    /// The hub is at these addresses from now on, and at those of these names.
    pub(super) fn set_hubs(&mut self, hubs: Vec<SocketAddr>, names: Vec<HubName>, now: Instant) {
        if (&self.config.hubs, &self.config.hub_names) == (&hubs, &names) {
            return;
        }
        (self.config.hubs, self.config.hub_names) = (hubs, names);
        for found in self.resolved.values_mut() {
            found.retain(|(name, _)| self.config.hub_names.contains(name));
        }
        let here = self.addresses_of_hub();
        self.slow.keep_at(|remote| here.contains(&remote));
        for index in 0..self.slots.len() {
            if !self.slots[index].gone {
                self.leave_addresses(index, now);
            }
        }
    }

    /// The hub's names were looked up over a link; these are tried there beside the configured
    /// addresses.
    pub fn handle_resolved(&mut self, socket: SocketId, mut hubs: Vec<FoundHub>, now: Instant) {
        // The config may have changed while somebody looked.
        hubs.retain(|(name, _)| self.config.hub_names.contains(name));
        if self.resolved.get(&socket) == Some(&hubs) {
            return;
        }
        self.resolved.insert(socket, hubs);
        for index in 0..self.slots.len() {
            if self.slots[index].live.is_none() || self.moves(index) {
                self.slots[index].dial.retry_soon(now);
            }
        }
        self.settle(now);
    }

    /// Ends what a class tries at addresses that the hub has no more.
    fn leave_addresses(&mut self, index: usize, now: Instant) {
        let tries = self.slots[index].dial.tries();
        let gone = tries.filter(|&(_, id, _)| !self.is_at_hub(id));
        let gone: BTreeSet<ConnId> = gone.map(|(_, id, _)| id).collect();
        let slot = &mut self.slots[index];
        for id in slot.dial.take_if(|_, id| gone.contains(&id)) {
            close_attempt(&mut self.node, id, "the hub has other addresses now", now);
        }
        let slot = &mut self.slots[index];
        slot.dial.retry_soon(now);
        slot.stays = None;
        let Some(id) = slot.live else {
            return;
        };
        let stage = self.node.get(id).map(|conn| conn.role.stage);
        if matches!(stage, Some(Stage::Up(_))) {
            self.leave_paths(id);
        } else if matches!(self.purpose, Purpose::Tunnels) && !self.is_at_hub(id) {
            self.retire_tunnel(index, "the hub has other addresses now", now);
            self.slots[index].dial = Dial::new(now);
        }
    }

    /// Finds the paths of a tunnel that lead to where the hub is no more, unless all of it moves.
    fn leave_paths(&mut self, id: ConnId) {
        let (moves, here) = (!self.is_at_hub(id), self.addresses_of_hub());
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let home = conn.role.remote;
        let is_gone = |remote: SocketAddr| !moves && remote != home && !here.contains(&remote);
        for attempt in conn.role.opening.values_mut() {
            attempt.ends |= is_gone(attempt.remote);
        }
        let remotes = conn.tunnel.paths.iter().map(Path::remote);
        conn.role.gone = remotes.filter(|&remote| is_gone(remote)).collect();
    }

    /// Closes such paths of a tunnel, once another one works; others open in their places.
    pub(super) fn close_gone_paths(&mut self, id: ConnId, now: Instant) {
        let Some(conn) = self.node.get_mut(id).filter(|it| !it.role.gone.is_empty()) else {
            return;
        };
        let (tunnel, gone) = (&mut conn.tunnel, &conn.role.gone);
        let works = |path: &Path| {
            let works = matches!(path.state().0, PathState::Up | PathState::Probation);
            works && !gone.contains(&path.remote())
        };
        if !tunnel.paths.iter().any(works) {
            return;
        }
        for path in tunnel.paths.iter().filter(|it| gone.contains(&it.remote())) {
            // Fails only for a path that is closed already.
            let _ = tunnel.conn.close_path(now, path.id, GONE);
        }
    }

    /// All addresses of the hub that are known on any link.
    fn addresses_of_hub(&self) -> BTreeSet<SocketAddr> {
        let found = self.resolved.values().flatten();
        let found = found.map(|&(_, address)| address);
        self.config.hubs.iter().copied().chain(found).collect()
    }

    /// Whether a connection was made to an address that the hub has, or has by a name that it has:
    /// the answers of resolvers may change from day to day.
    pub(super) fn is_at_hub(&self, id: ConnId) -> bool {
        let Some(conn) = self.node.get(id) else {
            return false;
        };
        let (remote, name) = (conn.role.remote, conn.role.name.as_ref());
        let mut found = self.resolved.values().flatten();
        self.config.hubs.contains(&remote)
            || name.is_some_and(|name| self.config.hub_names.contains(name))
            || found.any(|&(_, address)| address == remote)
    }

    /// The name by which an address of the hub was found over a link.
    pub(super) fn name_of(&self, socket: SocketId, remote: SocketAddr) -> Option<HubName> {
        if self.config.hubs.contains(&remote) {
            return None;
        }
        let mut found = self.resolved.get(&socket).into_iter().flatten();
        let (name, _) = found.find(|&&(_, address)| address == remote)?;
        Some(Arc::clone(name))
    }

    /// Whether the tunnel of a class is up, and to move.
    pub(super) fn moves(&self, index: usize) -> bool {
        let slot = &self.slots[index];
        let Some((id, conn)) = slot.live.and_then(|id| Some((id, self.node.get(id)?))) else {
            return false;
        };
        let stays = slot.leaves_at.is_some() || self.is_at_hub(id);
        matches!(conn.role.stage, Stage::Up(_)) && !stays
    }

    /// Why the tunnel of a class is where the hub is no more.
    pub(super) fn moving(&self, index: usize) -> Option<String> {
        if !self.moves(index) {
            return None;
        }
        let slot = &self.slots[index];
        let why = match (&slot.stays, slot.next) {
            (_, Some(_)) => "the hub is asked for another one",
            (Some(why), None) => why.as_str(),
            (None, None) => "the other addresses are tried",
        };
        Some(format!("{ELSEWHERE}: {why}"))
    }

    /// A connection is ready that is to take the place of the tunnel which moves.
    pub(super) fn ask_beside(&mut self, index: usize, id: ConnId, now: Instant) {
        let live = self.slots[index].live.and_then(|id| self.node.get(id));
        let carries = live.is_some_and(|conn| conn.paths().iter().any(Path::is_trusted));
        if let Some(conn) = self.node.get_mut(id) {
            // What is on its way where nothing arrives is better sent again at once.
            conn.role.beside = carries;
        }
        if let Some(before) = self.slots[index].next.replace(id) {
            close_attempt(&mut self.node, before, "another connection was faster", now);
        }
    }

    /// A connection is granted: it takes the place of the tunnel beside which it was asked for, if
    /// there is one, which is returned.
    pub(super) fn take_place(&mut self, index: usize, id: ConnId) -> Option<ConnId> {
        let slot = &mut self.slots[index];
        let next = slot.next.take_if(|next| *next == id)?;
        slot.stays = None;
        slot.live.replace(next)
    }

    /// Lets the connection leave whose place another one has taken, and tells of that.
    pub(super) fn leave_behind(&mut self, index: usize, old: ConnId, new: ConnId, now: Instant) {
        let [from, conn] = [old, new].map(|id| self.node.get(id));
        let (Some(from), Some(conn)) = (from, conn) else {
            return;
        };
        let slot = &mut self.slots[index];
        self.events.push_back(EdgeEvent::TunnelMoved {
            class: slot.class.name.clone(),
            from: from.role.remote,
            to: conn.role.remote,
        });
        if conn.role.beside {
            slot.left.push((now + LEAVES_WITHIN, old));
            slot.dial.look_at(now + LEAVES_WITHIN);
        } else {
            let reason = "the hub has other addresses now";
            self.node
                .close(old, masque::Code::H3_NO_ERROR.0, reason, now);
        }
        if let Some(conn) = self.node.get_mut(old) {
            conn.role.stage = Stage::Closing;
        }
    }

    /// Whether a connection has left its place to another one.
    pub(super) fn has_left(&self, index: usize, id: ConnId) -> bool {
        self.slots[index].left.iter().any(|&(_, left)| left == id)
    }

    /// Ends the connections of a class that have had their time since others took their places.
    pub(super) fn end_left(&mut self, index: usize, now: Instant) {
        let left = self.slots[index].left.extract_if(.., |(at, _)| *at <= now);
        let due: Vec<ConnId> = left.map(|(_, id)| id).collect();
        for id in due {
            self.end_one_left(id, now);
        }
        let next = self.slots[index].left.iter().map(|&(at, _)| at).min();
        if let Some(at) = next {
            self.slots[index].dial.look_at(at);
        }
    }

    /// Ends all connections of a class but its tunnel.
    pub(super) fn end_beside(&mut self, index: usize, now: Instant) {
        for (_, id) in std::mem::take(&mut self.slots[index].left) {
            self.end_one_left(id, now);
        }
        if let Some(id) = self.slots[index].next.take() {
            self.slots[index].dial.answer_by = None;
            close_attempt(&mut self.node, id, "the tunnel is not wanted any more", now);
        }
    }

    fn end_one_left(&mut self, id: ConnId, now: Instant) {
        self.node.unplug(id, now);
        close_attempt(&mut self.node, id, "the hub has other addresses now", now);
    }

    /// Nothing goes through a connection any more. If another one was asked for with the numbers of
    /// its class, these go on.
    pub(super) fn unplug(&mut self, index: usize, id: ConnId, now: Instant) {
        let slot = &self.slots[index];
        let next = slot.next.and_then(|next| self.node.get(next));
        let keeps = slot.live == Some(id) && next.is_some_and(|next| next.role.beside);
        let pipe = slot.pipe;
        let run = self.node.pipe_mut(pipe).map(|pipe| pipe.run());
        self.node.unplug(id, now);
        if let (Some(pipe), Some(run)) = (self.node.pipe_mut(pipe), run.filter(|_| keeps)) {
            pipe.keep_run(run);
        }
    }

    /// A connection that was to take the place of a tunnel is over; the tunnel stays.
    pub(super) fn lose_next(&mut self, index: usize, reason: &str) {
        let slot = &mut self.slots[index];
        slot.next = None;
        slot.dial.answer_by = None;
        slot.stays = Some(reason.to_owned());
        if let Some(conn) = slot.live.and_then(|id| self.node.get_mut(id)) {
            conn.role.outlived = true;
        }
        let class = slot.class.name.clone();
        let reason = format!("the tunnel stays where it is: {reason}");
        // Whatever the hub has said there, it has not turned away the tunnel that there is.
        self.events.push_back(EdgeEvent::Refused {
            class,
            reason,
            lasting: false,
        });
    }
}
