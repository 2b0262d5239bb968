//! Sends again what paths have lost, as far as [`Recovery`](crate::recovery::Recovery) says.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use sennit_core::{
    PathSet, Policy, Worth,
    frame::{HEADROOM, Header},
    queue::Queued,
    resequence::ENDLESS,
};

use super::{Tunnel, batch::BATCH, protect::own_loss};
use crate::{
    codec::{self, Codec, Inbound},
    gate::{Payload, Twins},
    inner::Packet,
    path::{Path, number},
    pipe::Pipe,
    recovery::{NEVER, copies, repair_time},
    transport::IDLE,
    treatment::Treatment,
};

/// Half a packet is joined if it arrives within this time after it first left: under reliable
/// delivery the other half is kept for twice as long ([`ENDLESS`]).
const SURELY_JOINED: Duration = Duration::from_secs(5);
/// A round trip is taken for usual up to this many times the least.
const USUAL_RTT: f64 = 1.5;

impl Tunnel {
    /// Whether lost datagrams are sent again. What is sent twice anyway is not, unless delivery is
    /// reliable and all copies are lost.
    pub(super) fn repairs(&self, pipe: &Pipe) -> bool {
        let is_copied = self.scheduler.policy() == Policy::Redundant;
        let repairs = pipe.recovery.repairs() && self.is_numbered();
        repairs && (!is_copied || pipe.recovery.is_reliable())
    }

    /// Whether the far end waits for what is sent again. Of copies one is rarely missing.
    pub(super) fn waits_for_repairs(&self, pipe: &Pipe) -> bool {
        self.repairs(pipe) && self.scheduler.policy() != Policy::Redundant
    }

    /// Whether each path is watched for what it loses of copies, as all of them may be lost.
    pub(super) fn watches_copies(&self, pipe: &Pipe) -> bool {
        self.repairs(pipe) && self.scheduler.policy() == Policy::Redundant
    }

    /// What a datagram that leaves on these paths shares with its copies, where they are watched.
    pub(super) fn twins(&self, pipe: &Pipe, paths: PathSet) -> Option<Twins> {
        let is_copied = paths.without_first().first().is_some();
        (is_copied && self.watches_copies(pipe)).then(Twins::default)
    }

    /// Whether it matters which datagrams are lost: they are sent again, or protected if many are.
    pub(super) fn watches_losses(&self, pipe: &Pipe) -> bool {
        let protects = pipe.protection.is_auto() && self.takes_repairs();
        self.repairs(pipe) || protects && self.scheduler.policy() != Policy::Redundant
    }

    pub(super) fn slowest(&self) -> Duration {
        let round_trips = self.paths.iter().map(Path::srtt);
        round_trips.max().unwrap_or_default()
    }

    /// Collects what the paths have lost. What a tunnel loses that is plugged in no longer is
    /// nobody's.
    pub(super) fn collect_lost(&mut self, pipe: &mut Pipe, now: Instant) {
        if let Some(tail) = &mut self.tail {
            let paths = self.paths.iter();
            return tail.lose(paths.flat_map(|path| path.gate.ledger().take_lost()));
        }
        let (repairs, slowest) = (self.repairs(pipe), self.slowest());
        let codec = self.codec.as_ref();
        for path in &self.paths {
            if !path.gate.ledger().has_lost() {
                continue;
            }
            for payload in path.gate.ledger().take_lost() {
                let repairs = repairs || pipe.recovery.is_owed(payload.first_sent);
                if let Some(sending) = &mut pipe.protection.sending
                    && let Some(id) = codec.and_then(|codec| codec.source_id(&payload.bytes))
                {
                    if sending.is_back(id, payload.first_sent) {
                        sending.spared += 1;
                        continue;
                    }
                    let until = sending.waits_until(payload.first_sent, slowest);
                    if repairs && until > now {
                        pipe.recovery.defer(payload, until);
                        continue;
                    }
                }
                if !repairs || !pipe.recovery.handle_lost(payload, slowest, now) {
                    pipe.stats.unrepaired += 1;
                }
            }
        }
        self.collect_deferred(pipe, slowest, now);
        if !repairs && !pipe.recovery.owes(now) {
            pipe.stats.unrepaired += pipe.recovery.drain().len() as u64;
        }
    }

    /// Says whether new packets have to wait for old ones, under reliable delivery, and templates
    /// of thin ones for those that were made with older ones.
    pub(super) fn settle_reliable(&mut self, pipe: &mut Pipe) {
        let oldest = if pipe.recovery.is_reliable() {
            let oldest = |path: &Path| path.gate.ledger().oldest();
            let in_flight = self.paths.iter().filter_map(oldest).min();
            pipe.recovery.settle(in_flight)
        } else {
            None
        };
        if let Some(codec) = &mut self.codec {
            codec.settle(oldest);
        }
    }

    /// The class is treated otherwise from now on. What left while lost packets were sent again
    /// still is, though no other may be any more.
    pub(crate) fn change_treatment(&mut self, pipe: &mut Pipe, treatment: Treatment, now: Instant) {
        let repaired = self.repairs(pipe);
        let was_reliable = repaired && pipe.recovery.is_reliable();
        self.set_treatment(treatment);
        pipe.set_treatment(treatment);
        if !was_reliable && pipe.recovery.is_reliable() {
            pipe.recovery.become_reliable(now);
        }
        if repaired && !self.repairs(pipe) {
            pipe.recovery.owe(now);
        }
        if let Some(codec) = &mut self.codec {
            codec.set_headers(treatment.headers);
        }
    }

    /// Puts what has left and may not have arrived back into the pipe that this tunnel is about to
    /// be pulled out of, under reliable delivery. If the numbers do not go on, the far end may get
    /// some of it twice.
    pub(crate) fn save_unsettled(&mut self, pipe: &mut Pipe, now: Instant) {
        if pipe.recovery.is_reliable() {
            let unsettled = self.take_unsettled(pipe, now);
            pipe.queue.put_back_all(unsettled, now);
        }
    }

    /// All packets that have left and may not have arrived, in the order of their flows, as they
    /// were before they were numbered.
    fn take_unsettled(&mut self, pipe: &mut Pipe, now: Instant) -> Vec<(u32, Queued)> {
        let mut payloads = pipe.recovery.drain();
        for path in &self.paths {
            let mut ledger = path.gate.ledger();
            ledger.lose_all();
            payloads.extend(ledger.take_lost());
        }
        let codec = self.codec.as_ref();
        codec.map_or_else(Vec::new, |codec| in_places(codec, payloads, now))
    }

    /// Takes what has waited in vain for its repair to bring it back.
    fn collect_deferred(&self, pipe: &mut Pipe, slowest: Duration, now: Instant) {
        while let Some(payload) = pipe.recovery.pop_deferred(now) {
            let id = self.codec().and_then(|it| it.source_id(&payload.bytes));
            let sending = pipe.protection.sending.as_mut();
            if let Some((sending, id)) = sending.zip(id)
                && sending.is_back(id, payload.first_sent)
            {
                sending.spared += 1;
            } else if !pipe.recovery.handle_lost(payload, slowest, now) {
                pipe.stats.unrepaired += 1;
            }
        }
    }

    pub(super) fn has_repairs(&self, pipe: &Pipe) -> bool {
        let given_up = |path: &Path| path.gate.ledger().has_given_up();
        let waits = || !pipe.recovery.is_empty() || self.paths.iter().any(given_up);
        (self.repairs(pipe) || pipe.recovery.owes(self.round.polled)) && waits()
    }

    /// The next datagram to be sent again.
    fn next_repair(&self, pipe: &mut Pipe, slowest: Duration, now: Instant) -> Option<Payload> {
        let mut lost = std::iter::from_fn(|| self.next_lost(pipe, slowest, now));
        lost.find_map(|payload| whole_if_old(payload, now))
    }

    fn next_lost(&self, pipe: &mut Pipe, slowest: Duration, now: Instant) -> Option<Payload> {
        if let Some(payload) = pipe.recovery.pop() {
            return Some(payload);
        }
        loop {
            let given_up = |path: &Path| path.gate.ledger().take_given_up();
            let payload = self.paths.iter().find_map(given_up)?;
            if pipe.recovery.is_worth_repair(&payload, slowest, now) {
                return Some(payload);
            }
            pipe.stats.unrepaired += 1;
        }
    }

    /// Stages what was lost for the path on which it arrives first.
    pub(super) fn repair_due(&mut self, pipe: &mut Pipe, now: Instant) -> Option<PathSet> {
        if !self.has_repairs(pipe) {
            return None;
        }
        let path = self.soonest()?;
        let paths = PathSet::default().with(path);
        let (fit, slowest) = (self.fit(paths), self.slowest());
        let loss = own_loss(&self.paths[path], now);
        while self.round.batch.len() < BATCH && self.round.views[path].budget > 0 {
            let Some(payload) = self.next_repair(pipe, slowest, now) else {
                break;
            };
            let Some(payload) = self.in_form(pipe, payload, fit.is_none(), now) else {
                pipe.stats.unrepaired += 1;
                continue;
            };
            if !self.is_taken(payload.bytes.len(), fit, self.round.batch.load()) {
                pipe.recovery.put_back(payload);
                break;
            }
            self.note_carried(payload.bytes.len(), paths, now);
            let again = Payload {
                bytes: self.redate(pipe, &payload.bytes, now),
                first_sent: payload.first_sent,
                repeats: payload.repeats.saturating_add(1).min(NEVER - 1),
                twins: None,
                half_of: payload.half_of,
            };
            pipe.stats.repaired += 1;
            let copies = copies(payload.repeats, loss);
            if copies > 1 && fit.is_none() {
                self.push_copies(pipe, &again, copies, path);
            } else {
                self.push(pipe, again, paths, fit);
            }
        }
        Some(paths)
    }

    /// Puts a datagram into the batch, and as many more of it as there is room for.
    fn push_copies(&mut self, pipe: &mut Pipe, payload: &Payload, copies: u8, path: usize) {
        let (paths, twins) = (PathSet::default().with(path), Twins::default());
        let twin = || Payload {
            twins: Some(twins.clone()),
            ..payload.clone()
        };
        for _ in 0..copies {
            self.push(pipe, twin(), paths, None);
            if self.round.batch.len() >= BATCH || self.round.views[path].budget == 0 {
                break;
            }
        }
    }

    /// The path on which something arrives first.
    pub(super) fn soonest(&self) -> Option<usize> {
        let views = self.round.views.iter().enumerate();
        views
            .filter(|(_, view)| view.usable && view.worth == Worth::Full && view.budget > 0)
            .min_by_key(|(_, view)| (view.tier, view.srtt))
            .map(|(path, _)| path)
    }

    /// What is sent again for a payload: a thin one is whole on a path that carries no packets of
    /// full size, and where the other end could not restore it. `None` if it is malformed.
    fn in_form(
        &self,
        pipe: &Pipe,
        payload: Payload,
        may_be_thin: bool,
        now: Instant,
    ) -> Option<Payload> {
        let Some(codec) = self.codec() else {
            return Some(payload);
        };
        let clock = pipe.numbering.clock(now);
        let bytes = codec.again(&payload.bytes, may_be_thin, payload.first_sent, clock)?;
        Some(Payload { bytes, ..payload })
    }

    /// Stages a template that the other end is to hear of.
    pub(super) fn template_due(&mut self, now: Instant) -> Option<PathSet> {
        if !self.codec().is_some_and(Codec::has_offer) {
            return None;
        }
        let path = self.soonest()?;
        let offer = self.codec.as_mut()?.poll_offer(now)?;
        let paths = PathSet::default().with(path);
        self.put_aside(offer, paths);
        Some(paths)
    }

    /// The datagram with the time at which it is sent now.
    fn redate(&self, pipe: &Pipe, datagram: &Bytes, now: Instant) -> Bytes {
        let again = |codec: &Codec| codec.redate(datagram, pipe.numbering.clock(now));
        self.codec().map_or_else(|| datagram.clone(), again)
    }

    /// How long a packet may be missing here because it is sent again.
    pub(super) fn repair_time(&self, pipe: &Pipe) -> Duration {
        let polled = self.round.polled;
        if !self.waits_for_repairs(pipe) {
            return Duration::ZERO;
        }
        if pipe.recovery.is_reliable() && !pipe.recovery.is_settling(polled) {
            return ENDLESS;
        }
        let resequencer = &pipe.resequencer;
        let is_used = |path: &&Path| resequencer.is_used(number(path.id), polled);
        let of_used = self.paths.iter().filter(is_used).map(usual_rtt).max();
        repair_time(self.slowest(), of_used.unwrap_or_default())
    }
}

/// The packets of these datagrams in the order of their flows, as they were before they were
/// numbered, with their numbers. Of old ones only the numbers: the far end may have given up the
/// connection, and forgotten what it had of them.
pub(super) fn in_places(codec: &Codec, payloads: Vec<Payload>, now: Instant) -> Vec<(u32, Queued)> {
    let nothing = |header| {
        let (bytes, checksum) = (Bytes::new(), Default::default());
        (header, Packet { bytes, checksum })
    };
    // What is read here is not what the far end sent, by which thin packets are restored.
    let mut reader = codec.afresh();
    let packets = payloads.into_iter().filter_map(|payload| {
        let whole = payload.half_of.as_deref();
        let whole = whole.map_or(&payload.bytes, |whole| &whole.bytes);
        let bytes = codec.again(whole, false, payload.first_sent, 0)?;
        let (_, context, content) = codec::split(bytes).ok()?;
        let forgotten = now.saturating_duration_since(payload.first_sent) >= IDLE;
        match reader.decode(context, content, None, now)? {
            Inbound::Numbered(header, _) if forgotten => Some(nothing(header)),
            Inbound::Source(source, _) if forgotten => Some(nothing(source.header)),
            Inbound::Numbered(header, packet) => Some((header, packet)),
            Inbound::Source(source, bytes) => {
                let checksum = codec::progress(source.partial);
                Some((source.header, Packet { bytes, checksum }))
            }
            // It left before delivery was to be reliable.
            Inbound::Half(header, ..) => Some(nothing(header)),
            Inbound::Bare(_)
            | Inbound::Report(_)
            | Inbound::Repair(..)
            | Inbound::Tidings(_)
            | Inbound::Thin(..)
            | Inbound::Template
            | Inbound::Unknown
            | Inbound::Padding => None,
        }
    });
    let mut packets: Vec<(Header, Packet)> = packets.collect();
    // Numbers begin just before they wrap.
    packets.sort_by_key(|(header, _)| (header.flow, header.seq.wrapping_sub(Header::FIRST)));
    packets.dedup_by_key(|(header, _)| (header.flow, header.seq));
    packets.into_iter().map(queued).collect()
}

/// What is sent again for a datagram: the whole that it is half of, where the other end may have
/// forgotten the other half; nothing if that half has become the whole already.
fn whole_if_old(mut payload: Payload, now: Instant) -> Option<Payload> {
    let age = now.saturating_duration_since(payload.first_sent);
    let Some(whole) = payload.half_of.take_if(|_| age >= SURELY_JOINED) else {
        return Some(payload);
    };
    payload.bytes = whole.bytes.clone();
    whole.take().then_some(payload)
}

/// The smoothed round trip of a path, without what it has just grown by.
fn usual_rtt(path: &Path) -> Duration {
    let least = path.gate.min_rtt().unwrap_or_default();
    path.srtt().min(least.mul_f64(USUAL_RTT))
}

/// A packet as it was before it left, and its number.
fn queued((header, packet): (Header, Packet)) -> (u32, Queued) {
    let mut buffer = BytesMut::zeroed(HEADROOM);
    buffer.extend_from_slice(&packet.bytes);
    let queued = Queued {
        buffer,
        flow: header.flow.into(),
        in_order: header.ordered,
        checksum: packet.checksum,
        returned: false,
    };
    (header.seq, queued)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::gate::Whole;

    /// What becomes of both halves of a packet that are lost after this time.
    fn again(after: Duration) -> Vec<Bytes> {
        let first_sent = Instant::now();
        let whole = Arc::new(Whole::new(Bytes::from_static(b"both")));
        let halves = ["bo", "th"].map(|half| Payload {
            bytes: half.into(),
            first_sent,
            repeats: 0,
            twins: None,
            half_of: Some(whole.clone()),
        });
        let now = first_sent + after;
        let again = halves
            .into_iter()
            .filter_map(|half| whole_if_old(half, now));
        again.map(|payload| payload.bytes).collect()
    }

    /// Each half became the whole, and on a small path those left in four halves.
    #[test]
    fn two_halves_that_are_lost_late_are_one_packet_again() {
        let just_before = SURELY_JOINED - Duration::from_millis(1);
        assert_eq!(again(just_before), ["bo", "th"]);
        assert_eq!(again(SURELY_JOINED), ["both"]);
    }
}
