//! One edge of a lab, with the LAN behind it and the links before it.

use super::{Lab, LinkHandle};
use crate::host::{Host, Role};
use crate::plan::{Lan, numbered};

/// One edge of a running lab and what belongs to it alone.
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) index: usize,
}

impl<'a> Site<'a> {
    /// Its edge, or the host behind it; the far hosts belong to all sites.
    pub fn host(self, role: Role) -> &'a Host {
        self.lab.host_of(self.index, role)
    }

    /// Its links, in the order of the spec.
    pub fn links(self) -> impl Iterator<Item = LinkHandle<'a>> {
        let Self { lab, index } = self;
        lab.links().filter(move |link| link.site() == index)
    }

    /// Its LAN.
    pub fn lan(self) -> Lan {
        Lan::of(self.index)
    }

    /// What to call something of this site: by its name alone, or with a number if there are more.
    pub fn own(self, name: &str) -> String {
        numbered(name, self.index, self.lab.edges())
    }
}
