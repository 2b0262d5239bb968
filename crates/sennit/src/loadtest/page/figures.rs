//! All figures of a test that have a name, on its page.

use sennit_report::{Block, Section, Table};

use super::super::{gate::in_words, metric::METRICS, report::Report};

impl Report {
    /// What gates and comparisons go by, as far as it was measured.
    pub(super) fn figures(&self) -> Section {
        let head = ["figure", "value", "what it is"];
        let mut table = Table::new("Each can be bounded by --gate, under its name", head);
        for metric in METRICS {
            if let Some(value) = metric.of(self) {
                let value = in_words(value, metric.unit);
                table.row([metric.name, &value, metric.what]);
            }
        }
        Section::new("All figures").with(Block::Table(table))
    }
}
