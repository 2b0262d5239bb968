//! Which class a packet would take: the answer of `sennit why --packet`.

use sennit_packet::IpPacket;

use super::running::Running;
use crate::{
    config::{Class, Match},
    described::DescribedPacket,
    status::{PacketException, PacketReason},
};

/// Where a packet would go that the host routes into the tunnel. The kernel leads it to the device
/// of the first class of which such a rule matches, and there rules of classes before that one come
/// first: so the first class with any rule that matches has it.
pub(super) fn sort(running: &Running, packet: &DescribedPacket) -> Option<PacketReason> {
    let bytes = packet.bytes();
    let parsed = IpPacket::parse(&bytes).ok()?;
    let classes = &running.config.classes;
    let rules = classes.iter().flat_map(|class| {
        let rules = class.matches.iter();
        rules.map(move |rule| (class, rule))
    });
    let mut unless = Vec::new();
    for (class, rule) in rules.filter(|(_, it)| it.rule().matches(&parsed, packet.size())) {
        match packet.lacks(&rule.kernel) {
            None => {}
            Some(lacking) if lacking.is_empty() => return Some(reason(class, Some(rule), unless)),
            Some(lacking) => unless.push(PacketException {
                class: class.name.clone(),
                rule: rule.to_string(),
                condition: lacking.join(" and "),
            }),
        }
    }
    let rest = classes.iter().find(|class| class.catches_all());
    Some(reason(rest?, None, unless))
}

fn reason(class: &Class, rule: Option<&Match>, mut unless: Vec<PacketException>) -> PacketReason {
    let name = &class.name;
    unless.retain(|it| it.class != *name);
    let rule = rule.map(ToString::to_string);
    let mut why = match &rule {
        Some(rule) => format!("class {name}: its rule \"{rule}\" is the first that matches"),
        None => format!("class {name}: no rule matches, and it takes everything else"),
    };
    for PacketException {
        class, condition, ..
    } in &unless
    {
        why += &format!("; class {class} if {condition}");
    }
    PacketReason {
        class: Some(name.clone()),
        rule,
        unless,
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, EdgeConfig};

    #[test]
    fn the_first_class_that_matches_is_told_and_what_the_kernel_knows_is_asked_for_before_it() {
        let text = "[edge]\nhub = ['203.0.113.10:443']\n\
                    [[link]]\nname = 'a'\ninterface = 'wan-a'\n\
                    [[class]]\nname = 'calls'\nmatch = ['dscp ef']\n\
                    [[class]]\nname = 'voice'\nmatch = ['udp mark 0x10/0xff', 'in eth1.20']\n\
                    [[class]]\nname = 'games'\nmatch = ['udp port 5060']\n\
                    [[class]]\nname = 'backup'\nmatch = ['uid 34 tcp']\n";
        let loaded = EdgeConfig::parse("edge.toml", text.as_bytes()).unwrap();
        let running = Running::new(loaded.config, config::effective(text));
        let told = |packet: &str| {
            let packet = format!("{packet} sport 5062").parse().unwrap();
            sort(&running, &packet).unwrap().why
        };

        for (packet, why) in [
            (
                "udp 192.168.8.7 10.9.0.2 5060 mark 0x10 in eth1.20 dscp ef",
                "class calls: its rule \"dscp 46\" is the first that matches",
            ),
            (
                "udp 192.168.8.7 10.9.0.2 5060",
                "class games: its rule \"udp port 5060\" is the first that matches; class voice if \
                 its mark is 0x10/0xff; class voice if it came in by eth1.20",
            ),
            (
                "udp 192.168.8.7 10.9.0.2 5060 mark 0x110",
                "class voice: its rule \"udp mark 0x10/0xff\" is the first that matches",
            ),
            (
                "udp 192.168.8.7 10.9.0.2 5060 mark 0 in eth1",
                "class games: its rule \"udp port 5060\" is the first that matches",
            ),
            (
                "tcp 192.168.8.7 10.9.0.2 22",
                "class default: no rule matches, and it takes everything else; class voice if it \
                 came in by eth1.20; class backup if user 34 sends it",
            ),
            (
                "tcp 192.168.8.7 10.9.0.2 22 in eth1.20",
                "class voice: its rule \"in eth1.20\" is the first that matches",
            ),
            (
                "tcp 192.168.8.7 10.9.0.2 22 uid 34",
                "class backup: its rule \"tcp uid 34\" is the first that matches",
            ),
        ] {
            assert_eq!(told(packet), why, "{packet}");
        }
    }
}
