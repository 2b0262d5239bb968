//! What the controllers make of a link, in virtual time.

use std::time::{Duration, Instant};

use sennit_core::Congestion;

use super::{
    build,
    flows::{Flows, Link, MTU, link, mbit},
};

const BOTH: [Congestion; 2] = [Congestion::Bbr, Congestion::Bbr3];

fn alone(word: Congestion, link: Link) -> Flows {
    let now = Instant::now();
    let mut flows = Flows::new(link, now);
    flows.add(build(word, MTU as u16, now));
    flows
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// Share of the link after `settled`, and the median time in its queue.
fn share(flows: &mut Flows, settled: f64, time: f64) -> (f64, Duration) {
    flows.run(seconds(settled));
    let (shares, queue) = flows.shares(seconds(time));
    (shares[0], queue)
}

#[test]
#[ignore = "explore"]
fn explore() {
    use Congestion::*;
    for (rate, rtt) in [(50.0, 40), (20.0, 60)] {
        for bdps in [0.5, 1.0, 2.0, 4.0, 8.0] {
            for word in [Bbr, Bbr3, Cubic, Auto] {
                let now = Instant::now();
                let mut flows = Flows::new(link(rate, rtt, bdps * rtt as f64), now);
                flows.add(build(word, MTU as u16, now));
                flows.run(seconds(5.0));
                flows.add(build(Cubic, MTU as u16, now));
                flows.run(seconds(20.0));
                let (s, q) = flows.shares(seconds(40.0));
                println!(
                    "{rate}/{rtt} buffer {bdps} BDP: {word} {:.2} against cubic {:.2}, queue {q:?} lost {:.4}",
                    s[0],
                    s[1],
                    flows.flows[0].lost as f64 / flows.flows[0].delivered as f64
                );
            }
        }
    }
    for (loss, burst) in [
        (0.02, 1),
        (0.1, 1),
        (0.2, 1),
        (0.3, 1),
        (0.02, 10),
        (0.1, 10),
        (0.3, 10),
        (0.1, 50),
        (0.3, 50),
    ] {
        for word in [Bbr, Bbr3, Auto] {
            let mut flows = alone(
                word,
                Link {
                    loss,
                    burst,
                    ..link(50.0, 40, 50.0)
                },
            );
            let (s, q) = share(&mut flows, 5.0, 20.0);
            println!(
                "loss {loss} by {burst}: {word} {s:.2} of {:.2}, queue {q:?}",
                1.0 - loss
            );
        }
    }
}

#[test]
fn fills_a_link_and_leaves_its_queue_empty() {
    for (rate, rtt) in [
        (300.0, 20),
        (80.0, 60),
        (5.0, 100),
        (1000.0, 2),
        (50.0, 300),
    ] {
        for word in BOTH {
            let mut flows = alone(word, link(rate, rtt, 50.0));
            let (share, queue) = share(&mut flows, 3.0, 20.0);
            assert!(share > 0.93, "{word} {rate} Mbit/s, {rtt} ms: {share:.2}");
            assert!(
                queue < Duration::from_millis(2 + rtt / 10),
                "{word} {rate} Mbit/s: {queue:?}"
            );
        }
    }
}

#[test]
fn startup_is_over_within_a_second() {
    let mut flows = alone(Congestion::Bbr3, link(300.0, 20, 50.0));
    let (share, _) = share(&mut flows, 0.6, 0.5);
    assert!(share > 0.85, "{share:.2}");
}

#[test]
fn the_loss_of_the_path_itself_is_tolerated() {
    for (loss, least) in [(0.005, 0.92), (0.02, 0.9), (0.05, 0.85), (0.1, 0.75)] {
        for word in BOTH {
            let link = Link {
                loss,
                ..link(50.0, 26, 50.0)
            };
            let (share, _) = share(&mut alone(word, link), 3.0, 20.0);
            assert!(share > least, "{loss}, {word}: {share:.2}");
        }
    }
}

#[test]
fn yields_to_a_buffer_too_small_for_its_probes() {
    let lost = |word| {
        let mut flows = alone(word, link(50.0, 60, 2.0));
        let (share, _) = share(&mut flows, 3.0, 20.0);
        assert!(share > 0.85, "{word}: {share:.2}");
        flows.flows[0].lost as f64 / flows.flows[0].delivered as f64
    };
    let (yielding, ignoring) = (lost(Congestion::Bbr3), lost(Congestion::Bbr));
    assert!(
        yielding < 0.02 && yielding < 0.7 * ignoring,
        "{yielding:.4} {ignoring:.4}"
    );
}

#[test]
fn follows_a_link_that_changes_its_rate() {
    for word in BOTH {
        let mut flows = alone(word, link(200.0, 40, 100.0));
        flows.run(seconds(3.0));
        flows.link.rate = mbit(40.0);
        flows.link.buffer /= 5;
        let (slower, queue) = share(&mut flows, 1.5, 2.0);
        assert!(
            slower > 0.9 && queue < Duration::from_millis(10),
            "{word}: {slower:.2} {queue:?}"
        );
        flows.link.rate = mbit(200.0);
        flows.link.buffer *= 5;
        let (faster, _) = share(&mut flows, 3.5, 2.0);
        assert!(faster > 0.9, "{word}: {faster:.2}");
    }
}
