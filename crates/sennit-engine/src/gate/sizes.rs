//! How large a packet a path carries.
//!
//! noq would take any unlucky loss of large packets for a path MTU that shrank, and then shrink the
//! packets of the whole tunnel for a minute, so its detection is switched off. It believes that all
//! paths carry packets of the tunnel's full size; what one really carries is found here, and the
//! driver gives a path nothing larger.
//!
//! A path carries packets of 1200 bytes (RFC 9000 §14), or there is none. That it carries more
//! shows when a larger packet is acknowledged: first padding of full size, and if that is lost
//! again and again while smaller packets arrive, padding of a size between. A *black hole* is where
//! larger packets, of which some arrived before, do not any more, although smaller ones that left
//! after them do. Then the path is given packets of 1200 bytes, and is tried with larger ones from
//! the beginning. To be wrong about it costs a round trip of smaller packets.

use std::{
    collections::VecDeque,
    fmt,
    time::{Duration, Instant},
};

/// Bytes that every path of QUIC carries in a UDP datagram (RFC 9000 §14).
pub const BASE: u16 = 1200;
/// A packet this much smaller than the largest is of full size too: lengths and numbers inside
/// vary.
const SLACK: u16 = 16;
/// Larger packets in a row that are missing where there is a black hole. A path that loses a third
/// of everything loses as many in a row once in half a million (docs/decisions/0002).
const MISSING: usize = 12;
/// Probes of a size that are lost before it is taken for too large.
const TRIES: usize = 3;
/// The search for a size ends when it is known this well, in bytes.
const STEP: u16 = 16;
/// A path may carry more after some time: the first search anew comes after this, and each after
/// twice the time of the one before.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The longest time between two searches for a larger size.
const AGAIN_MOST: Duration = Duration::from_secs(64);

/// How the size of a path is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SizeSource {
    /// Nothing larger has been acknowledged yet: it is what every path carries.
    #[default]
    Assumed,
    /// A packet of this size was acknowledged, or one of full size.
    Probed,
    /// The MTU of the interface allows no more.
    Interface,
    /// Larger packets arrived once and do not any more, here or, as the peer says, the other way.
    BlackHole,
}

impl fmt::Display for SizeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Assumed => "assumed",
            Self::Probed => "probed",
            Self::Interface => "interface",
            Self::BlackHole => "black hole",
        })
    }
}

/// What is known of the size of one path.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    /// The largest packet there is use for.
    full: u16,
    /// The largest that the interface lets through.
    interface: u16,
    /// The path carries this.
    carries: u16,
    /// The path does not carry this, if it is at most `ceiling`.
    fails: u16,
    source: SizeSource,
    /// The size that is tried.
    probing: Option<u16>,
    /// Probes that are not acknowledged.
    probes: VecDeque<(u64, Instant)>,
    /// Another probe may leave. The first one of a size goes alone until its fate is known, because
    /// one stands before a narrow link for as long as a dozen acknowledgements.
    may_probe: bool,
    /// The oldest packets larger than `BASE` of which none as small or smaller was acknowledged
    /// since.
    missing: VecDeque<Missing>,
    doubt: Doubt,
    /// When a size that failed is tried again, and how long it was waited for.
    again: Option<(Instant, Duration)>,
}

#[derive(Clone, Copy, Debug)]
struct Missing {
    pn: u64,
    bytes: u16,
    at: Instant,
}

/// An outage swallows small packets as well, and ends with a small one that arrives. So one of
/// them, sent after many larger ones that are missing, is not enough: another larger one must be
/// missing, sent after it, and another small one arrive that was sent after that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Doubt {
    #[default]
    None,
    /// A small packet arrived that was sent after many that are missing.
    Small,
    /// Since then, at this time, another large one was sent.
    Large(Instant),
}

impl Sizes {
    /// For packets of at most `full` bytes.
    pub(super) fn new(full: u16) -> Self {
        Self {
            full,
            interface: u16::MAX,
            carries: BASE.min(full),
            fails: u16::MAX,
            source: SizeSource::Assumed,
            probing: (full > BASE).then_some(full),
            probes: VecDeque::with_capacity(TRIES),
            may_probe: true,
            missing: VecDeque::with_capacity(MISSING),
            doubt: Doubt::None,
            again: None,
        }
    }

    /// The largest packet that the path is known to carry.
    pub(super) fn carries(&self) -> u16 {
        self.carries
    }

    pub(super) fn source(&self) -> SizeSource {
        if self.carries < self.full && self.carries >= self.ceiling() {
            SizeSource::Interface
        } else {
            self.source
        }
    }

    /// The size that should be tried.
    pub(super) fn probing(&self) -> Option<u16> {
        match self.doubt {
            Doubt::None => self.probing.filter(|_| self.may_probe),
            Doubt::Small => Some(self.carries),
            Doubt::Large(_) => None,
        }
    }

    /// Whether it is known that the path does not carry full size.
    pub(super) fn is_small(&self) -> bool {
        self.carries < self.full && (self.fails <= self.full || self.ceiling() < self.full)
    }

    /// Whether a lost packet of this size says nothing about congestion.
    pub(super) fn excuses(&self, bytes: u64) -> bool {
        let sure = match self.doubt {
            Doubt::None => self.carries,
            Doubt::Small | Doubt::Large(_) => BASE,
        };
        bytes > u64::from(sure)
    }

    /// The peer found that packets larger than [`BASE`] do not arrive here any more; so they may
    /// not there either.
    pub(super) fn doubt(&mut self) {
        if self.carries > BASE && self.probing.is_none() {
            self.shrink();
        }
    }

    /// The interface that the path leaves by sends packets of at most `bytes`.
    pub(super) fn set_interface(&mut self, bytes: u16) {
        if bytes == self.interface {
            return;
        }
        self.interface = bytes;
        self.carries = self.carries.min(self.ceiling());
        self.fails = u16::MAX;
        self.search();
    }

    fn ceiling(&self) -> u16 {
        self.full.min(self.interface).max(BASE)
    }

    pub(super) fn on_sent(&mut self, pn: u64, bytes: u16, now: Instant) {
        if bytes <= BASE {
            return;
        }
        if bytes > self.carries {
            if self.probes.len() < TRIES {
                self.probes.push_back((pn, now));
            }
            self.may_probe = (2..TRIES).contains(&self.probes.len());
            return;
        }
        if self.missing.len() < MISSING {
            let at = now;
            self.missing.push_back(Missing { pn, bytes, at });
        } else if self.doubt == Doubt::Small {
            self.doubt = Doubt::Large(now);
        }
    }

    /// A packet larger than [`BASE`] was acknowledged.
    pub(super) fn on_large_acked(&mut self, pn: u64, bytes: u64, now: Instant) {
        let bytes = u16::try_from(bytes).unwrap_or(u16::MAX);
        if bytes > self.carries {
            self.found(bytes, now);
        }
        let as_large = bytes.saturating_add(SLACK);
        let is_over = |it: &mut Missing| it.pn <= pn && it.bytes <= as_large;
        while self.missing.pop_front_if(is_over).is_some() {}
        if self.missing.front().is_some_and(|it| it.pn <= pn) {
            self.missing.retain(|it| it.pn > pn || it.bytes > as_large);
        }
        if self.missing.len() < MISSING {
            self.doubt = Doubt::None;
        }
    }

    /// A small packet arrived that left after everything up to `before`, and all that arrived with
    /// it is known.
    pub(super) fn on_small_acked(&mut self, before: Instant, now: Instant) {
        self.judge_probes(before, now);
        self.judge_missing(before);
    }

    /// A larger packet than any before was acknowledged.
    fn found(&mut self, bytes: u16, now: Instant) {
        let ceiling = self.ceiling();
        let is_full = bytes >= ceiling.saturating_sub(SLACK);
        self.carries = if is_full { ceiling } else { bytes };
        if is_full || self.source == SizeSource::Assumed {
            self.source = SizeSource::Probed;
        }
        if self.carries >= self.fails {
            self.fails = u16::MAX;
        }
        self.missing.clear();
        self.probes.clear();
        if is_full {
            (self.probing, self.again) = (None, None);
        } else {
            self.narrow(now);
        }
    }

    fn judge_probes(&mut self, before: Instant, now: Instant) {
        let overtaken = self.probes.iter().filter(|(_, at)| *at < before).count();
        self.may_probe |= overtaken == self.probes.len();
        if overtaken >= TRIES {
            self.fails = self.probing.unwrap_or(self.fails).min(self.fails);
            self.narrow(now);
        }
        if self.probing.is_none() && self.again.is_some_and(|(at, _)| now >= at) {
            self.search();
        }
    }

    fn judge_missing(&mut self, before: Instant) {
        let all = self.missing.len() >= MISSING;
        let overtaken = all && self.missing.back().is_some_and(|last| last.at < before);
        match self.doubt {
            Doubt::None if overtaken => self.doubt = Doubt::Small,
            Doubt::Large(at) if overtaken && at < before => self.shrink(),
            Doubt::None | Doubt::Small | Doubt::Large(_) => {}
        }
    }

    /// Larger packets do not arrive any more.
    fn shrink(&mut self) {
        self.carries = BASE;
        self.fails = u16::MAX;
        self.source = SizeSource::BlackHole;
        self.missing.clear();
        self.doubt = Doubt::None;
        self.again = None;
        self.search();
    }

    fn forget_probes(&mut self) {
        self.probes.clear();
        self.may_probe = true;
    }

    /// Tries the largest size.
    fn search(&mut self) {
        self.forget_probes();
        self.probing = (self.carries < self.ceiling()).then_some(self.ceiling());
    }

    /// Tries a size between what the path carries and what it does not, or has found it.
    fn narrow(&mut self, now: Instant) {
        self.forget_probes();
        let fails = self.fails.min(self.ceiling() + 1);
        let open = fails.saturating_sub(self.carries);
        if open > STEP {
            self.probing = Some(self.carries + open / 2);
            return;
        }
        self.probing = None;
        let wait = self
            .again
            .map_or(AGAIN_AFTER, |(_, wait)| 2 * wait)
            .min(AGAIN_MOST);
        self.again = Some((now + wait, wait));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: u16 = 1450;
    const SMALL: u16 = 60;
    const MS: Duration = Duration::from_millis(1);
    const JITTER: Duration = Duration::from_millis(2);

    /// A path that carries packets of up to `mtu` bytes, with a round trip of 20 ms.
    struct Path {
        sizes: Sizes,
        mtu: u16,
        pn: u64,
        now: Instant,
        under_way: VecDeque<(u64, u16, Instant)>,
    }

    impl Path {
        fn new(mtu: u16) -> Self {
            Self {
                sizes: Sizes::new(FULL),
                mtu,
                pn: 0,
                now: Instant::now(),
                under_way: VecDeque::new(),
            }
        }

        fn send(&mut self, bytes: u16, lost: bool) {
            self.sizes.on_sent(self.pn, bytes, self.now);
            if bytes <= self.mtu && !lost {
                self.under_way.push_back((self.pn, bytes, self.now));
            }
            self.pn += 1;
        }

        /// A millisecond with `full` packets as large as the path is known to carry; every 20 ms a
        /// small one and, if one is wanted, a probe. A packet is lost if `lost` says so.
        fn step(&mut self, full: usize, mut lost: impl FnMut() -> bool) {
            for _ in 0..full {
                self.send(self.sizes.carries(), lost());
            }
            if self.pn.is_multiple_of(1 + 20 * full as u64) || full == 0 {
                self.send(SMALL, lost());
                if let Some(bytes) = self.sizes.probing() {
                    self.send(bytes, lost());
                }
            }
            self.now += MS;
            let now = self.now;
            while let Some((pn, bytes, at)) =
                self.under_way.pop_front_if(|(.., at)| *at + 20 * MS <= now)
            {
                if bytes > BASE {
                    self.sizes.on_large_acked(pn, bytes.into(), now);
                } else {
                    self.sizes.on_small_acked(at - JITTER, now);
                }
            }
        }

        fn run(&mut self, steps: u32, full: usize) {
            for _ in 0..steps {
                self.step(full, || false);
            }
        }
    }

    #[test]
    fn a_path_carries_full_size_once_a_packet_of_it_arrived() {
        let mut path = Path::new(1500);
        assert_eq!(path.sizes.carries(), BASE);
        path.run(25, 0);
        assert_eq!((path.sizes.carries(), path.sizes.probing()), (FULL, None));
        assert!(!path.sizes.is_small());
    }

    /// A path with a long round trip had one with each probe of its health: 43 KB in 600 ms.
    #[test]
    fn a_probe_goes_alone_and_two_more_follow_if_it_is_lost() {
        let mut sizes = Sizes::new(FULL);
        let start = Instant::now();
        let after = |ms| start + MS * ms;
        assert_eq!(sizes.probing(), Some(FULL));
        sizes.on_sent(0, FULL, start);
        assert_eq!(sizes.probing(), None);
        sizes.on_small_acked(start - MS, after(20));
        assert_eq!(sizes.probing(), None);
        sizes.on_small_acked(after(1), after(21));
        for pn in 1..3 {
            assert_eq!(sizes.probing(), Some(FULL), "{pn}");
            sizes.on_sent(pn, FULL, after(22));
        }
        assert_eq!(sizes.probing(), None);
        sizes.on_small_acked(after(23), after(43));
        assert!(sizes.is_small());
        assert!(sizes.probing().is_some_and(|bytes| bytes < FULL));
    }

    #[test]
    fn the_size_of_a_small_path_is_found() {
        for mtu in [1200, 1252, 1372, 1425] {
            let mut path = Path::new(mtu);
            path.run(600, 0);
            let found = path.sizes.carries();
            assert!(found <= mtu && found + STEP >= mtu, "{found} of {mtu}");
            assert!(path.sizes.is_small());
        }
    }

    #[test]
    fn a_path_that_shrinks_is_found_out_and_one_that_heals_as_well() {
        let mut path = Path::new(1500);
        path.run(1000, 3);
        path.mtu = 1372;
        path.run(150, 3);
        assert_eq!(path.sizes.source(), SizeSource::BlackHole);
        path.run(2000, 3);
        assert!((1340..=1372).contains(&path.sizes.carries()));
        path.mtu = 1500;
        path.run(20_000, 3);
        assert_eq!(path.sizes.carries(), FULL);
    }

    #[test]
    fn an_outage_is_no_matter_of_size() {
        let mut path = Path::new(1500);
        path.run(1000, 3);
        for _ in 0..1000 {
            path.step(3, || true);
        }
        // At first nothing but probes is sent on a path that returns.
        path.run(100, 0);
        path.run(1000, 3);
        assert_eq!(path.sizes.carries(), FULL);
        assert_eq!(path.sizes.source(), SizeSource::Probed);
    }

    #[test]
    fn a_path_that_loses_a_third_of_everything_is_large_enough() {
        let mut path = Path::new(1500);
        path.run(100, 3);
        let mut seed = 1_u32;
        for _ in 0..300_000 {
            path.step(3, || {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 8).is_multiple_of(3)
            });
            assert_eq!(path.sizes.carries(), FULL);
        }
    }

    #[test]
    fn what_the_peer_found_is_looked_into() {
        let mut path = Path::new(1372);
        path.sizes.found(FULL, path.now);
        path.sizes.doubt();
        path.run(600, 0);
        assert!((1340..=1372).contains(&path.sizes.carries()));
        let mut path = Path::new(1500);
        path.run(100, 0);
        path.sizes.doubt();
        path.run(50, 0);
        assert_eq!((path.sizes.carries(), path.sizes.probing()), (FULL, None));
    }

    #[test]
    fn an_interface_is_not_asked_for_more_than_it_sends() {
        let mut path = Path::new(1252);
        path.sizes.set_interface(1252);
        path.run(100, 0);
        assert_eq!((path.sizes.carries(), path.sizes.probing()), (1252, None));
        assert_eq!(path.sizes.source(), SizeSource::Interface);
        path.mtu = 1500;
        path.sizes.set_interface(1500);
        path.run(100, 0);
        assert_eq!(path.sizes.carries(), FULL);
    }
}
