//! Flows between the edge and a server that send as much as the tunnel carries.

use std::time::{Duration, Instant};

use crate::{Direction, EDGE, SERVER, World, endpoint::Endpoint, ping, quic, tcp::Tcp};

/// The port of the first flow; flow `n` has the `n`-th after it.
const FIRST_PORT: u16 = 5001;
/// What the tunnel carries.
const INNER_MTU: usize = 1400;

/// How it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// smoltcp's TCP with CUBIC.
    Tcp,
    /// Like QUIC: a packet is lost once three later ones have arrived (RFC 9002 §6.1).
    Quic,
}

/// Several flows of one kind in one direction.
pub struct Transfer {
    flows: Vec<Flow>,
    /// The last flow is a ping.
    answers: Option<ping::Answers>,
    received: u64,
    progress: Instant,
    /// Longest time in which nothing arrived.
    pub longest_stall: Duration,
}

/// Both ends of a connection.
pub(crate) struct Flow {
    pub(crate) edge: Box<dyn Endpoint>,
    pub(crate) server: Box<dyn Endpoint>,
}

impl Transfer {
    /// `streams` flows that begin now.
    pub fn new(kind: Kind, direction: Direction, streams: u16, now: Instant) -> Self {
        let ports = FIRST_PORT..FIRST_PORT + streams;
        Self {
            flows: ports
                .map(|port| Flow::new(kind, direction, port, INNER_MTU, now))
                .collect(),
            answers: None,
            received: 0,
            progress: now,
            longest_stall: Duration::ZERO,
        }
    }

    /// Bytes that have arrived of each flow, in their order.
    pub fn received_each(&self) -> Vec<u64> {
        let flows = self.flows.iter();
        flows
            .map(|flow| flow.edge.received() + flow.server.received())
            .collect()
    }

    /// This transfer and another one, whose flows come after those of this; only the first may have
    /// a ping.
    #[must_use]
    pub fn and(mut self, kind: Kind, direction: Direction, streams: u16, now: Instant) -> Self {
        let ping = self.answers.is_some().then(|| self.flows.pop()).flatten();
        let first = FIRST_PORT + self.flows.len() as u16;
        let ports = first..first + streams;
        self.flows
            .extend(ports.map(|port| Flow::new(kind, direction, port, INNER_MTU, now)));
        self.flows.extend(ping);
        self
    }

    /// This transfer beside a ping from the edge to the server each `every`.
    #[must_use]
    pub fn with_ping(mut self, every: Duration, now: Instant) -> Self {
        let answers = ping::Answers::default();
        self.flows.push(Flow {
            edge: Box::new(ping::Pinger::new(every, answers.clone(), now)),
            server: Box::new(ping::Echo::default()),
        });
        self.answers = Some(answers);
        self
    }

    /// The round trips of the pings that left so far, in this order; of those without an answer
    /// `Duration::MAX`.
    pub fn pings(&self) -> Vec<Duration> {
        let answers = self.answers.as_ref();
        answers.map_or_else(Vec::new, ping::Answers::round_trips)
    }

    /// Waits for the answers of pings under way, while the flows go on: none leaves any more, and
    /// one that is not answered after so long was lost.
    pub fn end_pings(&mut self, world: &mut World, patience: Duration) {
        if let Some(answers) = &self.answers {
            answers.end();
        }
        self.run(world, patience);
    }

    /// Sends and receives for `span`.
    pub fn run(&mut self, world: &mut World, span: Duration) {
        let end = world.now() + span;
        loop {
            self.exchange(world);
            let next = self.poll_timeout().map_or(end, |at| at.min(end));
            if !world.step(next) && next == end {
                break;
            }
        }
        self.exchange(world);
        self.longest_stall = self.longest_stall.max(end - self.progress);
    }

    /// Bytes that have arrived, without headers and each counted once.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Runs for `span` and returns the goodput in Mbit/s.
    pub fn measure(&mut self, world: &mut World, span: Duration) -> f64 {
        let before = self.received;
        self.run(world, span);
        (self.received - before) as f64 * 8.0 / span.as_secs_f64() / 1e6
    }

    /// Hands over what the tunnel delivered and sends what that allows.
    fn exchange(&mut self, world: &mut World) {
        let now = world.now();
        while let Some(arrival) = world.at_edge.pop_front() {
            if let Some(flow) = self.flow(&arrival.packet) {
                flow.edge.handle_packet(&arrival.packet, now);
            }
        }
        while let Some(arrival) = world.at_hub.pop_front() {
            if let Some(flow) = self.flow(&arrival.packet) {
                flow.server.handle_packet(&arrival.packet, now);
            }
        }
        for flow in &mut self.flows {
            while let Some(packet) = flow.edge.poll_packet(now) {
                world.send_from_edge(&packet);
            }
            while let Some(packet) = flow.server.poll_packet(now) {
                world.send_from_hub(&packet);
            }
        }
        self.note_progress(now);
    }

    fn note_progress(&mut self, now: Instant) {
        let received = self.endpoints().map(Endpoint::received).sum();
        if received > self.received {
            self.received = received;
            self.longest_stall = self.longest_stall.max(now - self.progress);
            self.progress = now;
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.endpoints().filter_map(Endpoint::poll_timeout).min()
    }

    fn endpoints(&self) -> impl Iterator<Item = &dyn Endpoint> {
        self.flows
            .iter()
            .flat_map(|flow| [flow.edge.as_ref(), flow.server.as_ref()])
    }

    /// Both ends of a flow have the same port.
    fn flow(&mut self, packet: &[u8]) -> Option<&mut Flow> {
        let port = packet.get(22..24)?;
        let port = u16::from_be_bytes([port[0], port[1]]);
        if port == ping::PORT {
            return self.answers.as_ref().and(self.flows.last_mut());
        }
        self.flows
            .get_mut(usize::from(port.checked_sub(FIRST_PORT)?))
    }
}

impl Flow {
    /// A connection that begins now; a TCP fills packets of `mtu` bytes.
    pub(crate) fn new(
        kind: Kind,
        direction: Direction,
        port: u16,
        mtu: usize,
        now: Instant,
    ) -> Self {
        let up = direction == Direction::Up;
        match kind {
            Kind::Tcp => Self {
                edge: Box::new(Tcp::client(EDGE, SERVER, port, mtu, up, now)),
                server: Box::new(Tcp::server(SERVER, port, mtu, !up, now)),
            },
            Kind::Quic if up => Self {
                edge: Box::new(quic::Source::new(EDGE, SERVER, port, now)),
                server: Box::new(quic::Sink::new(SERVER, EDGE, port)),
            },
            Kind::Quic => Self {
                edge: Box::new(quic::Sink::new(EDGE, SERVER, port)),
                server: Box::new(quic::Source::new(SERVER, EDGE, port, now)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use sennit_core::Policy;

    use super::*;

    /// Whoever counted too early took pings on their way for lost ones.
    #[test]
    fn a_ping_that_takes_longer_than_the_rest_of_a_run_has_its_answer() {
        let link: crate::LinkSpec = "20/300".parse().expect("a link");
        let mut world = World::new(&[link], Policy::Bond, 1, Instant::now());
        assert!(world.connect(1));
        let (now, ms) = (world.now(), Duration::from_millis(1));
        let mut transfer = Transfer::new(Kind::Quic, Direction::Up, 0, now).with_ping(ms * 20, now);
        transfer.run(&mut world, ms * 1000);
        let before = transfer.pings();
        assert!(before.contains(&Duration::MAX));

        transfer.end_pings(&mut world, ms * 1000);

        let after = transfer.pings();
        assert_eq!(after.len(), before.len(), "no more have left");
        assert!(!after.contains(&Duration::MAX), "{after:?}");
    }
}
