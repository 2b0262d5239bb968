//! An emulated link under a socket: both directions, in this process, without root.
//!
//! A packet that leaves enters the upward [`Link`], and goes to the socket when it comes out; what
//! the socket receives enters the downward one, and counts as arrived when it comes out. So the
//! server sees what it would see behind such a link. The model is exact; what this machine spoils
//! is how late packets are handed on, which is measured all the time.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use sennit_engine::{BareReceived, BareTransmit};
use sennit_load::{Times, selfcheck::Check};
use sennit_netem::{Counters, Link, LinkSpec};
use serde::{Deserialize, Serialize};

use super::profile::Profile;

/// Above this a packet in a hundred is handed on too late for figures in milliseconds.
const LATE: Duration = Duration::from_millis(1);
/// Headers below a QUIC packet: of UDP and IPv4, or IPv6.
const V4: usize = 28;
const V6: usize = 48;

/// A link that is emulated.
pub(super) struct Emulation {
    up: Link<(BareTransmit, Vec<u8>)>,
    down: Link<(BareReceived, BytesMut)>,
    late: Times,
}

/// What became of the packets of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passed {
    /// Packets that entered the link.
    pub entered: u64,
    /// Packets that came out, a few of which may have entered before the load.
    pub left: u64,
    /// Packets that were lost on the wire, by chance.
    pub lost: u64,
    /// Packets that found the queue full.
    pub overflowed: u64,
}

/// How a link was emulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Emulated {
    /// The profile, as it was asked for.
    pub profile: String,
    /// What probes found before the test.
    pub checks: Vec<Check>,
    /// Packets from here to the server.
    pub up: Passed,
    /// Packets from the server.
    pub down: Passed,
    /// 99 % of packets were handed on with less delay than this beyond the model's.
    pub late_p99_seconds: Option<f64>,
    /// The most of it.
    pub late_max_seconds: Option<f64>,
    /// Whether the link was as asked, before the test and throughout.
    pub exact: bool,
}

impl Emulation {
    /// An idle link, whose chance events are those of the seed.
    pub(super) fn new(spec: &LinkSpec, seed: u64) -> Self {
        Self {
            up: Link::new(spec.up.clone(), seed.wrapping_mul(2)),
            down: Link::new(spec.down.clone(), seed.wrapping_mul(2) + 1),
            late: Times::default(),
        }
    }

    /// The scripts of links that move begin, and counting does.
    pub(super) fn begin(&mut self, now: Instant) {
        self.up.begin(now);
        self.down.begin(now);
        self.up.reset_counters();
        self.down.reset_counters();
        self.late = Times::default();
    }

    /// Takes a run of packets that leaves.
    pub(super) fn enter_up(&mut self, transmit: &BareTransmit, bytes: &[u8], now: Instant) {
        let headers = if transmit.remote.is_ipv4() { V4 } else { V6 };
        let segment = transmit.segment.unwrap_or(bytes.len()).max(1);
        for packet in bytes.chunks(segment) {
            let one = BareTransmit {
                size: packet.len(),
                segment: None,
                ..*transmit
            };
            // What the link loses is lost.
            let packet = (one, packet.to_vec());
            let _ = self.up.handle_packet(one.size + headers, packet, now);
        }
    }

    /// A packet that goes on to the socket by now.
    pub(super) fn leave_up(&mut self, now: Instant) -> Option<(BareTransmit, Vec<u8>)> {
        let (due, packet) = self.up.poll_arrival(now)?;
        self.late.note(now.saturating_duration_since(due));
        Some(packet)
    }

    /// Takes a run of packets that the socket received.
    pub(super) fn enter_down(&mut self, from: BareReceived, mut data: BytesMut) {
        let headers = if from.remote.is_ipv4() { V4 } else { V6 };
        let segment = from.segment.max(1);
        while !data.is_empty() {
            let packet = data.split_to(segment.min(data.len()));
            let one = BareReceived {
                segment: packet.len(),
                ..from
            };
            let length = packet.len() + headers;
            let _ = self.down.handle_packet(length, (one, packet), from.arrived);
        }
    }

    /// A packet that has arrived by now: at the time at which it should have.
    pub(super) fn leave_down(&mut self, now: Instant) -> Option<(BareReceived, BytesMut)> {
        let (due, (from, data)) = self.down.poll_arrival(now)?;
        self.late.note(now.saturating_duration_since(due));
        let from = BareReceived {
            arrived: due,
            ..from
        };
        Some((from, data))
    }

    /// When something may come out.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let ends = [self.up.poll_timeout(), self.down.poll_timeout()];
        ends.into_iter().flatten().min()
    }

    /// What was seen of it.
    pub(super) fn emulated(&self, profile: &Profile, checks: Vec<Check>) -> Emulated {
        let late_p99 = self.late.quantile(0.99);
        let is_late = late_p99.is_some_and(|late| late > LATE);
        Emulated {
            profile: profile.name.clone(),
            exact: !is_late && checks.iter().all(Check::passes),
            checks,
            up: passed(&self.up.counters()),
            down: passed(&self.down.counters()),
            late_p99_seconds: late_p99.map(|late| late.as_secs_f64()),
            late_max_seconds: self.late.figures().max_seconds,
        }
    }
}

impl Emulated {
    /// What to know before using the figures, if it was not exact.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        if self.exact {
            return None;
        }
        let mut note = format!(
            "NOT EXACT: this machine was too busy, or is too slow, to emulate {}",
            self.profile
        );
        for check in self.checks.iter().filter(|check| !check.passes()) {
            let _ = write!(note, "; {check}");
        }
        let late = self
            .late_p99_seconds
            .filter(|&late| late > LATE.as_secs_f64());
        if let Some(late) = late {
            let _ = write!(
                note,
                "; one packet in a hundred was {:.1} ms late or more",
                late * 1e3
            );
        }
        Some(note)
    }
}

fn passed(counters: &Counters) -> Passed {
    Passed {
        entered: counters.offered,
        left: counters.delivered,
        lost: counters.dropped_loss,
        overflowed: counters.dropped_queue,
    }
}
