//! Addresses, names and sizes of packets: what the tunnel takes, and what stays beside it.

use super::*;

/// The least config with more lines in `[edge]`.
fn with(more: &str) -> String {
    SMALL_EDGE.replace("[[link]]", &format!("{more}\n[[link]]"))
}

#[test]
fn what_belongs_into_the_tunnel_is_blocked_without_one_unless_the_config_says_otherwise() {
    let with = |more: &str| with(&format!("routes = ['0.0.0.0/0', '::/0']\n{more}"));
    let leaks = |more: &str| {
        let edge = edge(&with(more));
        (edge.leak, edge.leak_when_stopped)
    };

    assert_eq!(leaks(""), (Leak::Block, Leak::Allow));
    assert_eq!(leaks("leak = 'allow'"), (Leak::Allow, Leak::Allow));
    assert_eq!(
        leaks("leak_when_stopped = 'block'"),
        (Leak::Block, Leak::Block)
    );
    let odd = edge_warning(&with("leak = 'allow'\nleak_when_stopped = 'block'"));
    assert!(odd.contains("no effect"), "{odd}");
    let wrong = edge_report(&with("leak = 'maybe'")).to_string();
    assert!(wrong.contains("allowed: block, allow"), "{wrong}");
}

#[test]
fn a_family_that_is_left_out_is_noticed() {
    for (one, family) in [("0.0.0.0/0", "IPv6"), ("::/0", "IPv4")] {
        let warning = edge_warning(&with(&format!("routes = ['{one}']")));
        let told = format!("{family} leaves beside the tunnel");
        assert!(warning.contains(&told), "{warning}");
    }
    assert!(edge_report(&with("routes = ['0.0.0.0/0', '::/0']")).is_empty());
    assert!(edge_report(&with("routes = ['10.0.0.0/8']")).is_empty());
}

#[test]
fn what_every_host_has_is_nobodys_lan() {
    for lan in [
        "127.0.0.0/8",
        "127.0.0.1/32",
        "169.254.0.0/16",
        "224.0.0.0/4",
        "::1/128",
        "fe80::/64",
        "ff02::/16",
        "96.0.0.0/3",
    ] {
        let report = edge_report(&with(&format!("lan = ['{lan}']")));
        assert_eq!(report.errors(), 1, "{lan}: {report}");
        assert!(report.to_string().contains("cannot be a LAN"), "{report}");
    }
}

#[test]
fn a_pool_of_public_addresses_is_noticed() {
    let report = |pool: &str| {
        let text = HUB.replace("10.200.0.0/16", pool);
        let loaded = HubConfig::parse("hub.toml", text.as_bytes());
        loaded.map_or_else(|report| report, |loaded| loaded.warnings)
    };
    for private in [
        "10.200.0.0/16",
        "172.20.0.0/16",
        "192.168.7.0/24",
        "100.64.0.0/10",
    ] {
        assert!(report(private).is_empty(), "{private}");
    }
    let warning = report("11.0.0.0/16");
    assert_eq!((warning.errors(), warning.findings().len()), (0, 1));
    assert!(warning.to_string().contains("public address space"));
    assert!(report("127.0.0.0/16").has_errors());
}

#[test]
fn an_mtu_that_most_links_do_not_carry_is_noticed() {
    let warning = edge_warning(&with("mtu = 1500"));
    assert!(warning.contains("need 1578 on a link"), "{warning}");
    assert!(edge_report(&with("mtu = 1400")).is_empty());
    let hub = HUB.replace("[hub]", "[hub]\nmtu = 1500");
    let hub = HubConfig::parse("hub.toml", hub.as_bytes()).unwrap();
    assert!(hub.warnings.to_string().contains("need 1578"));
}

#[test]
fn a_hub_may_have_a_name() {
    let text = SMALL_EDGE.replace(
        "\"[2001:db8::1]:443\"",
        "\"vpn.example.org:443\", \"[2001:db8::1]:443\"",
    );
    let edge = edge(&text);

    let hubs: Vec<String> = edge.hub.iter().map(ToString::to_string).collect();
    assert_eq!(hubs, ["vpn.example.org:443", "[2001:db8::1]:443"]);
    assert_eq!(edge.hub[0].address(), None);
    for wrong in ["vpn.example.org", "vpn example:443", "203.0.113:443"] {
        let text = SMALL_EDGE.replace("[2001:db8::1]:443", wrong);
        assert!(edge_report(&text).has_errors(), "{wrong}");
    }
}
