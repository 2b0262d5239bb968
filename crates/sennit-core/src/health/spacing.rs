//! How far apart full packets arrive on a slow path.
//!
//! A full packet takes 185 ms at 64 kbit/s: longer than an active path may be silent, and as long
//! as 25 probes. Nothing else can arrive meanwhile, so the silence before it is at least that long.
//! The end that hears goes by the shorter ones of these silences: it is patient by them, and tells
//! the other end in its reports, which then probes less often. Who is told nothing probes as ever:
//! nobody falls silent beyond what the other expects.
//!
//! On a path that is not slow, none of this changes anything.

use std::time::{Duration, Instant};

use super::Health;

/// A path is slow if full packets are at least so far apart, which is below 240 kbit/s. Where they
/// are nearer, three probes in a row take as long as one of them.
const SLOW: Duration = Duration::from_millis(50);
/// Bytes of a UDP payload from which on a packet is a full one.
const FULL: usize = 1000;
/// What was silent for longer was not busy with one packet: that is 4 kbit/s.
const MOST: Duration = Duration::from_secs(3);
/// Full packets of which it is known how long it was silent before them. The second shortest of
/// these silences counts: longer ones tell of a flow with a packet now and then, and a shaper lets
/// one packet pass at once.
const KEPT: usize = 4;
/// The peer may go by what it was last told for so long: some reports get lost.
const TOLD_FOR: Duration = Duration::from_secs(2);
/// Time between probes of a slow path, by the time that a full packet takes: so probes are 3 % of
/// what it carries, and as much is sent to acknowledge the peer's.
const PROBES_APART: f64 = 1.5;

/// How far apart full packets arrive.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spacing {
    /// The silences before the last full packets, the newest first.
    silences: [Duration; KEPT],
    known: usize,
    /// What follows from them; zero if the path is not slow.
    here: Duration,
    /// The most that the peer may still go by, and when it was told.
    told: Option<(Duration, Instant)>,
    /// What the peer says of our packets; zero if the path is not slow that way.
    there: Duration,
}

impl Spacing {
    /// A packet of `bytes` arrived after a silence.
    pub(super) fn insert(&mut self, silence: Duration, bytes: usize) {
        if bytes < FULL || silence > MOST {
            return;
        }
        self.silences.rotate_right(1);
        self.silences[0] = silence;
        self.known = (self.known + 1).min(KEPT);
        if silence < SLOW && self.here.is_zero() {
            // As ever, on a path that is not slow: a short one makes no other one count.
            return;
        }
        let mut silences = self.silences;
        let known = &mut silences[..self.known];
        known.sort_unstable();
        let counts = known[usize::from(known.len() > 2)];
        self.here = if counts < SLOW {
            Duration::ZERO
        } else {
            counts
        };
    }

    /// The time that a full packet takes to arrive, of late; `heard` is when the last one came.
    pub(super) fn here(&self, heard: Instant) -> Duration {
        let told = self.told.filter(|&(_, at)| heard <= at + TOLD_FOR);
        told.map_or(self.here, |(told, _)| told.max(self.here))
    }

    /// Time between probes, at least.
    pub(super) fn probes_apart(&self) -> Duration {
        self.there.mul_f64(PROBES_APART)
    }
}

/// What arrives before there is a path: of a handshake, at first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrivals {
    last: Option<Instant>,
    /// The shortest silence before a full packet. What is sent again comes in pairs, so that no
    /// loss makes a quick path slow.
    nearest: Option<Duration>,
}

impl Arrivals {
    /// A packet of so many `bytes` of UDP payload arrived.
    pub fn handle_heard(&mut self, bytes: usize, now: Instant) {
        let last = self.last.replace(now);
        if let Some(last) = last.filter(|_| bytes >= FULL) {
            let silence = now.saturating_duration_since(last);
            self.nearest = Some(self.nearest.map_or(silence, |nearest| nearest.min(silence)));
        }
    }

    /// When the last one did.
    pub fn last(&self) -> Option<Instant> {
        self.last
    }
}

impl Health {
    /// It is the path on which these arrived.
    pub fn set_arrivals(&mut self, before: Arrivals) {
        if let Some(nearest) = before.nearest {
            self.spacing.insert(nearest, FULL);
        }
    }

    /// How far apart full packets arrive here, as the peer is told now; zero if the path is not
    /// slow.
    pub fn tell_spacing(&mut self, now: Instant) -> Duration {
        let here = self.spacing.here;
        // The report that tells of a smaller one may be lost.
        let told = self.spacing.told;
        let larger = told.filter(|&(told, at)| told > here && now <= at + TOLD_FOR);
        self.spacing.told = larger.or_else(|| (!here.is_zero()).then_some((here, now)));
        here
    }

    /// The peer says how far apart our full packets arrive there; zero if the path is not slow.
    pub fn set_spacing(&mut self, there: Duration) {
        self.spacing.there = there.min(MOST);
    }

    /// Time between probes of a slow path, at least; zero if it is not slow.
    pub fn probes_apart(&self) -> Duration {
        self.spacing.probes_apart()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// What follows from full packets that came after so many milliseconds of silence.
    fn after(silences: &[u32]) -> u32 {
        let mut spacing = Spacing::default();
        for &silence in silences {
            spacing.insert(silence * MS, 1450);
        }
        spacing.here.as_millis() as u32
    }

    #[test]
    fn no_single_packet_makes_a_path_slow_or_quick() {
        assert_eq!(after(&[185]), 185, "but the first of all");
        assert_eq!(after(&[0, 200]), 0);
        assert_eq!(after(&[0, 200, 3, 0]), 0);
        assert_eq!(after(&[0, 185, 185, 185]), 185);
        assert_eq!(after(&[185, 0, 185, 185]), 185);
        assert_eq!(after(&[185, 185, 185, 0, 0]), 0);
        assert_eq!(after(&[45, 48, 40]), 0, "between probes");
    }

    /// Silences before its packets tell how far these are apart, and that the peer probes rarely.
    #[test]
    fn a_thin_flow_shows_soon_that_a_path_is_slow_no_more() {
        for period in (50..300).step_by(10) {
            let mut spacing = Spacing::default();
            for _ in 0..KEPT {
                spacing.insert(185 * MS, 1450);
            }
            let (mut now, mut heard, mut probe) = (0, 0, 0);
            while !spacing.here.is_zero() {
                if now >= probe {
                    let apart = spacing.here.mul_f64(PROBES_APART);
                    (heard, probe) = (now, now + apart.as_millis() as u32);
                }
                now += 1;
                if now % period == 0 {
                    spacing.insert((now - heard) * MS, 1450);
                    heard = now;
                }
                assert!(now < 4000, "{period}: {:?}", spacing.here);
            }
        }
    }

    /// The report that tells of the smaller one may be lost, and the peer then probes as before.
    #[test]
    fn what_the_peer_was_told_counts_beside_a_smaller_one_for_a_while() {
        let start = Instant::now();
        let mut health = Health::new(start);
        health.spacing.insert(300 * MS, 1450);
        health.tell_spacing(start);
        health.spacing.insert(60 * MS, 1450);
        for (later, counts) in [(50, 300), (2000, 300), (2050, 60)] {
            let now = start + later * MS;
            assert_eq!(health.tell_spacing(now), 60 * MS);
            assert_eq!(health.spacing.here(now), counts * MS, "after {later} ms");
        }
    }

    #[test]
    fn a_handshake_tells_of_a_slow_path_unless_packets_came_together() {
        let start = Instant::now();
        let spacing = |at: &[u32]| {
            let mut arrivals = Arrivals::default();
            for &ms in at {
                arrivals.handle_heard(1200, start + ms * MS);
            }
            let mut health = Health::new(start);
            health.set_arrivals(arrivals);
            health.tell_spacing(start).as_millis()
        };
        assert_eq!(spacing(&[0, 150, 300, 700]), 150);
        assert_eq!(spacing(&[0, 300, 301]), 0);
        assert_eq!(spacing(&[0]), 0);
    }

    #[test]
    fn small_packets_and_outages_tell_nothing() {
        let mut spacing = Spacing::default();
        spacing.insert(200 * MS, 300);
        spacing.insert(4000 * MS, 1450);
        spacing.insert(5000 * MS, 1450);
        assert_eq!(spacing.here, Duration::ZERO);
    }
}
