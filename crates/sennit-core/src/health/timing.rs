//! When a path is to be probed, and for how long it may be silent.

use std::time::{Duration, Instant};

use super::{Health, Pace, PathState};

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
/// A slow path may be silent for so many times as long as a full packet takes, beside the longest
/// silence of late: one packet that is late, and the next one.
const SLOW_PACKETS: u32 = 2;
/// Of the longest silence of late so many times as long as a full packet takes count at most: two
/// probes that are lost.
const SLOW_GAP: u32 = 3;
/// An idle path whose probe was not answered is probed again after this, and suspected after
/// [`CONFIRMS`] such intervals.
const CONFIRM: Duration = Duration::from_secs(1);
/// Probes that an idle path may leave unanswered in a row, each [`CONFIRM`] after the one before.
const CONFIRMS: u32 = 4;
/// Longest time between probes of a path that is down: a quarter of a megabyte a day with all
/// headers.
const PROBE_LOST: Duration = Duration::from_secs(30);
/// The same if no path is up and nothing flows: whoever comes next should find one.
const PROBE_ALONE: Duration = Duration::from_secs(5);
/// The time between probes of a path that is down is this fraction of the time since it fell, or
/// its link got a carrier: its return is noticed after less than a hundredth of the time that it
/// was away.
const LOST_FRACTION: u32 = 128;

impl Health {
    /// When anything was last heard on the way.
    fn known(&self) -> Instant {
        self.company
            .map_or(self.heard, |company| company.heard.max(self.heard))
    }

    /// From when on an idle path is to be probed.
    fn keep_at(&self) -> Instant {
        let usual = (self.known() + self.keep.way).min(self.heard + self.keep.own);
        self.asked.map_or(usual, |asked| asked.min(usual))
    }

    pub(super) fn silent_at(&self) -> Instant {
        let heard = match self.pace {
            Pace::Idle => self.keep_at(),
            Pace::Active | Pace::Busy => self.heard,
        };
        heard.max(self.listening_since) + self.patience()
    }

    /// How long nothing may be heard; of an idle path, after a probe was due.
    pub(super) fn patience(&self) -> Duration {
        let active = PROBE_ACTIVE.mul_f64(SILENCE);
        let usual = match self.pace {
            Pace::Idle => CONFIRM * CONFIRMS,
            Pace::Active => active,
            Pace::Busy => (2 * self.gaps.longest() + PROBE_BUSY)
                .clamp(PROBE_BUSY.mul_f64(SILENCE_BUSY), active),
        };
        let packet = self.spacing.here(self.heard);
        usual.max(SLOW_PACKETS * packet + self.gaps.longest().min(SLOW_GAP * packet))
    }

    /// Time between probes that both ends should hear.
    pub(super) fn quick(&self) -> Duration {
        let usual = match self.pace {
            Pace::Idle | Pace::Active => PROBE_ACTIVE,
            Pace::Busy => PROBE_BUSY,
        };
        usual.max(self.spacing.probes_apart())
    }

    /// When the next probe is due.
    pub(super) fn probe_at(&self) -> Instant {
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
                let own = self.heard + self.keep.own;
                let own = self.asked.map_or(own, |asked| asked.min(own));
                self.next_probe.max(way.min(own))
            }
            (Pace::Idle, PathState::Suspect | PathState::Down) => asked
                .map_or(self.next_probe, |asked| {
                    self.next_probe.max(asked + 2 * PROBE_LOST)
                }),
        }
    }

    pub(super) fn probe_interval(&self, now: Instant) -> Duration {
        let silent = now.saturating_duration_since(self.heard) > 2 * PROBE_DOWN;
        let most = match self.pace {
            Pace::Idle if self.alone => PROBE_ALONE,
            Pace::Active | Pace::Busy if self.alone => PROBE_DOWN,
            Pace::Idle | Pace::Active | Pace::Busy => PROBE_LOST,
        };
        let lost = now.saturating_duration_since(self.lost_since) / LOST_FRACTION;
        match (self.state, self.pace) {
            (PathState::Suspect, Pace::Idle) | (PathState::Down, _) if silent => {
                let least = PROBE_DOWN.max(self.quick());
                lost.clamp(least, most.max(least))
            }
            (PathState::Up, Pace::Idle) => CONFIRM,
            (PathState::Up | PathState::Probation | PathState::Suspect | PathState::Down, _) => {
                self.quick()
            }
        }
    }
}

/// The longest time between two packets, of late.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gaps {
    pub(super) since: Instant,
    pub(super) longest: Duration,
    pub(super) before: Duration,
}

impl Gaps {
    pub(super) fn insert(&mut self, gap: Duration, now: Instant) {
        if now.saturating_duration_since(self.since) >= GAP_WINDOW {
            (self.since, self.before, self.longest) = (now, self.longest, Duration::ZERO);
        }
        self.longest = self.longest.max(gap);
    }

    fn longest(&self) -> Duration {
        self.longest.max(self.before)
    }
}
