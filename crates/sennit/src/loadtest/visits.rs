//! Connections that are opened to be closed: what handshakes cost a network and a server, and how
//! long a newcomer waits behind the load.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use sennit_engine::ConnId;
use sennit_load::{Bucket, Schedule, TimeFigures, Times};
use serde::{Deserialize, Serialize};

use super::{
    lately::{Lately, Recent},
    responsiveness::with_waiting,
};

/// A newcomer that is not through after so long is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// When the next one comes.
#[derive(Debug)]
enum Pace {
    /// So many are there at the same time.
    Always(usize),
    /// At these times, whatever became of those before.
    Due(Schedule),
}

/// What came of handshakes, one after the other over and over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VisitFigures {
    /// Handshakes that were complete in the time that counts.
    pub complete: u64,
    /// Handshakes that failed, or took too long, in the time that counts.
    pub failed: u64,
    /// Handshakes that were not complete at the end.
    #[serde(default)]
    pub waiting: u64,
    /// Complete ones over the time that counts.
    pub per_second: f64,
    /// From the first packet until the client may send. One that failed counts with the ten seconds
    /// for which it would have been waited; one that was waited for at the end with the time until
    /// then, if that is longer than half of the others took.
    pub time: TimeFigures,
    /// Those times one by one, roughly.
    pub time_histogram: Vec<Bucket>,
}

/// The newcomers.
#[derive(Debug)]
pub(super) struct Visits {
    pace: Pace,
    /// Since when each knocks.
    knocking: BTreeMap<ConnId, Instant>,
    /// Since when each has waited for its answer, if it asked something.
    asking: BTreeMap<ConnId, Instant>,
    counted_from: Instant,
    handshakes: Vec<(Instant, Duration)>,
    answers: Vec<(Instant, Duration)>,
    /// Handshakes and answers that there never were, as if they had been waited for to the last.
    in_vain: [Vec<(Instant, Duration)>; 2],
    /// Those that were waited for at the end.
    waiting: [Vec<(Instant, Duration)>; 2],
    failed: u64,
    recent: Recent,
    stopped: bool,
}

impl Visits {
    /// So many at the same time; they count from `counted_from` on.
    pub(super) fn always(count: u16, counted_from: Instant) -> Self {
        Self::new(Pace::Always(count.into()), counted_from)
    }

    /// One each `every`.
    pub(super) fn each(every: Duration, counted_from: Instant, now: Instant) -> Self {
        Self::new(Pace::Due(Schedule::new(every, now)), counted_from)
    }

    fn new(pace: Pace, counted_from: Instant) -> Self {
        Self {
            pace,
            knocking: BTreeMap::new(),
            asking: BTreeMap::new(),
            counted_from,
            handshakes: Vec::new(),
            answers: Vec::new(),
            in_vain: [Vec::new(), Vec::new()],
            waiting: [Vec::new(), Vec::new()],
            failed: 0,
            recent: Recent::default(),
            stopped: false,
        }
    }

    /// When the next one comes, if that does not depend on others.
    pub(super) fn next_at(&self) -> Option<Instant> {
        match &self.pace {
            Pace::Due(schedule) if !self.stopped => Some(schedule.next_at()),
            Pace::Due(_) | Pace::Always(_) => None,
        }
    }

    /// Whether another one is to knock now.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        !self.stopped
            && match &mut self.pace {
                Pace::Always(count) => self.knocking.len() < *count,
                Pace::Due(schedule) => schedule.take(now).is_some(),
            }
    }

    /// Nobody comes any more.
    pub(super) fn stop(&mut self, now: Instant) {
        self.stopped = true;
        let waits = |since: &Instant| (now, now.saturating_duration_since(*since));
        self.waiting = [&self.knocking, &self.asking].map(|all| all.values().map(waits).collect());
    }

    pub(super) fn knock(&mut self, id: ConnId, now: Instant) {
        self.knocking.insert(id, now);
    }

    /// Whether a newcomer is through; if it asks something, its answer is waited for.
    pub(super) fn enter(&mut self, id: ConnId, asks: bool, now: Instant) -> bool {
        let Some(since) = self.knocking.remove(&id) else {
            return false;
        };
        if now >= self.counted_from && !self.stopped {
            let time = now.saturating_duration_since(since);
            self.recent.note(time);
            self.handshakes.push((now, time));
        }
        if asks {
            self.asking.insert(id, now);
        }
        true
    }

    /// Whether this is an answer to a newcomer.
    pub(super) fn hear(&mut self, id: ConnId, now: Instant) -> bool {
        let Some(since) = self.asking.remove(&id) else {
            return false;
        };
        if now >= self.counted_from && !self.stopped {
            let time = now.saturating_duration_since(since);
            self.answers.push((now, time));
        }
        true
    }

    /// Whether a newcomer was lost.
    pub(super) fn lose(&mut self, id: ConnId, now: Instant) -> bool {
        let knocked = self.knocking.remove(&id).is_some();
        let asked = self.asking.remove(&id).is_some();
        if now >= self.counted_from && !self.stopped {
            if knocked {
                self.failed += 1;
                self.recent.fail();
            }
            for (lost, all) in [knocked, asked].into_iter().zip(&mut self.in_vain) {
                all.extend(lost.then_some((now, PATIENCE)));
            }
        }
        knocked || asked
    }

    /// Newcomers that have waited too long.
    pub(super) fn tired(&self, now: Instant) -> Vec<ConnId> {
        let waiting = self.knocking.iter().chain(&self.asking);
        let tired = waiting.filter(|(_, since)| now.saturating_duration_since(**since) > PATIENCE);
        tired.map(|(&id, _)| id).collect()
    }

    /// Handshakes and answers, those among them that there were not, each with the time at which
    /// that was known.
    pub(super) fn times(&self) -> [Vec<(Instant, Duration)>; 2] {
        let [handshakes, answers] = &self.in_vain;
        let all = [
            [&self.handshakes[..], handshakes].concat(),
            [&self.answers[..], answers].concat(),
        ];
        let [handshakes, answers] = all;
        let [knocking, asking] = &self.waiting;
        [
            with_waiting(handshakes, knocking),
            with_waiting(answers, asking),
        ]
    }

    /// Handshakes that ended since the last call, and count.
    pub(super) fn lately(&mut self) -> Lately {
        self.recent.take()
    }

    pub(super) fn figures(&self, span: Duration) -> VisitFigures {
        let (mut times, [handshakes, _]) = (Times::default(), self.times());
        handshakes.iter().for_each(|(_, time)| times.note(*time));
        let complete = self.handshakes.len() as u64;
        VisitFigures {
            complete,
            failed: self.failed,
            waiting: self.waiting[0].len() as u64,
            per_second: complete as f64 / span.as_secs_f64(),
            time: times.figures(),
            time_histogram: times.buckets(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Four are through at once, one is turned away, one waits for a second and one has just come.
    #[test]
    fn who_never_came_through_counts_as_one_who_waited() {
        let now = Instant::now();
        let mut visits = Visits::each(MS * 100, now, now);
        for id in 0..4 {
            visits.knock(ConnId(id), now);
            assert!(visits.enter(ConnId(id), true, now + MS * 20));
            assert!(visits.hear(ConnId(id), now + MS * 40));
        }
        visits.knock(ConnId(4), now);
        assert!(visits.lose(ConnId(4), now + MS * 10));
        visits.knock(ConnId(5), now);
        visits.knock(ConnId(6), now + MS * 995);

        visits.stop(now + MS * 1000);
        assert!(
            visits.enter(ConnId(5), true, now + MS * 1100),
            "in the drain"
        );

        let [handshakes, answers] = visits.times();
        let times: Vec<_> = handshakes.iter().map(|(_, time)| *time).collect();
        assert_eq!(times[..4], [MS * 20; 4]);
        assert_eq!(times[4..], [PATIENCE, MS * 1000]);
        assert_eq!(answers.len(), 4);
        let found = visits.figures(MS * 1000);
        assert_eq!((found.complete, found.failed, found.waiting), (4, 1, 2));
        assert_eq!((found.per_second, found.time.count), (4.0, 6));
        assert!(found.time.max_seconds >= Some(10.0), "{found:?}");
        let told = visits.lately();
        assert_eq!((told.done, told.failed), (4, 1));
    }

    #[test]
    fn who_was_turned_away_in_the_warm_up_does_not_count() {
        let now = Instant::now();
        let mut visits = Visits::always(1, now + MS * 100);
        visits.knock(ConnId(0), now);
        assert!(visits.lose(ConnId(0), now + MS * 50));

        assert_eq!(visits.figures(MS * 1000).failed, 0);
        assert_eq!(visits.lately(), Lately::default());
    }
}
