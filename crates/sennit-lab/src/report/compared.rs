//! Published figures beside ours: what came of each, and of all of them.

use std::fmt;

use super::Results;
use crate::error::Error;
use crate::figure::Figure;
use crate::scenario::{Published, Scenario};

/// A published figure beside ours.
pub(crate) struct Compared {
    pub(super) published: Published,
    /// In the unit of the tables, as the other figures here.
    ours: Option<f64>,
    pub(super) predicted: Option<f64>,
    /// Whether its step is in the results.
    is_played: bool,
    /// In how many of the runs ours was measured.
    runs: (usize, usize),
    is_exact: bool,
}

/// What came of a published figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Ours is at least as good.
    Reached,
    /// It is not, and the reason says that theirs was not physical, or not the same.
    Explained,
    /// It is not, and the reason says that it could be.
    Open,
    /// It is not, and there is no reason.
    Unexplained,
    /// Some run has none, so whatever the others have does not count.
    Failed,
    /// Nobody knows: this machine was too busy for the links to be exact.
    NotExact,
}

impl Compared {
    fn new(published: Published, results: &Results) -> Result<Self, Error> {
        let mut steps = results.summary.iter();
        let step = steps.find(|step| step.name == published.step);
        let figure = published.figure;
        let ours = step.and_then(|step| match published.traffic {
            Some(number) => step.figure_of(number, figure),
            None => step.figure(figure),
        });
        let (scale, _) = figure.scale();
        Ok(Self {
            ours: ours.map(|spread| spread.median * scale),
            predicted: published.predicted().map_err(Error::Scenario)?,
            is_played: step.is_some(),
            runs: (ours.map_or(0, |spread| spread.runs), results.runs),
            is_exact: !figure.depends_on_links() || results.is_exact(&published.step),
            published,
        })
    }

    /// `None` if nothing was published, or nothing was played.
    fn verdict(&self) -> Option<Verdict> {
        let (measured, all) = self.runs;
        let known = self.published.value.filter(|_| self.is_played);
        known.map(|_| match self.ours {
            Some(ours) if measured == all => match self.published.is_reached(ours) {
                _ if !self.is_exact => Verdict::NotExact,
                Some(true) => Verdict::Reached,
                _ if self.published.is_open() => Verdict::Open,
                _ if self.published.why.is_empty() => Verdict::Unexplained,
                _ => Verdict::Explained,
            },
            Some(_) | None => Verdict::Failed,
        })
    }

    /// `None` if there is nothing to be reached. What failed, in one run even, was not.
    pub(super) fn is_reached(&self) -> Option<bool> {
        self.verdict().map(|verdict| verdict == Verdict::Reached)
    }

    /// Ours, with what makes it worthless.
    pub(super) fn here(&self) -> String {
        let (measured, all) = self.runs;
        match self.ours {
            _ if !self.is_played => "not played".into(),
            Some(_) if measured < all => {
                format!("{} ({measured} of {all} runs)", self.text(self.ours))
            }
            Some(_) if !self.is_exact => format!("{}, not exact", self.text(self.ours)),
            Some(_) | None => self.text(self.ours),
        }
    }

    /// The reason as it was given, and loudly that there is none.
    pub(super) fn remark(&self) -> &str {
        match self.verdict() {
            Some(Verdict::Unexplained) => "NO REASON GIVEN",
            _ => &self.published.why,
        }
    }

    /// Ours, if it was played.
    pub(super) fn ours(&self) -> Option<f64> {
        self.ours
    }

    /// A figure of this row, as tables have it.
    pub(super) fn text(&self, value: Option<f64>) -> String {
        let figure = self.published.figure;
        let (_, digits) = figure.scale();
        let digits = digits.max(usize::from(figure == Figure::Goodput) * 2);
        value.map_or("-".into(), |value| format!("{value:.digits$}"))
    }

    /// What to look after, if that is so: it was missed and nobody says why, or it has no figure.
    pub(crate) fn complaint(&self) -> Option<String> {
        let reason = match self.verdict()? {
            Verdict::Unexplained => "missed, NO REASON GIVEN",
            Verdict::Open => "NOT REACHED",
            Verdict::Failed => "not measured in every run",
            Verdict::NotExact => "not exact",
            Verdict::Reached | Verdict::Explained => return None,
        };
        let Published { by, what, .. } = &self.published;
        let (theirs, ours) = (self.text(self.published.value), self.here());
        Some(format!(
            "{reason}: {what} ({by}): {theirs} published, {ours} here"
        ))
    }
}

/// Every published figure of the scenario, those too that were left out for lack of time.
pub(crate) fn compare(results: &Results) -> Result<Vec<Compared>, Error> {
    let scenario = Scenario::parse(&results.text)?;
    let published = scenario.published.into_iter();
    published.map(|it| Compared::new(it, results)).collect()
}

/// What all published figures came to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Count {
    verdicts: Vec<Verdict>,
    not_played: usize,
}

impl Count {
    pub(crate) fn of<'a>(rows: impl IntoIterator<Item = &'a Compared>) -> Self {
        let mut count = Self::default();
        for row in rows {
            count.verdicts.extend(row.verdict());
            count.not_played += usize::from(!row.is_played);
        }
        count
    }

    fn number(&self, verdict: Verdict) -> usize {
        self.verdicts.iter().filter(|it| **it == verdict).count()
    }

    /// Why the rows cannot stand as they are, if they cannot: each is to be reached or to say why
    /// not, and nothing is where nothing was published.
    pub(crate) fn lack(&self) -> Option<String> {
        let some = [
            (Verdict::Unexplained, "missed and no reason given"),
            (Verdict::Failed, "not measured in every run"),
            (
                Verdict::NotExact,
                "not exact: this machine was too busy, so play those steps again when nothing else runs",
            ),
        ];
        let lacks = some.iter().filter_map(|(verdict, words)| {
            let number = self.number(*verdict);
            (number > 0).then(|| format!("{number} {words}"))
        });
        let lacks: Vec<String> = lacks.collect();
        match lacks.is_empty() {
            true if self.verdicts.is_empty() => {
                Some("nothing was published of what was played".into())
            }
            true => None,
            false => Some(lacks.join("; ")),
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.verdicts.len();
        write!(f, "{known} published figures beside the same played here: ")?;
        write!(f, "{} are reached", self.number(Verdict::Reached))?;
        let others = [
            (
                Verdict::Explained,
                "are missed because theirs was not physical or is not the same",
            ),
            (Verdict::Open, "are NOT REACHED though they are possible"),
            (Verdict::Unexplained, "are missed, and NO REASON IS GIVEN"),
            (Verdict::Failed, "were not measured in every run"),
            (Verdict::NotExact, "are not exact, as this machine was busy"),
        ];
        for (verdict, words) in others {
            match self.number(verdict) {
                0 => {}
                number => write!(f, ", {number} {words}")?,
            }
        }
        f.write_str(".")?;
        match self.not_played {
            0 => Ok(()),
            left_out => write!(f, " {left_out} rows were NOT PLAYED."),
        }
    }
}
