//! What a test found: a document that can be read back, and the same in words.
//!
//! Bytes are bytes, times seconds, shares ratios; a rate says so in its name. `null` means that it
//! was not measured.

mod summary;

use sennit_load::{ArrivalFigures, Bins, Bucket, TimeFigures};
use serde::{Deserialize, Serialize};

use super::{
    client::TestError,
    emulation::Emulated,
    fec::FecFigures,
    requests::RequestFigures,
    responsiveness::Responsiveness,
    stack::StackName,
    visits::VisitFigures,
    words::{Memory, Plan},
};

/// The version of the document's shape.
pub const SCHEMA: &str = "sennit.test/1";

/// From so many connections on their memory can be told from that of everything else.
pub(super) const ENOUGH: u16 = 50;

/// Above this share of a processor the thread of an end was the limit.
const BUSY: f64 = 0.9;

/// From this share of the time on in which the thread of an end waits for a processor, other work
/// on its machine may have been the limit.
const KEPT_WAITING: f64 = 0.05;

/// From this share of what was due on it is told that it did not leave: goodput is true to 1 %.
const MISSED: f64 = 0.01;

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
    /// Other tests that the server served while this one ran; `None` if it does not tell.
    #[serde(default)]
    pub other_tests: Option<u64>,
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
    /// What was due by the rate that was asked for and did not leave; `None` without a rate, and if
    /// an end did not tell what it did.
    #[serde(default)]
    pub unsent: Option<Unsent>,
    /// QUIC packets that the sender sent; none if it does not tell.
    pub sent_packets: u64,
    /// QUIC packets that the sender took for lost.
    pub lost_packets: u64,
    /// Congestion controllers that ran at the sender's end.
    pub controllers: Vec<String>,
}

/// Payload that was due by a rate while the load counted, and did not leave its sender. Of streams,
/// which keep what was written, it is what had not arrived by then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Unsent {
    /// Bytes that were due.
    pub due_bytes: u64,
    /// Bytes of these that did not leave.
    pub bytes: u64,
    /// These over those that were due.
    pub ratio: f64,
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
    /// How they went while it ran, in order of time.
    #[serde(default)]
    pub moments: Vec<Moment>,
    /// P95 − P50 while the load ran.
    pub jitter_seconds: Option<f64>,
    /// Median under load, less the median before.
    pub added_delay_seconds: Option<f64>,
    /// Mean under load over the least before, less one.
    pub bufferbloat_factor: Option<f64>,
}

/// Probes that left within a second, or a little more of a test of many minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Its middle, from the end of the warm-up on.
    pub at_seconds: f64,
    /// Half of its round trips were shorter; `None` if no probe was answered.
    pub p50_seconds: Option<f64>,
    /// The longest.
    pub max_seconds: Option<f64>,
    /// Probes that were never answered.
    pub lost: u64,
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
    /// For so long the client's thread waited for a processor that others had.
    #[serde(default)]
    pub client_waited_seconds: Option<f64>,
    /// For so long the server's did; `None` if it does not tell.
    #[serde(default)]
    pub server_waited_seconds: Option<f64>,
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

impl Way {
    /// Part of its packets that the sender took for lost; `None` if it does not tell.
    #[must_use]
    pub fn lost_ratio(&self) -> Option<f64> {
        let (lost, sent) = (self.lost_packets as f64, self.sent_packets as f64);
        (self.sent_packets > 0).then(|| lost / sent)
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
            moments: Vec::new(),
            idle,
            loaded,
            probes,
            lost,
        }
    }
}

impl Cpu {
    /// Which ends were busy all the time, or had to wait for a processor.
    #[must_use]
    pub fn notes(&self, seconds: f64) -> Vec<String> {
        if seconds < SHORTEST_SHARE {
            return Vec::new();
        }
        let note = |end: &str, ran: Option<f64>, waited: Option<f64>| {
            let [ran, waited] = [ran, waited].map(|time| time.unwrap_or(0.0) / seconds);
            if ran > BUSY {
                let percent = ran * 100.0;
                return Some(format!(
                    "{end} used {percent:.0} % of a processor for its only thread: the network may carry more"
                ));
            }
            let percent = waited * 100.0;
            (waited >= KEPT_WAITING).then(|| {
                format!(
                    "{end} had its thread wait for a processor for {percent:.0} % of the time, as other work \
                     had it: the network may carry more"
                )
            })
        };
        let ends = [
            note(
                "this machine",
                self.client_seconds,
                self.client_waited_seconds,
            ),
            note(
                "the server",
                self.server_seconds,
                self.server_waited_seconds,
            ),
        ];
        ends.into_iter().flatten().collect()
    }
}

impl Unsent {
    /// Of so many bytes that were due some left.
    #[must_use]
    pub fn new(due_bytes: u64, left_bytes: u64) -> Self {
        let bytes = due_bytes.saturating_sub(left_bytes);
        Self {
            due_bytes,
            bytes,
            ratio: bytes as f64 / due_bytes.max(1) as f64,
        }
    }

    /// That less was offered to the network than was asked for, if it was much less.
    #[must_use]
    pub fn note(&self, way: &str) -> Option<String> {
        let percent = self.ratio * 100.0;
        (self.ratio >= MISSED).then(|| {
            format!(
                "{way}: {percent:.1} % of the payload that was due by the rate had not left at the end: \
                 there was no room for it, and no figure of loss holds it"
            )
        })
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
            other_tests: None,
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
            server_waited_seconds: Some(0.1),
            ..Cpu::default()
        };
        let notes = cpu.notes(8.0);
        assert_eq!(notes.len(), 1);
        assert!(notes[0].starts_with("this machine used 98 %"), "{notes:?}");
        assert!(cpu.notes(0.003).is_empty(), "too short to tell");
    }

    /// A neighbour that takes half of the processor hides how busy the thread would be.
    #[test]
    fn an_end_that_waited_for_a_processor_is_named() {
        let cpu = Cpu {
            client_seconds: Some(4.0),
            client_waited_seconds: Some(3.2),
            server_seconds: Some(2.0),
            server_waited_seconds: Some(0.5),
        };

        let notes = cpu.notes(8.0);

        let [here, there] = &notes[..] else {
            panic!("both waited: {notes:?}");
        };
        assert!(
            here.starts_with("this machine had its thread wait for a processor for 40 %"),
            "{here}"
        );
        assert!(there.starts_with("the server had its thread"), "{there}");
    }

    #[test]
    fn what_did_not_leave_is_told_from_a_hundredth_on() {
        let much = Unsent::new(1000, 625);
        assert_eq!((much.bytes, much.ratio), (375, 0.375));
        let note = much.note("down").expect("it is much");
        assert!(note.starts_with("down: 37.5 % of the payload"), "{note}");

        for left in [995, 1000, 1010] {
            assert_eq!(Unsent::new(1000, left).note("down"), None, "{left}");
        }
        assert_eq!(Unsent::new(0, 0).ratio, 0.0);
    }
}
