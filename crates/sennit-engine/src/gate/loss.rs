//! What a path loses, of late.

use std::time::{Duration, Instant};

use sennit_core::RecentLosses;

/// Packets over which the share of lost ones is averaged.
pub(super) const MEMORY: f64 = 1000.0;
/// So many after the path has stopped losing any.
const OVER_MEMORY: f64 = MEMORY / 8.0;
/// It has if so many times as many arrive in a row as between losses before: of losses that come by
/// chance, one in a hundred thousand lets so many pass.
const OVER_AFTER: f64 = 12.0;
/// Losses over which the packets between them are averaged.
const RUNS: f64 = 8.0;
/// Of so few packets since the path began to lose some, or so few losses, the part that is lost is
/// chance, or a single burst.
const FEW_SINCE: f64 = 100.0;
const FEW_LOST_SINCE: f64 = 8.0;
/// Losses over which it is averaged how many of them follow another one: at once, or after one
/// packet of which nothing is known, as of a repair.
const BURSTS: f64 = 64.0;
const AT_ONCE: u64 = 2;
/// A burst counts as so many losses at most: an outage says nothing of what follows it.
const LONGEST_BURST: u32 = 8;
/// On a path that carries none for this long it fades from then on, and halves in this time.
const STAYS: Duration = Duration::from_millis(100);
const FADES: Duration = Duration::from_secs(1);
/// The losses of a path that carries too little for an average are counted. So few packets say
/// nothing, nor does a single loss.
const FEW_PACKETS: u32 = 20;
const FEW_LOSSES: u32 = 2;

/// Part of the packets that are lost, of late. What is given up with its path does not count, nor
/// what overflows while the path starts.
#[derive(Debug, Default)]
pub(super) struct Loss {
    part: f64,
    counted: Option<Instant>,
    /// Packets that arrived since the last loss.
    run: f64,
    /// How many do between two losses, on average.
    usual_run: f64,
    counts: RecentLosses,
    begun: Begun,
    bursts: Bursts,
}

/// Packets since the path began to lose some, up to the last loss. The average needs [`MEMORY`] of
/// them until it knows.
#[derive(Debug, Default)]
struct Begun {
    packets: f64,
    lost: f64,
}

/// How often losses follow each other.
#[derive(Debug, Default)]
struct Bursts {
    /// Number of the last packet that was lost, and how many losses ended with it in a row.
    last: Option<u64>,
    length: u32,
    /// Losses that are averaged.
    losses: f64,
    /// Part of them that followed another one at once.
    following: f64,
}

impl Bursts {
    fn count(&mut self, pn: u64) {
        let last = self.last.replace(pn);
        // Several datagrams of one packet are one loss.
        if last == Some(pn) {
            return;
        }
        let follows = last.is_some_and(|last| (1..=AT_ONCE).contains(&pn.wrapping_sub(last)));
        self.length = if follows { self.length + 1 } else { 1 };
        if self.length > LONGEST_BURST {
            return;
        }
        self.losses = (self.losses + 1.0).min(BURSTS);
        let follows = if follows { 1.0 } else { 0.0 };
        self.following += (follows - self.following) / self.losses;
    }
}

impl Loss {
    pub(super) fn count_lost(&mut self, pn: u64, starting: bool, now: Instant) {
        if starting {
            return;
        }
        self.counts.count_lost(now);
        if self.is_over() {
            (self.begun, self.bursts) = (Begun::default(), Bursts::default());
        } else {
            self.begun.packets += self.run + 1.0;
            self.begun.lost += 1.0;
        }
        self.bursts.count(pn);
        self.part += (1.0 - self.part) / MEMORY;
        if self.usual_run == 0.0 {
            self.usual_run = self.run;
        } else if self.run > 0.0 {
            self.usual_run += (self.run - self.usual_run) / RUNS;
        }
        self.run = 0.0;
    }

    pub(super) fn count_acked(&mut self, now: Instant) {
        self.part = self.part(now);
        self.counted = Some(now);
        self.counts.count_arrived(now);
        self.run += 1.0;
        self.part -= self.part / if self.is_over() { OVER_MEMORY } else { MEMORY };
    }

    /// Whether the path seems to have stopped losing packets.
    fn is_over(&self) -> bool {
        self.run > OVER_AFTER * self.usual_run
    }

    pub(super) fn part(&self, now: Instant) -> f64 {
        self.faded(self.part, now)
    }

    /// Part of the packets that were lost since the path began to lose some, while the average does
    /// not know of it yet.
    pub(super) fn part_at_first(&self, now: Instant) -> f64 {
        let packets = self.begun.packets + self.run;
        if self.is_over()
            || !(FEW_SINCE..MEMORY).contains(&packets)
            || self.begun.lost < FEW_LOST_SINCE
        {
            return 0.0;
        }
        self.faded(self.begun.lost / packets, now)
    }

    /// How many times as long as by chance are the bursts in which packets are lost, on average: 1
    /// where each is lost by itself.
    pub(super) fn burst(&self) -> f64 {
        let alone = (1.0 - self.part).powi(AT_ONCE as i32);
        (alone / (1.0 - self.bursts.following)).max(1.0)
    }

    /// A path that is not used may be better by now.
    fn faded(&self, part: f64, now: Instant) -> f64 {
        let unused = self
            .counted
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at))
            .saturating_sub(STAYS);
        if unused.is_zero() {
            return part;
        }
        part * 0.5_f64.powf(unused.as_secs_f64() / FADES.as_secs_f64())
    }

    /// Part of the packets that were lost within a minute, however few they are.
    pub(super) fn part_counted(&self, now: Instant) -> f64 {
        let counted = self.counts.lately(now);
        if counted.lost < FEW_LOSSES || counted.packets() < FEW_PACKETS {
            return 0.0;
        }
        counted.loss().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losing_one_of_a_hundred(start: Instant) -> Loss {
        let mut loss = Loss::default();
        for step in 0..10_000 {
            let now = start + Duration::from_millis(10) * step;
            if step % 100 == 99 {
                loss.count_lost(step.into(), false, now);
            } else {
                loss.count_acked(now);
            }
        }
        loss
    }

    #[test]
    fn the_share_of_losses_fades_only_while_a_path_is_not_used() {
        let start = Instant::now();
        let mut loss = Loss {
            part: 0.01,
            counted: Some(start),
            ..Loss::default()
        };
        assert!((loss.part(start + STAYS) - 0.01).abs() < 1e-9);
        assert!((loss.part(start + STAYS + FADES) - 0.005).abs() < 1e-9);
        loss.count_lost(1, true, start);
        assert!((loss.part - 0.01).abs() < 1e-9);
        // A slow path: one packet in 10 ms.
        let loss = losing_one_of_a_hundred(start);
        assert!((0.009..0.011).contains(&loss.part), "{}", loss.part);
    }

    #[test]
    fn the_losses_of_a_path_that_carries_little_are_counted() {
        let start = Instant::now();
        let at = |seconds: u32| start + Duration::from_secs(1) * seconds;
        let mut loss = Loss::default();
        for second in 0..40u32 {
            loss.count_acked(at(second));
            if second % 10 == 9 {
                loss.count_lost(second.into(), false, at(second));
            }
            if second == 12 {
                assert_eq!(loss.part_counted(at(second)), 0.0, "one is not enough");
            }
        }
        assert!((0.08..0.1).contains(&loss.part_counted(at(40))));
        assert!(loss.part(at(40)) < 0.002, "the average of a thousand");
        assert_eq!(loss.part_counted(at(100)), 0.0, "that is long ago");
        loss.count_acked(at(100));
        assert_eq!(loss.part_counted(at(100)), 0.0);
    }

    #[test]
    fn a_path_that_loses_no_more_is_soon_taken_for_one() {
        let mut loss = losing_one_of_a_hundred(Instant::now());
        let now = loss.counted.expect("packets arrived");
        for (packets, least, most) in [(1000, 0.003, 0.005), (1000, 0.0, 0.0001)] {
            for _ in 0..packets {
                loss.count_acked(now);
            }
            assert!((least..most).contains(&loss.part), "{}", loss.part);
        }
    }

    /// What is known after so many packets, of which those are lost that `is_lost`.
    fn losing(is_lost: impl Fn(u64) -> bool, packets: u64, now: Instant) -> Loss {
        let mut loss = Loss::default();
        for pn in 0..packets {
            if is_lost(pn) {
                loss.count_lost(pn, false, now);
            } else {
                loss.count_acked(now);
            }
        }
        loss
    }

    #[test]
    fn bursts_are_told_from_losses_that_come_by_chance() {
        let now = Instant::now();
        let threes = losing(|pn| pn % 60 < 3, 6000, now).burst();
        assert!((2.5..3.0).contains(&threes), "{threes}");
        let repaired = losing(|pn| pn % 60 < 5 && pn % 2 == 0, 6000, now).burst();
        assert!((2.5..3.0).contains(&repaired), "{repaired}");
        // One of four is lost, and so is one of four that follow it.
        let chance = |pn: u64| {
            let hash = pn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 62 == 0
        };
        let often = losing(chance, 60_000, now).burst();
        assert!((1.0..1.2).contains(&often), "{often}");
        let mut outage = losing(|pn| pn % 20 == 7, 6000, now);
        assert_eq!(outage.burst(), 1.0);
        for pn in 6000..7000 {
            outage.count_lost(pn, false, now);
        }
        assert!(outage.burst() < 1.2, "{}", outage.burst());
    }

    /// Acknowledgements come in heaps, and losses are noticed after all of one.
    #[test]
    fn what_is_noticed_at_once_is_not_lost_in_a_row() {
        let now = Instant::now();
        let mut loss = Loss::default();
        for heap in 0..100 {
            (0..18).for_each(|_| loss.count_acked(now));
            for pn in [20 * heap + 3, 20 * heap + 9] {
                loss.count_lost(pn, false, now);
            }
        }
        assert_eq!(loss.burst(), 1.0);
    }

    #[test]
    fn a_path_that_begins_to_lose_packets_is_soon_known_for_it() {
        let now = Instant::now();
        let mut loss = losing(|_| false, 5000, now);
        let mut lose = |packets: u64| {
            for pn in 0..packets {
                if pn % 20 == 0 {
                    loss.count_lost(5000 + pn, false, now);
                } else {
                    loss.count_acked(now);
                }
            }
            (loss.part(now), loss.part_at_first(now))
        };
        assert_eq!(lose(60).1, 0.0, "too few");
        let (average, known) = lose(140);
        assert!(average < 0.012, "{average}");
        assert!((0.04..0.06).contains(&known), "{known}");
        let (average, known) = lose(2000);
        assert!((0.04..0.05).contains(&average), "{average}");
        assert_eq!(known, 0.0, "the average knows");
    }
}
