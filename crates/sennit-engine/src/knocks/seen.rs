//! Who knocked lately and was not looked at: two Bloom filters that take turns.
//!
//! A client sends its first packet again when it hears nothing, with the same connection ID and
//! from the same address. A flood whose sources are made up has no reason to. So who comes again is
//! most likely real. By chance one is taken for another, but less than one in fifty ([`MOST`]).

use std::{
    hash::{Hash, Hasher},
    net::SocketAddr,
    time::{Duration, Instant},
};

/// A filter is filled for so long, and asked for as long again: an edge sends a first packet again
/// within a second, and gives up after four (`INITIAL_RTT`, RFC 9002 §6.2.1).
const FILLED_FOR: Duration = Duration::from_secs(3);
/// Bits of a filter, 1 MiB.
const BITS: u32 = 1 << 23;
/// Bits for each that is remembered.
const MARKS: u32 = 2;
/// A filter with so many is full: a tenth of its bits are set.
const MOST: u32 = BITS / 20;

/// Those that were remembered lately. It takes no memory before the first.
#[derive(Debug)]
pub(super) struct Seen {
    /// What strangers cannot guess, lest they fill the places of others.
    seed: [u8; 32],
    /// The one that is filled, and the one before.
    filters: [Filter; 2],
    since: Instant,
}

#[derive(Debug, Default)]
struct Filter {
    words: Box<[u64]>,
    count: u32,
}

impl Seen {
    pub(super) fn new(seed: [u8; 32], now: Instant) -> Self {
        Self {
            seed,
            filters: Default::default(),
            since: now,
        }
    }

    /// Whether this one was here lately. It is remembered.
    pub(super) fn is_again(&mut self, from: SocketAddr, id: &[u8], now: Instant) -> bool {
        let [filled, before] = &mut self.filters;
        if now >= self.since + FILLED_FOR || filled.count >= MOST {
            std::mem::swap(filled, before);
            filled.clear();
            if now >= self.since + 2 * FILLED_FOR {
                before.clear();
            }
            self.since = now;
        }
        let mut hasher = std::hash::DefaultHasher::new();
        (self.seed, from.ip(), from.port(), id).hash(&mut hasher);
        let hash = hasher.finish();
        let [filled, before] = &mut self.filters;
        let was_before = before.has(hash);
        filled.add(hash) || was_before
    }
}

impl Filter {
    /// Which bits stand for a hash.
    fn bits(hash: u64) -> impl Iterator<Item = (usize, u64)> {
        (0..MARKS).map(move |mark| {
            let bit = (hash >> (mark * 32)) as u32 % BITS;
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }

    fn has(&self, hash: u64) -> bool {
        !self.words.is_empty() && Self::bits(hash).all(|(word, bit)| self.words[word] & bit != 0)
    }

    /// Whether it was there before.
    fn add(&mut self, hash: u64) -> bool {
        if self.words.is_empty() {
            self.words = vec![0; (BITS / 64) as usize].into();
        }
        let was_there = self.has(hash);
        for (word, bit) in Self::bits(hash) {
            self.words[word] |= bit;
        }
        self.count += u32::from(!was_there);
        was_there
    }

    fn clear(&mut self) {
        self.words.fill(0);
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(host: u32) -> SocketAddr {
        let [a, b, c, d] = host.to_be_bytes();
        SocketAddr::from(([a, b, c, d], 4433))
    }

    #[test]
    fn who_comes_again_is_known_for_some_seconds_and_then_forgotten() {
        let start = Instant::now();
        let mut seen = Seen::new([7; 32], start);
        assert!(!seen.is_again(at(1), b"an id", start));
        assert!(!seen.is_again(at(1), b"another", start));
        assert!(!seen.is_again(at(2), b"an id", start));

        assert!(seen.is_again(at(1), b"an id", start + SECOND));
        assert!(seen.is_again(at(2), b"an id", start + 4 * SECOND));
        assert!(!seen.is_again(at(3), b"an id", start + 4 * SECOND));
        assert!(!seen.is_again(at(1), b"another", start + 20 * SECOND));
    }

    #[test]
    fn of_a_flood_few_are_taken_for_others_and_it_takes_no_more_than_two_filters() {
        let start = Instant::now();
        let mut seen = Seen::new([7; 32], start);
        let flood = 1_000_000;
        let again = (0..flood)
            .filter(|host| seen.is_again(at(*host), b"id", start + SECOND * *host / 100_000))
            .count();

        assert!(again < flood as usize / 50, "{again}");
        let bytes = seen.filters.iter().map(|it| it.words.len() * 8);
        assert_eq!(bytes.sum::<usize>(), 2 << 20);
    }
}
