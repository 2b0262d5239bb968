//! From the paths to the host.

use std::time::{Duration, Instant};

use bytes::Bytes;
use noq_proto::{ConnectionEvent, FourTuple};
use sennit_core::frame::{CONTEXT_SOURCE, Half, Header};
use sennit_masque::{Code, StreamId};

use super::Tunnel;
use crate::{
    codec::{self, Inbound},
    inner::Packet,
    path::number,
    pipe::Pipe,
};

impl Tunnel {
    /// A QUIC packet of so many bytes has `arrived` on `network` and is read now. A datagram
    /// without a stream id is an error of the connection (RFC 9297 §2.1).
    pub(crate) fn handle_event(
        &mut self,
        pipe: &mut Pipe,
        event: ConnectionEvent,
        (network, bytes): (FourTuple, usize),
        arrived: Instant,
        now: Instant,
    ) -> Result<(), Code> {
        let path = self.paths.iter().position(|path| path.network == network);
        let late = self.note_lateness(pipe, path, arrived);
        self.note_waited(now.saturating_duration_since(arrived));
        let conn = &mut self.conn;
        let heard = self.mishap.contain(now, || conn.handle_event(event));
        if heard.is_none() {
            return Ok(());
        }
        self.farewell.note_heard(&self.conn);
        self.note_waited(Duration::ZERO);
        if path.is_none() {
            self.arrivals.handle_heard(bytes, arrived);
        }
        let id = path.map_or(u32::MAX, |index| {
            let path = &mut self.paths[index];
            path.health.handle_heard(bytes, arrived);
            number(path.id)
        });
        let (mut empty, mut matters) = (true, false);
        while let Some(datagram) = self.conn.datagrams().recv() {
            empty = false;
            matters |= !self.is_padding(&datagram);
            self.handle_datagram(pipe, datagram, id, arrived)?;
        }
        let index = path.filter(|_| !empty);
        if let Some(index) = index {
            self.paths[index].owed.handle_packet(matters, arrived);
        }
        if let Some(index) = path {
            self.doubt_clocks(pipe, index, late, arrived);
        }
        self.round.only_acks = Some(self.round.only_acks.unwrap_or(true) && index.is_some());
        Ok(())
    }

    /// Tells all paths how long the packet has waited to be read whose acknowledgements they hear
    /// now.
    fn note_waited(&self, waited: Duration) {
        for path in &self.paths {
            path.gate.set_waited(waited);
        }
    }

    fn is_padding(&self, datagram: &[u8]) -> bool {
        self.codec().is_some_and(|codec| codec.is_padding(datagram))
    }

    fn handle_datagram(
        &mut self,
        pipe: &mut Pipe,
        datagram: Bytes,
        path: u32,
        now: Instant,
    ) -> Result<(), Code> {
        let split = match codec::split(datagram) {
            Ok(split) => split,
            Err(code) => {
                pipe.stats.malformed += 1;
                return code.map_or(Ok(()), Err);
            }
        };
        if let Some(tail) = &mut self.tail {
            tail.take(split, now);
        } else if self.codec().is_some() || self.unbound.is_some() {
            self.handle_split(pipe, split, path, now);
        } else if !self.early.keep((split, path, now)) {
            pipe.stats.malformed += 1;
        }
        Ok(())
    }

    fn handle_split(
        &mut self,
        pipe: &mut Pipe,
        (stream, context, payload): (StreamId, u64, Bytes),
        path: u32,
        now: Instant,
    ) {
        if self.codec().is_some_and(|codec| codec.is_of(stream)) {
            self.handle_payload(pipe, context, payload, path, now);
        } else if let Some(unbound) = &mut self.unbound {
            unbound.push((stream, context, payload));
        } else {
            pipe.stats.malformed += 1;
        }
    }

    /// Takes what came before it was known what datagrams look like.
    pub(crate) fn handle_early(&mut self, pipe: &mut Pipe) {
        for (split, path, arrived) in self.early.take() {
            self.handle_split(pipe, split, path, arrived);
        }
    }

    /// The same content in a capsule of the request stream (RFC 9297 §3.5).
    pub(crate) fn handle_capsule(&mut self, pipe: &mut Pipe, content: Bytes, now: Instant) {
        match codec::split_capsule(content) {
            Some((context, payload)) => self.handle_payload(pipe, context, payload, u32::MAX, now),
            None => pipe.stats.malformed += 1,
        }
    }

    fn handle_payload(
        &mut self,
        pipe: &mut Pipe,
        context: u64,
        payload: Bytes,
        path: u32,
        now: Instant,
    ) {
        // Only sources leave out a part of it.
        let is_source = context == CONTEXT_SOURCE;
        let clock = is_source
            .then(|| pipe.resequencer.sender_clock(now))
            .flatten();
        let codec = self.codec.as_mut();
        let decoded = codec.and_then(|codec| codec.decode(context, payload, clock, now));
        match decoded {
            Some(Inbound::Bare(packet)) => self.hand_out(pipe, packet, now),
            Some(Inbound::Numbered(header, packet)) => {
                self.handle_numbered(pipe, &header, packet, path, now);
            }
            Some(Inbound::Thin(header, packet)) => {
                pipe.stats.thin_received += 1;
                self.handle_numbered(pipe, &header, packet, path, now);
            }
            Some(Inbound::Unknown) => pipe.stats.thin_unknown += 1,
            Some(Inbound::Half(header, half, bytes)) => {
                self.handle_half(pipe, &header, (half, &bytes), path, now);
            }
            Some(Inbound::Report(report)) => self.handle_report(pipe, &report, path, now),
            Some(Inbound::Padding | Inbound::Template) => {}
            Some(Inbound::Source(source, bytes)) => {
                self.handle_source(pipe, &source, bytes, path, now);
            }
            Some(Inbound::Repair(repair, symbol)) => {
                self.handle_repair(pipe, &repair, &symbol, path, now);
            }
            Some(Inbound::Tidings(tidings)) => self.handle_tidings(pipe, tidings),
            None => pipe.stats.malformed += 1,
        }
    }

    /// Half of a packet; it is handled once the other one is there.
    fn handle_half(
        &mut self,
        pipe: &mut Pipe,
        header: &Header,
        (half, bytes): (Half, &[u8]),
        path: u32,
        now: Instant,
    ) {
        if let Some(packet) = pipe.join(header, half, bytes, now) {
            self.handle_numbered(pipe, header, packet, path, now);
        }
    }

    pub(super) fn handle_numbered(
        &mut self,
        pipe: &mut Pipe,
        header: &Header,
        packet: Packet,
        path: u32,
        now: Instant,
    ) {
        // Nothing but a number stands for a packet that will not come.
        if !packet.bytes.is_empty() && !packet.is_well_formed() {
            pipe.stats.malformed += 1;
            return;
        }
        self.note_data(packet.bytes.len(), now);
        pipe.handle_numbered(header, packet, path, now);
    }

    fn hand_out(&mut self, pipe: &mut Pipe, packet: Packet, now: Instant) {
        if !packet.is_well_formed() {
            pipe.stats.malformed += 1;
            return;
        }
        self.note_data(packet.bytes.len(), now);
        pipe.hand_out(packet);
    }

    /// Passes on what has waited in vain for an earlier packet.
    pub(crate) fn handle_overdue(&self, pipe: &mut Pipe, now: Instant) {
        pipe.handle_overdue(self.repair_time(pipe), now);
    }

    pub(super) fn overdue_at(&self, pipe: &Pipe) -> Option<Instant> {
        let repair = self.repair_time(pipe);
        pipe.resequencer.poll_timeout(repair, self.round.polled)
    }
}
