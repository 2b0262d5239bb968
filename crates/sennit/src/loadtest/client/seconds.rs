//! What is told of each second, while a test runs and when it is over.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use super::{
    super::{
        fec::Symbols,
        perf::Caller,
        probe::Probes,
        report::{Moment, RoundTrips},
        requests::Asker,
        second::{self, Second},
        visits::Visits,
        wire::Network,
        words::Tick,
    },
    Client,
};

const SECOND: Duration = Duration::from_secs(1);
/// Points of a plot of round trips over time, at most: more than its pixels show nothing more.
const MOST_MOMENTS: u32 = 600;

impl<N: Network> Client<'_, N> {
    /// What has arrived here and counts.
    pub(super) fn arrived(&mut self, now: Instant) -> u64 {
        let here = self.load.tick(now).bytes;
        let Some([up, down]) = self.perf.as_ref().map(Caller::bytes) else {
            return here;
        };
        let tick = Tick {
            bytes: up.unwrap_or(0),
            complete: self.is_complete(),
            ..Tick::default()
        };
        self.far.hear(tick, now);
        down.unwrap_or(0)
    }

    /// The time since `from`, in which so many bytes arrived here that count.
    pub(super) fn second(&mut self, begun: Instant, from: Instant, bytes: u64) -> Second {
        let (now, plan) = (self.net.now(), &self.options.plan);
        let counted = self.counted(begun);
        let span = now.saturating_duration_since(from.max(counted));
        let counts = |wanted: bool| wanted && span > second::SHORTEST;
        let probes = self.probes.as_ref();
        let trips = probes.map(|probes| probes.answered_between(from, now));
        let probes = probes.map(|probes| probes.between(from, now));
        let probes = probes.unwrap_or_default();
        let (here, there) = (self.load.symbols(), self.far.symbols());
        let protects = |wanted: bool| wanted && plan.fec.is_some();
        Second {
            schema: second::SCHEMA.into(),
            elapsed_seconds: now.saturating_duration_since(begun).as_secs_f64(),
            seconds: now.saturating_duration_since(from).as_secs_f64(),
            up_bits_per_second: self.far.rate(counted).filter(|_| counts(plan.up)),
            down_bits_per_second: counts(plan.down)
                .then(|| bytes as f64 * 8.0 / span.as_secs_f64()),
            rtt: trips.unwrap_or_default(),
            probes: probes.sent,
            unanswered: probes.lost,
            up_fec: protects(plan.up).then(|| Symbols::of_way(here, there)),
            down_fec: protects(plan.down).then(|| Symbols::of_way(there, here)),
            requests: self
                .asker
                .as_mut()
                .filter(|_| counts(true))
                .map(Asker::lately),
            handshakes: self
                .visits
                .as_mut()
                .filter(|_| counts(true))
                .map(Visits::lately),
            round: None,
            configuration: None,
        }
    }

    /// Those of probes before the load, and while it ran and counted.
    pub(super) fn round_trips(&self, quiet: Range<Instant>, loaded: Range<Instant>) -> RoundTrips {
        let Some(probes) = &self.probes else {
            return RoundTrips::default();
        };
        let moments = moments(probes, &loaded);
        let [idle, loaded] = [quiet, loaded].map(|span| probes.between(span.start, span.end));
        RoundTrips {
            idle_histogram: idle.histogram,
            loaded_histogram: loaded.histogram,
            moments,
            ..RoundTrips::new(idle.times, loaded.times, loaded.sent, loaded.lost)
        }
    }
}

/// How round trips went while the load ran, by the second or by what is more.
fn moments(probes: &Probes, loaded: &Range<Instant>) -> Vec<Moment> {
    let span = loaded.end.saturating_duration_since(loaded.start);
    let width = SECOND.max(span / MOST_MOMENTS);
    let mut moments = Vec::new();
    let mut from = loaded.start;
    // A piece at the end that is too short to tell belongs to none.
    while from + width / 2 < loaded.end {
        let to = (from + width).min(loaded.end);
        let within = probes.between(from, to);
        moments.push(Moment {
            at_seconds: (from - loaded.start + (to - from) / 2).as_secs_f64(),
            p50_seconds: within.times.p50_seconds,
            max_seconds: within.times.max_seconds,
            lost: within.lost,
        });
        from += width;
    }
    moments
}
