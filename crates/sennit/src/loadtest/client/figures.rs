//! The figures of both ends, put together.

use std::time::{Duration, Instant};

use sennit_load::{BIN, Bins, TimeFigures, fairness};

use super::{
    super::{
        emulation::Emulated,
        fec::{FecFigures, Symbols},
        report::{Cpu, Handshakes, PerConnection, Report, RoundTrips, SCHEMA, Unsent, Way},
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
        let up = plan.up.then(|| way(ours, theirs, plan));
        let down = plan.down.then(|| way(theirs, ours, plan));
        let cpu = Cpu {
            client_seconds: ours.cpu_seconds,
            server_seconds: theirs.cpu_seconds,
            client_waited_seconds: ours.cpu_waited_seconds,
            server_waited_seconds: theirs.cpu_waited_seconds,
        };
        let goodput = [&up, &down].into_iter().flatten();
        let mut notes = cpu.notes(ours.elapsed_seconds);
        notes.extend(theirs.other_tests.and_then(beside_others));
        notes.extend(up.iter().flat_map(|way| notes_of("up", way)));
        notes.extend(down.iter().flat_map(|way| notes_of("down", way)));
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
            other_tests: theirs.other_tests,
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
        if let Some(asker) = &self.asker {
            report.requests = Some(asker.figures(span));
            if !plan.up && !plan.down {
                report.goodput_bits_per_second = asker.bytes() as f64 * 8.0 / seconds;
            }
        }
        let Some(visits) = &self.visits else { return };
        report.handshakes = Some(visits.figures(span));
        if let Some(asker) = self.asker.as_ref().filter(|_| self.options.responsiveness) {
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
    }
}

/// That the server's processor and network were not for this test alone.
fn beside_others(others: u64) -> Option<String> {
    (others > 0).then(|| {
        format!("the server served {others} other test(s) meanwhile, which had their part of what it can do")
    })
}

/// What to know of a direction.
fn notes_of(name: &str, way: &Way) -> impl Iterator<Item = String> {
    let unsent = way.unsent.and_then(|unsent| unsent.note(name));
    let fec = way.fec.as_ref().and_then(|fec| fec.note(name));
    unsent.into_iter().chain(fec)
}

/// One direction, by what its two ends say.
fn way(sender: &Side, receiver: &Side, plan: &Plan) -> Way {
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
        fec: (plan.fec.as_deref())
            .zip(received.messages.as_ref())
            .map(|(code, messages)| FecFigures {
                choices: sender.choices.clone(),
                ..FecFigures::new(code, symbols, messages)
            }),
        unsent: unsent(sender, receiver, plan),
        sent_packets: sender.sent.packets,
        lost_packets: sender.sent.lost,
        controllers: sender.sent.controllers.clone(),
    }
}

/// What the plan's rate asked of a direction beyond what left; an end that did not tell what it did
/// has no time.
fn unsent(sender: &Side, receiver: &Side, plan: &Plan) -> Option<Unsent> {
    let both_tell = sender.elapsed_seconds > 0.0 && receiver.elapsed_seconds > 0.0;
    let rate = plan.rate_bits_per_second.filter(|_| both_tell)?;
    let due = (rate / 8.0 * receiver.received.seconds) as u64;
    Some(match plan.message_bytes.map(u64::from) {
        // A message that is due is due as a whole.
        Some(bytes) => {
            let left = sender.sent.messages.saturating_mul(bytes);
            Unsent::new(due / bytes.max(1) * bytes, left)
        }
        None => {
            let due = plan.bytes.map_or(due, |all| due.min(all));
            Unsent::new(due, receiver.received.bytes)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight Mbit/s are a thousand messages a second.
    #[test]
    fn what_is_due_by_the_rate_and_was_not_sent_is_unsent() {
        let plan = Plan {
            message_bytes: Some(1000),
            rate_bits_per_second: Some(8e6),
            ..Plan::example()
        };
        let mut sender = Side {
            elapsed_seconds: 9.0,
            ..Side::default()
        };
        sender.sent.messages = 5000;
        let mut receiver = sender.clone();
        receiver.received.seconds = 8.0;
        receiver.received.bytes = 4_900_000;

        let messages = unsent(&sender, &receiver, &plan);
        let streams = Plan {
            message_bytes: None,
            ..plan.clone()
        };

        assert_eq!(messages, Some(Unsent::new(8_000_000, 5_000_000)));
        let arrived = unsent(&sender, &receiver, &streams);
        assert_eq!(arrived, Some(Unsent::new(8_000_000, 4_900_000)));
        let silent = Side::default();
        assert_eq!(unsent(&silent, &receiver, &plan), None);
        assert_eq!(unsent(&sender, &receiver, &Plan::example()), None);
    }
}
