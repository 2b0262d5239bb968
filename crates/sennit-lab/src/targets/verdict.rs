//! What rows of targets come to.

use std::fmt;

/// What a row came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// What was asked for.
    Reached,
    /// Something else, or nothing.
    Missed,
    /// Nobody knows: this machine was too busy for the links to be exact.
    NotExact,
}

impl Verdict {
    pub(super) fn of(reached: bool) -> Self {
        match reached {
            true => Self::Reached,
            false => Self::Missed,
        }
    }

    /// As tables have it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Reached => "yes",
            Self::Missed => "NO",
            Self::NotExact => "not exact",
        }
    }
}

/// What several rows came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) asked: usize,
    reached: usize,
    not_exact: usize,
}

impl Count {
    pub(super) fn add(&mut self, verdict: Verdict) {
        self.asked += 1;
        self.reached += usize::from(verdict == Verdict::Reached);
        self.not_exact += usize::from(verdict == Verdict::NotExact);
    }

    /// Nothing was reached where nothing was asked.
    pub(super) fn is_all_reached(self) -> bool {
        self.asked > 0 && self.reached == self.asked
    }
}

impl FromIterator<Verdict> for Count {
    fn from_iter<T: IntoIterator<Item = Verdict>>(verdicts: T) -> Self {
        let mut count = Self::default();
        verdicts.into_iter().for_each(|verdict| count.add(verdict));
        count
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} reached", self.reached, self.asked)?;
        match self.not_exact {
            0 => Ok(()),
            some => write!(f, ", {some} not exact"),
        }
    }
}
