//! Flows over one plain link, to see that they send as their kind does.

use std::time::{Duration, Instant};

use sennit_netem::{Bitrate, Config, Link, Loss};

use crate::{
    Direction, Kind,
    transfer::{Endpoint, Flow},
};

const MS: Duration = Duration::from_millis(1);
/// One way.
const DELAY: Duration = Duration::from_millis(20);

/// A link of 20 Mbit/s that loses packets at random.
fn link(loss: f64, seed: u64) -> Link<Vec<u8>> {
    let config = Config {
        rate: Some(Bitrate::mbit(20)),
        delay: DELAY,
        loss: Loss::Random(loss),
        ..Config::default()
    };
    Link::new(config, seed)
}

/// Goodput in Mbit/s of one flow in 30 s, the first five left out.
fn goodput(kind: Kind, loss: f64) -> f64 {
    let start = Instant::now();
    let mut flow = Flow::new(kind, Direction::Up, 5001, start);
    let (mut up, mut down) = (link(loss, 1), link(0.0, 2));
    let mut now = start;
    let mut before = 0;
    while now < start + MS * 30_000 {
        if now < start + MS * 5000 {
            before = flow.server.received();
        }
        pass(&mut flow.edge, &mut up, &mut flow.server, now);
        pass(&mut flow.server, &mut down, &mut flow.edge, now);
        let ends = [flow.edge.poll_timeout(), flow.server.poll_timeout()];
        let links = [up.poll_timeout(), down.poll_timeout()];
        let next = ends.into_iter().chain(links).flatten().min();
        now = next.expect("somebody has something to do").max(now);
    }
    (flow.server.received() - before) as f64 * 8.0 / 25.0 / 1e6
}

/// Moves what is due from one end to the other.
fn pass(
    from: &mut Box<dyn Endpoint>,
    link: &mut Link<Vec<u8>>,
    to: &mut Box<dyn Endpoint>,
    now: Instant,
) {
    while let Some(packet) = from.poll_packet(now) {
        let _ = link.handle_packet(packet.len(), packet, now);
    }
    while let Some(packet) = link.poll_output(now) {
        to.handle_packet(&packet, now);
    }
}

/// What Reno carries at such a loss (Mathis et al. 1997), which is CUBIC's least (RFC 9438 §4.3).
fn reno(loss: f64) -> f64 {
    let packet = 1280.0 * 8.0 / 1e6;
    packet / (2.0 * DELAY.as_secs_f64()) * (1.5 / loss).sqrt()
}

#[test]
fn without_loss_a_flow_fills_the_link() {
    for kind in [Kind::Tcp, Kind::Quic] {
        let goodput = goodput(kind, 0.0);
        assert!(goodput > 18.0, "{kind:?}: {goodput:.1}");
    }
}

#[test]
fn at_random_loss_a_flow_carries_what_its_kind_does() {
    for loss in [0.001, 0.003, 0.01, 0.02] {
        let quic = goodput(Kind::Quic, loss) / reno(loss);
        assert!((0.85..1.25).contains(&quic), "{loss}: {quic:.2} of Reno");
        // Without SACK a timeout follows when several packets of a window are lost.
        let tcp = goodput(Kind::Tcp, loss) / reno(loss);
        assert!((0.5..1.0).contains(&tcp), "{loss}: {tcp:.2} of Reno");
    }
}
