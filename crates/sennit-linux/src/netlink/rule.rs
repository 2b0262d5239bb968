//! Routing rules as messages: which packets look into which table, by rising priority number.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;
use netlink_packet_route::{
    AddressFamily,
    rule::{RuleAction, RuleAttribute, RuleMessage},
};

use super::{Family, PROTOCOL};

/// A rule that sends packets to a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    pub family: Family,
    /// Lower numbers are asked first.
    pub priority: u32,
    pub table: u32,
    /// Only packets with exactly this mark.
    pub mark: Option<u32>,
    /// Only packets from this prefix.
    pub from: Option<IpNet>,
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
            mark: None,
            from: None,
            suppress_prefix_len: None,
            protocol: PROTOCOL,
        }
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
        let attributes = &mut message.attributes;
        attributes.push(RuleAttribute::Priority(self.priority));
        attributes.push(RuleAttribute::Table(self.table));
        attributes.push(RuleAttribute::Protocol(self.protocol.into()));
        if let Some(mark) = self.mark {
            attributes.push(RuleAttribute::FwMark(mark));
            attributes.push(RuleAttribute::FwMask(u32::MAX));
        }
        if let Some(from) = self.from {
            message.header.src_len = from.prefix_len();
            attributes.push(RuleAttribute::Source(from.network()));
        }
        attributes.extend(
            self.suppress_prefix_len
                .map(RuleAttribute::SuppressPrefixLen),
        );
        message
    }

    pub(super) fn from_message(message: &RuleMessage) -> Self {
        let family = match message.header.family {
            AddressFamily::Inet6 => Family::V6,
            _ => Family::V4,
        };
        let mut rule = Self::lookup(family, 0, message.header.table.into());
        rule.protocol = 0;
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::Priority(priority) => rule.priority = *priority,
                RuleAttribute::Table(table) => rule.table = *table,
                RuleAttribute::Protocol(protocol) => rule.protocol = (*protocol).into(),
                RuleAttribute::FwMark(mark) => rule.mark = Some(*mark),
                RuleAttribute::Source(address) => {
                    rule.from = source(*address, message.header.src_len);
                }
                // The kernel says -1 when there is none.
                RuleAttribute::SuppressPrefixLen(len) if *len != u32::MAX => {
                    rule.suppress_prefix_len = Some(*len);
                }
                _ => {}
            }
        }
        rule
    }
}

fn source(address: IpAddr, len: u8) -> Option<IpNet> {
    IpNet::new(address, len).ok()
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.priority)?;
        if let Some(from) = self.from {
            write!(f, " from {from}")?;
        }
        if let Some(mark) = self.mark {
            write!(f, " mark {mark:#x}")?;
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
                mark: Some(0x5300_0001),
                ..plain.clone()
            },
            Rule {
                from: Some("192.0.2.7/32".parse().unwrap()),
                ..plain.clone()
            },
            Rule {
                family: Family::V6,
                from: Some("2001:db8::7/128".parse().unwrap()),
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
