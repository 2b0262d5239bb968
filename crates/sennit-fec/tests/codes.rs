//! What is lost comes back, bit for bit, up to the strength of the code.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use proptest::prelude::*;
use sennit_fec::{Code, Decoder, Encoder, Fec, Repair};

/// A source of a length of its own, in two parts.
fn source(n: u32) -> (Vec<u8>, Vec<u8>) {
    let mut seed = n.wrapping_mul(0x9e37_79b1) | 1;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        seed
    };
    let len = next() % 1400;
    (
        (0..7).map(|_| next() as u8).collect(),
        (0..len).map(|_| next() as u8).collect(),
    )
}

/// Both ends, and what came back.
struct Ends {
    encoder: Encoder,
    decoder: Decoder,
    back: BTreeMap<u16, Vec<u8>>,
    now: Instant,
    repairs: u32,
}

impl Ends {
    fn new(code: Code) -> Self {
        let mut ends = Self {
            encoder: Encoder::new(code),
            decoder: Decoder::new(),
            back: BTreeMap::new(),
            now: Instant::now(),
            repairs: 0,
        };
        // What comes first is missed by nobody.
        let first = (source(0), ends.now);
        ends.encoder.push(&first.0.0, &first.0.1, first.1);
        ends.decoder
            .handle_source(0, &first.0.0, &first.0.1, |_| {});
        ends
    }

    fn send(&mut self, n: u32, lost: bool) {
        let (head, body) = source(n);
        let id = self.encoder.push(&head, &body, self.now).unwrap();
        assert_eq!(id, n as u16);
        if !lost {
            let back = &mut self.back;
            self.decoder.handle_source(id, &head, &body, |recovered| {
                back.insert(recovered.id, recovered.bytes.to_vec());
            });
        }
    }

    /// Passes on the repairs that are due, but for those that are `lost`, by their number.
    fn repair(&mut self, lost: impl Fn(u32) -> bool) {
        while let Some((repair, symbol)) = self.encoder.poll_repair() {
            self.repairs += 1;
            if lost(self.repairs - 1) {
                continue;
            }
            let wire = [&repair.encode()[..], symbol].concat();
            let (repair, symbol) = Repair::decode(&wire).unwrap();
            let back = &mut self.back;
            self.decoder.handle_repair(&repair, symbol, |recovered| {
                back.insert(recovered.id, recovered.bytes.to_vec());
            });
        }
    }

    fn numbers(&self) -> BTreeSet<u32> {
        self.back.keys().map(|id| (*id).into()).collect()
    }

    fn assert_back(&self, lost: &BTreeSet<u32>) {
        assert_eq!(self.numbers(), *lost);
        for (id, bytes) in &self.back {
            let (head, body) = source((*id).into());
            let sent = [head, body].concat();
            assert_eq!(bytes[..sent.len()], sent, "{id}");
            assert!(bytes[sent.len()..].iter().all(|byte| *byte == 0));
        }
    }
}

/// One group after the source that comes first, with these lost of its sources and repairs.
fn group(code: Code, sources: u32, lost: &BTreeSet<u32>, lost_repairs: &BTreeSet<u32>) -> Ends {
    let mut ends = Ends::new(code);
    ends.now += Duration::from_secs(1);
    ends.encoder.handle_timeout(ends.now);
    while ends.encoder.poll_repair().is_some() {}
    for n in 1..=sources {
        ends.send(n, lost.contains(&n));
    }
    ends.repair(|repair| lost_repairs.contains(&repair));
    ends
}

#[test]
fn a_sum_brings_back_any_one_of_its_group() {
    for n in 1..=10 {
        let lost = BTreeSet::from([n]);
        group(Code::Xor { sources: 10 }, 10, &lost, &BTreeSet::new()).assert_back(&lost);
    }
    let two = BTreeSet::from([2, 7]);
    let ends = group(Code::Xor { sources: 10 }, 10, &two, &BTreeSet::new());
    ends.assert_back(&BTreeSet::new());
}

/// Every pattern of losses of a group of sources and repairs, up to as many as there are repairs.
#[test]
fn reed_solomon_brings_back_whatever_its_repairs_are_enough_for() {
    let (sources, repairs) = (6, 3);
    let code = Code::Rs {
        sources: 6,
        repairs: 3,
    };
    for pattern in 0_u32..1 << (sources + repairs) {
        if pattern.count_ones() > repairs {
            continue;
        }
        let is_lost = |n: &u32| pattern >> n & 1 == 1;
        let lost = (0..sources).filter(is_lost).map(|n| n + 1).collect();
        let lost_repairs = (0..repairs).filter(|n| is_lost(&(n + sources))).collect();
        group(code, sources, &lost, &lost_repairs).assert_back(&lost);
    }
}

#[test]
fn the_largest_groups_that_can_be_asked_for_come_back() {
    for (code, sources) in [("rs:224+32", 224), ("rs:32+32", 32), ("xor:255+1", 255)] {
        let code: Code = code.parse().unwrap();
        let count = if let Code::Rs { repairs, .. } = code {
            repairs.into()
        } else {
            1
        };
        let lost = (1..=sources).rev().take(count).collect();
        group(code, sources, &lost, &BTreeSet::new()).assert_back(&lost);
    }
    assert!("rs:225+32".parse::<Code>().is_err());
}

/// The first source that was seen was taken for the first there was.
#[test]
fn a_source_comes_back_that_was_lost_before_any_arrived() {
    for code in ["xor:3+1", "rs:3+2", "rlc:1/3"] {
        let code = code.parse().unwrap();
        let (mut encoder, mut decoder) = (Encoder::new(code), Decoder::new());
        let now = Instant::now();
        let mut back = Vec::new();
        for n in 0..3 {
            let (head, body) = source(n);
            let id = encoder.push(&head, &body, now).unwrap();
            if n > 0 {
                decoder.handle_source(id, &head, &body, |_| {});
            }
        }
        while let Some((repair, symbol)) = encoder.poll_repair() {
            decoder.handle_repair(&repair, symbol, |found| back.push(found.id));
        }
        assert_eq!(back, [0], "{code}");
    }
}

/// A group is closed by time with fewer sources than it has room for.
#[test]
fn a_thin_flow_is_not_held_up() {
    let code = Code::Rs {
        sources: 10,
        repairs: 2,
    };
    let mut ends = Ends::new(code);
    ends.now += Duration::from_secs(1);
    ends.encoder.handle_timeout(ends.now);
    ends.repair(|_| false);
    ends.send(1, true);
    ends.send(2, true);
    let due = ends.encoder.poll_timeout().unwrap();
    ends.encoder.handle_timeout(due - Duration::from_nanos(1));
    assert!(ends.encoder.poll_repair().is_none());
    ends.encoder.handle_timeout(due);
    ends.repair(|_| false);
    ends.assert_back(&BTreeSet::from([1, 2]));
    assert_eq!(ends.encoder.poll_timeout(), None);
}

/// A link that takes forty milliseconds for a packet.
#[test]
fn a_slow_link_with_more_to_send_gets_as_many_repairs_as_were_asked_for() {
    for (more, repairs) in [(true, 5), (false, 40)] {
        let mut ends = Ends::new(Code::Rlc { every: 8 });
        ends.encoder.set_more(more);
        for n in 1..40 {
            ends.now += Duration::from_millis(40);
            ends.encoder.handle_timeout(ends.now);
            ends.repair(|_| false);
            ends.send(n, n == 20);
        }
        ends.now += Duration::from_millis(400);
        ends.encoder.handle_timeout(ends.now);
        ends.repair(|_| false);
        assert_eq!(ends.repairs, repairs);
        ends.assert_back(&BTreeSet::from([20]));
    }
}

/// They were too old for the window by the time that the queue was empty.
#[test]
fn what_was_shown_while_more_waited_is_covered_once_nothing_does() {
    let mut ends = Ends::new(Code::Rlc { every: 8 });
    ends.encoder.set_more(true);
    for n in 1..7 {
        ends.now += Duration::from_millis(40);
        ends.encoder.set_more(n < 6);
        ends.send(n, n == 1);
    }
    ends.encoder.handle_timeout(ends.now);
    ends.repair(|_| false);
    ends.assert_back(&BTreeSet::from([1]));
}

/// The last packet before a pause comes back by any of them.
#[test]
fn a_pause_begins_with_as_many_repairs_as_were_asked_for() {
    let start = Instant::now();
    let mut encoder = Encoder::new(Code::Rlc { every: 10 });
    encoder.set_tail(3);
    encoder.push(&[1], &[2], start).unwrap();
    let mut made = Vec::new();
    while let Some(due) = encoder.poll_timeout() {
        encoder.handle_timeout(due);
        while encoder.poll_repair().is_some() {
            made.push(due - start);
        }
    }
    assert_eq!(made, [20, 40, 60].map(Duration::from_millis));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Of a window, as many come back as repairs arrive, wherever they are lost.
    #[test]
    fn a_window_brings_back_what_its_repairs_are_enough_for(
        every in 2_u32..20,
        from in 0_u32..100,
        lost in prop::collection::btree_set(0_u32..40, 1..6),
    ) {
        let mut ends = Ends::new(Code::Rlc { every: every as u8 });
        let lost: BTreeSet<u32> = lost.into_iter().map(|n| 1 + from + n).collect();
        let last = *lost.last().unwrap() + (lost.len() as u32 + 1) * every;
        for n in 1..=last {
            ends.send(n, lost.contains(&n));
            ends.repair(|_| false);
        }
        ends.assert_back(&lost);
        prop_assert_eq!(ends.decoder.stats().recovered, lost.len() as u64);
    }

    /// Whatever is lost, what comes back is what was sent, also where numbers wrap.
    #[test]
    fn what_comes_back_is_what_was_sent(
        code in prop::sample::select(vec!["xor:3+1", "rs:10+2", "rs:5+5", "rlc:1/3", "rlc:1/8"]),
        pattern in prop::collection::vec(0_u8..4, 1..400),
    ) {
        let mut ends = Ends::new(code.parse().unwrap());
        let mut lost = BTreeSet::new();
        for (n, fate) in (1..).zip(&pattern) {
            if *fate == 0 {
                lost.insert(n);
            }
            ends.send(n, *fate == 0);
            ends.repair(|repair| pattern[repair as usize % pattern.len()] == 1);
        }
        let back = ends.numbers();
        prop_assert!(back.is_subset(&lost));
        ends.assert_back(&back);
    }

    /// Hostile repairs and sources take bounded memory and come to nothing worse.
    #[test]
    fn memory_is_bounded_whatever_arrives(
        events in prop::collection::vec((any::<[u8; 4]>(), 2_usize..2100, any::<bool>()), 1..400),
    ) {
        let mut decoder = Decoder::new();
        for (head, len, is_repair) in events {
            let payload = [&head[..], &vec![head[0]; len]].concat();
            if is_repair {
                if let Some((repair, symbol)) = Repair::decode(&payload) {
                    decoder.handle_repair(&repair, symbol, |_| {});
                }
            } else {
                let id = u16::from_be_bytes([head[1] & 7, head[2]]);
                decoder.handle_source(id, &payload[..3], &payload[3..], |_| {});
            }
        }
        prop_assert!(decoder.memory() < 8 << 20);
    }
}

#[test]
fn numbers_wrap() {
    let mut ends = Ends::new(Code::Rs {
        sources: 10,
        repairs: 2,
    });
    for n in 1..140_000 {
        ends.now += Duration::from_micros(100);
        let (head, body) = ([n as u8; 6], [(n >> 8) as u8; 20]);
        let id = ends.encoder.push(&head, &body, ends.now).unwrap();
        assert_eq!(id, n as u16);
        if n % 10 != 3 && n % 10 != 4 {
            ends.decoder.handle_source(id, &head, &body, |_| {});
        }
        ends.repair(|_| false);
        if n % 10 == 9 {
            let back: Vec<u8> = std::mem::take(&mut ends.back)
                .into_keys()
                .map(|id| id as u8)
                .collect();
            assert_eq!(
                back,
                [(n - 6) as u8, (n - 5) as u8].as_slice().to_vec(),
                "{n}"
            );
        }
    }
    assert_eq!(ends.decoder.stats().lost, 0);
}

#[test]
fn a_malformed_repair_is_refused() {
    let good = [0, 0, 10, 10, 1, 2, 3];
    assert!(Repair::decode(&good).is_some());
    assert!(Repair::decode(&good[..4]).is_none());
    for (place, byte) in [(0, 1), (0, 0x3f), (0, 0x60), (0, 0x81), (3, 0)] {
        let mut bad = good;
        bad[place] = byte;
        assert!(Repair::decode(&bad).is_none(), "{place} {byte}");
    }
    // A group too large for its row.
    assert!(Repair::decode(&[0x41, 0, 0, 255, 1, 2]).is_none());
    assert!(Repair::decode(&[&good[..4], &[0; 2049]].concat()).is_none());
}

#[test]
fn what_no_repair_brings_back_is_counted() {
    let mut ends = Ends::new(Code::Xor { sources: 10 });
    for n in 1..4000 {
        ends.send(n, n % 10 == 3 || n % 100 == 4);
        ends.repair(|_| false);
    }
    let stats = ends.decoder.stats();
    assert!(
        stats.recovered > 200 && stats.lost > 30 && stats.failed > 15,
        "{stats:?}"
    );
    assert_eq!(stats.malformed, 0);
}

#[test]
fn what_came_back_out_of_a_longer_sum_serves_in_shorter_ones() {
    let code = "rlc:1/2".parse::<Fec>().unwrap();
    let Fec::Fixed(code) = code else {
        panic!("{code:?}");
    };
    let mut ends = Ends::new(code);
    let send = |ends: &mut Ends, len: usize, millis, lost: bool| {
        ends.now += Duration::from_millis(millis);
        let id = ends.encoder.push(&[7], &vec![7; len], ends.now).unwrap();
        if !lost {
            ends.decoder.handle_source(id, &[7], &vec![7; len], |_| {});
        }
    };
    send(&mut ends, 1400, 1000, false);
    send(&mut ends, 60, 90, true);
    ends.repair(|_| false);
    // The long one has left the window.
    send(&mut ends, 70, 20, true);
    ends.now += Duration::from_secs(1);
    ends.encoder.handle_timeout(ends.now);
    ends.repair(|_| false);
    assert_eq!(ends.numbers(), [2, 3].into());
    assert_eq!(ends.decoder.stats().malformed, 0);
}
