//! What the kernel leads to a class.

use serde::{Deserialize, Serialize};

use super::{Routing, State};
use crate::netlink::{Family, PROTOCOL, Route, Rule, Selector};

/// A class to which the kernel leads packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassRoute {
    /// Below [`crate::MAX_ROUTED_CLASSES`].
    pub class: usize,
    /// Interface index of its TUN device.
    pub device: u32,
    pub only: Selector,
}

impl Routing {
    /// The rules and the table of a class: what goes into the tunnel goes by its device, but for
    /// what the main table knows better.
    pub(super) fn want_class(&self, priority: u32, class: &ClassRoute, state: &mut State) {
        let table = self.instance.class_table(class.class);
        for family in Family::BOTH {
            if class.only.is_of(family) {
                state.rules.insert(Rule {
                    only: class.only.clone(),
                    ..Rule::lookup(family, priority, table)
                });
            }
        }
        for wanted in &self.tunnel {
            let prefix = wanted.prefix.net();
            let family = Family::of(prefix.addr());
            let mut route = Route::via_device(prefix, class.device, table);
            route.metric = self.instance.metric();
            route.source = wanted.source.filter(|source| Family::of(*source) == family);
            state.routes.insert(route);
            let better = self.main.iter().filter(|way| !way.is_default());
            let better = better.filter(|way| prefix.contains(&way.destination));
            state.routes.extend(better.map(|way| Route {
                table,
                protocol: PROTOCOL,
                ..way.clone()
            }));
        }
    }
}
