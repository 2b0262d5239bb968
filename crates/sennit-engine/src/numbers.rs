//! Whether a class's packets go on with their numbers over its next connection.
//!
//! Under reliable delivery what was on its way over a connection that is lost leaves again over
//! the next one, and some of it has arrived. The far end knows that only if the numbers go on, and
//! they may go on only if both ends still have what goes with them: one may have restarted, or be
//! another host. So a hub names each run of numbers ([`Runs`]). An edge says with its request
//! which run its class has, and the hub's answer names the run that both use from then on: the
//! same one, if the hub has it too, or else a new one. Classes of other delivery ask for a new one
//! each time, for theirs may become reliable while the connection lasts.
//!
//! ```text
//! numbers=9f1c60d2e3b4a577        asked; 0 is none
//! numbers=old:9f1c60d2e3b4a577    answered: they go on
//! numbers=new:3b0c41a2d5e6f788    answered: they start over
//! ```

use std::{fmt, str::FromStr};

use aws_lc_rs::hmac;
use rand::{Rng, SeedableRng, rngs::StdRng};

/// The name of a parameter of the `sennit` field.
pub(crate) const NUMBERS: &str = "numbers";
const OLD: &str = "old:";
const NEW: &str = "new:";

/// The name of a run of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run(u64);

impl Run {
    /// What no class has.
    pub(crate) const NONE: Self = Self(0);
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl FromStr for Run {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16).map(Self)
    }
}

/// The run of numbers that a tunnel has, as a hub says in its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) run: Run,
    /// It is the one that the class has already.
    pub(crate) go_on: bool,
}

impl Numbers {
    /// Reads what a hub said.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        let (go_on, name) = match word.strip_prefix(OLD) {
            Some(name) => (true, name),
            None => (false, word.strip_prefix(NEW)?),
        };
        let run = name.parse().ok().filter(|&run| run != Run::NONE)?;
        Some(Self { run, go_on })
    }

    /// Whether a pipe can have them that has this run.
    pub(crate) fn fit(self, run: Run) -> bool {
        !self.go_on || self.run == run
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let age = if self.go_on { OLD } else { NEW };
        write!(f, "{age}{}", self.run)
    }
}

/// Names runs of numbers.
#[derive(Debug)]
pub(crate) struct Runs {
    rng: StdRng,
}

impl Runs {
    pub(crate) fn new(seed: &[u8; 32]) -> Self {
        // Not the stream of random numbers that others get from the same seed.
        let key = hmac::Key::new(hmac::HMAC_SHA256, seed);
        let tag = hmac::sign(&key, b"sennit runs of numbers");
        let seed = tag.as_ref().try_into().expect("SHA-256 has 32 bytes");
        Self {
            rng: StdRng::from_seed(seed),
        }
    }

    /// What a tunnel has whose edge has `theirs`, while its class here has `ours`.
    pub(crate) fn agree(&mut self, theirs: Run, ours: Run) -> Numbers {
        let go_on = theirs == ours && ours != Run::NONE;
        let run = if go_on { ours } else { self.name(theirs) };
        Numbers { run, go_on }
    }

    /// A new name, and not this one.
    fn name(&mut self, other: Run) -> Run {
        loop {
            let run = Run(self.rng.next_u64());
            if run != Run::NONE && run != other {
                return run;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_only_where_both_ends_have_the_same_run() {
        let mut runs = Runs::new(&[7; 32]);
        let first = runs.agree(Run::NONE, Run::NONE);
        assert!(!first.go_on);
        let again = runs.agree(first.run, first.run);
        assert!(again.go_on && again.run == first.run);
        for (theirs, ours) in [(first.run, Run::NONE), (Run::NONE, first.run)] {
            let other = runs.agree(theirs, ours);
            assert!(!other.go_on && other.run != first.run);
        }
    }

    /// A hub that restarts with the same seed gives the same names.
    #[test]
    fn a_new_run_never_has_the_name_of_the_edges_own() {
        let first = Runs::new(&[7; 32]).agree(Run::NONE, Run::NONE);
        let other = Runs::new(&[7; 32]).agree(first.run, Run::NONE);
        assert!(!other.go_on && other.run != first.run);
    }

    #[test]
    fn what_is_said_is_understood() {
        let mut runs = Runs::new(&[7; 32]);
        let new = runs.agree(Run::NONE, Run::NONE);
        let old = runs.agree(new.run, new.run);
        for numbers in [new, old] {
            assert_eq!(Numbers::parse(&numbers.to_string()), Some(numbers));
        }
        for nonsense in [
            "",
            "old:",
            "new:x",
            "new:0",
            "3b0c",
            "new:11112222333344445",
        ] {
            assert_eq!(Numbers::parse(nonsense), None, "{nonsense}");
        }
        assert!(old.fit(new.run) && !old.fit(Run::NONE) && new.fit(Run::NONE));
    }
}
