//! The formats.

use std::fmt::Write as _;

use super::{Kind, Metric, Samples, Sources, all};

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// What a client wants that sent this `Accept`.
    pub fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

impl Metric {
    /// The name of its samples.
    pub fn sample_name(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name),
            Kind::Gauge => self.name.to_owned(),
        }
    }

    fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        }
    }
}

/// All metrics.
pub fn text(sources: &Sources<'_>, format: Format) -> String {
    let mut text = String::new();
    for metric in all() {
        let mut samples = Samples::default();
        (metric.read)(sources, &mut samples);
        if !samples.0.is_empty() {
            family(metric, &samples, format, &mut text);
        }
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

fn family(metric: &Metric, samples: &Samples, format: Format, text: &mut String) {
    let sample = metric.sample_name();
    // The family of a counter has its suffix in one format, and has not in the other.
    let family = match format {
        Format::Prometheus => sample.as_str(),
        Format::OpenMetrics => metric.name,
    };
    let (kind, help) = (metric.kind_name(), metric.help);
    let _ = writeln!(text, "# HELP {family} {help}");
    let _ = writeln!(text, "# TYPE {family} {kind}");
    if let (Some(unit), Format::OpenMetrics) = (metric.unit, format) {
        let _ = writeln!(text, "# UNIT {family} {unit}");
    }
    for (values, value) in &samples.0 {
        let labels = metric.labels.iter().zip(values);
        let labels: Vec<String> = labels
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
            .collect();
        let labels = match labels.as_slice() {
            [] => String::new(),
            labels => format!("{{{}}}", labels.join(",")),
        };
        let _ = writeln!(text, "{sample}{labels} {value}");
    }
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// The table of the book.
pub fn chapter() -> String {
    let mut text =
        String::from("| metric | kind | labels | what it is |\n| --- | --- | --- | --- |\n");
    for metric in all() {
        let labels: Vec<String> = metric.labels.iter().map(|it| format!("`{it}`")).collect();
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} |",
            metric.sample_name(),
            metric.kind_name(),
            labels.join(", "),
            metric.help
        );
    }
    text
}
