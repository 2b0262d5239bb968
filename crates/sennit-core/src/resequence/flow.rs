//! What is held of one flow.

use std::{collections::VecDeque, time::Instant};

use crate::{Dedup, frame::Header};

/// Places that a flow keeps room for once it holds nothing.
pub(super) const ROOM: usize = 256;

/// The packets of a flow that came early.
#[derive(Debug)]
pub(super) struct Flow<T> {
    /// Number of the next packet to release; counts on beyond the 32 bits on the wire.
    pub(super) next: i64,
    /// Slot `i` is for packet `next + i`. The first is empty, the last is not.
    pub(super) held: VecDeque<Option<Held<T>>>,
    /// How many packets are held.
    count: usize,
    /// The first of them.
    pub(super) first: Option<i64>,
    /// Those that were ahead of all others when they came, and when they came, or would have in
    /// their turn: what is missing before one of them is waited for since then.
    marks: VecDeque<(i64, Instant)>,
    pub(super) seen: Dedup,
}

/// A packet that came early.
#[derive(Debug)]
pub(super) struct Held<T> {
    pub(super) packet: T,
    pub(super) bytes: usize,
    /// When the last of those before it was sent, at the latest.
    pub(super) sent_micros: u32,
}

/// The first packets that are missing, as far as it matters to how long they are waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    /// When the last of them was sent, at the latest.
    pub(super) sent_micros: u32,
    /// When the first packet arrived that follows them, or would have in its turn.
    pub(super) since: Instant,
}

impl<T> Flow<T> {
    /// Nothing has come.
    pub(super) fn new() -> Self {
        Self {
            next: Header::FIRST.into(),
            held: VecDeque::new(),
            count: 0,
            first: None,
            marks: VecDeque::new(),
            seen: Dedup::default(),
        }
    }

    /// How far a number on the wire is ahead of the next.
    pub(super) fn ahead(&self, seq: u32) -> i64 {
        i64::from(seq.wrapping_sub(self.next as u32) as i32)
    }

    /// Whether a packet that is so far ahead was sent again: it left after one that follows it.
    pub(super) fn is_repeat(&self, ahead: i64, header: &Header) -> bool {
        let newest = self.held.back().and_then(Option::as_ref);
        let left_after = |held: &Held<T>| {
            let after = header.sent_micros.wrapping_sub(held.sent_micros);
            after as i32 > 0 && ahead < self.held.len() as i64
        };
        ahead < 0 || newest.is_some_and(left_after)
    }

    /// Places of packets that are held, and of those that are missing between them.
    pub(super) fn places(&self) -> usize {
        self.held.len()
    }

    /// Whether it holds something; if not, it gives back room.
    pub(super) fn keeps(&mut self) -> bool {
        if self.held.is_empty() {
            self.held.shrink_to(ROOM);
            self.marks.shrink_to(ROOM);
        }
        !self.held.is_empty()
    }

    /// Keeps a packet that arrives `at` this time, or would in its turn.
    pub(super) fn hold(&mut self, ahead: usize, held: Held<T>, at: Instant) {
        let number = self.next + ahead as i64;
        self.first = Some(self.first.map_or(number, |first| first.min(number)));
        self.count += 1;
        if self.held.len() <= ahead {
            self.held.resize_with(ahead + 1, || None);
            self.mark(number, at);
        }
        self.held[ahead] = Some(held);
    }

    /// A packet is ahead of all others. What is missing before one that came too early for its
    /// turn is waited for since this one's at the latest.
    fn mark(&mut self, number: i64, at: Instant) {
        let later = self.marks.iter_mut().rev().take_while(|mark| mark.1 > at);
        later.for_each(|mark| mark.1 = at);
        self.marks.push_back((number, at));
    }

    /// The first gap, if something is held behind it.
    pub(super) fn gap(&self) -> Option<Gap> {
        let first = self.held.get(self.gap_len())?.as_ref()?;
        let &(_, since) = self.marks.front()?;
        Some(Gap {
            sent_micros: first.sent_micros,
            since,
        })
    }

    /// How many packets are missing before the first that is held.
    pub(super) fn gap_len(&self) -> usize {
        self.first.map_or(0, |first| (first - self.next) as usize)
    }

    /// How many of the next `ahead` packets are not held.
    pub(super) fn missing(&self, ahead: i64) -> u64 {
        let held = self.held.iter().take(ahead as usize).flatten().count();
        ahead as u64 - held as u64
    }

    /// The next packet is there, or will never be.
    pub(super) fn step(&mut self) {
        self.next += 1;
        self.held.pop_front();
    }

    /// Nothing is held, and what has this number is the next.
    pub(super) fn go_on_at(&mut self, seq: u32) {
        self.next += self.ahead(seq);
    }

    /// Releases packets as long as none is missing; returns their bytes.
    pub(super) fn release_run(&mut self, release: &mut impl FnMut(T)) -> usize {
        let mut bytes = 0;
        while let Some(Some(_)) = self.held.front() {
            if let Some(Some(held)) = self.held.pop_front() {
                bytes += held.bytes;
                release(held.packet);
                self.next += 1;
                self.count -= 1;
            }
        }
        self.forget_released();
        bytes
    }

    /// Gives up on the first gap.
    pub(super) fn skip_gap(&mut self, release: &mut impl FnMut(T)) -> usize {
        let gap = self.gap_len();
        self.held.drain(..gap);
        self.next += gap as i64;
        self.release_run(release)
    }

    /// Releases what is held among the next `ahead` packets and gives up on the others.
    pub(super) fn flush_below(&mut self, ahead: i64, release: &mut impl FnMut(T)) -> usize {
        let mut bytes = 0;
        let count = self.held.len().min(ahead as usize);
        for held in self.held.drain(..count).flatten() {
            bytes += held.bytes;
            release(held.packet);
            self.count -= 1;
        }
        self.next += ahead;
        self.forget_released();
        bytes
    }

    pub(super) fn flush(&mut self, release: &mut impl FnMut(T)) -> usize {
        self.flush_below(self.held.len() as i64, release)
    }

    /// Finds the first packet that is held once another one was.
    fn forget_released(&mut self) {
        if self.first.is_none_or(|first| first >= self.next) {
            return;
        }
        let is_released = |(number, _): &(i64, Instant)| *number < self.next;
        while self.marks.front().is_some_and(is_released) {
            self.marks.pop_front();
        }
        // As a rule all came in order, and a lone one that is far ahead is not looked for.
        self.first = if self.count == self.marks.len() {
            self.marks.front().map(|(number, _)| *number)
        } else {
            let first = self.held.iter().position(Option::is_some);
            first.map(|ahead| self.next + ahead as i64)
        };
    }
}
