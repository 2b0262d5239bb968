//! Decides packet by packet what the wire loses.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use crate::config::Loss;

/// A number in [0, 1) with 53 random bits.
pub(crate) fn unit(rng: &mut Pcg64Mcg) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// The state of the loss process; it lives on when the configured loss changes.
#[derive(Debug)]
pub(crate) struct Process {
    rng: Pcg64Mcg,
    bad: bool,
}

impl Process {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rng: Pcg64Mcg::seed_from_u64(seed),
            bad: false,
        }
    }

    /// Whether the packet of `size` bytes with this number among all offered is lost.
    pub(crate) fn loses(&mut self, loss: &Loss, number: u64, size: usize) -> bool {
        match *loss {
            Loss::None => false,
            Loss::Random(p) => unit(&mut self.rng) < p,
            Loss::GilbertElliott { p, r, h, k } => {
                let change = if self.bad { r } else { p };
                self.bad ^= unit(&mut self.rng) < change;
                let survive = if self.bad { h } else { k };
                unit(&mut self.rng) >= survive
            }
            Loss::Exact(ref numbers) => numbers.contains(&number),
            Loss::Sizes(ref sizes) => sizes.iter().any(|range| range.contains(&size)),
        }
    }
}
