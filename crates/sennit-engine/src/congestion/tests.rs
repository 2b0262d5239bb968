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
fn a_short_slow_link_is_filled_although_acknowledgements_are_held_up() {
    for rate in [20.0, 50.0] {
        for word in BOTH {
            let short = Link {
                rtt: Duration::from_micros(200),
                seldom: true,
                ..link(rate, 0, 50.0)
            };
            let (share, queue) = share(&mut alone(word, short), 3.0, 20.0);
            assert!(share > 0.93, "{word} {rate} Mbit/s: {share:.2}");
            assert!(
                queue < Duration::from_millis(6),
                "{word} {rate} Mbit/s: {queue:?}"
            );
        }
    }
}

#[test]
fn a_first_window_holds_two_packets_of_any_size() {
    for mtu in [1280, 1452, 9000, u16::MAX] {
        for word in [Congestion::Cubic, Congestion::Bbr, Congestion::Bbr3] {
            let window = super::build(word, mtu, Instant::now()).window();
            assert!(window >= 2 * u64::from(mtu), "{word} {mtu}: {window}");
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
        // Version 1 takes nothing back but what it probed with.
        let most = if word == Congestion::Bbr3 { 10 } else { 40 };
        assert!(
            slower > 0.9 && queue < Duration::from_millis(most),
            "{word}: {slower:.2} {queue:?}"
        );
        flows.link.rate = mbit(200.0);
        flows.link.buffer *= 5;
        let (faster, _) = share(&mut flows, 3.5, 2.0);
        assert!(faster > 0.9, "{word}: {faster:.2}");
    }
}

#[test]
fn a_probe_that_pays_goes_on() {
    // Wherever in its cycle it is when the link becomes faster.
    let shares = (0..12).map(|step| {
        let mut flows = alone(Congestion::Bbr3, link(20.0, 40, 100.0));
        flows.run(seconds(3.0 + 0.05 * f64::from(step)));
        flows.link.rate = mbit(200.0);
        flows.link.buffer *= 10;
        share(&mut flows, 1.25, 0.25).0
    });
    let mean = shares.sum::<f64>() / 12.0;
    // With a quarter for each cycle it is 0.57.
    assert!(mean > 0.7, "{mean:.2}");
}

#[test]
fn a_busy_host_is_not_taken_for_a_fast_one() {
    for word in BOTH {
        let host = Link {
            rtt: Duration::from_micros(200),
            pauses: 0.3,
            ..link(2500.0, 1, 10.0)
        };
        let mut flows = alone(word, host);
        let (share, _) = share(&mut flows, 1.0, 2.0);
        let rate = flows.flows[0].control.delivery_rate().unwrap() as f64 / mbit(2500.0);
        assert!(
            share > 0.6 && rate < 1.3 * share,
            "{word}: carries {share:.2}, believes {rate:.2}"
        );
    }
}

/// Acknowledgements of what comes the other way leave by it, and the far end is late because of
/// that.
#[test]
fn a_busy_host_is_no_queue_of_thin_traffic() {
    for word in BOTH {
        let mut flows = alone(word, link(2500.0, 0, 10.0));
        flows.set_demand(0, mbit(6.0));
        for _ in 0..30 {
            for micros in [200, 9000] {
                flows.link.rtt = Duration::from_micros(micros);
                flows.run(seconds(0.05));
            }
        }
        flows.link.rtt = Duration::from_micros(200);
        flows.set_demand(0, f64::INFINITY);
        let (share, _) = share(&mut flows, 0.05, 0.05);
        assert!(share > 0.7, "{word}: {share:.2}");
    }
}

/// What the path carried before is still known when thin traffic has left by it for a while.
#[test]
fn a_busy_host_and_thin_traffic_do_not_make_a_path_slow() {
    for word in BOTH {
        let mut flows = alone(word, link(2500.0, 0, 10.0));
        flows.link.rtt = Duration::from_micros(70);
        flows.run(seconds(1.0));
        let before = flows.flows[0].control.delivery_rate();
        flows.set_demand(0, mbit(80.0));
        for _ in 0..30 {
            for micros in [70, 9000] {
                flows.link.rtt = Duration::from_micros(micros);
                flows.run(seconds(0.05));
            }
        }
        let after = flows.flows[0].control.delivery_rate();
        assert!(
            after > before.map(|rate| rate / 2),
            "{word}: {before:?} {after:?}"
        );
    }
}

#[test]
fn after_a_pause_nothing_leaves_faster_than_the_path_carries() {
    for word in BOTH {
        let mut flows = alone(word, link(50.0, 40, 50.0));
        flows.run(seconds(3.0));
        let is_probing = |flows: &Flows| {
            let control = &flows.flows[0].control;
            control.pacing_rate().unwrap() as f64 > 1.2 * control.delivery_rate().unwrap() as f64
        };
        while !is_probing(&flows) {
            flows.run(seconds(0.001));
        }
        let now = flows.now + seconds(5.0);
        flows.flows[0].control.on_restart(now);
        assert!(!is_probing(&flows), "{word}");
    }
}

/// Half a window would be missing just when something starts.
#[test]
fn a_path_that_is_hardly_used_is_not_emptied_to_see_its_delay() {
    for word in BOTH {
        let mut flows = alone(word, link(50.0, 40, 50.0));
        flows.run(seconds(3.0));
        flows.set_demand(0, mbit(0.5));
        // The least round trip is not seen again.
        flows.link.rtt += Duration::from_millis(1);
        let fits = flows.link.rate * flows.link.rtt.as_secs_f64();
        for _ in 0..3000 {
            flows.run(seconds(0.01));
            let window = flows.flows[0].control.window() as f64;
            assert!(window > fits, "{word}: {window} of {fits}");
        }
    }
}
