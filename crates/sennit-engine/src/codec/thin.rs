//! The datagrams of templates and thin packets.

use std::time::Instant;

use bytes::{Buf, Bytes, BytesMut};
use sennit_core::{
    Headers,
    frame::{CONTEXT_TEMPLATE, CONTEXT_THIN, HEADROOM, Header, Offer, Report},
};
use sennit_masque::{
    StreamId,
    datagram::{self, Prefix},
};
use sennit_packet::checksum::Progress;

use super::{Codec, Inbound};
use crate::thin::{Outgoing, Receiving, Sending};

/// Templates of both directions.
#[derive(Debug)]
pub(super) struct Thinning {
    prefix: Prefix,
    template: Prefix,
    sending: Sending,
    pub(super) receiving: Receiving,
}

impl Thinning {
    pub(super) fn new(stream: StreamId) -> Self {
        Self {
            prefix: datagram::encode_prefix(stream, CONTEXT_THIN),
            template: datagram::encode_prefix(stream, CONTEXT_TEMPLATE),
            sending: Sending::default(),
            receiving: Receiving::default(),
        }
    }
}

impl Codec {
    /// Packets leave with these headers from now on, as both ends have agreed. What left thin
    /// before, and what the other end still sends, is understood as before.
    pub(crate) fn set_headers(&mut self, headers: Headers) {
        self.sends_thin = headers == Headers::Thin && self.abilities().items;
        if self.sends_thin {
            self.thinning();
        }
    }

    /// Under reliable delivery: when the oldest packet left that may be missing.
    pub(crate) fn settle(&mut self, oldest: Option<Instant>) {
        if let Some(thinning) = &mut self.thin {
            thinning.sending.settle(oldest);
        }
    }

    fn thinning(&mut self) -> &mut Thinning {
        let stream = self.stream;
        let thin = &mut self.thin;
        thin.get_or_insert_with(|| Box::new(Thinning::new(stream)))
    }

    /// The thin datagram of an inner packet with headroom before it, and how many bytes that saves;
    /// otherwise the buffer as it was.
    pub(crate) fn encode_thin(
        &mut self,
        mut buffer: BytesMut,
        checksum: Progress,
        (header, inner): (&Header, u32),
        now: Instant,
    ) -> Result<(Bytes, usize), BytesMut> {
        let thinning = self.thin.as_mut().filter(|_| self.sends_thin);
        let Some(thinning) = thinning else {
            return Err(buffer);
        };
        let out = Outgoing {
            packet: &buffer[HEADROOM..],
            checksum,
            header,
            inner,
        };
        let Some((head, thin)) = thinning.sending.shrink(&out, now) else {
            return Err(buffer);
        };
        let mut start = HEADROOM + thin.replaces;
        for piece in [thin.bytes(), &head[..], &thinning.prefix[..]] {
            start -= piece.len();
            buffer[start..start + piece.len()].copy_from_slice(piece);
        }
        buffer.advance(start);
        let saved = start - (HEADROOM - self.whole.len() - Header::LEN);
        Ok((buffer.freeze(), saved))
    }

    /// Whether a datagram is a thin packet.
    pub(super) fn is_thin(&self, datagram: &[u8]) -> bool {
        let thinning = self.thin.as_ref();
        thinning.is_some_and(|thinning| datagram.starts_with(&thinning.prefix))
    }

    /// What is sent of a datagram again that first left at this time: itself, or if it is thin and
    /// must not be, its packet as a whole; if its template is gone, its number without a packet, so
    /// that nobody waits for it.
    pub(crate) fn again(
        &self,
        datagram: &Bytes,
        may_be_thin: bool,
        first_sent: Instant,
        clock: u32,
    ) -> Option<Bytes> {
        let thinning = self.thin.as_ref().filter(|_| self.is_thin(datagram));
        let Some(thinning) = thinning else {
            return Some(datagram.clone());
        };
        let payload = &datagram[thinning.prefix.len()..];
        if may_be_thin && thinning.sending.is_known(payload, first_sent) {
            return Some(datagram.clone());
        }
        let (checksum, whole) = thinning.sending.whole(payload, clock, first_sent)?;
        let prefix = match checksum {
            Progress::Whole => &self.whole,
            Progress::Partial => &self.partial,
        };
        Some([&prefix[..], &whole].concat().into())
    }

    /// Whether a template is to be offered now.
    pub(crate) fn has_offer(&self) -> bool {
        let thinning = self.thin.as_ref().filter(|_| self.sends_thin);
        thinning.is_some_and(|thinning| thinning.sending.is_due())
    }

    /// The datagram of a template that is offered now.
    pub(crate) fn poll_offer(&mut self, now: Instant) -> Option<Bytes> {
        let thinning = self.thin.as_mut()?;
        let offer = thinning.sending.poll_offer(now)?;
        Some([&thinning.template[..], offer].concat().into())
    }

    /// Whether the other end is to hear of templates that have arrived.
    pub(crate) fn owes_templates(&self) -> bool {
        let thinning = self.thin.as_ref();
        thinning.is_some_and(|thinning| thinning.receiving.owes())
    }

    /// The templates that a report tells of.
    pub(crate) fn poll_templates(&mut self) -> Vec<(u8, u8)> {
        let thinning = self.thin.as_mut();
        thinning.map_or_else(Vec::new, |thinning| thinning.receiving.poll_known())
    }

    /// The other end reports.
    pub(crate) fn handle_report(&mut self, report: &Report, now: Instant) {
        if let Some(thinning) = &mut self.thin {
            thinning.receiving.handle_clock(report.sent_micros, now);
            for &(flow, edition) in &report.templates {
                thinning.sending.handle_known(flow, edition, now);
            }
        }
    }

    pub(super) fn note_header(&mut self, header: &Header, now: Instant) {
        if let Some(thinning) = &mut self.thin {
            thinning.receiving.handle_whole(header, now);
        }
    }

    pub(super) fn note_number(&mut self, header: &Header) {
        if let Some(thinning) = &mut self.thin {
            thinning.receiving.handle_number(header);
        }
    }

    /// Takes a template, also of a class that had whole headers until now: the offer may overtake
    /// what says so.
    pub(super) fn take_template(&mut self, payload: &[u8], now: Instant) -> Option<Inbound> {
        let offer = Offer::decode(payload)?;
        if !self.abilities().items {
            return None;
        }
        self.thinning().receiving.handle_offer(offer, now);
        Some(Inbound::Template)
    }
}
