//! What belongs to a class and outlives its connections.
//!
//! A [`Pipe`] belongs to the class of a site, at both ends. A tunnel is plugged into it once
//! CONNECT-IP is agreed, sends from its queue, and hands on by it what arrives. When a tunnel is
//! lost, or another takes its place, the queue stays, and leaves over the next one.
//!
//! Numbers do not outlive a connection: nobody knows whether the far end still has what was
//! numbered before, and it may be another host. So both ends start over with each connection
//! ([`Pipe::start_over`]): what waits is numbered anew, and what was held for a missing packet is
//! handed on.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use sennit_core::{
    Delivery, Flows, FqCodel, Halves, Numbering, Resequencer,
    frame::{Half, Header},
    queue::{Popped, Queued},
};

use crate::{
    codec,
    facts::TunnelStats,
    ids::{ConnId, PipeId},
    inner::Packet,
    recovery::Recovery,
};

/// One class of one site.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) queue: FqCodel,
    /// A packet that left the queue and whose path differed from that of the batch that was being
    /// filled.
    pub(crate) held: Option<Popped>,
    pub(crate) flows: Flows,
    pub(crate) numbering: Numbering,
    pub(crate) recovery: Recovery,
    pub(crate) resequencer: Resequencer<Packet>,
    pub(crate) stats: TunnelStats,
    halves: Halves,
    received: VecDeque<Packet>,
    /// The tunnel that it runs over.
    conn: Option<ConnId>,
}

impl Pipe {
    fn new(delivery: Delivery, now: Instant) -> Self {
        Self {
            queue: FqCodel::default(),
            held: None,
            flows: Flows::default(),
            numbering: Numbering::new(now),
            recovery: Recovery::new(delivery),
            resequencer: Resequencer::new(now),
            stats: TunnelStats::default(),
            halves: Halves::default(),
            received: VecDeque::new(),
            conn: None,
        }
    }

    /// It runs over another connection from now on.
    fn start_over(&mut self, now: Instant) {
        self.queue.start_over(self.held.take(), now);
        self.flows.forget_paths();
        self.recovery.start_over();
        self.halves = Halves::default();
        let (stats, received) = (&mut self.stats, &mut self.received);
        let release = |packet| release(packet, stats, received);
        self.resequencer.start_over(release, now);
    }

    /// Takes an inner packet.
    pub(crate) fn push(&mut self, packet: Queued, now: Instant) {
        self.stats.packets_in += 1;
        self.queue.push(packet, now);
    }

    /// Whether a packet waits for a path.
    pub(crate) fn is_backlogged(&self) -> bool {
        !self.queue.is_empty() || self.held.is_some()
    }

    /// Takes half of a packet that arrived; returns the packet if it is complete with it.
    pub(crate) fn join(
        &mut self,
        header: &Header,
        half: Half,
        bytes: &[u8],
        now: Instant,
    ) -> Option<Packet> {
        let bytes = self.halves.handle_half(header, half, bytes, now)?;
        let checksum = codec::progress(half.partial);
        Some(Packet { bytes, checksum })
    }

    /// Takes a numbered packet that arrived on `path`, and hands on what is in order now.
    pub(crate) fn handle_numbered(
        &mut self,
        header: &Header,
        packet: Packet,
        path: u32,
        now: Instant,
    ) {
        let (stats, received) = (&mut self.stats, &mut self.received);
        let release = |packet| release(packet, stats, received);
        let size = packet.bytes.len();
        self.resequencer
            .handle_packet(header, path, packet, size, release, now);
    }

    /// Hands on a packet whose order nobody knows.
    pub(crate) fn hand_out(&mut self, packet: Packet) {
        release(packet, &mut self.stats, &mut self.received);
    }

    /// Hands on what has waited in vain for an earlier packet, for which a repair takes so long.
    pub(crate) fn handle_overdue(&mut self, repair: Duration, now: Instant) {
        let (stats, received) = (&mut self.stats, &mut self.received);
        let release = |packet| release(packet, stats, received);
        self.resequencer.handle_timeout(repair, release, now);
    }

    /// Counters so far.
    pub(crate) fn stats(&self) -> TunnelStats {
        TunnelStats {
            order: self.resequencer.stats(),
            ..self.stats
        }
    }
}

fn release(packet: Packet, stats: &mut TunnelStats, received: &mut VecDeque<Packet>) {
    if !packet.bytes.is_empty() {
        stats.packets_out += 1;
        stats.bytes_out += packet.bytes.len() as u64;
        received.push_back(packet);
    }
}

/// The pipes of a node.
#[derive(Debug)]
pub(crate) struct Pipes {
    all: BTreeMap<PipeId, Pipe>,
    next: u64,
    /// What connections have that nothing was agreed on with: nothing goes through it.
    nobodys: Pipe,
}

impl Pipes {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            all: BTreeMap::new(),
            next: 0,
            nobodys: Pipe::new(Delivery::Datagram, now),
        }
    }

    /// A new pipe, for a class of this delivery.
    pub(crate) fn add(&mut self, delivery: Delivery, now: Instant) -> PipeId {
        let id = PipeId(self.next);
        self.next += 1;
        self.all.insert(id, Pipe::new(delivery, now));
        id
    }

    /// Forgets a pipe, with what waits in it.
    pub(crate) fn remove(&mut self, id: PipeId) {
        self.all.remove(&id);
    }

    pub(crate) fn get_mut(&mut self, id: PipeId) -> Option<&mut Pipe> {
        self.all.get_mut(&id)
    }

    /// The pipe that a connection is plugged into, if it is.
    pub(crate) fn of(&mut self, id: Option<PipeId>) -> &mut Pipe {
        id.and_then(|id| self.all.get_mut(&id))
            .unwrap_or(&mut self.nobodys)
    }

    /// A pipe runs over this connection from now on; returns the one that it ran over.
    pub(crate) fn plug(&mut self, id: PipeId, conn: ConnId, now: Instant) -> Option<ConnId> {
        let pipe = self.all.get_mut(&id)?;
        pipe.start_over(now);
        pipe.conn.replace(conn)
    }

    /// A pipe runs over this connection no longer.
    pub(crate) fn unplug(&mut self, id: PipeId, conn: ConnId) {
        let pipe = self.all.get_mut(&id);
        if let Some(pipe) = pipe.filter(|pipe| pipe.conn == Some(conn)) {
            pipe.conn = None;
        }
    }

    /// The next packet that arrived by a pipe.
    pub(crate) fn poll_packet(&mut self, id: PipeId) -> Option<Packet> {
        self.all.get_mut(&id)?.received.pop_front()
    }

    /// Whether packets that arrived wait in a pipe.
    pub(crate) fn has_arrivals(&self, id: PipeId) -> bool {
        let pipe = self.all.get(&id);
        pipe.is_some_and(|pipe| !pipe.received.is_empty())
    }
}
