//! The same test again and again, in several configurations: medians, and whether a difference is
//! one.
//!
//! Each round runs every configuration once, in an order drawn anew, so that what changes slowly
//! changes all of them alike. Differences are taken within a round. Their median has an interval
//! between two of the values themselves: how many of them lie below a median is binomial, whatever
//! they are spread like. Where it holds zero, a difference is not shown.

use std::fmt::{self, Display};

use sennit_load::median;
use serde::{Deserialize, Serialize};

use super::{
    gate::in_words,
    metric::{METRICS, Metric},
    report::Report,
};

/// The version of the document's shape.
pub const SCHEMA: &str = "sennit.test.comparison/1";

/// An interval misses its median so often at most.
const MISSES: f64 = 0.05;
/// Fewer rounds have no interval: even from the least to the greatest of five values, one in 16
/// would miss by chance alone.
const ENOUGH: usize = 6;

/// Figures that are compared in words; the document has all.
pub(super) const TOLD: [&str; 6] = [
    "goodput",
    "p50_rtt",
    "p95_rtt",
    "loss",
    "residual_loss",
    "handshake",
];

/// A value and where it may be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The median.
    pub median: f64,
    /// The lower bound of 95 %; `None` if there were too few rounds.
    pub low: Option<f64>,
    /// The upper one.
    pub high: Option<f64>,
}

/// One figure of one configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The configuration, like `cc=bbr3`.
    pub configuration: String,
    /// The figure's name.
    pub metric: String,
    /// In how many rounds it was measured.
    #[serde(default)]
    pub measured: usize,
    /// Over those rounds.
    pub value: Interval,
    /// Less the first configuration's of the same round; `None` for that one itself.
    pub difference: Option<Interval>,
    /// Whether the interval of the difference leaves zero out; `None` without an interval, and if
    /// one of both was not measured in each round: those that are missing may be the worst.
    pub differs: Option<bool>,
}

/// All rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: String,
    /// How many rounds were whole.
    pub rounds: usize,
    /// Whether somebody ended it before all rounds were whole.
    #[serde(default)]
    pub interrupted: bool,
    /// Decides orders, and what happens by chance in each round.
    pub seed: u64,
    /// What was found.
    pub lines: Vec<Line>,
    /// All reports, round by round, each in the order of configurations.
    pub reports: Vec<Vec<Report>>,
    /// What to know before using the figures.
    pub notes: Vec<String>,
}

/// Numbers that depend on a seed alone (SplitMix64).
#[derive(Debug)]
pub struct Draws(u64);

impl Draws {
    /// Those of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number, such as the seed of something else.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is at least one.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.number()) * bound as u128) >> 64) as usize
    }

    /// The numbers below `count` in some order.
    pub fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            order.swap(last, self.below(last + 1));
        }
        order
    }
}

impl Interval {
    /// The median of values, and what it may be by chance; `None` without any.
    #[must_use]
    pub fn new(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let median = median(&sorted)?;
        let low = outside(sorted.len());
        Some(Self {
            median,
            low: low.map(|index| sorted[index]),
            high: low.map(|index| sorted[sorted.len() - 1 - index]),
        })
    }

    /// Whether zero is outside; `None` without bounds.
    fn leaves_out_zero(&self) -> Option<bool> {
        let (low, high) = self.low.zip(self.high)?;
        Some(low > 0.0 || high < 0.0)
    }
}

/// How many of so many values lie outside of an interval of their median on each side; `None` if
/// all of them are too few.
fn outside(count: usize) -> Option<usize> {
    // How likely none lies below the median, as a logarithm: of many values it is next to nothing.
    let mut likely = 0.5_f64.ln() * count as f64;
    let (mut tail, mut below) = (0.0, 0);
    while below < count {
        tail += likely.exp();
        if 2.0 * tail > MISSES {
            break;
        }
        likely += ((count - below) as f64 / (below + 1) as f64).ln();
        below += 1;
    }
    below.checked_sub(1)
}

impl Comparison {
    /// Says how many rounds were asked for, if somebody ended it before.
    #[must_use]
    pub fn asked(mut self, rounds: usize, interrupted: bool) -> Self {
        if interrupted {
            let note = format!("interrupted: {} of {rounds} rounds were whole", self.rounds);
            self.notes.push(note);
        }
        Self {
            interrupted,
            ..self
        }
    }

    /// Whether each run of each configuration passed all its gates.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.gates().iter().all(|(_, passed, runs)| passed == runs)
    }

    /// Each gate, in how many runs it held, and in how many it was looked at.
    #[must_use]
    pub fn gates(&self) -> Vec<(&str, usize, usize)> {
        let mut gates: Vec<(&str, usize, usize)> = Vec::new();
        let outcomes = self.reports.iter().flatten().map(|report| &report.gates);
        for outcomes in outcomes {
            for (index, outcome) in outcomes.iter().enumerate() {
                if index == gates.len() {
                    gates.push((&outcome.gate, 0, 0));
                }
                gates[index].1 += usize::from(outcome.passed);
                gates[index].2 += 1;
            }
        }
        gates
    }

    /// What whole rounds say; the names are those of the configurations.
    #[must_use]
    pub fn new(names: &[String], reports: Vec<Vec<Report>>, seed: u64) -> Self {
        let mut lines = Vec::new();
        for metric in METRICS {
            for (index, name) in names.iter().enumerate() {
                lines.extend(line(metric, name, index, &reports));
            }
        }
        let runs = || reports.iter().flatten();
        let mut notes = alike(runs().count(), runs().flat_map(|report| &report.notes));
        if reports.len() < ENOUGH {
            notes.push(format!(
                "no interval of 95 % can be given for fewer than {ENOUGH} rounds"
            ));
        }
        Self {
            schema: SCHEMA.into(),
            rounds: reports.len(),
            interrupted: false,
            seed,
            lines,
            reports,
            notes,
        }
    }
}

/// What so many runs have to say. Notes that differ in their figures alone are told once.
fn alike<'a>(runs: usize, notes: impl Iterator<Item = &'a String>) -> Vec<String> {
    let shape = |note: &str| note.replace(|c: char| c.is_ascii_digit(), "");
    let mut told: Vec<(&str, usize)> = Vec::new();
    for note in notes {
        match told
            .iter_mut()
            .find(|(first, _)| shape(first) == shape(note))
        {
            Some((_, count)) => *count += 1,
            None => told.push((note, 1)),
        }
    }
    let words = |(note, count)| format!("{count} of {runs} runs: {note}");
    told.into_iter().map(words).collect()
}

fn line(metric: &Metric, name: &str, index: usize, rounds: &[Vec<Report>]) -> Option<Line> {
    let of = |round: &Vec<Report>, index: usize| metric.of(round.get(index)?);
    let values: Vec<f64> = rounds.iter().filter_map(|round| of(round, index)).collect();
    let pairs = rounds
        .iter()
        .filter_map(|round| Some(of(round, index)? - of(round, 0)?));
    let pairs: Vec<f64> = pairs.collect();
    let value = Interval::new(&values)?;
    let difference = (index > 0).then(|| Interval::new(&pairs)).flatten();
    let is_whole = pairs.len() == rounds.len();
    Some(Line {
        configuration: name.to_owned(),
        metric: metric.name.to_owned(),
        measured: values.len(),
        value,
        differs: difference
            .as_ref()
            .filter(|_| is_whole)
            .and_then(Interval::leaves_out_zero),
        difference,
    })
}

impl Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.rounds == 1 { "round" } else { "rounds" };
        writeln!(f, "{} {plural}, seed {}", self.rounds, self.seed)?;
        let told = self
            .lines
            .iter()
            .filter(|line| TOLD.contains(&&*line.metric));
        for line in told {
            line.write(self.rounds, f)?;
        }
        for (gate, passed, runs) in self.gates() {
            let verdict = if passed == runs { "passed" } else { "FAILED" };
            let count = if passed == runs { runs } else { runs - passed };
            writeln!(f, "gate       {gate}: {verdict} in {count} of {runs} runs")?;
        }
        self.notes
            .iter()
            .try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

impl Line {
    /// The figure and the difference in words, each with its interval, and what that means; what
    /// there is not is empty.
    pub(super) fn words(&self) -> Option<(String, String, &'static str)> {
        let metric = Metric::named(&self.metric)?;
        let words = |value| in_words(value, metric.unit);
        let range = |interval: &Interval| match (interval.low, interval.high) {
            (Some(low), Some(high)) => format!(" [{}, {}]", words(low), words(high)),
            _ => String::new(),
        };
        let value = words(self.value.median) + &range(&self.value);
        let Some(difference) = &self.difference else {
            return Some((value, String::new(), ""));
        };
        let verdict = match self.differs {
            None => "",
            Some(false) => "not shown to differ",
            Some(true) if (difference.median > 0.0) == metric.more_is_better => "better",
            Some(true) => "worse",
        };
        let signed = Signed(words(difference.median)).to_string();
        Some((value, signed + &range(difference), verdict))
    }

    fn write(&self, rounds: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((value, difference, verdict)) = self.words() else {
            return Ok(());
        };
        write!(f, "{:13} {:16} {value}", self.metric, self.configuration)?;
        let parts = [(", ", &*difference), (": ", verdict)];
        for (before, part) in parts.iter().filter(|(_, part)| !part.is_empty()) {
            write!(f, "{before}{part}")?;
        }
        if self.measured < rounds {
            let measured = self.measured;
            write!(f, " (measured in {measured} of {rounds} rounds)")?;
        }
        writeln!(f)
    }
}

/// A figure in words that shows its sign also where it is above zero.
struct Signed(String);

impl Display for Signed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What rounds to nothing has no sign: `-0.00 ms` would be a claim.
        let digits = self.0.trim_start_matches('-');
        let none = !digits.contains(|c: char| ('1'..='9').contains(&c));
        match self.0.strip_prefix('-') {
            _ if none => f.write_str(digits),
            Some(_) => f.write_str(&self.0),
            None => write!(f, "+{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of six values all lie on one side of the median in one of 32 cases.
    #[test]
    fn an_interval_reaches_from_one_value_to_another() {
        let values = |count: u32| (1..=count).map(f64::from).collect::<Vec<_>>();
        let bounds = |count| {
            let found = Interval::new(&values(count)).expect("there are some");
            found.low.zip(found.high)
        };
        assert_eq!(bounds(5), None, "1 of 16 would miss");
        assert_eq!(bounds(6), Some((1.0, 6.0)));
        assert_eq!(bounds(9), Some((2.0, 8.0)));
        assert_eq!(bounds(20), Some((6.0, 15.0)));
        assert_eq!(bounds(50), Some((18.0, 33.0)));
        assert_eq!(bounds(10_000), Some((4902.0, 5099.0)));
        assert_eq!(Interval::new(&[]), None);
    }

    /// Medians of nothing but chance are found to differ in one of twenty comparisons at most.
    #[test]
    fn an_interval_misses_as_seldom_as_it_says() {
        let mut draws = Draws::new(1);
        for rounds in 6..=12 {
            let mut missed = 0;
            for _ in 0..4000 {
                let mut draw = || draws.below(2001) as f64 - 1000.0;
                let values: Vec<f64> = (0..rounds).map(|_| draw().powi(3)).collect();
                let found = Interval::new(&values).expect("there are some");
                missed += u32::from(found.leaves_out_zero() == Some(true));
            }
            assert!(missed <= 220, "{rounds} rounds: {missed} of 4000");
        }
    }

    #[test]
    fn zero_within_the_interval_shows_no_difference() {
        let noise = [3.0, -2.0, 1.0, -4.0, 2.0, -1.0, 4.0, -3.0];
        let differs = |values: &[f64]| Interval::new(values).and_then(|it| it.leaves_out_zero());
        assert_eq!(differs(&noise), Some(false));
        assert_eq!(differs(&noise.map(|value| value + 9.0)), Some(true));
        assert_eq!(differs(&noise.map(|value| value - 9.0)), Some(true));
    }

    #[test]
    fn a_difference_that_rounds_to_nothing_has_no_sign() {
        let signed = |text: &str| Signed(text.into()).to_string();
        assert_eq!(signed("-0.00 ms"), "0.00 ms");
        assert_eq!(signed("0.00 %"), "0.00 %");
        assert_eq!(signed("-0.01 ms"), "-0.01 ms");
        assert_eq!(signed("3.10 ms"), "+3.10 ms");
    }

    #[test]
    fn what_many_runs_say_alike_is_told_once() {
        let notes = ["3.2 ms late", "no room", "12.9 ms late"].map(str::to_owned);

        let told = alike(2, notes.iter());

        assert_eq!(told, ["2 of 2 runs: 3.2 ms late", "1 of 2 runs: no room"]);
    }

    #[test]
    fn orders_are_fair_and_the_seed_decides_them() {
        let mut draws = Draws::new(3);
        let mut firsts = [0; 3];
        for _ in 0..3000 {
            let order = draws.order(3);
            firsts[order[0]] += 1;
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2]);
        }
        assert!(
            firsts.iter().all(|count| (900..1100).contains(count)),
            "{firsts:?}"
        );
        assert_eq!(Draws::new(4).order(9), Draws::new(4).order(9));
    }
}
