//! From the queue to the paths.

use std::{
    collections::VecDeque,
    iter::zip,
    num::NonZeroUsize,
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes, BytesMut};
use noq_proto::{PathId, PathStatus, Transmit};
use sennit_core::{
    Choice, Delivery, PathSet, PathView, Policy, Scheduler, Sent, Worth,
    frame::{HEADROOM, Header},
    numbering::FULL,
    queue::{Popped, Queued, Start, TARGET},
    schedule::{in_full_use, of_best_tier},
};
use sennit_packet::checksum::Progress;
use sennit_prefetch::prefetch;

use super::{
    Tunnel,
    fitting::{Fit, Load},
    within,
};
use crate::{
    acks::{ACK_DELAY, Owed},
    gate::{OPENING, Payload},
    path::{Path, whole},
};

/// UDP GSO takes at most 64 segments and 64 KB (Linux `UDP_MAX_SEGMENTS`); 40 packets of 1500 fit.
pub(super) const BATCH: usize = 40;
/// So many bytes leave at once, and then what came meanwhile is taken in first: on a fast path a window takes
/// milliseconds, for which a ping would stand before the queue, where nothing overtakes anything.
const ROUND: u64 = 512 << 10;
/// Bytes that QUIC adds to a datagram, at most: short header, packet number, tag, frame header.
pub(super) const FRAMING: u64 = 1 + 8 + 4 + 16 + 3;
/// A flow whose window CUBIC cuts by three tenths has a full path all the same if this part of a round
/// trip stood here before (RFC 9438 §4.6). It delays that flow alone.
const SPARE_ROUNDS: f64 = 0.4;
/// Where acknowledgements come in heaps, so does what they let go, inside as well: so many heaps may stand here.
const HEAPS: u32 = 2;
/// A sender hears of a drop after a round trip with what stands here, and sends less during the next one.
const REACTION_ROUNDS: u32 = 3;
/// When a path is lost, what its bulk flows have under way stands here. While the path may return it may stand
/// for so long: a drop would silence its flow until all that has left, and the window would be missed then.
const NARROW_TARGET: Duration = Duration::from_millis(250);
const NARROW_FOR: Duration = Duration::from_secs(15);
/// While a path looks for what it carries, what waits for it is about to leave. When it has found out, what
/// senders had in flight beyond that stands here, and so much longer it may: they have just seen the delay.
const STARTING_TARGET: Duration = Duration::from_millis(100);
const STARTING_FOR: Duration = Duration::from_millis(250);
/// Where a link's rate moves, senders have in flight what it carries at its best, and while it carries less that
/// stands here, for so long at most. A drop would cost them what the link will carry a moment later.
const MOVING_TARGET: Duration = Duration::from_millis(300);
/// A lost packet is sent again while the flow's transport could still use it: two repairs over links of 125 ms one
/// way, because the first one is often lost as well where a queue overflows. The far end may have given up by
/// then; late is still better than never.
const REPAIR_FOR: Duration = Duration::from_millis(500);
/// Where a path is longer, a loss on it is noticed later, and as many of its round trips are allowed.
const REPAIR_ROUNDS: u32 = 3;
/// A class that asks for it has repairs for as long as the tunnel itself hopes.
const RELIABLE_FOR: Duration = Duration::from_secs(10);
/// A lost packet is sent again so often at most.
const REPEATS: u8 = 3;
/// Stands for a datagram that is not worth repeating, or was repeated more often than anyone counts.
const NEVER: u8 = u8::MAX;
/// Bytes that wait to be sent again, at most: 64 ms at 1 Gbit/s.
const REPAIR_LIMIT: usize = 8 << 20;

/// What [`Tunnel::poll_transmit`] is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    Control,
    /// Padding for the first of these paths is in noq's queue, to leave with acknowledgements.
    Acks(PathSet),
    Data,
    /// A batch is in noq's queue for the first of these paths; then the same again for the next.
    Batch(PathSet),
    /// What noq has to send beside the data that went first.
    Rest,
}

/// Datagrams that leave together, and of each when it was first sent and how often again. noq takes the
/// former as they are.
#[derive(Debug, Default)]
pub(super) struct Batch {
    datagrams: Vec<Bytes>,
    histories: Vec<(Instant, u8)>,
    load: Load,
}

impl Batch {
    fn push(&mut self, payload: Payload) {
        let Payload {
            bytes,
            first_sent,
            repeats,
        } = payload;
        self.load.add(bytes.len());
        self.datagrams.push(bytes);
        self.histories.push((first_sent, repeats));
    }

    fn len(&self) -> usize {
        self.datagrams.len()
    }

    pub(super) fn clear(&mut self) {
        self.datagrams.clear();
        self.histories.clear();
        self.load = Load::default();
    }

    /// Drops what is longer than `most`.
    fn limit(&mut self, most: usize) {
        let all = zip(self.datagrams.drain(..), self.histories.drain(..));
        let (datagrams, histories) = all.filter(|(it, _)| it.len() <= most).unzip();
        (self.datagrams, self.histories) = (datagrams, histories);
    }

    fn copies(&self) -> impl Iterator<Item = Payload> {
        zip(
            self.datagrams.iter().cloned(),
            self.histories.iter().copied(),
        )
        .map(payload)
    }

    fn drain(&mut self) -> impl Iterator<Item = Payload> {
        zip(self.datagrams.drain(..), self.histories.drain(..)).map(payload)
    }
}

fn payload((bytes, (first_sent, repeats)): (Bytes, (Instant, u8))) -> Payload {
    Payload {
        bytes,
        first_sent,
        repeats,
    }
}

/// Lost datagrams on their way to another path.
#[derive(Debug, Default)]
pub(super) struct Repair {
    waiting: VecDeque<Payload>,
    bytes: usize,
}

impl Repair {
    fn push(&mut self, payload: Payload) -> bool {
        let fits = self.bytes + payload.bytes.len() <= REPAIR_LIMIT;
        if fits {
            self.bytes += payload.bytes.len();
            self.waiting.push_back(payload);
        }
        fits
    }

    /// Puts back what [`Self::pop`] gave.
    fn put_back(&mut self, payload: Payload) {
        self.bytes += payload.bytes.len();
        self.waiting.push_front(payload);
    }

    fn pop(&mut self) -> Option<Payload> {
        let payload = self.waiting.pop_front()?;
        self.bytes -= payload.bytes.len();
        Some(payload)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Of a batch of control packets noq 1.4 makes all as short as the first, and then panics if an ACK_FREQUENCY does
/// not fit.
const ONE: NonZeroUsize = NonZeroUsize::MIN;

impl Tunnel {
    /// The next batch of UDP packets to send; they are appended to `buffer`.
    pub(crate) fn poll_transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        const GSO: NonZeroUsize = NonZeroUsize::new(BATCH).expect("a batch is not empty");
        loop {
            match self.sending {
                Sending::Control => {
                    if let Some(paths) = self.acks_due(now) {
                        self.launch(paths, false);
                        self.sending = Sending::Acks(paths);
                        continue;
                    }
                    self.data_first = self.only_acks.is_some() && self.fits_beside_acks();
                    if !self.data_first
                        && let Some(transmit) = self.poll_control(now, buffer)
                    {
                        return Some(transmit);
                    }
                    self.refresh_views(now);
                    self.sending = Sending::Data;
                }
                Sending::Acks(paths) => {
                    if let Some(transmit) = self.conn.poll_transmit(now, ONE, buffer) {
                        self.account(&transmit, paths);
                        return Some(transmit);
                    }
                    self.open_gates();
                    self.sending = Sending::Control;
                }
                Sending::Data if self.sent.bytes >= ROUND => {
                    self.sending = Sending::Control;
                    self.pause_round(now);
                    return None;
                }
                Sending::Data => {
                    self.sending = match self.fill_batch(now) {
                        Some(batch) => self.launch(batch, batch.without_first().first().is_some()),
                        None => Sending::Rest,
                    };
                }
                Sending::Rest => {
                    if self.data_first
                        && let Some(transmit) = self.poll_control(now, buffer)
                    {
                        return Some(transmit);
                    }
                    self.sending = Sending::Control;
                    self.end_round(now);
                    return None;
                }
                Sending::Batch(paths) => {
                    let most = if self.data_first { ONE } else { GSO };
                    if let Some(transmit) = self.conn.poll_transmit(now, most, buffer) {
                        self.account(&transmit, paths);
                        return Some(transmit);
                    }
                    self.sending = self.finish_batch(paths);
                }
            }
        }
    }

    /// What noq has to send by itself.
    fn poll_control(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        if self.saves_acks(now) {
            return None;
        }
        let transmit = self.conn.poll_transmit(now, ONE, buffer);
        self.only_acks = None;
        self.forget_due(now);
        transmit
    }

    /// Whether all that waits leaves room for acknowledgements in its packet, where they cost none of their own, and
    /// leaves by the path that they take anyway.
    fn fits_beside_acks(&self) -> bool {
        let waiting = self.queue.backlog() as u64;
        let trusted = self.paths.iter().filter(|path| path.is_trusted());
        self.held.is_none() && (1..=self.packet_size / 2).contains(&waiting) && trusted.count() == 1
    }

    /// Whether something waits for a path.
    pub(super) fn is_backlogged(&self) -> bool {
        !self.queue.is_empty() || self.held.is_some() || self.has_repairs()
    }

    /// More can be sent, after a look at what came.
    fn pause_round(&mut self, now: Instant) {
        self.goes_on = true;
        let sent = std::mem::take(&mut self.sent);
        self.scheduler.handle_sent(&self.views, sent, now);
    }

    /// Nothing more can be sent now: tells the paths that could have carried more that they were not
    /// measured, and the scheduler how far it came.
    fn end_round(&mut self, now: Instant) {
        let waiting = self.is_backlogged();
        let sent = Sent {
            empty: !waiting,
            ..std::mem::take(&mut self.sent)
        };
        self.scheduler.handle_sent(&self.views, sent, now);
        let backlog = self.queue.backlog();
        for (index, (path, view)) in self.paths.iter().zip(&self.views).enumerate() {
            let spare = if waiting {
                view.budget > 0 || !self.scheduler.wants(&self.views, index, backlog)
            } else {
                path.gate.room() >= self.packet_size
            };
            if spare {
                path.gate.set_limited();
            }
        }
    }

    fn refresh_views(&mut self, now: Instant) {
        (self.polled, self.goes_on) = (now, false);
        self.set_floors();
        let none_up = !self.paths.iter().any(Path::is_trusted);
        self.views.clear();
        let (packet, reports) = (self.packet_size, self.is_numbered());
        self.views.extend(self.paths.iter_mut().map(|path| {
            let view = path.view(packet, none_up, now);
            // Reports show when noq sends there again. Without them only packets do.
            let usable = view.usable && !(reports && path.refuses());
            // Who does not number packets would take each copy for another packet.
            let worth = if reports { view.worth } else { Worth::Full };
            PathView {
                usable,
                alive: view.alive || !reports,
                worth,
                ..view
            }
        }));
        self.scheduler.assess(&mut self.views);
        for (path, view) in self.paths.iter_mut().zip(&mut self.views) {
            path.worth = view.worth;
            if reports && path.is_tried_again(now) {
                view.worth = Worth::Unknown;
            }
        }
        self.leave_out_small();
        let fastest = in_full_use(&self.views).map(|view| view.srtt).min();
        let fastest = fastest.unwrap_or_default();
        let rate: u64 = of_best_tier(&self.views).map(|view| view.rate).sum();
        let count = self.views.iter().filter(|view| view.usable).count();
        let repair = fastest + ACK_DELAY;
        for (path, view) in self.paths.iter().zip(&mut self.views) {
            view.late = path.lateness(packet, repair, now);
            view.leads = path.leads;
        }
        self.scheduler.find_leader(&mut self.views);
        for (path, view) in self.paths.iter_mut().zip(&self.views) {
            path.leads = view.leads;
            if view.leads {
                path.led.get_or_insert(now);
            }
        }
        // What hosts hold up they do on all paths.
        let held_up = in_full_use(&self.views).map(|view| view.held_up).min();
        let spare = Scheduler::round_trip(&self.views)
            .unwrap_or_default()
            .mul_f64(SPARE_ROUNDS)
            .max(HEAPS * held_up.unwrap_or_default());
        let moving = fastest.mul_f64(self.best_to_now() - 1.0).min(MOVING_TARGET);
        let target = TARGET.max(spare) + moving + self.scheduler.standing(&self.views);
        if self.paths.iter().any(|path| path.gate.starts()) {
            self.started = Some(now);
        }
        let target = if within(self.started, STARTING_FOR, now) {
            target.max(STARTING_TARGET)
        } else {
            target
        };
        self.narrow.update(count, now);
        let target = if self.narrow.lasts(now) {
            target.max(NARROW_TARGET)
        } else {
            self.queue.set_rate(rate);
            target
        };
        let slowest = in_full_use(&self.views).map(|view| view.srtt).max();
        let reaction = REACTION_ROUNDS * (slowest.unwrap_or_default() + target);
        self.queue.set_target(target, reaction);
        self.collect_lost(now);
    }

    /// How many times what the paths deliver now they did at best within seconds.
    fn best_to_now(&self) -> f64 {
        let used = zip(&self.paths, &self.views).filter(|(_, view)| view.usable);
        let (best, now) = used.fold((0, 0), |(best, now), (path, view)| {
            (best + path.gate.best_rate(view.srtt), now + view.delivers)
        });
        (best as f64 / now.max(1) as f64).max(1.0)
    }

    /// A path that does not carry what others do is not used. If none carries full packets, inner ones must be
    /// smaller.
    fn leave_out_small(&mut self) {
        if self.data.is_none() {
            return;
        }
        let inner = |path: &Path| self.inner_of(path);
        let usable = zip(&self.paths, &self.views).filter(|(_, view)| view.usable);
        let Some(most) = usable.map(|(path, _)| inner(path)).max() else {
            return;
        };
        let full = self.conn.datagrams().max_size().unwrap_or(0);
        let full = full.saturating_sub(self.around());
        self.longest = most;
        for index in 0..self.views.len() {
            let carries = self.inner_of(&self.paths[index]);
            self.views[index].usable &= carries >= most.min(full);
        }
    }

    /// Fills the batch with what goes to the same paths, and says to which; `None` if nothing can go.
    fn fill_batch(&mut self, now: Instant) -> Option<PathSet> {
        self.batch.clear();
        let other = self
            .report_due(now)
            .or_else(|| self.size_probe_due())
            .or_else(|| self.opening_due())
            .or_else(|| self.repair_due(now));
        if other.is_some() {
            return other;
        }
        let (first, choice) = self.next_packet(now)?;
        let full = self.sent.bytes + self.batch_bytes();
        let paths = self.scheduler.spread(&self.views, choice, first.backlog);
        let fit = self.fit(paths);
        self.stage(first, choice, paths, fit, now);
        // Many small packets fit into one on the wire.
        while self.sent.bytes < full {
            let Some((packet, next)) = self.next_packet(now) else {
                break;
            };
            let spread = self.scheduler.spread(&self.views, next, packet.backlog);
            let len = self.datagram_len(&packet);
            if (next, spread) != (choice, paths) || !self.is_taken(len, fit, &self.batch.load) {
                self.held = Some(packet);
                break;
            }
            self.stage(packet, choice, paths, fit, now);
        }
        Some(paths)
    }

    /// What a batch carries at most: of full packets as many as one GSO send takes.
    fn batch_bytes(&self) -> u64 {
        (BATCH as u64 - 1) * (self.packet_size - FRAMING)
    }

    /// The next packet that some path has room for, and which.
    fn next_packet(&mut self, now: Instant) -> Option<(Popped, Choice)> {
        let numbered = self.is_numbered();
        let (views, scheduler) = (&self.views, &self.scheduler);
        let numbering = self.data.as_ref().map(|data| &data.numbering);
        let fills = |packet: &Queued| {
            let is_bulk = || numbering.is_some_and(|it| it.is_bulk(packet.flow, now));
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
        let popped = match self.held.take() {
            Some(held) => held,
            None => self.queue.pop(start, now)?,
        };
        match choose(&popped.packet, popped.backlog) {
            Choice::Wait => {
                self.held = Some(popped);
                None
            }
            choice => Some((popped, choice)),
        }
    }

    /// Wraps a packet and puts it into the batch.
    fn stage(
        &mut self,
        popped: Popped,
        choice: Choice,
        paths: PathSet,
        fit: Option<Fit>,
        now: Instant,
    ) {
        let mut early = Duration::ZERO;
        let mut is_second = false;
        if let Choice::One(path) = choice {
            early = Scheduler::turn_after(&self.views, path, popped.ahead);
            is_second = Scheduler::is_second_choice(&self.views, path);
        }
        let bytes = self.wrap(popped, paths, early, now);
        // It has stood in the queue; noq copies it once the batch is complete.
        prefetch(&bytes);
        if is_second {
            self.sent.spilled += bytes.len() as u64;
        }
        self.sent.bytes += bytes.len() as u64;
        self.note_carried(bytes.len(), paths, now);
        let payload = Payload {
            bytes,
            first_sent: now,
            repeats: 0,
        };
        self.push(payload, paths, fit);
    }

    /// Puts a datagram into the batch, in two halves if it must be.
    fn push(&mut self, payload: Payload, paths: PathSet, fit: Option<Fit>) {
        let Some(halves) = self.halves(&payload.bytes, fit) else {
            self.charge(payload.bytes.len(), paths);
            self.batch.push(payload);
            return;
        };
        for bytes in halves {
            self.charge(bytes.len(), paths);
            self.batch.push(Payload { bytes, ..payload });
        }
    }

    /// How long the datagram of a packet will be.
    fn datagram_len(&self, popped: &Popped) -> usize {
        self.around() + popped.packet.packet_len()
    }

    /// What a datagram has in front of its inner packet, in bytes.
    fn around(&self) -> usize {
        let data = self.data.as_ref();
        data.map_or(0, |data| data.prefix.len() + data.header_len())
    }

    /// Takes a datagram of this size from the budgets of the paths that will carry it.
    fn charge(&mut self, size: usize, paths: PathSet) {
        for path in paths.iter() {
            let least = self.paths[path].least;
            let left = |of: u64| whole(of.saturating_sub(size as u64 + FRAMING), least);
            let view = &mut self.views[path];
            (view.budget, view.room) = (left(view.budget), left(view.room));
            self.stats.bytes_sent += size as u64;
        }
    }

    /// Counts a packet for the share of these paths.
    fn note_carried(&mut self, size: usize, paths: PathSet, now: Instant) {
        for path in paths.iter() {
            self.paths[path].carried.count(size as u64, now);
        }
    }

    /// Writes the prefix into the packet's headroom, and notes on which paths it leaves.
    fn wrap(&mut self, popped: Popped, paths: PathSet, early: Duration, now: Instant) -> Bytes {
        let data = self
            .data
            .as_mut()
            .expect("packets are queued only once data is agreed");
        let (flow, checksum, queue) = (popped.packet.flow, popped.packet.checksum, &self.queue);
        let header = data.numbering.header(&popped, early, now);
        let mut buffer: BytesMut = popped.packet.buffer;
        let mut start = HEADROOM;
        let numbered = data.is_numbered();
        if numbered {
            start -= Header::LEN;
            buffer[start..HEADROOM].copy_from_slice(&header.encode());
        }
        let before = || queue.flow(flow).stats;
        let (packet, ordered) = (&buffer[HEADROOM..], numbered && header.ordered);
        self.flows
            .handle_sent(flow, packet, ordered, paths, before, now);
        let prefix = match checksum {
            Progress::Whole => &data.prefix,
            Progress::Partial => &data.partial,
        };
        start -= prefix.len();
        buffer[start..start + prefix.len()].copy_from_slice(prefix);
        buffer.advance(start);
        buffer.freeze()
    }

    /// Queues the batch inside noq with only the first path's gate open.
    fn launch(&mut self, paths: PathSet, copied: bool) -> Sending {
        let Some(path) = paths.first() else {
            return Sending::Data;
        };
        self.lend(path, PathStatus::Available);
        // What leaves on a path that is not known yet is not missed there.
        let is_spare = copied && self.views[path].worth == Worth::Unknown;
        let repairs = self.repairs() && !is_spare;
        let again = paths.without_first().first().is_some();
        let (batch, mut datagrams) = (&mut self.batch, self.conn.datagrams());
        let (count, room) = (batch.len(), datagrams.send_buffer_space());
        let queued = datagrams.send_many(&batch.datagrams, false);
        let queued = queued.unwrap_or_else(|_| {
            batch.limit(datagrams.max_size().unwrap_or(0));
            datagrams.send_many(&batch.datagrams, false).unwrap_or(0)
        });
        self.stats.too_big += (count - queued) as u64;
        if repairs {
            let mut ledger = self.paths[path].gate.ledger();
            let stage = |payload: Payload| {
                if payload.repeats < NEVER {
                    ledger.stage(payload);
                }
            };
            if again {
                batch.copies().take(queued).for_each(stage);
            } else {
                batch.drain().take(queued).for_each(stage);
            }
        }
        let left = datagrams.send_buffer_space();
        self.launched = (left < room).then_some(left);
        for (index, other) in self.paths.iter().enumerate() {
            other.gate.set_open(index == path);
        }
        Sending::Batch(paths)
    }

    /// Changes the status of a path that is not trusted for as long as a batch leaves there: noq sends nothing on
    /// it while it is `Backup` and another is not.
    fn lend(&mut self, path: usize, status: PathStatus) {
        if !self.paths[path].is_trusted() {
            // Fails only for a path that is closing.
            let _ = self.conn.set_path_status(self.paths[path].id, status);
        }
    }

    fn finish_batch(&mut self, paths: PathSet) -> Sending {
        if let Some(path) = paths.first() {
            self.lend(path, PathStatus::Backup);
            let kept = self.launched == Some(self.conn.datagrams().send_buffer_space());
            self.paths[path].handle_batch(kept, self.polled);
            self.paths[path].gate.ledger().end_batch();
            if kept && self.is_numbered() {
                self.views[path].usable = false;
                self.scheduler.assess(&mut self.views);
            }
        }
        let left = paths.without_first();
        if left.first().is_some() {
            return self.launch(left, true);
        }
        self.open_gates();
        Sending::Data
    }

    pub(super) fn open_gates(&self) {
        for path in &self.paths {
            path.gate.set_open(true);
        }
    }

    /// Stages padding for a path whose packets are to be acknowledged now, if noq would do it elsewhere.
    fn acks_due(&mut self, now: Instant) -> Option<PathSet> {
        let prefix = self
            .data
            .as_ref()
            .filter(|data| data.is_numbered())?
            .padding;
        if !self.is_ack_path_crowded(now) {
            return None;
        }
        let first = self.paths.iter().position(Path::is_trusted)?;
        let owes = |path: &Path| path.is_trusted() && path.owed.matters() && path.owed.is_due(now);
        let index = self.paths.iter().skip(first + 1).position(owes)? + first + 1;
        self.forget_due(now);
        let gate = &self.paths[index].gate;
        gate.set_floor(gate.in_flight() + 2 * self.packet_size);
        self.batch.clear();
        self.batch.push(Payload {
            bytes: Bytes::copy_from_slice(&prefix),
            first_sent: now,
            repeats: NEVER,
        });
        Some(PathSet::default().with(index))
    }

    /// Whether noq is not asked now, because all it may have to send are acknowledgements for a crowded path, of
    /// which none is due.
    ///
    /// noq 1.4 lets the peer say once how many packets it wants acknowledged together, for the paths that there
    /// are then: the first. On the others it acknowledges every second packet. That is better, but for a narrow path.
    fn saves_acks(&self, now: Instant) -> bool {
        self.only_acks == Some(true)
            && self.is_numbered()
            && self.is_ack_path_crowded(now)
            && !self.paths.iter().any(|path| path.owed.is_due(now))
    }

    /// Whether the path that noq sends acknowledgements on is crowded.
    fn is_ack_path_crowded(&self, now: Instant) -> bool {
        let mut trusted = self.paths.iter().filter(|path| path.is_trusted());
        trusted.next().is_some_and(|path| path.is_crowded(now))
    }

    /// When the first acknowledgement is due.
    pub(super) fn owes_until(&self) -> Option<Instant> {
        let due = || {
            self.paths
                .iter()
                .filter_map(|path| path.owed.due_at())
                .min()
        };
        self.only_acks.and_then(|_| due())
    }

    /// noq sends all acknowledgements that are due with the next packet, whichever path it is for.
    fn forget_due(&mut self, now: Instant) {
        for path in &mut self.paths {
            if path.id != PathId::ZERO || path.owed.is_due(now) {
                path.owed = Owed::default();
            }
        }
    }

    /// Charges the pacer of the path that carries a transmit.
    fn account(&mut self, transmit: &Transmit, paths: PathSet) {
        if let Some(path) = paths.first().and_then(|path| self.paths.get_mut(path)) {
            path.pacer.spend(transmit.size as u64);
        }
    }

    /// Stages padding for a path of which it is not known whether it carries packets of that size.
    fn size_probe_due(&mut self) -> Option<PathSet> {
        let padding = self
            .data
            .as_ref()
            .filter(|data| data.is_numbered())?
            .padding;
        let index = self
            .paths
            .iter()
            .zip(&self.views)
            .position(|(path, view)| path.probes_size.is_some() && view.budget > 0)?;
        let size = self.paths[index].probes_size.take()?;
        let most = self.conn.datagrams().max_size()?;
        let mut probe = padding.to_vec();
        probe.resize(
            most.min(u64::from(size).saturating_sub(FRAMING) as usize),
            0,
        );
        let paths = PathSet::default().with(index);
        self.put_aside(probe.into(), paths);
        Some(paths)
    }

    /// Stages packets of full size that leave at once on a path of which nothing is known, where one may have to
    /// lead: how they arrive tells what it carries before the first transfer starts.
    fn opening_due(&mut self) -> Option<PathSet> {
        let is_due = |(path, view): (&Path, &PathView)| path.may_open(view, self.packet_size);
        let padding = self
            .data
            .as_ref()
            .filter(|data| data.is_numbered())?
            .padding;
        let index = self.paths.iter().zip(&self.views).position(is_due)?;
        if !self.scheduler.may_have_leader(&self.views) {
            return None;
        }
        self.paths[index].opened = true;
        let mut full = padding.to_vec();
        let fits = u64::from(self.paths[index].gate.carries()).saturating_sub(FRAMING) as usize;
        full.resize(self.conn.datagrams().max_size()?.min(fits), 0);
        let (full, paths) = (Bytes::from(full), PathSet::default().with(index));
        for _ in 0..OPENING {
            self.put_aside(full.clone(), paths);
        }
        Some(paths)
    }

    /// Puts a datagram that is not worth repeating into the batch.
    pub(super) fn put_aside(&mut self, bytes: Bytes, paths: PathSet) {
        self.charge(bytes.len(), paths);
        self.batch.push(Payload {
            bytes,
            first_sent: self.polled,
            repeats: NEVER,
        });
    }

    // ---- repair --------------------------------------------------------------------------------

    /// Whether lost datagrams are sent again. What is sent twice anyway is not.
    pub(super) fn repairs(&self) -> bool {
        self.delivery != Delivery::Datagram
            && self.scheduler.policy() != Policy::Redundant
            && self.is_numbered()
    }

    /// Collects what the paths have lost.
    pub(super) fn collect_lost(&mut self, now: Instant) {
        for path in &self.paths {
            if !path.gate.ledger().has_lost() {
                continue;
            }
            for payload in path.gate.ledger().take_lost() {
                if !self.is_worth_repair(&payload, now) || !self.repair.push(payload) {
                    self.stats.unrepaired += 1;
                }
            }
        }
    }

    /// Whether a datagram is young enough to be sent again.
    fn is_worth_repair(&self, payload: &Payload, now: Instant) -> bool {
        let (patience, repeats) = match self.delivery {
            Delivery::Datagram | Delivery::Repair => {
                let slowest = self.paths.iter().map(Path::srtt).max();
                let rounds = REPAIR_ROUNDS * slowest.unwrap_or_default();
                (REPAIR_FOR.max(rounds), REPEATS)
            }
            Delivery::Reliable => (RELIABLE_FOR, NEVER),
        };
        let age = now.saturating_duration_since(payload.first_sent);
        payload.repeats < repeats && age < patience
    }

    fn has_repairs(&self) -> bool {
        let given_up = |path: &Path| path.gate.ledger().has_given_up();
        !self.repair.is_empty() || self.paths.iter().any(given_up)
    }

    /// The next datagram to be sent again.
    fn next_repair(&mut self, now: Instant) -> Option<Payload> {
        if let Some(payload) = self.repair.pop() {
            return Some(payload);
        }
        loop {
            let given_up = |path: &Path| path.gate.ledger().take_given_up();
            let payload = self.paths.iter().find_map(given_up)?;
            if self.is_worth_repair(&payload, now) {
                return Some(payload);
            }
            self.stats.unrepaired += 1;
        }
    }

    /// Stages what was lost for the path on which it arrives first.
    fn repair_due(&mut self, now: Instant) -> Option<PathSet> {
        if !self.has_repairs() {
            return None;
        }
        let views = self.views.iter().enumerate();
        let (path, _) = views
            .filter(|(_, view)| view.usable && view.worth == Worth::Full && view.budget > 0)
            .min_by_key(|(_, view)| (view.tier, view.srtt))?;
        let paths = PathSet::default().with(path);
        let fit = self.fit(paths);
        while self.batch.len() < BATCH && self.views[path].budget > 0 {
            let Some(payload) = self.next_repair(now) else {
                break;
            };
            if !self.is_taken(payload.bytes.len(), fit, &self.batch.load) {
                self.repair.put_back(payload);
                break;
            }
            self.note_carried(payload.bytes.len(), paths, now);
            let again = Payload {
                bytes: self.redate(&payload.bytes, now),
                first_sent: payload.first_sent,
                repeats: payload.repeats.saturating_add(1),
            };
            self.stats.repaired += 1;
            self.push(again, paths, fit);
        }
        Some(paths)
    }

    /// The datagram with the time at which it is sent now.
    fn redate(&self, datagram: &Bytes, now: Instant) -> Bytes {
        let Some(data) = &self.data else {
            return datagram.clone();
        };
        let mut copy = BytesMut::from(&datagram[..]);
        Header::redate(&mut copy[data.prefix.len()..], data.numbering.clock(now));
        copy.freeze()
    }
}

/// Whether paths were lost that may return.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Narrow {
    /// How many there are, and how many there were before.
    usable: usize,
    before: usize,
    since: Option<Instant>,
}

impl Narrow {
    /// So many paths are usable now.
    fn update(&mut self, usable: usize, now: Instant) {
        if usable < self.usable {
            if !self.lasts(now) {
                self.before = self.usable;
            }
            self.since = Some(now);
        }
        if usable >= self.before {
            *self = Self::default();
        }
        self.usable = usable;
    }

    fn lasts(&self, now: Instant) -> bool {
        self.since
            .is_some_and(|since| now.saturating_duration_since(since) < NARROW_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_narrow_until_all_paths_are_back_or_for_a_time() {
        let start = Instant::now();
        let mut narrow = Narrow::default();
        let mut is_narrow = |usable, seconds| {
            let now = start + Duration::from_secs(seconds);
            narrow.update(usable, now);
            narrow.lasts(now)
        };
        assert!(!is_narrow(3, 0));
        assert!(is_narrow(2, 1));
        assert!(is_narrow(1, 2));
        assert!(is_narrow(2, 3));
        assert!(!is_narrow(3, 4));
        assert!(is_narrow(2, 5));
        assert!(is_narrow(2, 19));
        assert!(!is_narrow(2, 20));
        // What never came back is not waited for.
        assert!(is_narrow(1, 30));
        assert!(!is_narrow(2, 31));
    }
}
