//! What a machine is woken for, and how often it was.

use std::time::Instant;

/// When to come back, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Due {
    /// When it is time.
    pub at: Instant,
    /// What is to be done then.
    pub timer: Timer,
}

impl Due {
    /// The earliest of several; of those at the same time, the first in [`Timer::ALL`].
    pub(crate) fn first(all: impl IntoIterator<Item = (Timer, Option<Instant>)>) -> Option<Self> {
        let set = |(timer, at): (Timer, Option<Instant>)| Some(timer.due(at?));
        all.into_iter().filter_map(set).min()
    }
}

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A tunnel goes on sending, as a turn was not enough for all of it.
    Round,
    /// A path may send again at its pace.
    Pacing,
    /// A link that classes share is asked again.
    Share,
    /// Acknowledgements that wait for a packet of their own are due.
    Acks,
    /// A report to the other end is due.
    Report,
    /// A packet that is waited for did not come in time.
    Order,
    /// A repair or what is said of repairs is due, or one did not come in time.
    Repair,
    /// A path is probed, or judged by what was heard on it.
    Health,
    /// It is tried whether QUIC still refuses to send on a path.
    Trial,
    /// QUIC itself: losses, delayed acknowledgements, handshakes, idle connections.
    Quic,
    /// Streams that brought too much at once are read on.
    Http,
    /// A class whose connection is gone hands on what it held back.
    Hold,
    /// A connection in which a fault was contained is given up.
    Fault,
    /// A class of an edge looks after its connections: attempts, retries, moves.
    Dial,
    /// What a hub assigned to an edge has stood long enough to be followed.
    Assigned,
    /// A link of an edge on which nothing is heard gets another local port.
    Port,
    /// A connection at a hub to which nothing was granted has had its time.
    Stranger,
    /// A hub forgets the class of a site that did not come back.
    Parked,
    /// A site said anew how its classes are to be treated, and may be followed again.
    Terms,
    /// A connection at a hub whose class goes on over another one has had its time.
    Leaving,
}

impl Timer {
    /// All of them, in their order.
    pub const ALL: [Self; 20] = [
        Self::Round,
        Self::Pacing,
        Self::Share,
        Self::Acks,
        Self::Report,
        Self::Order,
        Self::Repair,
        Self::Health,
        Self::Trial,
        Self::Quic,
        Self::Http,
        Self::Hold,
        Self::Fault,
        Self::Dial,
        Self::Assigned,
        Self::Port,
        Self::Stranger,
        Self::Parked,
        Self::Terms,
        Self::Leaving,
    ];

    /// What it is called where it is counted.
    pub fn word(self) -> &'static str {
        match self {
            Self::Round => "round",
            Self::Pacing => "pacing",
            Self::Share => "share",
            Self::Acks => "acks",
            Self::Report => "report",
            Self::Order => "order",
            Self::Repair => "repair",
            Self::Health => "health",
            Self::Trial => "trial",
            Self::Quic => "quic",
            Self::Http => "http",
            Self::Hold => "hold",
            Self::Fault => "fault",
            Self::Dial => "dial",
            Self::Assigned => "assigned",
            Self::Port => "port",
            Self::Stranger => "stranger",
            Self::Parked => "parked",
            Self::Terms => "terms",
            Self::Leaving => "leaving",
        }
    }

    pub(crate) fn due(self, at: Instant) -> Due {
        Due { at, timer: self }
    }
}

/// How often a machine was woken by each of its timers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Woken([u64; Timer::ALL.len()]);

impl Woken {
    /// The machine is woken, `due` being the first of its timers.
    pub(crate) fn note(&mut self, due: Option<Due>, now: Instant) {
        let Some(Due { at, timer }) = due.filter(|due| due.at <= now) else {
            return;
        };
        self.0[timer as usize] += 1;
        tracing::trace!(timer = timer.word(), late = ?(now - at), "woken");
    }

    /// The timers that have woken it at all, with how often.
    pub fn iter(&self) -> impl Iterator<Item = (Timer, u64)> {
        let all = Timer::ALL.into_iter().zip(self.0);
        all.filter(|&(_, count)| count > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;

    #[test]
    fn timers_have_places_and_words_of_their_own() {
        let places = Timer::ALL.map(|timer| timer as usize);
        assert!(places.into_iter().eq(0..Timer::ALL.len()));
        let words: BTreeSet<_> = Timer::ALL.into_iter().map(Timer::word).collect();
        assert_eq!(words.len(), Timer::ALL.len());
    }

    #[test]
    fn the_first_timer_counts_if_its_time_has_come() {
        let now = Instant::now();
        let soon = now + Duration::from_millis(1);
        let due = Due::first([
            (Timer::Quic, Some(soon)),
            (Timer::Health, None),
            (Timer::Pacing, Some(soon)),
            (Timer::Report, Some(soon + Duration::from_millis(1))),
        ]);
        assert_eq!(due, Some(Timer::Pacing.due(soon)));
        let mut woken = Woken::default();
        woken.note(due, now);
        woken.note(due, soon);
        woken.note(None, soon);
        assert!(woken.iter().eq([(Timer::Pacing, 1)]));
    }
}
