//! From rules on what only the kernel knows to routes that lead to the devices of classes.

use sennit_core::ClassId;
use sennit_linux::{ClassRoute, netlink::Selector};

use super::running::Running;
use crate::config::{Match, PortRange};

/// What the kernel leads to these devices of classes, in the order of the config.
pub(super) fn routes(running: &Running, devices: &[(ClassId, u32)]) -> Vec<ClassRoute> {
    let device = |class| devices.iter().find(|(own, _)| *own == class);
    let own = running.numbered().filter_map(|(id, class)| {
        let &(_, device) = device(id)?;
        let rules = class.matches.iter().filter(|rule| rule.is_kernel());
        Some(rules.map(move |rule| ClassRoute {
            class: id.0.into(),
            device,
            only: selector(rule),
        }))
    });
    own.flatten().collect()
}

fn selector(rule: &Match) -> Selector {
    let ports = |range: Option<PortRange>| range.map(|it| (it.first, it.last));
    // What is forwarded has, by IPv4, the user 0 for the kernel.
    let local = rule.kernel.uids.map(|_| "lo".to_owned());
    Selector {
        mark: rule.kernel.mark,
        incoming: rule.kernel.incoming.clone().or(local),
        uids: rule.kernel.uids,
        protocol: rule.protocol,
        source: rule.source,
        destination: rule.destination,
        source_ports: ports(rule.source_port),
        destination_ports: ports(rule.destination_port),
    }
}
