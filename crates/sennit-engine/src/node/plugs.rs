//! The pipes of a node, and which connection is plugged into which.

use std::{sync::Arc, time::Instant};

use noq_proto::PathId;
use sennit_core::ClassId;

use super::Node;
use crate::{
    codec::Codec,
    facts::{FlowsWanted, LinkLabel, TunnelStatus},
    ids::{ConnId, PipeId, SiteId},
    inner::Packet,
    links::Key,
    numbers::Numbers,
    path::{Path, number},
    pipe::Pipe,
    treatment::Treatment,
};

impl<R> Node<R> {
    /// Fills in what a class and its connection, if it has one, know of themselves. They are looked
    /// at and not changed: nothing has a turn for it.
    pub(crate) fn describe(
        &mut self,
        (pipe, conn): (PipeId, Option<ConnId>),
        status: &mut TunnelStatus,
        wanted: Option<(&FlowsWanted, Instant)>,
    ) {
        let Some(pipe) = self.pipes.get_mut(pipe) else {
            return;
        };
        status.backlog = pipe.queue.backlog();
        status.queue = pipe.queue.stats();
        status.stats = pipe.stats();
        let Some(conn) = conn.and_then(|id| self.conns.get_mut(&id)) else {
            return;
        };
        status.fec = pipe.protection.status(conn.tunnel.takes_repairs());
        conn.tunnel.describe(status);
        let ours = self.links.sharing(None).map(|sharing| sharing.plan());
        conn.tunnel.describe_fares(status, ours);
        for path in &mut status.paths {
            let mut known = conn.tunnel.paths.iter();
            let link = known.find(|known| number(known.id) == path.id);
            let link = link.and_then(|known| known.on);
            let now = wanted.map(|(_, now)| now);
            path.shared = link.and_then(|link| self.links.describe(link, conn.class, now));
        }
        if let Some((wanted, now)) = wanted {
            (status.flows, status.flow_count) = conn.tunnel.flows(pipe, wanted, now);
        }
    }

    /// A new pipe, for a class that is treated so.
    pub(crate) fn add_pipe(&mut self, treatment: Treatment, now: Instant) -> PipeId {
        self.pipes.add(treatment, now)
    }

    /// The class of a pipe is treated otherwise from now on, over the connection that it has too.
    pub(crate) fn treat(&mut self, pipe: PipeId, treatment: Treatment, now: Instant) {
        let Some(one) = self.pipes.get_mut(pipe) else {
            return;
        };
        match one.runs_over() {
            None => one.set_treatment(treatment),
            Some(id) => {
                if let Some((conn, pipe)) = self.get_with_pipe(id) {
                    conn.tunnel.change_treatment(pipe, treatment, now);
                }
            }
        }
    }

    /// Forgets a pipe that no connection is plugged into.
    pub(crate) fn remove_pipe(&mut self, id: PipeId) {
        self.pipes.remove(id);
        self.arrivals.remove(&id);
    }

    pub(crate) fn pipe_mut(&mut self, id: PipeId) -> Option<&mut Pipe> {
        self.pipes.get_mut(id)
    }

    /// Plugs a connection into the pipe of its class, in place of any other. If it comes `beside`
    /// that, the other one still hands on what is on its way to it, until it is unplugged.
    pub(crate) fn plug(
        &mut self,
        id: ConnId,
        (pipe, class): (PipeId, ClassId),
        (codec, numbers): (Codec, Option<Numbers>),
        beside: bool,
        now: Instant,
    ) {
        let goes_on = beside && numbers.is_some_and(|numbers| numbers.go_on);
        let one = self.pipes.of(Some(pipe));
        if let Some(before) = one.runs_over()
            && let Some(conn) = self.conns.get_mut(&before)
        {
            if !goes_on {
                conn.tunnel.save_unsettled(one, now);
            }
            if beside {
                conn.tunnel.leave((pipe, one), goes_on, now);
                conn.pipe = None;
            }
        }
        let before = self.pipes.plug(pipe, id, numbers, now);
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.tunnel.open(codec);
            (conn.pipe, conn.class) = (Some(pipe), class);
        }
        match before {
            Some(before) if beside => {
                self.settle_links(before);
                self.follow_tail(before, now);
            }
            Some(before) => self.unplug(before, now),
            None => {}
        }
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.tunnel.handle_early(self.pipes.of(Some(pipe)));
            self.turns.remove(id);
            self.turns.push(id, class);
        }
        self.note_arrivals(Some(pipe));
        self.settle_links(id);
    }

    /// Nothing more goes through this connection; its pipe waits for another, or has one.
    pub(crate) fn unplug(&mut self, id: ConnId, now: Instant) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        if let Some(tail) = &conn.tunnel.tail {
            let pipe = tail.pipe;
            let one = self.pipes.get_mut(pipe);
            let again = one.is_some_and(|one| conn.tunnel.end_tail(one, now));
            conn.tunnel.tail = None;
            return self.note_tail(pipe, again);
        }
        if let Some(pipe) = conn.pipe.take() {
            let one = self.pipes.of(Some(pipe));
            if one.runs_over() == Some(id) {
                conn.tunnel.save_unsettled(one, now);
            }
            conn.tunnel.shut();
            self.pipes.unplug(pipe, id, now);
            self.note_arrivals(Some(pipe));
            self.settle_links(id);
        }
    }

    /// Hands on what has come to a connection whose class goes on over another one, and has leave
    /// again what it has lost.
    pub(super) fn follow_tail(&mut self, id: ConnId, now: Instant) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        let Some(pipe) = conn.tunnel.tail.as_ref().map(|tail| tail.pipe) else {
            return;
        };
        match self.pipes.get_mut(pipe) {
            Some(one) => {
                let again = conn.tunnel.follow_tail(one, now);
                self.note_tail(pipe, again);
            }
            None => conn.tunnel.tail = None,
        }
    }

    /// Such a connection has given its pipe something: packets that arrived, or to send `again`.
    fn note_tail(&mut self, pipe: PipeId, again: bool) {
        self.note_arrivals(Some(pipe));
        let over = self.pipes.of(Some(pipe)).runs_over().filter(|_| again);
        if let Some((id, conn)) = over.and_then(|id| Some((id, self.conns.get(&id)?))) {
            self.turns.push(id, conn.class);
        }
    }

    /// The edge has said how the link of a path is called and to be treated.
    pub(crate) fn label_path(&mut self, id: ConnId, path: PathId, label: LinkLabel) {
        if let Some(conn) = self.get_mut(id) {
            let mut paths = conn.tunnel.paths.iter_mut();
            if let Some(path) = paths.find(|known| known.id == path) {
                path.link = label;
            }
        }
        self.settle_links(id);
    }

    /// Finds the links that the paths of a connection are on: those of one that is plugged in
    /// count.
    pub(super) fn settle_links(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        let plugged = conn.pipe.is_some();
        let is_client = conn.tunnel.conn.side().is_client();
        let party = conn.tunnel.party.clone();
        let key = |path: &Path| {
            if is_client {
                Key::Socket(path.socket)
            } else {
                Key::Named(SiteId(Arc::clone(&party)), path.link.name.clone())
            }
        };
        let paths = conn.tunnel.paths.iter().filter(|_| plugged);
        let used = paths.map(|path| (key(path), path.link.name.as_str()));
        let mut links = self.links.set_used((id, conn.class), used).into_iter();
        for path in &mut conn.tunnel.paths {
            path.on = links.next();
        }
    }

    pub(super) fn note_arrivals(&mut self, pipe: Option<PipeId>) {
        if let Some(id) = pipe.filter(|&id| self.pipes.has_arrivals(id)) {
            self.arrivals.insert(id);
        }
    }

    /// The next inner packet that arrived, with the pipe it came by.
    pub(crate) fn poll_packet(&mut self) -> Option<(PipeId, Packet)> {
        while let Some(&id) = self.arrivals.first() {
            if let Some(packet) = self.pipes.poll_packet(id) {
                return Some((id, packet));
            }
            self.arrivals.pop_first();
        }
        None
    }
}
