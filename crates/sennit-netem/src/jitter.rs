//! The variation of the delay.
//!
//! With reordering each packet draws its own deviation. Without it the deviation walks on straight
//! lines between drawn points. The points lie so far apart in time that the delay falls by less
//! than time passes, so order holds by itself. Drawing per packet and then forcing order would
//! instead pin the delay of a fast stream to the largest deviation, and its mean would be wrong.

use std::time::{Duration, Instant};

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

use crate::config::{Jitter, Shape};
use crate::loss::unit;

/// Points this many reaches apart bound the slope of the delay to one half.
const POINT_DISTANCE: u32 = 4;

#[derive(Debug)]
pub(crate) struct Process {
    rng: Pcg64Mcg,
    walk: Option<Walk>,
}

/// A straight line between two drawn deviations, in seconds.
#[derive(Debug, Clone, Copy)]
struct Walk {
    start: Instant,
    from: f64,
    to: f64,
}

impl Process {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rng: Pcg64Mcg::seed_from_u64(seed),
            walk: None,
        }
    }

    /// Forgets where the walk was, when another jitter is configured.
    pub(crate) fn restart(&mut self) {
        self.walk = None;
    }

    /// The delay of a packet that leaves the wire at `left`; these times never decrease.
    pub(crate) fn delay(&mut self, base: Duration, jitter: Jitter, left: Instant) -> Duration {
        if jitter.spread.is_zero() {
            return base;
        }
        let deviation = if jitter.reorder {
            self.draw(jitter)
        } else {
            self.walk_to(jitter, left)
        };
        Duration::try_from_secs_f64(base.as_secs_f64() + deviation).unwrap_or(Duration::ZERO)
    }

    fn draw(&mut self, jitter: Jitter) -> f64 {
        let spread = jitter.spread.as_secs_f64();
        match jitter.shape {
            Shape::Uniform => (2.0 * unit(&mut self.rng) - 1.0) * spread,
            Shape::Normal => self.normal().clamp(-3.0, 3.0) * spread,
        }
    }

    /// Twelve uniform draws have variance one; unlike logarithms they give equal bits everywhere.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| unit(&mut self.rng)).sum::<f64>() - 6.0
    }

    fn walk_to(&mut self, jitter: Jitter, at: Instant) -> f64 {
        let period = jitter.reach() * POINT_DISTANCE;
        let mut walk = match self.walk {
            Some(walk) if at < walk.start + period * 2 => walk,
            _ => Walk {
                start: at,
                from: self.draw(jitter),
                to: self.draw(jitter),
            },
        };
        if at >= walk.start + period {
            walk = Walk {
                start: walk.start + period,
                from: walk.to,
                to: self.draw(jitter),
            };
        }
        self.walk = Some(walk);
        let progress = (at - walk.start).as_secs_f64() / period.as_secs_f64();
        walk.from + (walk.to - walk.from) * progress
    }
}
