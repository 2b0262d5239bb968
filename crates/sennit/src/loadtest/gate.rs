//! What a test must find for its command to end well: `p95_rtt < 80ms`.

use std::{
    fmt::{self, Display},
    str::FromStr,
};

use super::{
    metric::{METRICS, Metric, Unit},
    report::{Outcome, Report},
};

/// A bound for a figure.
#[derive(Clone, Debug)]
pub struct Gate {
    text: String,
    metric: &'static Metric,
    order: Order,
    bound: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Less,
    AtMost,
    More,
    AtLeast,
}

/// A text that is no gate: where, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadGate {
    text: String,
    /// In characters.
    at: usize,
    length: usize,
    reason: String,
}

impl Display for BadGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            text,
            at,
            length,
            reason,
        } = self;
        let carets = "^".repeat((*length).max(1));
        write!(f, "not a gate\n  {text}\n  {:at$}{carets} {reason}", "")
    }
}

impl std::error::Error for BadGate {}

impl Gate {
    /// Whether the figure is within the bound.
    #[must_use]
    pub fn check(&self, report: &Report) -> Outcome {
        let measured = self.metric.of(report);
        let within = |value: f64| match self.order {
            Order::Less => value < self.bound,
            Order::AtMost => value <= self.bound,
            Order::More => value > self.bound,
            Order::AtLeast => value >= self.bound,
        };
        Outcome {
            gate: self.text.clone(),
            measured,
            passed: measured.is_some_and(within),
        }
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.passed { "passed" } else { "FAILED" };
        write!(f, "{}: {verdict}, ", self.gate)?;
        let gate = self.gate.parse::<Gate>().ok();
        match (self.measured, gate) {
            (None, _) => f.write_str("it was not measured"),
            (Some(value), Some(gate)) => f.write_str(&in_words(value, gate.metric.unit)),
            (Some(value), None) => write!(f, "{value}"),
        }
    }
}

impl FromStr for Gate {
    type Err = BadGate;

    fn from_str(text: &str) -> Result<Self, BadGate> {
        let bad = |from: usize, to: usize, reason: String| BadGate {
            text: text.to_owned(),
            at: text[..from].chars().count(),
            length: text[from..to].chars().count(),
            reason,
        };
        let start = text.len() - text.trim_start().len();
        let end_of = |from: usize, belongs: fn(char) -> bool| {
            let length = text[from..].find(|c: char| !belongs(c));
            length.map_or(text.len(), |length| from + length)
        };
        let after_name = end_of(start, |c| c.is_alphanumeric() || c == '_');
        let metric = Metric::named(&text[start..after_name]).ok_or_else(|| {
            let names: Vec<_> = METRICS.iter().map(|metric| metric.name).collect();
            bad(
                start,
                after_name,
                format!("write one of {}", names.join(", ")),
            )
        })?;
        let order_at = end_of(after_name, char::is_whitespace);
        let after_order = end_of(order_at, |c| "<>=!≤≥".contains(c));
        let order = match &text[order_at..after_order] {
            "<" => Order::Less,
            "<=" | "≤" => Order::AtMost,
            ">" => Order::More,
            ">=" | "≥" => Order::AtLeast,
            _ => {
                let reason = "write <, <=, > or >=".to_owned();
                return Err(bad(order_at, after_order, reason));
            }
        };
        let bound_at = end_of(after_order, char::is_whitespace);
        let bound = bound(text[bound_at..].trim_end(), metric.unit)
            .map_err(|reason| bad(bound_at, text.trim_end().len().max(bound_at), reason))?;
        Ok(Self {
            text: text.trim().to_owned(),
            metric,
            order,
            bound,
        })
    }
}

/// The units of a kind, and how many base units they are.
fn units(unit: Unit) -> &'static [(&'static str, f64)] {
    match unit {
        Unit::Rate => &[
            ("kbit", 1e3),
            ("Mbit", 1e6),
            ("Gbit", 1e9),
            ("bit", 1.0),
            ("k", 1e3),
            ("M", 1e6),
            ("G", 1e9),
        ],
        Unit::Time => &[("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)],
        Unit::Ratio => &[("%", 1e-2)],
        Unit::Bytes => &[
            ("kB", 1e3),
            ("KB", 1e3),
            ("MB", 1e6),
            ("GB", 1e9),
            ("B", 1.0),
        ],
        Unit::Plain => &[],
    }
}

fn bound(text: &str, unit: Unit) -> Result<f64, String> {
    let units = units(unit);
    let found = units.iter().find(|(name, _)| text.ends_with(name));
    let (number, scale) = match found {
        Some((name, scale)) => (text[..text.len() - name.len()].trim_end(), *scale),
        None => (text, 1.0),
    };
    // A number alone is seldom meant as it stands: `goodput > 5` would be 5 bit/s, and hold.
    let is_clear = |value: &f64| match unit {
        _ if found.is_some() => true,
        Unit::Rate | Unit::Time | Unit::Bytes => false,
        Unit::Ratio => *value < 1.0,
        Unit::Plain => true,
    };
    let value = number.parse::<f64>().ok().filter(|value| value.is_finite());
    let value = value.filter(is_clear).map(|value| value * scale);
    value.ok_or_else(|| {
        match unit {
            Unit::Rate => "write a rate with its unit, like 50Mbit",
            Unit::Time => "write a time with its unit, like 80ms, 500us or 1.5s",
            Unit::Ratio => "write a share, like 1% or 0.01",
            Unit::Bytes => "write a size with its unit, like 60KB",
            Unit::Plain => "write a number",
        }
        .to_owned()
    })
}

/// A figure as people read it.
#[must_use]
pub fn in_words(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Rate => format!("{:.2} Mbit/s", value / 1e6),
        Unit::Time if value.abs() < 1e-3 => format!("{:.4} ms", value * 1e3),
        Unit::Time => format!("{:.2} ms", value * 1e3),
        Unit::Ratio => format!("{:.2} %", value * 1e2),
        Unit::Bytes => format!("{:.1} KB", value / 1e3),
        Unit::Plain => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_have_a_figure_an_order_and_a_bound_with_its_unit() {
        for (text, order, bound) in [
            ("p95_rtt < 80ms", Order::Less, 0.08),
            ("p95_rtt<80ms", Order::Less, 0.08),
            (" goodput >= 5 Mbit ", Order::AtLeast, 5e6),
            ("loss <= 1%", Order::AtMost, 0.01),
            ("loss ≤ 0.01", Order::AtMost, 0.01),
            ("bufferbloat > 2", Order::More, 2.0),
            ("handshake < 1.5s", Order::Less, 1.5),
        ] {
            let gate: Gate = text.parse().expect(text);
            assert_eq!(gate.order, order, "{text}");
            assert!((gate.bound - bound).abs() < 1e-9, "{text}: {}", gate.bound);
        }
    }

    #[test]
    fn what_is_no_gate_is_told_with_its_place() {
        for (text, marked, reason) in [
            ("", "", "write one of goodput"),
            ("p96_rtt < 80ms", "p96_rtt", "p95_rtt"),
            ("p95_rtt = 80ms", "=", "write <, <="),
            ("p95_rtt", "", "write <, <="),
            ("p95_rtt < 80", "80", "with its unit"),
            ("p95_rtt < 80Mbit", "80Mbit", "with its unit"),
            ("goodput > fast", "fast", "like 50Mbit"),
            ("goodput > 5", "5", "with its unit"),
            ("loss < NaN", "NaN", "like 1%"),
            ("loss < 1", "1", "like 1%"),
            ("fairness >", "", "a number"),
        ] {
            let bad = text.parse::<Gate>().expect_err(text);
            let there: String = text.chars().skip(bad.at).take(bad.length).collect();
            assert_eq!(there, marked, "{bad}");
            assert!(bad.reason.contains(reason), "{bad}");
        }
        let shown = "p95_rtt ! 8".parse::<Gate>().expect_err("!").to_string();
        assert!(
            shown.ends_with("  p95_rtt ! 8\n          ^ write <, <=, > or >="),
            "{shown}"
        );
    }
}
