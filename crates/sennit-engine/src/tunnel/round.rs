//! One round of sending: from the queue to the paths.
//!
//! [`Tunnel::poll_transmit`] is asked until it gives nothing more, and [`Sending`] says how far it
//! came. A [`Batch`] is filled with what goes to the same paths, put into noq's queue, and leaves
//! while the gate of its path alone is open.

use std::{
    num::NonZeroUsize,
    time::{Duration, Instant},
};

use bytes::Bytes;
use noq_proto::Transmit;
use sennit_core::{
    Choice, PathSet, PathView, Scheduler, Sent,
    frame::HEADROOM,
    numbering::FULL,
    queue::{Popped, Queued, Start},
};
use sennit_prefetch::prefetch;

use super::{
    Tunnel,
    batch::{BATCH, Batch},
    fitting::{FRAMING, Fit},
};
use crate::{codec::Codec, gate::Payload, links::Seat, path::whole, pipe::Pipe};

/// Bytes that leave at once; then what came meanwhile is taken in first. On a fast path a window
/// takes milliseconds, for which a ping would stand before the queue, where nothing overtakes
/// anything (docs/decisions/0015).
const ROUND: u64 = 512 << 10;
/// Of a batch of control packets noq 1.4 makes all as short as the first, and then panics if an
/// ACK_FREQUENCY does not fit; so it is asked for one at a time.
pub(super) const ONE: NonZeroUsize = NonZeroUsize::MIN;

/// What [`Tunnel::poll_transmit`] is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    /// noq sends by itself what it wants to.
    Control,
    /// Padding for the first of these paths is in noq's queue, to leave with acknowledgements.
    Acks(PathSet),
    /// The next batch is chosen.
    Data,
    /// A batch is in noq's queue for the first of these paths; then the same again for the next.
    Batch(PathSet),
    /// What noq has to send beside the data that went first.
    Rest,
}

/// How far a round of sending has come.
#[derive(Debug)]
pub(super) struct Round {
    sending: Sending,
    /// In this round data leaves before what noq has to send by itself.
    data_first: bool,
    /// There was more to send at the time of `polled`.
    pub(super) goes_on: bool,
    /// Whether what noq has to send is no more than acknowledgements; `None` if nothing came since
    /// it was asked.
    pub(super) only_acks: Option<bool>,
    /// Room in noq's queue after a batch was put there; what it sends of it makes more.
    pub(super) launched: Option<usize>,
    /// What is lost of the batch on one of its paths is missed.
    pub(super) is_missed: bool,
    /// The batch holds what the links granted, and not what is said or found out of paths.
    granted: bool,
    /// The paths as the scheduler sees them in this round.
    pub(super) views: Vec<PathView>,
    pub(super) batch: Batch,
    /// What went out since the scheduler was told.
    sent: Sent,
    /// When the paths were last looked at.
    pub(super) polled: Instant,
    /// When a link on which others had their turn is to be asked again.
    pub(super) held: Option<Instant>,
}

impl Round {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            sending: Sending::Control,
            data_first: false,
            goes_on: false,
            only_acks: None,
            launched: None,
            is_missed: false,
            granted: false,
            views: Vec::new(),
            batch: Batch::default(),
            sent: Sent::default(),
            polled: now,
            held: None,
        }
    }

    /// Drops what was chosen: paths came or went.
    pub(super) fn abort(&mut self) {
        self.sending = Sending::Control;
        self.batch.clear();
        self.views.clear();
    }

    pub(super) fn sends_granted(&self) -> bool {
        self.granted && matches!(self.sending, Sending::Batch(_))
    }

    /// When there is more to send.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.goes_on.then_some(self.polled)
    }
}

impl Tunnel {
    /// The next batch of UDP packets to send; they are appended to `buffer`.
    pub(crate) fn poll_transmit(
        &mut self,
        pipe: &mut Pipe,
        seat: &mut Seat<'_>,
        now: Instant,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        const GSO: NonZeroUsize = NonZeroUsize::new(BATCH).expect("a batch is not empty");
        while !self.is_broken() {
            match self.round.sending {
                Sending::Control => {
                    if let Some(transmit) = self.begin_round(pipe, seat, now, buffer) {
                        return Some(transmit);
                    }
                }
                Sending::Acks(paths) => {
                    if let Some(transmit) = self.ask_noq(ONE, now, buffer) {
                        self.account(&transmit, paths);
                        return Some(transmit);
                    }
                    self.open_gates();
                    self.round.sending = Sending::Control;
                }
                Sending::Data if self.round.sent.bytes >= ROUND => {
                    self.round.sending = Sending::Control;
                    self.pause_round(now);
                    return None;
                }
                Sending::Data => {
                    self.round.sending = match self.fill_batch(pipe, now) {
                        Some(batch) => {
                            self.round.is_missed = false;
                            self.launch(pipe, batch)
                        }
                        None => Sending::Rest,
                    };
                }
                Sending::Rest => {
                    if self.round.data_first
                        && let Some(transmit) = self.poll_control(now, buffer)
                    {
                        return Some(transmit);
                    }
                    self.round.sending = Sending::Control;
                    self.end_round(pipe, seat, now);
                    return None;
                }
                Sending::Batch(paths) => {
                    let most = if self.round.data_first { ONE } else { GSO };
                    if let Some(transmit) = self.ask_noq(most, now, buffer) {
                        self.account(&transmit, paths);
                        return Some(transmit);
                    }
                    self.round.sending = self.finish_batch(pipe, paths);
                }
            }
        }
        None
    }

    /// Sends what noq has to send by itself, unless that goes with the data or by another path;
    /// then the paths are looked at.
    fn begin_round(
        &mut self,
        pipe: &mut Pipe,
        seat: &mut Seat<'_>,
        now: Instant,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if let Some(paths) = self.acks_due(now) {
            self.round.is_missed = false;
            self.launch(pipe, paths);
            self.round.sending = Sending::Acks(paths);
            return None;
        }
        self.round.data_first = self.round.only_acks.is_some() && self.fits_beside_acks(pipe);
        if !self.round.data_first
            && let Some(transmit) = self.poll_control(now, buffer)
        {
            return Some(transmit);
        }
        debug_assert!(self.agrees_on_statuses());
        self.refresh_views(pipe, seat, now);
        self.round.sending = Sending::Data;
        None
    }

    /// What noq has to send by itself.
    fn poll_control(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        if self.saves_acks(now) {
            return None;
        }
        let transmit = self.poll_small(now, buffer);
        self.round.only_acks = None;
        self.forget_due(now);
        transmit
    }

    /// What noq has to send, in so many datagrams at most.
    pub(super) fn ask_noq(
        &mut self,
        most: NonZeroUsize,
        now: Instant,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let start = buffer.len();
        let (conn, farewell) = (&mut self.conn, &mut self.farewell);
        let asked = self
            .mishap
            .contain(now, || farewell.poll_transmit(conn, now, most, buffer));
        if asked.is_none() {
            buffer.truncate(start);
        }
        asked.flatten()
    }

    /// Whether something waits for a path.
    pub(super) fn is_backlogged(&self, pipe: &Pipe) -> bool {
        pipe.is_backlogged() || self.has_repairs(pipe) || self.has_protection(pipe)
    }

    /// More can be sent, after a look at what came.
    fn pause_round(&mut self, now: Instant) {
        self.round.goes_on = true;
        let sent = std::mem::take(&mut self.round.sent);
        self.scheduler.handle_sent(&self.round.views, sent, now);
    }

    /// Nothing more can be sent now: tells the paths that could have carried more that they were
    /// not measured, and the scheduler how far it came.
    fn end_round(&mut self, pipe: &Pipe, seat: &Seat<'_>, now: Instant) {
        let waiting = self.is_backlogged(pipe);
        if !waiting && self.round.held.take().is_some() {
            let held = self.paths.iter().filter(|path| path.held);
            held.filter_map(|path| path.on)
                .for_each(|link| seat.release(link));
        }
        let sent = Sent {
            empty: !waiting,
            ..std::mem::take(&mut self.round.sent)
        };
        self.scheduler.handle_sent(&self.round.views, sent, now);
        let backlog = pipe.queue.backlog();
        for (index, (path, view)) in self.paths.iter().zip(&self.round.views).enumerate() {
            // What others have of its link says nothing of what the path carries. While it looks
            // for that, it may take this for the answer.
            let spare = if waiting && path.held {
                !path.gate.starts()
            } else if waiting {
                view.budget > 0 || !self.scheduler.wants(&self.round.views, index, backlog)
            } else {
                path.gate.room() >= self.packet_size
            };
            if spare {
                path.gate.set_limited();
            }
        }
    }

    /// Fills the batch with what goes to the same paths, and says to which; `None` if nothing can
    /// go.
    fn fill_batch(&mut self, pipe: &mut Pipe, now: Instant) -> Option<PathSet> {
        self.round.batch.clear();
        let aside = self
            .report_due(pipe, now)
            .or_else(|| self.size_probe_due())
            .or_else(|| self.trial_due(now))
            .or_else(|| self.opening_due());
        self.round.granted = aside.is_none();
        let other = aside
            .or_else(|| self.repair_due(pipe, now))
            .or_else(|| self.template_due(now))
            .or_else(|| self.protection_due(pipe, now));
        if other.is_some() {
            return other;
        }
        let (first, choice) = self.next_packet(pipe, now)?;
        let full = self.round.sent.bytes + self.batch_bytes();
        let paths = self
            .scheduler
            .spread(&self.round.views, choice, first.backlog);
        let fit = self.fit(paths);
        self.stage(pipe, first, choice, paths, fit, now);
        // Many small packets fit into one on the wire.
        while self.round.sent.bytes < full && !pipe.protection.is_full() {
            let Some((packet, next)) = self.next_packet(pipe, now) else {
                break;
            };
            let spread = self
                .scheduler
                .spread(&self.round.views, next, packet.backlog);
            let len = self.datagram_len(&packet);
            if (next, spread) != (choice, paths)
                || !self.is_taken(len, fit, self.round.batch.load())
            {
                pipe.held = Some(packet);
                break;
            }
            self.stage(pipe, packet, choice, paths, fit, now);
        }
        Some(paths)
    }

    /// What a batch carries at most: of full packets as many as one GSO send takes.
    fn batch_bytes(&self) -> u64 {
        (BATCH as u64 - 1) * (self.packet_size - FRAMING)
    }

    /// The next packet that some path has room for, and which.
    fn next_packet(&mut self, pipe: &mut Pipe, now: Instant) -> Option<(Popped, Choice)> {
        let numbered = self.is_numbered();
        let (views, scheduler) = (&self.round.views, &self.scheduler);
        if pipe.recovery.is_full() || views.iter().all(|path| path.budget == 0) {
            return None;
        }
        let numbering = &pipe.numbering;
        let fills = |packet: &Queued| {
            let is_bulk = || numbering.is_bulk(packet.flow, now);
            packet.packet_len() >= FULL && (packet.in_order || is_bulk())
        };
        let choose =
            |packet: &Queued, backlog| scheduler.choose(views, packet.flow, backlog, fills(packet));
        let start = |packet: &Queued, backlog| match scheduler.start(
            views,
            choose(packet, backlog),
            fills(packet),
        ) {
            // Who cannot restore the order must not be sent numbers without packets either.
            Start::Behind(_) if !numbered => Start::Head,
            start => start,
        };
        let popped = match pipe.held.take() {
            Some(mut held) => {
                pipe.queue.look_again(&mut held, now);
                held
            }
            None => pipe.queue.pop(start, now)?,
        };
        match choose(&popped.packet, popped.backlog) {
            Choice::Wait => {
                pipe.held = Some(popped);
                None
            }
            choice => Some((popped, choice)),
        }
    }

    /// Wraps a packet and puts it into the batch.
    fn stage(
        &mut self,
        pipe: &mut Pipe,
        popped: Popped,
        choice: Choice,
        paths: PathSet,
        fit: Option<Fit>,
        now: Instant,
    ) {
        let mut early = Duration::ZERO;
        let mut is_second = false;
        if let Choice::One(path) = choice {
            early = Scheduler::turn_after(&self.round.views, path, popped.ahead);
            is_second = Scheduler::is_second_choice(&self.round.views, path);
        }
        pipe.recovery.note_sent(now);
        let bytes = self.wrap(pipe, popped, (paths, fit), early, now);
        // It has stood in the queue; noq copies it once the batch is complete.
        prefetch(&bytes);
        if is_second {
            self.round.sent.spilled += bytes.len() as u64;
        }
        self.round.sent.bytes += bytes.len() as u64;
        self.note_carried(bytes.len(), paths, now);
        let payload = Payload {
            bytes,
            first_sent: now,
            repeats: 0,
            twins: self.twins(pipe, paths),
            half_of: None,
        };
        self.push(pipe, payload, paths, fit);
    }

    /// How long the datagram of a packet will be.
    fn datagram_len(&self, popped: &Popped) -> usize {
        self.around() + popped.packet.packet_len()
    }

    /// What a datagram has in front of its inner packet, in bytes.
    pub(super) fn around(&self) -> usize {
        self.codec().map_or(0, Codec::overhead)
    }

    /// Takes a datagram of this size from the budgets of the paths that will carry it.
    pub(super) fn charge(&mut self, size: usize, paths: PathSet) {
        for path in paths.iter() {
            let least = self.paths[path].least;
            let left = |of: u64| whole(of.saturating_sub(size as u64 + FRAMING), least);
            let view = &mut self.round.views[path];
            (view.budget, view.room) = (left(view.budget), left(view.room));
        }
    }

    /// Counts a packet for the share of these paths.
    pub(super) fn note_carried(&mut self, size: usize, paths: PathSet, now: Instant) {
        for path in paths.iter() {
            self.paths[path].note_carried(size as u64, now);
        }
    }

    /// Writes the prefix into the packet's headroom, and notes on which paths it leaves.
    fn wrap(
        &mut self,
        pipe: &mut Pipe,
        popped: Popped,
        (paths, fit): (PathSet, Option<Fit>),
        early: Duration,
        now: Instant,
    ) -> Bytes {
        // Halves have no room for a second number.
        let is_halved = fit.is_some_and(|fit| fit.halves(self.datagram_len(&popped)));
        let codec = self.codec.as_mut();
        let codec = codec.expect("only a tunnel with a codec has a pipe with packets");
        let Queued {
            flow,
            checksum,
            in_order,
            ..
        } = popped.packet;
        let queue = &pipe.queue;
        let mut header = pipe.numbering.header(&popped, early, now);
        header.ordered |= pipe.recovery.is_reliable();
        let before = || queue.flow(flow).stats;
        let ordered = codec.is_numbered() && header.ordered;
        let packet = &popped.packet.buffer[HEADROOM..];
        pipe.flows
            .handle_sent(flow, packet, ordered, paths, before, now);
        let protects = !is_halved && codec.takes_repairs();
        let more = !queue.is_empty() && !pipe.protection.leaves_transfers();
        let sending = pipe.protection.sending(in_order).filter(|_| protects);
        let source = sending.and_then(|sending| {
            sending.set_more(more);
            let source = sending.protect(&header, checksum, packet, paths, now);
            // A group ends where it is full, wherever the batch does.
            sending.make_repairs(codec, now);
            source
        });
        let mut buffer = popped.packet.buffer;
        if let Some(source) = source {
            for path in paths.iter() {
                self.paths[path].symbols.sources_sent += 1;
            }
            return codec.encode_source(buffer, &source);
        }
        // Halves have no room for a template's number either.
        if fit.is_none() {
            match codec.encode_thin(buffer, checksum, (&header, flow), now) {
                Ok((thin, saved)) => {
                    pipe.stats.thin_sent += 1;
                    pipe.stats.thin_saved += saved as u64;
                    return thin;
                }
                Err(whole) => buffer = whole,
            }
        }
        codec.encode(buffer, checksum, &header)
    }

    /// Charges the pacer of the path that carries a transmit.
    fn account(&mut self, transmit: &Transmit, paths: PathSet) {
        if let Some(path) = paths.first().and_then(|path| self.paths.get_mut(path)) {
            path.pacer.spend(transmit.size as u64);
        }
    }
}
