//! In what order links are used: by tier, cost, and what is left of their caps.

use std::{collections::BTreeSet, time::Instant};

use sennit_engine::Edge;

use super::{Link, Links};
use crate::status;

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

    /// Puts links in the order in which they are used: those within their caps first, then by
    /// tier, then by cost.
    pub(super) fn rank(&mut self, edge: &mut Edge, now: Instant) {
        for index in self.order() {
            if let Some(link) = &self.links[index] {
                edge.handle_link(link.update(index), now);
            }
        }
    }

    /// Gives links their ranks; the numbers of those that got another one.
    pub(super) fn order(&mut self) -> Vec<usize> {
        let mut changed = Vec::new();
        let over = std::mem::take(&mut self.over);
        let place = |link: &Link| {
            let config = &link.config;
            (over.contains(&config.name), config.tier, config.cost)
        };
        let places: BTreeSet<(bool, u8, u8)> = self.all().map(|(_, link)| place(link)).collect();
        // Where neither matters, tiers are as they were written.
        let plain = places.iter().all(|&(over, _, cost)| !over && cost == 0);
        for (index, link) in self.all_mut() {
            let own = place(link);
            let before = places.iter().take_while(|&&it| it < own).count();
            let rank = u8::try_from(before + 1).unwrap_or(u8::MAX);
            let rank = if plain { link.config.tier } else { rank };
            if std::mem::replace(&mut link.rank, rank) != rank {
                changed.push(index);
            }
        }
        self.over = over;
        changed
    }

    /// What an operator should know of caps.
    pub(in crate::daemon::edge) fn notes(&self) -> Vec<String> {
        let over = self
            .all()
            .filter(|(_, it)| self.over.contains(&it.config.name));
        over.map(|(_, link)| {
            let cap = status::bytes(link.config.cap.unwrap_or_default());
            let name = &link.config.name;
            format!("{name} has used up its cap of {cap}: it is in reserve behind all others")
        })
        .collect()
    }
}
