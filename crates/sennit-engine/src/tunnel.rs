//! One QUIC connection with its paths, its queue and its scheduler: the data plane of a class.
//!
//! Both ends run this same code. Inner packets go in by [`Tunnel::handle_packet`] and wait in
//! FQ-CoDel; [`Tunnel::poll_transmit`] moves them to paths. One round of it has two parts:
//!
//! 1. *Control*: noq's datagram queue is empty and all gates are open, so noq sends whatever it
//!    wants to: acknowledgements, probes, streams.
//! 2. *Data*: the scheduler chooses a path and a batch for it, the batch goes into noq's queue,
//!    that path's gate alone is open until the batch is out; and again, until no path has room or
//!    nothing waits.
//!
//! What arrives is handed to [`Tunnel::poll_packet`] as bare IP packets.

mod ack_path;
mod batch;
mod fitting;
mod health;
mod inbound;
mod padding;
mod plan;
mod recovery;
mod reports;
mod round;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use noq_proto::{ClosePathError, Connection, PathId, VarInt};
use sennit_core::{
    Congestion, Flows, FqCodel, Halves, Numbering, Policy, Resequencer, Scheduler, queue::Queued,
};
use sennit_masque::StreamId;

use self::{health::Activity, plan::Patience, recovery::Recovery, reports::Reports, round::Round};
use crate::{
    codec::{Codec, Peer},
    facts::{FlowStatus, FlowsWanted, LinkLabel, TunnelStats, TunnelStatus},
    ids::SocketId,
    inner::Packet,
    path::{Path, number},
    transport::MAX_PATHS,
    treatment::Treatment,
};

/// PATH_UNSTABLE_OR_POOR (RFC 10069 §4.3).
pub(crate) const POOR: VarInt = VarInt::from_u32(0x3e76);
/// A QUIC connection that carries one class.
pub(crate) struct Tunnel {
    pub(crate) conn: Connection,
    pub(crate) paths: Vec<Path>,
    pub(crate) stats: TunnelStats,
    /// Who is at the other end, if that is known: what its tunnels know of a way they know
    /// together.
    pub(crate) party: Arc<str>,
    queue: FqCodel,
    flows: Flows,
    scheduler: Scheduler,
    congestion: Congestion,
    /// Full-size packet on the wire, in bytes.
    packet_size: u64,
    /// Set once CONNECT-IP is agreed.
    data: Option<DataPlane>,
    round: Round,
    patience: Patience,
    recovery: Recovery,
    activity: Activity,
    reports: Reports,
    /// Room for halves of packets.
    chunk: BytesMut,
    /// The longest inner packet that some usable path carries.
    longest: usize,
    received: VecDeque<Packet>,
}

/// What carries a tunnel's packets once CONNECT-IP is agreed.
#[derive(Debug)]
struct DataPlane {
    codec: Codec,
    numbering: Numbering,
    halves: Halves,
    resequencer: Resequencer<Packet>,
}

impl Tunnel {
    pub(crate) fn new(
        conn: Connection,
        treatment: Treatment,
        packet_size: u16,
        now: Instant,
    ) -> Self {
        Self {
            conn,
            paths: Vec::new(),
            stats: TunnelStats::default(),
            party: Arc::default(),
            queue: FqCodel::default(),
            flows: Flows::default(),
            scheduler: Scheduler::new(treatment.policy, treatment.copies),
            congestion: treatment.congestion,
            packet_size: u64::from(packet_size),
            data: None,
            round: Round::new(now),
            patience: Patience::default(),
            recovery: Recovery::new(treatment.delivery),
            activity: Activity::new(now),
            reports: Reports::new(now),
            chunk: BytesMut::new(),
            longest: usize::MAX,
            received: VecDeque::new(),
        }
    }

    /// CONNECT-IP is agreed on request stream `stream`.
    pub(crate) fn open_data(&mut self, stream: StreamId, peer: Peer, now: Instant) {
        self.data = Some(DataPlane {
            codec: Codec::new(stream, peer),
            numbering: Numbering::new(now),
            halves: Halves::default(),
            resequencer: Resequencer::new(now),
        });
    }

    /// The peer may from now on open paths.
    pub(crate) fn allow_paths(&mut self, now: Instant) {
        // Fails only for a peer that does not speak multipath.
        let _ = self.conn.set_max_concurrent_paths(now, MAX_PATHS);
    }

    /// The hub learns the treatment with the request.
    pub(crate) fn set_treatment(&mut self, treatment: Treatment) {
        self.scheduler = Scheduler::new(treatment.policy, treatment.copies);
        self.recovery.set_delivery(treatment.delivery);
        self.congestion = treatment.congestion;
        for path in &self.paths {
            path.gate.set_congestion(treatment.congestion);
        }
        self.set_floors();
    }

    /// Packets that are sent twice are few; a copy must not be withheld because the other path's
    /// death, which takes the acknowledgements of both with it, has shrunk this one's window. So
    /// these paths always have the initial window (RFC 9002 §7.2).
    fn set_floors(&self) {
        let packets = if self.scheduler.policy() == Policy::Redundant {
            10
        } else {
            0
        };
        for path in &self.paths {
            path.gate.set_floor(packets * self.packet_size);
        }
    }

    /// What was agreed on with the other end, once it was.
    fn codec(&self) -> Option<&Codec> {
        self.data.as_ref().map(|data| &data.codec)
    }

    pub(crate) fn is_numbered(&self) -> bool {
        self.codec().is_some_and(Codec::is_numbered)
    }

    /// Whether inner packets may have partial checksums.
    pub(crate) fn takes_partial(&self) -> bool {
        self.codec().is_some_and(Codec::takes_partial)
    }

    /// Whether packets that are too large for a path may be sent there in halves.
    pub(crate) fn takes_halves(&self) -> bool {
        self.codec().is_some_and(Codec::takes_halves)
    }

    /// Takes over a path that noq validated.
    pub(crate) fn add_path(&mut self, id: PathId, socket: SocketId, link: LinkLabel, now: Instant) {
        self.paths.retain(|path| path.id != id);
        let path = Path::adopt(&self.conn, id, socket, link, now);
        if let Some(path) = &path {
            path.gate.set_congestion(self.congestion);
        }
        self.paths.extend(path);
        self.paths.sort_by_key(|path| path.id);
        self.set_floors();
        self.abort_batch();
    }

    /// Forgets a path that is closed; returns its link. What was in flight on it noq declares lost
    /// later, when nobody listens any more, so it is sent again now.
    pub(crate) fn remove_path(&mut self, id: PathId) -> Option<LinkLabel> {
        let index = self.paths.iter().position(|path| path.id == id)?;
        self.paths[index].gate.ledger().lose_all();
        self.collect_lost(self.round.polled);
        let path = self.paths.remove(index);
        if let Some(data) = &mut self.data {
            data.resequencer.forget_path(number(id));
        }
        self.abort_batch();
        Some(path.link)
    }

    /// Indices into the paths have changed: whatever was chosen is chosen anew.
    fn abort_batch(&mut self) {
        self.round.abort();
        self.flows.forget_paths();
        self.open_gates();
    }

    /// Closes the paths that noq sends no data on, so that the edge opens them anew. False if one
    /// is the last, which only closing the connection helps.
    pub(crate) fn close_stuck_paths(&mut self, now: Instant) -> bool {
        let mut closed = true;
        for path in self.paths.iter().filter(|path| path.is_stuck()) {
            closed &= match self.conn.close_path(now, path.id, POOR) {
                // The one that is closed already is about to be removed.
                Ok(()) | Err(ClosePathError::ClosedPath) => true,
                Err(ClosePathError::LastOpenPath | ClosePathError::MultipathNotNegotiated) => false,
            };
        }
        closed
    }

    /// Fills in what the tunnel knows of itself, but for its flows.
    pub(crate) fn describe(&mut self, status: &mut TunnelStatus) {
        status.backlog = self.queue.backlog();
        status.queue = self.queue.stats();
        status.stats = self.stats();
        status.numbered = self.is_numbered();
        status.striping = self.scheduler.striping();
        let halves = self.takes_halves();
        let Self { paths, conn, .. } = self;
        status.paths = paths
            .iter()
            .filter_map(|path| Some(path.describe(halves, &conn.path_stats(path.id)?)))
            .collect();
    }

    /// Counters so far.
    fn stats(&self) -> TunnelStats {
        let order = self.data.as_ref().map(|data| data.resequencer.stats());
        TunnelStats {
            order: order.unwrap_or_default(),
            ..self.stats
        }
    }

    /// What is known of the flows that are asked for, and how many they are in all.
    pub(crate) fn flows(&mut self, wanted: &FlowsWanted, now: Instant) -> (Vec<FlowStatus>, usize) {
        let (flows, count) = self
            .flows
            .busiest(wanted.pattern.as_ref(), wanted.limit, now);
        let path_ids = || self.paths.iter().map(|path| number(path.id));
        let described = flows.into_iter().map(|account| FlowStatus {
            paths: path_ids().zip(account.paths).collect(),
            queue: self.queue.flow(account.hash),
            account,
        });
        (described.collect(), count)
    }

    /// Largest inner packet that can be sent now.
    pub(crate) fn max_packet(&mut self) -> usize {
        let Some(data) = &self.data else { return 0 };
        let overhead = data.codec.most_overhead();
        let size = self.conn.datagrams().max_size().unwrap_or(0);
        size.saturating_sub(overhead).min(self.longest)
    }

    // ---- inner packets -------------------------------------------------------------------------

    /// Takes an inner packet. [`Self::max_packet`] was checked.
    pub(crate) fn handle_packet(&mut self, packet: Queued, now: Instant) {
        if self.data.is_none() {
            return;
        }
        self.stats.packets_in += 1;
        self.note_data(packet.packet_len(), now);
        self.queue.push(packet, now);
    }

    /// The next inner packet that arrived.
    pub(crate) fn poll_packet(&mut self) -> Option<Packet> {
        self.received.pop_front()
    }

    // ---- time ----------------------------------------------------------------------------------

    /// When the tunnel next needs attention.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let listens = self.is_numbered();
        let health = self
            .paths
            .iter()
            .map(|path| path.health.poll_timeout(listens));
        let waiting = self.is_backlogged();
        // A path with credit that the scheduler does not want now will not be wanted any sooner for
        // being asked again; only credit yet to be earned changes anything.
        let pacing = waiting
            .then(|| {
                self.paths
                    .iter()
                    .filter_map(|path| path.ready_at(self.packet_size))
            })
            .into_iter()
            .flatten()
            .filter(|&at| at > self.round.polled);
        health
            .chain(self.round.poll_timeout())
            .chain(pacing)
            .chain(self.reports.poll_timeout())
            .chain(self.overdue_at())
            .chain(self.owes_until())
            .chain(self.conn.poll_timeout())
            .min()
    }
}

fn within(since: Option<Instant>, span: Duration, now: Instant) -> bool {
    since.is_some_and(|since| now.saturating_duration_since(since) < span)
}
