//! Links by chance, from a seed alone.

use std::time::Duration;

use sennit_netem::{Bitrate, Config, Jitter, Loss};

use crate::LinkSpec;

/// Small random numbers.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The dice of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `below`.
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    /// A link with one of `rates` in Mbit/s, 5 to 64 ms, often jitter, and in half of all cases loss.
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

    /// The rate of the way back on a link of `rate`: the same, or a part, as with DSL, cable and radio.
    pub fn way_back(&mut self, rate: Bitrate) -> Bitrate {
        Bitrate::bps(rate.as_bps() / [1, 4, 10, 20][self.roll(4) as usize])
    }
}
