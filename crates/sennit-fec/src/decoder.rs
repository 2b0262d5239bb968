//! Solves for the sources that are missing.

use crate::{
    MOST_BYTES, MOST_COVERED, Repair,
    rows::{COLUMNS, Row, Rows},
    symbol::Symbol,
    unwrap,
};

/// Newest sources that are kept to be subtracted from repairs, and after which one that is missing
/// is lost: 100 ms at 240 Mbit/s, which is by how much a repair over another link may be late.
pub(crate) const HISTORY: usize = 2048;

/// The full number of the encoder's first source, which is 0 on the wire. No number is below zero
/// then, whichever is seen first.
const FIRST: u64 = 1 << 16;

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecoderStats {
    /// Sources that arrived.
    pub sources: u64,
    /// Repairs that arrived.
    pub repairs: u64,
    /// Sources that repairs brought back before they arrived, if they ever did.
    pub recovered: u64,
    /// Sources that arrived after they had been recovered.
    pub late: u64,
    /// Equations that were given up unsolved: what they cover is lost, or came another way.
    pub failed: u64,
    /// Sources that neither arrived nor were recovered before [`HISTORY`] others had followed.
    pub lost: u64,
    /// Repairs that came when everything they cover was there or given up.
    pub unneeded: u64,
    /// Repairs that cannot be, because a source is longer than they are, and sources that are too
    /// long.
    pub malformed: u64,
}

/// A source that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered<'a> {
    /// Its number on the wire.
    pub id: u16,
    /// Both parts, as they were shown to the encoder, and perhaps zeros.
    pub bytes: &'a [u8],
}

/// The receiving side of what one [`Encoder`](crate::Encoder) sends.
#[derive(Debug)]
pub struct Decoder {
    /// The sources `newest - HISTORY + 1..=newest`, at its number modulo
    /// [`HISTORY`]; empty until one came.
    slots: Vec<Slot>,
    /// The greatest number that was seen; `None` before the first.
    newest: Option<u64>,
    rows: Rows,
    stats: DecoderStats,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    state: State,
    symbol: Symbol,
}

/// What is known of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Whether it was sent at all is not known, so it is not missed.
    #[default]
    Before,
    Missing,
    Arrived,
    /// It is here without having arrived.
    Recovered,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// Nothing has arrived.
    pub fn new() -> Self {
        Self {
            slots: Vec::new(),
            newest: None,
            rows: Rows::default(),
            stats: DecoderStats::default(),
        }
    }

    /// What happened so far.
    pub fn stats(&self) -> DecoderStats {
        self.stats
    }

    /// Equations that are kept, as they lack more than they bring.
    pub fn unsolved(&self) -> usize {
        self.rows.len()
    }

    /// Takes a source in two parts, as the encoder did; `recovered` gets what can be solved by it.
    pub fn handle_source(
        &mut self,
        id: u16,
        head: &[u8],
        body: &[u8],
        recovered: impl FnMut(Recovered<'_>),
    ) {
        if head.len() + body.len() > MOST_BYTES {
            self.stats.malformed += 1;
            return;
        }
        let id = self.full(id);
        self.stats.sources += 1;
        if !self.advance_to(id) {
            return;
        }
        let slot = &mut self.slots[index(id)];
        match slot.state {
            State::Before | State::Missing => slot.state = State::Arrived,
            State::Arrived => return,
            State::Recovered => {
                slot.state = State::Arrived;
                self.stats.late += 1;
                return;
            }
        }
        slot.symbol.set(head, body);
        if !self.rows.is_empty() {
            self.rows.substitute(id, &self.slots[index(id)].symbol);
            self.solve(recovered);
        }
    }

    /// Takes a repair; `recovered` gets what can be solved by it.
    pub fn handle_repair(
        &mut self,
        repair: &Repair,
        symbol: &[u8],
        recovered: impl FnMut(Recovered<'_>),
    ) {
        self.stats.repairs += 1;
        let last = self.full(repair.last);
        let first = last + 1 - u64::from(repair.covered);
        // Nothing is known of sources so old but that they are lost.
        if !self.advance_to(last) || first < self.oldest() {
            self.stats.unneeded += 1;
            return;
        }
        let mut unknowns = Vec::new();
        for place in 0..repair.covered {
            let id = first + u64::from(place);
            let slot = &self.slots[index(id)];
            match slot.state {
                State::Before => {
                    self.stats.unneeded += 1;
                    return;
                }
                State::Missing => unknowns.push((id, repair.key.factor(place))),
                State::Arrived | State::Recovered if slot.symbol.len() > symbol.len() => {
                    self.stats.malformed += 1;
                    return;
                }
                State::Arrived | State::Recovered => {}
            }
        }
        // As a rule: nothing is worked out then.
        if unknowns.is_empty() {
            self.stats.unneeded += 1;
            return;
        }
        let sum = self.without_known(repair, first, symbol);
        let row = Row::of(&unknowns, sum);
        self.stats.failed += self.rows.insert(row) as u64;
        self.solve(recovered);
    }

    /// What is left of a repair without the sources that are known.
    fn without_known(&self, repair: &Repair, first: u64, symbol: &[u8]) -> Symbol {
        let slot = |place: usize| &self.slots[index(first + place as u64)];
        let mut factors = [0; MOST_COVERED];
        let factors = &mut factors[..repair.covered.into()];
        for (place, factor) in factors.iter_mut().enumerate() {
            if slot(place).state != State::Missing {
                *factor = repair.key.factor(place as u8);
            }
        }
        let mut sum = Symbol::of(symbol);
        sum.add_products(factors, |place| &slot(place).symbol);
        sum
    }

    /// Memory that sources and equations take, in bytes.
    pub fn memory(&self) -> usize {
        let slots = self.slots.iter().map(|slot| slot.symbol.capacity());
        slots.sum::<usize>() + self.rows.len() * (COLUMNS + MOST_BYTES)
    }

    fn full(&self, wire: u16) -> u64 {
        let near = self.newest.unwrap_or(FIRST + u64::from(wire));
        unwrap(wire, near)
    }

    fn oldest(&self) -> u64 {
        let newest = self.newest.unwrap_or_default();
        (newest + 1).saturating_sub(HISTORY as u64)
    }

    /// Makes room for numbers up to `id`; false if it is too old to matter.
    fn advance_to(&mut self, id: u64) -> bool {
        if self.slots.is_empty() {
            self.slots.resize_with(HISTORY, Slot::default);
        }
        let Some(newest) = self.newest else {
            self.begin_at(id);
            return true;
        };
        if id <= newest {
            return id >= self.oldest();
        }
        if id - newest > HISTORY as u64 {
            self.start_over();
            return self.advance_to(id);
        }
        for id in newest + 1..=id {
            let slot = &mut self.slots[index(id)];
            self.stats.lost += u64::from(slot.state == State::Missing);
            slot.state = State::Missing;
        }
        self.newest = Some(id);
        self.stats.failed += self.rows.give_up_below(self.oldest()) as u64;
        true
    }

    /// Nothing was seen yet. All sources from the first on are missed if this may be one of them,
    /// and what was sent before it otherwise is not.
    fn begin_at(&mut self, id: u64) {
        let oldest = if id - FIRST < HISTORY as u64 {
            FIRST
        } else {
            id
        };
        for slot in &mut self.slots {
            slot.state = State::Before;
        }
        for id in oldest..=id {
            self.slots[index(id)].state = State::Missing;
        }
        self.newest = Some(id);
    }

    /// Numbers jump: what is missing before is lost.
    fn start_over(&mut self) {
        let missing = |slot: &&Slot| slot.state == State::Missing;
        self.stats.lost += self.slots.iter().filter(missing).count() as u64;
        self.stats.failed += self.rows.len() as u64;
        self.rows.clear();
        self.newest = None;
    }

    /// Hands on whatever is solved.
    fn solve(&mut self, mut recovered: impl FnMut(Recovered<'_>)) {
        while let Some((id, symbol)) = self.rows.take_solved() {
            let bytes = symbol.bytes();
            let slot = &mut self.slots[index(id)];
            // Zeros behind it are of a longer source that was in the same sum, and later sums may
            // be shorter.
            let len = bytes
                .iter()
                .rposition(|&byte| byte != 0)
                .map_or(0, |last| last + 1);
            slot.symbol.set(&bytes[..len], &[]);
            slot.state = State::Recovered;
            self.stats.recovered += 1;
            recovered(Recovered {
                id: id as u16,
                bytes,
            });
        }
    }
}

fn index(id: u64) -> usize {
    (id % HISTORY as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Key;

    /// What the sum of two sources brings back, of which the second was lost, when so many more
    /// have been sent meanwhile and the last of them has arrived.
    fn back_after(more: u16, first: u16) -> Vec<(u16, Vec<u8>)> {
        let lost = first.wrapping_add(1);
        let mut decoder = Decoder::new();
        decoder.handle_source(first, b"", b"a", |_| {});
        if more > 0 {
            decoder.handle_source(lost.wrapping_add(more), b"", b"c", |_| {});
        }
        let repair = Repair {
            key: Key::Sum,
            last: lost,
            covered: 2,
        };
        let mut back = Vec::new();
        decoder.handle_repair(&repair, &[b'a' ^ b'b'], |it| {
            back.push((it.id, it.bytes.to_vec()));
        });
        back
    }

    #[test]
    fn a_repair_brings_back_what_is_among_the_newest_and_nothing_older_wherever_numbers_wrap() {
        for first in [0, u16::MAX - 1000, u16::MAX - 1, u16::MAX] {
            for more in 0..HISTORY as u16 + 3 {
                let is_kept = usize::from(more) + 2 <= HISTORY;
                let lost = (first.wrapping_add(1), b"b".to_vec());
                let expected: Vec<_> = is_kept.then_some(lost).into_iter().collect();
                assert_eq!(back_after(more, first), expected, "{more} after {first}");
            }
        }
    }

    /// Between sums of the same sources comes a chain of sums that overlap by one each: equations
    /// with all unknowns of the chain would be added to each other.
    #[test]
    fn a_hostile_repair_makes_no_more_additions_than_it_covers_sources_each_as_long_as_that() {
        let mut decoder = Decoder::new();
        for id in [0, HISTORY as u16 - 48] {
            decoder.handle_source(id, b"", b"a", |_| {});
        }
        let mut repairs = 0;
        let mut handle = |decoder: &mut Decoder, last, covered| {
            let repair = Repair {
                key: Key::Random(last),
                last,
                covered,
            };
            decoder.handle_repair(&repair, b"b", |_| {});
            repairs += 1;
        };
        for last in 199..255 {
            handle(&mut decoder, last, last as u8);
        }
        for link in 1..8 {
            handle(&mut decoder, 255 + 254 * link, 255);
        }
        for round in 0..400 {
            let last = 150 + round % 100;
            handle(&mut decoder, last, last as u8);
        }

        assert!(decoder.rows.additions <= repairs * MOST_COVERED);
        assert!(decoder.rows.widest() < MOST_COVERED as u64);
        assert!(decoder.unsolved() > 50, "{:?}", decoder.stats());
    }

    /// In the place of a source that is missing is still the one of [`HISTORY`] numbers before.
    #[test]
    fn what_comes_back_is_no_longer_than_its_repair() {
        for covered in [2, 20] {
            let mut decoder = Decoder::new();
            decoder.handle_source(0, b"", &[7; 1400], |_| {});
            let last = HISTORY as u16;
            for id in last - 20..last {
                decoder.handle_source(id, b"", b"a", |_| {});
            }
            let repair = Repair {
                key: Key::Sum,
                last,
                covered,
            };
            let mut back = Vec::new();
            // Of an odd number of the same, one is left of their sum.
            decoder.handle_repair(&repair, &[b'a' ^ b'b'], |it| {
                back.push((it.id, it.bytes.to_vec()));
            });
            assert_eq!(back, [(last, b"b".to_vec())], "{covered}");
        }
    }
}
