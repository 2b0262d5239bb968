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

use std::{
    collections::VecDeque,
    num::NonZeroUsize,
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes, BytesMut};
use noq_proto::{Connection, ConnectionEvent, FourTuple, PathId, Transmit};
use sennit_core::{
    Choice, Dedup, Delivery, FqCodel, PathState, PathView, Policy, Scheduler,
    frame::{
        CONTEXT_IP, CONTEXT_NUMBERED, CONTEXT_PADDING, CONTEXT_REPORT, HEADROOM, Header,
        PathReport, Report,
    },
    queue::{Queued, TARGET},
};
use sennit_masque::{
    Code, StreamId,
    datagram::{self, Datagram},
};
use sennit_packet::IpPacket;

use crate::{
    locals::SocketId,
    path::{LinkLabel, Path, number, whole},
    transport::MAX_PATHS,
};

/// UDP GSO takes at most 64 segments and 64 KB (Linux `UDP_MAX_SEGMENTS`); 40 packets of 1500 fit.
const BATCH: usize = 40;
/// Bytes that QUIC adds to a datagram, at most: short header, packet number, tag, frame header.
const FRAMING: u64 = 1 + 8 + 4 + 16 + 3;
/// More than this much sending time never waits, whatever CoDel thinks: senders that do not react
/// would fill any queue.
const LONGEST_WAIT: Duration = Duration::from_millis(250);
/// Without data for this long a tunnel is idle and its paths are probed slowly.
const IDLE_AFTER: Duration = Duration::from_secs(2);
/// An end that heard a report this recently probes quickly for the other's sake.
const PEER_ACTIVE_FOR: Duration = Duration::from_secs(1);
/// How often an active end reports.
const REPORT_EVERY: Duration = Duration::from_millis(100);
/// A change is reported this many times even by an idle end, as datagrams may be lost.
const REPORTS_PER_CHANGE: u8 = 5;

/// How a class treats its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Treatment {
    /// Use of links.
    pub policy: Policy,
    /// Fate of lost packets.
    pub delivery: Delivery,
}

/// Counters of a tunnel since it came up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelStats {
    /// Inner packets taken in.
    pub packets_in: u64,
    /// Inner packets handed out.
    pub packets_out: u64,
    /// Inner bytes handed out.
    pub bytes_out: u64,
    /// Inner bytes sent, each copy counted.
    pub bytes_sent: u64,
    /// Second copies dropped.
    pub duplicates: u64,
    /// Packets too big for a path's MTU.
    pub too_big: u64,
    /// Datagrams that were no IP packet, of an unknown context, or malformed.
    pub malformed: u64,
    /// At a hub, packets with a source address that is not the site's.
    pub wrong_source: u64,
}

/// What [`Tunnel::poll_transmit`] is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    Control,
    Data,
    /// A batch is in noq's queue for this path; then the same again for the second path.
    Batch(usize, Option<usize>),
}

/// A QUIC connection that carries one class.
pub(crate) struct Tunnel {
    pub(crate) conn: Connection,
    pub(crate) paths: Vec<Path>,
    pub(crate) stats: TunnelStats,
    queue: FqCodel,
    scheduler: Scheduler,
    /// Full-size packet on the wire, in bytes.
    packet_size: u64,
    /// Set once CONNECT-IP is agreed.
    data: Option<DataPlane>,
    sending: Sending,
    views: Vec<PathView>,
    batch: Vec<Bytes>,
    /// A packet whose path differed from that of the batch that was being filled.
    held: Option<Queued>,
    polled: Instant,
    received: VecDeque<Bytes>,
    last_data: Option<Instant>,
    peer_active: Option<Instant>,
    next_report: Instant,
    reports_left: u8,
    started: Instant,
}

/// What is agreed for the datagrams of a tunnel.
#[derive(Debug)]
struct DataPlane {
    stream: StreamId,
    /// The peer is a Sennit and understands our own contexts.
    numbered: bool,
    next_seq: u32,
    dedup: Dedup,
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
            queue: FqCodel::default(),
            scheduler: Scheduler::new(treatment.policy),
            packet_size: u64::from(packet_size),
            data: None,
            sending: Sending::Control,
            views: Vec::new(),
            batch: Vec::with_capacity(BATCH),
            held: None,
            polled: now,
            received: VecDeque::new(),
            last_data: None,
            peer_active: None,
            next_report: now,
            reports_left: 0,
            started: now,
        }
    }

    /// CONNECT-IP is agreed on request stream `stream`; `numbered` if both ends are Sennits.
    pub(crate) fn open_data(&mut self, stream: StreamId, numbered: bool) {
        self.data = Some(DataPlane {
            stream,
            numbered,
            next_seq: 0,
            dedup: Dedup::default(),
        });
    }

    /// The peer may from now on open paths.
    pub(crate) fn allow_paths(&mut self, now: Instant) {
        // Fails only for a peer that does not speak multipath.
        let _ = self.conn.set_max_concurrent_paths(now, MAX_PATHS);
    }

    /// The hub learns the treatment with the request.
    pub(crate) fn set_treatment(&mut self, treatment: Treatment) {
        self.scheduler = Scheduler::new(treatment.policy);
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
        self.data.as_ref().is_some_and(|data| data.numbered)
    }

    /// Takes over a path that noq validated.
    pub(crate) fn add_path(&mut self, id: PathId, socket: SocketId, link: LinkLabel, now: Instant) {
        self.paths.retain(|path| path.id != id);
        self.paths
            .extend(Path::adopt(&self.conn, id, socket, link, now));
        self.paths.sort_by_key(|path| path.id);
        self.set_floors();
        self.abort_batch();
    }

    /// Forgets a path that noq gave up.
    pub(crate) fn remove_path(&mut self, id: PathId) {
        self.paths.retain(|path| path.id != id);
        self.abort_batch();
    }

    /// Indices into the paths have changed: whatever was chosen is chosen anew.
    fn abort_batch(&mut self) {
        self.sending = Sending::Control;
        self.batch.clear();
        self.views.clear();
        for path in &self.paths {
            path.gate.set_open(true);
        }
    }

    pub(crate) fn backlog(&self) -> usize {
        self.queue.backlog()
    }

    pub(crate) fn queue_stats(&self) -> sennit_core::queue::QueueStats {
        self.queue.stats()
    }

    /// Largest inner packet that fits every path now.
    pub(crate) fn max_packet(&mut self) -> usize {
        let Some(data) = &self.data else { return 0 };
        let prefix = datagram::encode_prefix(data.stream, CONTEXT_NUMBERED).len() + Header::LEN;
        self.conn
            .datagrams()
            .max_size()
            .unwrap_or(0)
            .saturating_sub(prefix)
    }

    // ---- inner packets -------------------------------------------------------------------------

    /// Takes an inner packet. [`Self::max_packet`] was checked.
    pub(crate) fn handle_packet(&mut self, packet: Queued, now: Instant) {
        if self.data.is_none() {
            return;
        }
        self.stats.packets_in += 1;
        self.note_data(now);
        self.queue.push(packet, now);
    }

    /// The next inner packet that arrived.
    pub(crate) fn poll_packet(&mut self) -> Option<Bytes> {
        self.received.pop_front()
    }

    // ---- network -------------------------------------------------------------------------------

    /// A QUIC packet arrived on `network`.
    pub(crate) fn handle_event(
        &mut self,
        event: ConnectionEvent,
        network: FourTuple,
        now: Instant,
    ) {
        self.conn.handle_event(event);
        if let Some(path) = self.paths.iter_mut().find(|path| path.network == network) {
            path.health.handle_heard(now);
        }
    }

    /// Drains the datagrams that the last packets carried. One without a stream id is an error of
    /// the connection (RFC 9297 §2.1).
    pub(crate) fn handle_datagrams(&mut self, now: Instant) -> Result<(), Code> {
        while let Some(datagram) = self.conn.datagrams().recv() {
            self.handle_datagram(datagram, now)?;
        }
        Ok(())
    }

    fn handle_datagram(&mut self, mut datagram: Bytes, now: Instant) -> Result<(), Code> {
        let Datagram {
            stream,
            context,
            payload,
        } = match datagram::decode(&datagram) {
            Ok(decoded) => decoded,
            Err(error) => {
                self.stats.malformed += 1;
                return error.code().map_or(Ok(()), Err);
            }
        };
        if self.data.as_ref().is_none_or(|data| data.stream != stream) {
            self.stats.malformed += 1;
            return Ok(());
        }
        datagram.advance(datagram.len() - payload.len());
        self.handle_payload(context, datagram, now);
        Ok(())
    }

    /// The same content in a capsule of the request stream (RFC 9297 §3.5).
    pub(crate) fn handle_capsule(&mut self, mut content: Bytes, now: Instant) {
        let Some((context, payload)) = datagram::split_context(&content) else {
            self.stats.malformed += 1;
            return;
        };
        content.advance(content.len() - payload.len());
        self.handle_payload(context, content, now);
    }

    fn handle_payload(&mut self, context: u64, mut payload: Bytes, now: Instant) {
        // Nothing else is sent twice, and what comes late over a slow link is still wanted.
        let copies = self.scheduler.policy() == Policy::Redundant;
        match (context, &mut self.data) {
            (CONTEXT_IP, Some(_)) => self.hand_out(payload, now),
            (CONTEXT_NUMBERED, Some(data)) if data.numbered => {
                let Some((header, _)) = Header::decode(&payload) else {
                    self.stats.malformed += 1;
                    return;
                };
                if !copies || data.dedup.first(header.seq) {
                    payload.advance(Header::LEN);
                    self.hand_out(payload, now);
                } else {
                    self.stats.duplicates += 1;
                }
            }
            (CONTEXT_REPORT, Some(data)) if data.numbered => match Report::decode(&payload) {
                Some(report) => self.handle_report(&report, now),
                None => self.stats.malformed += 1,
            },
            (CONTEXT_PADDING, Some(data)) if data.numbered => {}
            // RFC 9484 §6: datagrams of contexts that are not known are dropped.
            _ => self.stats.malformed += 1,
        }
    }

    fn hand_out(&mut self, packet: Bytes, now: Instant) {
        if IpPacket::parse(&packet).is_err() {
            self.stats.malformed += 1;
            return;
        }
        self.stats.packets_out += 1;
        self.stats.bytes_out += packet.len() as u64;
        self.note_data(now);
        self.received.push_back(packet);
    }

    // ---- sending -------------------------------------------------------------------------------

    /// The next batch of UDP packets to send; they are appended to `buffer`.
    pub(crate) fn poll_transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        const GSO: NonZeroUsize = NonZeroUsize::new(BATCH).expect("a batch is not empty");
        // Of a batch of control packets noq 1.4 makes all as short as the first, and then panics if
        // an ACK_FREQUENCY does not fit.
        const ONE: NonZeroUsize = NonZeroUsize::MIN;
        loop {
            match self.sending {
                Sending::Control => {
                    if let Some(transmit) = self.conn.poll_transmit(now, ONE, buffer) {
                        return Some(transmit);
                    }
                    self.refresh_views(now);
                    self.sending = Sending::Data;
                }
                Sending::Data => {
                    self.sending = match self.fill_batch(now) {
                        Some(batch) => batch,
                        None => {
                            self.sending = Sending::Control;
                            self.note_limited();
                            return None;
                        }
                    };
                }
                Sending::Batch(path, second) => {
                    if let Some(transmit) = self.conn.poll_transmit(now, GSO, buffer) {
                        self.account(&transmit, path);
                        return Some(transmit);
                    }
                    self.sending = self.finish_batch(second);
                }
            }
        }
    }

    /// Tells the paths that could have carried more that they were not measured.
    fn note_limited(&self) {
        let waiting = !self.queue.is_empty() || self.held.is_some();
        for (path, view) in self.paths.iter().zip(&self.views) {
            let spare = if waiting {
                view.budget > 0
            } else {
                path.gate.room() >= self.packet_size
            };
            if spare {
                path.gate.set_limited();
            }
        }
    }

    fn refresh_views(&mut self, now: Instant) {
        self.polled = now;
        let none_up = self
            .paths
            .iter()
            .all(|path| path.health.state().0 != PathState::Up);
        self.views.clear();
        let packet = self.packet_size;
        self.views.extend(
            self.paths
                .iter_mut()
                .map(|path| path.view(packet, none_up, now)),
        );
        self.queue
            .set_target(TARGET + self.scheduler.standing(&self.views));
        let usable = self.views.iter().filter(|view| view.usable);
        let rate: u64 = usable.map(|view| view.rate).sum();
        self.queue
            .set_limit((rate as f64 * LONGEST_WAIT.as_secs_f64()) as usize);
    }

    /// Gives noq the next batch and opens the gate of its path; `None` if there is none.
    fn fill_batch(&mut self, now: Instant) -> Option<Sending> {
        if let Some(batch) = self.report_due(now).or_else(|| self.size_probe_due()) {
            return Some(batch);
        }
        let (first, choice) = self.next_packet(now)?;
        self.stage(first, choice, now);
        while self.batch.len() < BATCH {
            let Some((packet, next)) = self.next_packet(now) else {
                break;
            };
            if next != choice {
                self.held = Some(packet);
                break;
            }
            self.stage(packet, choice, now);
        }
        Some(match choice {
            Choice::One(path) => self.launch(path, None),
            Choice::Both(path, second) => self.launch(path, Some(second)),
            Choice::Wait => Sending::Data,
        })
    }

    /// The next packet that some path has room for, and which.
    fn next_packet(&mut self, now: Instant) -> Option<(Queued, Choice)> {
        let backlog = self.queue.backlog();
        let (views, scheduler) = (&self.views, self.scheduler);
        let choose = |flow| scheduler.choose(views, flow, backlog);
        let packet = match self.held.take() {
            Some(held) => held,
            None => self.queue.pop(|flow| choose(flow) != Choice::Wait, now)?,
        };
        match choose(packet.flow) {
            Choice::Wait => {
                self.held = Some(packet);
                None
            }
            choice => Some((packet, choice)),
        }
    }

    /// Wraps a packet and puts it into the batch.
    fn stage(&mut self, packet: Queued, choice: Choice, now: Instant) {
        let wrapped = self.wrap(packet, now);
        let copies = match choice {
            Choice::One(path) => [Some(path), None],
            Choice::Both(path, second) => [Some(path), Some(second)],
            Choice::Wait => [None, None],
        };
        for path in copies.into_iter().flatten() {
            let left = self.views[path]
                .budget
                .saturating_sub(wrapped.len() as u64 + FRAMING);
            self.views[path].budget = whole(left, self.packet_size);
            self.stats.bytes_sent += wrapped.len() as u64;
        }
        self.batch.push(wrapped);
    }

    /// Writes the prefix into the packet's headroom.
    fn wrap(&mut self, packet: Queued, now: Instant) -> Bytes {
        let numbers = matches!(self.scheduler.policy(), Policy::Bond | Policy::Redundant);
        let sent_micros = now.saturating_duration_since(self.started).as_micros() as u32;
        let data = self
            .data
            .as_mut()
            .expect("packets are queued only once data is agreed");
        let mut buffer: BytesMut = packet.buffer;
        let mut start = HEADROOM;
        let context = if numbers && data.numbered {
            let header = Header {
                flow: packet.flow as u16,
                seq: data.next_seq,
                sent_micros,
            };
            data.next_seq = data.next_seq.wrapping_add(1);
            start -= Header::LEN;
            buffer[start..HEADROOM].copy_from_slice(&header.encode());
            CONTEXT_NUMBERED
        } else {
            CONTEXT_IP
        };
        let prefix = datagram::encode_prefix(data.stream, context);
        start -= prefix.len();
        buffer[start..start + prefix.len()].copy_from_slice(&prefix);
        buffer.advance(start);
        buffer.freeze()
    }

    /// Queues the batch inside noq with only `path`'s gate open.
    fn launch(&mut self, path: usize, second: Option<usize>) -> Sending {
        let mut datagrams = self.conn.datagrams();
        for packet in &self.batch {
            if datagrams.send(packet.clone(), false).is_err() {
                self.stats.too_big += 1;
            }
        }
        for (index, other) in self.paths.iter().enumerate() {
            other.gate.set_open(index == path);
        }
        Sending::Batch(path, second)
    }

    fn finish_batch(&mut self, second: Option<usize>) -> Sending {
        if let Some(second) = second {
            return self.launch(second, None);
        }
        self.batch.clear();
        for path in &self.paths {
            path.gate.set_open(true);
        }
        Sending::Data
    }

    /// Charges the pacer of the path that a transmit really used.
    fn account(&mut self, transmit: &Transmit, path: usize) {
        if let Some(path) = self.paths.get_mut(path) {
            path.pacer.spend(transmit.size as u64);
        }
    }

    // ---- health --------------------------------------------------------------------------------

    fn note_data(&mut self, now: Instant) {
        self.last_data = Some(now);
    }

    /// Whether packets flow, here or (as its reports say) at the peer.
    fn is_active(&self, now: Instant) -> bool {
        within(self.last_data, IDLE_AFTER, now) || within(self.peer_active, PEER_ACTIVE_FOR, now)
    }

    /// Judges the paths and probes those that are due. Calls `changed` for each path whose state
    /// changed.
    pub(crate) fn handle_health(&mut self, mut changed: impl FnMut(&Path), now: Instant) {
        let active = self.is_active(now);
        // A peer that is no Sennit does not probe, so silence means nothing there.
        let listens = self.is_numbered();
        let mut rerouted = false;
        for path in &mut self.paths {
            // A NAT rebinding moves a path without an event.
            path.network = self.conn.network_path(path.id).unwrap_or(path.network);
            path.health
                .set_active(active, path.gate.srtt().unwrap_or_default(), now);
            if path.health.poll_probe(now) {
                // Fails only for a path that is closing, which needs no probe.
                let _ = self.conn.ping_path(path.id);
                path.probes_size = path.gate.is_size_in_doubt();
            }
            if listens && path.health.handle_timeout(now) {
                // Fails only for a path that is closing.
                let _ = self.conn.set_path_status(path.id, path.status());
                path.gate.set_frozen(path.health.state().0 != PathState::Up);
                self.reports_left = REPORTS_PER_CHANGE;
                self.next_report = now;
                rerouted = true;
                changed(path);
            }
        }
        if rerouted {
            for path in &self.paths {
                path.gate.set_rerouted();
            }
        }
    }

    fn handle_report(&mut self, report: &Report, now: Instant) {
        self.peer_active = Some(now);
        for entry in &report.paths {
            let id = PathId::from(entry.path);
            if let Some(path) = self.paths.iter_mut().find(|path| path.id == id) {
                path.health.handle_report(entry.heard);
            }
        }
    }

    /// Stages a report for the next path that should carry one.
    ///
    /// An active end reports regularly on two paths, which also tells the peer to probe quickly.
    fn report_due(&mut self, now: Instant) -> Option<Sending> {
        let due = self.is_numbered()
            && now >= self.next_report
            && (within(self.last_data, IDLE_AFTER, now) || self.reports_left > 0);
        if !due {
            return None;
        }
        let carrier = self
            .views
            .iter()
            .position(|view| view.usable && view.budget > 0);
        self.next_report = now + REPORT_EVERY;
        self.reports_left = self.reports_left.saturating_sub(1);
        let first = carrier?;
        let second = (first + 1..self.views.len())
            .find(|&index| self.views[index].usable && self.views[index].budget > 0);
        let report = self.report();
        self.batch.push(report);
        Some(self.launch(first, second))
    }

    /// Stages a packet of full size for a path that has not shown that it carries them.
    fn size_probe_due(&mut self) -> Option<Sending> {
        let stream = self.data.as_ref().filter(|data| data.numbered)?.stream;
        let index = self.paths.iter().position(|path| path.probes_size)?;
        self.paths[index].probes_size = false;
        if self.views.get(index).is_none_or(|view| view.budget == 0) {
            return Some(Sending::Data);
        }
        let mut probe = datagram::encode_prefix(stream, CONTEXT_PADDING).to_vec();
        probe.resize(self.conn.datagrams().max_size()?, 0);
        self.batch.push(probe.into());
        Some(self.launch(index, None))
    }

    fn report(&self) -> Bytes {
        let stream = self.data.as_ref().map_or(StreamId(0), |data| data.stream);
        let mut out = datagram::encode_prefix(stream, CONTEXT_REPORT).to_vec();
        let paths = self
            .paths
            .iter()
            .map(|path| PathReport {
                path: number(path.id),
                heard: path.health.hears(),
            })
            .collect();
        Report { paths }.encode(&mut out);
        out.into()
    }

    // ---- time ----------------------------------------------------------------------------------

    /// When the tunnel next needs attention.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let listens = self.is_numbered();
        let health = self
            .paths
            .iter()
            .map(|path| path.health.poll_timeout(listens));
        let waiting = !self.queue.is_empty() || self.held.is_some();
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
        health
            .chain(pacing)
            .chain(report)
            .chain(self.conn.poll_timeout())
            .min()
    }
}

fn within(since: Option<Instant>, span: Duration, now: Instant) -> bool {
    since.is_some_and(|since| now.saturating_duration_since(since) < span)
}
