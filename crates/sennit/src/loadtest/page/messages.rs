//! Messages that are sent once or never, on the page of a test.

use sennit_report::{Axis, Block, Curve, Lines, Section, Table};

use super::{super::report::Report, in_ms, shares};

impl Report {
    /// What became of messages, as they arrived by themselves; `None` if there were none.
    pub(super) fn messages(&self) -> Option<Section> {
        let ways = self.ways();
        let ways = ways.filter_map(|(name, way)| Some((name, way.messages.as_ref()?)));
        let ways: Vec<_> = ways.collect();
        if ways.is_empty() {
            return None;
        }
        let head = [
            "direction",
            "sent",
            "lost, %",
            "out of order",
            "ipdv p50, ms",
            "p95",
            "above the least delay p50, ms",
            "p95",
            "p99",
            "most",
        ];
        let mut table = Table::new("", head);
        for (name, it) in &ways {
            let (ipdv, delay) = (&it.ipdv, &it.delay_variation);
            let counts = [
                (*name).to_owned(),
                it.sent.to_string(),
                format!("{:.2}", it.loss_ratio * 100.0),
                it.reordered.to_string(),
            ];
            let times = [
                ipdv.p50_seconds,
                ipdv.p95_seconds,
                delay.p50_seconds,
                delay.p95_seconds,
                delay.p99_seconds,
                delay.max_seconds,
            ];
            table.row(counts.into_iter().chain(times.map(in_ms)));
        }
        let curves = ways.iter().map(|(name, it)| {
            let points = shares(&it.delay_variation_histogram);
            Curve::new(*name, points)
        });
        let spread = Lines::new(
            "Delay of messages above the least (CDF)",
            Axis::new("ms above the least"),
            Axis::new("share that is as fast").most(1.0),
            curves.collect(),
        );
        Some(
            Section::new("Messages")
                .with(Block::Lines(spread))
                .with(Block::Table(table)),
        )
    }
}
