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
}

impl Loss {
    pub(super) fn count_lost(&mut self, starting: bool, now: Instant) {
        if starting {
            return;
        }
        self.counts.count_lost(now);
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
        let is_over = self.run > OVER_AFTER * self.usual_run;
        self.part -= self.part / if is_over { OVER_MEMORY } else { MEMORY };
    }

    /// A path that is not used may be better by now.
    pub(super) fn part(&self, now: Instant) -> f64 {
        let unused = self
            .counted
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at))
            .saturating_sub(STAYS);
        if unused.is_zero() {
            return self.part;
        }
        self.part * 0.5_f64.powf(unused.as_secs_f64() / FADES.as_secs_f64())
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
                loss.count_lost(false, now);
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
        loss.count_lost(true, start);
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
                loss.count_lost(false, at(second));
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
}
