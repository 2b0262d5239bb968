//! What a code of forward error correction brings back.

use sennit_engine::Code;

/// Share of the packets that a code protects and that it does not bring back, where this share of
/// all packets is lost, each by chance.
///
/// Of a group of `n` packets, repairs among them, up to as many may be lost as there are repairs;
/// if more are, nothing comes back. A sliding code is taken for one whose window has no end: each
/// repair that arrives brings back one lost packet, wherever it was.
pub(crate) fn missing(code: Code, loss: f64) -> f64 {
    match code {
        Code::Xor { sources } => of_groups(sources, 1, loss),
        Code::Rs { sources, repairs } => of_groups(sources, repairs, loss),
        Code::Rlc { .. } => (loss - code.overhead() * (1.0 - loss)).max(0.0),
    }
}

fn of_groups(sources: u8, repairs: u8, loss: f64) -> f64 {
    let count = i32::from(sources) + i32::from(repairs);
    // The chance that none of them is lost; then that one more is, and so on.
    let mut chance = (1.0 - loss).powi(count);
    let mut missing = 0.0;
    for lost in 1..=count {
        chance *= f64::from(count - lost + 1) / f64::from(lost) * loss / (1.0 - loss);
        if lost > i32::from(repairs) {
            missing += chance * f64::from(lost) / f64::from(count);
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing_of(code: &str, loss: f64) -> f64 {
        let sennit_engine::Fec::Fixed(code) = code.parse().expect("a code") else {
            panic!("{code} is no code of its own");
        };
        missing(code, loss)
    }

    #[test]
    fn a_group_brings_back_as_many_as_it_has_repairs() {
        let xor = missing_of("xor:1+1", 0.1);
        assert!((xor - 0.01).abs() < 1e-12, "both copies are lost: {xor}");
        // 1 − P(0) − P(1) − P(2) of 12, each weighed with the share that is lost.
        let rs = missing_of("rs:10+2", 0.05);
        assert!((0.004..0.006).contains(&rs), "{rs}");
        assert_eq!(missing_of("rs:10+2", 0.0), 0.0);
        assert!(missing_of("rs:10+2", 0.9) < 0.9);
    }

    #[test]
    fn a_window_brings_back_one_for_each_repair() {
        assert_eq!(missing_of("rlc:1/8", 0.05), 0.0);
        let beyond = missing_of("rlc:1/8", 0.2);
        assert!((beyond - (0.2 - 0.1)).abs() < 1e-12, "{beyond}");
    }
}
