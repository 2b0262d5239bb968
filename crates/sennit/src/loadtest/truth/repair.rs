//! Messages that are protected: what the network loses is told from what is lost in the end.

use sennit_fec::Code;

use super::*;
use crate::loadtest::{fec::FecFigures, profile::Profile, report::Way};

const RATE: f64 = 8e6;

/// A thousand messages a second in both directions, protected by a code.
fn protected(code: &str) -> Plan {
    Plan {
        up: true,
        message_bytes: Some(1000),
        rate_bits_per_second: Some(RATE),
        fec: Some(code.into()),
        // It takes no notice of losses.
        ..plan("bbr", 6.0, 1.0)
    }
}

fn both(report: &Report) -> [&Way; 2] {
    [&report.up, &report.down].map(|way| way.as_ref().expect("it was asked for"))
}

/// Directions of which is told why there were more repairs than the code says.
fn explained(report: &Report) -> usize {
    let notes = report.notes.iter();
    notes.filter(|note| note.contains(": repairs for")).count()
}

/// Of a group of ten 5 % random losses leave 2.0 % behind one repair and 0.5 % behind two.
#[test]
fn what_the_network_loses_comes_back_in_both_directions() {
    let mobile: Profile = "mobile".parse().expect("it is one");
    for (code, most) in [("xor:10+1", 0.028), ("rs:10+2", 0.012), ("rlc:1/8", 0.005)] {
        let mut seconds = Vec::new();
        let tell = &mut |second: &Second| seconds.push(second.clone());
        let stop = AtomicBool::new(false);

        let ends = Ends::default();
        let report = follow(ends, &mobile.spec, 1, protected(code), tell, &stop);

        let asked = code.parse::<Code>().expect("it is one").overhead();
        for way in both(&report) {
            let (Some(fec), Some(messages)) = (&way.fec, &way.messages) else {
                panic!("{code}: they were protected: {way:?}");
            };
            let symbols = fec.symbols;
            assert!((fec.overhead_ratio - asked).abs() < 0.02, "{code}: {fec:?}");
            assert_eq!(symbols.sources_sent, messages.sent);
            assert_eq!(symbols.sources_received, messages.received);
            assert!(
                (0.035..0.065).contains(&messages.loss_ratio),
                "{messages:?}"
            );
            assert!(symbols.repairs_received < symbols.repairs_sent, "{fec:?}");
            assert!(symbols.recovered > 100 && symbols.malformed == 0, "{fec:?}");
            assert!(fec.residual_loss_ratio < most, "{code}: {fec:?}");
            let expected = RATE * (1.0 - fec.residual_loss_ratio);
            let error = way.goodput_bits_per_second / expected - 1.0;
            // Where the controller holds something up for a moment, a little does not leave.
            assert!((-0.05..0.01).contains(&error), "{code}: {error} {fec:?}");
        }
        let last = seconds.last().expect("it took some");
        for symbols in [last.up_fec, last.down_fec] {
            assert!(symbols.is_some_and(|it| it.recovered > 50), "{symbols:?}");
        }
        assert_eq!(explained(&report), 0, "{code}: {:?}", report.notes);
    }
}

/// A link of so many Mbit/s that loses nothing while its queue has room.
fn clean(mbit: f64) -> LinkSpec {
    LinkSpec::symmetric(Config {
        rate: Bitrate::from_mbit(mbit),
        delay: MS * 20,
        queue: Queue::Time(MS * 200),
        ..Config::default()
    })
}

#[test]
fn where_nothing_is_lost_nothing_comes_back_on_whatever_stack() {
    let (ours, quinn) = (StackName::Sennit, StackName::Quinn);
    for (client, server) in [(ours, ours), (quinn, ours), (ours, quinn)] {
        let ends = Ends {
            client,
            server,
            perf: false,
        };

        let report = test_by(ends, &clean(40.0), 1, protected("rs:10+2"));

        for way in both(&report) {
            let fec = way.fec.as_ref().expect("they were protected");
            let symbols = fec.symbols;
            let back = [symbols.recovered, symbols.failed, fec.lost];
            assert_eq!(back, [0; 3], "{client} {server}: {fec:?}");
            assert_eq!(symbols.unneeded, symbols.repairs_sent, "{fec:?}");
        }
    }
}

/// Repairs leave before the next message does, so that a load of all there is room for neither
/// starves them nor waits for ever.
#[test]
fn a_load_without_a_rate_has_the_overhead_of_its_code_too() {
    for stack in [StackName::Sennit, StackName::Quinn] {
        let ends = Ends {
            client: stack,
            server: stack,
            perf: false,
        };
        let plan = Plan {
            rate_bits_per_second: None,
            connections: 2,
            congestion: "cubic".into(),
            ..protected("rs:10+2")
        };

        let report = test_by(ends, &clean(20.0), 1, plan);

        for way in both(&report) {
            let fec = way.fec.as_ref().expect("they were protected");
            assert!((fec.overhead_ratio - 0.2).abs() < 0.02, "{stack}: {fec:?}");
            // Of 20 Mbit/s a sixth is repairs, and headers are the rest.
            let rate = way.goodput_bits_per_second;
            assert!((12e6..16e6).contains(&rate), "{stack}: {rate}");
        }
    }
}

/// Each of 12 messages a second is a group of its own.
#[test]
fn why_a_thin_load_has_more_overhead_is_told() {
    let plan = Plan {
        rate_bits_per_second: Some(1e5),
        ..protected("rs:10+2")
    };

    let report = test(&clean(10.0), 1, plan);

    for way in both(&report) {
        let fec = way.fec.as_ref().expect("they were protected");
        assert!((fec.overhead_ratio - 2.0).abs() < 0.1, "{fec:?}");
    }
    assert_eq!(explained(&report), 2, "{:?}", report.notes);
}

fn fec(way: Option<&Way>) -> &FecFigures {
    let fec = way.and_then(|way| way.fec.as_ref());
    fec.expect("they were to be protected")
}

/// Each sender goes by what it sees of its own direction.
#[test]
fn auto_repairs_the_way_that_loses_messages_and_sends_nothing_more_on_a_clean_one() {
    let mobile: Profile = "mobile".parse().expect("it is one");
    let spec = LinkSpec {
        up: mobile.spec.up,
        down: clean(40.0).down,
    };

    let report = test(&spec, 1, protected("auto"));

    let (up, down) = (fec(report.up.as_ref()), fec(report.down.as_ref()));
    let [lossy, quiet] = [up, down].map(|fec| &fec.choices[0]);
    assert!(
        up.symbols.repairs_sent > 300 && up.symbols.recovered > 100,
        "{up:?}"
    );
    assert!(up.residual_loss_ratio < up.wire_loss_ratio / 4.0, "{up:?}");
    assert!(up.protected_ratio > 0.95, "the warm-up told: {up:?}");
    let code = lossy.code.as_deref().unwrap_or_default();
    assert!(code.starts_with("rlc:1/"), "{lossy:?}");
    assert_eq!(lossy.reason, "what is lost is not sent again");
    assert!((0.03..0.08).contains(&lossy.loss_ratio), "{lossy:?}");
    assert_eq!((down.symbols.repairs_sent, down.protected_ratio), (0, 0.0));
    assert_eq!((&quiet.code, quiet.loss_ratio), (&None, 0.0));
    assert_eq!(quiet.reason, "the links lose too little");
    assert_eq!((up.symbols.malformed, down.symbols.malformed), (0, 0));
    let goodput = report.down.as_ref().map(|way| way.goodput_bits_per_second);
    assert!(
        goodput.is_some_and(|rate| rate > 0.95 * RATE),
        "{goodput:?}"
    );
}

/// As much is lost by both networks.
#[test]
fn auto_makes_up_for_bursts_by_more_repairs() {
    let overhead_and_burst = |loss| {
        let spec = LinkSpec::symmetric(Config {
            delay: MS * 25,
            loss,
            ..Config::default()
        });
        let plan = Plan {
            up: false,
            seconds: 12.0,
            ..protected("auto")
        };
        let report = test(&spec, 1, plan);
        let found = fec(report.down.as_ref());
        (found.overhead_ratio, found.choices[0].burst)
    };

    let (less, alone) = overhead_and_burst(Loss::Random(0.03));
    let (more, long) = overhead_and_burst(Loss::bursts(0.03, 3.0));

    assert!(alone < 1.2 && long > 1.6, "{alone} {long}");
    assert!(more > 1.25 * less, "{less} {more}");
}
