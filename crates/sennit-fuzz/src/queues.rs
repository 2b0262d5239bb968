//! `sennit-core`: the frames of a tunnel, and the structures that a peer's numbers and packets
//! drive.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use sennit_core::frame::{HEADROOM, Half, Header, Offer, Report, ThinHeader};
use sennit_core::queue::{Queued, Start, TARGET};
use sennit_core::{Dedup, FqCodel, Halves};

use crate::input::Input;

/// The private contexts: what is decoded is what is encoded.
pub fn frame(data: &[u8]) {
    match Header::decode(data) {
        Some((header, packet)) => {
            assert_eq!([&header.encode()[..], packet].concat(), data);
        }
        None => assert!(data.len() < Header::LEN),
    }
    if let Some((half, bytes)) = Half::decode(data) {
        assert_eq!(bytes.len(), usize::from(half.len));
        assert!([&half.encode()[..], bytes].concat() == data[..Half::LEN + bytes.len()]);
    }
    if let Some(offer) = Offer::decode(data) {
        let mut wire = Vec::new();
        offer.encode(&mut wire);
        assert_eq!(wire, data);
    }
    if let Some((thin, rest)) = ThinHeader::decode(data) {
        let header = thin.header(u32::from(thin.flow), 0);
        let again = ThinHeader::encode(&header, thin.odd);
        assert_eq!([&again[..], rest].concat(), data);
    }
    if let Some(report) = Report::decode_items(data) {
        let mut wire = Vec::new();
        report.encode_items(&mut wire);
        assert_eq!(Report::decode_items(&wire), Some(report));
    }
    let Some(report) = Report::decode(data) else {
        return;
    };
    assert!(report.paths.len() <= Report::MAX_PATHS);
    let mut wire = Vec::new();
    report.encode(&mut wire);
    assert_eq!(wire.len(), data.len());
    assert_eq!(Report::decode(&wire), Some(report));
}

/// Halves that may wait for their others, and how long: what [`Halves`] promises.
const MOST_HALVES: usize = 1024;
const PATIENCE: Duration = Duration::from_secs(1);

/// A half that waits for its other: flow, number, whether it is the end, its bytes, when it came.
type WaitingHalf = (u8, u32, bool, Vec<u8>, Instant);

/// Halves of packets in any order, copies and liars among them, against a plain list.
///
/// Script: per step an opcode (1): time passes by 10 ms steps (1); a flood of halves that stay
/// alone (2); or a half: flow (1), number (1), bytes (a block).
pub fn halves(data: &[u8]) {
    let mut input = Input::new(data);
    let (mut halves, mut model) = (Halves::default(), Vec::<WaitingHalf>::new());
    let mut now = Instant::now();
    while !input.is_empty() {
        let opcode = input.byte();
        match opcode % 8 {
            0 => now += Duration::from_millis(10) * u32::from(input.byte()),
            1 => {
                let count = u32::from(input.u16() % 2048);
                for seq in 0..count {
                    let (flow, seq, last) = (0xff, 1000 + seq, opcode >= 0x80);
                    one_half(&mut halves, &mut model, flow, seq, last, b"alone", now);
                }
            }
            _ => {
                let (flow, seq) = (input.byte(), input.byte().into());
                let bytes = input.block();
                let last = opcode >= 0x80;
                one_half(&mut halves, &mut model, flow, seq, last, bytes, now);
            }
        }
    }
}

/// Hands in one half; what comes out is what the list says.
fn one_half(
    halves: &mut Halves,
    model: &mut Vec<WaitingHalf>,
    flow: u8,
    seq: u32,
    last: bool,
    bytes: &[u8],
    now: Instant,
) {
    let half = Half {
        last,
        partial: false,
        len: bytes.len() as u16,
    };
    let header = Header {
        flow,
        ordered: false,
        early: Duration::ZERO,
        seq,
        sent_micros: 0,
    };
    let joined = halves.handle_half(&header, half, bytes, now);
    model.retain(|it| now - it.4 < PATIENCE);
    let other = model.iter().position(|it| (it.0, it.1) == (flow, seq));
    let expected = match other {
        None => {
            if model.len() == MOST_HALVES {
                model.remove(0);
            }
            model.push((flow, seq, last, bytes.to_vec(), now));
            None
        }
        Some(other) if model[other].2 == last => None,
        Some(other) => {
            let other = model.remove(other).3;
            let both = if last {
                [&other[..], bytes]
            } else {
                [bytes, &other[..]]
            };
            Some(both.concat())
        }
    };
    assert_eq!(joined.as_deref(), expected.as_deref());
}

/// The window that [`Dedup`] promises.
const WINDOW: u32 = 4096;

/// Sequence numbers in any order, against a window made of a set.
///
/// Script: per number a step (1): -64 to 63 from the last number, or, at the two ends of that
/// range, any number (4) or a step of up to ±32767 (2).
pub fn dedup(data: &[u8]) {
    let mut input = Input::new(data);
    let (mut dedup, mut model) = (Dedup::default(), Window::default());
    let mut seq = 0_u32;
    while !input.is_empty() {
        seq = match input.byte() {
            0x80 => input.u32(),
            0x7f => seq.wrapping_add_signed(i32::from(input.u16().cast_signed())),
            step => seq.wrapping_add_signed(i32::from(step.cast_signed()) / 2),
        };
        assert_eq!(dedup.first(seq), model.first(seq), "{seq}");
        assert!(!dedup.first(seq), "no number passes twice in a row");
    }
}

/// RFC 4303 §3.4.3 in the plainest way.
#[derive(Default)]
struct Window {
    newest: Option<u32>,
    seen: BTreeSet<u32>,
}

impl Window {
    fn first(&mut self, seq: u32) -> bool {
        let newest = *self.newest.get_or_insert(seq);
        let ahead = seq.wrapping_sub(newest);
        if ahead < u32::MAX / 2 {
            self.newest = Some(seq);
            self.seen.retain(|old| seq.wrapping_sub(*old) < WINDOW);
        } else if newest.wrapping_sub(seq) >= WINDOW {
            return false;
        }
        self.seen.insert(seq)
    }
}

/// The memory that the queue may take.
const LIMIT: usize = 8 << 20;
/// The largest inner packet of any config.
const MAX_PACKET: usize = 9000;

/// Enough to fill the memory twice; each takes its time.
const MAX_FLOODS: u8 = 8;

/// Packets in and out in any order, at any pace.
///
/// Script: per step an opcode (1), then what it needs.
pub fn fq_codel(data: &[u8]) {
    let mut input = Input::new(data);
    let (mut check, mut floods) = (Check::new(), 0);
    while !input.is_empty() {
        match input.byte() % 8 {
            0..=2 => {
                let (flow, len, ecn) = (input.byte(), input.u16(), input.byte());
                check.push(flow.into(), usize::from(len) % MAX_PACKET + 1, ecn);
            }
            3 => check.pop(u32::MAX, Start::Head),
            4 => match input.u32() {
                mask if mask.is_multiple_of(2) => check.pop(mask, Start::Head),
                mask => check.pop(mask, Start::Behind(usize::from(input.u16()) * 16)),
            },
            5 => check.now += Duration::from_micros(u64::from(input.u16()) * 10),
            6 if floods < MAX_FLOODS => {
                floods += 1;
                check.flood(input.byte(), input.byte());
            }
            _ => {
                let extra = Duration::from_millis(input.byte().into());
                check.queue.set_target(TARGET + extra, 2 * extra);
            }
        }
        check.books();
    }
    check.drain();
}

/// A queue and what should be in it.
struct Check {
    queue: FqCodel,
    /// Per flow the lengths of the packets that were not seen, by when they were pushed.
    waiting: Vec<BTreeMap<u32, usize>>,
    /// Per flow when the others were pushed, by the number they left with.
    left: Vec<BTreeMap<u32, u32>>,
    pushed: u32,
    popped: u64,
    now: Instant,
}

impl Check {
    fn new() -> Self {
        Self {
            queue: FqCodel::default(),
            waiting: vec![BTreeMap::new(); 256],
            left: vec![BTreeMap::new(); 256],
            pushed: 0,
            popped: 0,
            now: Instant::now(),
        }
    }

    /// An IPv4 packet of at least its header and a number, of one of 256 flows.
    fn push(&mut self, flow: u32, len: usize, ecn: u8) {
        let len = len.max(24);
        let mut buffer = BytesMut::zeroed(HEADROOM + len);
        let packet = &mut buffer[HEADROOM..];
        packet[..2].copy_from_slice(&[0x45, ecn & 0b11]);
        let stated = u16::try_from(len).expect("it is at most MAX_PACKET");
        packet[2..4].copy_from_slice(&stated.to_be_bytes());
        packet[20..24].copy_from_slice(&self.pushed.to_be_bytes());
        self.waiting[flow as usize].insert(self.pushed, len);
        self.pushed += 1;
        let packet = Queued {
            buffer,
            flow,
            in_order: false,
            checksum: Default::default(),
            returned: false,
        };
        self.queue.push(packet, self.now);
    }

    fn flood(&mut self, flow: u8, count: u8) {
        for _ in 0..count {
            self.push(flow.into(), MAX_PACKET, 0);
        }
    }

    /// `mask` has a bit for each of 32 groups of flows that may send.
    fn pop(&mut self, mask: u32, from: Start) {
        let may_send = |flow: u32| mask >> (flow % 32) & 1 == 1;
        let start = |packet: &Queued, _: usize| {
            if may_send(packet.flow) {
                from
            } else {
                Start::Nowhere
            }
        };
        let Some(popped) = self.queue.pop(start, self.now) else {
            assert!(
                mask != u32::MAX || self.queue.is_empty(),
                "a queue with packets gives one if all flows may send"
            );
            return;
        };
        let packet = popped.packet;
        assert!(may_send(packet.flow));
        assert!(from != Start::Head || popped.ahead == 0);
        if packet.packet_len() == 0 {
            return;
        }
        self.popped += 1;
        let bytes = packet.buffer[HEADROOM + 20..].first_chunk();
        let pushed = u32::from_be_bytes(*bytes.expect("a number was written there"));
        let flow = packet.flow as usize;
        assert_eq!(
            self.waiting[flow].remove(&pushed),
            Some(packet.packet_len())
        );
        let left = &mut self.left[flow];
        assert_eq!(left.insert(popped.seq, pushed), None, "a number came twice");
        let before = left.range(..popped.seq).next_back();
        let after = left.range(popped.seq + 1..).next();
        assert!(
            before.is_none_or(|(_, it)| *it < pushed),
            "numbered too late"
        );
        assert!(
            after.is_none_or(|(_, it)| pushed < *it),
            "numbered too early"
        );
    }

    /// What went in came out, was dropped, or is still there.
    fn books(&self) {
        let stats = self.queue.stats();
        assert_eq!(stats.enqueued, u64::from(self.pushed));
        assert!(self.queue.backlog() <= LIMIT);
        let gone = self.popped + stats.dropped + stats.overflowed;
        assert_eq!(self.queue.is_empty(), gone == stats.enqueued);
        assert_eq!(self.queue.is_empty(), self.queue.backlog() == 0);
    }

    fn drain(&mut self) {
        while !self.queue.is_empty() {
            self.pop(u32::MAX, Start::Head);
        }
        self.books();
    }
}
