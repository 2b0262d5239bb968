//! Messages of a connection that are protected by error correction, with the codes of the tunnel.
//!
//! A protected message leaves behind an octet and its number, a repair behind an octet and the
//! header of the encoder. All messages of a load are of one length, and so is whatever is made of
//! them. What is longer or shorter is not decoded, so a far end decides neither how much memory the
//! decoder takes nor what counts as a message. The numbers begin anew when the warm-up is over, so
//! that what is counted is of one run of them.

use std::{collections::VecDeque, time::Instant};

use bytes::{BufMut as _, Bytes, BytesMut};
use sennit_fec::{Code, Decoder, Encoder, Repair};

use super::{super::fec::Symbols, message::Head};

/// First octet of a protected message, of a repair, and of a repair of the warm-up.
const SOURCE: u8 = 5;
const REPAIR: u8 = 6;
const WARM_REPAIR: u8 = 7;

/// What is sent is protected.
pub(super) struct Sending {
    encoder: Encoder,
    /// Number of the next message, as the encoder will count it.
    next: u16,
    /// The warm-up is over.
    counts: bool,
    /// Repairs that wait for room. No message overtakes them, so they are of one group at most.
    due: VecDeque<Bytes>,
    sources: u64,
    repairs: u64,
}

impl Sending {
    /// Bytes before a protected message.
    pub(super) const HEAD: usize = 3;

    pub(super) fn new(code: Code, counts: bool) -> Self {
        Self {
            encoder: Encoder::new(code),
            next: 0,
            counts,
            due: VecDeque::new(),
            sources: 0,
            repairs: 0,
        }
    }

    /// Sends a message after the repairs that wait, and those that are due by it; whether there was
    /// room for the message.
    pub(super) fn send(
        &mut self,
        message: &[u8],
        counts: bool,
        now: Instant,
        mut send: impl FnMut(Bytes) -> bool,
    ) -> bool {
        if counts != self.counts {
            *self = Self::new(self.encoder.code(), counts);
        }
        let sent = self.flush(&mut send) && send(self.source(message));
        if sent {
            let id = self.encoder.push(&[], message, now);
            debug_assert_eq!(id, Some(self.next), "a message fits a symbol");
            self.next = self.next.wrapping_add(1);
            self.sources += 1;
            self.make_repairs();
            self.flush(&mut send);
        }
        sent
    }

    fn source(&self, message: &[u8]) -> Bytes {
        let mut source = BytesMut::with_capacity(Self::HEAD + message.len());
        source.put_u8(SOURCE);
        source.put_u16(self.next);
        source.put_slice(message);
        source.freeze()
    }

    fn make_repairs(&mut self) {
        let kind = if self.counts { REPAIR } else { WARM_REPAIR };
        while let Some((repair, symbol)) = self.encoder.poll_repair() {
            let mut datagram = BytesMut::with_capacity(1 + Repair::LEN + symbol.len());
            datagram.put_u8(kind);
            datagram.put_slice(&repair.encode());
            datagram.put_slice(symbol);
            self.due.push_back(datagram.freeze());
        }
    }

    /// When messages that are not protected yet have waited long enough.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.encoder.poll_timeout()
    }

    /// Makes repairs of what has waited long enough.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.encoder.handle_timeout(now);
        self.make_repairs();
    }

    /// Protects what is not protected yet: nothing more comes.
    pub(super) fn close(&mut self) {
        if let Some(at) = self.encoder.poll_timeout() {
            self.handle_timeout(at);
        }
    }

    /// Whether repairs wait for room.
    pub(super) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Sends the repairs that wait; whether there was room for all of them.
    pub(super) fn flush(&mut self, send: &mut impl FnMut(Bytes) -> bool) -> bool {
        while let Some(repair) = self.due.front() {
            if !send(repair.clone()) {
                return false;
            }
            self.due.pop_front();
            self.repairs += 1;
        }
        true
    }

    /// How many of so many datagrams that wait to leave are messages, and how many are repairs: one
    /// waits like the other.
    pub(super) fn shares(&self, waiting: u64) -> [u64; 2] {
        let all = (self.sources + self.repairs).max(1);
        let messages = (waiting * self.sources).div_ceil(all);
        [messages, waiting.saturating_sub(messages)]
    }

    /// What was handed over and counts.
    pub(super) fn symbols(&self) -> Symbols {
        let [sources_sent, repairs_sent] = match self.counts {
            true => [self.sources, self.repairs],
            false => [0; 2],
        };
        Symbols {
            sources_sent,
            repairs_sent,
            ..Symbols::default()
        }
    }
}

/// What arrives is protected.
pub(super) struct Receiving {
    decoder: Decoder,
    /// Bytes of every message.
    bytes: usize,
    /// The first symbol that counts has arrived.
    counts: bool,
    recovered: u64,
    malformed: u64,
}

/// What a datagram brought.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Brought {
    /// The message that arrived, if one did.
    pub(super) arrived: Option<Head>,
    /// Messages that are here now and were not before, recovered ones too.
    pub(super) new: usize,
}

impl Brought {
    /// By a datagram that is a message, or nothing.
    pub(super) fn bare(datagram: &[u8]) -> Self {
        let arrived = Head::of(datagram);
        Self {
            arrived,
            new: usize::from(arrived.is_some()),
        }
    }
}

impl Receiving {
    /// Of messages of so many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            decoder: Decoder::new(),
            bytes,
            counts: false,
            recovered: 0,
            malformed: 0,
        }
    }

    /// Takes whatever arrived.
    pub(super) fn handle(&mut self, datagram: &[u8]) -> Brought {
        let brought = match datagram.split_first() {
            Some((&SOURCE, rest)) => self.handle_source(rest),
            Some((&REPAIR, rest)) => self.handle_repair(rest, true),
            Some((&WARM_REPAIR, rest)) => self.handle_repair(rest, false),
            Some(_) | None => None,
        };
        brought.unwrap_or_else(|| {
            self.malformed += 1;
            Brought::default()
        })
    }

    fn handle_source(&mut self, rest: &[u8]) -> Option<Brought> {
        let (id, message) = rest.split_first_chunk()?;
        let head = Head::of(message).filter(|_| message.len() == self.bytes)?;
        let arrived = Some(head);
        if !self.is_of_now(head.counts) {
            return Some(Brought { arrived, new: 1 });
        }
        let before = self.decoder.stats().late;
        let id = u16::from_be_bytes(*id);
        let recovered = self.decode(|decoder, take| decoder.handle_source(id, &[], message, take));
        let is_new = self.decoder.stats().late == before;
        Some(Brought {
            arrived,
            new: recovered + usize::from(is_new),
        })
    }

    fn handle_repair(&mut self, rest: &[u8], counts: bool) -> Option<Brought> {
        let (repair, symbol) = Repair::decode(rest).filter(|(_, it)| it.len() == self.bytes)?;
        let new = match self.is_of_now(counts) {
            true => self.decode(|decoder, take| decoder.handle_repair(&repair, symbol, take)),
            false => 0,
        };
        let arrived = None;
        Some(Brought { arrived, new })
    }

    /// Whether a symbol is of the numbers that run now. The first one that counts begins them anew.
    fn is_of_now(&mut self, counts: bool) -> bool {
        if counts && !self.counts {
            (self.decoder, self.counts) = (Decoder::new(), true);
            self.recovered = 0;
        }
        counts == self.counts
    }

    /// Decodes; how many messages came back by it, each as it was sent.
    fn decode(
        &mut self,
        decode: impl FnOnce(&mut Decoder, &mut dyn FnMut(sennit_fec::Recovered<'_>)),
    ) -> usize {
        let (mut recovered, mut broken) = (0, 0);
        decode(
            &mut self.decoder,
            &mut |found| match Head::is_message(found.bytes) {
                true => recovered += 1,
                false => broken += 1,
            },
        );
        self.recovered += recovered;
        self.malformed += broken;
        recovered as usize
    }

    /// What arrived and counts.
    pub(super) fn symbols(&self) -> Symbols {
        let stats = match self.counts {
            true => self.decoder.stats(),
            false => sennit_fec::DecoderStats::default(),
        };
        Symbols {
            sources_received: stats.sources,
            repairs_received: stats.repairs,
            recovered: if self.counts { self.recovered } else { 0 },
            arrived_later: stats.late,
            unneeded: stats.unneeded,
            failed: stats.failed,
            malformed: self.malformed + stats.malformed,
            ..Symbols::default()
        }
    }

    /// Repairs that wait for more, and have failed if nothing more comes.
    pub(super) fn unsolved(&self) -> u64 {
        match self.counts {
            true => self.decoder.unsolved() as u64,
            false => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BYTES: usize = 200;
    const MS: Duration = Duration::from_millis(1);

    fn head(counts: bool, number: u64) -> Head {
        Head {
            counts,
            number,
            sent: MS * number as u32,
        }
    }

    /// What leaves for so many messages, one each millisecond.
    fn sent(sending: &mut Sending, counts: bool, messages: u64) -> Vec<Bytes> {
        let (mut left, start) = (Vec::new(), Instant::now());
        for number in 0..messages {
            let head = head(counts, number);
            let message = head.message(BYTES);
            let sent = sending.send(&message, counts, start + head.sent, |it| {
                left.push(it);
                true
            });
            assert!(sent);
        }
        left
    }

    fn sending(code: &str) -> Sending {
        Sending::new(code.parse().expect(code), true)
    }

    #[test]
    fn whatever_a_group_may_lose_comes_back_as_it_was() {
        for (code, lost) in [("xor:10+1", &[3][..]), ("rs:10+2", &[1, 9])] {
            let left = sent(&mut sending(code), true, 10);
            let mut receiving = Receiving::new(BYTES);
            let arrives = (0..).zip(&left).filter(|(place, _)| !lost.contains(place));

            let new: usize = arrives.map(|(_, it)| receiving.handle(it).new).sum();

            let symbols = receiving.symbols();
            assert_eq!((new, symbols.recovered), (10, lost.len() as u64), "{code}");
            assert_eq!((symbols.failed, symbols.malformed), (0, 0), "{code}");
        }
    }

    #[test]
    fn a_message_that_arrives_after_its_repair_is_not_new() {
        let mut left = sent(&mut sending("xor:10+1"), true, 10);
        let late = left.remove(3);
        let mut receiving = Receiving::new(BYTES);
        for datagram in &left {
            receiving.handle(datagram);
        }

        let brought = receiving.handle(&late);

        let arrived = Some(head(true, 3));
        assert_eq!(brought, Brought { arrived, new: 0 });
        assert_eq!(receiving.symbols().arrived_later, 1);
    }

    #[test]
    fn what_the_warm_up_lost_counts_nowhere() {
        let mut sending = Sending::new("xor:5+1".parse().expect("it is one"), false);
        let mut left = sent(&mut sending, false, 9);
        left.extend(sent(&mut sending, true, 10));
        let mut receiving = Receiving::new(BYTES);

        // Of the warm-up a repair comes last, and three of its five messages never.
        let mut arrives = left.split_off(3);
        let repair = arrives.remove(2);
        for datagram in arrives.iter().chain([&repair]) {
            receiving.handle(datagram);
        }

        let symbols = receiving.symbols();
        assert_eq!(
            (symbols.sources_received, symbols.repairs_received),
            (10, 2)
        );
        assert_eq!(
            (symbols.recovered, symbols.failed, receiving.unsolved()),
            (0, 0, 0)
        );
        assert_eq!(sending.symbols().sources_sent, 10);
    }

    #[test]
    fn repairs_wait_for_room_and_no_message_overtakes_them() {
        let (mut sending, now) = (sending("rs:2+2"), Instant::now());
        let mut left = Vec::new();
        let mut send = |sending: &mut Sending, number, room: usize| {
            let message = head(true, number).message(BYTES);
            sending.send(&message, true, now, |it| {
                let fits = left.len() < room;
                left.extend(fits.then_some(it[0]));
                fits
            })
        };

        let taken = [
            send(&mut sending, 0, 9),
            send(&mut sending, 1, 3),
            send(&mut sending, 2, 3),
            send(&mut sending, 2, 9),
        ];

        assert_eq!(taken, [true, true, false, true]);
        assert_eq!(left, [SOURCE, SOURCE, REPAIR, REPAIR, SOURCE]);
        assert_eq!(
            (
                sending.symbols().sources_sent,
                sending.symbols().repairs_sent
            ),
            (3, 2)
        );
    }

    /// A client may send what it likes: repairs of windows that never were, of any length.
    #[test]
    fn hostile_symbols_are_counted_and_take_no_more_memory_than_the_window() {
        let mut receiving = Receiving::new(BYTES);
        let mut state = 1_u64;
        let mut draw = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % below
        };
        for _ in 0..20_000 {
            let kind = [SOURCE, REPAIR, WARM_REPAIR, 9][draw(4)];
            let bytes = [0, 4, BYTES, BYTES + 2, BYTES + 4, 2048][draw(6)];
            let mut datagram = vec![kind];
            datagram.extend((0..bytes).map(|_| draw(256) as u8));
            let number = (draw(3000) as u16).to_be_bytes();
            // As true as it can be: a number near the others, a message that counts, a code.
            match (kind, &mut datagram[1..]) {
                (SOURCE, [high, low, first, ..]) => {
                    [*high, *low, *first] = [number[0], number[1], 3];
                }
                (_, [code, high, low, ..]) => {
                    [*code, *high, *low] = [[0, 0x40, 0x80][draw(3)], number[0], number[1]];
                }
                _ => {}
            }
            let before = receiving.symbols().malformed;

            receiving.handle(&datagram);

            let fits = bytes == if kind == SOURCE { BYTES + 2 } else { BYTES + 4 };
            let is_counted = receiving.symbols().malformed > before;
            assert!(fits || is_counted, "{kind} {bytes}");
        }

        let symbols = receiving.symbols();
        assert!(
            symbols.sources_received > 0 && symbols.repairs_received > 0,
            "{symbols:?}"
        );
        // Each number of the window has up to four blocks of 128 bytes, and there are 64 equations.
        assert!(receiving.decoder.memory() <= 2048 * 512 + 64 * 2048);
    }
}
