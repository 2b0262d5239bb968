//! One QUIC connection with its paths and its scheduler: what a class sends over.
//!
//! Both ends run this same code. A tunnel is plugged into the [`Pipe`] of its class, where inner
//! packets wait; [`Tunnel::poll_transmit`] moves them to paths. One round of it has two parts:
//!
//! 1. *Control*: noq's datagram queue is empty and all gates are open, so noq sends whatever it
//!    wants to: acknowledgements, probes, streams.
//! 2. *Data*: the scheduler chooses a path and a batch for it, the batch goes into noq's queue,
//!    that path's gate alone is open until the batch is out; and again, until no path has room or
//!    nothing waits.
//!
//! What arrives is handed to the pipe as bare IP packets.

mod ack_path;
mod batch;
mod early;
mod fares;
mod fitting;
mod health;
mod inbound;
mod keys;
mod lateness;
mod launch;
mod opening;
mod padding;
mod plan;
mod protect;
mod repair;
mod reports;
mod round;
mod spare;
mod tail;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use noq_proto::{Connection, FourTuple, PathId, VarInt};
use sennit_core::{Congestion, Policy, Scheduler, health::Arrivals, queue::Queued};
use sennit_masque::StreamId;

use self::{
    early::Early, fares::Fares, health::Activity, lateness::Clocks, opening::Opening,
    plan::Patience, reports::Reports, round::Round, tail::Tail,
};
use crate::{
    codec::Codec,
    facts::{FlowStatus, FlowsWanted, LinkLabel, TunnelStatus},
    farewell::Farewell,
    finish::Finish,
    ids::{LinkId, SocketId},
    mishap::Mishap,
    path::{Path, number},
    pipe::Pipe,
    renewal::{self, Rekey},
    resumption::Agreed,
    timer::{Due, Timer},
    transport::{DATAGRAM_BUFFER, Settings},
    treatment::Treatment,
};

/// PATH_UNSTABLE_OR_POOR (RFC 10069 §4.3).
pub(crate) const POOR: VarInt = VarInt::from_u32(0x3e76);

/// A round trip of a slow connection takes at least this long: a satellite's takes 0.7 s.
const SLOW: Duration = Duration::from_secs(1);

/// A QUIC connection that carries one class.
pub(crate) struct Tunnel {
    pub(crate) conn: Connection,
    pub(crate) paths: Vec<Path>,
    /// Who is at the other end, if that is known: what its tunnels know of a way they know
    /// together.
    pub(crate) party: Arc<str>,
    /// The other end may have forgotten it, unless it is heard after this.
    doubted: Option<Instant>,
    scheduler: Scheduler,
    congestion: Congestion,
    /// Full-size packet on the wire, in bytes.
    packet_size: u64,
    /// What its datagrams look like, while it is plugged into a pipe: once CONNECT-IP is agreed.
    codec: Option<Codec>,
    /// What it still has to do with the class that goes on over another connection.
    pub(crate) tail: Option<Box<Tail>>,
    /// What arrived elsewhere than on its paths: the handshake, at first.
    arrivals: Arrivals,
    /// What came before that.
    early: Early,
    opening: Opening,
    farewell: Farewell,
    mishap: Mishap,
    round: Round,
    patience: Patience,
    activity: Activity,
    reports: Reports,
    fares: Fares,
    clocks: Clocks,
    /// Room for halves of packets.
    chunk: BytesMut,
    /// The longest inner packet that some usable path carries.
    longest: usize,
    /// Datagrams of requests that are no tunnel, if the connection may have such.
    unbound: Option<Vec<Unbound>>,
    /// Whether the peer may open paths.
    allows_paths: bool,
    /// Of the connection, once they may be renewed.
    keys: Option<Arc<renewal::Keys>>,
    rekey: Rekey,
}

/// Stream, context and payload of a datagram.
pub(crate) type Unbound = (StreamId, u64, Bytes);

impl Tunnel {
    pub(crate) fn new(
        conn: Connection,
        treatment: Treatment,
        settings: &Settings,
        now: Instant,
    ) -> Self {
        let early = Early::new(conn.side().is_client());
        Self {
            conn,
            paths: Vec::new(),
            party: Arc::default(),
            doubted: None,
            scheduler: Scheduler::new(treatment.policy, treatment.copies),
            congestion: treatment.congestion,
            packet_size: u64::from(settings.outer_mtu()),
            codec: None,
            tail: None,
            arrivals: Arrivals::default(),
            early,
            opening: Opening::default(),
            farewell: Farewell::default(),
            mishap: Mishap::default(),
            round: Round::new(now),
            patience: Patience::default(),
            activity: Activity::new(now),
            reports: Reports::new(now),
            fares: Fares::default(),
            clocks: Clocks::default(),
            chunk: BytesMut::new(),
            longest: usize::MAX,
            unbound: None,
            allows_paths: false,
            keys: None,
            rekey: settings.rekey,
        }
    }

    /// It is plugged into a pipe, which packets go through that look like this.
    pub(crate) fn open(&mut self, codec: Codec) {
        self.codec = Some(codec);
    }

    /// Packets that come before it is plugged into a pipe wait for that.
    pub(crate) fn keep_early(&mut self) {
        self.early.wait();
    }

    /// It is plugged into a pipe no longer.
    pub(crate) fn shut(&mut self) {
        self.codec = None;
        self.abort_round();
    }

    /// The hub learns the treatment with the request.
    pub(crate) fn set_treatment(&mut self, treatment: Treatment) {
        self.scheduler = Scheduler::new(treatment.policy, treatment.copies);
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
        self.codec.as_ref()
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
    pub(crate) fn add_path(
        &mut self,
        pipe: &mut Pipe,
        id: PathId,
        socket: SocketId,
        link: LinkLabel,
        now: Instant,
    ) {
        self.paths.retain(|path| path.id != id);
        let mut path = Path::adopt(&self.conn, id, socket, link, now);
        if let Some(path) = &mut path {
            path.gate.set_congestion(self.congestion);
            if id == PathId::ZERO {
                path.health.set_arrivals(self.arrivals);
            }
        }
        self.paths.extend(path);
        self.paths.sort_by_key(|path| path.id);
        self.set_floors();
        self.allow_spare_paths(now);
        self.abort_batch(pipe);
    }

    /// Forgets a path that is closed; returns its link. What was in flight on it noq declares lost
    /// later, when nobody listens any more, so it is sent again now.
    pub(crate) fn remove_path(&mut self, pipe: &mut Pipe, id: PathId) -> Option<LinkLabel> {
        let index = self.paths.iter().position(|path| path.id == id)?;
        self.paths[index].gate.ledger().lose_all();
        self.collect_lost(pipe, self.round.polled);
        let path = self.paths.remove(index);
        pipe.resequencer.forget_path(number(id));
        self.abort_batch(pipe);
        Some(path.link)
    }

    /// Indices into the paths have changed: whatever was chosen is chosen anew.
    fn abort_batch(&mut self, pipe: &mut Pipe) {
        self.abort_round();
        pipe.flows.forget_paths();
    }

    fn abort_round(&mut self) {
        self.round.abort();
        self.open_gates();
        self.say_statuses();
    }

    /// Closes the paths that noq sends no data on, so that the edge opens them anew. False if it
    /// can hear of that on no other, which only closing the connection helps. noq tells that where
    /// it sends no data too, but on a path that is dead rather than there: so that one is closed.
    pub(crate) fn close_stuck_paths(&mut self, now: Instant) -> bool {
        if !self.paths.iter().any(Path::is_stuck) {
            return true;
        }
        let lives =
            |path: &Path| !path.is_stuck() && path.state().0 != sennit_core::PathState::Down;
        let heard = self.paths.iter().any(lives);
        for path in self.paths.iter().filter(|path| path.is_stuck() == heard) {
            // Fails only for one that is closed already, and is about to be removed.
            let _ = self.conn.close_path(now, path.id, POOR);
        }
        heard
    }

    /// The link that packets with these addresses take.
    pub(crate) fn link_of(&self, network: FourTuple) -> Option<LinkId> {
        let mut paths = self.paths.iter();
        paths.find(|path| path.network == network)?.on
    }

    /// Whether this is the server, and has agreed with the client on all but what is to be proved.
    pub(crate) fn has_answered(&self) -> bool {
        self.conn.side().is_server() && self.agreed().is_some()
    }

    /// What the handshake has agreed on, once it has.
    fn agreed(&self) -> Option<Box<Agreed>> {
        let data = self.conn.crypto_session().handshake_data()?;
        data.downcast().ok()
    }

    /// Fills in what the tunnel knows of itself.
    pub(crate) fn describe(&mut self, status: &mut TunnelStatus) {
        status.numbered = self.is_numbered();
        if let Some(agreed) = self.agreed() {
            status.group = agreed.group;
            status.resumed = agreed.resumed;
            status.early = self.conn.accepted_0rtt();
            status.key_updates = agreed.keys.map_or(0, |keys| keys.renewals());
        }
        status.striping = self.scheduler.striping();
        let halves = self.takes_halves();
        let Self { paths, conn, .. } = self;
        status.paths = paths
            .iter()
            .filter_map(|path| path.describe(halves, conn))
            .collect();
    }

    /// What is known of the flows that are asked for, and how many they are in all.
    pub(crate) fn flows(
        &self,
        pipe: &mut Pipe,
        wanted: &FlowsWanted,
        now: Instant,
    ) -> (Vec<FlowStatus>, usize) {
        let (flows, count) = pipe
            .flows
            .busiest(wanted.pattern.as_ref(), wanted.limit, now);
        let path_ids = || self.paths.iter().map(|path| number(path.id));
        let described = flows.into_iter().map(|account| FlowStatus {
            paths: path_ids().zip(account.paths).collect(),
            queue: pipe.queue.flow(account.hash),
            account,
        });
        (described.collect(), count)
    }

    /// Largest inner packet that can be sent now.
    pub(crate) fn max_packet(&mut self) -> usize {
        let Some(codec) = &self.codec else { return 0 };
        let overhead = codec.most_overhead();
        let size = self.conn.datagrams().max_size().unwrap_or(0);
        size.saturating_sub(overhead).min(self.longest)
    }

    // ---- without a pipe ------------------------------------------------------------------------

    /// When anything last arrived before it had paths, and its round trip as far as it is known.
    pub(crate) fn answered(&self) -> Option<(Instant, Duration)> {
        Some((self.arrivals.last()?, self.conn.rtt(PathId::ZERO)?))
    }

    /// Whether the round trip of its first path takes so long that all else does.
    pub(crate) fn is_slow(&self) -> bool {
        let rtt = self.conn.rtt(PathId::ZERO);
        rtt.is_some_and(|rtt| rtt >= SLOW)
    }

    /// From now on datagrams that are of no tunnel are kept for [`Self::take_unbound`].
    pub(crate) fn keep_unbound(&mut self) {
        self.unbound.get_or_insert_default();
    }

    /// Datagrams that are of no tunnel.
    pub(crate) fn take_unbound(&mut self) -> Vec<Unbound> {
        self.unbound.as_mut().map_or_else(Vec::new, std::mem::take)
    }

    /// Sends a datagram by whatever path, unless as much as `most` bytes of them wait already, or
    /// it is too large; false if it is not sent.
    pub(crate) fn send_unbound(&mut self, datagram: Bytes, most: usize) -> bool {
        self.round.only_acks = Some(false);
        let mut datagrams = self.conn.datagrams();
        let waiting = DATAGRAM_BUFFER.saturating_sub(datagrams.send_buffer_space());
        waiting < most && datagrams.send(datagram, false).is_ok()
    }

    // ---- inner packets -------------------------------------------------------------------------

    /// Takes an inner packet. [`Self::max_packet`] was checked.
    pub(crate) fn handle_packet(&mut self, pipe: &mut Pipe, packet: Queued, now: Instant) {
        if self.codec.is_some() {
            self.activity.note_to_send(packet.packet_len(), now);
            pipe.push(packet, now);
        }
    }

    // ---- time ----------------------------------------------------------------------------------

    /// What noq has to do by now.
    pub(crate) fn handle_timeout(&mut self, finish: &Finish, now: Instant) {
        let conn = &mut self.conn;
        self.mishap
            .contain(now, || finish.handle_timeout(conn, now));
    }

    /// Whether noq has panicked in it, so that it has to be given up.
    pub(crate) fn is_broken(&self) -> bool {
        self.mishap.at().is_some()
    }

    /// When the tunnel next needs attention.
    pub(crate) fn poll_timeout(&self, pipe: &Pipe) -> Option<Due> {
        if let Some(at) = self.mishap.at() {
            return Some(Timer::Fault.due(at));
        }
        let listens = self.is_numbered();
        let owes = self.codec().is_some_and(Codec::owes_templates);
        let health = self
            .paths
            .iter()
            .map(|path| path.health.poll_timeout(listens));
        let waiting = self.is_backlogged(pipe);
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
        let held = self.round.held.filter(|_| waiting);
        let reports = self.reports.poll_timeout(owes).filter(|_| listens);
        let trials = self.paths.iter().filter_map(Path::trial_at);
        let tail = self.tail.as_ref().and_then(|tail| tail.poll_timeout());
        Due::first([
            (Timer::Round, self.round.poll_timeout()),
            (Timer::Pacing, pacing.min()),
            (Timer::Share, held),
            (Timer::Acks, self.owes_until()),
            (Timer::Report, reports),
            (Timer::Order, self.overdue_at(pipe)),
            (Timer::Repair, self.protection_due_at(pipe)),
            (Timer::Repair, tail),
            (Timer::Health, health.min()),
            (Timer::Trial, trials.min().filter(|_| listens)),
            (Timer::Quic, self.conn.poll_timeout()),
        ])
    }
}

fn within(since: Option<Instant>, span: Duration, now: Instant) -> bool {
    since.is_some_and(|since| now.saturating_duration_since(since) < span)
}
