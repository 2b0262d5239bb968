//! Messages of a connection that are protected by error correction, with the codes of the tunnel.
//!
//! A protected message leaves behind an octet and its number, a repair behind an octet and the
//! header of the encoder. All messages of a load are of one length, and so is whatever is made of
//! them. What is longer or shorter is not decoded, so a far end decides neither how much memory the
//! decoder takes nor what counts as a message. The numbers begin anew when the warm-up is over, so
//! that what is counted is of one run of them.
//!
//! With `auto` the [`FecChooser`] of a tunnel's classes looks at the path before a message leaves,
//! and what it does not want protected leaves as it is. It remembers the warm-up. What came back it
//! hears by [`Tidings`], as in a tunnel, which the receiver sends behind an octet of their own.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::{BufMut as _, Bytes, BytesMut};
use sennit_core::frame::Tidings;
use sennit_engine::{FecChooser, FecOutlook};
use sennit_fec::{Code, Decoder, DecoderStats, Encoder, Fec, Repair};

use super::{
    super::fec::{FecChoice, Symbols},
    message::Head,
};

/// First octet of a protected message, of a repair, and of a repair of the warm-up.
const SOURCE: u8 = 5;
const REPAIR: u8 = 6;
const WARM_REPAIR: u8 = 7;
/// First octet of what the receiver tells their sender for `auto`.
const TIDINGS: u8 = 8;
/// How often it tells that, while something arrives.
const TELL_EVERY: Duration = Duration::from_millis(250);

/// What is sent is protected.
pub(super) struct Sending {
    fec: Fec,
    /// Chooses the code of `auto`.
    chooser: FecChooser,
    /// What it saw last, and what the far end told last.
    outlook: Option<FecOutlook>,
    told: Tidings,
    /// Messages that were handed over, those of the warm-up too.
    all: u64,
    /// There is one once something was protected.
    encoder: Option<Encoder>,
    /// Number of the next protected message, as the encoder will count it.
    next: u16,
    /// The warm-up is over.
    counts: bool,
    /// Repairs that wait for room. No message overtakes them, so they are of one group at most.
    due: VecDeque<Bytes>,
    /// Messages that were handed over without protection.
    bare: u64,
    sources: u64,
    repairs: u64,
}

impl Sending {
    /// Bytes before a protected message.
    const HEAD: usize = 3;

    pub(super) fn new(fec: Fec, counts: bool, now: Instant) -> Self {
        Self {
            fec,
            chooser: FecChooser::new(now),
            outlook: None,
            told: Tidings::default(),
            all: 0,
            encoder: None,
            next: 0,
            counts,
            due: VecDeque::new(),
            bare: 0,
            sources: 0,
            repairs: 0,
        }
    }

    /// The code by which the next message is protected, if it is.
    fn code(&self) -> Option<Code> {
        match self.fec {
            Fec::Off => None,
            Fec::Fixed(code) => Some(code),
            Fec::Auto => self.chooser.code(),
        }
    }

    /// Sends a message after the repairs that wait, and those that are due by it; whether there was
    /// room for the message.
    pub(super) fn send(
        &mut self,
        message: &Bytes,
        counts: bool,
        now: Instant,
        mut send: impl FnMut(Bytes) -> bool,
    ) -> bool {
        if counts != self.counts {
            self.begin_anew(counts);
        }
        if !self.flush(&mut send) {
            return false;
        }
        let sent = match self.code() {
            Some(code) => self.send_protected(code, message, now, &mut send),
            None => self.send_bare(message, &mut send),
        };
        self.all += u64::from(sent);
        sent
    }

    /// Nothing of what was sent before counts, nor is protected together with what follows.
    fn begin_anew(&mut self, counts: bool) {
        (self.encoder, self.next, self.counts) = (None, 0, counts);
        (self.bare, self.sources, self.repairs) = (0, 0, 0);
        self.due.clear();
    }

    fn send_bare(&mut self, message: &Bytes, send: &mut impl FnMut(Bytes) -> bool) -> bool {
        if let Some(encoder) = &mut self.encoder {
            encoder.forget();
        }
        let sent = send(message.clone());
        self.bare += u64::from(sent);
        sent
    }

    fn send_protected(
        &mut self,
        code: Code,
        message: &Bytes,
        now: Instant,
        send: &mut impl FnMut(Bytes) -> bool,
    ) -> bool {
        if !send(self.source(message)) {
            return false;
        }
        let encoder = self.encoder.get_or_insert_with(|| Encoder::new(code));
        encoder.set_code(code);
        encoder.set_tail(self.chooser.tail());
        encoder.set_window_time(self.chooser.window_time());
        let id = encoder.push(&[], message, now);
        debug_assert_eq!(id, Some(self.next), "a message fits a symbol");
        self.next = self.next.wrapping_add(1);
        self.sources += 1;
        self.make_repairs();
        self.flush(send);
        true
    }

    // ---- auto ----------------------------------------------------------------------------------

    /// How many messages the path is looked at for, if it is time to.
    pub(super) fn looks_at(&self, now: Instant) -> Option<u64> {
        let is_due = self.fec == Fec::Auto && self.chooser.is_due(now);
        is_due.then_some(self.all)
    }

    pub(super) fn look(&mut self, outlook: FecOutlook, now: Instant) {
        self.chooser.look(&outlook, Some(&self.told), now);
        self.outlook = Some(outlook);
    }

    /// Takes what the far end told of what came back; whether a datagram was that.
    pub(super) fn hear(&mut self, datagram: &[u8]) -> bool {
        let told = datagram.strip_prefix(&[TIDINGS]).and_then(Tidings::decode);
        let is_meant = self.fec == Fec::Auto && told.is_some();
        if let Some(told) = told.filter(|_| is_meant) {
            self.told = told;
        }
        is_meant
    }

    /// What `auto` chose last, once it has looked.
    pub(super) fn choice(&self) -> Option<FecChoice> {
        let outlook = self.outlook?;
        Some(FecChoice {
            code: self.chooser.code().map(|code| code.to_string()),
            reason: self.chooser.reason().to_string(),
            loss_ratio: outlook.loss.max(outlook.loss_at_first),
            burst: outlook.burst,
        })
    }

    // ---- repairs -------------------------------------------------------------------------------

    fn source(&self, message: &[u8]) -> Bytes {
        let mut source = BytesMut::with_capacity(Self::HEAD + message.len());
        source.put_u8(SOURCE);
        source.put_u16(self.next);
        source.put_slice(message);
        source.freeze()
    }

    fn make_repairs(&mut self) {
        let kind = if self.counts { REPAIR } else { WARM_REPAIR };
        let Some(encoder) = &mut self.encoder else {
            return;
        };
        while let Some((repair, symbol)) = encoder.poll_repair() {
            let mut datagram = BytesMut::with_capacity(1 + Repair::LEN + symbol.len());
            datagram.put_u8(kind);
            datagram.put_slice(&repair.encode());
            datagram.put_slice(symbol);
            self.due.push_back(datagram.freeze());
        }
    }

    /// When messages that are not protected yet have waited long enough.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.encoder.as_ref()?.poll_timeout()
    }

    /// Makes repairs of what has waited long enough.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if let Some(encoder) = &mut self.encoder {
            encoder.handle_timeout(now);
        }
        self.make_repairs();
    }

    /// Protects what is not protected yet: nothing more comes.
    pub(super) fn close(&mut self) {
        if let Some(at) = self.poll_timeout() {
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

    /// Bytes before a message that leaves now.
    pub(super) fn head(&self) -> usize {
        self.code().map_or(0, |_| Self::HEAD)
    }

    /// How many of so many datagrams that wait to leave are messages, and how many are repairs: one
    /// waits like the other.
    pub(super) fn shares(&self, waiting: u64) -> [u64; 2] {
        let messages = self.bare + self.sources;
        let all = (messages + self.repairs).max(1);
        let messages = (waiting * messages).div_ceil(all);
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
    /// What the decoder of the warm-up made of what arrived.
    before: DecoderStats,
    /// When the sender was told last.
    told: Option<Instant>,
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
            before: DecoderStats::default(),
            told: None,
        }
    }

    /// Takes whatever arrived.
    pub(super) fn handle(&mut self, datagram: &[u8]) -> Brought {
        let brought = match datagram.split_first() {
            Some((&SOURCE, rest)) => self.handle_source(rest),
            Some((&REPAIR, rest)) => self.handle_repair(rest, true),
            Some((&WARM_REPAIR, rest)) => self.handle_repair(rest, false),
            Some(_) | None => self.handle_bare(datagram),
        };
        brought.unwrap_or_else(|| {
            self.malformed += 1;
            Brought::default()
        })
    }

    /// Takes a message that `auto` did not want protected.
    fn handle_bare(&mut self, message: &[u8]) -> Option<Brought> {
        let head = Head::of(message).filter(|_| message.len() == self.bytes)?;
        self.is_of_now(head.counts);
        let arrived = Some(head);
        Some(Brought { arrived, new: 1 })
    }

    /// What the sender is to be told now, for its `auto`.
    pub(super) fn tidings(&mut self, now: Instant) -> Option<Bytes> {
        let waits = |told: Instant| now.saturating_duration_since(told) < TELL_EVERY;
        if self.told.is_some_and(waits) {
            return None;
        }
        self.told = Some(now);
        let (before, stats) = (self.before, self.decoder.stats());
        let both = |count: fn(&DecoderStats) -> u64| (count(&before) + count(&stats)) as u32;
        let tidings = Tidings {
            sources: both(|it| it.sources),
            repairs: both(|it| it.repairs),
            recovered: both(|it| it.recovered),
            lost: both(|it| it.lost),
            back: Vec::new(),
        };
        let mut datagram = vec![TIDINGS];
        tidings.encode(&mut datagram);
        Some(datagram.into())
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
            self.before = self.decoder.stats();
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
            false => DecoderStats::default(),
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
        Sending::new(code.parse().expect(code), true, Instant::now())
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
        let fec = "xor:5+1".parse().expect("it is one");
        let mut sending = Sending::new(fec, false, Instant::now());
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

    /// What a path that loses one of twenty is like.
    fn lossy() -> FecOutlook {
        FecOutlook {
            loss: 0.05,
            loss_at_first: 0.0,
            burst: 1.0,
            loss_counted: 0.05,
            sent: 0,
            waits: false,
            round_trip: 50 * MS,
            repairs: false,
            copies: false,
            taken: true,
        }
    }

    #[test]
    fn auto_protects_from_when_it_sees_losses_and_remembers_the_warm_up() {
        let mut sending = Sending::new(Fec::Auto, false, Instant::now());
        let kinds = |left: &[Bytes]| left.iter().map(|it| it[0]).collect::<Vec<_>>();
        let before = sent(&mut sending, false, 2);

        sending.look(lossy(), Instant::now());
        let warm = sent(&mut sending, false, 1);
        let counted = sent(&mut sending, true, 10);

        let bare = head(false, 0).message(BYTES)[0];
        assert_eq!(kinds(&before), [bare; 2]);
        assert_eq!(kinds(&warm), [SOURCE]);
        let protected = [[SOURCE].repeat(10), vec![REPAIR]].concat();
        assert_eq!(kinds(&counted), protected, "one of ten");
        let choice = sending.choice().expect("it has looked");
        assert_eq!(choice.code.as_deref(), Some("rlc:1/10"));
        let mut receiving = Receiving::new(BYTES);
        let (first, rest) = counted.split_at(4);
        let arrives = before.iter().chain(&warm).chain(first).chain(&rest[1..]);
        let new: usize = arrives.map(|it| receiving.handle(it).new).sum();
        assert_eq!((new, receiving.symbols().malformed), (13, 0));
    }

    /// Repairs without their sources bring nothing back, so a whole window of them is in vain.
    #[test]
    fn auto_ends_where_the_far_end_tells_that_little_comes_back() {
        let start = Instant::now();
        let mut sending = Sending::new(Fec::Auto, true, start);
        let mut receiving = Receiving::new(BYTES);
        for second in 0..8 {
            let now = start + 1000 * MS * second;
            sending.look(lossy(), now);
            // Of 1,000 messages in a row all are lost.
            for datagram in sent(&mut sending, true, 2000).iter().skip(1000) {
                receiving.handle(datagram);
            }
            let tidings = receiving.tidings(now).expect("a second has passed");
            assert_eq!(receiving.tidings(now), None, "and not at once again");
            assert!(sending.hear(&tidings) && !sending.hear(&tidings[1..]));
        }

        let choice = sending.choice().expect("it has looked");
        assert_eq!(choice.code, None, "{choice:?}");
        assert_eq!(choice.reason, "little of what is lost comes back by it");
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
