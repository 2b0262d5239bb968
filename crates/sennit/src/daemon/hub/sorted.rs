//! Which class a flow would take that begins behind the hub: the answer of `sennit why --packet`.

use sennit_packet::IpPacket;

use super::classes;
use crate::{config::HubConfig, described::DescribedPacket, status::PacketReason};

/// Where a packet would go that is the first of its flow and comes from behind the hub.
pub(super) fn sort(config: &HubConfig, packet: &DescribedPacket) -> Option<PacketReason> {
    let bytes = packet.bytes();
    let parsed = IpPacket::parse(&bytes).ok()?;
    let rules = classes(config);
    let (class, rule) = rules.classifier.explain(&parsed, packet.size());
    let mut all = config.classes.iter().flat_map(|class| &class.matches);
    let rule = rule.and_then(|rule| all.nth(rule));
    let rule = rule.map(ToString::to_string);
    let class = rule.as_ref().and(rules.names.get(usize::from(class.0)));
    let why = match (class, &rule) {
        (Some(class), Some(rule)) => format!(
            "class {class} of the site, if it has one of that name: the hub's rule \"{rule}\" is the \
             first that matches"
        ),
        _ => "the class of the site that takes everything else: no rule of the hub matches".into(),
    };
    let ignored = match packet.is_told_by_kernel() {
        true => "; a hub does not look at mark, in and uid",
        false => "",
    };
    Some(PacketReason {
        class: class.cloned(),
        rule,
        unless: Vec::new(),
        why: format!(
            "{why}. That is for a flow that begins behind the hub; the others are answered in the \
             class in which they came{ignored}"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_that_begins_behind_the_hub_goes_by_the_first_rule_that_matches() {
        let text = "[hub]\nlisten = ['0.0.0.0:443']\npool = ['10.200.0.0/16']\n\
                    [[class]]\nname = 'bulk'\nmatch = ['tcp dport 873', 'udp dport 10']\n\
                    [[class]]\nname = 'voice'\nmatch = ['udp dport 5060', 'udp']\n";
        let loaded = HubConfig::parse("hub.toml", text.as_bytes()).unwrap();
        let told = |packet: &str| sort(&loaded.config, &packet.parse().unwrap()).unwrap();

        for (packet, class, rule) in [
            (
                "udp 198.51.100.1 10.200.0.2 5060",
                "voice",
                "udp dport 5060",
            ),
            ("udp 198.51.100.1 10.200.0.2 10", "bulk", "udp dport 10"),
            ("udp 198.51.100.1 10.200.0.2 11", "voice", "udp"),
        ] {
            let told = told(packet);
            assert_eq!(told.class.as_deref(), Some(class), "{packet}");
            assert_eq!(told.rule.as_deref(), Some(rule), "{packet}");
        }
        let other = told("tcp 198.51.100.1 10.200.0.2 22");
        assert_eq!((other.class, other.rule), (None, None));
        assert!(
            other
                .why
                .starts_with("the class of the site that takes everything else")
        );
        assert!(!other.why.contains("look at mark"));
        let marked = told("tcp 198.51.100.1 10.200.0.2 22 mark 7");
        assert!(
            marked
                .why
                .ends_with("a hub does not look at mark, in and uid")
        );
    }
}
