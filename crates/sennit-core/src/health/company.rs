//! What the tunnels that share a way tell each other.

use std::time::Instant;

use super::{Health, PathState, Reason};

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

impl Health {
    /// What others know of the same way; of interest only while nothing flows.
    pub fn set_company(&mut self, company: Option<Company>, now: Instant) {
        self.company = company.filter(|_| self.asked.is_none());
        if let (Some(since), Some(company)) = (self.silent, self.company)
            && company.heard > since
            && company.verdict == Some(None)
        {
            self.silent = None;
            // It has yet to be heard itself.
            self.listening_since = now;
            self.owed = Some(now);
        }
    }

    /// The path is probed at once and has to be heard itself, until [`Self::believe`].
    pub fn ask(&mut self, now: Instant) {
        self.company = None;
        (self.asked, self.owed) = (Some(now), Some(now));
        match self.state {
            PathState::Up | PathState::Probation => {
                self.listening_since = self.listening_since.max(now);
            }
            // Who judged for it may have found that.
            PathState::Suspect | PathState::Down => _ = self.silent.get_or_insert(now),
        }
    }

    /// What others hear counts again.
    pub fn believe(&mut self) {
        self.asked = None;
    }
}
