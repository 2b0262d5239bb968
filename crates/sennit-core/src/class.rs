//! Traffic classes: which tunnel a packet belongs to.
//!
//! An edge sorts packets by rules, first match first. A hub has no rules: it answers a flow in the
//! class the flow came in, which a [`FlowTable`] remembers.

use std::{
    ops::RangeInclusive,
    time::{Duration, Instant},
};

use sennit_packet::{FlowKey, IpPacket, Prefix, Protocol};

/// Position of a class in the configuration of its edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ClassId(pub u8);

/// Conditions that must all hold; an empty rule matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// IP protocol.
    pub protocol: Option<Protocol>,
    /// Differentiated services code point (RFC 2474).
    pub dscp: Option<u8>,
    /// Source prefix.
    pub source: Option<Prefix>,
    /// Destination prefix.
    pub destination: Option<Prefix>,
    /// Either port.
    pub port: Option<RangeInclusive<u16>>,
    /// Source port.
    pub source_port: Option<RangeInclusive<u16>>,
    /// Destination port.
    pub destination_port: Option<RangeInclusive<u16>>,
}

impl Rule {
    /// Whether the packet meets every condition.
    pub fn matches(&self, packet: &IpPacket<'_>) -> bool {
        let (source, destination) = packet.ports().unzip();
        let within = |range: &Option<RangeInclusive<u16>>, ports: &[Option<u16>]| {
            range
                .as_ref()
                .is_none_or(|range| ports.iter().flatten().any(|p| range.contains(p)))
        };
        self.protocol
            .is_none_or(|protocol| protocol == packet.protocol())
            && self.dscp.is_none_or(|dscp| dscp == packet.dscp())
            && self
                .source
                .as_ref()
                .is_none_or(|prefix| prefix.contains(packet.src()))
            && self
                .destination
                .as_ref()
                .is_none_or(|prefix| prefix.contains(packet.dst()))
            && within(&self.port, &[source, destination])
            && within(&self.source_port, &[source])
            && within(&self.destination_port, &[destination])
    }
}

/// The rules of an edge.
#[derive(Clone, Debug, Default)]
pub struct Classifier {
    rules: Vec<(Rule, ClassId)>,
    fallback: ClassId,
}

impl Classifier {
    /// Rules in order of precedence, and the class of what no rule matches.
    pub fn new(rules: Vec<(Rule, ClassId)>, fallback: ClassId) -> Self {
        Self { rules, fallback }
    }

    /// The class of a packet.
    pub fn classify(&self, packet: &IpPacket<'_>) -> ClassId {
        let hit = self.rules.iter().find(|(rule, _)| rule.matches(packet));
        hit.map_or(self.fallback, |&(_, class)| class)
    }
}

/// Slots of a [`FlowTable`]; a collision makes a flow forget its class until its next packet.
const SLOTS: usize = 4096;
/// A flow that was silent this long is forgotten: the idle timeout of TCP in NATs (RFC 5382 REQ-5)
/// would be longer, but a live connection sends keep-alives or has no answer to sort.
const FORGET_AFTER: Duration = Duration::from_secs(300);

/// Remembers the class of recent flows, in bounded memory.
#[derive(Debug)]
pub struct FlowTable {
    slots: Vec<Option<Slot>>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    flow: u64,
    class: ClassId,
    seen: Instant,
}

impl Default for FlowTable {
    fn default() -> Self {
        Self {
            slots: vec![None; SLOTS],
        }
    }
}

impl FlowTable {
    /// Notes that packets of `flow` came in as `class`.
    pub fn learn(&mut self, flow: FlowKey, class: ClassId, now: Instant) {
        let hash = flow.hash64(0);
        self.slots[hash as usize % SLOTS] = Some(Slot {
            flow: hash,
            class,
            seen: now,
        });
    }

    /// The class in which the opposite direction of `flow` came in.
    pub fn answer(&self, flow: FlowKey, now: Instant) -> Option<ClassId> {
        let hash = flow.reversed().hash64(0);
        self.slots[hash as usize % SLOTS]
            .filter(|slot| slot.flow == hash)
            .filter(|slot| now.saturating_duration_since(slot.seen) < FORGET_AFTER)
            .map(|slot| slot.class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 UDP packet from 10.0.0.1:1000 to 10.9.0.2:5060 with DSCP EF.
    fn udp() -> [u8; 28] {
        let mut packet = [0; 28];
        packet[0] = 0x45;
        packet[1] = 46 << 2;
        packet[3] = 28;
        packet[8] = 64;
        packet[9] = 17;
        packet[12..16].copy_from_slice(&[10, 0, 0, 1]);
        packet[16..20].copy_from_slice(&[10, 9, 0, 2]);
        packet[20..22].copy_from_slice(&1000_u16.to_be_bytes());
        packet[22..24].copy_from_slice(&5060_u16.to_be_bytes());
        packet[25] = 8;
        packet
    }

    fn matches(rule: &Rule) -> bool {
        rule.matches(&IpPacket::parse(&udp()).unwrap())
    }

    #[test]
    fn a_rule_matches_when_all_its_conditions_hold() {
        let rule = Rule {
            protocol: Some(Protocol::UDP),
            dscp: Some(46),
            destination: Some("10.9.0.0/16".parse().unwrap()),
            port: Some(5060..=5060),
            ..Rule::default()
        };
        assert!(matches(&rule));
        assert!(!matches(&Rule {
            protocol: Some(Protocol::TCP),
            ..rule.clone()
        }));
        assert!(!matches(&Rule {
            source: Some("10.9.0.0/16".parse().unwrap()),
            ..rule.clone()
        }));
        assert!(!matches(&Rule {
            source_port: Some(5060..=5060),
            ..rule
        }));
        assert!(matches(&Rule::default()));
    }

    #[test]
    fn the_first_rule_that_matches_wins() {
        let voice = Rule {
            port: Some(5060..=5060),
            ..Rule::default()
        };
        let classifier = Classifier::new(
            vec![(voice, ClassId(2)), (Rule::default(), ClassId(1))],
            ClassId(0),
        );
        let packet = udp();
        assert_eq!(
            classifier.classify(&IpPacket::parse(&packet).unwrap()),
            ClassId(2)
        );
        let none = Classifier::new(Vec::new(), ClassId(0));
        assert_eq!(
            none.classify(&IpPacket::parse(&packet).unwrap()),
            ClassId(0)
        );
    }

    #[test]
    fn a_flow_is_answered_in_the_class_it_came_in_until_it_is_forgotten() {
        let now = Instant::now();
        let packet = udp();
        let flow = FlowKey::of(&IpPacket::parse(&packet).unwrap());
        let mut table = FlowTable::default();
        table.learn(flow, ClassId(3), now);
        assert_eq!(table.answer(flow.reversed(), now), Some(ClassId(3)));
        assert_eq!(table.answer(flow, now), None);
        assert_eq!(table.answer(flow.reversed(), now + FORGET_AFTER), None);
    }
}
