//! Axes: where numbers stand, and which of them are written.

/// Steps of a linear axis are these, times a power of ten.
const STEPS: [f64; 4] = [1.0, 2.0, 5.0, 10.0];
/// More numbers along an axis do not fit a phone.
const TICKS: f64 = 6.0;

/// How an axis divides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, and with zero.
    #[default]
    Linear,
    /// Evenly, between the least and the greatest value.
    Near,
    /// By powers of ten; what is not above zero is left out.
    Log,
}

/// One axis of a plot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// What it measures, with the unit.
    pub label: String,
    /// How it divides.
    pub scale: Scale,
    /// It reaches at least to this.
    pub most: Option<f64>,
}

impl Axis {
    /// From zero in even steps.
    pub fn new(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            ..Self::default()
        }
    }

    /// An axis that divides otherwise.
    #[must_use]
    pub fn scale(mut self, scale: Scale) -> Self {
        self.scale = scale;
        self
    }

    /// An axis that reaches at least to `most`.
    #[must_use]
    pub fn most(mut self, most: f64) -> Self {
        self.most = Some(most);
        self
    }

    /// Where these values stand.
    pub(crate) fn range(&self, values: impl Iterator<Item = f64>) -> Range {
        let values = values.chain(self.most).filter(|value| value.is_finite());
        match self.scale {
            Scale::Linear => linear(values.chain([0.0])),
            Scale::Near => linear(values),
            Scale::Log => log(values.filter(|value| *value > 0.0)),
        }
    }
}

/// The numbers of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Range {
    from: f64,
    to: f64,
    log: bool,
    /// Those that are written.
    pub(crate) ticks: Vec<f64>,
}

impl Range {
    /// Where a value stands, from 0 to 1; outside of both for one that is out of range.
    pub(crate) fn place(&self, value: f64) -> f64 {
        match self.log {
            true => (value.log10() - self.from) / (self.to - self.from),
            false => (value - self.from) / (self.to - self.from),
        }
    }

    /// An axis of which no number is written.
    pub(crate) fn unnumbered(mut self) -> Self {
        self.ticks.clear();
        self
    }

    /// Whether a value can stand on it at all.
    pub(crate) fn takes(&self, value: f64) -> bool {
        value.is_finite() && (!self.log || value > 0.0)
    }
}

fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |bounds, value| {
        let (least, most) = bounds.unwrap_or((value, value));
        Some((value.min(least), value.max(most)))
    })
}

fn linear(values: impl Iterator<Item = f64>) -> Range {
    let (least, most) = bounds(values).unwrap_or((0.0, 1.0));
    let alike = most.abs().max(1.0);
    let most = if most > least { most } else { least + alike };
    let span = most - least;
    let power = 10_f64.powf((span / TICKS).log10().floor());
    let wide_enough = |step: &&f64| span / (**step * power) <= TICKS;
    let step = STEPS.iter().find(wide_enough).unwrap_or(&10.0) * power;
    let from = (least / step + 1e-9).floor();
    let to = (most / step - 1e-9).ceil().max(from + 1.0);
    let ticks = (0..=(to - from) as u32).map(|n| (from + f64::from(n)) * step);
    Range {
        from: from * step,
        to: to * step,
        log: false,
        ticks: ticks.collect(),
    }
}

fn log(values: impl Iterator<Item = f64>) -> Range {
    let (least, most) = bounds(values).unwrap_or((1.0, 10.0));
    let from = (least.log10() + 1e-9).floor();
    let to = (most.log10() - 1e-9).ceil().max(from + 1.0);
    let every = ((to - from) / TICKS).ceil().max(1.0);
    let ticks =
        (0..=((to - from) / every) as u32).map(|n| 10_f64.powf(from + f64::from(n) * every));
    Range {
        from,
        to,
        log: true,
        ticks: ticks.collect(),
    }
}

/// A number as short as it can be without being another.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    let text = match size {
        0.0 => return "0".into(),
        1e6.. => {
            return format!("{value:.3e}")
                .replace("000e", "e")
                .replace(".e", "e");
        }
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        1e-2.. => format!("{value:.3}"),
        1e-4.. => format!("{value:.5}"),
        _ => return format!("{value:e}"),
    };
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_enclose_all_values() {
        for (values, expected) in [
            (vec![0.0, 9.4], vec![0.0, 2.0, 4.0, 6.0, 8.0, 10.0]),
            (vec![350.0], vec![0.0, 100.0, 200.0, 300.0, 400.0]),
            (vec![], vec![0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        ] {
            let range = Axis::new("x").range(values.iter().copied());
            let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9;
            assert!(range.ticks.iter().zip(&expected).all(near), "{range:?}");
            assert_eq!(range.ticks.len(), expected.len(), "{values:?}");
            assert!(
                values
                    .iter()
                    .all(|it| (0.0..=1.0).contains(&range.place(*it)))
            );
        }
    }

    #[test]
    fn a_log_axis_has_powers_of_ten_and_no_zero() {
        let range = Axis::new("x")
            .scale(Scale::Log)
            .range([0.0, 0.02, 3.0].into_iter());
        assert_eq!(range.ticks, [0.01, 0.1, 1.0, 10.0]);
        assert!(range.takes(0.5) && !range.takes(0.0));
        assert!((range.place(0.1) - 1.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (100.0, "100"),
            (12.5, "12.5"),
            (2.0, "2"),
            (0.05, "0.05"),
            (0.001, "0.001"),
            (1000.0, "1000"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
