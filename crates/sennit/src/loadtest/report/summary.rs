//! What a test found, in words.

use std::fmt::{self, Display};

use sennit_load::{ArrivalFigures, TimeFigures};

use super::{
    super::{
        emulation::{Emulated, Passed},
        requests::{RequestFigures, Requests},
        stack::StackName,
        visits::VisitFigures,
        words::Plan,
    },
    Handshakes, Report, RoundTrips, Way,
};

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan {
            connections,
            ref congestion,
            ..
        } = self.plan;
        let load = self.plan.load();
        let server = &self.server;
        writeln!(
            f,
            "{server}: {connections} connection(s), {load}, congestion control {congestion}"
        )?;
        self.write_stacks(f)?;
        for (name, way) in [("up", &self.up), ("down", &self.down)] {
            if let Some(way) = way {
                way.write(name, f)?;
            }
        }
        self.rtt.write(f)?;
        self.handshake.write(f)?;
        self.write_questions(f)?;
        if let Some(emulated) = &self.emulated {
            emulated.write(f)?;
        }
        let cpu = [self.cpu.client_seconds, self.cpu.server_seconds]
            .map(|time| shared_by(time, connections));
        writeln!(f, "cpu        client {}, server {}", cpu[0], cpu[1])?;
        for (end, memory) in [
            ("client", self.client_memory),
            ("server", self.server_memory),
        ] {
            if let (Some(idle), Some(loaded)) = (memory.idle_bytes, memory.loaded_bytes) {
                let [idle, loaded] = [idle, loaded].map(|bytes| bytes / 1e3);
                writeln!(
                    f,
                    "memory     {end}: {idle:.1} KB a connection idle, {loaded:.1} KB under load"
                )?;
            }
        }
        self.gates
            .iter()
            .try_for_each(|gate| writeln!(f, "gate       {gate}"))?;
        self.notes
            .iter()
            .try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

impl Plan {
    /// What each connection carries.
    pub(in super::super) fn load(&self) -> String {
        let load = match (self.message_bytes, self.requests, self.streams) {
            (Some(bytes), ..) => format!("messages of {bytes} bytes{}", self.protection()),
            (None, Some(Requests { concurrency, .. }), 0) => {
                format!("{concurrency} request(s) at a time each")
            }
            (None, None, 0) => "no load".to_owned(),
            (None, _, streams) => format!("{streams} stream(s) each"),
        };
        match self.requests {
            Some(_) if self.up || self.down => format!("{load} beside requests"),
            Some(_) | None => load,
        }
    }
}

impl Report {
    /// Only a run by another stack than ours is worth a line.
    fn write_stacks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stacks = [Some(self.client_stack), self.server_stack];
        if !stacks.contains(&Some(StackName::Quinn)) {
            return Ok(());
        }
        let [client, server] =
            stacks.map(|stack| stack.map_or("not told".into(), |it| it.to_string()));
        writeln!(f, "stack      client {client}, server {server}")
    }

    fn write_questions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |times: &TimeFigures| {
            let times = [times.p50_seconds, times.p95_seconds, times.p99_seconds];
            let [middle, slow, slowest] = times.map(millis);
            format!("p50 {middle}, p95 {slow}, p99 {slowest}")
        };
        if let Some(requests) = &self.requests {
            let RequestFigures {
                answers_per_second,
                unanswered,
                failed,
                latency,
                ..
            } = requests;
            let latency = line(latency);
            writeln!(
                f,
                "requests   {answers_per_second:.1} answered a second, {unanswered} not, {failed} failed; {latency}"
            )?;
        }
        if let Some(visits) = &self.handshakes {
            let VisitFigures {
                per_second,
                failed,
                waiting,
                time,
                ..
            } = visits;
            let time = line(time);
            writeln!(
                f,
                "handshakes {per_second:.1} a second, {failed} failed, {waiting} not through at the end; {time}"
            )?;
        }
        let Some(found) = &self.responsiveness else {
            return Ok(());
        };
        writeln!(
            f,
            "responsive {:.0} round trips a minute (new connections {:.0}, those of the load {:.0}; worst 5 % {:.0}), confidence {}",
            found.rpm,
            found.foreign_rpm,
            found.loaded_rpm,
            found.worst_rpm,
            found.confidence.word()
        )
    }
}

impl Way {
    fn write(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mbit = self.goodput_bits_per_second / 1e6;
        write!(f, "{name:10} {mbit:.2} Mbit/s over {:.2} s", self.seconds)?;
        // A sender of another stack does not say.
        if let Some(lost) = self.lost_ratio() {
            let lost = lost * 100.0;
            let what = match self.messages {
                Some(_) => "lost",
                None => "sent again",
            };
            write!(f, ", {lost:.2} % of packets {what}")?;
        }
        if let Some(unsent) = self.unsent {
            write!(f, ", {:.2} % of what was due unsent", unsent.ratio * 100.0)?;
        }
        if let Some(fairness) = self.fairness.filter(|_| self.flows > 1) {
            write!(f, ", fairness {fairness:.3} over {} flows", self.flows)?;
        }
        if !self.controllers.is_empty() {
            write!(f, " ({})", self.controllers.join(", "))?;
        }
        writeln!(f)?;
        let Some(messages) = &self.messages else {
            return Ok(());
        };
        let ArrivalFigures {
            sent,
            lost,
            loss_ratio,
            reordered,
            ipdv,
            ..
        } = messages;
        writeln!(
            f,
            "  messages {sent} sent, {lost} lost ({:.2} %), {reordered} out of order, ipdv p95 {}",
            loss_ratio * 100.0,
            millis(ipdv.p95_seconds)
        )?;
        self.fec.as_ref().map_or(Ok(()), |fec| write!(f, "{fec}"))
    }
}

impl RoundTrips {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |times: &TimeFigures| {
            let [least, middle, slow, slowest] = [
                times.min_seconds,
                times.p50_seconds,
                times.p95_seconds,
                times.p99_seconds,
            ]
            .map(millis);
            format!("least {least}, p50 {middle}, p95 {slow}, p99 {slowest}")
        };
        writeln!(f, "rtt idle   {}", line(&self.idle))?;
        let (probes, lost) = (self.probes, self.lost);
        writeln!(
            f,
            "rtt loaded {}; {lost} of {probes} probes lost",
            line(&self.loaded)
        )?;
        let factor = self.bufferbloat_factor;
        let factor = factor.map_or("-".into(), |factor| format!("{factor:.2}"));
        let added = millis(self.added_delay_seconds);
        writeln!(
            f,
            "added      {added} under load, bufferbloat factor {factor}"
        )
    }
}

impl Handshakes {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, classic, resumed, early] = [
            self.post_quantum_seconds,
            self.classic_seconds,
            self.resumed_seconds,
            self.zero_rtt_answer_seconds,
        ]
        .map(millis);
        writeln!(
            f,
            "handshake  post-quantum {first}, classic {classic}, resumed {resumed}; 0-RTT answer {early}"
        )
    }
}

impl Emulated {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let late = [self.late_p99_seconds, self.late_max_seconds].map(millis);
        writeln!(
            f,
            "emulated   {}; packets late p99 {}, most {}",
            self.profile, late[0], late[1]
        )?;
        for (name, passed) in [("up", self.up), ("down", self.down)] {
            let Passed {
                entered,
                lost,
                overflowed,
                ..
            } = passed;
            writeln!(
                f,
                "  {name:8} {entered} packets entered, {lost} lost by chance, {overflowed} found the queue full"
            )?;
        }
        Ok(())
    }
}

fn millis(seconds: Option<f64>) -> String {
    seconds.map_or("-".into(), |seconds| format!("{:.2} ms", seconds * 1e3))
}

/// Time of a processor that so many connections took.
fn shared_by(time: Option<f64>, connections: u16) -> String {
    let Some(seconds) = time else {
        return "-".into();
    };
    let of_each = millis(Some(seconds / f64::from(connections.max(1))));
    match connections {
        0 | 1 => format!("{seconds:.2} s"),
        _ => format!("{seconds:.2} s ({of_each} a connection)"),
    }
}
