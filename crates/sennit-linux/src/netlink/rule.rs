//! Routing rules as messages: which packets look into which table, by rising priority number.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;
use netlink_packet_route::{
    AddressFamily,
    rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage, RulePortRange, RuleUidRange},
};

use serde::{Deserialize, Serialize};

use super::{Family, PROTOCOL};

/// What only the kernel knows of a packet, or looks at before it routes it; all of it must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Selector {
    /// The mark, and which of its bits count.
    pub mark: Option<(u32, u32)>,
    /// The interface that it came in by.
    pub incoming: Option<String>,
    /// Who sends it from this host, from the first to the last.
    pub uids: Option<(u32, u32)>,
    /// IP protocol number.
    pub protocol: Option<u8>,
    pub source: Option<IpNet>,
    pub destination: Option<IpNet>,
    /// From the first to the last.
    pub source_ports: Option<(u16, u16)>,
    pub destination_ports: Option<(u16, u16)>,
}

impl Selector {
    /// Whether packets of a family can meet it.
    pub fn is_of(&self, family: Family) -> bool {
        let nets = [self.source, self.destination];
        let mut nets = nets.into_iter().flatten();
        nets.all(|net| Family::of(net.addr()) == family)
    }

    fn write(&self, message: &mut RuleMessage) {
        let attributes = &mut message.attributes;
        if let Some((mark, mask)) = self.mark {
            attributes.push(RuleAttribute::FwMark(mark));
            attributes.push(RuleAttribute::FwMask(mask));
        }
        let name = self.incoming.clone();
        attributes.extend(name.map(RuleAttribute::Iifname));
        let uids = self.uids.map(|(start, end)| RuleUidRange { start, end });
        attributes.extend(uids.map(RuleAttribute::UidRange));
        let protocol = self.protocol.map(|it| RuleAttribute::IpProtocol(it.into()));
        attributes.extend(protocol);
        let ports = |(start, end)| RulePortRange { start, end };
        let source = self.source_ports.map(ports);
        attributes.extend(source.map(RuleAttribute::SourcePortRange));
        let destination = self.destination_ports.map(ports);
        attributes.extend(destination.map(RuleAttribute::DestinationPortRange));
        if let Some(source) = self.source {
            message.header.src_len = source.prefix_len();
            attributes.push(RuleAttribute::Source(source.network()));
        }
        if let Some(destination) = self.destination {
            message.header.dst_len = destination.prefix_len();
            attributes.push(RuleAttribute::Destination(destination.network()));
        }
    }

    fn read(message: &RuleMessage) -> Self {
        let mut selector = Self::default();
        let mut mask = u32::MAX;
        let header = &message.header;
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::FwMark(mark) => selector.mark = Some((*mark, u32::MAX)),
                RuleAttribute::FwMask(bits) => mask = *bits,
                RuleAttribute::Iifname(name) => selector.incoming = Some(name.clone()),
                RuleAttribute::UidRange(range) => selector.uids = Some((range.start, range.end)),
                RuleAttribute::IpProtocol(it) => selector.protocol = Some(i32::from(*it) as u8),
                RuleAttribute::SourcePortRange(it) => {
                    selector.source_ports = Some((it.start, it.end));
                }
                RuleAttribute::DestinationPortRange(it) => {
                    selector.destination_ports = Some((it.start, it.end));
                }
                RuleAttribute::Source(net) => selector.source = prefix(*net, header.src_len),
                RuleAttribute::Destination(net) => {
                    selector.destination = prefix(*net, header.dst_len);
                }
                _ => {}
            }
        }
        // The kernel tells the mask of rules without a mark too.
        selector.mark = selector.mark.map(|(mark, _)| (mark, mask));
        selector
    }

    /// Only packets with exactly this mark.
    pub fn marked(mark: u32) -> Self {
        Self {
            mark: Some((mark, u32::MAX)),
            ..Self::default()
        }
    }

    /// Only packets from this address.
    pub fn from(address: IpAddr) -> Self {
        Self {
            source: Some(address.into()),
            ..Self::default()
        }
    }
}

/// A rule that sends packets to a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    pub family: Family,
    /// Lower numbers are asked first.
    pub priority: u32,
    pub table: u32,
    /// Which packets.
    pub only: Selector,
    /// All packets but those.
    pub inverted: bool,
    /// Somebody else's rule has conditions that are not in `only`.
    pub has_more: bool,
    /// Ignore what the table finds with a prefix of this length or less.
    pub suppress_prefix_len: Option<u32>,
    /// Who added it; [`PROTOCOL`] if we did.
    pub protocol: u8,
}

impl Rule {
    /// A rule of ours that sends everything to `table`.
    pub fn lookup(family: Family, priority: u32, table: u32) -> Self {
        Self {
            family,
            priority,
            table,
            only: Selector::default(),
            inverted: false,
            has_more: false,
            suppress_prefix_len: None,
            protocol: PROTOCOL,
        }
    }

    /// Whether most packets meet it: it has no condition, or takes all but those that meet one.
    pub fn is_for_most(&self) -> bool {
        self.inverted || !self.has_more && self.only == Selector::default()
    }

    /// Whether it carries our mark.
    pub fn is_ours(&self) -> bool {
        self.protocol == PROTOCOL
    }

    pub(super) fn query(family: Family) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = family.into();
        message
    }

    pub(super) fn to_message(&self) -> RuleMessage {
        let mut message = Self::query(self.family);
        message.header.action = RuleAction::ToTable;
        message.header.flags.set(RuleFlags::Invert, self.inverted);
        let attributes = &mut message.attributes;
        attributes.push(RuleAttribute::Priority(self.priority));
        attributes.push(RuleAttribute::Table(self.table));
        attributes.push(RuleAttribute::Protocol(self.protocol.into()));
        attributes.extend(
            self.suppress_prefix_len
                .map(RuleAttribute::SuppressPrefixLen),
        );
        self.only.write(&mut message);
        message
    }

    pub(super) fn from_message(message: &RuleMessage) -> Self {
        let family = match message.header.family {
            AddressFamily::Inet6 => Family::V6,
            _ => Family::V4,
        };
        let mut rule = Self::lookup(family, 0, message.header.table.into());
        rule.protocol = 0;
        rule.only = Selector::read(message);
        rule.inverted = message.header.flags.contains(RuleFlags::Invert);
        rule.has_more = message.header.tos != 0;
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::Priority(priority) => rule.priority = *priority,
                RuleAttribute::Table(table) => rule.table = *table,
                RuleAttribute::Protocol(protocol) => rule.protocol = (*protocol).into(),
                // The kernel says -1 when there is none.
                RuleAttribute::SuppressPrefixLen(len) if *len != u32::MAX => {
                    rule.suppress_prefix_len = Some(*len);
                }
                RuleAttribute::Oifname(_)
                | RuleAttribute::TunId(_)
                | RuleAttribute::L3MDev(true) => rule.has_more = true,
                _ => {}
            }
        }
        rule
    }
}

fn prefix(address: IpAddr, len: u8) -> Option<IpNet> {
    IpNet::new(address, len).ok()
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.priority)?;
        if let Some(from) = self.only.source {
            write!(f, " from {from}")?;
        }
        match self.only.mark {
            Some((mark, u32::MAX)) => write!(f, " mark {mark:#x}")?,
            Some((mark, mask)) => write!(f, " mark {mark:#x}/{mask:#x}")?,
            None => {}
        }
        if let Some(name) = &self.only.incoming {
            write!(f, " in {name}")?;
        }
        write!(f, " lookup table {}", self.table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_the_way_through_a_message() {
        let plain = Rule::lookup(Family::V4, 10_000, 0x5300_0000);
        let rules = [
            Rule {
                only: Selector::marked(0x5300_0001),
                ..plain.clone()
            },
            Rule {
                only: Selector::from([192, 0, 2, 7].into()),
                ..plain.clone()
            },
            Rule {
                family: Family::V6,
                only: Selector::from("2001:db8::7".parse().unwrap()),
                ..plain.clone()
            },
            Rule {
                only: Selector {
                    mark: Some((0x10, 0xff)),
                    incoming: Some("eth1.20".into()),
                    uids: Some((1000, 1003)),
                    protocol: Some(17),
                    source: Some("192.168.8.0/24".parse().unwrap()),
                    destination: Some("10.9.0.0/16".parse().unwrap()),
                    source_ports: Some((5060, 5060)),
                    destination_ports: Some((8000, 8999)),
                },
                ..plain.clone()
            },
            Rule {
                only: Selector::marked(0xca6c),
                inverted: true,
                ..plain.clone()
            },
            Rule {
                table: 254,
                suppress_prefix_len: Some(0),
                ..plain.clone()
            },
            plain,
        ];
        for rule in rules {
            assert_eq!(Rule::from_message(&rule.to_message()), rule);
        }
    }
}
