//! What belongs to a class and outlives its connections.
//!
//! A [`Pipe`] belongs to the class of a site, at both ends. A tunnel is plugged into it once
//! CONNECT-IP is agreed, sends from its queue, and hands on by it what arrives. When a tunnel is
//! lost, or another takes its place, the queue stays, and leaves over the next one.
//!
//! Numbers go on with the next connection only where both ends have agreed on that, under reliable
//! delivery ([`crate::numbers`]): then what had left before leaves again in its old place, and the
//! far end, which drops what it has, holds on to what waits there for a missing packet. Elsewhere
//! nobody knows whether the far end still has what was numbered before, and it may be another host.
//! So both ends start over: what waits is numbered anew (docs/decisions/0028), and what was held is
//! handed on.

mod held;

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use sennit_core::{
    Delivery, Flows, FqCodel, Halves, Numbering, Resequencer,
    frame::{Half, Header},
    queue::{self, Popped, Queued},
    resequence::ENDLESS,
};
use sennit_fec::Fec;

use self::held::{Held, Places};
use crate::{
    codec,
    facts::TunnelStats,
    ids::{ConnId, PipeId},
    inner::Packet,
    numbers::{Numbers, Run},
    protection::Protection,
    recovery::Recovery,
    treatment::Treatment,
};

/// What a class of reliable delivery has waiting is kept for this long.
const RELIABLE_FOR: Duration = Duration::from_secs(10);

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
    pub(crate) protection: Protection,
    pub(crate) resequencer: Resequencer<Held>,
    /// Where in memory lies what that holds.
    places: Places,
    pub(crate) stats: TunnelStats,
    halves: Halves,
    received: VecDeque<Packet>,
    /// The tunnel that it runs over.
    conn: Option<ConnId>,
    /// While none is: until then it waits for another to bring what is missing.
    holds_until: Option<Instant>,
    /// The run of numbers that it has.
    run: Run,
}

impl Pipe {
    fn new(treatment: Treatment, now: Instant) -> Self {
        let mut pipe = Self {
            queue: FqCodel::default(),
            held: None,
            flows: Flows::default(),
            numbering: Numbering::new(now),
            recovery: Recovery::new(treatment.delivery),
            protection: Protection::new(treatment.fec, now),
            resequencer: Resequencer::new(now),
            places: Places::default(),
            stats: TunnelStats::default(),
            halves: Halves::default(),
            received: VecDeque::new(),
            conn: None,
            holds_until: None,
            run: Run::NONE,
        };
        pipe.set_treatment(treatment);
        pipe
    }

    /// Its class is treated so from now on; what is in it stays.
    pub(crate) fn set_treatment(&mut self, treatment: Treatment) {
        self.protection.set_fec(treatment.fec);
        self.recovery.set_delivery(treatment.delivery);
        let is_reliable = self.recovery.is_reliable();
        self.halves.wait_for_long(is_reliable);
        self.queue.keep_for(if is_reliable {
            RELIABLE_FOR
        } else {
            queue::KEPT_FOR
        });
    }

    /// The run of numbers that it has.
    pub(crate) fn run(&self) -> Run {
        self.run
    }

    /// Its numbers go on though the connection is lost that it ran over: the far end has been asked
    /// for another one with them.
    pub(crate) fn keep_run(&mut self, run: Run) {
        self.run = run;
    }

    /// The connection that it runs over.
    pub(crate) fn runs_over(&self) -> Option<ConnId> {
        self.conn
    }

    /// It runs over another connection from now on, with these numbers or with those that nobody
    /// names.
    fn start_over(&mut self, numbers: Option<Numbers>, now: Instant) {
        self.holds_until = None;
        if numbers.is_some_and(|numbers| numbers.go_on) {
            self.forget_halves();
            self.resequencer.go_on(now);
        } else {
            self.hand_on_held(now);
            if !self.recovery.is_reliable() {
                self.forget_returned();
            }
            self.queue.start_over(self.held.take());
            self.resequencer.start_over(|_| {}, now);
        }
        self.run = numbers.map_or(Run::NONE, |numbers| numbers.run);
        self.flows.forget_paths();
        self.recovery.start_over();
        self.protection.start_over(now);
    }

    /// Nothing more comes over the connection of before: hands on what was held for a missing
    /// packet, unless that may still come over the next one; until when it waits for that.
    fn pause(&mut self, now: Instant) -> Option<Instant> {
        if !self.recovery.is_reliable() || self.run == Run::NONE {
            // Nobody keeps what is on its way, so these numbers do not go on.
            self.run = Run::NONE;
            self.hand_on_held(now);
        } else {
            self.holds_until = Some(now + ENDLESS);
        }
        self.holds_until
    }

    /// Drops what had left while delivery was reliable. The far end may have it, and would take it
    /// for new under another number.
    fn forget_returned(&mut self) {
        self.held.take_if(|held| held.packet.returned);
        self.queue.forget_returned();
    }

    fn hand_on_held(&mut self, now: Instant) {
        self.holds_until = None;
        self.forget_halves();
        let (stats, received) = (&mut self.stats, &mut self.received);
        let release = |packet| release(packet, stats, received);
        self.resequencer.pause(release, now);
    }

    fn forget_halves(&mut self) {
        self.take_halves();
    }

    /// Those that wait for the other half, which may still come over the connection of before.
    pub(crate) fn take_halves(&mut self) -> Halves {
        let none = if self.recovery.is_reliable() {
            Halves::for_long()
        } else {
            Halves::default()
        };
        std::mem::replace(&mut self.halves, none)
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
        let (size, packet) = (packet.bytes.len(), Held::from(packet));
        let (place, held) = (packet.place(), self.resequencer.stats().held);
        self.resequencer
            .handle_packet(header, path, packet, size, release, now);
        let is_held = self.resequencer.stats().held > held;
        if is_held && self.places.note(place) {
            self.places.look(&mut self.resequencer);
        }
    }

    /// Takes a packet that repairs brought back, and hands on what is in order now.
    fn handle_recovered(&mut self, header: &Header, packet: Packet, now: Instant) {
        let (stats, received) = (&mut self.stats, &mut self.received);
        let release = |packet| release(packet, stats, received);
        let (size, late) = (packet.bytes.len(), self.resequencer.stats().late);
        self.resequencer
            .handle_recovered(header, packet.into(), size, release, now);
        let too_late = self.resequencer.stats().late - late;
        self.protection.receiving(now).note_too_late(too_late);
    }

    /// Takes what repairs have brought back.
    pub(crate) fn collect_recovered(&mut self, now: Instant) {
        for (header, packet) in self.protection.receiving(now).take_recovered() {
            if packet.bytes.is_empty() || packet.is_well_formed() {
                self.handle_recovered(&header, packet, now);
            } else {
                self.stats.malformed += 1;
            }
        }
    }

    /// Hands on a packet whose order nobody knows.
    pub(crate) fn hand_out(&mut self, packet: Packet) {
        release(packet.into(), &mut self.stats, &mut self.received);
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

fn release(held: Held, stats: &mut TunnelStats, received: &mut VecDeque<Packet>) {
    let packet = held.packet;
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
    /// Pipes that wait for another connection, the next one of which that is too long first.
    pauses: VecDeque<(Instant, PipeId)>,
    next: u64,
    /// What connections have that nothing was agreed on with: nothing goes through it.
    nobodys: Pipe,
}

impl Pipes {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            all: BTreeMap::new(),
            pauses: VecDeque::new(),
            next: 0,
            nobodys: Pipe::new(
                Treatment {
                    delivery: Delivery::Datagram,
                    fec: Fec::Off,
                    ..Treatment::default()
                },
                now,
            ),
        }
    }

    /// A new pipe, for a class that is treated so.
    pub(crate) fn add(&mut self, treatment: Treatment, now: Instant) -> PipeId {
        let id = PipeId(self.next);
        self.next += 1;
        self.all.insert(id, Pipe::new(treatment, now));
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
    pub(crate) fn plug(
        &mut self,
        id: PipeId,
        conn: ConnId,
        numbers: Option<Numbers>,
        now: Instant,
    ) -> Option<ConnId> {
        let pipe = self.all.get_mut(&id)?;
        pipe.start_over(numbers, now);
        pipe.conn.replace(conn)
    }

    /// A pipe runs over this connection no longer.
    pub(crate) fn unplug(&mut self, id: PipeId, conn: ConnId, now: Instant) {
        let pipe = self.all.get_mut(&id);
        if let Some(pipe) = pipe.filter(|pipe| pipe.conn == Some(conn)) {
            pipe.conn = None;
            self.pauses.extend(pipe.pause(now).map(|until| (until, id)));
        }
    }

    /// When [`Self::poll_overdue`] should be asked.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.pauses.front().map(|&(until, _)| until)
    }

    /// A pipe of which no other connection came in time: what it held is handed on.
    pub(crate) fn poll_overdue(&mut self, now: Instant) -> Option<PipeId> {
        while self.poll_timeout()? <= now {
            let (until, id) = self.pauses.pop_front()?;
            let pipe = self.all.get_mut(&id);
            if let Some(pipe) = pipe.filter(|pipe| pipe.holds_until == Some(until)) {
                pipe.hand_on_held(now);
                return Some(id);
            }
        }
        None
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

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use sennit_core::{frame::HEADROOM, queue::Start};

    use super::*;

    fn push(pipe: &mut Pipe, now: Instant) {
        let packet = Queued {
            buffer: BytesMut::zeroed(HEADROOM + 100),
            flow: 1,
            in_order: false,
            checksum: Default::default(),
            returned: false,
        };
        pipe.push(packet, now);
    }

    /// Packets that are left of two after the pipe was without a tunnel for this long.
    fn left_after(pause: Duration) -> usize {
        let start = Instant::now();
        let mut pipes = Pipes::new(start);
        let id = pipes.add(Treatment::default(), start);
        assert_eq!(pipes.plug(id, ConnId(1), None, start), None);
        let pipe = pipes.of(Some(id));
        push(pipe, start);
        push(pipe, start);
        pipe.held = pipe.queue.pop(|_, _| Start::Head, start);
        pipes.unplug(id, ConnId(1), start);
        // A connection that is not plugged in cannot be pulled out.
        pipes.unplug(id, ConnId(9), start + pause);

        let now = start + pause;
        assert_eq!(pipes.plug(id, ConnId(2), None, now), None);
        let pipe = pipes.of(Some(id));
        std::iter::from_fn(|| pipe.queue.pop(|_, _| Start::Head, now)).count()
    }

    #[test]
    fn what_waits_leaves_over_the_next_tunnel_unless_that_comes_late() {
        assert_eq!(left_after(queue::KEPT_FOR - Duration::from_millis(1)), 2);
        assert_eq!(left_after(queue::KEPT_FOR), 0);
    }

    #[test]
    fn a_tunnel_that_takes_anothers_place_goes_on_with_what_waits() {
        let now = Instant::now();
        let mut pipes = Pipes::new(now);
        let id = pipes.add(Treatment::default(), now);
        pipes.plug(id, ConnId(1), None, now);
        push(pipes.of(Some(id)), now);
        assert_eq!(pipes.plug(id, ConnId(2), None, now), Some(ConnId(1)));
        // The old one comes off without harm to the new.
        pipes.unplug(id, ConnId(1), now);
        assert_eq!(pipes.plug(id, ConnId(3), None, now), Some(ConnId(2)));
        assert!(pipes.of(Some(id)).is_backlogged());
    }

    /// Packets that leave over the next connection, with new numbers, of two that had left under
    /// reliable delivery and one that had not, if delivery is so then.
    fn left_again(delivery: Delivery) -> usize {
        let now = Instant::now();
        let mut pipes = Pipes::new(now);
        let treatment = |delivery| Treatment {
            delivery,
            ..Treatment::default()
        };
        let id = pipes.add(treatment(Delivery::Reliable), now);
        pipes.plug(id, ConnId(1), None, now);
        let pipe = pipes.of(Some(id));
        (0..3).for_each(|_| push(pipe, now));
        let pop = |pipe: &mut Pipe| pipe.queue.pop(|_, _| Start::Head, now);
        let left: Vec<_> = (0..2).filter_map(|_| pop(pipe)).collect();
        let left = left.into_iter().map(|popped| (popped.seq, popped.packet));
        pipe.queue.put_back_all(left.collect(), now);
        pipe.held = pop(pipe);
        pipes.unplug(id, ConnId(1), now);

        pipes.of(Some(id)).set_treatment(treatment(delivery));
        pipes.plug(id, ConnId(2), None, now);
        let pipe = pipes.of(Some(id));
        std::iter::from_fn(|| pop(pipe)).count()
    }

    #[test]
    fn what_had_left_leaves_again_under_reliable_delivery_only() {
        assert_eq!(left_again(Delivery::Reliable), 3);
        assert_eq!(left_again(Delivery::Repair), 1);
    }

    /// Two packets of which the first comes, after one that is missing.
    fn holding(pipes: &mut Pipes, delivery: Delivery, now: Instant) -> PipeId {
        let treatment = Treatment {
            delivery,
            ..Treatment::default()
        };
        let id = pipes.add(treatment, now);
        let numbers = Numbers {
            run: "7".parse().unwrap(),
            go_on: false,
        };
        pipes.plug(id, ConnId(1), Some(numbers), now);
        for seq in [0, 2] {
            let header = Header {
                flow: 1,
                ordered: true,
                early: Duration::ZERO,
                seq: Header::FIRST.wrapping_add(seq),
                sent_micros: 0,
            };
            let packet = Packet {
                bytes: vec![0x45; 100].into(),
                checksum: Default::default(),
            };
            pipes.of(Some(id)).handle_numbered(&header, packet, 0, now);
        }
        assert!(pipes.poll_packet(id).is_some() && pipes.poll_packet(id).is_none());
        pipes.unplug(id, ConnId(1), now);
        id
    }

    #[test]
    fn what_is_held_waits_ten_seconds_for_another_connection_of_the_same_numbers() {
        let start = Instant::now();
        let mut pipes = Pipes::new(start);
        let repaired = holding(&mut pipes, Delivery::Repair, start);
        assert!(pipes.poll_packet(repaired).is_some(), "at once");

        let id = holding(&mut pipes, Delivery::Reliable, start);
        assert!(pipes.poll_packet(id).is_none());
        assert_eq!(pipes.poll_timeout(), Some(start + ENDLESS));
        assert_eq!(pipes.poll_overdue(start + ENDLESS / 2), None);
        assert_eq!(pipes.poll_overdue(start + ENDLESS), Some(id));
        assert!(pipes.poll_packet(id).is_some());
        assert_eq!(pipes.poll_timeout(), None);

        let id = holding(&mut pipes, Delivery::Reliable, start);
        let numbers = Numbers {
            run: "7".parse().unwrap(),
            go_on: true,
        };
        pipes.plug(id, ConnId(2), Some(numbers), start + ENDLESS / 2);
        assert_eq!(pipes.poll_overdue(start + ENDLESS), None, "it goes on");
        assert!(pipes.poll_packet(id).is_none());
    }
}
