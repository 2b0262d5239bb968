//! What a test found: a document that can be read back, and the same in words.
//!
//! Bytes are bytes, times seconds, shares ratios; a rate says so in its name. `null` means that it
//! was not measured.

use std::fmt::{self, Display};

use sennit_load::{ArrivalFigures, Bins, Bucket, TimeFigures};
use serde::{Deserialize, Serialize};

use super::{
    client::TestError,
    emulation::{Emulated, Passed},
    fec::FecFigures,
    requests::{RequestFigures, Requests},
    responsiveness::Responsiveness,
    stack::StackName,
    visits::VisitFigures,
    words::{Memory, Plan},
};

/// The version of the document's shape.
pub const SCHEMA: &str = "sennit.test/1";

/// From so many connections on their memory can be told from that of everything else.
const ENOUGH: u16 = 50;

/// Above this share of a processor the thread of an end was the limit.
const BUSY: f64 = 0.9;

/// Seconds that a test lasts at least for a share of a processor to mean something: the kernel
/// brings the account of a running thread up to date at its ticks, which are up to 10 ms apart.
const SHORTEST_SHARE: f64 = 0.1;

/// What a test found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// The protocol that both ends spoke (ALPN).
    pub protocol: String,
    /// The QUIC of the client.
    #[serde(default)]
    pub client_stack: StackName,
    /// The QUIC of the server; `None` if it does not tell.
    #[serde(default)]
    pub server_stack: Option<StackName>,
    /// Address of the server.
    pub server: String,
    /// What was asked for, without the token.
    pub plan: Plan,
    /// Somebody ended it before its time.
    pub interrupted: bool,
    /// Why the server was lost before it had told its figures: then those of the way up are what it
    /// had said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
    /// Payload that arrived, of both directions together.
    pub goodput_bits_per_second: f64,
    /// From the client to the server; `None` if that was not asked for.
    pub up: Option<Way>,
    /// From the server to the client.
    pub down: Option<Way>,
    /// Round trips of probes beside the load.
    pub rtt: RoundTrips,
    /// From the first packet until the client may send.
    pub handshake: Handshakes,
    /// CPU time of each end's thread while the load ran.
    pub cpu: Cpu,
    /// The link that was emulated under the client's socket, if one was.
    pub emulated: Option<Emulated>,
    /// Requests and their answers, if some were asked for.
    pub requests: Option<RequestFigures>,
    /// Handshakes over and over, if some were asked for.
    pub handshakes: Option<VisitFigures>,
    /// Round trips a minute under load, if that was asked for.
    pub responsiveness: Option<Responsiveness>,
    /// Memory for each connection of the load, at the client's end.
    pub client_memory: PerConnection,
    /// Memory for each connection, at the server's end, where other clients may be.
    pub server_memory: PerConnection,
    /// What came of the gates that were asked for.
    pub gates: Vec<Outcome>,
    /// What to know before using the figures.
    pub notes: Vec<String>,
}

/// One direction, as its receiver saw it unless it says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Way {
    /// Payload bytes over the time in which they were counted.
    pub goodput_bits_per_second: f64,
    /// Payload bytes that arrived in that time, each once.
    pub bytes: u64,
    /// How long was counted.
    pub seconds: f64,
    /// Payload bytes a second, bin by bin.
    pub bins: Option<Bins>,
    /// Streams, or connections with messages.
    pub flows: usize,
    /// Jain's index of fairness over them.
    pub fairness: Option<f64>,
    /// Messages, if there were any, as they arrived by themselves.
    pub messages: Option<ArrivalFigures>,
    /// Error correction of them, if they were protected; what it brought back is in the goodput.
    pub fec: Option<FecFigures>,
    /// QUIC packets that the sender sent.
    pub sent_packets: u64,
    /// QUIC packets that the sender took for lost.
    pub lost_packets: u64,
    /// Congestion controllers that ran at the sender's end.
    pub controllers: Vec<String>,
}

/// Round trips by the times at which packets left and arrived, without what the server kept them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundTrips {
    /// Before the load.
    pub idle: TimeFigures,
    /// While it ran, after the warm-up.
    pub loaded: TimeFigures,
    /// Probes that left while it ran.
    pub probes: u64,
    /// Probes of these that were never answered.
    pub lost: u64,
    /// Those before the load one by one, roughly.
    pub idle_histogram: Vec<Bucket>,
    /// Those while it ran.
    pub loaded_histogram: Vec<Bucket>,
    /// P95 − P50 while the load ran.
    pub jitter_seconds: Option<f64>,
    /// Median under load, less the median before.
    pub added_delay_seconds: Option<f64>,
    /// Mean under load over the least before, less one.
    pub bufferbloat_factor: Option<f64>,
}

/// Handshakes, one of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Handshakes {
    /// With X25519MLKEM768.
    pub post_quantum_seconds: Option<f64>,
    /// With X25519.
    pub classic_seconds: Option<f64>,
    /// With a ticket of an earlier connection.
    pub resumed_seconds: Option<f64>,
    /// Until the answer to a question that left with the first packet (0-RTT).
    pub zero_rtt_answer_seconds: Option<f64>,
}

/// CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Of the client's thread.
    pub client_seconds: Option<f64>,
    /// Of the server's thread, for all of its clients.
    pub server_seconds: Option<f64>,
}

/// Memory of a process that its connections took, over their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerConnection {
    /// Before anything was sent over them.
    pub idle_bytes: Option<f64>,
    /// The most of it under load.
    pub loaded_bytes: Option<f64>,
}

impl PerConnection {
    /// Of so many connections; fewer than [`ENOUGH`] say nothing, as memory comes in large pieces.
    #[must_use]
    pub fn new(memory: &Memory, connections: u16) -> Self {
        let of_each = |all: Option<u64>| {
            let grown = all?.saturating_sub(memory.before_bytes?);
            (connections >= ENOUGH).then(|| grown as f64 / f64::from(connections))
        };
        Self {
            idle_bytes: of_each(memory.idle_bytes),
            loaded_bytes: of_each(memory.loaded_bytes),
        }
    }
}

impl RoundTrips {
    /// Of probes before and while the load ran.
    #[must_use]
    pub fn new(idle: TimeFigures, loaded: TimeFigures, probes: u64, lost: u64) -> Self {
        let both = |a: Option<f64>, b: Option<f64>| a.zip(b);
        Self {
            jitter_seconds: loaded.jitter_seconds(),
            added_delay_seconds: both(loaded.p50_seconds, idle.p50_seconds)
                .map(|(loaded, idle)| loaded - idle),
            bufferbloat_factor: both(loaded.mean_seconds, idle.min_seconds)
                .map(|(mean, least)| mean / least - 1.0),
            idle_histogram: Vec::new(),
            loaded_histogram: Vec::new(),
            idle,
            loaded,
            probes,
            lost,
        }
    }
}

impl Cpu {
    /// Which ends were busy all the time.
    #[must_use]
    pub fn notes(&self, seconds: f64) -> Vec<String> {
        if seconds < SHORTEST_SHARE {
            return Vec::new();
        }
        let ends = [
            ("this machine", self.client_seconds),
            ("the server", self.server_seconds),
        ];
        let busy = |(end, cpu): &(&str, Option<f64>)| {
            let share = (*cpu)? / seconds;
            (share > BUSY).then(|| {
                format!(
                    "{end} used {:.0} % of a processor for its only thread: the network may carry more",
                    share * 100.0
                )
            })
        };
        ends.iter().filter_map(busy).collect()
    }
}

/// What came of a gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The gate, as it was written.
    pub gate: String,
    /// The figure, in base units; `None` if it was not measured.
    pub measured: Option<f64>,
    /// Whether it is within the bound; what was not measured is not.
    pub passed: bool,
}

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
    pub(super) fn load(&self) -> String {
        match (self.message_bytes, self.requests, self.streams) {
            (Some(bytes), ..) => format!("messages of {bytes} bytes{}", self.protection()),
            (None, Some(Requests { concurrency, .. }), 0) => {
                format!("{concurrency} request(s) at a time each")
            }
            (None, None, 0) => "no load".to_owned(),
            (None, _, streams) => format!("{streams} stream(s) each"),
        }
    }
}

impl Report {
    /// What there is although the server was lost, which may have told what it received until then.
    pub(super) fn broken_off(mut self, error: &TestError, tells: bool) -> Self {
        let error = error.to_string();
        let said = match tells {
            true => "; what it received is what it had said last, and what it sent is not known",
            false => "",
        };
        self.notes.push(format!(
            "{error}: rates are of the time until it was last heard of{said}"
        ));
        Self {
            server_stack: None,
            broken: Some(error),
            ..self
        }
    }

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
                latency,
                ..
            } = requests;
            let latency = line(latency);
            writeln!(
                f,
                "requests   {answers_per_second:.1} answered a second, {unanswered} not; {latency}"
            )?;
        }
        if let Some(visits) = &self.handshakes {
            let (rate, failed, time) = (visits.per_second, visits.failed, line(&visits.time));
            writeln!(f, "handshakes {rate:.1} a second, {failed} failed; {time}")?;
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
        if self.sent_packets > 0 {
            let lost = self.lost_packets as f64 / self.sent_packets as f64 * 100.0;
            let what = match self.messages {
                Some(_) => "lost",
                None => "sent again",
            };
            write!(f, ", {lost:.2} % of packets {what}")?;
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

#[cfg(test)]
impl Report {
    /// Of a test that measured nothing.
    pub(super) fn example() -> Self {
        Self {
            schema: SCHEMA.into(),
            protocol: String::new(),
            client_stack: StackName::Sennit,
            server_stack: None,
            server: String::new(),
            plan: Plan::example(),
            interrupted: false,
            broken: None,
            goodput_bits_per_second: 0.0,
            up: None,
            down: None,
            rtt: RoundTrips::default(),
            handshake: Handshakes::default(),
            cpu: Cpu::default(),
            emulated: None,
            requests: None,
            handshakes: None,
            responsiveness: None,
            client_memory: PerConnection::default(),
            server_memory: PerConnection::default(),
            gates: Vec::new(),
            notes: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(min: f64, mean: f64, p50: f64, p95: f64) -> TimeFigures {
        TimeFigures {
            count: 9,
            min_seconds: Some(min),
            mean_seconds: Some(mean),
            p50_seconds: Some(p50),
            p95_seconds: Some(p95),
            ..TimeFigures::default()
        }
    }

    #[test]
    fn what_load_adds_is_told_from_what_was_there() {
        let idle = times(0.020, 0.022, 0.021, 0.025);
        let trips = RoundTrips::new(idle, times(0.030, 0.060, 0.055, 0.080), 100, 3);

        let close = |value: Option<f64>, expected: f64| {
            let value = value.expect("both are known");
            assert!((value - expected).abs() < 1e-9, "{value} {expected}");
        };
        close(trips.added_delay_seconds, 0.034);
        close(trips.bufferbloat_factor, 2.0);
        close(trips.jitter_seconds, 0.025);
        let none = RoundTrips::new(TimeFigures::default(), idle, 5, 0);
        assert_eq!(none.bufferbloat_factor, None);
    }

    #[test]
    fn an_end_that_was_busy_is_named_after_a_while() {
        let cpu = Cpu {
            client_seconds: Some(7.8),
            server_seconds: Some(2.0),
        };
        let notes = cpu.notes(8.0);
        assert_eq!(notes.len(), 1);
        assert!(notes[0].starts_with("this machine used 98 %"), "{notes:?}");
        assert!(cpu.notes(0.003).is_empty(), "too short to tell");
    }
}
