//! Round trips by the times at which packets leave and arrive, on a connection without load.
//!
//! A probe leaves each [`EVERY`], whether or not the ones before it were answered: in an outage
//! they count as lost, and those that wait in a queue all show how long. The answer says how long
//! the server kept the probe, which is taken off.

use std::time::{Duration, Instant};

use bytes::{BufMut as _, Bytes, BytesMut};
use sennit_load::{Bucket, Schedule, TimeFigures, Times};

/// Between two probes.
const EVERY: Duration = Duration::from_millis(20);
/// First octet of a probe, and of an answer.
const ASK: u8 = 1;
const ANSWER: u8 = 2;
/// Octet, number, time.
const LENGTH: usize = 17;

/// Sends probes and reads their answers.
pub(super) struct Probes {
    schedule: Schedule,
    sent: Vec<Instant>,
    /// When each was answered, by number, and its round trip.
    answered: Vec<Option<(Instant, Duration)>>,
}

/// Round trips of probes that left within some time.
#[derive(Default)]
pub(super) struct RoundTrips {
    pub(super) times: TimeFigures,
    pub(super) histogram: Vec<Bucket>,
    pub(super) sent: u64,
    pub(super) lost: u64,
}

impl Probes {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            schedule: Schedule::new(EVERY, now),
            sent: Vec::new(),
            answered: Vec::new(),
        }
    }

    pub(super) fn next_at(&self) -> Instant {
        self.schedule.next_at()
    }

    /// A probe, if one is due; it is to leave at once. Those that this host was late for are not
    /// made up for: they would all measure the same moment.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Bytes> {
        Some(packet(ASK, self.next(now)?, Duration::ZERO))
    }

    /// The number of a probe, if one is due.
    pub(super) fn next(&mut self, now: Instant) -> Option<u64> {
        self.schedule.take(now)?;
        while self.schedule.take(now).is_some() {}
        self.sent.push(now);
        self.answered.push(None);
        Some(self.sent.len() as u64 - 1)
    }

    /// Takes an answer that arrived.
    pub(super) fn handle_answer(&mut self, bytes: &[u8], arrived: Instant) {
        let Some((ANSWER, number, kept)) = read(bytes) else {
            return;
        };
        self.note(number, arrived, kept);
    }

    /// The probe of this number was answered, for which the far end took its time.
    pub(super) fn note(&mut self, number: u64, arrived: Instant, kept: Duration) {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        if let Some((sent, answered)) = self.sent.get(number).zip(self.answered.get_mut(number)) {
            let trip = arrived.saturating_duration_since(*sent);
            answered.get_or_insert((arrived, trip.saturating_sub(kept)));
        }
    }

    /// Of the probes that left from `from` to `to`.
    pub(super) fn between(&self, from: Instant, to: Instant) -> RoundTrips {
        // They left in order of time.
        let [first, end] = [from, to].map(|at| self.sent.partition_point(|sent| *sent < at));
        let within = &self.answered[first..end.max(first)];
        let (mut times, mut lost) = (Times::default(), 0);
        for answered in within {
            match answered {
                Some((_, trip)) => times.note(*trip),
                None => lost += 1,
            }
        }
        RoundTrips {
            times: times.figures(),
            histogram: times.buckets(),
            sent: within.len() as u64,
            lost,
        }
    }

    /// Round trips of probes whose answers arrived from `from` to `to`, whenever they left.
    pub(super) fn answered_between(&self, from: Instant, to: Instant) -> TimeFigures {
        let mut times = Times::default();
        let within = self.answered.iter().flatten();
        within
            .filter(|(arrived, _)| (from..to).contains(arrived))
            .for_each(|(_, trip)| times.note(*trip));
        times.figures()
    }

    /// The newest round trip.
    pub(super) fn newest(&self) -> Option<Duration> {
        let (_, trip) = self.answered.iter().rev().copied().find_map(|it| it)?;
        Some(trip)
    }
}

/// The answer to a probe that arrived some time ago; `None` if it is none.
pub(super) fn answer(bytes: &[u8], arrived: Instant, now: Instant) -> Option<Bytes> {
    let (ASK, number, _) = read(bytes)? else {
        return None;
    };
    let kept = now.saturating_duration_since(arrived);
    Some(packet(ANSWER, number, kept))
}

fn packet(kind: u8, number: u64, time: Duration) -> Bytes {
    let mut packet = BytesMut::with_capacity(LENGTH);
    packet.put_u8(kind);
    packet.put_u64(number);
    packet.put_u64(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    packet.freeze()
}

fn read(bytes: &[u8]) -> Option<(u8, u64, Duration)> {
    let (kind, rest) = bytes.split_first()?;
    let (number, time) = rest.split_first_chunk()?;
    let nanos = u64::from_be_bytes(time.try_into().ok()?);
    Some((
        *kind,
        u64::from_be_bytes(*number),
        Duration::from_nanos(nanos),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_the_server_kept_is_no_part_of_the_round_trip() {
        let start = Instant::now();
        let mut probes = Probes::new(start);
        let probe = probes.poll(start).expect("the first is due at once");
        assert_eq!(probes.poll(start + MS * 19), None);

        let echo = answer(&probe, start + MS * 5, start + MS * 12).expect("it is a probe");
        probes.handle_answer(&echo, start + MS * 17);

        let trips = probes.between(start, start + MS);
        assert_eq!((trips.sent, trips.lost), (1, 0));
        let trip = trips.times.p50_seconds.expect("it was answered");
        assert!((trip - 0.010).abs() < 1e-4, "{trip}");
        assert_eq!(probes.newest(), Some(MS * 10));
    }

    #[test]
    fn probes_go_on_without_answers_and_late_ones_are_not_made_up_for() {
        let start = Instant::now();
        let mut probes = Probes::new(start);
        for at in [0, 20, 40, 500, 520] {
            assert!(probes.poll(start + MS * at).is_some(), "{at}");
        }
        assert!(probes.poll(start + MS * 521).is_none());

        let trips = probes.between(start, start + MS * 1000);

        assert_eq!((trips.sent, trips.lost), (5, 5));
        assert_eq!(trips.times.p50_seconds, None);
        probes.handle_answer(b"\x02short", start);
        probes.handle_answer(&packet(ANSWER, 99, MS), start);
        assert_eq!(answer(&packet(ANSWER, 0, MS), start, start), None);
    }
}
