//! Seeing to it that the host keeps what this edge has added to it.
//!
//! Whatever else configures networks on a host may take away addresses, routes and rules that it
//! does not know, as systemd-networkd does when it starts. What is missing is put back at once, and
//! ever less often if it is taken again and again: two programs that undo each other's work are not
//! to keep a host busy.

use std::time::{Duration, Instant};

use sennit_linux::{Footprint, Lost};

use super::{causes::explain, ground::Host};
use crate::journal::Journal;

/// Between two looks at the host. Who takes rules away takes one after the other.
const LEAST_PAUSE: Duration = Duration::from_millis(100);
/// It is doubled with each loss, up to this.
const MOST_PAUSE: Duration = Duration::from_secs(10);
/// Without a loss for so long, the next one is put back at once again.
const CALM: Duration = Duration::from_secs(60);
/// What was refused is tried again after this.
const AGAIN: Duration = Duration::from_secs(5);
/// What is lost within this time is told of as one.
const GATHERED: Duration = Duration::from_secs(1);
/// The journal hears of it so often at most: it is to keep what else happened.
const TOLD_EVERY: Duration = Duration::from_secs(600);

pub(super) struct Upkeep {
    journal: Journal,
    /// When to look what is missing.
    look_at: Option<Instant>,
    /// Not before this.
    rests_until: Option<Instant>,
    pause: Duration,
    lost_at: Option<Instant>,
    /// What was put back and is to be told then.
    untold: Lost,
    tell_at: Option<Instant>,
    told_at: Option<Instant>,
    /// Why it could not be put back.
    complaint: Option<String>,
}

impl Upkeep {
    pub(super) fn new(journal: Journal) -> Self {
        Self {
            journal,
            look_at: None,
            rests_until: None,
            pause: LEAST_PAUSE,
            lost_at: None,
            untold: Lost::default(),
            tell_at: None,
            told_at: None,
            complaint: None,
        }
    }

    /// Something has changed on the host.
    pub(super) fn handle_change(&mut self, now: Instant) {
        self.look_by(self.rests_until.map_or(now, |until| until.max(now)));
    }

    /// The host has refused something, and may take it soon.
    pub(super) fn owe(&mut self, now: Instant) {
        self.look_by(now + AGAIN);
    }

    fn look_by(&mut self, at: Instant) {
        self.look_at = Some(self.look_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// When [`Self::handle_timeout`] has something to do.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let all = [self.look_at, self.tell_at];
        all.into_iter().flatten().min()
    }

    pub(super) fn handle_timeout(&mut self, host: &Host, now: Instant) {
        if self.look_at.take_if(|at| *at <= now).is_some() {
            self.handle_outcome(host.ask(Footprint::refresh_routes), now);
        }
        if self.tell_at.take_if(|at| *at <= now).is_some() {
            self.tell(now);
        }
    }

    fn handle_outcome(&mut self, outcome: Result<Lost, sennit_linux::Error>, now: Instant) {
        match outcome {
            Ok(lost) => {
                self.complaint = None;
                if !lost.is_nothing() {
                    self.note(lost, now);
                }
            }
            Err(error) => {
                let complaint = explain(&error);
                if self.complaint.as_ref() != Some(&complaint) {
                    let why = &complaint;
                    tracing::error!(why, "cannot put back what is missing on this host");
                }
                self.complaint = Some(complaint);
                self.owe(now);
            }
        }
        self.rests_until = Some(now + self.pause);
    }

    fn note(&mut self, lost: Lost, now: Instant) {
        tracing::debug!(?lost, "was missing on this host");
        let since = |at: Instant| now.saturating_duration_since(at);
        let again = self.lost_at.replace(now).is_some_and(|at| since(at) < CALM);
        self.pause = match again {
            true => (self.pause * 2).min(MOST_PAUSE),
            false => LEAST_PAUSE,
        };
        self.untold += lost;
        let soon = now + GATHERED;
        let at = self.told_at.map_or(soon, |at| soon.max(at + TOLD_EVERY));
        self.tell_at.get_or_insert(at);
    }

    fn tell(&mut self, now: Instant) {
        self.told_at = Some(now);
        let lost = std::mem::take(&mut self.untold);
        tracing::warn!(
            ?lost,
            "addresses, routes or rules of this edge were missing on this host, and are put back"
        );
        self.journal.note(lost.into());
    }

    /// What an operator should know.
    pub(super) fn note_of_failure(&self) -> Option<String> {
        let why = self.complaint.as_ref()?;
        Some(format!(
            "addresses, routes or rules of this edge are missing on this host, and are tried again every \
             few seconds: {why}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::journal::{Event, Keeper, Wanted};

    const RULES: Lost = Lost {
        addresses: 0,
        routes: 0,
        rules: 3,
    };

    fn upkeep() -> (Upkeep, Keeper, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let keeper = Keeper::start(&directory.path().join("journal.db")).unwrap();
        (Upkeep::new(keeper.journal().clone()), keeper, directory)
    }

    /// How long after a change the host is looked at.
    fn looks_after(upkeep: &mut Upkeep, now: Instant) -> Duration {
        upkeep.handle_change(now);
        let at = upkeep.look_at.take().unwrap();
        at.saturating_duration_since(now)
    }

    #[test]
    fn what_is_taken_again_and_again_is_put_back_ever_less_often_until_it_is_calm() {
        let (mut upkeep, ..) = upkeep();
        let mut now = Instant::now();
        assert_eq!(looks_after(&mut upkeep, now), Duration::ZERO);
        let mut pauses = Vec::new();
        for _ in 0..10 {
            upkeep.handle_outcome(Ok(RULES), now);
            let pause = looks_after(&mut upkeep, now);
            pauses.push(pause);
            now += pause;
        }
        assert_eq!(pauses[..3], [1, 2, 4].map(|times| LEAST_PAUSE * times));
        assert_eq!(pauses[9], MOST_PAUSE);

        now += CALM;
        assert_eq!(looks_after(&mut upkeep, now), Duration::ZERO);
        upkeep.handle_outcome(Ok(RULES), now);
        assert_eq!(looks_after(&mut upkeep, now), LEAST_PAUSE);
    }

    #[test]
    fn what_is_refused_is_tried_again_and_said_meanwhile() {
        let (mut upkeep, ..) = upkeep();
        let now = Instant::now();
        upkeep.handle_outcome(Err(refused()), now);
        assert_eq!(upkeep.poll_timeout(), Some(now + AGAIN));
        let note = upkeep.note_of_failure().unwrap();
        assert!(note.contains("add rule 83: no buffer space"), "{note}");

        upkeep.look_at = None;
        upkeep.handle_outcome(Ok(Lost::default()), now + AGAIN);
        assert_eq!(upkeep.poll_timeout(), None, "nothing was missing");
        assert_eq!(upkeep.note_of_failure(), None);
    }

    fn refused() -> sennit_linux::Error {
        sennit_linux::Error::Os {
            doing: "add rule 83".into(),
            source: io::Error::other("no buffer space"),
        }
    }

    #[test]
    fn the_journal_hears_of_all_that_was_lost_within_a_moment_as_one() {
        let (mut upkeep, keeper, _directory) = upkeep();
        let now = Instant::now();
        upkeep.handle_outcome(Ok(RULES), now);
        upkeep.handle_outcome(Ok(RULES), now + LEAST_PAUSE);
        let at = upkeep.poll_timeout().unwrap();
        assert_eq!(at, now + GATHERED);
        upkeep.tell_at = None;
        upkeep.tell(at);

        upkeep.handle_outcome(Ok(RULES), at);
        assert_eq!(upkeep.poll_timeout(), Some(at + TOLD_EVERY));

        let wanted = Wanted {
            wait_seconds: Some(10),
            ..Wanted::default()
        };
        let events = keeper.journal().read(&wanted).events;
        let told = Event::HostRestored {
            addresses: 0,
            routes: 0,
            rules: 6,
        };
        assert_eq!(events[0].event, told);
    }
}
