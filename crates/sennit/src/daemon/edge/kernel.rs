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
        Some(rules.flat_map(selectors).map(move |only| ClassRoute {
            class: id.0.into(),
            device,
            only,
        }))
    });
    own.flatten().collect()
}

/// A routing rule looks at one of the ports: of a rule for either there are two.
fn selectors(rule: &Match) -> Vec<Selector> {
    let Some(either) = rule.port else {
        return vec![selector(rule)];
    };
    let both = |own: Option<PortRange>| match own {
        None => Some(either),
        Some(own) => own.both(either),
    };
    let by_source = both(rule.source_port).map(|port| Match {
        source_port: Some(port),
        ..rule.clone()
    });
    let by_destination = both(rule.destination_port).map(|port| Match {
        destination_port: Some(port),
        ..rule.clone()
    });
    let rules = [by_source, by_destination].into_iter().flatten();
    rules.map(|rule| selector(&rule)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_for_either_port_is_two_for_the_kernel() {
        let ports = |first, last| Some(PortRange { first, last });
        let told = |rule: &Match| {
            let selectors = selectors(rule).into_iter();
            let ports = selectors.map(|it| (it.source_ports, it.destination_ports));
            ports.collect::<Vec<_>>()
        };
        let either = Match {
            port: ports(5060, 5070),
            ..Match::default()
        };
        let calls = Some((5060, 5070));
        assert_eq!(told(&either), [(calls, None), (None, calls)]);
        let narrow = Match {
            source_port: ports(5065, 6000),
            ..either.clone()
        };
        let (part, all) = (Some((5065, 5070)), Some((5065, 6000)));
        assert_eq!(told(&narrow), [(part, None), (all, calls)]);
        let elsewhere = Match {
            source_port: ports(9, 9),
            ..either
        };
        assert_eq!(told(&elsewhere), [(Some((9, 9)), calls)]);
    }
}
