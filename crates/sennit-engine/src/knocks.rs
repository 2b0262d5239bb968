//! How many strangers' packets are looked into.
//!
//! Before anything is known of the sender of an Initial, it costs the keys of its connection ID, a
//! decryption, and an answer that carries a sealed token or a handshake (RFC 9001 §5.2). A flood of
//! them would take the processor from tunnels. So in a time only so many are looked into, and the
//! others are dropped by their first bytes. Packets with short headers, which are those of tunnels,
//! are never counted.
//!
//! What comes first, what shows a token, what goes on with a handshake and what is of another
//! version have allowances of their own: a flood of one kind leaves the others alone. Who answers a
//! Retry shows a token.
//!
//! What asks for a connection is 1200 bytes long, or it is dropped unseen (RFC 9000 §14.1). So are
//! packets of other versions (§6.1): noq answers each with the versions that there are, and no
//! answer is longer than what it answers.
//!
//! Of a kind whose allowance is used up, who comes again from the same address with the same
//! connection ID has another one ([`Seen`]). So a client that sends its first packet again gets in
//! beside a flood whose sources are all different. A flood that sends everything twice takes that
//! away, but has to be twice as large.

mod seen;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use self::seen::Seen;
use crate::cid::{self, Issuer};

/// Time after which one more of a kind is looked into. One costs about 15 µs of a processor.
const EVERY: Duration = Duration::from_micros(200);
/// A fleet that comes back after a restart of its hub knocks all at once.
const AT_ONCE: u32 = 4096;
/// A client fills the datagram that asks for a connection up to this size (RFC 9000 §14.1).
const LEAST: usize = 1200;
/// The log hears of a flood again after this.
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// What somebody has to say who is not known by a short header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It goes on with a handshake, at an ID that we might have issued.
    Continuing,
    /// It shows a token.
    Proven,
    /// Anything else with a long header of version 1.
    First,
    /// It is of another version, and is told which there are.
    Foreign,
    /// It was turned away a short time ago.
    Again,
}

/// Allowances of one worker.
#[derive(Debug)]
pub(crate) struct Knocks {
    issuer: Issuer,
    /// When all of a kind that were looked into are paid for.
    paid_at: [Instant; 5],
    /// Whom it turned away lately.
    seen: Seen,
    /// How many were not looked into, and when the log was told.
    turned_away: u64,
    told: Option<Instant>,
}

impl Knocks {
    /// `seed` is nobody else's to know.
    pub(crate) fn new(issuer: Issuer, seed: [u8; 32], now: Instant) -> Self {
        Self {
            issuer,
            paid_at: [now; 5],
            seen: Seen::new(seed, now),
            turned_away: 0,
            told: None,
        }
    }

    /// Whether to look into a datagram.
    pub(crate) fn admits(&mut self, datagram: &[u8], from: SocketAddr, now: Instant) -> bool {
        // A short header, and nothing else is worth a look.
        if datagram.first().is_none_or(|first| first & 0x80 == 0) {
            return true;
        }
        let Some((kind, id)) = kind(datagram, self.issuer) else {
            return true;
        };
        if datagram.len() < LEAST {
            return false;
        }
        if self.pays(kind, now) {
            return true;
        }
        if self.seen.is_again(from, id, now) && self.pays(Kind::Again, now) {
            return true;
        }
        self.turn_away(kind, now);
        false
    }

    /// Whether one more of a kind is within its allowance.
    fn pays(&mut self, kind: Kind, now: Instant) -> bool {
        let paid_at = &mut self.paid_at[kind as usize];
        let at = (*paid_at).max(now) + EVERY;
        let pays = at - now <= EVERY * AT_ONCE;
        if pays {
            *paid_at = at;
        }
        pays
    }

    /// How many were not looked into.
    pub(crate) fn turned_away(&self) -> u64 {
        self.turned_away
    }

    #[cold]
    fn turn_away(&mut self, kind: Kind, now: Instant) {
        self.turned_away += 1;
        if self.told.is_none_or(|told| now >= told + TELL_AGAIN) {
            self.told = Some(now);
            tracing::warn!(
                ?kind,
                turned_away = self.turned_away,
                "more strangers knock than are looked at: a flood, or many edges that come back"
            );
        }
    }
}

/// The kind of a datagram with a long header, and the ID that it is for; `None` if it can only be
/// of a connection that exists.
fn kind(datagram: &[u8], issuer: Issuer) -> Option<(Kind, &[u8])> {
    const VERSION_1: [u8; 4] = [0, 0, 0, 1];
    let (first, rest) = datagram.split_first()?;
    let (version, rest) = rest.split_first_chunk::<4>()?;
    // Of version 1 these are 0-RTT, Handshake and Retry (RFC 9000 §17.2): without a connection they
    // are dropped at once.
    if *version == VERSION_1 && (first >> 4) & 3 != 0 {
        return None;
    }
    let (destination, rest) = split_by_length(rest)?;
    let (_, rest) = split_by_length(rest)?;
    if *version != VERSION_1 {
        return Some((Kind::Foreign, destination));
    }
    if rest.first().is_some_and(|length| *length != 0) {
        return Some((Kind::Proven, destination));
    }
    let kind = match cid::may_be_of(issuer, destination) {
        true => Kind::Continuing,
        false => Kind::First,
    };
    Some((kind, destination))
}

fn split_by_length(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUER: Issuer = Issuer { hub: 7, worker: 3 };

    fn initial(destination: &[u8], token: &[u8]) -> Vec<u8> {
        let mut datagram = vec![0xc0, 0, 0, 0, 1, destination.len() as u8];
        datagram.extend(destination);
        datagram.extend([4, 9, 9, 9, 9, token.len() as u8]);
        datagram.extend(token);
        datagram.resize(1200, 0x55);
        datagram
    }

    /// A packet of a version that nobody knows.
    fn foreign() -> Vec<u8> {
        let mut datagram = vec![0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 1, 9, 1, 9];
        datagram.resize(1200, 0x55);
        datagram
    }

    #[test]
    fn who_says_what_is_seen_by_the_first_bytes() {
        let ours = [5, 0, 7, 3, 1, 2, 3, 4];
        let made_up = [5, 0, 7, 3, 1, 2, 3, 4, 5, 6, 7, 8];
        for (datagram, expected) in [
            (initial(&made_up, b""), Some(Kind::First)),
            (initial(&ours, b""), Some(Kind::Continuing)),
            (initial(&ours, b"token"), Some(Kind::Proven)),
            (vec![0xc0, 0, 0, 0, 1, 200, 0], None),
            (vec![0xe0, 0, 0, 0, 1, 0, 0, 0], None),
            (vec![0xe0, 1, 2, 3, 4, 0, 0, 0], Some(Kind::Foreign)),
        ] {
            let said = kind(&datagram, ISSUER).map(|(kind, _)| kind);
            assert_eq!(said, expected, "{:x?}", &datagram[..7]);
        }
    }

    /// A host that nobody else is.
    fn host(number: u32) -> SocketAddr {
        SocketAddr::from((number.to_be_bytes(), 4433))
    }

    const SECOND: Duration = Duration::from_secs(1);

    /// How many of 100,000 first packets in a second are looked into.
    fn floods(knocks: &mut Knocks, from: Instant, hosts: std::ops::Range<u32>) -> usize {
        let first = initial(&[1; 12], b"");
        let at = |n| from + SECOND * (n - hosts.start) / 100_000;
        let looked_into = |n: &u32| knocks.admits(&first, host(*n), at(*n));
        hosts.clone().filter(looked_into).count()
    }

    #[test]
    fn a_flood_of_one_kind_is_dropped_but_for_so_many_and_others_pass() {
        let start = Instant::now();
        let mut knocks = Knocks::new(ISSUER, [7; 32], start);
        let first = initial(&[1; 12], b"");

        let at_first = floods(&mut knocks, start, 0..100_000);
        let later = floods(&mut knocks, start + SECOND, 100_000..200_000);

        let each_second = SECOND.div_duration_f64(EVERY) as usize;
        let few = each_second..each_second + each_second / 5;
        assert!(few.contains(&later), "{later}");
        assert!(at_first - AT_ONCE as usize <= few.end, "{at_first}");
        let now = start + SECOND * 2 - Duration::from_micros(10);
        let from = host(u32::MAX);
        assert!(!knocks.admits(&first, from, now));
        assert!(knocks.admits(&initial(&[1; 12], b"token"), from, now));
        assert!(knocks.admits(&initial(&[5, 0, 7, 3, 1, 2, 3, 4], b""), from, now));
        assert!(knocks.admits(&foreign(), from, now), "another version");
        assert!(knocks.admits(&[0x40; 1200], from, now), "a tunnel's");
        assert!(knocks.admits(&first, host(u32::MAX - 1), now + SECOND));
    }

    /// noq answered seven bytes of another version with 27.
    #[test]
    fn what_asks_in_less_than_1200_bytes_is_dropped() {
        let start = Instant::now();
        let mut knocks = Knocks::new(ISSUER, [7; 32], start);
        let ours = [5, 0, 7, 3, 1, 2, 3, 4];
        let firsts = [(&[1; 12][..], &b""[..]), (&[1; 12], b"token"), (&ours, b"")];
        let firsts = firsts.map(|(destination, token)| initial(destination, token));
        for whole in firsts.into_iter().chain([foreign()]) {
            for len in [40, 600, 1199] {
                assert!(!knocks.admits(&whole[..len], host(1), start), "{len}");
            }
            assert!(knocks.admits(&whole, host(1), start));
        }
        assert!(!knocks.admits(&[0xc0, 1, 2, 3, 4, 0, 0], host(1), start));
        // What goes on with a handshake, or is of a tunnel, is as long as it is.
        for short in [&[0xe0, 0, 0, 0, 1, 0, 0, 9][..], &[0x40; 30]] {
            assert!(knocks.admits(short, host(1), start), "{short:x?}");
        }
        assert_eq!(knocks.turned_away(), 0);
    }

    #[test]
    fn who_comes_again_in_a_flood_is_looked_into_and_repeated_floods_are_limited_too() {
        let start = Instant::now();
        let mut knocks = Knocks::new(ISSUER, [7; 32], start);
        floods(&mut knocks, start, 0..100_000);
        let (first, from) = (initial(&[9; 12], b""), host(u32::MAX));
        let now = start + SECOND;
        floods(&mut knocks, now, 100_000..200_000);
        let now = now + SECOND - Duration::from_micros(10);
        assert!(!knocks.admits(&first, from, now));
        assert!(knocks.admits(&first, from, now));
        assert!(
            !knocks.admits(&initial(&[8; 12], b""), from, now),
            "another"
        );

        let again = floods(&mut knocks, now, 100_000..200_000);
        let each_second = SECOND.div_duration_f64(EVERY) as usize;
        let most = AT_ONCE as usize + 2 * each_second + 1;
        assert!((each_second..=most).contains(&again), "{again}");
    }
}
