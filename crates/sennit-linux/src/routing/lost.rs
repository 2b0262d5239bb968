//! What others have taken away of what was added.

use std::{collections::BTreeSet, mem, ops::AddAssign};

use serde::{Deserialize, Serialize};

use super::{Routing, State};
use crate::{
    Error,
    netlink::{Route, Rule},
};

/// How much of ours was missing on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    pub addresses: u64,
    pub routes: u64,
    pub rules: u64,
}

impl Lost {
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl AddAssign for Lost {
    fn add_assign(&mut self, other: Self) {
        self.addresses += other.addresses;
        self.routes += other.routes;
        self.rules += other.rules;
    }
}

impl Routing {
    /// Puts back what others have taken away, and follows what they have changed in the main table.
    /// Links are followed by themselves ([`Self::set_link`]).
    pub(crate) fn restore(&mut self) -> Result<(), Error> {
        if self.tunnel.is_empty() && self.links.is_empty() && self.blocked.is_empty() {
            return Ok(());
        }
        let links: BTreeSet<u32> = self.links.keys().copied().collect();
        self.apply(|changed| !links.contains(&changed))
    }

    /// What was found missing since this was asked last, whichever change has found it.
    pub(crate) fn take_lost(&mut self) -> Lost {
        mem::take(&mut self.lost)
    }

    /// Counts what was here after the last change, is still wanted, and is not here now. Routes out
    /// of a link go with its interface, and copies of others' routes with these.
    pub(super) fn count_lost(&mut self, wanted: &State, present: &State) {
        let is_ours = |route: &&Route| route.unreachable || self.devices.contains(&route.device);
        let is_lost =
            |route: &&Route| wanted.routes.contains(*route) && !present.routes.contains(*route);
        let routes = self.held.routes.iter().filter(is_ours).filter(is_lost);
        let is_lost = |rule: &&Rule| wanted.rules.contains(*rule) && !present.rules.contains(*rule);
        let rules = self.held.rules.iter().filter(is_lost);
        self.lost += Lost {
            addresses: 0,
            routes: routes.count() as u64,
            rules: rules.count() as u64,
        };
    }
}
