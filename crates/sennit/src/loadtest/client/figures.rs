//! The figures of both ends, put together.

use std::time::{Duration, Instant};

use sennit_load::{BIN, Bins, TimeFigures, fairness};

use super::{
    super::{
        emulation::Emulated,
        fec::{FecFigures, Symbols},
        report::{Cpu, Handshakes, PerConnection, Report, RoundTrips, SCHEMA, Way},
        responsiveness::Responsiveness,
        tls,
        wire::Network,
        words::{Plan, Side},
    },
    Client,
};

/// Bins of a second.
const BINS_A_SECOND: usize = (1000 / BIN.as_millis()) as usize;

impl<N: Network> Client<'_, N> {
    pub(super) fn report(
        &self,
        ours: &Side,
        theirs: &Side,
        rtt: RoundTrips,
        handshake: Handshakes,
        interrupted: bool,
    ) -> Report {
        let plan = &self.options.plan;
        let code = plan.fec.as_deref();
        let up = plan.up.then(|| way(ours, theirs, code));
        let down = plan.down.then(|| way(theirs, ours, code));
        let cpu = Cpu {
            client_seconds: ours.cpu_seconds,
            server_seconds: theirs.cpu_seconds,
        };
        let goodput = [&up, &down].into_iter().flatten();
        let mut notes = cpu.notes(ours.elapsed_seconds);
        for (name, way) in [("up", &up), ("down", &down)] {
            let fec = way.as_ref().and_then(|way| way.fec.as_ref());
            notes.extend(fec.and_then(|fec| fec.note(name)));
        }
        let emulated = self.options.profile.as_ref().and_then(|profile| {
            let link = self.net.emulation()?;
            Some(link.emulated(profile, self.checks.clone()))
        });
        notes.extend(emulated.as_ref().and_then(Emulated::note));
        notes.extend(self.cut_short(interrupted).map(str::to_owned));
        if rtt.idle == TimeFigures::default() {
            notes.push("no probe was answered before the load".into());
        }
        Report {
            schema: SCHEMA.into(),
            protocol: tls::OURS.into(),
            client_stack: self.options.stack,
            server_stack: (!self.options.perf).then_some(theirs.stack),
            server: self.options.server.to_string(),
            plan: Plan {
                token: None,
                ..plan.clone()
            },
            interrupted,
            broken: None,
            goodput_bits_per_second: goodput.map(|way| way.goodput_bits_per_second).sum(),
            up,
            down,
            rtt,
            handshake,
            cpu,
            emulated,
            requests: None,
            handshakes: None,
            responsiveness: None,
            gates: Vec::new(),
            client_memory: PerConnection::new(&ours.memory, plan.connections),
            server_memory: PerConnection::new(&theirs.memory, plan.connections),
            notes,
        }
    }
}

impl<N: Network> Client<'_, N> {
    /// Why not all that was planned is in the figures, if it is not.
    fn cut_short(&self, interrupted: bool) -> Option<&'static str> {
        if interrupted {
            return Some("interrupted: the figures are of the time until then");
        }
        let lacks = self.options.plan.bytes.is_some() && !self.is_complete();
        lacks.then_some("the time was over before all bytes had arrived")
    }

    /// What requests and newcomers found, beside the load or without any.
    pub(super) fn add_questions(&self, report: &mut Report, ours: &Side, ended: Instant) {
        let plan = &self.options.plan;
        let seconds = ours.received.seconds;
        let span = Duration::from_secs_f64(seconds);
        if let Some(asker) = self.asker.as_ref().filter(|_| !self.options.responsiveness) {
            report.requests = Some(asker.figures(span));
            if !plan.up && !plan.down {
                report.goodput_bits_per_second = asker.bytes() as f64 * 8.0 / seconds;
            }
        }
        match (&self.visits, &self.asker) {
            (Some(visits), Some(asker)) if self.options.responsiveness => {
                let [handshakes, answers] = visits.times();
                let way = report.down.as_ref().or(report.up.as_ref());
                let rates = way.and_then(|way| way.bins.as_ref()).map(Bins::rates);
                let rates: Vec<f64> = rates
                    .unwrap_or_default()
                    .chunks_exact(BINS_A_SECOND)
                    .map(|bins| bins.iter().sum::<f64>() * 8.0 / bins.len() as f64)
                    .collect();
                let times = [&handshakes[..], &answers, &asker.timed()];
                report.responsiveness = Responsiveness::new(times, &rates, ended);
            }
            (Some(visits), _) => report.handshakes = Some(visits.figures(span)),
            (None, _) => {}
        }
    }
}

/// One direction, by what its two ends say; messages may be protected by a code.
fn way(sender: &Side, receiver: &Side, code: Option<&str>) -> Way {
    let symbols = Symbols::of_way(sender.fec, receiver.fec);
    let received = &receiver.received;
    let flows: Vec<f64> = received.flows.iter().map(|&bytes| bytes as f64).collect();
    Way {
        goodput_bits_per_second: received.bytes as f64 * 8.0 / received.seconds.max(1e-3),
        bytes: received.bytes,
        seconds: received.seconds,
        bins: received.bins.clone(),
        flows: flows.len(),
        fairness: fairness(&flows),
        messages: received.messages.clone(),
        fec: code
            .zip(received.messages.as_ref())
            .map(|(code, messages)| FecFigures {
                choices: sender.choices.clone(),
                ..FecFigures::new(code, symbols, messages)
            }),
        sent_packets: sender.sent.packets,
        lost_packets: sender.sent.lost,
        controllers: sender.sent.controllers.clone(),
    }
}
