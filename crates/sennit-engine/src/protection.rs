//! Forward error correction of a class: which packets are protected, and what comes of it.
//!
//! A [`Protection`] belongs to a pipe and has two sides that know nothing of each other. The
//! [`Sending`] side shows packets to an encoder as they leave (`tunnel::protect`), keeps the
//! repairs that are due, and hears by [`Tidings`] what came back, so that it is not sent again. The
//! [`Receiving`] side feeds a decoder. Both start over with each connection. A class that is not
//! protected has neither.

mod back;
mod chooser;
mod status;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;
use sennit_core::{
    PathSet,
    frame::{Header, SourceHeader, Tidings},
};
use sennit_fec::{Code, Decoder, Encoder, Fec, Recovered, Repair, WINDOW_TIME};
use sennit_packet::checksum::Progress;

use self::back::Back;
pub(crate) use self::chooser::is_crowded;
pub use self::chooser::{Chooser, Outlook};
pub use self::status::{FecReason, FecStatus, Symbols};
use crate::{codec, inner::Packet, transport::MAX_PATHS};

/// Repairs that wait for a path, at most: of a burst of groups, and not more than a path takes in a
/// moment.
const MOST_DUE: usize = 64;
/// A repair that has waited for longer comes too late.
const DUE_FOR: Duration = Duration::from_millis(100);
/// What was lost is not sent again before its repair could have come and been told of: this much
/// after a round trip.
const TOLD_AFTER: Duration = Duration::from_millis(25);
/// How often the sender of sources is told what came of them, if nothing came back.
const TELL_EVERY: Duration = Duration::from_millis(250);
/// Numbers that wait to be told, at most: a second of sources of which a tenth comes back, at 500
/// Mbit/s. Of older ones the sender does without tidings.
const MOST_BACK: usize = 4096;
/// A flow waits for what a repair may bring back while repairs come, and for so long after.
pub(crate) const LISTENS_FOR: Duration = Duration::from_secs(1);
/// How long: but on a slow link a group is closed by then, and its repair has travelled over a path
/// that is slower by more than as much again; nine of ten packets that a window brings back have
/// come.
pub(crate) const WAITS_FOR: Duration = Duration::from_millis(50);

/// Both sides, as far as there is anything to do.
#[derive(Debug)]
pub(crate) struct Protection {
    fec: Fec,
    chooser: Chooser,
    pub(crate) sending: Option<Box<Sending>>,
    pub(crate) receiving: Option<Box<Receiving>>,
}

impl Protection {
    pub(crate) fn new(fec: Fec, now: Instant) -> Self {
        Self {
            fec,
            chooser: Chooser::new(now),
            sending: None,
            receiving: None,
        }
    }

    pub(crate) fn set_fec(&mut self, fec: Fec) {
        if self.fec == fec {
            return;
        }
        self.fec = fec;
        if let Some(sending) = &mut self.sending {
            sending.encoder.set_window_time(WINDOW_TIME);
        }
    }

    pub(crate) fn is_auto(&self) -> bool {
        self.fec == Fec::Auto
    }

    /// Forgets both sides: numbers start over.
    pub(crate) fn start_over(&mut self, now: Instant) {
        (self.sending, self.receiving) = (None, None);
        self.chooser = Chooser::new(now);
    }

    /// Whether it is time to look at the paths again.
    pub(crate) fn is_look_due(&self, now: Instant) -> bool {
        self.is_auto() && self.chooser.is_due(now)
    }

    /// Takes note of what the paths are like.
    pub(crate) fn look(&mut self, outlook: &Outlook, now: Instant) {
        let told = self.sending.as_ref().map(|sending| &sending.told);
        self.chooser.look(outlook, told, now);
        if let Some(sending) = &mut self.sending {
            sending.encoder.set_window_time(self.chooser.window_time());
        }
    }

    /// Whether only what is no transfer is protected.
    pub(crate) fn leaves_transfers(&self) -> bool {
        self.is_auto() && self.chooser.leaves_transfers()
    }

    /// The side that shows packets to an encoder, if they are to be protected now.
    /// `in_order` is a flow that has time.
    pub(crate) fn sending(&mut self, in_order: bool) -> Option<&mut Sending> {
        let (code, tail) = match self.fec {
            Fec::Off => (None, 1),
            Fec::Fixed(code) => (Some(code), 1),
            Fec::Auto => (self.chooser.code(), self.chooser.tail()),
        };
        if code.is_some() && in_order && self.leaves_transfers() {
            return None;
        }
        let Some(code) = code else {
            if let Some(sending) = &mut self.sending {
                sending.rest();
            }
            return None;
        };
        let sending = self
            .sending
            .get_or_insert_with(|| Box::new(Sending::new(code)));
        sending.encoder.set_code(code);
        sending.encoder.set_tail(tail);
        Some(sending)
    }

    /// Whether repairs have to leave before more is protected.
    pub(crate) fn is_full(&self) -> bool {
        let sending = self.sending.as_ref();
        sending.is_some_and(|sending| sending.due.len() >= MOST_DUE / 2)
    }

    /// The side that feeds a decoder, now that something is there for it.
    pub(crate) fn receiving(&mut self, now: Instant) -> &mut Receiving {
        self.receiving
            .get_or_insert_with(|| Box::new(Receiving::new(now)))
    }

    /// When something is due without packets.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let sending = self.sending.as_ref();
        let closes = sending.and_then(|sending| sending.encoder.poll_timeout());
        let tells = self.receiving.as_ref().and_then(|it| it.tells_at());
        closes.into_iter().chain(tells).min()
    }
}

/// What is sent is protected.
#[derive(Debug)]
pub(crate) struct Sending {
    encoder: Encoder,
    due: VecDeque<(Instant, Bytes)>,
    /// How many sources left on each path since the last repair, by its place in the tunnel.
    carried: [u32; MAX_PATHS.get() as usize],
    /// The path that carried most of the sources of the repairs that are due.
    avoided: Option<usize>,
    back: Back,
    told: Tidings,
    pub(crate) symbols: Symbols,
    source_bytes: u64,
    repair_bytes: u64,
    unsent: u64,
    /// Lost sources that were not sent again, because they came back.
    pub(crate) spared: u64,
}

impl Sending {
    fn new(code: Code) -> Self {
        Self {
            encoder: Encoder::new(code),
            due: VecDeque::new(),
            carried: Default::default(),
            avoided: None,
            back: Back::default(),
            told: Tidings::default(),
            symbols: Symbols::default(),
            source_bytes: 0,
            repair_bytes: 0,
            unsent: 0,
            spared: 0,
        }
    }

    /// Whether more packets wait behind the next one.
    pub(crate) fn set_more(&mut self, more: bool) {
        self.encoder.set_more(more);
    }

    /// Takes a packet that leaves on these paths and gives it a number; `None` if it is not to be
    /// protected.
    pub(crate) fn protect(
        &mut self,
        header: &Header,
        checksum: Progress,
        packet: &[u8],
        paths: PathSet,
        now: Instant,
    ) -> Option<SourceHeader> {
        let mut source = SourceHeader {
            id: 0,
            partial: checksum == Progress::Partial,
            header: *header,
        };
        source.id = self.encoder.push(&source.head(), packet, now)?;
        self.back.note_sent(source.id, now);
        for path in paths.iter() {
            if let Some(carried) = self.carried.get_mut(path) {
                *carried += 1;
            }
        }
        self.symbols.sources_sent += 1;
        self.source_bytes += packet.len() as u64;
        Some(source)
    }

    /// Makes the repairs that are due by now.
    pub(crate) fn make_repairs(&mut self, codec: &codec::Codec, now: Instant) {
        self.encoder.handle_timeout(now);
        while let Some((repair, symbol)) = self.encoder.poll_repair() {
            if self.due.len() == MOST_DUE {
                self.due.pop_front();
                self.unsent += 1;
            }
            self.due.push_back((now, codec.repair(&repair, symbol)));
            let carried = std::mem::take(&mut self.carried);
            let most = carried.iter().max().copied().filter(|most| *most > 0);
            let index = most.and_then(|most| carried.iter().position(|count| *count == most));
            self.avoided = index.or(self.avoided);
        }
        let is_late = |(at, _): &(Instant, Bytes)| now.saturating_duration_since(*at) > DUE_FOR;
        while self.due.front().is_some_and(is_late) {
            self.due.pop_front();
            self.unsent += 1;
        }
    }

    pub(crate) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// How long the repair is that leaves next.
    pub(crate) fn next_len(&self) -> Option<usize> {
        self.due.front().map(|(_, repair)| repair.len())
    }

    /// The path that most sources took, whose loss shall not be that of the repair as well.
    pub(crate) fn avoided(&self) -> Option<usize> {
        self.avoided
    }

    pub(crate) fn pop_due(&mut self) -> Option<Bytes> {
        let (_, repair) = self.due.pop_front()?;
        self.symbols.repairs_sent += 1;
        self.repair_bytes += repair.len() as u64;
        Some(repair)
    }

    /// Nothing is protected any more; what is due is dropped.
    fn rest(&mut self) {
        self.unsent += self.due.len() as u64;
        self.due.clear();
        self.encoder.forget();
    }

    pub(crate) fn handle_tidings(&mut self, tidings: Tidings) {
        for &id in &tidings.back {
            self.back.set(id, true);
        }
        self.told = tidings;
    }

    /// Whether the source with this number that first left at `first_sent` came back by a repair.
    pub(crate) fn is_back(&self, id: u16, first_sent: Instant) -> bool {
        self.back.has(id, first_sent)
    }

    /// Until when a source that first left at `first_sent` is not sent again, because its repair
    /// may bring it back.
    pub(crate) fn waits_until(&self, first_sent: Instant, slowest: Duration) -> Instant {
        first_sent + slowest + TOLD_AFTER
    }
}

/// What arrives is protected.
#[derive(Debug)]
pub(crate) struct Receiving {
    decoder: Decoder,
    pub(crate) symbols: Symbols,
    /// Numbers of what came back and was not told of.
    back: VecDeque<u16>,
    /// Something came since the sender was told.
    news: bool,
    told: Instant,
    too_late: u64,
    malformed: u64,
    /// What came back and was not handed on yet.
    recovered: Vec<(Header, Packet)>,
}

impl Receiving {
    fn new(now: Instant) -> Self {
        Self {
            decoder: Decoder::new(),
            symbols: Symbols::default(),
            back: VecDeque::new(),
            news: false,
            told: now,
            too_late: 0,
            malformed: 0,
            recovered: Vec::new(),
        }
    }

    pub(crate) fn handle_source(&mut self, source: &SourceHeader, packet: &[u8]) {
        self.symbols.sources_received += 1;
        self.news = true;
        let Self {
            recovered,
            back,
            malformed,
            ..
        } = self;
        self.decoder
            .handle_source(source.id, &source.head(), packet, |found| {
                take_back(&found, recovered, back, malformed);
            });
    }

    pub(crate) fn handle_repair(&mut self, repair: &Repair, symbol: &[u8]) {
        self.symbols.repairs_received += 1;
        self.news = true;
        let Self {
            recovered,
            back,
            malformed,
            ..
        } = self;
        self.decoder.handle_repair(repair, symbol, |found| {
            take_back(&found, recovered, back, malformed);
        });
    }

    /// What came back since the last call.
    pub(crate) fn take_recovered(&mut self) -> Vec<(Header, Packet)> {
        std::mem::take(&mut self.recovered)
    }

    /// So many of what came back had been given up.
    pub(crate) fn note_too_late(&mut self, count: u64) {
        self.too_late += count;
    }

    fn tells_at(&self) -> Option<Instant> {
        match (self.back.is_empty(), self.news) {
            (false, _) => Some(self.told),
            (true, true) => Some(self.told + TELL_EVERY),
            (true, false) => None,
        }
    }

    /// What the sender is to be told now.
    pub(crate) fn tidings(&mut self, now: Instant) -> Option<Tidings> {
        self.tells_at().filter(|at| *at <= now)?;
        (self.told, self.news) = (now, false);
        let stats = self.decoder.stats();
        let told = self.back.len().min(Tidings::MOST);
        Some(Tidings {
            sources: stats.sources as u32,
            repairs: stats.repairs as u32,
            recovered: stats.recovered as u32,
            lost: stats.lost as u32,
            back: self.back.drain(..told).collect(),
        })
    }
}

/// Makes a packet of what came back.
fn take_back(
    found: &Recovered<'_>,
    recovered: &mut Vec<(Header, Packet)>,
    back: &mut VecDeque<u16>,
    malformed: &mut u64,
) {
    let Some((head, packet)) = found.bytes.split_first_chunk() else {
        *malformed += 1;
        return;
    };
    let (header, partial) = SourceHeader::of_head(*head);
    let Some(packet) = trimmed(packet) else {
        *malformed += 1;
        return;
    };
    if back.len() == MOST_BACK {
        back.pop_front();
    }
    back.push_back(found.id);
    let packet = Packet {
        bytes: Bytes::copy_from_slice(packet),
        checksum: codec::progress(partial),
    };
    recovered.push((header, packet));
}

/// An IP packet without what follows it. Nothing stands for a packet that was dropped.
fn trimmed(bytes: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| {
        bytes
            .get(at..at + 2)
            .map(|it| u16::from_be_bytes([it[0], it[1]]))
    };
    let len = match bytes.first().map_or(0, |first| first >> 4) {
        4 => word(2)?.into(),
        6 => 40 + usize::from(word(4)?),
        0 => 0,
        _ => return None,
    };
    bytes.get(..len)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A site that acknowledges nothing leaves no path room for tidings.
    #[test]
    fn what_came_back_is_told_of_no_more_than_can_be_remembered() {
        let (mut recovered, mut back, mut malformed) = Default::default();
        let mut bytes = vec![0; size_of::<sennit_core::frame::SourceHead>() + 20];
        let packet = bytes.len() - 20;
        bytes[packet] = 0x45;
        bytes[packet + 3] = 20;
        for id in 0..3 * MOST_BACK as u16 {
            let found = Recovered { id, bytes: &bytes };
            take_back(&found, &mut recovered, &mut back, &mut malformed);
        }
        assert_eq!((back.len(), malformed), (MOST_BACK, 0));
        assert_eq!(back.front(), Some(&(2 * MOST_BACK as u16)));
    }
}
