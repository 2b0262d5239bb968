//! Scripts of links that move, made from a seed: the shapes that real ones have, not recordings of
//! them.
//!
//! - `lte`: 0.1 to 20 Mbit/s, new each 100 ms: fading of a second on a drift of ten. After drives
//!   with saturatr (Winstein et al., NSDI 2013).
//! - `starlink`: each 15 s another satellite: 50 to 200 ms of silence, delay 5 to 30 ms more or
//!   less, 60 to 140 Mbit/s. After Mohan et al., WWW 2024, and Garcia et al., LEO-NET 2023.
//! - `geo`: 20 Mbit/s that rain takes down to a tenth, code by code, and back within a minute or
//!   two. After ITU-R P.1623 and the codes of DVB-S2X.
//! - `wifi`: rates of 802.11n (one stream, 20 MHz) up and down, neighbours that take airtime, a
//!   scan each minute. After Minstrel's step and off-channel scans of 100 ms.
//! - `steps`: 50, 10, 30, 5, 40, 15 Mbit/s, each for 1.5 s; the seed changes nothing. Made up:
//!   harder than the above.
//! - `swell`: 5 to 60 Mbit/s and back, by a constant ratio, each way within 1.5 to 4 s, new each
//!   50 ms. Made up: what a shaper has to follow.
//! - `marginal`: 10 Mbit/s whose delay is 100 ms for seconds, then swings up to 1,200 ms for
//!   seconds. After what users tell of bonds with a failing leg.
//!
//! Seeded draws and plain arithmetic only, so that a script is the same on every machine.

use std::{fmt::Write as _, str::FromStr, time::Duration};

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;
use sennit_packet::Bitrate;

use crate::config::Queue;
use crate::loss::unit;
use crate::trace::{BadTrace, Passage, Step, Trace};

const MS: Duration = Duration::from_millis(1);
/// A script is at least so long before it repeats.
const PERIOD: Duration = Duration::from_secs(300);
/// Mbit/s of 802.11n with one stream on 20 MHz, MCS 0 to 7.
const WIFI_RATES: [f64; 8] = [6.5, 13.0, 19.5, 26.0, 39.0, 52.0, 58.5, 65.0];
/// What of a Wi-Fi rate is left for packets.
const WIFI_SHARE: f64 = 0.65;
/// What is left of a GEO link's rate from one code to the next more robust one.
const CODES: [f64; 7] = [1.0, 0.8, 0.62, 0.45, 0.3, 0.18, 0.1];

/// A way in which a link moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Motion {
    /// A modem in a moving car.
    Lte,
    /// A terminal of a low constellation.
    Starlink,
    /// A geostationary satellite in showers.
    Geo,
    /// A crowded radio channel.
    Wifi,
    /// A stair.
    Steps,
    /// A rate that goes up and down within seconds.
    Swell,
    /// A leg that is about to fail, for ever.
    Marginal,
}

impl Motion {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Lte,
        Self::Starlink,
        Self::Geo,
        Self::Wifi,
        Self::Steps,
        Self::Swell,
        Self::Marginal,
    ];

    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lte => "lte",
            Self::Starlink => "starlink",
            Self::Geo => "geo",
            Self::Wifi => "wifi",
            Self::Steps => "steps",
            Self::Swell => "swell",
            Self::Marginal => "marginal",
        }
    }

    /// What such a link holds back before it drops.
    pub fn queue(self) -> Queue {
        match self {
            Self::Lte => Queue::Bytes(500_000),
            Self::Starlink | Self::Wifi | Self::Marginal => Queue::Time(MS * 100),
            Self::Geo | Self::Swell => Queue::Time(MS * 300),
            Self::Steps => Queue::Time(MS * 50),
        }
    }

    /// The script of a seed, all rates times `factor`. Its name is `word@seed`, with `*factor` if
    /// that is not 1.
    ///
    /// # Panics
    /// If the factor is not above zero.
    pub fn trace(self, seed: u64, factor: f64) -> Trace {
        assert!(factor > 0.0, "a link at no rate does not move");
        let mut name = format!("{}@{seed}", self.name());
        if factor != 1.0 {
            let _ = write!(name, "*{factor}");
        }
        let mut script = Script::new(seed, factor);
        while script.length < PERIOD {
            match self {
                Self::Lte => script.drive(),
                Self::Starlink => script.pass_of_satellite(),
                Self::Geo => script.shower(),
                Self::Wifi => script.channel(),
                Self::Steps => script.stair(),
                Self::Swell => script.wave(),
                Self::Marginal => script.leg(),
            }
        }
        Trace::new(name, script.steps).expect("every motion sends at times")
    }
}

/// Reads `word[@seed][*factor]`: the motion, and its script.
pub fn script(text: &str) -> Result<(Motion, Trace), BadTrace> {
    let (motion, factor) = text.split_once('*').unwrap_or((text, "1"));
    let (word, seed) = motion.split_once('@').unwrap_or((motion, "1"));
    let motion: Motion = word.parse().map_err(BadTrace)?;
    let seed = seed.parse();
    let seed = seed.map_err(|_| BadTrace(format!("`{text}`: the seed is not a whole number")))?;
    let sane = |factor: &f64| (0.001..=1000.0).contains(factor);
    let factor = factor.parse().ok().filter(sane);
    let factor = factor.ok_or_else(|| BadTrace(format!("`{text}`: a factor is 0.001 to 1000")))?;
    Ok((motion, motion.trace(seed, factor)))
}

impl FromStr for Motion {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|motion| motion.name() == word);
        known.ok_or_else(|| {
            let words = Self::ALL.map(Self::name).join(", ");
            format!("`{word}` is none of {words}")
        })
    }
}

/// Steps so far, and what the next ones depend on.
struct Script {
    rng: Pcg64Mcg,
    factor: f64,
    steps: Vec<Step>,
    length: Duration,
    /// Where the slow part of a walk is, in a unit of the motion's own.
    drift: f64,
    /// Its fast part.
    fading: f64,
    /// Extra delay of the satellite in use.
    detour: Duration,
}

impl Script {
    fn new(seed: u64, factor: f64) -> Self {
        Self {
            rng: Pcg64Mcg::seed_from_u64(seed),
            factor,
            steps: Vec::new(),
            length: Duration::ZERO,
            drift: 0.5,
            fading: 0.0,
            detour: MS * 15,
        }
    }

    fn push(&mut self, span: Duration, mbit: f64, delay: Duration) {
        let rate = Bitrate::bps((mbit * self.factor * 1e6).round() as u64);
        self.length += span;
        self.steps.push(Step {
            delay,
            ..Step::at(span, rate)
        });
    }

    fn hold(&mut self, span: Duration, delay: Duration) {
        self.length += span;
        let passage = Passage::Held;
        let rate = None;
        self.steps.push(Step {
            span,
            rate,
            delay,
            passage,
        });
    }

    fn draw(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * unit(&mut self.rng)
    }

    fn draw_ms(&mut self, from: u32, to: u32) -> Duration {
        MS * self.draw(from.into(), to.into()) as u32
    }

    fn chance(&mut self, probability: f64) -> bool {
        unit(&mut self.rng) < probability
    }

    /// Steps of 100 ms between two cells' worth of road.
    fn drive(&mut self) {
        let goal = self.draw(0.25, 1.0);
        for _ in 0..100 {
            self.drift += (goal - self.drift) * 0.02;
            self.fading = self.fading * 0.9 + self.draw(-0.12, 0.12);
            let level = (self.drift + self.fading).clamp(0.0, 1.0);
            self.push(MS * 100, geometric(0.1, 20.0, level), Duration::ZERO);
        }
    }

    fn pass_of_satellite(&mut self) {
        let change = self.draw_ms(5, 31);
        let farther = if self.detour < MS * 10 {
            true
        } else {
            self.detour < MS * 30 && self.chance(0.5)
        };
        self.detour = match farther {
            true => self.detour + change,
            false => self.detour.saturating_sub(change),
        };
        let silence = self.draw_ms(50, 201);
        self.hold(silence, self.detour);
        let share = self.draw(0.65, 1.35);
        let mut left = MS * 15_000 - silence;
        while !left.is_zero() {
            let span = left.min(MS * 100);
            let rate = 100.0 * (share + self.draw(-0.05, 0.05));
            self.push(span, rate, self.detour);
            left -= span;
        }
    }

    fn shower(&mut self) {
        let clear = self.draw_ms(15_000, 60_000);
        self.push(clear, 20.0, Duration::ZERO);
        let deepest = self.draw(1.0, CODES.len() as f64) as usize;
        let down = 1..deepest;
        for code in down.clone().chain([deepest]).chain(down.rev()) {
            let span = self.draw_ms(1000, 6000);
            self.push(span, 20.0 * CODES[code], Duration::ZERO);
        }
    }

    /// A minute between two scans.
    fn channel(&mut self) {
        let end = self.length + Duration::from_secs(60);
        while self.length < end {
            self.drift = (self.drift + self.draw(-0.2, 0.2)).clamp(0.0, 1.0);
            let mcs = (self.drift * (WIFI_RATES.len() - 1) as f64).round() as usize;
            let neighbours = self.chance(0.15);
            let share = if neighbours { self.draw(0.2, 0.6) } else { 1.0 };
            let wait = if neighbours {
                self.draw_ms(0, 9)
            } else {
                Duration::ZERO
            };
            let span = self.draw_ms(50, 500);
            self.push(span, WIFI_RATES[mcs] * WIFI_SHARE * share, wait);
        }
        self.hold(MS * 100, Duration::ZERO);
    }

    fn stair(&mut self) {
        for mbit in [50.0, 10.0, 30.0, 5.0, 40.0, 15.0] {
            self.push(MS * 1500, mbit, Duration::ZERO);
        }
    }

    fn wave(&mut self) {
        for falls in [false, true] {
            let steps = self.draw(30.0, 80.0) as u32;
            for step in 0..steps {
                let part = f64::from(step) / f64::from(steps);
                let level = if falls { 1.0 - part } else { part };
                self.push(MS * 50, geometric(5.0, 60.0, level), Duration::ZERO);
            }
        }
    }

    fn leg(&mut self) {
        let calm = self.draw_ms(3000, 12_000);
        self.push(calm, 10.0, MS * 100);
        let swings = self.draw(8.0, 30.0) as u32;
        for _ in 0..swings {
            let delay = self.draw_ms(100, 1201);
            self.push(MS * 200, 10.0, delay);
        }
    }
}

/// Between two rates by ratio, exact at both ends. Only products and roots: logarithms differ
/// between machines.
fn geometric(from: f64, to: f64, level: f64) -> f64 {
    let (mut low, mut high) = (from, to);
    let mut level = level;
    // Each round halves the interval of ratios; after 12 the rest is below a thousandth.
    for _ in 0..12 {
        let middle = (low * high).sqrt();
        level *= 2.0;
        if level >= 1.0 {
            (low, level) = (middle, level - 1.0);
        } else {
            high = middle;
        }
    }
    if level > 0.0 { high } else { low }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(seed: u64) -> impl Iterator<Item = (Motion, Trace)> {
        Motion::ALL
            .into_iter()
            .map(move |motion| (motion, motion.trace(seed, 1.0)))
    }

    #[test]
    fn a_script_is_that_of_its_seed_and_word() {
        for (motion, trace) in all(3) {
            assert_eq!(trace, motion.trace(3, 1.0));
            assert_eq!(Ok(motion), motion.name().parse());
            if motion != Motion::Steps {
                assert_ne!(trace.steps(), motion.trace(4, 1.0).steps(), "{motion:?}");
            }
        }
        for text in ["lté", "lte@", "lte@-1", "lte*0", "lte@1*x", "lte@1*1e9", ""] {
            assert!(script(text).is_err(), "{text}");
        }
        assert_eq!(
            script("lte*2"),
            Ok((Motion::Lte, Motion::Lte.trace(1, 2.0)))
        );
    }

    #[test]
    fn rates_and_delays_are_within_what_the_table_says() {
        for seed in 0..20 {
            for (motion, trace) in all(seed) {
                let (mbit, ms) = match motion {
                    Motion::Lte => (0.1..=20.0, 0..=0),
                    Motion::Starlink => (60.0..=140.0, 0..=60),
                    Motion::Geo => (2.0..=20.0, 0..=0),
                    Motion::Wifi => (0.8..=42.3, 0..=8),
                    Motion::Steps => (5.0..=50.0, 0..=0),
                    Motion::Swell => (5.0..=60.0, 0..=0),
                    Motion::Marginal => (10.0..=10.0, 100..=1200),
                };
                for step in trace.steps() {
                    let rate = step.rate.map(|rate| rate.as_bps() as f64 / 1e6);
                    assert!(
                        rate.is_none_or(|rate| mbit.contains(&rate)),
                        "{motion:?}: {step:?}"
                    );
                    assert!(ms.contains(&step.delay.as_millis()), "{motion:?}: {step:?}");
                }
                assert!((PERIOD..PERIOD * 2).contains(&trace.period()), "{motion:?}");
            }
        }
    }

    #[test]
    fn lte_rates_are_correlated_and_use_their_range() {
        for seed in 0..20 {
            let trace = Motion::Lte.trace(seed, 1.0);
            let rates = trace.steps().iter().filter_map(|step| step.rate);
            let rates: Vec<f64> = rates.map(|rate| rate.as_bps() as f64 / 1e6).collect();
            let mean = rates.iter().sum::<f64>() / rates.len() as f64;
            let variance = |lag: usize| {
                let pairs = rates.iter().zip(&rates[lag..]);
                pairs.map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>()
            };
            let correlation = variance(1) / variance(0);
            assert!(
                (0.7..0.99).contains(&correlation),
                "{seed}: {correlation:.2}"
            );
            assert!((3.0..15.0).contains(&mean), "{seed}: {mean:.1}");
            assert!(rates.iter().any(|rate| *rate < 1.0), "{seed}");
            assert!(rates.iter().any(|rate| *rate > 18.0), "{seed}");
        }
    }

    #[test]
    fn each_satellite_begins_with_silence_and_another_delay() {
        let trace = Motion::Starlink.trace(5, 1.0);
        let held = trace
            .steps()
            .iter()
            .enumerate()
            .filter(|(_, step)| step.passage == Passage::Held);
        let held: Vec<_> = held.collect();
        assert_eq!(held.len(), 20);
        for (index, step) in held.into_iter().skip(1) {
            let change = step.delay.abs_diff(trace.steps()[index - 1].delay);
            assert!((MS * 5..=MS * 30).contains(&change), "{change:?}");
            assert!((MS * 50..=MS * 200).contains(&step.span));
        }
    }

    #[test]
    fn a_factor_scales_rates_alone() {
        let (once, thrice) = (Motion::Steps.trace(0, 1.0), Motion::Steps.trace(0, 3.0));
        assert_eq!((once.name(), thrice.name()), ("steps@0", "steps@0*3"));
        assert_eq!(once.mean_rate(), Some(Bitrate::mbit(25)));
        assert_eq!(thrice.mean_rate(), Some(Bitrate::mbit(75)));
        assert_eq!(once.period(), thrice.period());
    }
}
