//! What the classes of a site want of their tunnels while these are up, and what they may have of
//! its links, as far as the hub grants it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use sennit_core::ClassId;

use super::{Hub, Stage};
use crate::{
    hello::{Hello, Wishes},
    ids::{ConnId, SiteId},
    sharing::{Plan, Sharing},
};

/// What a site says is followed this often: it costs a look at all its links and classes, and who
/// reloads a config waits for less than that.
const FOLLOWED_EVERY: Duration = Duration::from_millis(250);

/// What sites say of the tunnels that they have.
#[derive(Debug, Default)]
pub(super) struct Spoken {
    /// The sites that were followed of late.
    sites: BTreeMap<SiteId, Followed>,
}

/// A site that was followed.
#[derive(Debug)]
struct Followed {
    /// When it is again.
    next: Instant,
    /// What it said since of each tunnel; the last word counts.
    waiting: BTreeMap<ConnId, String>,
}

impl Spoken {
    /// Keeps what a site says of a tunnel until it is followed again; false if that may be now.
    fn keep(&mut self, site: &SiteId, id: ConnId, text: &str, now: Instant) -> bool {
        if let Some(followed) = self.sites.get_mut(site) {
            followed.waiting.insert(id, text.to_owned());
            return true;
        }
        self.note(site.clone(), now);
        false
    }

    /// A site is followed now.
    fn note(&mut self, site: SiteId, now: Instant) {
        let followed = Followed {
            next: now + FOLLOWED_EVERY,
            waiting: BTreeMap::new(),
        };
        self.sites.insert(site, followed);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.sites.values().map(|followed| followed.next).min()
    }

    /// A site that may be followed again, and what it has said.
    fn poll_due(&mut self, now: Instant) -> Option<(SiteId, BTreeMap<ConnId, String>)> {
        let mut all = self.sites.iter();
        let (site, _) = all.find(|(_, followed)| followed.next <= now)?;
        let site = site.clone();
        let Followed { waiting, .. } = self.sites.remove(&site)?;
        Some((site, waiting))
    }
}

impl Hub {
    /// From now on it is like the hubs that knew nothing of shares, so that tests can see what an
    /// edge does there.
    #[doc(hidden)]
    pub fn forget_shares(&mut self) {
        self.shares = false;
    }

    /// An edge says how it wants the class of a tunnel that is up to be treated.
    pub(super) fn handle_terms(&mut self, id: ConnId, text: &str, now: Instant) {
        let conn = self.node.get(id);
        let Some(Stage::Up { site, .. }) = conn.map(|conn| &conn.role.stage) else {
            return;
        };
        let site = site.clone();
        if !self.spoken.keep(&site, id, text, now) {
            self.follow(&site, &BTreeMap::from([(id, text.to_owned())]), now);
        }
    }

    /// Follows what sites have said too soon after what they had said before.
    pub(super) fn follow_spoken(&mut self, now: Instant) {
        while let Some((site, said)) = self.spoken.poll_due(now) {
            if !said.is_empty() {
                self.follow(&site, &said, now);
                self.spoken.note(site, now);
            }
        }
    }

    fn follow(&mut self, site: &SiteId, said: &BTreeMap<ConnId, String>, now: Instant) {
        let wishes = said.iter();
        let wishes: Vec<_> = wishes
            .filter_map(|(&id, text)| self.treat_as_said(id, text, now))
            .collect();
        self.share(site, wishes, now);
    }

    /// An edge wants something else for the class of a tunnel that is up: all that a request says,
    /// or, if it is an older one, how the class shares links and is marked. What it wishes of the
    /// links is left to do.
    fn treat_as_said(
        &mut self,
        id: ConnId,
        text: &str,
        now: Instant,
    ) -> Option<(ClassId, String, Wishes)> {
        let hello = Hello::decode(text).map(|hello| hello.known(self.shares));
        let conn = self.node.get_mut(id)?;
        let pipe = conn.pipe();
        let Stage::Up {
            site,
            class,
            name,
            treatment,
            ..
        } = &mut conn.role.stage
        else {
            return None;
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
        Some((class, name, wishes))
    }

    /// Shares the links of a site as it wishes for these classes, as far as this hub grants that.
    /// What the last of them says of the links counts.
    pub(super) fn share(
        &mut self,
        site: &SiteId,
        said: Vec<(ClassId, String, Wishes)>,
        now: Instant,
    ) {
        let before = self.node.links.sharing(Some(site)).cloned();
        let shares = said.iter().any(|(.., wishes)| wishes.shares);
        let mut plan = Plan {
            total: self.config.site_limit,
            ..Plan::default()
        };
        if said.is_empty() || !shares && before.is_none() && plan.total.is_none() {
            return;
        }
        if let Some(before) = &before {
            plan.classes.clone_from(&before.plan().classes);
            plan.names.clone_from(&before.plan().names);
        }
        for (class, name, wishes) in said {
            plan.names.insert(class, name);
            plan.classes.insert(class, wishes.terms);
            (plan.down, plan.asked) = (wishes.down, wishes.shares);
        }
        // A class that is gone has no share, and one without a wish has a part of the rest.
        let there: BTreeSet<ClassId> = self.sites.classes(site).collect();
        plan.classes.retain(|class, _| there.contains(class));
        for class in there {
            plan.classes.entry(class).or_default();
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

    fn share_by(&mut self, site: &SiteId, plan: Plan, before: Option<&Sharing>, now: Instant) {
        let sharing = Sharing::downward(plan, now);
        if let (Some(sharing), Some(before)) = (&sharing, before) {
            sharing.inherit(before);
        }
        self.node.links.set_sharing(Some(site), sharing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_followed_a_few_times_per_second_and_its_last_word_counts() {
        let (mut spoken, start) = (Spoken::default(), Instant::now());
        let (van, ship): (SiteId, SiteId) = ("van".into(), "ship".into());
        let [calls, bulk] = [ConnId(1), ConnId(2)];
        assert!(!spoken.keep(&van, calls, "share=1", start));
        assert!(!spoken.keep(&ship, ConnId(3), "share=1", start));
        for word in 2..100 {
            assert!(spoken.keep(&van, calls, &format!("share={word}"), start));
        }
        assert!(spoken.keep(&van, bulk, "share=7", start));
        assert!(spoken.poll_due(start).is_none());

        let due = spoken.poll_timeout().expect("a site waits");
        let said: Vec<_> = std::iter::from_fn(|| spoken.poll_due(due)).collect();

        let words = [(calls, "share=99".to_owned()), (bulk, "share=7".to_owned())];
        assert_eq!(said, [(ship, BTreeMap::new()), (van, words.into())]);
        assert!(due <= start + Duration::from_millis(500));
        assert_eq!(spoken.poll_timeout(), None);
    }
}
