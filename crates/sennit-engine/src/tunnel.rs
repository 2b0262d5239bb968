//! One QUIC connection with its paths, its queue and its scheduler: the data plane of a class.
//!
//! Both ends run this same code. Inner packets go in by [`Tunnel::handle_packet`] and wait in
//! FQ-CoDel; [`Tunnel::poll_transmit`] moves them to paths. One round of it has two parts:
//!
//! 1. *Control*: noq's datagram queue is empty and all gates are open, so noq sends whatever it
//!    wants to: acknowledgements, probes, streams.
//! 2. *Data*: the scheduler chooses a path and a batch for it, the batch goes into noq's queue, that
//!    path's gate alone is open until the batch is out; and again, until no path has room or
//!    nothing waits.
//!
//! What arrives is handed to [`Tunnel::poll_packet`] as bare IP packets.

mod fitting;
mod inbound;
mod outbound;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use noq_proto::{ClosePathError, Connection, FourTuple, PathId, VarInt};
use sennit_core::{
    Congestion, Delivery, Flows, FqCodel, Halves, Numbering, Pace, PathSet, PathState, PathView,
    Policy, Resequencer, Scheduler, Sent,
    frame::{
        CONTEXT_HALF, CONTEXT_IP, CONTEXT_NUMBERED, CONTEXT_PADDING, CONTEXT_PARTIAL,
        CONTEXT_REPORT, Header, PathReport, Report,
    },
    health::Keep,
    queue::{Popped, Queued},
};
use sennit_masque::{
    StreamId,
    datagram::{self, Prefix},
};

use self::outbound::{Batch, Narrow, Repair, Sending};
use crate::{
    facts::{FlowStatus, FlowsWanted, LinkLabel, TunnelStats, TunnelStatus},
    gate::SizeSource,
    hello::Peer,
    ids::{ConnId, SocketId},
    inner::Packet,
    path::{Path, number},
    transport::MAX_PATHS,
    treatment::Treatment,
    ways::Ways,
};

/// PATH_UNSTABLE_OR_POOR (RFC 10069 §4.3).
pub(crate) const POOR: VarInt = VarInt::from_u32(0x3e76);
/// Without data for this long a tunnel is idle and its paths are probed slowly.
const IDLE_AFTER: Duration = Duration::from_secs(2);
/// A tunnel that carries this many bytes within [`FLOOD_WINDOW`], 2.6 Mbit/s, is busy until some time
/// after it last did.
const FLOOD: usize = 64 << 10;
const FLOOD_WINDOW: Duration = Duration::from_millis(200);
const FLOOD_LASTS: Duration = Duration::from_secs(1);
/// An end that heard a report this recently probes quickly for the other's sake.
const PEER_ACTIVE_FOR: Duration = Duration::from_secs(1);
/// How often an active end reports.
const REPORT_EVERY: Duration = Duration::from_millis(100);
/// A change is reported this many times even by an idle end, as datagrams may be lost.
const REPORTS_PER_CHANGE: u8 = 5;
/// How often bad news of a path is repeated: the peer does not believe it for good.
const REPORT_AGAIN: Duration = Duration::from_secs(1);
/// The same while nothing flows: less than half of the time for which the peer believes it then.
const REPORT_IDLE: Duration = Duration::from_secs(100);
/// A path that is not to be used for longer than this gets no news any more.
const NEWS_FOR: Duration = Duration::from_secs(60);
/// A tunnel in use tells the others of its paths this often: an idle one needs to know within seconds.
const INFORM_EVERY: Duration = Duration::from_secs(1);

/// A QUIC connection that carries one class.
pub(crate) struct Tunnel {
    pub(crate) conn: Connection,
    pub(crate) paths: Vec<Path>,
    pub(crate) stats: TunnelStats,
    /// Who is at the other end, if that is known: what its tunnels know of a way they know together.
    pub(crate) party: Arc<str>,
    queue: FqCodel,
    flows: Flows,
    scheduler: Scheduler,
    narrow: Narrow,
    /// When a path last was in its startup.
    started: Option<Instant>,
    delivery: Delivery,
    congestion: Congestion,
    repair: Repair,
    /// Full-size packet on the wire, in bytes.
    packet_size: u64,
    /// Set once CONNECT-IP is agreed.
    data: Option<DataPlane>,
    sending: Sending,
    /// In this round data leaves before what noq has to send by itself.
    data_first: bool,
    /// There was more to send at the time of `polled`.
    goes_on: bool,
    /// Whether what noq has to send is no more than acknowledgements; `None` if nothing came since it was asked.
    only_acks: Option<bool>,
    /// Room in noq's queue after a batch was put there; what it sends of it makes more.
    launched: Option<usize>,
    views: Vec<PathView>,
    batch: Batch,
    /// Room for halves of packets.
    chunk: BytesMut,
    /// The longest inner packet that some usable path carries.
    longest: usize,
    /// A packet whose path differed from that of the batch that was being filled.
    held: Option<Popped>,
    /// What went out since the scheduler was told.
    sent: Sent,
    polled: Instant,
    received: VecDeque<Packet>,
    last_data: Option<Instant>,
    flood: Flood,
    last_report: Option<Instant>,
    /// When the newest one was sent, by the peer's clock.
    newest_report: u32,
    /// When the peer last reported because packets flow there.
    peer_active: Option<Instant>,
    next_report: Instant,
    reports_left: u8,
}

/// Whether many packets go in and out. Both ends see the same ones, so they agree.
#[derive(Clone, Copy, Debug)]
struct Flood {
    since: Instant,
    bytes: usize,
    seen: Option<Instant>,
}

/// What is agreed for the datagrams of a tunnel.
#[derive(Debug)]
struct DataPlane {
    stream: StreamId,
    peer: Peer,
    /// What every inner packet gets in front,
    prefix: Prefix,
    /// or, if its checksum is partial, this, which is as long.
    partial: Prefix,
    /// What padding gets.
    padding: Prefix,
    /// What half of a packet gets.
    half: Prefix,
    numbering: Numbering,
    halves: Halves,
    resequencer: Resequencer<Packet>,
}

impl DataPlane {
    fn is_numbered(&self) -> bool {
        self.peer != Peer::Standard
    }

    /// Bytes between the prefix and the inner packet.
    fn header_len(&self) -> usize {
        if self.is_numbered() { Header::LEN } else { 0 }
    }
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
            narrow: Narrow::default(),
            started: None,
            delivery: treatment.delivery,
            congestion: treatment.congestion,
            repair: Repair::default(),
            packet_size: u64::from(packet_size),
            data: None,
            sending: Sending::Control,
            data_first: false,
            goes_on: false,
            only_acks: None,
            launched: None,
            views: Vec::new(),
            batch: Batch::default(),
            chunk: BytesMut::new(),
            longest: usize::MAX,
            held: None,
            sent: Sent::default(),
            polled: now,
            received: VecDeque::new(),
            last_data: None,
            flood: Flood {
                since: now,
                bytes: 0,
                seen: None,
            },
            last_report: None,
            newest_report: 0,
            peer_active: None,
            next_report: now,
            reports_left: 0,
        }
    }

    /// CONNECT-IP is agreed on request stream `stream`.
    pub(crate) fn open_data(&mut self, stream: StreamId, peer: Peer, now: Instant) {
        let context = match peer {
            Peer::Sennit { .. } => CONTEXT_NUMBERED,
            Peer::Standard => CONTEXT_IP,
        };
        let prefix = |context| datagram::encode_prefix(stream, context);
        self.data = Some(DataPlane {
            stream,
            peer,
            prefix: prefix(context),
            partial: prefix(CONTEXT_PARTIAL),
            padding: prefix(CONTEXT_PADDING),
            half: prefix(CONTEXT_HALF),
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
        self.delivery = treatment.delivery;
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

    pub(crate) fn is_numbered(&self) -> bool {
        self.data.as_ref().is_some_and(DataPlane::is_numbered)
    }

    /// Whether inner packets may have partial checksums.
    pub(crate) fn takes_partial(&self) -> bool {
        let peer = self.data.as_ref().map(|data| data.peer);
        matches!(peer, Some(Peer::Sennit { partial: true, .. }))
    }

    /// Whether packets that are too large for a path may be sent there in halves.
    pub(crate) fn takes_halves(&self) -> bool {
        let peer = self.data.as_ref().map(|data| data.peer);
        matches!(peer, Some(Peer::Sennit { halves: true, .. }))
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

    /// Forgets a path that is closed; returns its link. What was in flight on it noq declares lost later, when
    /// nobody listens any more, so it is sent again now.
    pub(crate) fn remove_path(&mut self, id: PathId) -> Option<LinkLabel> {
        let index = self.paths.iter().position(|path| path.id == id)?;
        self.paths[index].gate.ledger().lose_all();
        self.collect_lost(self.polled);
        let path = self.paths.remove(index);
        if let Some(data) = &mut self.data {
            data.resequencer.forget_path(number(id));
        }
        self.abort_batch();
        Some(path.link)
    }

    /// Indices into the paths have changed: whatever was chosen is chosen anew.
    fn abort_batch(&mut self) {
        self.sending = Sending::Control;
        self.batch.clear();
        self.views.clear();
        self.flows.forget_paths();
        self.open_gates();
    }

    /// Closes the paths that noq sends no data on, so that the edge opens them anew. False if one is the last,
    /// which only closing the connection helps.
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
        let prefix = data.prefix.len() + Header::LEN;
        let size = self.conn.datagrams().max_size().unwrap_or(0);
        size.saturating_sub(prefix).min(self.longest)
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

    // ---- health --------------------------------------------------------------------------------

    /// An inner packet went in or out.
    fn note_data(&mut self, bytes: usize, now: Instant) {
        self.last_data = Some(now);
        if now.saturating_duration_since(self.flood.since) >= FLOOD_WINDOW {
            (self.flood.since, self.flood.bytes) = (now, 0);
        }
        self.flood.bytes += bytes;
        if self.flood.bytes >= FLOOD {
            self.flood.seen = Some(now);
        }
    }

    /// How much flows, here or (as its reports say) at the peer.
    fn pace(&self, now: Instant) -> Pace {
        let flows = within(self.last_data, IDLE_AFTER, now)
            || within(self.peer_active, PEER_ACTIVE_FOR, now);
        // Where there is no other path, nothing is gained by knowing at once that this one is dead.
        if self.paths.len() > 1 && within(self.flood.seen, FLOOD_LASTS, now) {
            Pace::Busy
        } else if flows {
            Pace::Active
        } else {
            Pace::Idle
        }
    }

    /// Learns what other tunnels know of the ways that an idle one shares with them.
    pub(crate) fn consult(&mut self, ways: &Ways, id: ConnId, now: Instant) {
        if !self.is_numbered() || self.pace(now) != Pace::Idle {
            return;
        }
        for path in &mut self.paths {
            let company = ways.company(&self.party, path.network, id, now);
            path.health.set_company(company, now);
        }
    }

    /// Tells other tunnels of the ways; true if they should hear of it at once.
    pub(crate) fn inform(&mut self, ways: &mut Ways, id: ConnId, now: Instant) -> bool {
        if !self.is_numbered() {
            return false;
        }
        let pace = self.pace(now);
        let every = if pace == Pace::Idle {
            Duration::ZERO
        } else {
            INFORM_EVERY
        };
        let mut changed = false;
        for path in &mut self.paths {
            if path.is_news(every, now) {
                changed |= ways.inform(&self.party, path.network, (id, pace), &path.health, now);
            }
        }
        changed
    }

    /// Who is at the other end, and the ways there.
    pub(crate) fn ways(&self) -> (Arc<str>, Vec<FourTuple>) {
        let networks = self.paths.iter().map(|path| path.network);
        (Arc::clone(&self.party), networks.collect())
    }

    /// How often an idle path is probed.
    fn keep(&self, path: &Path) -> Keep {
        let trusted = self.paths.iter().filter(|path| path.is_trusted());
        let first = trusted.clone().next().map(|path| path.id);
        let best = trusted.clone().map(|path| path.link.tier).min();
        let stands_by = best.is_some_and(|best| path.link.tier > best);
        let keep = match (self.is_numbered(), self.conn.side().is_client(), stands_by) {
            (false, _, _) => Keep::ALONE,
            (true, true, false) => Keep::ASKING,
            (true, true, true) => Keep::ASKING_RARELY,
            (true, false, false) => Keep::ANSWERING,
            (true, false, true) => Keep::ANSWERING_RARELY,
        };
        // The first carries the acknowledgements, and keeps the connection.
        if first == Some(path.id) {
            keep.of_the_first()
        } else {
            keep
        }
    }

    /// Judges the paths and probes those that are due. Calls `changed` for each path whose state
    /// changed.
    pub(crate) fn handle_health(&mut self, mut changed: impl FnMut(&Path), now: Instant) {
        let pace = self.pace(now);
        // A peer that is no Sennit does not probe, so silence means nothing there.
        let listens = self.is_numbered();
        let mut moved = false;
        if pace == Pace::Idle {
            for index in 0..self.paths.len() {
                let keep = self.keep(&self.paths[index]);
                self.paths[index].health.set_keep(keep);
            }
        }
        let probing = self.paths.iter().any(|path| path.health.is_probe_due(now));
        for path in &mut self.paths {
            if probing {
                path.health.probe_in_company(now);
            }
            if path.follow(&self.conn) {
                path.gate.set_congestion(self.congestion);
                moved = true;
            }
            path.health
                .set_pace(pace, path.gate.srtt().unwrap_or_default(), now);
            if path.health.poll_probe(now) {
                // Fails only for a path that is closing, which needs no probe.
                let _ = self.conn.ping_path(path.id);
                path.probes_size = path.gate.probing();
            }
            let heard = path.health.hears();
            let differs = listens && path.health.handle_timeout(now);
            // Whoever judges for this path reports as well.
            if (differs || path.health.hears() != heard) && !path.health.is_judged() {
                self.reports_left = REPORTS_PER_CHANGE;
                self.next_report = now;
            }
            if differs {
                changed(path);
                if path.health.state().0 == PathState::Down && !path.is_trusted() {
                    path.gate.ledger().give_up();
                }
            }
        }
        self.trust(now);
        if moved {
            self.set_floors();
            self.abort_batch();
        }
        // Where noq refuses to send, only reports show whether it still does.
        let refuses = self.paths.iter().any(Path::refuses);
        let again = if pace == Pace::Idle && !refuses {
            REPORT_IDLE
        } else {
            REPORT_AGAIN
        };
        let all_up = self
            .paths
            .iter()
            .all(|path| path.health.state().0 == PathState::Up);
        let judged = !refuses && self.paths.iter().all(|path| path.health.is_judged());
        if !all_up && !judged && now >= self.next_report + again {
            self.reports_left = self.reports_left.max(1);
        }
    }

    /// Decides which paths carry packets: those that are up. If none is, those on which the peer hears us: each
    /// direction may have a link that works, and not the same.
    fn trust(&mut self, now: Instant) {
        let is_up = |path: &Path| path.health.state().0 == PathState::Up;
        let none_up = !self.paths.iter().any(is_up);
        let mut rerouted = false;
        for path in &mut self.paths {
            let trusted = is_up(path) || none_up && path.health.is_heard_by_peer(now);
            if path.set_trusted(trusted) {
                rerouted = true;
                // Fails only for a path that is closing.
                let _ = self.conn.set_path_status(path.id, path.status());
                if !trusted {
                    path.gate.ledger().give_up();
                }
            }
        }
        if rerouted {
            for path in &self.paths {
                path.gate.set_rerouted();
            }
        }
    }

    /// Stages a report for every path that has room; news go out even where there is none, and on all paths: the
    /// only one on which the peer hears may be one on which nothing arrives here.
    ///
    /// An active end reports regularly, which also tells the peer to probe quickly and how late each
    /// path is. If acknowledgements ride on a path that is dead in one direction, all windows fill up
    /// until the peer hears of it.
    fn report_due(&mut self, now: Instant) -> Option<PathSet> {
        let active = within(self.last_data, IDLE_AFTER, now) || self.reports_left > 0;
        if !self.is_numbered() || now < self.next_report || !active {
            return None;
        }
        self.next_report = now + REPORT_EVERY;
        let news = self.reports_left > 0;
        self.reports_left = self.reports_left.saturating_sub(1);
        // Two ends that take all paths for dead because the other said so would never hear otherwise.
        let none_usable = !self.views.iter().any(|view| view.usable);
        let mut paths = PathSet::default();
        for (index, (path, view)) in self.paths.iter().zip(&self.views).enumerate() {
            let gets_news = news
                && (path.is_trusted()
                    || now.saturating_duration_since(path.health.since()) < NEWS_FOR);
            // Nor would it be seen that noq sends again where it refused to.
            if !(view.usable || none_usable || gets_news || path.refuses()) {
                continue;
            }
            if news {
                path.gate
                    .set_floor(path.gate.in_flight() + 2 * self.packet_size);
            }
            if news || view.budget > 0 {
                paths = paths.with(index);
            }
        }
        if paths == PathSet::default() {
            return None;
        }
        let report = self.report(now)?;
        self.put_aside(report, paths);
        Some(paths)
    }

    fn report(&self, now: Instant) -> Option<Bytes> {
        let data = self.data.as_ref()?;
        let mut out = datagram::encode_prefix(data.stream, CONTEXT_REPORT).to_vec();
        let paths = self
            .paths
            .iter()
            .map(|path| PathReport {
                path: number(path.id),
                heard: path.health.hears(),
                shrunk: self.takes_halves()
                    && path.health.hears()
                    && path.gate.size_source() == SizeSource::BlackHole,
            })
            .collect();
        Report {
            sent_micros: data.numbering.clock(now),
            paths,
        }
        .encode(&mut out);
        Some(out.into())
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
            .filter(|&at| at > self.polled);
        let report = (self.reports_left > 0).then_some(self.next_report);
        let rest = self.goes_on.then_some(self.polled);
        health
            .chain(rest)
            .chain(pacing)
            .chain(report)
            .chain(self.overdue_at())
            .chain(self.owes_until())
            .chain(self.conn.poll_timeout())
            .min()
    }
}

fn within(since: Option<Instant>, span: Duration, now: Instant) -> bool {
    since.is_some_and(|since| now.saturating_duration_since(since) < span)
}
