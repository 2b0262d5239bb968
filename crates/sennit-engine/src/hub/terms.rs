//! What the classes of a site want of their tunnels while these are up, and what they may have of
//! its links, as far as the hub grants it.

use std::{collections::BTreeSet, time::Instant};

use sennit_core::ClassId;

use super::{Hub, Stage};
use crate::{
    hello::{Hello, Wishes},
    ids::ConnId,
    sharing::{Plan, Sharing},
};

impl Hub {
    /// From now on it is like the hubs that knew nothing of shares, so that tests can see what an
    /// edge does there.
    #[doc(hidden)]
    pub fn forget_shares(&mut self) {
        self.shares = false;
    }

    /// An edge wants something else for the class of a tunnel that is up: all that a request says,
    /// or, if it is an older one, how the class shares links and is marked.
    pub(super) fn handle_terms(&mut self, id: ConnId, text: &str, now: Instant) {
        let hello = Hello::decode(text).map(|hello| hello.known(self.shares));
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let pipe = conn.pipe();
        let Stage::Up {
            site,
            class,
            name,
            treatment,
            ..
        } = &mut conn.role.stage
        else {
            return;
        };
        let (site, class, name) = (site.clone(), *class, name.clone());
        let wanted = hello.as_ref().map(|hello| hello.treatment);
        let other = wanted.filter(|wanted| wanted != treatment);
        *treatment = other.unwrap_or(*treatment);
        let is_fallback = hello.as_ref().is_some_and(|hello| hello.fallback);
        let wishes = hello.map_or_else(|| Wishes::decode(text), |hello| hello.wishes);
        conn.dscp = wishes.dscp;
        if let Some((pipe, treatment)) = pipe.zip(other) {
            self.node.treat(pipe, treatment, now);
        }
        if is_fallback {
            self.sites.set_fallback(&site, class);
        }
        self.share(&site, (class, &name), wishes, now);
    }

    /// Shares the links of a site as it wishes, as far as this hub grants that.
    pub(super) fn share(
        &mut self,
        site: &str,
        (class, name): (ClassId, &str),
        wishes: Wishes,
        now: Instant,
    ) {
        let before = self.node.links.sharing(Some(site)).cloned();
        let mut plan = Plan {
            down: wishes.down,
            total: self.config.site_limit,
            asked: wishes.shares,
            ..Plan::default()
        };
        if let Some(before) = &before {
            plan.classes.clone_from(&before.plan().classes);
            plan.names.clone_from(&before.plan().names);
        }
        plan.names.insert(class, name.to_owned());
        plan.classes.insert(class, wishes.terms);
        // A class that is gone has no share, and one without a wish has a part of the rest.
        let there: BTreeSet<ClassId> = self.sites.classes(site).collect();
        plan.classes.retain(|class, _| there.contains(class));
        for class in there {
            plan.classes.entry(class).or_default();
        }
        if !wishes.shares && before.is_none() && plan.total.is_none() {
            return;
        }
        if before.as_ref().is_some_and(|before| *before.plan() == plan) {
            return;
        }
        self.share_by(site, plan, before.as_deref(), now);
    }

    /// Bounds what is sent to each site as the config does now; what the sites wish stays.
    pub(super) fn bound_sites(&mut self, now: Instant) {
        let total = self.config.site_limit;
        for site in self.sites.names() {
            let before = self.node.links.sharing(Some(&site)).cloned();
            let mut plan = match &before {
                Some(before) => before.plan().clone(),
                None => Plan {
                    names: self.sites.class_names(&site),
                    ..Plan::default()
                },
            };
            if plan.total == total {
                continue;
            }
            plan.total = total;
            for class in self.sites.classes(&site) {
                plan.classes.entry(class).or_default();
            }
            self.share_by(&site, plan, before.as_deref(), now);
        }
    }

    fn share_by(&mut self, site: &str, plan: Plan, before: Option<&Sharing>, now: Instant) {
        let sharing = Sharing::downward(plan, now);
        if let (Some(sharing), Some(before)) = (&sharing, before) {
            sharing.inherit(before);
        }
        self.node.links.set_sharing(Some(site), sharing);
    }
}
