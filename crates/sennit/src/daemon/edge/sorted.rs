//! Which class a packet would take: the answer of `sennit why --packet`.

use sennit_packet::IpPacket;

use super::{far_side, running::Running};
use crate::{
    config::{Class, Match},
    described::DescribedPacket,
    status::PacketReason,
};

/// Where a packet would go that comes from the edge's own device.
pub(super) fn sort(running: &Running, packet: &DescribedPacket) -> Option<PacketReason> {
    let bytes = packet.bytes();
    let parsed = IpPacket::parse(&bytes).ok()?;
    let classifier = far_side::classifier(running);
    let (class, rule) = classifier.explain(&parsed, packet.size());
    let (_, Class { name, .. }) = running.numbered().find(|(id, _)| *id == class)?;
    let mut rules = running
        .config
        .classes
        .iter()
        .flat_map(|class| class.matches.iter().filter(|it| !it.is_kernel()));
    let rule = rule
        .and_then(|rule| rules.nth(rule))
        .map(|it: &Match| it.to_string());
    let why = match &rule {
        Some(rule) => format!("class {name}: its rule \"{rule}\" is the first that matches"),
        None => format!("class {name}: no rule matches, and it takes everything else"),
    };
    Some(PacketReason {
        class: Some(name.clone()),
        rule,
        why,
    })
}
