//! A rule as the engine looks at it.

use sennit_core::Rule;
use sennit_packet::{Prefix, Protocol};

use super::{Match, PortRange};
use crate::config;

impl Match {
    /// All that a packet says itself.
    pub fn rule(&self) -> Rule {
        let ports = |range: Option<PortRange>| range.map(|range| range.first..=range.last);
        let prefix = |net: config::Prefix| Prefix::around(net.network(), net.prefix_len());
        Rule {
            protocol: self.protocol.map(Protocol),
            dscp: self.dscp,
            source: self.source.map(prefix),
            destination: self.destination.map(prefix),
            port: ports(self.port),
            source_port: ports(self.source_port),
            destination_port: ports(self.destination_port),
            size: ports(self.size),
        }
    }
}
