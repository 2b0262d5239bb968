//! What daemons have left on a host, whatever their devices are called.
//!
//! A routing rule tells the number of its instance and not the name, so this goes two ways: what is
//! named is cleaned up by name, as [`crate::cleanup`] does, and what then remains of routes and
//! rules by its number. Whatever a running daemon holds is left alone.

use std::{collections::BTreeSet, os::unix::net::UnixDatagram, path::Path};

use crate::{
    DeviceName, Error, Instance, cleanup,
    netlink::{Family, Netlink, Route, Rule},
    nft, privilege, sysctl,
};

/// What has become of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Devices of which something was here, and nothing is left.
    pub devices: Vec<DeviceName>,
    /// Those of daemons that run.
    pub running: Vec<DeviceName>,
}

/// Removes what all daemons that do not run have left behind, those with the devices `known` and
/// others. The first refusal is returned, after everything has been tried.
pub fn cleanup_all(
    known: impl IntoIterator<Item = DeviceName>,
    directory: &Path,
) -> Result<Cleaned, Error> {
    privilege::require_net_admin()?;
    let mut netlink = Netlink::open()?;
    let mut here: BTreeSet<DeviceName> = nft::devices().into_iter().collect();
    here.extend(sysctl::devices(directory)?);
    // TUN devices that somebody has made before us.
    let marked = netlink.names_with_our_addresses()?.into_iter();
    here.extend(marked.filter_map(|name| name.parse().ok()));
    let known: BTreeSet<DeviceName> = known.into_iter().collect();
    let numbers = numbers(&mut netlink)?;
    let numbered = known
        .iter()
        .filter(|it| numbers.contains(&Instance::of(it)));
    here.extend(numbered.cloned());
    let (mut cleaned, mut outcome) = (Cleaned::default(), Ok(()));
    for device in known.union(&here) {
        match cleanup(device, directory) {
            Ok(()) if !here.contains(device) => {}
            Ok(()) => cleaned.devices.push(device.clone()),
            Err(Error::DeviceBusy(_)) => cleaned.running.push(device.clone()),
            // What has its numbers is another daemon's, which runs.
            Err(Error::InstanceTaken(_)) => {}
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    outcome.and(remove_nameless(&mut netlink)).map(|()| cleaned)
}

/// How many routes and routing rules of a device's instance are on this host.
pub fn count_left(device: &DeviceName) -> Result<(usize, usize), Error> {
    let mut netlink = Netlink::open()?;
    let wanted = Some(Instance::of(device));
    let (mut routes, mut rules) = (0, 0);
    for family in Family::BOTH {
        let ours = netlink.our_routes(family)?;
        routes += ours
            .iter()
            .filter(|it| instance_of_route(it) == wanted)
            .count();
        let ours = netlink.rules(family)?;
        rules += ours
            .iter()
            .filter(|it| instance_of_rule(it) == wanted)
            .count();
    }
    Ok((routes, rules))
}

/// The instances that have routes or rules.
fn numbers(netlink: &mut Netlink) -> Result<Vec<Instance>, Error> {
    let mut numbers = Vec::new();
    for family in Family::BOTH {
        numbers.extend(netlink.rules(family)?.iter().filter_map(instance_of_rule));
        numbers.extend(
            netlink
                .our_routes(family)?
                .iter()
                .filter_map(instance_of_route),
        );
    }
    Ok(numbers)
}

/// Removes routes and rules by the numbers of their instances.
fn remove_nameless(netlink: &mut Netlink) -> Result<(), Error> {
    let mut outcome = Ok(());
    for family in Family::BOTH {
        for rule in netlink.rules(family)? {
            if let Some(_held) = hold(instance_of_rule(&rule)) {
                outcome = outcome.and(netlink.delete_rule(&rule));
            }
        }
        for route in netlink.our_routes(family)? {
            if let Some(_held) = hold(instance_of_route(&route)) {
                outcome = outcome.and(netlink.delete_route(&route));
            }
        }
    }
    outcome
}

/// Keeps a daemon from starting meanwhile; nothing if one runs.
fn hold(instance: Option<Instance>) -> Option<UnixDatagram> {
    instance?.hold()
}

fn instance_of_rule(rule: &Rule) -> Option<Instance> {
    let by_priority = || Instance::of_priority(rule.priority);
    let instance = Instance::of_table(rule.table).or_else(by_priority);
    instance.filter(|_| rule.is_ours())
}

fn instance_of_route(route: &Route) -> Option<Instance> {
    Instance::of_table(route.table).or_else(|| Instance::of_metric(route.metric))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{PROTOCOL, Selector, TABLE_MAIN};

    #[test]
    fn all_that_an_instance_adds_tells_its_number_and_nothing_else_does() {
        let device: DeviceName = "wan0".parse().unwrap();
        let (instance, priorities) = (Instance::of(&device), Instance::of(&device).priorities());
        let table = instance.tunnel_table();
        let everything = Family::V6.default_prefix();
        let rule = |priority, table| Rule::lookup(Family::V6, priority, table);
        let rules = [
            rule(priorities.main, TABLE_MAIN),
            rule(priorities.tunnel, table),
            rule(priorities.from_link, instance.link_mark(3).unwrap()),
            rule(priorities.class, instance.class_table(2)),
            Rule {
                only: Selector::marked(table + 1),
                ..rule(priorities.link, table + 1)
            },
        ];
        for rule in &rules {
            assert_eq!(instance_of_rule(rule), Some(instance), "{rule}");
            let other = Rule {
                protocol: PROTOCOL + 1,
                ..rule.clone()
            };
            assert_eq!(instance_of_rule(&other), None, "{rule}");
        }
        let routes = [
            Route::unreachable(everything, TABLE_MAIN, instance.block_metric()),
            Route::unreachable(everything, table, 7),
            Route::via_device(everything, 1, instance.hub_table()),
            Route {
                metric: instance.metric(),
                ..Route::via_device(everything, 1, TABLE_MAIN)
            },
        ];
        for route in &routes {
            assert_eq!(instance_of_route(route), Some(instance), "{route}");
        }
        let plain = Route::via_device(everything, 1, TABLE_MAIN);
        assert_eq!(instance_of_route(&plain), None);
        assert_eq!(instance_of_rule(&rule(32_766, TABLE_MAIN)), None);
    }
}
