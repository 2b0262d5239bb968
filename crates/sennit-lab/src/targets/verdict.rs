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

    /// Why not all was reached, if it was not: nothing is where nothing was asked.
    pub(super) fn lack(self) -> Option<String> {
        let missed = self.asked - self.reached - self.not_exact;
        let not_exact = format!(
            "{} not exact, which says nothing of Sennit: this machine was too busy, so play those \
             steps again when nothing else runs",
            self.not_exact
        );
        match (self.asked, missed, self.not_exact) {
            (0, ..) => Some("nothing is asked of what was measured".into()),
            (_, 0, 0) => None,
            (_, 0, _) => Some(not_exact),
            (_, _, 0) => Some(format!("{missed} missed")),
            (..) => Some(format!("{missed} missed; {not_exact}")),
        }
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
