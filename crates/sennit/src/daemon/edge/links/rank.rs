//! In what order links are used: by tier, cost, what is left of their caps, and which of them help.

use std::{collections::BTreeSet, time::Instant};

use sennit_engine::Edge;

use super::{Link, Links};
use crate::{
    daemon::why::{Standing, Standings},
    status,
};

impl Link {
    fn works(&self) -> bool {
        self.complaint.is_none() && self.off().is_none()
    }
}

impl Links {
    /// Others than before have used up their caps.
    pub(in crate::daemon::edge) fn set_over(
        &mut self,
        over: &BTreeSet<String>,
        edge: &mut Edge,
        now: Instant,
    ) {
        self.over.clone_from(over);
        self.rank(edge, now);
    }

    /// Others than before help those before them.
    pub(in crate::daemon::edge) fn set_helpers(
        &mut self,
        helpers: &BTreeSet<String>,
        edge: &mut Edge,
        now: Instant,
    ) {
        self.helpers.clone_from(helpers);
        self.rank(edge, now);
    }

    /// Puts links in the order in which they are used: those within their caps first, then by
    /// tier, then by cost. One that helps is beside the first that work without it.
    pub(super) fn rank(&mut self, edge: &mut Edge, now: Instant) {
        for index in self.order() {
            if let Some(link) = &self.links[index] {
                edge.handle_link(link.update(index), now);
            }
        }
    }

    /// Gives links their ranks; the numbers of those that got another one.
    pub(super) fn order(&mut self) -> Vec<usize> {
        let others = self.all().filter(|(_, it)| !self.helps(it) && it.works());
        let first = others.map(|(_, it)| self.place(it)).min();
        let places: BTreeSet<Standing> = self.all().map(|(_, it)| self.place(it)).collect();
        // Where neither matters, tiers are as they were written.
        let plain = places.iter().all(|it| !it.over && it.cost == 0);
        let rank = |(_, link): (usize, &Link)| {
            let own = match first {
                Some(first) if self.helps(link) => first.min(self.place(link)),
                _ => self.place(link),
            };
            let before = places.iter().take_while(|&&it| it < own).count();
            let rank = if plain {
                own.tier
            } else {
                u8::try_from(before + 1).unwrap_or(u8::MAX)
            };
            (rank, own)
        };
        let ranks: Vec<(u8, Standing)> = self.all().map(rank).collect();
        let ranked = self.all_mut().zip(ranks);
        ranked
            .filter_map(|((index, link), (rank, standing))| {
                link.standing = standing;
                (std::mem::replace(&mut link.rank, rank) != rank).then_some(index)
            })
            .collect()
    }

    /// What made the ranks of links, by their names.
    pub(in crate::daemon::edge) fn standings(&self) -> Standings {
        self.all()
            .map(|(_, link)| (link.config.name.clone(), link.standing))
            .collect()
    }

    fn place(&self, link: &Link) -> Standing {
        let config = &link.config;
        Standing {
            over: self.over.contains(&config.name),
            tier: config.tier,
            cost: config.cost,
        }
    }

    fn helps(&self, link: &Link) -> bool {
        let name = &link.config.name;
        self.helpers.contains(name) && !self.over.contains(name)
    }

    /// What an operator should know of caps, and of links that help.
    pub(in crate::daemon::edge) fn notes(&self) -> Vec<String> {
        let over = self
            .all()
            .filter(|(_, it)| self.over.contains(&it.config.name));
        let over = over.map(|(_, link)| {
            let cap = status::bytes(link.config.cap.unwrap_or_default());
            let name = &link.config.name;
            format!("{name} has used up its cap of {cap}: it is in reserve behind all others")
        });
        let helps = |name: &String| format!("{name} helps: the links before it are full");
        over.chain(self.helpers.difference(&self.over).map(helps))
            .collect()
    }
}
