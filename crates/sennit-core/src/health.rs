//! Whether a path can be trusted with packets.
//!
//! QUIC's own answer comes too late: it waits for its probe timeout, and it acknowledges all paths
//! on one, so that the death of that one looks like the death of all. So each end listens for
//! itself. Both ends probe every path at a fixed interval; an end that hears *nothing at all* on a
//! path for [`SILENCE`] intervals suspects it, stops using it, and tells the other end (a
//! [`Report`](crate::frame::Report)), because silence in one direction only is heard on one side
//! only. Probes go on, so a path that returns is noticed within two of them. Silence ends when
//! something is heard, and not because less is expected.
//!
//! A path that fell more than once of late must be steady for longer each time ([`falls`]). A link
//! that is held out drains, and then answers probes beautifully; so what counts is how it fares
//! under copies of real packets ([`Copies`]), and that its round trip does not swing.
//!
//! Probing is quick while packets flow, and quicker while many do. Quickness is catching: an end
//! that is probed quickly probes quickly too, so both ends agree on what silence means. A busy path
//! is suspected after twice the longest silence that it had lately, so one that is steady is given
//! up within a few probes and one that stutters is not.
//!
//! While a tunnel is idle its probes only keep the mappings of NATs, and cost money: one end asks
//! rarely ([`Keep`]) and the other answers. What other tunnels hear on the same way counts as heard
//! here ([`Company`]), so that all of them together need no more probes than one. How an idle path
//! fares is known only to within half a minute; the first packets after a silence therefore leave
//! as copies on paths that have not been heard since ([`Health::is_proven`]).

mod falls;

use std::{
    fmt,
    time::{Duration, Instant},
};

use self::falls::Falls;

/// Time between probes while many packets flow, of which they are a small part.
pub const PROBE_BUSY: Duration = Duration::from_millis(20);
/// Time between probes while packets flow: about 12 kbit/s per path and direction.
pub const PROBE_ACTIVE: Duration = Duration::from_millis(50);
/// Time between probes of a path that has just been lost, or that is missed.
pub const PROBE_DOWN: Duration = Duration::from_millis(250);
/// How many intervals of silence make a path suspect. Two lost probes in a row do not.
pub const SILENCE: f64 = 3.2;
/// Fewer lost probes in a row than this never make a busy path suspect.
const SILENCE_BUSY: f64 = 3.2;
/// The longest silence is that of at least this time, and of at most twice as long.
const GAP_WINDOW: Duration = Duration::from_secs(2);
/// An idle path whose probe was not answered is probed again after this, and suspected after
/// [`CONFIRMS`] such intervals.
const CONFIRM: Duration = Duration::from_secs(1);
/// Probes that an idle path may leave unanswered in a row, each [`CONFIRM`] after the one before.
const CONFIRMS: u32 = 4;
/// An idle end that hears something answers with a probe if its last one is older than this, which
/// is less than any end waits before it asks.
const ANSWER_AFTER: Duration = Duration::from_secs(9);
/// Longest time between probes of a path that is down: a quarter of a megabyte a day with all
/// headers.
const PROBE_LOST: Duration = Duration::from_secs(30);
/// The same if no path is up and nothing flows: whoever comes next should find one.
const PROBE_ALONE: Duration = Duration::from_secs(5);
/// The time between probes of a path that is down is this fraction of the time since it fell, or
/// its link got a carrier: its return is noticed after less than a hundredth of the time that it
/// was away.
const LOST_FRACTION: u32 = 128;
/// A suspect path that stays silent this long is called down.
const DOWN_AFTER: Duration = Duration::from_secs(3);
/// How long the peer's word on a path is believed while packets flow. It repeats bad news several
/// times meanwhile; that it hears the path again it may have said in vain.
const BELIEVED_FOR: Duration = Duration::from_secs(4);
/// How long the peer's word on a path is believed while nothing flows, when it repeats bad news at
/// the pace of idle probes.
const BELIEVED_IDLE: Duration = Duration::from_secs(240);
/// How often a path must be heard before it is trusted again: one packet is no sign of life, it may
/// have been held up on its way.
const TRUST_COUNT: u32 = 3;
/// A path that fell again and again carries copies of everything for the last so long of its
/// probation: many round trips, so that a queue that they make has time to show.
const LOADED_FOR: Duration = Duration::from_secs(1);

/// How often an idle path is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// A probe is due when nothing was heard on the way for this long.
    way: Duration,
    /// A probe is due when this path itself was not heard for this long, whatever others hear.
    own: Duration,
    /// What is heard is answered by a probe.
    answers: bool,
}

impl Keep {
    /// At the end that opened the path, which is the one behind a NAT. Many NATs forget a UDP
    /// mapping after 30 s (RFC 4787 §4.3 asks for two minutes).
    pub const ASKING: Self = Self {
        way: Duration::from_secs(25),
        own: Duration::from_secs(300),
        answers: true,
    };
    /// What an edge does on a path that is used only when better ones fail. A mapping may be lost
    /// there: the first probe makes another.
    pub const ASKING_RARELY: Self = Self {
        way: Duration::from_secs(50),
        ..Self::ASKING
    };
    /// At the end that answers. It asks by itself only when the other should have, so that there is
    /// one exchange and not two.
    pub const ANSWERING: Self = Self {
        way: Duration::from_secs(40),
        own: Duration::from_secs(400),
        answers: true,
    };
    /// What a hub does on a path that is used only when better ones fail.
    pub const ANSWERING_RARELY: Self = Self {
        way: Duration::from_secs(80),
        ..Self::ANSWERING
    };
    /// Towards a peer that does not probe: within the idle timeout of any QUIC stack.
    pub const ALONE: Self = Self {
        way: Duration::from_secs(10),
        own: Duration::from_secs(10),
        answers: false,
    };
    /// The longest silence of the path that keeps the connection, which must not time out.
    const FIRST: Duration = Duration::from_secs(120);

    /// How often the path is probed that carries the acknowledgements of all: they answer what is
    /// heard there.
    pub fn of_the_first(self) -> Self {
        let own = match self.own {
            own if own > Self::ASKING.own => Self::FIRST + Self::FIRST / 4,
            own => own.min(Self::FIRST),
        };
        Self {
            own,
            answers: false,
            ..self
        }
    }
}

/// What other tunnels between the same two addresses know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Company {
    /// When any of them last heard anything.
    pub heard: Instant,
    /// When any of them last sent a probe.
    pub probed: Instant,
    /// What the one that judges for all has found: a reason not to use the way, or that there is
    /// none. Absent if this path has to judge for itself.
    pub verdict: Option<Option<Reason>>,
}

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

/// Which packets a path gets copies of although it is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// None.
    None,
    /// Those that are small and come alone.
    Small,
    /// All, as far as it has room.
    All,
}

/// Why a path is in its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Packets arrive in both directions.
    Heard,
    /// Packets arrive again, but for how long?
    Returned,
    /// Packets arrive again, but the path fell again and again of late.
    Relapsed,
    /// Nothing arrives here.
    Silent,
    /// The peer says that nothing arrives there.
    PeerHearsNothing,
    /// The link has no carrier, no address, or was taken down.
    LinkDown,
    /// The peer's address is new and not validated, so QUIC sends it no data (RFC 9000 §9.3). Not
    /// found here.
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
            Self::Relapsed => "it fell again and again and has to be steady for longer",
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
    /// What the peer last said: when, and whether it hears us.
    peer: Option<(Instant, bool)>,
    heard: Instant,
    /// When it was found to be silent, until it is heard again.
    silent: Option<Instant>,
    /// Since when it has been heard without a silence.
    heard_since: Instant,
    /// How often since then.
    heard_count: u32,
    /// From when silence counts: probing was slower before.
    listening_since: Instant,
    suspect_since: Instant,
    /// Since when there was no reason to hope for it.
    lost_since: Instant,
    /// No path of the tunnel is up.
    alone: bool,
    /// Since when it is up, returning, or not to be used.
    since: Instant,
    /// The state before the present one.
    before: PathState,
    falls: Falls,
    /// No probe is due before, unless one is [`Self::owed`].
    next_probe: Instant,
    /// A probe is due since then, whatever else is.
    owed: Option<Instant>,
    probed: Instant,
    pace: Pace,
    /// Since when something flows.
    woke: Instant,
    keep: Keep,
    company: Option<Company>,
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
            peer: None,
            heard: now,
            silent: None,
            heard_since: now,
            heard_count: 0,
            listening_since: now,
            suspect_since: now,
            lost_since: now,
            alone: false,
            since: now,
            before: PathState::Up,
            falls: Falls::default(),
            next_probe: now,
            owed: Some(now),
            probed: now,
            pace: Pace::Idle,
            woke: now,
            keep: Keep::ASKING,
            company: None,
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

    /// The state before the present one.
    pub fn before(&self) -> PathState {
        self.before
    }

    /// Since when it is up, returning, or not to be used.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// When something last arrived on it.
    pub fn heard(&self) -> Instant {
        self.heard
    }

    /// When it was last probed.
    pub fn probed(&self) -> Instant {
        self.probed
    }

    /// Whether packets arrive here, as a [`Report`](crate::frame::Report) tells the peer.
    pub fn hears(&self) -> bool {
        match self.state {
            PathState::Up | PathState::Probation => true,
            PathState::Suspect | PathState::Down => self.reason == Reason::PeerHearsNothing,
        }
    }

    /// Whether the peer hears us on the path, as it said not long ago. Such a path carries what we
    /// send even if nothing arrives on it.
    pub fn is_heard_by_peer(&self, now: Instant) -> bool {
        self.link_up && self.peer_says(now) == Some(true)
    }

    /// Whether it was heard since the tunnel woke, or shortly before.
    pub fn is_proven(&self) -> bool {
        self.heard + PROBE_ACTIVE.mul_f64(SILENCE) >= self.woke
    }

    /// How often it fell of late, and for how long it must be steady to be trusted again.
    pub fn falls(&self) -> (u32, Duration) {
        self.falls.of_last()
    }

    /// Whether it fell more than once of late, and is not trusted.
    pub fn is_unsteady(&self, now: Instant) -> bool {
        self.state == PathState::Probation && self.falls.count(now) > 1
    }

    /// What it carries as copies, so that they show whether it can be trusted again.
    pub fn copies(&self, now: Instant) -> Copies {
        if !self.is_unsteady(now) {
            Copies::None
        } else if now + LOADED_FOR < self.heard_since + self.falls.probation(now) {
            Copies::Small
        } else {
            Copies::All
        }
    }

    /// Its round trip swings; a path that fell again and again has to be steady.
    pub fn handle_swing(&mut self, now: Instant) {
        if self.is_unsteady(now) {
            self.prove_anew(now);
        }
    }

    fn prove_anew(&mut self, now: Instant) {
        (self.heard_since, self.heard_count) = (now, 0);
    }

    /// Whether another path judges for this one at present.
    pub fn is_judged(&self) -> bool {
        self.judged().is_some()
    }

    /// Something arrived on the path.
    pub fn handle_heard(&mut self, now: Instant) {
        self.heard_count = self.heard_count.saturating_add(1);
        if now == self.heard {
            // One more packet of the same batch.
            return;
        }
        if self.silent.take().is_some()
            || now.saturating_duration_since(self.heard) > self.patience()
        {
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
        } else if self.is_idle() && self.keep.answers && now >= self.probed + ANSWER_AFTER {
            self.owed = Some(now);
        }
    }

    /// Something is sent: while nothing flows, a probe that would be due soon joins it, which saves
    /// turns of both ends' loops and the peer's acknowledgement a packet of its own.
    pub fn probe_in_company(&mut self, now: Instant) {
        if self.is_idle() && self.probe_at() <= now + self.keep.way / 4 {
            self.owed.get_or_insert(now);
        }
    }

    /// Whether [`Self::poll_probe`] would send a probe.
    pub fn is_probe_due(&self, now: Instant) -> bool {
        now >= self.probe_at()
    }

    /// The peer said whether it hears us on the path.
    pub fn handle_report(&mut self, peer_hears: bool, now: Instant) {
        self.peer = Some((now, peer_hears));
    }

    /// The kernel said that the link can or cannot carry packets.
    pub fn handle_link(&mut self, up: bool, now: Instant) {
        if up && !self.link_up {
            self.hope(now);
        }
        self.link_up = up;
    }

    /// No path of the tunnel is up, or some are.
    pub fn set_alone(&mut self, alone: bool, now: Instant) {
        if alone && !self.alone {
            self.hope(now);
        }
        self.alone = alone;
    }

    /// There is a reason to look whether it is back.
    fn hope(&mut self, now: Instant) {
        self.lost_since = now;
        self.next_probe = self.next_probe.min(now);
    }

    /// The path is kept at this pace while nothing flows.
    pub fn set_keep(&mut self, keep: Keep) {
        self.keep = keep;
    }

    /// What others know of the same way; of interest only while nothing flows.
    pub fn set_company(&mut self, company: Option<Company>, now: Instant) {
        self.company = company;
        if let (Some(since), Some(company)) = (self.silent, company)
            && company.heard > since
            && company.verdict == Some(None)
        {
            self.silent = None;
            // It has yet to be heard itself.
            self.listening_since = now;
            self.owed = Some(now);
        }
    }

    /// More or less flows on the tunnel than before.
    ///
    /// The peer needs one round trip `rtt` to learn of it and to be heard at a quicker pace.
    pub fn set_pace(&mut self, pace: Pace, rtt: Duration, now: Instant) {
        if pace > self.pace {
            self.listening_since = now + rtt;
            self.next_probe = now;
        }
        if self.pace == Pace::Idle && pace != Pace::Idle {
            self.woke = now;
            self.company = None;
            // Without packets there were no copies that could prove anything.
            if self.is_unsteady(now) {
                self.prove_anew(now);
            }
        }
        self.pace = pace;
    }

    /// Whether a probe is due; the caller sends it.
    pub fn poll_probe(&mut self, now: Instant) -> bool {
        let due = self.is_probe_due(now);
        if due {
            (self.probed, self.owed) = (now, None);
            self.next_probe = now + self.probe_interval(now);
        }
        due
    }

    /// Judges the path anew; true if its state changed.
    pub fn handle_timeout(&mut self, now: Instant) -> bool {
        let was = self.state;
        match self.verdict(now) {
            Some(reason) => self.distrust(reason, now),
            None if self.state != PathState::Up && !self.is_trusted(now) => {
                if self.state != PathState::Probation {
                    self.falls.handle_return(now);
                }
                self.state = PathState::Probation;
                self.reason = if self.is_unsteady(now) {
                    Reason::Relapsed
                } else {
                    Reason::Returned
                };
            }
            None => (self.state, self.reason) = (PathState::Up, Reason::Heard),
        }
        if self.state == was {
            return false;
        }
        self.before = was;
        if (was, self.state) != (PathState::Suspect, PathState::Down) {
            self.since = now;
        }
        true
    }

    /// When [`Self::poll_probe`] and, if the path is `judged`, [`Self::handle_timeout`] should be
    /// called next.
    pub fn poll_timeout(&self, judged: bool) -> Instant {
        match self.state {
            PathState::Up if judged => self.silent_at().min(self.probe_at()),
            PathState::Up | PathState::Probation | PathState::Suspect | PathState::Down => {
                self.probe_at()
            }
        }
    }

    /// What is wrong with the path, if anything.
    fn verdict(&mut self, now: Instant) -> Option<Reason> {
        if !self.link_up {
            return Some(Reason::LinkDown);
        }
        if now >= self.silent_at() {
            self.silent.get_or_insert(now);
        }
        if self.silent.is_some() {
            return Some(Reason::Silent);
        }
        match self.judged() {
            Some(verdict) => verdict,
            None if self.peer_says(now) == Some(false) => Some(Reason::PeerHearsNothing),
            None => None,
        }
    }

    /// The verdict of another path, if that one is relied on.
    fn judged(&self) -> Option<Option<Reason>> {
        let company = self.company.filter(|_| self.pace == Pace::Idle)?;
        company.verdict
    }

    /// What the peer said, if it is to be believed.
    fn peer_says(&self, now: Instant) -> Option<bool> {
        let (at, hears) = self.peer?;
        let (since, span) = match self.pace {
            Pace::Idle => (at, BELIEVED_IDLE),
            // The peer needs some time to say it again at a quicker pace.
            Pace::Active | Pace::Busy => (at.max(self.woke), BELIEVED_FOR),
        };
        (now.saturating_duration_since(since) < span).then_some(hears)
    }

    fn distrust(&mut self, reason: Reason, now: Instant) {
        if self.state == PathState::Up {
            let since = if reason == Reason::Silent {
                self.heard
            } else {
                now
            };
            self.falls.handle_fall(since, now);
            self.suspect_since = now;
        }
        if self.state == PathState::Probation {
            self.falls.handle_relapse(now);
        }
        if matches!(self.state, PathState::Up | PathState::Probation) {
            self.state = PathState::Suspect;
            self.lost_since = now;
        }
        self.reason = reason;
        let lost = now.saturating_duration_since(self.suspect_since) >= DOWN_AFTER;
        if lost || reason == Reason::LinkDown {
            self.state = PathState::Down;
        }
    }

    fn is_trusted(&self, now: Instant) -> bool {
        let proven =
            now >= self.heard_since + self.falls.probation(now) && self.heard_count >= TRUST_COUNT;
        proven || self.judged() == Some(None)
    }

    /// Whether it is up and nothing flows.
    fn is_idle(&self) -> bool {
        (self.state, self.pace) == (PathState::Up, Pace::Idle)
    }

    /// When anything was last heard on the way.
    fn known(&self) -> Instant {
        self.company
            .map_or(self.heard, |company| company.heard.max(self.heard))
    }

    /// From when on an idle path is to be probed.
    fn keep_at(&self) -> Instant {
        (self.known() + self.keep.way).min(self.heard + self.keep.own)
    }

    fn silent_at(&self) -> Instant {
        let heard = match self.pace {
            Pace::Idle => self.keep_at(),
            Pace::Active | Pace::Busy => self.heard,
        };
        heard.max(self.listening_since) + self.patience()
    }

    /// How long nothing may be heard; of an idle path, after a probe was due.
    fn patience(&self) -> Duration {
        let active = PROBE_ACTIVE.mul_f64(SILENCE);
        match self.pace {
            Pace::Idle => CONFIRM * CONFIRMS,
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

    /// When the next probe is due.
    fn probe_at(&self) -> Instant {
        if let Some(since) = self.owed {
            return since;
        }
        // Another path of the same way probes for this one as well, as long as it does.
        let company = self.company.filter(|company| company.verdict.is_some());
        let asked = company.map(|company| company.probed);
        match (self.pace, self.state) {
            (Pace::Active | Pace::Busy, _) | (Pace::Idle, PathState::Probation) => self.next_probe,
            (Pace::Idle, PathState::Up) => {
                let way = self.known() + self.keep.way;
                let way = asked.map_or(way, |asked| (way + CONFIRM / 2).max(asked + 2 * CONFIRM));
                self.next_probe.max(way.min(self.heard + self.keep.own))
            }
            (Pace::Idle, PathState::Suspect | PathState::Down) => asked
                .map_or(self.next_probe, |asked| {
                    self.next_probe.max(asked + 2 * PROBE_LOST)
                }),
        }
    }

    fn probe_interval(&self, now: Instant) -> Duration {
        let silent = now.saturating_duration_since(self.heard) > 2 * PROBE_DOWN;
        let most = match self.pace {
            Pace::Idle if self.alone => PROBE_ALONE,
            Pace::Active | Pace::Busy if self.alone => PROBE_DOWN,
            Pace::Idle | Pace::Active | Pace::Busy => PROBE_LOST,
        };
        let lost = now.saturating_duration_since(self.lost_since) / LOST_FRACTION;
        match (self.state, self.pace) {
            (PathState::Suspect, Pace::Idle) | (PathState::Down, _) if silent => {
                lost.clamp(PROBE_DOWN, most)
            }
            (PathState::Up, Pace::Idle) => CONFIRM,
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

    /// Lets two ends probe each other for so many seconds; the seconds in which each sent a probe.
    fn converse(ends: &mut [Health; 2], seconds: u32) -> [Vec<u32>; 2] {
        let start = ends[0].heard;
        let mut probes = [Vec::new(), Vec::new()];
        for ms in 0..seconds * 1000 {
            let now = start + ms * MS;
            for (here, there) in [(0, 1), (1, 0)] {
                assert!(!ends[here].handle_timeout(now), "after {ms} ms");
                if ends[here].poll_probe(now) {
                    probes[here].push(ms / 1000);
                    ends[there].handle_heard(now);
                }
            }
        }
        probes
    }

    #[test]
    fn of_two_idle_ends_one_asks_and_the_other_answers() {
        let start = Instant::now();
        for (asks, answers, every) in [
            (Keep::ASKING, Keep::ANSWERING, 25),
            (Keep::ASKING_RARELY, Keep::ANSWERING_RARELY, 50),
            // The ends need not agree on what a path is good for.
            (Keep::ASKING, Keep::ANSWERING_RARELY, 25),
            (Keep::ASKING_RARELY, Keep::ANSWERING, 40),
        ] {
            let mut ends = [Health::new(start), Health::new(start)];
            ends[0].set_keep(asks);
            ends[1].set_keep(answers);
            let expected: Vec<u32> = (0..400).step_by(every).collect();
            assert_eq!(converse(&mut ends, 400), [expected.clone(), expected]);
        }
    }

    #[test]
    fn an_idle_path_is_suspected_after_four_probes_without_an_answer() {
        let start = Instant::now();
        let mut health = Health::new(start);
        health.poll_probe(start);
        let (mut probes, mut suspect) = (Vec::new(), None);
        for ms in 1..40_000 {
            let now = start + ms * MS;
            if health.handle_timeout(now) {
                suspect = suspect.or(Some(ms));
            }
            if health.poll_probe(now) && suspect.is_none() {
                probes.push(ms / 1000);
            }
        }
        assert_eq!((probes, suspect), (vec![25, 26, 27, 28], Some(29_000)));
    }

    /// It was taken for up again as soon as less was expected of it: 11 times in 22 s.
    #[test]
    fn silence_ends_when_something_is_heard_and_not_when_less_is_expected() {
        let start = Instant::now();
        let mut health = lively(start);
        let mut changes = Vec::new();
        for ms in 1000..60_000 {
            let now = start + ms * MS;
            // Reports of the peer make the tunnel active again and again.
            let pace = if ms / 1500 % 2 == 0 {
                Pace::Active
            } else {
                Pace::Idle
            };
            health.set_pace(pace, Duration::ZERO, now);
            if health.handle_timeout(now) {
                changes.push(health.state().0);
            }
        }
        assert_eq!(changes, [PathState::Suspect, PathState::Down]);
        assert_eq!(health.since(), start + PROBE_ACTIVE * 19 + 160 * MS);
    }

    #[test]
    fn an_idle_path_that_is_down_is_probed_ever_less() {
        let start = Instant::now();
        let mut health = Health::new(start);
        let probes = |health: &mut Health, from: u32, to: u32| {
            let mut count = 0;
            for ms in (from * 1000..to * 1000).step_by(10) {
                health.handle_timeout(start + ms * MS);
                count += u32::from(health.poll_probe(start + ms * MS));
            }
            count
        };
        probes(&mut health, 0, 29);
        assert!((15..=25).contains(&probes(&mut health, 29, 34)));
        probes(&mut health, 34, 4000);
        assert!((33..=34).contains(&probes(&mut health, 4000, 5000)));

        // With nothing else to rely on it is looked for more often.
        health.set_alone(true, start + 5000 * 1000 * MS);
        probes(&mut health, 5000, 5700);
        assert_eq!(probes(&mut health, 5700, 6700), 200);
    }

    #[test]
    fn a_dead_path_beside_others_is_probed_ever_less_while_packets_flow_until_its_carrier_returns()
    {
        let start = Instant::now();
        let mut health = lively(start);
        let probes = |health: &mut Health, from: u32, to: u32| {
            let mut count = 0;
            for ms in (from * 1000..to * 1000).step_by(10) {
                let now = start + ms * MS;
                health.set_pace(Pace::Busy, Duration::ZERO, now);
                health.handle_timeout(now);
                count += u32::from(health.poll_probe(now));
            }
            count
        };
        probes(&mut health, 1, 10);
        assert!((39..=41).contains(&probes(&mut health, 10, 20)));
        probes(&mut health, 20, 4000);
        assert!((33..=34).contains(&probes(&mut health, 4000, 5000)));

        health.handle_link(false, start + 5000 * 1000 * MS);
        health.handle_link(true, start + 5001 * 1000 * MS);
        assert!((39..=41).contains(&probes(&mut health, 5001, 5011)));

        health.set_alone(true, start + 5011 * 1000 * MS);
        assert!((3990..=4010).contains(&probes(&mut health, 5011, 6011)));
    }

    #[test]
    fn what_others_hear_on_the_same_way_needs_no_probe_but_for_its_own_limit() {
        let start = Instant::now();
        let mut health = Health::new(start);
        let mut probes = Vec::new();
        for ms in 0..1_000_000 {
            let now = start + ms * MS;
            health.set_company(
                Some(Company {
                    heard: now - (ms % 25_000) * MS,
                    probed: now - (ms % 25_000) * MS,
                    verdict: Some(None),
                }),
                now,
            );
            assert!(!health.handle_timeout(now));
            if health.poll_probe(now) {
                probes.push(ms / 1000);
                health.handle_heard(now + 1 * MS);
            }
        }
        assert_eq!(probes, [0, 300, 600, 900]);
    }

    #[test]
    fn an_idle_path_fares_as_the_one_that_judges_for_it() {
        let start = Instant::now();
        let mut health = Health::new(start);
        let mut told = |verdict, seconds: u32| {
            let now = start + seconds * 1000 * MS;
            health.set_company(
                Some(Company {
                    heard: now,
                    probed: now,
                    verdict: Some(verdict),
                }),
                now,
            );
            health.handle_timeout(now);
            health.state()
        };
        assert_eq!(told(None, 1).0, PathState::Up);
        let silent = Some(Reason::Silent);
        assert_eq!(told(silent, 2), (PathState::Suspect, Reason::Silent));
        assert_eq!(told(silent, 5), (PathState::Down, Reason::Silent));
        assert_eq!(told(None, 6), (PathState::Up, Reason::Heard));
    }

    #[test]
    fn a_path_that_was_idle_is_proven_once_it_is_heard() {
        let start = Instant::now();
        let mut health = Health::new(start);
        let wake = start + 10_000 * MS;
        health.set_pace(Pace::Active, Duration::ZERO, wake);
        assert!(!health.is_proven());
        health.handle_heard(wake + 20 * MS);
        assert!(health.is_proven());
    }

    #[test]
    fn a_path_may_carry_what_is_sent_though_nothing_arrives_on_it() {
        let start = Instant::now();
        let mut health = lively(start);
        let now = start + 2000 * MS;
        health.handle_timeout(now);
        assert_eq!(health.state().0, PathState::Suspect);
        assert!(!health.is_heard_by_peer(now));
        health.handle_report(true, now);
        assert!(health.is_heard_by_peer(now + 1000 * MS));
        assert!(!health.is_heard_by_peer(now + BELIEVED_FOR));
        health.handle_report(false, now);
        assert!(!health.is_heard_by_peer(now));
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
        let end = now + BELIEVED_FOR;
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
        health.handle_link(false, start);
        assert!(health.handle_timeout(start + PROBE_ACTIVE * 19));
        assert_eq!(health.state(), (PathState::Down, Reason::LinkDown));
    }

    #[test]
    fn probes_are_quick_when_active_and_rare_when_idle() {
        let start = Instant::now();
        let mut health = Health::new(start);
        let mut probes = |pace, from: u32, to: u32| {
            health.set_pace(pace, Duration::ZERO, start + MS * from);
            let mut count = 0;
            for ms in from..to {
                let now = start + MS * ms;
                if health.poll_probe(now) {
                    health.handle_heard(now);
                    count += 1;
                }
            }
            count
        };
        assert_eq!(probes(Pace::Idle, 0, 60_000), 3);
        assert_eq!(probes(Pace::Active, 60_000, 61_000), 20);
        assert_eq!(probes(Pace::Busy, 61_000, 62_000), 50);
        assert_eq!(probes(Pace::Idle, 62_000, 86_000), 0);
    }
}
