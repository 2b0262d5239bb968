//! Flows over one link without a tunnel: what bonding has to beat.

use std::time::Instant;

use sennit_netem::Link;

use crate::{LinkSpec, Trial, TrialError, transfer::Flow};

/// What a link carries without a tunnel.
const MTU: usize = 1500;
/// Where a packet says for which flow it is: both ends of a flow have the same port.
const PORT: std::ops::Range<usize> = 22..24;
/// The port of the first flow.
const FIRST_PORT: u16 = 5001;

impl Trial {
    /// The goodput in Mbit/s of the same flows over a link without a tunnel. The link is the one at
    /// `index` in a world of the same seed: it loses and delays by the same chance.
    pub fn plain(&self, link: &LinkSpec, index: usize) -> Result<f64, TrialError> {
        self.check(1)?;
        let start = Instant::now();
        let mut plain = Plain::new(self, link, index, start);
        plain.run(start + self.warm_up);
        let before = plain.received();
        plain.run(start + self.warm_up + self.span);
        Ok(self.mbit(plain.received() - before))
    }
}

struct Plain {
    flows: Vec<Flow>,
    up: Link<Vec<u8>>,
    down: Link<Vec<u8>>,
    now: Instant,
}

impl Plain {
    fn new(trial: &Trial, link: &LinkSpec, index: usize, start: Instant) -> Self {
        let seed = crate::cable::seed(trial.seed, index);
        let mut up = Link::new(link.up.clone(), seed);
        let mut down = Link::new(link.down.clone(), seed + 1);
        up.begin(start);
        down.begin(start);
        let ports = FIRST_PORT..FIRST_PORT + trial.streams;
        let flow = |port| Flow::new(trial.kind, trial.direction, port, MTU, start);
        Self {
            flows: ports.map(flow).collect(),
            up,
            down,
            now: start,
        }
    }

    fn run(&mut self, end: Instant) {
        while self.now < end {
            self.exchange();
            let ends = self
                .flows
                .iter()
                .flat_map(|flow| [&flow.edge, &flow.server]);
            let flows = ends.filter_map(|end| end.poll_timeout());
            let links = [self.up.poll_timeout(), self.down.poll_timeout()];
            let next = flows.chain(links.into_iter().flatten()).min();
            self.now = next.unwrap_or(end).clamp(self.now, end);
        }
    }

    /// Moves what is due from one end to the other.
    fn exchange(&mut self) {
        let now = self.now;
        while let Some(packet) = self.up.poll_output(now) {
            if let Some(flow) = flow(&mut self.flows, &packet) {
                flow.server.handle_packet(&packet, now);
            }
        }
        while let Some(packet) = self.down.poll_output(now) {
            if let Some(flow) = flow(&mut self.flows, &packet) {
                flow.edge.handle_packet(&packet, now);
            }
        }
        // What a link drops is what it is for.
        for flow in &mut self.flows {
            while let Some(packet) = flow.edge.poll_packet(now) {
                let _ = self.up.handle_packet(packet.len(), packet, now);
            }
            while let Some(packet) = flow.server.poll_packet(now) {
                let _ = self.down.handle_packet(packet.len(), packet, now);
            }
        }
    }

    fn received(&self) -> u64 {
        let ends = self
            .flows
            .iter()
            .flat_map(|flow| [&flow.edge, &flow.server]);
        ends.map(|end| end.received()).sum()
    }
}

fn flow<'a>(flows: &'a mut [Flow], packet: &[u8]) -> Option<&'a mut Flow> {
    let port = u16::from_be_bytes(packet.get(PORT)?.try_into().ok()?);
    flows.get_mut(usize::from(port.checked_sub(FIRST_PORT)?))
}

/// To see that flows send as their kind does.
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sennit_netem::{Bitrate, Config, Loss};

    use super::*;
    use crate::{Direction, Kind};

    /// One way.
    const DELAY: Duration = Duration::from_millis(20);

    /// Goodput in Mbit/s of one flow over 20 Mbit/s that lose packets at random one way.
    fn goodput(kind: Kind, loss: f64) -> f64 {
        let config = Config {
            rate: Some(Bitrate::mbit(20)),
            delay: DELAY,
            ..Config::default()
        };
        let mut link = LinkSpec::symmetric(config);
        link.up.loss = Loss::Random(loss);
        let trial = Trial {
            kind,
            direction: Direction::Up,
            streams: 1,
            warm_up: Duration::from_secs(5),
            span: Duration::from_secs(25),
            seed: 1,
        };
        trial.plain(&link, 0).expect("one flow for some time")
    }

    /// What Reno carries at such a loss (Mathis et al. 1997), which is CUBIC's least (RFC 9438
    /// §4.3).
    fn reno(kind: Kind, loss: f64) -> f64 {
        let bytes = match kind {
            Kind::Tcp => MTU,
            Kind::Quic => 1280,
        };
        let packet = bytes as f64 * 8.0 / 1e6;
        packet / (2.0 * DELAY.as_secs_f64()) * (1.5 / loss).sqrt()
    }

    #[test]
    fn without_loss_flows_fill_the_link() {
        for kind in [Kind::Tcp, Kind::Quic] {
            let goodput = goodput(kind, 0.0);
            assert!(goodput > 18.0, "{kind:?}: {goodput:.1}");
        }
    }

    #[test]
    fn at_random_loss_a_flow_carries_what_its_kind_does() {
        for loss in [0.001, 0.003, 0.01, 0.02] {
            let quic = goodput(Kind::Quic, loss) / reno(Kind::Quic, loss);
            assert!((0.85..1.25).contains(&quic), "{loss}: {quic:.2} of Reno");
            // Without SACK a timeout follows when several packets of a window are lost.
            let tcp = goodput(Kind::Tcp, loss) / reno(Kind::Tcp, loss);
            assert!((0.5..1.0).contains(&tcp), "{loss}: {tcp:.2} of Reno");
        }
    }
}
