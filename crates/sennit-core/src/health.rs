//! Whether a path can be trusted with packets.
//!
//! QUIC's own answer comes too late: it waits for its probe timeout, and it acknowledges all paths
//! on one, so that the death of that one looks like the death of all. So each end listens for
//! itself. Both ends probe every path at a fixed interval; an end that hears *nothing at all* on a
//! path for [`SILENCE`] intervals suspects it, stops using it, and tells the other end (a
//! [`Report`](crate::frame::Report)), because silence in one direction only is heard on one side
//! only. Probes go on, so a path that returns is noticed within two of them.
//!
//! Probing is quick while packets flow, quicker while many do, and slow when the tunnel is idle.
//! Quickness is catching: an end that is probed quickly probes quickly too, so both ends agree on what
//! silence means. A busy path is suspected after twice the longest silence that it had lately, so one
//! that is steady is given up within a few probes and one that stutters is not.

use std::{
    fmt,
    time::{Duration, Instant},
};

/// Time between probes while many packets flow, of which they are a small part.
pub const PROBE_BUSY: Duration = Duration::from_millis(20);
/// Time between probes while packets flow: about 12 kbit/s per path and direction.
pub const PROBE_ACTIVE: Duration = Duration::from_millis(50);
/// Time between probes of a path that has been silent for long.
pub const PROBE_DOWN: Duration = Duration::from_millis(250);
/// Time between probes while nothing flows: keeps NAT bindings and the path alive. Nothing waits for what
/// they find, because the first packet makes probing quick.
pub const PROBE_IDLE: Duration = Duration::from_secs(2);
/// How many intervals of silence make a path suspect. Two lost probes in a row do not.
pub const SILENCE: f64 = 3.2;
/// So many probes may always get lost in a row on a busy path.
const SILENCE_BUSY: f64 = 3.2;
/// The longest silence is that of at least this time, and of at most twice as long.
const GAP_WINDOW: Duration = Duration::from_secs(2);
/// A suspect path that stays silent this long is called down.
const DOWN_AFTER: Duration = Duration::from_secs(3);
/// What the peer said last of a path that it does not hear holds for so long. It says it again while that is
/// so; but of a path that it hears again it may have said so in vain.
const DEAF_FOR: Duration = Duration::from_secs(4);
/// How long a path must be heard again before it is trusted: its probation. Each time that it fell
/// lately doubles it, so that a link that comes and goes is soon left alone,
const TRUST_AFTER: Duration = Duration::from_millis(120);
const MOST_PROBATION: Duration = Duration::from_secs(4);
/// until the last fall was this long ago;
const FALLS_FORGOTTEN: Duration = Duration::from_secs(20);
/// and how often it must be heard: one packet is no sign of life, it may have been held up on its way.
const TRUST_COUNT: u32 = 3;

/// How much flows in the tunnel, here or at the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pace {
    /// Nothing.
    #[default]
    Idle,
    /// Something.
    Active,
    /// So much that probes do not count.
    Busy,
}

/// How a path is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathState {
    /// It carries packets.
    Up,
    /// It is heard again, but is not trusted yet; packets go elsewhere.
    Probation,
    /// Nothing was heard of late; packets go elsewhere.
    Suspect,
    /// Nothing was heard for seconds, or its link is gone.
    Down,
}

/// Why a path is in its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Packets arrive in both directions.
    Heard,
    /// Packets arrive again, but for how long?
    Returned,
    /// Nothing arrives here.
    Silent,
    /// The peer says that nothing arrives there.
    PeerHearsNothing,
    /// The link has no carrier, no address, or was taken down.
    LinkDown,
    /// The peer's address is new and not validated, so QUIC sends it no data (RFC 9000 §9.3). Not found here.
    NotValidated,
}

impl fmt::Display for PathState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Up => "up",
            Self::Probation => "probation",
            Self::Suspect => "suspect",
            Self::Down => "down",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Heard => "packets arrive in both directions",
            Self::Returned => "it came back just now and has to prove itself",
            Self::Silent => "nothing arrives from the peer",
            Self::PeerHearsNothing => "the peer receives nothing",
            Self::LinkDown => "the link is down",
            Self::NotValidated => "its new address is not validated yet",
        })
    }
}

/// The health of one path.
#[derive(Clone, Debug)]
pub struct Health {
    state: PathState,
    reason: Reason,
    link_up: bool,
    /// When the peer last said that it hears nothing, unless it hears since.
    peer_deaf: Option<Instant>,
    heard: Instant,
    /// Since when it has been heard without a silence.
    heard_since: Instant,
    /// How often since then.
    heard_count: u32,
    /// From when silence counts: probing was slower before.
    listening_since: Instant,
    suspect_since: Instant,
    /// How often it fell, of late.
    falls: u32,
    next_probe: Instant,
    pace: Pace,
    gaps: Gaps,
}

/// The longest time between two packets, of late.
#[derive(Clone, Copy, Debug)]
struct Gaps {
    since: Instant,
    longest: Duration,
    before: Duration,
}

impl Health {
    /// A path that was just validated, hence heard.
    pub fn new(now: Instant) -> Self {
        Self {
            state: PathState::Up,
            reason: Reason::Heard,
            link_up: true,
            peer_deaf: None,
            heard: now,
            heard_since: now,
            heard_count: 0,
            listening_since: now,
            suspect_since: now,
            falls: 0,
            next_probe: now,
            pace: Pace::Idle,
            gaps: Gaps {
                since: now,
                longest: Duration::ZERO,
                before: Duration::ZERO,
            },
        }
    }

    /// The path's state and why it is so.
    pub fn state(&self) -> (PathState, Reason) {
        (self.state, self.reason)
    }

    /// Whether packets arrive here, as a [`Report`](crate::frame::Report) tells the peer.
    pub fn hears(&self) -> bool {
        match self.state {
            PathState::Up | PathState::Probation => true,
            PathState::Suspect | PathState::Down => self.reason == Reason::PeerHearsNothing,
        }
    }

    /// Something arrived on the path.
    pub fn handle_heard(&mut self, now: Instant) {
        self.heard_count = self.heard_count.saturating_add(1);
        if now == self.heard {
            // One more packet of the same batch.
            return;
        }
        if now.saturating_duration_since(self.heard) > self.patience() {
            self.heard_since = now;
            self.heard_count = 1;
        }
        if self.state == PathState::Up {
            let gap = now.saturating_duration_since(self.heard);
            self.gaps.insert(gap, now);
        }
        self.heard = now;
        // A path that returns is probed quickly, so that the peer hears often enough to trust it.
        if self.state != PathState::Up {
            self.next_probe = self.next_probe.min(now + self.quick());
        }
        self.probe_in_company(now);
    }

    /// Something is sent or has arrived: while nothing flows, a probe that would be due soon joins it, which
    /// saves turns of both ends' loops and the peer's acknowledgement a packet of its own.
    pub fn probe_in_company(&mut self, now: Instant) {
        let idle = (self.state, self.pace) == (PathState::Up, Pace::Idle);
        if idle && self.next_probe <= now + PROBE_IDLE / 2 {
            self.next_probe = self.next_probe.min(now);
        }
    }

    /// Whether [`Self::poll_probe`] would send a probe.
    pub fn is_probe_due(&self, now: Instant) -> bool {
        now >= self.next_probe
    }

    /// The peer said whether it hears us on the path.
    pub fn handle_report(&mut self, peer_hears: bool, now: Instant) {
        self.peer_deaf = (!peer_hears).then_some(now);
    }

    /// The kernel said that the link can or cannot carry packets.
    pub fn handle_link(&mut self, up: bool) {
        self.link_up = up;
    }

    /// More or less flows on the tunnel than before.
    ///
    /// The peer needs one round trip `rtt` to learn of it and to be heard at a quicker pace.
    pub fn set_pace(&mut self, pace: Pace, rtt: Duration, now: Instant) {
        if pace > self.pace {
            self.listening_since = now + rtt;
            self.next_probe = now;
        }
        self.pace = pace;
    }

    /// Whether a probe is due; the caller sends it.
    pub fn poll_probe(&mut self, now: Instant) -> bool {
        let due = self.is_probe_due(now);
        if due {
            self.next_probe = now + self.probe_interval(now);
        }
        due
    }

    /// Judges the path anew; true if its state changed.
    pub fn handle_timeout(&mut self, now: Instant) -> bool {
        let before = self.state;
        match self.verdict(now) {
            Some(reason) => self.distrust(reason, now),
            None if self.state != PathState::Up && !self.is_trusted(now) => {
                (self.state, self.reason) = (PathState::Probation, Reason::Returned);
            }
            None => (self.state, self.reason) = (PathState::Up, Reason::Heard),
        }
        self.state != before
    }

    /// When [`Self::poll_probe`] and, if the path is `judged`, [`Self::handle_timeout`] should be
    /// called next.
    pub fn poll_timeout(&self, judged: bool) -> Instant {
        match self.state {
            PathState::Up if judged => self.silent_at().min(self.next_probe),
            PathState::Up | PathState::Probation | PathState::Suspect | PathState::Down => {
                self.next_probe
            }
        }
    }

    /// What is wrong with the path, if anything.
    fn verdict(&self, now: Instant) -> Option<Reason> {
        if !self.link_up {
            Some(Reason::LinkDown)
        } else if now >= self.silent_at() {
            Some(Reason::Silent)
        } else if self.is_peer_deaf(now) {
            Some(Reason::PeerHearsNothing)
        } else {
            None
        }
    }

    fn is_peer_deaf(&self, now: Instant) -> bool {
        self.peer_deaf
            .is_some_and(|at| now.saturating_duration_since(at) < DEAF_FOR)
    }

    fn distrust(&mut self, reason: Reason, now: Instant) {
        if self.state == PathState::Up {
            self.falls = if self.fell_lately(now) {
                self.falls + 1
            } else {
                1
            };
            self.suspect_since = now;
        }
        if matches!(self.state, PathState::Up | PathState::Probation) {
            self.state = PathState::Suspect;
        }
        self.reason = reason;
        let lost = now.saturating_duration_since(self.suspect_since) >= DOWN_AFTER;
        if lost || reason == Reason::LinkDown {
            self.state = PathState::Down;
        }
    }

    fn is_trusted(&self, now: Instant) -> bool {
        now >= self.heard_since + self.probation(now) && self.heard_count >= TRUST_COUNT
    }

    fn probation(&self, now: Instant) -> Duration {
        if !self.fell_lately(now) {
            return TRUST_AFTER;
        }
        let doubled = 1_u32.checked_shl(self.falls.saturating_sub(1));
        TRUST_AFTER
            .saturating_mul(doubled.unwrap_or(u32::MAX))
            .min(MOST_PROBATION)
    }

    fn fell_lately(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.suspect_since) < FALLS_FORGOTTEN
    }

    fn silent_at(&self) -> Instant {
        self.heard.max(self.listening_since) + self.patience()
    }

    fn patience(&self) -> Duration {
        let active = PROBE_ACTIVE.mul_f64(SILENCE);
        match self.pace {
            Pace::Idle => PROBE_IDLE.mul_f64(SILENCE),
            Pace::Active => active,
            Pace::Busy => (2 * self.gaps.longest() + PROBE_BUSY)
                .clamp(PROBE_BUSY.mul_f64(SILENCE_BUSY), active),
        }
    }

    /// Time between probes that both ends should hear.
    fn quick(&self) -> Duration {
        match self.pace {
            Pace::Idle | Pace::Active => PROBE_ACTIVE,
            Pace::Busy => PROBE_BUSY,
        }
    }

    fn probe_interval(&self, now: Instant) -> Duration {
        let silent = now.saturating_duration_since(self.heard) > 2 * PROBE_DOWN;
        match (self.state, self.pace) {
            (PathState::Down, _) if silent => PROBE_DOWN,
            (PathState::Up, Pace::Idle) => PROBE_IDLE,
            (PathState::Up | PathState::Probation | PathState::Suspect | PathState::Down, _) => {
                self.quick()
            }
        }
    }
}

impl Gaps {
    fn insert(&mut self, gap: Duration, now: Instant) {
        if now.saturating_duration_since(self.since) >= GAP_WINDOW {
            (self.since, self.before, self.longest) = (now, self.longest, Duration::ZERO);
        }
        self.longest = self.longest.max(gap);
    }

    fn longest(&self) -> Duration {
        self.longest.max(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// An active path that was heard every probe interval for one second.
    fn lively(start: Instant) -> Health {
        let mut health = Health::new(start);
        health.set_pace(Pace::Active, Duration::ZERO, start);
        for step in 0..20 {
            health.handle_heard(start + PROBE_ACTIVE * step);
        }
        health
    }

    #[test]
    fn silence_makes_an_active_path_suspect_within_160_ms() {
        let start = Instant::now();
        let mut health = lively(start);
        let last = start + PROBE_ACTIVE * 19;
        assert!(!health.handle_timeout(last + 159 * MS));
        assert!(health.handle_timeout(last + 160 * MS));
        assert_eq!(health.state(), (PathState::Suspect, Reason::Silent));
        assert!(!health.hears());
    }

    #[test]
    fn a_busy_path_is_suspected_by_how_steady_it_was() {
        let start = Instant::now();
        let suspected_after = |gap: u32| {
            let mut health = Health::new(start);
            health.set_pace(Pace::Busy, Duration::ZERO, start);
            for step in 0..500 {
                health.handle_heard(start + step * gap * MS);
            }
            let last = start + 499 * gap * MS;
            (1..).find(|&ms| health.handle_timeout(last + ms * MS))
        };
        assert_eq!(suspected_after(1), Some(64));
        assert_eq!(suspected_after(40), Some(100));
        assert_eq!(suspected_after(100), Some(160));
    }

    #[test]
    fn an_idle_path_may_be_silent_for_three_probes() {
        let start = Instant::now();
        let mut health = Health::new(start);
        assert!(!health.handle_timeout(start + 6300 * MS));
        assert!(health.handle_timeout(start + 6400 * MS));
    }

    #[test]
    fn two_idle_ends_probe_together() {
        let start = Instant::now();
        let mut ends = [Health::new(start), Health::new(start)];
        let mut probes = [Vec::new(), Vec::new()];
        ends[1].next_probe = start + 1600 * MS;
        for ms in 0..10_000 {
            let now = start + ms * MS;
            for (here, there) in [(0, 1), (1, 0)] {
                if ends[here].poll_probe(now) {
                    probes[here].push(ms);
                    ends[there].handle_heard(now);
                }
            }
        }
        let every_other =
            |first: u32| -> Vec<u32> { (0..5).map(|number| first + 2000 * number).collect() };
        assert_eq!(probes[1], every_other(1600));
        // The first one left before that; all others with the next turn after the other end's.
        assert_eq!(probes[0][0], 0);
        assert_eq!(probes[0][1..], every_other(1601));
    }

    #[test]
    fn waking_up_gives_the_peer_time_to_wake_up_too() {
        let start = Instant::now();
        let mut health = Health::new(start);
        let wake = start + 900 * MS;
        health.set_pace(Pace::Active, 30 * MS, wake);
        assert!(health.poll_probe(wake));
        assert!(!health.handle_timeout(wake + 189 * MS));
        assert!(health.handle_timeout(wake + 190 * MS));
    }

    #[test]
    fn a_path_that_returns_is_trusted_after_a_few_probes() {
        let start = Instant::now();
        let mut health = lively(start);
        let back = start + 10_000 * MS;
        health.handle_timeout(back);
        health.handle_timeout(back + 1 * MS);
        health.handle_heard(back + 2 * MS);
        assert!(health.handle_timeout(back + 3 * MS));
        assert_eq!(health.state(), (PathState::Probation, Reason::Returned));
        assert!(health.hears());
        health.handle_heard(back + 52 * MS);
        health.handle_heard(back + 102 * MS);
        assert!(health.handle_timeout(back + 123 * MS));
        assert_eq!(health.state(), (PathState::Up, Reason::Heard));
    }

    #[test]
    fn a_single_packet_is_no_sign_of_life() {
        let start = Instant::now();
        let mut health = lively(start);
        let back = start + 10_000 * MS;
        health.handle_timeout(back);
        health.handle_heard(back);
        assert!(health.handle_timeout(back + 150 * MS));
        assert_eq!(health.state().0, PathState::Probation);
        assert!(health.handle_timeout(back + 161 * MS));
        assert_eq!(health.state().0, PathState::Suspect);
    }

    #[test]
    fn a_path_that_comes_and_goes_is_trusted_later_each_time() {
        let start = Instant::now();
        let mut health = Health::new(start);
        health.set_pace(Pace::Active, Duration::ZERO, start);
        // Two seconds of silence, then two with packets every 50 ms.
        let mut trusted_after = |cycle: u32| {
            let back = start + cycle * 4000 * MS + 2000 * MS;
            let mut trusted = None;
            health.handle_timeout(back - 1 * MS);
            for ms in (0..2000).step_by(50) {
                health.handle_heard(back + ms * MS);
                health.handle_timeout(back + ms * MS);
                if health.state().0 == PathState::Up {
                    trusted = trusted.or(Some(ms));
                }
            }
            trusted
        };
        let times: Vec<_> = (0..6).map(&mut trusted_after).collect();
        let expected = [
            Some(150),
            Some(250),
            Some(500),
            Some(1000),
            Some(1950),
            None,
        ];
        assert_eq!(times, expected);
        // After a quiet while it counts as new.
        assert_eq!(trusted_after(30), Some(150));
    }

    #[test]
    fn what_the_peer_does_not_hear_is_not_used_but_still_heard_here() {
        let start = Instant::now();
        let mut health = lively(start);
        let now = start + PROBE_ACTIVE * 19;
        health.handle_report(false, now);
        assert!(health.handle_timeout(now));
        assert_eq!(
            health.state(),
            (PathState::Suspect, Reason::PeerHearsNothing)
        );
        assert!(health.hears());
        health.handle_report(true, now);
        assert!(health.handle_timeout(now));
    }

    #[test]
    fn what_the_peer_does_not_repeat_is_not_believed_for_good() {
        let start = Instant::now();
        let mut health = lively(start);
        let mut now = start + PROBE_ACTIVE * 19;
        health.handle_report(false, now);
        let end = now + DEAF_FOR;
        while now < end {
            health.handle_timeout(now);
            assert_eq!(health.state().1, Reason::PeerHearsNothing);
            now += PROBE_ACTIVE;
            health.handle_heard(now);
        }
        health.handle_timeout(now);
        assert_eq!(health.state(), (PathState::Up, Reason::Heard));
    }

    #[test]
    fn a_link_without_carrier_is_down_at_once() {
        let start = Instant::now();
        let mut health = lively(start);
        health.handle_link(false);
        assert!(health.handle_timeout(start + PROBE_ACTIVE * 19));
        assert_eq!(health.state(), (PathState::Down, Reason::LinkDown));
    }

    #[test]
    fn probes_are_quick_when_active_and_slow_when_idle() {
        let start = Instant::now();
        let mut health = Health::new(start);
        let probes = |health: &mut Health, from: u32, to: u32| {
            (from..to)
                .filter(|&ms| health.poll_probe(start + MS * ms))
                .count()
        };
        assert_eq!(probes(&mut health, 0, 6000), 3);
        health.set_pace(Pace::Active, Duration::ZERO, start + 6000 * MS);
        assert_eq!(probes(&mut health, 6000, 7000), 20);
    }
}
