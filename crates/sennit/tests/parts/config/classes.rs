//! Classes: what they match, how they are protected, and what they share.

use super::*;

#[test]
fn without_classes_there_is_one_that_bonds_and_repairs() {
    let edge = edge(SMALL_EDGE);

    assert_eq!(edge.classes, [Class::default()]);
    let only = &edge.classes[0];
    assert_eq!(
        (only.policy, only.delivery, only.congestion),
        (Policy::Bond, Delivery::Repair, Congestion::Auto)
    );
    assert!(only.catches_all());
}

#[test]
fn an_explicit_class_for_everything_replaces_the_implicit_one() {
    let text = format!("{SMALL_EDGE}\n[[class]]\nname = 'all'\ncongestion = 'cubic'\n");
    let edge = edge(&text);

    assert_eq!(edge.classes.len(), 1);
    assert_eq!(
        (edge.classes[0].name.as_str(), edge.classes[0].congestion),
        ("all", Congestion::Cubic)
    );
}

#[test]
fn a_class_may_be_kept_to_some_links() {
    let two = format!(
        "{SMALL_EDGE}[[link]]\nname = 'dsl'\ninterface = 'eth1'\n\
         [[class]]\nname = 'bulk'\nlinks = ['dsl']\n"
    );
    assert_eq!(edge(&two).classes[0].links, Some(vec!["dsl".to_owned()]));
    let warning = edge_warning(&format!("{two}policy = 'redundant'\n"));
    assert!(warning.contains("with one link nothing"), "{warning}");
    let unknown = complaint("[[class]]\nname = 'bulk'", "links = ['dsl']");
    assert!(unknown.contains("no link is named `dsl`"), "{unknown}");
    assert!(unknown.contains("there are lte"), "{unknown}");
}

#[test]
fn fec_codes_are_read_with_their_numbers() {
    let fec = |code: &str| {
        edge(&format!(
            "{SMALL_EDGE}\n[[class]]\nname = 'a'\nfec = '{code}'\n"
        ))
        .classes[0]
            .fec
    };

    for code in ["off", "auto", "xor:10+1", "rs:10+2", "rlc:1/8"] {
        assert_eq!(fec(code).to_string(), code);
    }
    assert_eq!(fec("RLC:1/8").to_string(), "rlc:1/8");
}

#[test]
fn a_code_for_packets_that_are_sent_twice_is_pointless() {
    let class = |fec: &str| {
        format!(
            "{SMALL_EDGE}\n[[link]]\nname = 'second'\ninterface = 'b'\n\
             [[class]]\nname = 'a'\npolicy = 'redundant'\nfec = '{fec}'\n"
        )
    };
    let warning = edge_warning(&class("rs:10+2"));
    assert!(warning.contains("pointless"), "{warning}");
    for fine in ["auto", "off"] {
        assert!(edge_report(&class(fine)).is_empty());
    }
}

#[test]
fn a_rule_of_which_an_earlier_one_takes_everything_is_noticed_where_no_class_is_for_the_rest() {
    let text = |first: &str, second: &str| {
        format!(
            "{SMALL_EDGE}\n[[class]]\nname = 'bulk'\nmatch = [{first}]\n\
             [[class]]\nname = 'calls'\nmatch = [{second}]\n"
        )
    };
    for (first, second) in [
        ("'udp'", "'udp port 5060'"),
        ("'tcp', 'dst 10.0.0.0/8'", "'udp dst 10.9.0.0/16 dport 9'"),
        ("'mark 0x10/0xf0'", "'mark 0x12/0xff'"),
        ("'uid 1000-1999'", "'uid 1500'"),
        ("'udp'", "'udp mark 7'"),
    ] {
        let warning = edge_warning(&text(first, second));
        assert!(
            warning.contains("so class `calls` gets no packet"),
            "{warning}"
        );
        assert!(
            warning.contains("move class `calls` above class `bulk`"),
            "{warning}"
        );
    }
    let part = edge_warning(&text("'udp'", "'udp port 5060', 'icmp'"));
    assert!(part.contains("so this one gets no packet"), "{part}");
    for (first, second) in [("'udp port 5060'", "'udp'"), ("'udp mark 7'", "'udp'")] {
        assert!(edge_report(&text(first, second)).is_empty());
    }
}

#[test]
fn shares_that_a_link_of_known_rate_does_not_carry_are_noticed() {
    let text = |rates: &str, calls: &str, rest: &str| {
        format!(
            "{SMALL_EDGE}\n[[link]]\nname = 'dsl'\ninterface = 'eth7'\n{rates}\n\
             [[class]]\nname = 'calls'\nmatch = ['udp port 5060']\nshare = '{calls}'\n\
             [[class]]\nname = 'rest'\nshare = '{rest}'\n"
        )
    };
    for (rates, calls, rest, said) in [
        (
            "up = '1Mbit'",
            "2Mbit",
            "30%",
            "link `dsl` carries less up than the share of class `calls`",
        ),
        (
            "up = '50Mbit'\ndown = '10Mbit'",
            "8Mbit",
            "30%",
            "the shares add up to more than link `dsl` carries down",
        ),
        (
            "up = '10Mbit'",
            "6Mbit",
            "6Mbit",
            "the shares add up to more than link `dsl` carries up",
        ),
    ] {
        let warning = edge_warning(&text(rates, calls, rest));
        assert!(warning.contains(said) && warning.contains('^'), "{warning}");
    }
    let elsewhere = text("up = '1Mbit'", "2Mbit", "30%")
        .replace("share = '2Mbit'", "links = ['lte']\nshare = '2Mbit'");
    let fits = text("up = '10Mbit'", "7Mbit", "30%");
    for fine in [elsewhere, fits, text("", "7Mbit", "30%")] {
        assert!(edge_report(&fine).is_empty(), "{}", edge_report(&fine));
    }
}

#[test]
fn percentages_are_added_up_for_each_link_by_the_classes_that_may_use_it() {
    let text = |crew: &str| {
        format!(
            "{SMALL_EDGE}\n[[link]]\nname = 'vsat'\ninterface = 'eth7'\n\
             [[class]]\nname = 'crew'\nmatch = ['udp']\nlinks = [{crew}]\nshare = '60%'\n\
             [[class]]\nname = 'office'\nmatch = ['tcp']\nlinks = ['vsat']\nshare = '60%'\n"
        )
    };
    assert!(edge_report(&text("'lte'")).is_empty());
    let both = edge_report(&text("'lte', 'vsat'")).to_string();
    let said = "the shares add up to 120 % on link `vsat`";
    assert!(both.contains(said) && both.contains('^'), "{both}");
}

/// What is said about an edge's config with this line in its last section, as a person sees it.
fn complaint(section: &str, line: &str) -> String {
    edge_report(&format!("{SMALL_EDGE}\n{section}\n{line}\n")).to_string()
}

#[test]
fn shares_and_rates_have_units_and_bounds() {
    let class = "[[class]]\nname = 'bulk'";
    for (line, said) in [
        ("share = '20'", "has no unit"),
        ("share = '0%'", "is no share of a link"),
        ("share = '2Mb'", "`Mb` is no unit of rates"),
        ("share = '2MB/s'", "`MB/s` is no unit of rates"),
        ("limit = '99kbit'", "100kbit is the least"),
        ("limit = '10'", "has no unit"),
        ("limit = 'fast'", "is no rate"),
        ("dscp = 'gold'", "is no code point"),
        ("match = ['size 9']", "no IP packet is so short"),
    ] {
        let report = complaint(class, line);
        assert!(report.contains(said), "{line}: {report}");
        assert!(report.contains('^'), "{line}: {report}");
    }
    for line in [
        "share = '1.5Mbit'",
        "limit = '10Mbit'",
        "limit = '2.0 Mb/s'",
        "limit = '20Mbps'",
        "dscp = 'ef'",
    ] {
        let report = complaint(class, line);
        assert_eq!(report, "", "{line}");
    }
    let three = "[[class]]\nname = 'a'\nmatch = ['tcp']\nshare = '60%'\n[[class]]\nname = 'b'\nmatch = ['udp']";
    let report = complaint(three, "share = '50%'");
    let said = "the shares add up to 110 % on link `lte`";
    assert!(report.contains(said), "{report}");
    let report = complaint("[[link]]\nname = 'x'\ninterface = 'x0'", "up = '5kbit'");
    assert!(report.contains("100kbit is the least"), "{report}");
}

#[test]
fn words_may_be_in_capitals() {
    let text = format!(
        "{SMALL_EDGE}\n[[class]]\nname = 'voice'\nmatch = ['DSCP EF', 'UDP Port 5060']\n\
         policy = 'Single'\ndelivery = 'DATAGRAM'\ncongestion = 'BBR'\nfec = 'OFF'\n"
    );
    let voice = &edge(&text).classes[0];

    assert_eq!(voice.matches[0].dscp, Some(46));
    assert_eq!(
        (voice.policy, voice.delivery, voice.congestion, voice.fec),
        (
            Policy::Single,
            Delivery::Datagram,
            Congestion::Bbr,
            sennit_engine::Fec::Off
        )
    );
}
