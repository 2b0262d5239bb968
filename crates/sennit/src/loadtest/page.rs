//! What a test found as a page with plots.

mod figures;
mod made;
mod messages;

use sennit_load::{Bins, Bucket, TimeFigures, selfcheck::Check};
use sennit_report::{Axis, Bar, Bars, Block, Cell, Curve, Lines, Scale, Section, Table};

pub(crate) use self::made::made;
use super::compare::{Comparison, Line, TOLD};
use super::emulation::Emulated;
use super::metric::{Metric, Unit};
use super::report::{Moment, Report, Way};

impl Report {
    /// One HTML file that needs nothing else.
    #[must_use]
    pub fn page(&self) -> sennit_report::Report {
        let goodput = self.goodput_bits_per_second / 1e6;
        let mut page = sennit_report::Report::new(format!("Test of {}", self.server))
            .lede(format!("{goodput:.2} Mbit/s of payload arrived."))
            .fact("asked", self.asked());
        page = made(page);
        if let Some(emulated) = &self.emulated {
            page = page.fact("emulated", emulated.profile.clone());
        }
        for note in &self.notes {
            page = page.fact("note", note);
        }
        if self.ways().next().is_some() {
            page = page.with(self.throughput());
        }
        if let Some(questions) = self.questions() {
            page = page.with(questions);
        }
        if let Some(messages) = self.messages() {
            page = page.with(messages);
        }
        if let Some(repairs) = self.repairs() {
            page = page.with(repairs);
        }
        page = page.with(self.latency()).with(self.figures());
        if let Some(emulated) = &self.emulated {
            page = page.with(emulated.section());
        }
        if self.gates.is_empty() {
            return page;
        }
        let mut gates = Table::new("", ["gate"]);
        for gate in &self.gates {
            gates.row([Cell::judged(gate.to_string(), gate.passed)]);
        }
        page.with(Section::new("Gates").with(Block::Table(gates)))
    }

    fn asked(&self) -> String {
        let plan = &self.plan;
        let (connections, congestion) = (plan.connections, &plan.congestion);
        let load = plan.load();
        let (seconds, warm_up) = (plan.seconds, plan.warmup_seconds);
        let ways = [(plan.up, "up"), (plan.down, "down")];
        let ways = ways.iter().filter(|(asked, _)| *asked).map(|(_, way)| *way);
        let ways = ways.collect::<Vec<_>>().join(" and ");
        let much = match (ways.is_empty(), plan.rate_bits_per_second) {
            (true, _) => String::new(),
            (false, None) => format!(", {ways}, as much as there is room for"),
            (false, Some(rate)) => format!(", {ways}, {:.3} Mbit/s", rate / 1e6),
        };
        format!(
            "{connections} connections, {load}{much}, congestion {congestion}, \
             {seconds} s after {warm_up} s"
        )
    }

    fn ways(&self) -> impl Iterator<Item = (&'static str, &Way)> {
        let ways = [("up", &self.up), ("down", &self.down)];
        ways.into_iter()
            .filter_map(|(name, way)| Some((name, way.as_ref()?)))
    }

    fn throughput(&self) -> Section {
        let curve = |(name, way): (&str, &Way)| Some(Curve::new(name, points(way.bins.as_ref()?)));
        let plot = Lines::new(
            "Payload at the receiver over time",
            Axis::new("time, s"),
            Axis::new("Mbit/s"),
            self.ways().filter_map(curve).collect(),
        );
        // A message is sent once or never.
        let lost = match self.plan.message_bytes {
            Some(_) => "packets lost, %",
            None => "packets sent again, %",
        };
        let head = [
            "direction",
            "Mbit/s",
            lost,
            "due and unsent, %",
            "flows",
            "fairness",
        ];
        let mut table = Table::new("", head);
        let percent = |ratio: Option<f64>| ratio.map(|ratio| format!("{:.2}", ratio * 100.0));
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        for (name, way) in self.ways() {
            table.row([
                name.to_owned(),
                format!("{:.2}", way.goodput_bits_per_second / 1e6),
                or_dash(percent(way.lost_ratio())),
                or_dash(percent(way.unsent.map(|unsent| unsent.ratio))),
                way.flows.to_string(),
                or_dash(way.fairness.map(|it| format!("{it:.3}"))),
            ]);
        }
        let mut section = Section::new("Throughput");
        if !plot.curves.is_empty() {
            section = section.with(Block::Lines(plot));
        }
        section.with(Block::Table(table))
    }

    /// What error correction did; `None` if messages were not protected.
    fn repairs(&self) -> Option<Section> {
        self.plan.fec.as_ref()?;
        let head = [
            "direction",
            "code",
            "messages sent",
            "repairs sent",
            "overhead, %",
            "repairs arrived",
            "recovered",
            "arrived later",
            "not needed",
            "failed",
            "lost on the wire, %",
            "lost after repair, %",
        ];
        let mut table = Table::new("", head);
        for (name, fec) in self
            .ways()
            .filter_map(|(name, way)| Some((name, way.fec.as_ref()?)))
        {
            let percent = |ratio: f64| format!("{:.2}", ratio * 100.0);
            let symbols = &fec.symbols;
            table.row([
                name.to_owned(),
                fec.in_short(),
                symbols.sources_sent.to_string(),
                symbols.repairs_sent.to_string(),
                percent(fec.overhead_ratio),
                symbols.repairs_received.to_string(),
                symbols.recovered.to_string(),
                symbols.arrived_later.to_string(),
                symbols.unneeded.to_string(),
                symbols.failed.to_string(),
                percent(fec.wire_loss_ratio),
                percent(fec.residual_loss_ratio),
            ]);
        }
        Some(Section::new("Error correction").with(Block::Table(table)))
    }

    /// What requests and newcomers found, if there were any.
    fn questions(&self) -> Option<Section> {
        let requests = self.requests.as_ref();
        let handshakes = self.handshakes.as_ref();
        let head = [
            "", "complete", "not", "failed", "a second", "p50, ms", "p95", "p99", "most",
        ];
        let mut table = Table::new("", head);
        let mut row = |name: &str, counts: [u64; 3], rate: f64, times: &TimeFigures| {
            let counts = counts.map(|count| count.to_string());
            let times = [
                times.p50_seconds,
                times.p95_seconds,
                times.p99_seconds,
                times.max_seconds,
            ];
            let start = [name.to_owned()].into_iter().chain(counts);
            table.row(start.chain([format!("{rate:.1}")]).chain(times.map(in_ms)));
        };
        if let Some(it) = requests {
            let counts = [it.answered, it.unanswered, it.failed];
            row("requests", counts, it.answers_per_second, &it.latency);
        }
        if let Some(it) = handshakes {
            row(
                "handshakes",
                [it.complete, it.waiting, it.failed],
                it.per_second,
                &it.time,
            );
        }
        let mut section = Section::new("Requests and newcomers");
        if requests.is_some() || handshakes.is_some() {
            section = section.with(Block::Table(table));
        }
        if let Some(it) = &self.responsiveness {
            let head = [
                "round trips a minute",
                "confidence",
                "by new connections",
                "by requests",
                "slowest 5 %",
            ];
            let rates =
                [it.foreign_rpm, it.loaded_rpm, it.worst_rpm].map(|rpm| format!("{rpm:.0}"));
            let mut table = Table::new("Responsiveness under load", head);
            table.row(
                [format!("{:.0}", it.rpm), it.confidence.word().to_owned()]
                    .into_iter()
                    .chain(rates),
            );
            section = section.with(Block::Table(table));
        }
        let any = requests.is_some() || handshakes.is_some() || self.responsiveness.is_some();
        any.then_some(section)
    }

    fn latency(&self) -> Section {
        let rtt = &self.rtt;
        let states = [("idle", &rtt.idle), ("under load", &rtt.loaded)];
        let handshakes = [
            ("post-quantum", self.handshake.post_quantum_seconds),
            ("classic", self.handshake.classic_seconds),
            ("resumed", self.handshake.resumed_seconds),
        ];
        let bar = |(name, seconds): (&str, Option<f64>)| {
            let bar = seconds.map(|seconds| Bar {
                value: seconds * 1e3,
                interval: None,
            });
            (name.to_owned(), vec![bar])
        };
        let bars = Bars {
            caption: "Handshakes, from the first packet until the client may send".into(),
            y: Axis::new("ms"),
            series: vec!["handshake".into()],
            groups: handshakes.map(bar).to_vec(),
        };
        let head = ["round trips", "least, ms", "p50", "p95", "p99", "most"];
        let caption = format!("{} of {} probes under load were lost", rtt.lost, rtt.probes);
        let mut table = Table::new(caption, head);
        for (name, times) in states {
            let TimeFigures {
                min_seconds,
                p50_seconds,
                p95_seconds,
                p99_seconds,
                max_seconds,
                ..
            } = *times;
            let all = [
                min_seconds,
                p50_seconds,
                p95_seconds,
                p99_seconds,
                max_seconds,
            ];
            table.row([name.to_owned()].into_iter().chain(all.map(in_ms)));
        }
        let [spread, tail] = self.spread();
        Section::new("Latency")
            .with(Block::Lines(self.over_time()))
            .with(Block::Lines(spread))
            .with(Block::Lines(tail))
            .with(Block::Bars(bars))
            .with(Block::Table(table))
    }

    /// Round trips of probes while the load ran, by the second.
    fn over_time(&self) -> Lines {
        let curve = |name: &str, of: fn(&Moment) -> Option<f64>| {
            let moments = self.rtt.moments.iter();
            let points = moments.filter_map(|it| Some((it.at_seconds, of(it)? * 1e3)));
            Curve::new(name, points.collect())
        };
        let curves = vec![
            curve("half are shorter", |it| it.p50_seconds),
            curve("longest", |it| it.max_seconds),
        ];
        Lines::new(
            "Round trips of probes over time, by the second",
            Axis::new("time, s"),
            Axis::new("round trip, ms"),
            curves,
        )
    }

    /// How round trips of probes are spread, and how long the longest are.
    fn spread(&self) -> [Lines; 2] {
        let rtt = &self.rtt;
        let states = [
            ("idle", &rtt.idle_histogram),
            ("under load", &rtt.loaded_histogram),
        ];
        let curves = |of: fn(f64) -> f64| {
            let curve = |(name, all): (&str, &Vec<Bucket>)| {
                let points = shares(all).into_iter();
                Curve::new(name, points.map(|(ms, share)| (ms, of(share))).collect())
            };
            states.map(curve).to_vec()
        };
        let time = || Axis::new("round trip, ms").scale(Scale::Near);
        let share = Axis::new("share that is as fast").most(1.0);
        let slower = Axis::new("share that is slower").scale(Scale::Log);
        let [below, above] = [curves(|share| share), curves(|share| 1.0 - share)];
        [
            Lines::new("Round trips of probes (CDF)", time(), share, below),
            Lines::new("The tail of round trips (CCDF)", time(), slower, above),
        ]
    }
}

impl Comparison {
    /// One HTML file that needs nothing else.
    #[must_use]
    pub fn page(&self) -> sennit_report::Report {
        let server = self.reports.iter().flatten().next();
        let server = server.map_or("", |report| report.server.as_str());
        let rounds = self.rounds;
        let mut page = sennit_report::Report::new(format!("Tests of {server}, beside each other"))
            .lede(format!(
                "Medians of {rounds} rounds, in each of which every configuration ran once, in random order. \
                 Differences are taken within a round. In brackets: the interval of 95 %."
            ))
            .fact("seed", self.seed.to_string());
        page = made(page);
        for note in &self.notes {
            page = page.fact("note", note);
        }
        let mut table = Table::new("", ["figure", "configuration", "median", "difference", ""]);
        for line in &self.lines {
            let Some((value, difference, verdict)) = line.words() else {
                continue;
            };
            let plain = [&*line.metric, &*line.configuration, &*value, &*difference];
            let verdict = match verdict {
                "better" | "worse" => Cell::judged(verdict, verdict == "better"),
                other => Cell::from(other),
            };
            table.row(plain.into_iter().map(Cell::from).chain([verdict]));
        }
        let mut section = Section::new("What was found");
        for name in TOLD {
            if let Some(bars) = self.bars(name) {
                section = section.with(Block::Bars(bars));
            }
        }
        page = page
            .with(section)
            .with(Section::new("All figures").with(Block::Table(table)));
        let mut emulated = self.reports.iter().flatten();
        if let Some(emulated) = emulated.find_map(|report| report.emulated.as_ref()) {
            page = page.with(emulated.section());
        }
        let gates = self.gates();
        if gates.is_empty() {
            return page;
        }
        let mut table = Table::new("", ["gate", "passed"]);
        for (gate, passed, runs) in gates {
            let verdict = Cell::judged(format!("{passed} of {runs} runs"), passed == runs);
            table.row([Cell::from(gate), verdict]);
        }
        page.with(Section::new("Gates").with(Block::Table(table)))
    }

    /// One figure of all configurations.
    fn bars(&self, name: &str) -> Option<Bars> {
        let metric = Metric::named(name)?;
        let (scale, unit) = match metric.unit {
            Unit::Rate => (1e-6, "Mbit/s"),
            Unit::Time => (1e3, "ms"),
            Unit::Ratio => (1e2, "%"),
            Unit::Bytes => (1e-3, "KB"),
            Unit::Plain => (1.0, ""),
        };
        let bar = |line: &Line| {
            let around = line.value.low.zip(line.value.high);
            let bar = Bar {
                value: line.value.median * scale,
                interval: around.map(|(low, high)| (low * scale, high * scale)),
            };
            (line.configuration.clone(), vec![Some(bar)])
        };
        let of_metric = self.lines.iter().filter(|line| line.metric == name);
        let groups: Vec<_> = of_metric.map(bar).collect();
        (!groups.is_empty()).then(|| Bars {
            caption: format!("{name}: {}", metric.what),
            y: Axis::new(unit),
            series: vec![name.to_owned()],
            groups,
        })
    }
}

fn in_ms(seconds: Option<f64>) -> String {
    seconds.map_or("-".into(), |it| format!("{:.3}", it * 1e3))
}

impl Emulated {
    /// What the link was asked to be, what probes found before the test, and what became of it.
    fn section(&self) -> Section {
        let head = ["direction", "property", "asked", "measured", "within"];
        let mut checks = Table::new("By probes, before the test", head);
        for check in &self.checks {
            let [asked, measured, tolerance] = check.words();
            checks.row([
                Cell::from(check.direction.name()),
                format!("{:?}", check.property).to_lowercase().into(),
                asked.into(),
                match check.tells() {
                    true => Cell::judged(measured, check.passes()),
                    false => measured.into(),
                },
                tolerance.into(),
            ]);
        }
        let head = ["direction", "entered", "came out", "lost", "found no room"];
        let title = "Packets during the test; a few that came out entered before it";
        let mut packets = Table::new(title, head);
        for (name, way) in [("up", &self.up), ("down", &self.down)] {
            let counts = [way.entered, way.left, way.lost, way.overflowed];
            let counts = counts.map(|count| count.to_string());
            packets.row([name.to_owned()].into_iter().chain(counts));
        }
        let ms = |late: Option<f64>| late.map_or("-".into(), |it| format!("{:.2} ms", it * 1e3));
        let (late, latest) = (ms(self.late_p99_seconds), ms(self.late_max_seconds));
        let exact = match self.exact {
            true => "The link was as asked.",
            false if self.checks.iter().all(Check::passes) => {
                "NOT EXACT: the link was as asked before the test, and late during it."
            }
            false => "NOT EXACT: the link was not as asked.",
        };
        Section::new("The link, as asked and as measured")
            .with(Block::Text(format!(
                "{exact} One packet in a hundred was handed on {late} late or more, and none more \
                 than {latest}."
            )))
            .with(Block::Table(checks))
            .with(Block::Table(packets))
    }
}

/// Mbit/s in the middle of each bin.
fn points(bins: &Bins) -> Vec<(f64, f64)> {
    let width = bins.width().as_secs_f64();
    let rates = bins.rates().iter().enumerate();
    let points = rates.map(|(bin, rate)| ((bin as f64 + 0.5) * width, rate * 8e-6));
    points.collect()
}

/// Milliseconds, and the share of all times that are no longer.
fn shares(buckets: &[Bucket]) -> Vec<(f64, f64)> {
    let all = buckets.iter().map(|bucket| bucket.count).sum::<u64>();
    let mut so_far = 0;
    let share = |bucket: &Bucket| {
        so_far += bucket.count;
        (
            bucket.up_to_seconds * 1e3,
            so_far as f64 / all.max(1) as f64,
        )
    };
    buckets.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_of_times_rises_from_the_shortest_to_all_of_them() {
        let bucket = |up_to_seconds, count| Bucket {
            up_to_seconds,
            count,
        };

        let points = shares(&[bucket(0.01, 3), bucket(0.02, 1)]);

        assert_eq!(points, [(10.0, 0.75), (20.0, 1.0)]);
        assert!(shares(&[]).is_empty());
    }
}
