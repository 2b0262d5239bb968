//! The figures of both ends, put together.

use sennit_load::{TimeFigures, fairness};

use super::{
    super::{
        emulation::Emulated,
        report::{Cpu, Handshakes, PerConnection, Report, RoundTrips, SCHEMA, Way},
        wire::Network,
        words::{Plan, Side},
    },
    Client,
};

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
        let up = plan.up.then(|| way(ours, theirs));
        let down = plan.down.then(|| way(theirs, ours));
        let cpu = Cpu {
            client_seconds: ours.cpu_seconds,
            server_seconds: theirs.cpu_seconds,
        };
        let goodput = [&up, &down].into_iter().flatten();
        let mut notes = cpu.notes(ours.elapsed_seconds);
        let emulated = self.options.profile.as_ref().and_then(|profile| {
            let link = self.net.emulation()?;
            Some(link.emulated(profile, self.checks.clone()))
        });
        notes.extend(emulated.as_ref().and_then(Emulated::note));
        if plan.bytes.is_some() && !interrupted && !self.is_complete() {
            notes.push("the time was over before all bytes had arrived".into());
        }
        if interrupted {
            notes.push("interrupted: the figures are of the time until then".into());
        }
        if rtt.idle == TimeFigures::default() {
            notes.push("no probe was answered before the load".into());
        }
        Report {
            schema: SCHEMA.into(),
            server: self.options.server.to_string(),
            plan: Plan {
                token: None,
                ..plan.clone()
            },
            interrupted,
            goodput_bits_per_second: goodput.map(|way| way.goodput_bits_per_second).sum(),
            up,
            down,
            rtt,
            handshake,
            cpu,
            emulated,
            gates: Vec::new(),
            client_memory: PerConnection::new(&ours.memory, plan.connections),
            server_memory: PerConnection::new(&theirs.memory, plan.connections),
            notes,
        }
    }
}

/// One direction, by what its two ends say.
fn way(sender: &Side, receiver: &Side) -> Way {
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
        sent_packets: sender.sent.packets,
        lost_packets: sender.sent.lost,
        controllers: sender.sent.controllers.clone(),
    }
}
