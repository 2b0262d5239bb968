//! Traffic classes: which tunnel a packet belongs to.
//!
//! An edge sorts flows by rules, first match first. A hub answers a flow in the class the flow
//! came in; its rules are for flows that begin behind it. Both remember the class of a flow in a
//! [`FlowTable`], so that it stays there whatever its later packets are like.
//!
//! Only the first fragment of a datagram has ports. The others follow it into its class, which a
//! [`FragmentTable`] remembers meanwhile.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    ops::RangeInclusive,
    time::{Duration, Instant},
};

use sennit_packet::{FlowKey, IpPacket, Prefix, Protocol, Version};

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
    /// Bytes of the IP packet, of the first one of a flow.
    pub size: Option<RangeInclusive<u16>>,
}

impl Rule {
    /// Whether the packet, which is `size` bytes long on the wire, meets every condition.
    pub fn matches(&self, packet: &IpPacket<'_>, size: usize) -> bool {
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
            && self
                .size
                .as_ref()
                .is_none_or(|sizes| u16::try_from(size).is_ok_and(|size| sizes.contains(&size)))
    }
}

/// The rules of an edge.
#[derive(Clone, Debug, Default)]
pub struct Classifier {
    rules: Vec<(Rule, ClassId)>,
    fallback: ClassId,
    /// How many of the rules come before what the devices of these classes bring.
    before: BTreeMap<ClassId, usize>,
    several: bool,
}

impl Classifier {
    /// Rules in order of precedence, and the class of what no rule matches.
    pub fn new(rules: Vec<(Rule, ClassId)>, fallback: ClassId) -> Self {
        Self {
            several: rules.iter().any(|(_, class)| *class != fallback),
            rules,
            fallback,
            before: BTreeMap::new(),
        }
    }

    /// So many of the rules are looked at first for packets that the device of a class brings; none
    /// for those of other devices.
    #[must_use]
    pub fn with_devices(mut self, before: BTreeMap<ClassId, usize>) -> Self {
        self.before = before;
        self
    }

    /// The class of what no rule matches.
    pub fn fallback(&self) -> ClassId {
        self.fallback
    }

    /// Whether packets may come to be of this class.
    pub fn knows(&self, class: ClassId) -> bool {
        self.may_be(None, class) || self.before.contains_key(&class)
    }

    /// The rules for what the device of a class brings, or the one of all classes, and the class of
    /// what none of them matches.
    fn rules_for(&self, device: Option<ClassId>) -> (&[(Rule, ClassId)], ClassId) {
        match device {
            None => (&self.rules, self.fallback),
            Some(class) => {
                let before = self.before.get(&class).copied().unwrap_or(0);
                (&self.rules[..before.min(self.rules.len())], class)
            }
        }
    }

    /// Whether packets from there may come to be of several classes.
    pub fn sorts(&self, device: Option<ClassId>) -> bool {
        match device {
            None => self.several,
            Some(_) => !self.rules_for(device).0.is_empty(),
        }
    }

    /// Whether packets from there may come to be of this class.
    pub fn may_be(&self, device: Option<ClassId>, class: ClassId) -> bool {
        let (rules, rest) = self.rules_for(device);
        class == rest || rules.iter().any(|(_, ruled)| *ruled == class)
    }

    /// The class of a packet of `size` bytes that came from there.
    pub fn classify(&self, device: Option<ClassId>, packet: &IpPacket<'_>, size: usize) -> ClassId {
        let (rules, rest) = self.rules_for(device);
        let mut rules = rules.iter();
        let hit = rules.find(|(rule, _)| rule.matches(packet, size));
        hit.map_or(rest, |(_, class)| *class)
    }

    /// The class of a packet of `size` bytes from the device of all classes, and by which rule it
    /// goes there, if by any.
    pub fn explain(&self, packet: &IpPacket<'_>, size: usize) -> (ClassId, Option<usize>) {
        let mut rules = self.rules.iter();
        let hit = rules.position(|(rule, _)| rule.matches(packet, size));
        (hit.map_or(self.fallback, |rule| self.rules[rule].1), hit)
    }
}

/// Places where flows may lie in a [`FlowTable`]: 128 KB of them.
const SETS: usize = 2048;
/// Flows that may lie in one place, which is one cache line. If more are alive there, the one that
/// was silent longest is forgotten: of 2000 flows with one seed in five hundred one is.
const WAYS: usize = 8;
/// A flow that was silent this long is forgotten: the idle timeout of TCP in NATs (RFC 5382 REQ-5)
/// would be longer, but a live connection sends keep-alives or has no answer to sort.
const FORGET_AFTER: Duration = Duration::from_secs(300);

/// Remembers the class of recent flows, in bounded memory.
#[derive(Debug)]
pub struct FlowTable {
    /// Empty until the first flow.
    sets: Vec<Set>,
    seed: u64,
    /// When the first flow was seen.
    start: Option<Instant>,
}

#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct Set([Known; WAYS]);

/// A flow, or room for one.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The half of its hash that does not say where it lies.
    tag: u32,
    /// The second in which it was seen; their numbers begin anew after 18 hours.
    seen: u16,
    class: Option<ClassId>,
}

impl Known {
    /// For how many seconds it was silent.
    fn silent(&self, second: u16) -> u16 {
        second.wrapping_sub(self.seen)
    }
}

impl FlowTable {
    /// An empty one, in which flows lie by a hash with this seed.
    pub fn new(seed: u64) -> Self {
        Self {
            sets: Vec::new(),
            seed,
            start: None,
        }
    }

    /// Notes that `flow` is of `class`.
    pub fn learn(&mut self, flow: FlowKey, class: ClassId, now: Instant) {
        if self.sets.is_empty() {
            self.sets = vec![Set::default(); SETS];
            self.start = Some(now);
        }
        let (place, tag, seen) = self.place(flow, now);
        let Set(known) = &mut self.sets[place];
        let own = known.iter().position(|it| it.tag == tag);
        let index = own.unwrap_or_else(|| {
            let rank = |index: &usize| {
                let it: &Known = &known[*index];
                (it.class.is_some(), Reverse(it.silent(seen)))
            };
            (0..WAYS).min_by_key(rank).unwrap_or(0)
        });
        known[index] = Known {
            tag,
            seen,
            class: Some(class),
        };
    }

    /// The class of `flow`, if it is known; it is remembered for as long again.
    pub fn recall(&mut self, flow: FlowKey, now: Instant) -> Option<ClassId> {
        let (place, tag, second) = self.place(flow, now);
        let Set(known) = self.sets.get_mut(place)?;
        let mut alive = known.iter_mut().filter(|it| {
            it.class.is_some() && u64::from(it.silent(second)) < FORGET_AFTER.as_secs()
        });
        let own = alive.find(|it| it.tag == tag)?;
        own.seen = second;
        own.class
    }

    /// Forgets the flows of classes that are no more.
    pub fn keep(&mut self, is_class: impl Fn(ClassId) -> bool) {
        for known in self.sets.iter_mut().flat_map(|set| &mut set.0) {
            known.class = known.class.filter(|class| is_class(*class));
        }
    }

    /// Where a flow lies, its tag, and which second it is.
    fn place(&self, flow: FlowKey, now: Instant) -> (usize, u32, u16) {
        let hash = flow.hash64(self.seed);
        let start = self.start.unwrap_or(now);
        let second = now.saturating_duration_since(start).as_secs();
        (hash as usize % SETS, (hash >> 32) as u32, second as u16)
    }
}

/// Slots of a [`FragmentTable`]: datagrams whose fragments are on their way at one time. A
/// collision makes the later fragments of one of them be sorted without ports.
const DATAGRAMS: usize = 1024;
/// The fragments of a datagram leave their sender together; a number is used again after 65536
/// datagrams of IPv4, which at 10 Gbit/s of large ones take longer than this.
const TOGETHER: Duration = Duration::from_secs(2);

/// Remembers the class of datagrams that come in fragments, in bounded memory.
#[derive(Debug)]
pub struct FragmentTable {
    /// Empty until the first fragment.
    slots: Vec<Option<Datagram>>,
    seed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Datagram {
    id: u64,
    class: ClassId,
    seen: Instant,
    /// Whether the first fragment was there, which has the ports.
    complete: bool,
}

impl FragmentTable {
    /// An empty one, in which datagrams lie by a hash with this seed.
    pub fn new(seed: u64) -> Self {
        Self {
            slots: Vec::new(),
            seed,
        }
    }

    /// The class of a packet: what `decide` says of a whole one and of the first fragment of a
    /// datagram, and what was said before of the others. A first fragment that comes late follows
    /// the others.
    pub fn class(
        &mut self,
        packet: &IpPacket<'_>,
        now: Instant,
        decide: impl FnOnce() -> ClassId,
    ) -> ClassId {
        let Some(number) = packet.fragment_id() else {
            return decide();
        };
        if self.slots.is_empty() {
            self.slots = vec![None; DATAGRAMS];
        }
        let id = datagram_id(packet, number, self.seed);
        let first = !packet.is_later_fragment();
        let slot = &mut self.slots[id as usize % DATAGRAMS];
        let known = slot
            .filter(|known| known.id == id)
            .filter(|known| now.saturating_duration_since(known.seen) < TOGETHER)
            .filter(|known| !(first && known.complete));
        let class = known.map_or_else(decide, |known| known.class);
        *slot = Some(Datagram {
            id,
            class,
            seen: now,
            complete: first || known.is_some_and(|known| known.complete),
        });
        class
    }
}

/// Two datagrams with the same are one in a million million at most.
fn datagram_id(packet: &IpPacket<'_>, number: u32, seed: u64) -> u64 {
    // In IPv6, what a later fragment names as its protocol may be an extension header.
    let protocol = match packet.version() {
        Version::V4 => packet.protocol(),
        Version::V6 => Protocol(44),
    };
    let key = FlowKey {
        src: packet.src(),
        dst: packet.dst(),
        protocol,
        src_port: (number >> 16) as u16,
        dst_port: number as u16,
    };
    key.hash64(seed)
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
        rule.matches(&IpPacket::parse(&udp()).unwrap(), 28)
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
        let size = |size| Rule {
            size: Some(size),
            ..Rule::default()
        };
        assert!(matches(&size(0..=28)));
        assert!(!matches(&size(29..=1500)));
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
        let packet = IpPacket::parse(&packet).unwrap();
        assert_eq!(classifier.classify(None, &packet, 28), ClassId(2));
        assert!(classifier.sorts(None));
        let none = Classifier::new(Vec::new(), ClassId(0));
        assert_eq!(none.classify(None, &packet, 28), ClassId(0));
        assert!(!none.sorts(None), "of one class there is nothing to sort");
    }

    #[test]
    fn what_a_device_of_a_class_brings_is_taken_by_classes_before_it_alone() {
        let to = |port| Rule {
            destination_port: Some(port..=port),
            ..Rule::default()
        };
        let rules = vec![(to(5060), ClassId(0)), (to(5060), ClassId(3))];
        let devices = [(ClassId(1), 1), (ClassId(2), 0)].into();
        let classifier = Classifier::new(rules, ClassId(4)).with_devices(devices);
        let packet = udp();
        let packet = IpPacket::parse(&packet).unwrap();
        let class = |device| classifier.classify(Some(ClassId(device)), &packet, 28).0;
        assert_eq!([class(1), class(2), class(7)], [0, 2, 7]);
        assert_eq!(
            [1, 2, 7].map(|it| classifier.sorts(Some(ClassId(it)))),
            [true, false, false]
        );
        assert!(!classifier.may_be(Some(ClassId(1)), ClassId(3)));
    }

    #[test]
    fn a_flow_keeps_its_class_until_it_is_silent_for_long() {
        let now = Instant::now();
        let packet = udp();
        let flow = FlowKey::of(&IpPacket::parse(&packet).unwrap());
        let mut table = FlowTable::new(0);
        assert_eq!(table.recall(flow, now), None);
        table.learn(flow, ClassId(3), now);
        assert_eq!(table.recall(flow.reversed(), now), None);
        let later = now + FORGET_AFTER / 2;
        assert_eq!(table.recall(flow, later), Some(ClassId(3)));
        let later = later + FORGET_AFTER / 2;
        assert_eq!(
            table.recall(flow, later),
            Some(ClassId(3)),
            "it was recalled"
        );
        assert_eq!(table.recall(flow, later + FORGET_AFTER), None);
    }

    fn nth_flow(number: u32) -> FlowKey {
        FlowKey {
            src: [10, (number >> 16) as u8, (number >> 8) as u8, number as u8].into(),
            dst: [10, 9, 0, 2].into(),
            protocol: Protocol::UDP,
            src_port: 40_000,
            dst_port: 443,
        }
    }

    /// Each flow had one place: of these 39 % took that of another one, whose class was forgotten.
    #[test]
    fn two_thousand_flows_of_two_classes_all_keep_theirs() {
        let now = Instant::now();
        let class = |number: u32| ClassId((number % 2) as u8);
        let mut forgotten = 0;
        for seed in 0..10 {
            let mut table = FlowTable::new(seed);
            (0..2000).for_each(|it| table.learn(nth_flow(it), class(it), now));
            let known = |it: &u32| table.recall(nth_flow(*it), now) == Some(class(*it));
            forgotten += 2000 - (0..2000).filter(known).count();
        }
        assert!(forgotten <= 1, "{forgotten} of 20,000");
    }

    #[test]
    fn any_number_of_flows_takes_the_same_memory_and_the_silent_make_room() {
        let start = Instant::now();
        let mut table = FlowTable::new(0);
        let lively = nth_flow(0);
        table.learn(lively, ClassId(1), start);
        for round in 1..=100 {
            let now = start + Duration::from_secs(round);
            assert_eq!(table.recall(lively, now), Some(ClassId(1)), "{round}");
            // Fifty of these come to its place in all rounds together.
            let others = (0..SETS as u32 / 2).map(|it| nth_flow(round as u32 * 10_000 + it));
            others.for_each(|flow| table.learn(flow, ClassId(0), now));
        }
        assert_eq!(table.sets.len(), SETS);
        assert_eq!(size_of::<Set>(), 64, "one cache line");
    }

    /// Whoever knows where they lie could have one forgotten for another.
    #[test]
    fn where_a_flow_and_a_datagram_lie_depends_on_the_seed() {
        let now = Instant::now();
        let place = |seed| {
            let packet = udp();
            let mut flows = FlowTable::new(seed);
            let flow = FlowKey::of(&IpPacket::parse(&packet).unwrap());
            flows.learn(flow, ClassId(1), now);
            let mut datagrams = FragmentTable::new(seed);
            class(&mut datagrams, &fragment(7, 0, true), now);
            let datagram = datagrams.slots.iter().position(Option::is_some);
            let has_one = |set: &Set| set.0.iter().any(|it| it.class.is_some());
            (flows.sets.iter().position(has_one), datagram)
        };
        let (one, other) = (place(1), place(2));
        assert!(one.0 != other.0 && one.1 != other.1, "{one:?} {other:?}");
    }

    /// A fragment of 8 bytes of datagram `id`, the first of which begins with the ports of [`udp`].
    fn fragment(id: u16, offset: u16, more: bool) -> [u8; 28] {
        let mut packet = udp();
        packet[4..6].copy_from_slice(&id.to_be_bytes());
        let field = offset | u16::from(more) << 13;
        packet[6..8].copy_from_slice(&field.to_be_bytes());
        packet
    }

    /// A fragment of a UDP datagram over IPv6.
    fn fragment_v6(id: u32, offset: u16, more: bool) -> Vec<u8> {
        let mut packet = vec![0; 48];
        packet[0] = 0x60;
        packet[5] = 16;
        packet[6..8].copy_from_slice(&[44, 64]);
        packet[23] = 1;
        packet[39] = 2;
        packet[40] = 17;
        let field = offset << 3 | u16::from(more);
        packet[42..44].copy_from_slice(&field.to_be_bytes());
        packet[44..48].copy_from_slice(&id.to_be_bytes());
        packet.extend(&udp()[20..]);
        packet
    }

    /// By port, as far as there is one.
    fn by_port() -> Classifier {
        let voice = Rule {
            port: Some(5060..=5060),
            ..Rule::default()
        };
        Classifier::new(vec![(voice, ClassId(1))], ClassId(0))
    }

    fn class(table: &mut FragmentTable, packet: &[u8], now: Instant) -> u8 {
        let packet = IpPacket::parse(packet).unwrap();
        table
            .class(&packet, now, || by_port().classify(None, &packet, 28))
            .0
    }

    #[test]
    fn the_fragments_of_a_datagram_stay_together() {
        let now = Instant::now();
        let mut table = FragmentTable::new(0);
        for packet in [
            fragment(7, 0, true),
            fragment(7, 1, true),
            fragment(7, 2, false),
        ] {
            assert_eq!(class(&mut table, &packet, now), 1);
        }
        for (offset, more) in [(0, true), (1, true), (2, false)] {
            let packet = fragment_v6(70_000, offset, more);
            assert_eq!(class(&mut table, &packet, now), 1);
        }
        assert_eq!(
            class(&mut table, &fragment(8, 1, false), now),
            0,
            "of another"
        );
        assert_eq!(class(&mut table, &udp(), now), 1, "a whole one");
    }

    #[test]
    fn a_first_fragment_that_comes_late_follows_the_others() {
        let now = Instant::now();
        let mut table = FragmentTable::new(0);
        assert_eq!(class(&mut table, &fragment(7, 2, false), now), 0);
        assert_eq!(class(&mut table, &fragment(7, 0, true), now), 0);
        assert_eq!(class(&mut table, &fragment(7, 1, true), now), 0);
    }

    #[test]
    fn a_datagram_is_forgotten_and_its_number_used_again() {
        let now = Instant::now();
        let mut table = FragmentTable::new(0);
        assert_eq!(class(&mut table, &fragment(7, 1, false), now), 0);
        assert_eq!(class(&mut table, &fragment(7, 0, true), now + TOGETHER), 1);
        assert_eq!(
            class(&mut table, &fragment(7, 1, false), now + 3 * TOGETHER),
            0
        );
    }

    #[test]
    fn any_number_of_datagrams_takes_the_same_memory() {
        let now = Instant::now();
        let mut table = FragmentTable::new(0);
        for id in 0..u16::MAX {
            class(&mut table, &fragment(id, 0, true), now);
        }
        assert_eq!(table.slots.len(), DATAGRAMS);
    }
}
