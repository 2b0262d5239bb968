//! Whatever is in a file, it gives a config or a report.

use proptest::prelude::*;

use super::*;

/// Fragments near the grammar find more than random bytes do.
fn scraps() -> impl Strategy<Value = String> {
    let scraps = [
        "[edge]\n",
        "[hub]\n",
        "[[link]]\n",
        "[[class]]\n",
        "[edge",
        "hub = ",
        "listen = ",
        "pool = ",
        "match = ",
        "name = ",
        "interface = ",
        "tier = ",
        "weight = ",
        "share = ",
        "fec = ",
        "policy = ",
        "routes = ",
        "device = ",
        "mtu = ",
        "workers = ",
        "[",
        "]",
        "{",
        "}",
        "\"",
        "'",
        "\"\"\"",
        ",",
        "\n",
        "\r\n",
        "=",
        "0",
        "-1",
        "99999999999999999999",
        "0xff",
        "1.5",
        "inf",
        "true",
        "1979-05-27",
        "\"10.0.0.0/8\"",
        "\"fd00::/8\"",
        "\"a\\u00e9\\n\"",
        "\"é\"",
        "日本",
        "\u{200d}",
        "\t",
        "\0",
        "\u{7f}",
        "\"udp port 1-2\"",
        "\"xor:10+1\"",
        "\"20%\"",
        "\"203.0.113.10:443\"",
        "#",
        " ",
        "a.b.c",
    ];
    proptest::collection::vec(proptest::sample::select(scraps.to_vec()), 0..60)
        .prop_map(|list| list.concat())
}

/// Every run tries the same cases.
fn seeded() -> ProptestConfig {
    let rng_seed = proptest::test_runner::RngSeed::Fixed(0x5e_17);
    ProptestConfig {
        rng_seed,
        failure_persistence: None,
        cases: 512,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(seeded())]

    #[test]
    fn any_bytes_give_a_config_or_a_report(source in proptest::collection::vec(any::<u8>(), 0..300)) {
        show(&source);
    }

    #[test]
    fn any_scraps_of_a_config_give_a_config_or_a_report(text in scraps()) {
        show(text.as_bytes());
    }

    #[test]
    fn any_change_of_a_valid_config_gives_a_config_or_a_report(at in 0..EDGE.len(), cut in 0..40_usize, scrap in scraps()) {
        let (mut source, end) = (EDGE.as_bytes().to_vec(), EDGE.len().min(at + cut));
        source.splice(at..end, scrap.bytes().take(30));
        show(&source);
    }

    #[test]
    fn any_rule_is_read_or_refused(rule in "((dscp|udp|tcp|proto|port|sport|src|dst|é)? ?[a-z0-9:./é-]{0,6} ?){0,4}") {
        show(format!("{SMALL_EDGE}\n[[class]]\nname = 'x'\nmatch = ['{rule}']\n").as_bytes());
    }
}

/// Reads and renders; a failed reading has at least one error.
fn show(source: &[u8]) {
    let readings = [
        Config::parse("any.toml", source).map(|loaded| loaded.warnings),
        HubConfig::parse("any.toml", source).map(|loaded| loaded.warnings),
        EdgeConfig::parse("any.toml", source).map(|loaded| loaded.warnings),
    ];
    for reading in readings {
        let (report, failed) = match reading {
            Ok(warnings) => (warnings, false),
            Err(report) => (report, true),
        };
        assert_eq!(report.has_errors(), failed);
        assert_eq!(report.located().count(), report.findings().len());
        assert_eq!(report.to_string().is_empty(), report.is_empty());
    }
}
