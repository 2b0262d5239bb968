//! Links by chance, from a seed alone.

use std::time::Duration;

use sennit_netem::{Bitrate, Config, Jitter, Loss, Motion};

use crate::LinkSpec;

/// Small random numbers.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The dice of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Others for the same seed, which fall as if they knew nothing of these.
    pub fn beside(seed: u64, which: u64) -> Self {
        // The first throws look at low bits only, so each bit of the seed has to reach those above.
        Self::new((seed ^ which.rotate_left(17)).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// A number below `below`.
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    /// A link with one of `rates` in Mbit/s, 5 to 64 ms, often jitter, and in half of all cases
    /// loss.
    pub fn link(&mut self, rates: std::ops::RangeInclusive<u64>) -> LinkSpec {
        let rate = rates.start() + self.roll(rates.end() - rates.start() + 1);
        let delay = 5 + self.roll(60) as u32;
        let jitter = self.roll(3) as u32 * delay / 10;
        let ms = Duration::from_millis(1);
        LinkSpec::symmetric(Config {
            rate: Some(Bitrate::mbit(rate)),
            delay: ms * delay,
            jitter: Jitter {
                spread: ms * jitter,
                reorder: self.roll(2) == 1,
                ..Jitter::NONE
            },
            loss: Loss::Random([0.0, 0.0, 0.005, 0.02][self.roll(4) as usize]),
            ..Config::default()
        })
    }

    /// The rate of the way back on a link of `rate`: the same, or a part, as with DSL, cable and
    /// radio.
    pub fn way_back(&mut self, rate: Bitrate) -> Bitrate {
        Bitrate::bps(rate.as_bps() / [1, 4, 10, 20][self.roll(4) as usize])
    }

    /// Links as sites have them, two or three: 3 to 250 Mbit/s and 5 to 200 ms, small ones as often
    /// as big ones, half of them with jitter of up to 30 % of the delay, half with loss of up to 3
    /// %. In a fifth of all sets the first link moves, and each other one as often as not.
    pub fn links(&mut self) -> Vec<LinkSpec> {
        let count = 2 + self.roll(2);
        let moves = self.roll(5) == 0;
        let link = |index| {
            let text = match moves && (index == 0 || self.roll(2) == 0) {
                true => self.moving(),
                false => self.still(),
            };
            text.parse().expect("it has the form of a link")
        };
        (0..count).map(link).collect()
    }

    fn still(&mut self) -> String {
        let (rate, delay) = (self.rate(), self.delay());
        let jitter = self.jitter(delay);
        let loss = match self.roll(2) {
            0 => String::new(),
            _ => format!("/{}%", (1 + self.roll(30)) as f64 / 10.0),
        };
        format!("{rate}/{delay}{jitter}{loss}")
    }

    /// With about as much on average as those that do not move.
    fn moving(&mut self) -> String {
        let motions = Motion::ALL.len() as u64;
        let motion = Motion::ALL[self.roll(motions) as usize];
        let seed = self.roll(1000);
        let usual = motion.trace(seed, 1.0).mean_rate();
        let usual = usual.map_or(1.0, |rate| rate.as_bps() as f64 / 1e6);
        let factor = (self.rate() as f64 / usual * 100.0).ceil() / 100.0;
        let delay = self.delay();
        format!("{}@{seed}*{factor}/{delay}", motion.name())
    }

    fn jitter(&mut self, delay: u64) -> String {
        let spread = self.roll(delay * 3 / 10 + 1);
        match self.roll(8) {
            _ if spread == 0 => String::new(),
            0..4 => String::new(),
            4..7 => format!("±{spread}"),
            7.. => format!("±{spread}r"),
        }
    }

    /// Mbit/s.
    fn rate(&mut self) -> u64 {
        let [from, to] = [[3, 10], [10, 30], [30, 100], [100, 250]][self.roll(4) as usize];
        from + self.roll(to - from + 1)
    }

    /// Milliseconds.
    fn delay(&mut self) -> u64 {
        let [from, to] = [[5, 15], [15, 40], [40, 90], [90, 200]][self.roll(4) as usize];
        from + self.roll(to - from + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_sets_move_and_all_are_within_bounds() {
        let sets: Vec<_> = (0..500).map(|seed| Dice::new(seed).links()).collect();

        let moving = |links: &&Vec<LinkSpec>| links.iter().any(|link| link.up.trace.is_some());
        let moving = sets.iter().filter(moving).count();
        assert!((70..130).contains(&moving), "{moving} of 500");
        for config in sets.iter().flatten().map(|link| &link.up) {
            let mbit = config.rate.expect("all have a rate").as_bps() as f64 / 1e6;
            assert!((2.9..=252.0).contains(&mbit), "{config:?}");
            let ms = config.delay.as_millis();
            assert!((5..=200).contains(&ms), "{config:?}");
            assert!(config.jitter.spread <= config.delay * 3 / 10, "{config:?}");
            assert!(
                config.loss.ratio().is_some_and(|loss| loss <= 0.03),
                "{config:?}"
            );
        }
    }
}
