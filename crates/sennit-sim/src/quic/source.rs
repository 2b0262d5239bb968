//! The sending end: always more data, as the window lets it go.

use std::{collections::VecDeque, net::Ipv4Addr, time::Instant};

use super::{
    LEN, ack,
    cubic::Cubic,
    loss::{InFlight, Outcome},
    set_word,
};
use crate::{endpoint::Endpoint, udp};

/// Packets per probe (RFC 9002 §6.2.4).
const PROBES: usize = 2;

pub(crate) struct Source {
    here: Ipv4Addr,
    there: Ipv4Addr,
    port: u16,
    flight: InFlight,
    window: Cubic,
    /// Chunks that were lost.
    again: VecDeque<u32>,
    next_chunk: u32,
    /// Packets that may leave whatever the window says.
    probes: usize,
    start: Instant,
}

impl Source {
    pub(crate) fn new(here: Ipv4Addr, there: Ipv4Addr, port: u16, now: Instant) -> Self {
        Self {
            here,
            there,
            port,
            flight: InFlight::default(),
            window: Cubic::default(),
            again: VecDeque::new(),
            next_chunk: 0,
            probes: 0,
            start: now,
        }
    }

    fn handle_outcome(&mut self, outcome: &Outcome, now: Instant) {
        for sent in &outcome.arrived {
            self.window.handle_ack(sent.at, self.flight.srtt(), now);
        }
        for sent in &outcome.lost {
            self.window.handle_loss(sent.at, now);
            self.again.push_back(sent.chunk);
        }
        if outcome.persistent {
            self.window.collapse();
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.flight.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        let outcome = self.flight.handle_timeout(now);
        self.handle_outcome(&outcome, now);
        if self.flight.is_probe_due(now) {
            self.probes = PROBES;
        }
    }

    fn next_chunk(&mut self) -> u32 {
        self.again.pop_front().unwrap_or_else(|| {
            self.next_chunk += 1;
            self.next_chunk - 1
        })
    }
}

impl Endpoint for Source {
    fn handle_packet(&mut self, packet: &[u8], now: Instant) {
        let ranges = ack::decode(packet).unwrap_or_default();
        let outcome = self.flight.handle_ack(&ranges, now);
        self.handle_outcome(&outcome, now);
    }

    fn poll_packet(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.handle_timeout(now);
        if self.probes > 0 {
            self.probes -= 1;
        } else if (self.flight.len() + 1) * LEN > self.window.window() {
            return None;
        }
        let chunk = self.next_chunk();
        let number = self.flight.send(chunk, now);
        let mut packet = udp(self.here, self.there, self.port, number, LEN);
        set_word(&mut packet, 1, chunk);
        Some(packet)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.flight.poll_timeout().or(Some(self.start))
    }

    fn received(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        EDGE, SERVER,
        quic::{Sink, word},
    };

    const MS: Duration = Duration::from_millis(1);

    fn all(source: &mut Source, now: Instant) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| source.poll_packet(now)).collect()
    }

    #[test]
    fn what_is_lost_is_sent_again_under_a_new_number() {
        let start = Instant::now();
        let mut source = Source::new(EDGE, SERVER, 7, start);
        let mut sink = Sink::new(SERVER, EDGE, 7);
        let packets = all(&mut source, start);
        assert_eq!(packets.len(), 10);
        let now = start + MS * 20;
        for packet in &packets[1..] {
            sink.handle_packet(packet, now);
        }
        let ack = sink
            .poll_packet(now)
            .expect("a gap is acknowledged at once");
        source.handle_packet(&ack, now + MS * 20);
        let again = &all(&mut source, now + MS * 20)[0];
        assert_eq!((word(again, 0), word(again, 1)), (Some(10), Some(0)));
    }

    #[test]
    fn probes_leave_when_nothing_is_acknowledged() {
        let start = Instant::now();
        let mut source = Source::new(EDGE, SERVER, 7, start);
        all(&mut source, start);
        let due = source.poll_timeout().expect("packets are in flight");
        assert_eq!(all(&mut source, due - MS).len(), 0);
        assert_eq!(all(&mut source, due).len(), PROBES);
    }
}
