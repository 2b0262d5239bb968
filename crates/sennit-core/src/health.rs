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
//! On a slow path both ends are patient by the time that a full packet takes ([`spacing`]).
//!
//! While a tunnel is idle its probes only keep the mappings of NATs, and cost money: one end asks
//! rarely ([`Keep`]) and the other answers. What other tunnels hear on the same way counts as heard
//! here ([`Company`]), so that all of them together need no more probes than one. How an idle path
//! fares is known only to within half a minute; the first packets after a silence therefore leave
//! as copies on paths that have not been heard since ([`Health::is_proven`]).

mod company;
mod falls;
mod keep;
mod spacing;
mod state;
#[cfg(test)]
mod tests;
mod timing;

use std::time::{Duration, Instant};

pub use self::{
    company::Company,
    keep::Keep,
    spacing::Arrivals,
    state::{Copies, PathState, Reason},
    timing::{PROBE_ACTIVE, PROBE_BUSY, PROBE_DOWN, SILENCE},
};
use self::{falls::Falls, spacing::Spacing, timing::Gaps};
use crate::frame::Away;

/// An idle end that hears something answers with a probe if its last one is older than this, which
/// is less than any end waits before it asks.
const ANSWER_AFTER: Duration = Duration::from_secs(9);
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

/// The health of one path.
#[derive(Clone, Debug)]
pub struct Health {
    state: PathState,
    reason: Reason,
    link_up: bool,
    /// What the peer last said: when, and whether it hears us.
    peer: Option<(Instant, bool)>,
    /// Why the peer's end is out of use, as it last said.
    peer_away: Option<Away>,
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
    /// It has to be heard since then, though nothing flows.
    asked: Option<Instant>,
    probed: Instant,
    pace: Pace,
    /// Since when something flows.
    woke: Instant,
    keep: Keep,
    company: Option<Company>,
    gaps: Gaps,
    spacing: Spacing,
}

impl Health {
    /// A path that was just validated, hence heard.
    pub fn new(now: Instant) -> Self {
        Self {
            state: PathState::Up,
            reason: Reason::Heard,
            link_up: true,
            peer: None,
            peer_away: None,
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
            asked: None,
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
            spacing: Spacing::default(),
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

    /// From when on what was sent on a path that is not used any more may be lost: since something
    /// was last heard, and not before anything flowed. Of an idle path nothing is lost.
    pub fn lost_from(&self) -> Instant {
        match self.pace {
            Pace::Idle => self.since,
            Pace::Active | Pace::Busy => self.heard.max(self.woke),
        }
    }

    /// When it was last probed.
    pub fn probed(&self) -> Instant {
        self.probed
    }

    /// Whether packets arrive here, as a [`Report`](crate::frame::Report) tells the peer.
    pub fn hears(&self) -> bool {
        match self.state {
            PathState::Up | PathState::Probation => true,
            PathState::Suspect | PathState::Down => match self.reason {
                Reason::PeerHearsNothing => true,
                Reason::PeerLinkDown | Reason::PeerPaused => self.silent.is_none(),
                Reason::Heard
                | Reason::Returned
                | Reason::Relapsed
                | Reason::Silent
                | Reason::LinkDown
                | Reason::NotValidated => false,
            },
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

    /// A packet of so many `bytes` of UDP payload arrived on the path.
    pub fn handle_heard(&mut self, bytes: usize, now: Instant) {
        self.heard_count = self.heard_count.saturating_add(1);
        let gap = now.saturating_duration_since(self.heard);
        self.spacing.insert(gap, bytes);
        if now == self.heard {
            // One more packet of the same batch.
            return;
        }
        if self.silent.take().is_some() || gap > self.patience() {
            self.heard_since = now;
            self.heard_count = 1;
        }
        if self.state == PathState::Up {
            self.gaps.insert(gap, now);
        }
        (self.heard, self.asked) = (now, None);
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

    /// The peer said whether it hears us on the path, and why its end is out of use if it is.
    pub fn handle_report(&mut self, peer_hears: bool, away: Option<Away>, now: Instant) {
        self.peer = Some((now, peer_hears));
        self.peer_away = away.filter(|_| !peer_hears);
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
    pub fn set_keep(&mut self, keep: Keep, now: Instant) {
        // Nobody has answered what was not asked so far.
        if keep.way < self.keep.way || keep.own < self.keep.own {
            self.listening_since = self.listening_since.max(now);
        }
        self.keep = keep;
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
        if self.peer_says(now) == Some(false)
            && let Some(away) = self.peer_away
        {
            return Some(match away {
                Away::LinkDown => Reason::PeerLinkDown,
                Away::Paused => Reason::PeerPaused,
            });
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
        }
        if self.state == PathState::Probation {
            self.falls.handle_relapse(now);
        }
        if matches!(self.state, PathState::Up | PathState::Probation) {
            self.state = PathState::Suspect;
            (self.suspect_since, self.lost_since) = (now, now);
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
}
