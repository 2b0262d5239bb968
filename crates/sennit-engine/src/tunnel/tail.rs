//! A connection whose class goes on over another one: what is still on its way to it, and what it
//! loses.
//!
//! Where the numbers of the class go on, what arrives here has its place among what the other
//! connection brings, and what is lost here leaves again over that one, under its old number.
//! Nothing new leaves here. Elsewhere what arrives is handed on as it comes.

use std::time::Instant;

use bytes::Bytes;
use sennit_core::{Halves, frame::Header};
use sennit_masque::StreamId;

use super::{Tunnel, repair::in_places};
use crate::{
    codec::{self, Codec, Inbound},
    gate::Payload,
    ids::PipeId,
    inner::Packet,
    numbers::Run,
    pipe::Pipe,
    recovery::repair_time,
};

/// Datagrams that arrive belong to no path of the connection that the class runs over.
const NO_PATH: u32 = u32::MAX;

/// What such a connection still has to do with its class.
#[derive(Debug)]
pub(crate) struct Tail {
    /// The pipe that it was plugged into.
    pub(crate) pipe: PipeId,
    /// The numbers of that, if they go on.
    run: Option<Run>,
    codec: Codec,
    halves: Halves,
    /// Context, payload and time of what has arrived.
    arrived: Vec<(u64, Bytes, Instant)>,
    lost: Vec<Payload>,
    /// When all that left here was acknowledged, unless it was lost.
    settles_at: Option<Instant>,
}

impl Tail {
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.settles_at
    }

    /// Takes a datagram, unless it is of another request.
    pub(super) fn take(
        &mut self,
        (stream, context, payload): (StreamId, u64, Bytes),
        now: Instant,
    ) {
        if self.codec.is_of(stream) {
            self.arrived.push((context, payload, now));
        }
    }

    pub(super) fn lose(&mut self, lost: impl IntoIterator<Item = Payload>) {
        self.lost.extend(lost);
    }

    fn goes_on(&self, pipe: &Pipe) -> bool {
        self.run == Some(pipe.run())
    }

    fn hand_on(&mut self, pipe: &mut Pipe) {
        let goes_on = self.goes_on(pipe);
        for (context, payload, arrived) in std::mem::take(&mut self.arrived) {
            let clock = pipe.resequencer.sender_clock(arrived);
            let decoded = self.codec.decode(context, payload, clock, arrived);
            let Some((header, packet)) = decoded.and_then(|it| self.packet(it, arrived)) else {
                continue;
            };
            match header.filter(|_| goes_on) {
                _ if !packet.bytes.is_empty() && !packet.is_well_formed() => {
                    pipe.stats.malformed += 1;
                }
                Some(header) => pipe.handle_numbered(&header, packet, NO_PATH, arrived),
                None => pipe.hand_out(packet),
            }
        }
    }

    /// The packet that a datagram brings, with its number if it has one. Repairs do not count any
    /// more: those of the other connection have begun anew.
    fn packet(&mut self, decoded: Inbound, now: Instant) -> Option<(Option<Header>, Packet)> {
        match decoded {
            Inbound::Bare(packet) => Some((None, packet)),
            Inbound::Numbered(header, packet) | Inbound::Thin(header, packet) => {
                Some((Some(header), packet))
            }
            Inbound::Half(header, half, bytes) => {
                let bytes = self.halves.handle_half(&header, half, &bytes, now)?;
                let checksum = codec::progress(half.partial);
                Some((Some(header), Packet { bytes, checksum }))
            }
            Inbound::Source(source, bytes) => {
                let checksum = codec::progress(source.partial);
                Some((Some(source.header), Packet { bytes, checksum }))
            }
            Inbound::Unknown
            | Inbound::Template
            | Inbound::Repair(..)
            | Inbound::Tidings(_)
            | Inbound::Report(_)
            | Inbound::Padding => None,
        }
    }
}

impl Tunnel {
    /// Its class goes on over another connection from now on, with the same numbers if that
    /// `goes_on`.
    pub(crate) fn leave(&mut self, (id, pipe): (PipeId, &mut Pipe), goes_on: bool, now: Instant) {
        let slowest = self.slowest();
        let lost = if goes_on {
            pipe.recovery.drain()
        } else {
            Vec::new()
        };
        let (halves, run) = (pipe.take_halves(), goes_on.then(|| pipe.run()));
        let tail = self.codec.take().map(|codec| Tail {
            pipe: id,
            run,
            codec,
            halves,
            arrived: Vec::new(),
            lost,
            settles_at: Some(now + repair_time(slowest, slowest)),
        });
        self.tail = tail.map(Box::new);
        self.abort_round();
    }

    /// Hands on what came since its class goes on over another connection, and puts back what was
    /// lost here; whether there was any.
    pub(crate) fn follow_tail(&mut self, pipe: &mut Pipe, now: Instant) -> bool {
        let slowest = self.slowest();
        let Some(tail) = &mut self.tail else {
            return false;
        };
        let settles = tail.settles_at.take_if(|at| now >= *at).is_some();
        for path in &self.paths {
            let mut ledger = path.gate.ledger();
            if settles {
                ledger.lose_all();
            }
            tail.lost.extend(ledger.take_lost());
        }
        tail.hand_on(pipe);
        let mut lost = std::mem::take(&mut tail.lost);
        let repairs = pipe.recovery.repairs() && tail.goes_on(pipe);
        lost.retain(|it| repairs && pipe.recovery.is_worth_repair(it, slowest, now));
        if lost.is_empty() {
            return false;
        }
        let mut packets = in_places(&tail.codec, lost, now);
        if !pipe.recovery.is_reliable() {
            // Nobody waits for those of which nothing is kept.
            packets.retain(|(_, packet)| packet.packet_len() > 0);
        }
        pipe.queue.put_back_all(packets, now);
        true
    }

    /// Nothing comes over it any more: what has not arrived for sure leaves again where that is
    /// worth it.
    pub(crate) fn end_tail(&mut self, pipe: &mut Pipe, now: Instant) -> bool {
        for path in &self.paths {
            path.gate.ledger().lose_all();
        }
        let any = self.follow_tail(pipe, now);
        pipe.resequencer.forget_path(NO_PATH);
        any
    }
}
