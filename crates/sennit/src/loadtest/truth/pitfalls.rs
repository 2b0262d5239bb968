//! Mistakes that a measurement is easily led to, each of which this one once made.

use std::sync::atomic::Ordering;

use super::*;
use crate::loadtest::{metric::Metric, report::Moment, requests::Requests};

/// A link of so many Mbit/s and 20 ms, without loss.
fn link(mbit: f64) -> LinkSpec {
    LinkSpec::symmetric(Config {
        rate: Bitrate::from_mbit(mbit),
        delay: MS * 20,
        queue: Queue::Time(MS * 100),
        ..Config::default()
    })
}

/// What is on its way is waited for, but the time for that is no time of the load.
#[test]
fn who_interrupts_a_test_with_a_warm_up_gets_the_goodput_until_then() {
    let stop = AtomicBool::new(false);
    let plan = Plan {
        up: true,
        down: false,
        rate_bits_per_second: Some(2e6),
        ..plan("cubic", 60.0, 3.0)
    };
    let mut interrupt = |second: &Second| {
        stop.store(second.elapsed_seconds > 4.5, Ordering::Relaxed);
    };

    let report = follow(Ends::default(), &link(5.0), 1, plan, &mut interrupt, &stop);

    let up = report.up.expect("there was load");
    assert!(
        report.interrupted && (up.seconds - 2.0).abs() < 0.1,
        "{up:?}"
    );
    let error = up.goodput_bits_per_second / 2e6 - 1.0;
    assert!(error.abs() < 0.05, "{error}");
}

/// A request that finds no room for all of it goes on when there is some.
#[test]
fn the_latency_of_a_large_request_is_that_of_all_of_its_bytes() {
    const BYTES: u32 = 48 << 20;
    let requests = Requests {
        request_bytes: BYTES,
        answer_bytes: 1,
        concurrency: 1,
        per_second: None,
    };
    let plan = Plan {
        down: false,
        streams: 0,
        requests: Some(requests),
        ..plan("cubic", 12.0, 0.0)
    };

    let report = test(&link(100.0), 1, plan);

    let found = report.requests.expect("some were asked");
    let least = f64::from(BYTES) * 8.0 / 100e6;
    assert!(found.answered > 0, "{found:?}");
    assert!(found.latency.min_seconds > Some(least), "{found:?}");
}

/// What is asked before a link goes silent, and what is due until the end, has waited: a percentile
/// of what was answered before would be that of the quiet seconds.
#[test]
fn who_waits_for_an_answer_at_the_end_is_in_the_latency() {
    let requests = Requests {
        request_bytes: 100,
        answer_bytes: 1000,
        concurrency: 50,
        per_second: Some(100.0),
    };
    let plan = Plan {
        down: false,
        streams: 0,
        requests: Some(requests),
        ..plan("cubic", 8.0, 0.0)
    };
    // The trace begins with the load.
    let spec = in_steps("3,20\n6,0\n30,20\n", MS * 20, Queue::Time(MS * 100));

    let report = test(&spec, 1, plan);

    let found = report.requests.as_ref().expect("some were asked");
    assert!((250..=310).contains(&found.answered), "{found:?}");
    assert!((480..=560).contains(&found.unanswered), "{found:?}");
    assert!(found.latency.p99_seconds > Some(4.5), "{found:?}");
    let unanswered = Metric::named("unanswered").and_then(|it| it.of(&report));
    assert_eq!(unanswered, Some(found.unanswered as f64));
}

/// A link that dies takes the server's figures with it, and not ours.
#[test]
fn what_was_measured_before_the_server_was_lost_is_told() {
    // The trace begins with the load.
    let spec = in_steps("4,10\n1000,0\n", MS * 20, Queue::Time(MS * 100));
    for (up, stops) in [(false, false), (true, false), (true, true)] {
        let stop = AtomicBool::new(false);
        let mut interrupt = |second: &Second| {
            stop.store(stops && second.elapsed_seconds > 5.5, Ordering::Relaxed);
        };
        let plan = Plan {
            up,
            down: !up,
            ..plan("cubic", 8.0, 0.0)
        };

        let report = follow(Ends::default(), &spec, 1, plan, &mut interrupt, &stop);

        assert!(report.broken.is_some(), "{report}");
        assert_eq!(report.interrupted, stops, "{report}");
        let way = report
            .up
            .as_ref()
            .or(report.down.as_ref())
            .expect("it was asked for");
        assert!(way.bytes > 3_000_000, "{report}");
        assert!(way.seconds < 5.0, "it was dead from 4 s on: {report}");
        assert!(way.goodput_bits_per_second > 8e6, "{report}");
        assert!(report.rtt.lost > 50, "{report}");
        let notes = report.notes.join("\n");
        assert!(notes.contains("what it had said last"), "{notes}");
    }
}

/// An answer that takes longer than a second is of some second all the same.
#[test]
fn a_round_trip_of_seconds_is_told_while_it_runs() {
    let spec = LinkSpec::symmetric(Config {
        delay: MS * 700,
        ..Config::default()
    });
    let mut told = Vec::new();
    let mut tell = |second: &Second| told.push(second.rtt.p50_seconds);

    let stop = AtomicBool::new(false);
    let plan = plan("auto", 5.0, 0.0);
    follow(Ends::default(), &spec, 1, plan, &mut tell, &stop);

    assert!(told.len() >= 4, "{told:?}");
    assert!(told[1..].iter().all(|rtt| *rtt >= Some(1.4)), "{told:?}");
}

/// Whoever offers more than there is room for is not told of losses and delays of his own buffer.
#[test]
fn messages_beyond_the_rate_of_a_link_wait_at_nobody() {
    let (ours, quinn) = (StackName::Sennit, StackName::Quinn);
    for (stack, up) in [(ours, false), (ours, true), (quinn, false)] {
        let ends = Ends {
            client: stack,
            server: stack,
            perf: false,
        };
        for rate in [Some(20e6), None] {
            let plan = Plan {
                up,
                down: !up,
                message_bytes: Some(1000),
                rate_bits_per_second: rate,
                ..plan("cubic", 8.0, 2.0)
            };

            let report = test_by(ends, &link(5.0), 1, plan);

            let way = report.up.or(report.down).expect("there was load");
            let found = way.messages.expect("they were sent");
            // The queue holds 100 ms, and overflows as CUBIC looks for more.
            assert!(found.loss_ratio < 0.02, "{stack} {rate:?}: {found:?}");
            let longest = found.delay_variation.max_seconds.expect("some arrived");
            assert!(longest < 0.130, "{stack} {rate:?}: {found:?}");
            let rate = way.goodput_bits_per_second;
            assert!(rate > 4.4e6, "{stack}: {rate}");
        }
    }
}

/// A link of 5 Mbit/s that is offered 8 carries what it can and loses nothing, which is not to say
/// that what was asked for arrived.
#[test]
fn what_a_link_has_no_room_for_is_told_as_unsent() {
    let cases = [
        (Some(1000), false),
        (Some(1000), true),
        (None, false),
        (None, true),
    ];
    for (message_bytes, up) in cases {
        let found = |rate: f64| {
            let plan = Plan {
                up,
                down: !up,
                message_bytes,
                rate_bits_per_second: Some(rate),
                ..plan("cubic", 8.0, 2.0)
            };
            let report = test(&link(5.0), 1, plan);
            let told = report
                .notes
                .iter()
                .any(|note| note.contains("had not left"));
            let unsent = Metric::named("unsent").and_then(|it| it.of(&report));
            (unsent.expect("a rate was asked for"), told)
        };

        let (much, little) = (found(8e6), found(2e6));

        assert!(
            (0.36..0.48).contains(&much.0),
            "{message_bytes:?} {up}: {much:?}"
        );
        assert!(little.0 < 0.01, "{message_bytes:?} {up}: {little:?}");
        assert_eq!((much.1, little.1), (true, false), "{message_bytes:?} {up}");
    }
}

/// Beside a load that fills a buffer of 100 ms a request waits as long as the buffer is, which
/// one without load does not show.
#[test]
fn requests_beside_a_load_wait_behind_it() {
    let requests = Requests {
        request_bytes: 100,
        answer_bytes: 1000,
        concurrency: 8,
        per_second: Some(20.0),
    };
    let plan = Plan {
        requests: Some(requests),
        ..plan("cubic", 6.0, 2.0)
    };
    let (mut seconds, stop) = (Vec::new(), AtomicBool::new(false));
    let tell = &mut |second: &Second| seconds.push(second.clone());

    let report = follow(Ends::default(), &link(5.0), 1, plan, tell, &stop);

    let found = report.requests.as_ref().expect("some were asked");
    assert!((100..=120).contains(&found.answered), "{found:?}");
    assert_eq!(found.failed, 0);
    assert!(found.latency.p50_seconds > Some(0.060), "{found:?}");
    assert!(report.goodput_bits_per_second > 4.2e6, "{report}");
    assert!(
        report
            .to_string()
            .contains("1 stream(s) each beside requests")
    );
    let (warm, counted) = seconds.split_at(2);
    assert!(warm.iter().all(|it| it.requests.is_none()), "{warm:?}");
    let done = counted
        .iter()
        .filter_map(|it| it.requests)
        .map(|it| it.done);
    assert!(done.clone().all(|done| done >= 15), "{counted:?}");
    assert!(done.count() >= 4 && counted.iter().all(|it| it.handshakes.is_none()));
    let moments = &report.rtt.moments;
    assert_eq!(moments.len(), 6, "{moments:?}");
    let waits = |it: &Moment| it.p50_seconds > Some(0.050) && it.max_seconds >= it.p50_seconds;
    assert!(moments.iter().all(waits), "{moments:?}");
}

/// What the connections of earlier ones say when they are closed takes its time on a slow link.
#[test]
fn no_timed_handshake_is_held_up_by_the_one_before() {
    let spec = LinkSpec::symmetric(Config {
        rate: Bitrate::from_mbit(0.5),
        delay: MS * 25,
        ..Config::default()
    });

    let report = test(&spec, 1, plan("auto", 1.0, 0.0));

    let told = report.handshake;
    let first = told.post_quantum_seconds.expect("it was the first");
    for later in [
        told.classic_seconds,
        told.resumed_seconds,
        told.zero_rtt_answer_seconds,
    ] {
        assert!(later.is_some_and(|later| later < first + 0.005), "{told:?}");
    }
}
