//! Templates of the flows that the other end sends.

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use sennit_core::{
    frame::{Header, Offer, Report, ThinHeader},
    queue::FLOWS,
};
use sennit_packet::thin::Template;

use super::{is_odd, place};
use crate::inner::Packet;

/// Nothing arrives later than this after it was sent; times wrap after an hour, and are compared
/// only within it.
const LATEST: Duration = Duration::from_secs(60);
/// How often a template is acknowledged that is not used.
const TOLD: u8 = 3;
/// Memory for restored packets is taken from the system in pieces of this size, in bytes.
const CHUNK: usize = 64 << 10;

/// What the receiver knows of all flows; nothing until the first offer.
#[derive(Debug, Default)]
pub(crate) struct Receiving {
    flows: Vec<Flow>,
    /// What the sender's clock said, and when.
    clock: Option<(u32, Instant)>,
    /// Templates that the sender is to hear of.
    owed: Vec<Owed>,
    room: BytesMut,
}

#[derive(Clone, Debug, Default)]
struct Flow {
    editions: [Option<Box<Edition>>; 2],
    /// The newest sequence number.
    newest: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Edition {
    template: Template,
    number: u8,
    /// When it was first offered, by the sender's clock.
    offered: u32,
    arrived: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Owed {
    flow: u8,
    number: u8,
    left: u8,
}

/// What became of a thin packet.
#[derive(Debug)]
pub(crate) enum Restored {
    Packet(Header, Packet),
    /// Its template is not here.
    Unknown,
    Malformed,
}

impl Receiving {
    /// Takes a template.
    pub(crate) fn handle_offer(&mut self, offer: Offer, now: Instant) {
        if self.flows.is_empty() {
            self.flows = vec![Flow::default(); FLOWS];
        }
        let Offer {
            header,
            edition: number,
            template,
        } = offer;
        let flow = &mut self.flows[usize::from(header.flow)];
        if flow.editions == [None, None] {
            flow.newest = header.seq;
        }
        flow.note(header.seq);
        let held = &mut flow.editions[place(is_odd(number))];
        let replaces = held.as_ref().is_none_or(|held| held.is_older(&header, now));
        if replaces {
            *held = Some(Box::new(Edition {
                template,
                number,
                offered: header.sent_micros,
                arrived: now,
            }));
        }
        if held.as_ref().is_some_and(|held| held.number == number) {
            self.owe(header.flow, number);
        }
    }

    fn owe(&mut self, flow: u8, number: u8) {
        self.owed.retain(|owed| owed.flow != flow);
        self.owed.push(Owed {
            flow,
            number,
            left: TOLD,
        });
    }

    /// Whether the sender is to hear of templates.
    pub(crate) fn owes(&self) -> bool {
        !self.owed.is_empty()
    }

    /// The templates that a report tells of.
    pub(crate) fn poll_known(&mut self) -> Vec<(u8, u8)> {
        let told = self.owed.len().min(Report::MAX_TEMPLATES);
        let mut known = Vec::with_capacity(told);
        for owed in &mut self.owed[..told] {
            known.push((owed.flow, owed.number));
            owed.left -= 1;
        }
        self.owed.retain(|owed| owed.left > 0);
        known
    }

    /// The sender's clock says this.
    pub(crate) fn handle_clock(&mut self, sent_micros: u32, now: Instant) {
        self.clock = Some((sent_micros, now));
    }

    /// A packet with this header came whole.
    pub(crate) fn handle_whole(&mut self, header: &Header, now: Instant) {
        self.handle_clock(header.sent_micros, now);
        self.handle_number(header);
    }

    /// A packet with the number of this header came, in whichever form.
    pub(crate) fn handle_number(&mut self, header: &Header) {
        if let Some(flow) = self.flows.get_mut(usize::from(header.flow)) {
            flow.note(header.seq);
        }
    }

    /// Restores a thin packet.
    pub(crate) fn restore(&mut self, payload: &Bytes, now: Instant) -> Restored {
        let Some((thin, rest)) = ThinHeader::decode(payload) else {
            return Restored::Malformed;
        };
        let (flow, clock) = (self.flows.get_mut(usize::from(thin.flow)), self.clock);
        let (Some(flow), Some((clock, at))) = (flow, clock) else {
            return Restored::Unknown;
        };
        let passed = now.saturating_duration_since(at).as_micros() as u32;
        let header = thin.header(flow.newest, clock.wrapping_add(passed));
        let edition = flow.editions[place(thin.odd)].as_ref();
        let Some(edition) = edition.filter(|edition| !edition.is_younger(&header, now)) else {
            return Restored::Unknown;
        };
        let number = edition.number;
        let Some(packet) = edition.template.expand(rest, header.seq) else {
            return Restored::Malformed;
        };
        if self.room.capacity() < packet.packet_len() {
            self.room = BytesMut::with_capacity(CHUNK.max(packet.packet_len()));
        }
        self.room.put_slice(packet.head());
        self.room.put_slice(packet.payload);
        flow.note(header.seq);
        if self.owes() {
            self.owed
                .retain(|owed| (owed.flow, owed.number) != (thin.flow, number));
        }
        let packet = Packet {
            bytes: self.room.split().freeze(),
            checksum: packet.checksum,
        };
        Restored::Packet(header, packet)
    }
}

impl Flow {
    fn note(&mut self, seq: u32) {
        if (seq.wrapping_sub(self.newest) as i32) > 0 {
            self.newest = seq;
        }
    }
}

impl Edition {
    /// Whether an offer that was first made at this time takes its place.
    fn is_older(&self, offer: &Header, now: Instant) -> bool {
        let passed = offer.sent_micros.wrapping_sub(self.offered) as i32;
        passed > 0 || now.saturating_duration_since(self.arrived) >= LATEST
    }

    /// Whether it was offered after a packet with this header was sent.
    fn is_younger(&self, packet: &Header, now: Instant) -> bool {
        let passed = packet.sent_micros.wrapping_sub(self.offered) as i32;
        passed < 0 && now.saturating_duration_since(self.arrived) < LATEST
    }
}
