//! Which packets are lost (RFC 9002 §6), and how long the way takes (§5).

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{MAX_ACK_DELAY, Range};

/// RFC 9002 §6.1.1.
const PACKET_THRESHOLD: u32 = 3;
/// RFC 9002 §6.1.2.
const GRANULARITY: Duration = Duration::from_millis(1);
/// RFC 9002 §6.2.2.
const INITIAL_RTT: Duration = Duration::from_millis(333);
/// Probe timeouts without any arrival after which congestion is persistent (RFC 9002 §7.6.1).
const PERSISTENT: u32 = 3;

/// A packet that is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) at: Instant,
    pub(super) chunk: u32,
}

/// What an acknowledgement or the passing of time has shown.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) arrived: Vec<Sent>,
    pub(super) lost: Vec<Sent>,
    /// Nothing arrived of what was sent within several probe timeouts.
    pub(super) persistent: bool,
}

/// The packets on their way.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    packets: BTreeMap<u32, Sent>,
    next: u32,
    largest: Option<u32>,
    rtt: Option<Rtt>,
    /// When packets are lost because others arrived long after they should have.
    loss_at: Option<Instant>,
    last_sent: Option<Instant>,
    probes: u32,
}

#[derive(Clone, Copy, Debug)]
struct Rtt {
    smoothed: Duration,
    variance: Duration,
    latest: Duration,
}

impl InFlight {
    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(super) fn srtt(&self) -> Duration {
        self.rtt.map_or(INITIAL_RTT, |rtt| rtt.smoothed)
    }

    /// The number of a packet that leaves now.
    pub(super) fn send(&mut self, chunk: u32, now: Instant) -> u32 {
        let number = self.next;
        self.next += 1;
        self.packets.insert(number, Sent { at: now, chunk });
        self.last_sent = Some(now);
        number
    }

    pub(super) fn handle_ack(&mut self, ranges: &[Range], now: Instant) -> Outcome {
        let mut outcome = Outcome::default();
        let mut newest = None;
        for range in ranges {
            let numbers: Vec<u32> = self.packets.range(range.clone()).map(|(n, _)| *n).collect();
            newest = newest.max(numbers.last().copied());
            for number in numbers {
                outcome.arrived.extend(self.packets.remove(&number));
            }
        }
        let sent = outcome.arrived.iter().map(|sent| sent.at).max();
        if let Some(sent) = sent.filter(|_| newest > self.largest) {
            self.handle_sample(now - sent);
        }
        if newest.is_some() {
            self.largest = self.largest.max(newest);
            self.probes = 0;
        }
        self.detect(&mut outcome, now);
        outcome
    }

    /// What has been lost by now.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Outcome {
        let mut outcome = Outcome::default();
        self.detect(&mut outcome, now);
        outcome
    }

    /// Whether a probe is due; the next takes twice as long.
    pub(super) fn is_probe_due(&mut self, now: Instant) -> bool {
        let due = self.loss_at.is_none() && self.probe_at().is_some_and(|at| at <= now);
        self.probes += u32::from(due);
        due
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.loss_at.or_else(|| self.probe_at())
    }

    fn detect(&mut self, outcome: &mut Outcome, now: Instant) {
        self.loss_at = None;
        let Some(largest) = self.largest else { return };
        let patience = self.patience();
        let mut run: Option<(u32, Instant)> = None;
        let mut lost = Vec::new();
        for (&number, &sent) in self.packets.range(..largest) {
            if number + PACKET_THRESHOLD > largest && sent.at + patience > now {
                self.loss_at = Some(sent.at + patience);
                break;
            }
            lost.push(number);
            // Packets in a row: none between them has arrived.
            let first = match run {
                Some((last, first)) if last + 1 == number => first,
                Some(_) | None => sent.at,
            };
            run = Some((number, first));
            outcome.persistent |= sent.at - first > self.probe_timeout() * PERSISTENT;
        }
        for number in lost {
            outcome.lost.extend(self.packets.remove(&number));
        }
    }

    /// How long after it was sent a packet is lost if a later one has arrived.
    fn patience(&self) -> Duration {
        let rtt = self
            .rtt
            .map_or(INITIAL_RTT, |rtt| rtt.smoothed.max(rtt.latest));
        (rtt * 9 / 8).max(GRANULARITY)
    }

    fn probe_timeout(&self) -> Duration {
        let variance = self.rtt.map_or(INITIAL_RTT / 2, |rtt| rtt.variance);
        self.srtt() + (variance * 4).max(GRANULARITY) + MAX_ACK_DELAY
    }

    fn probe_at(&self) -> Option<Instant> {
        let backoff = 1 << self.probes.min(6);
        self.last_sent.map(|at| at + self.probe_timeout() * backoff)
    }

    fn handle_sample(&mut self, latest: Duration) {
        let Some(rtt) = &mut self.rtt else {
            self.rtt = Some(Rtt {
                smoothed: latest,
                variance: latest / 2,
                latest,
            });
            return;
        };
        let deviation = rtt.smoothed.abs_diff(latest);
        rtt.variance = (rtt.variance * 3 + deviation) / 4;
        rtt.smoothed = (rtt.smoothed * 7 + latest) / 8;
        rtt.latest = latest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Ten packets, 1 ms apart, and when the last of them left.
    fn ten(now: Instant) -> (InFlight, Instant) {
        let mut flight = InFlight::default();
        for n in 0..10 {
            flight.send(100 + n, now + MS * n);
        }
        (flight, now + MS * 9)
    }

    fn chunks(sent: &[Sent]) -> Vec<u32> {
        sent.iter().map(|sent| sent.chunk).collect()
    }

    #[test]
    fn a_packet_is_lost_once_three_later_ones_have_arrived() {
        let (mut flight, now) = ten(Instant::now());
        assert_eq!(flight.handle_ack(&[1..=2], now + MS * 50).lost, []);
        let outcome = flight.handle_ack(&[1..=3], now + MS * 51);
        assert_eq!(
            (chunks(&outcome.arrived), chunks(&outcome.lost)),
            (vec![103], vec![100])
        );
        assert_eq!(flight.len(), 6);
    }

    #[test]
    fn a_packet_is_lost_after_nine_eighths_of_a_round_trip() {
        let start = Instant::now();
        let (mut flight, _) = ten(start);
        flight.handle_ack(&[1..=1], start + MS * 81);
        assert_eq!(flight.poll_timeout(), Some(start + MS * 90));
        assert_eq!(flight.handle_timeout(start + MS * 89).lost, []);
        assert_eq!(chunks(&flight.handle_timeout(start + MS * 90).lost), [100]);
    }

    #[test]
    fn without_acknowledgements_probes_are_sent_ever_more_seldom() {
        let start = Instant::now();
        let mut flight = InFlight::default();
        flight.send(0, start);
        // RFC 9002 §6.2.1: 333 ms + 4 * 166.5 ms + 25 ms.
        let due = start + MS * 1024;
        assert_eq!(flight.poll_timeout(), Some(due));
        assert!(!flight.is_probe_due(due - MS) && flight.is_probe_due(due));
        assert_eq!(flight.poll_timeout(), Some(start + MS * 2048));
    }

    #[test]
    fn congestion_is_persistent_when_all_packets_of_three_probe_timeouts_are_lost() {
        let start = Instant::now();
        let mut flight = InFlight::default();
        flight.send(0, start);
        flight.handle_ack(&[0..=0], start + MS * 50);
        for n in 0..40 {
            flight.send(n, start + MS * (100 + 20 * n));
        }
        let outcome = flight.handle_ack(&[40..=40], start + MS * 950);
        assert!(outcome.persistent && outcome.lost.len() == 39);
    }
}
