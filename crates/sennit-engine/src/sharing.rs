//! How the classes of a site share its links: shares, limits and caps, and the state that decides
//! whose turn it is.
//!
//! Each end enforces what it sends: an edge upward, a hub downward. For each link there is one
//! [`Tins`], which all tunnels of the site with a path there ask before they send, and which all
//! workers of an edge have in common. The model is tc-cake(8): a class within its share goes first,
//! what it leaves is lent to the others in proportion to their shares, and the standing queue stays
//! in front of the link, where it is ours to order.
//!
//! Where nothing is configured there is no [`Sharing`], and nothing is asked.

mod bucket;
mod fare;
mod found;
mod tins;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use sennit_core::ClassId;
use sennit_packet::Bitrate;

use crate::facts::PathShare;

pub use self::found::Cause;
use self::{
    bucket::{Bucket, Clock, Lateness, Leeway, punctual_burst},
    tins::Others,
};
pub(crate) use self::{
    bucket::{Grant, Look},
    fare::{fare, heard},
    tins::Tins,
};

/// What is guaranteed to a class on every link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Of what the link carries, 1 to 100.
    Percent(u8),
    /// At any rate of the link.
    Rate(Bitrate),
}

/// What a class has sent on a link and not settled.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Bytes that no acknowledgement has settled.
    pub(crate) in_flight: u64,
    /// Those that may still stand in the link.
    pub(crate) under_way: u64,
}

/// What a class has sent on a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    /// In bytes, headers of all layers counted.
    pub(crate) bytes: u64,
    /// It was [granted](Sharing::grant). Acknowledgements, probes and reports leave without.
    pub(crate) granted: bool,
}

/// What the path of a class on a link heard of it since it was asked last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrips {
    /// The path's own.
    pub(crate) least: Duration,
    /// By how much they were longer than that, at least, if any were measured.
    pub(crate) delay: Option<Duration>,
    /// How late the last acknowledgements came. It is in none of the above.
    pub(crate) back: Duration,
}

/// What a class may have of the links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// What is guaranteed to it; without one it has an equal part of what the shares leave.
    pub share: Option<Share>,
    /// What it may send on all links together.
    pub limit: Option<Bitrate>,
}

/// What the config says of how links are shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// All classes of the site, also those that say nothing.
    pub classes: BTreeMap<ClassId, Terms>,
    /// Their names, for people.
    pub names: BTreeMap<ClassId, String>,
    /// What the edge sends on a link at most, by its name.
    pub up: BTreeMap<String, Bitrate>,
    /// What the hub sends on it at most.
    pub down: BTreeMap<String, Bitrate>,
    /// What a hub sends to the site on all links together.
    pub total: Option<Bitrate>,
    /// Links are shared although nothing may be said of them: somebody asks what they carry.
    pub asked: bool,
}

impl Plan {
    /// Whether there is anything to enforce.
    pub fn is_empty(&self) -> bool {
        let says_nothing = |terms: &Terms| *terms == Terms::default();
        self.classes.values().all(says_nothing)
            && self.up.is_empty()
            && self.down.is_empty()
            && self.total.is_none()
            && !self.asked
    }
}

/// Names of links for which state is kept although nobody uses it.
const MOST_NAMES: usize = 64;

/// A plan at work, for what one end sends: all its workers have it in common.
#[derive(Debug)]
pub struct Sharing {
    clock: Clock,
    plan: Plan,
    /// Caps of the direction that this end sends.
    caps: BTreeMap<String, Bitrate>,
    links: Mutex<BTreeMap<String, Arc<Tins>>>,
    limits: BTreeMap<ClassId, Limit>,
    /// All links together, if there is a bound on that.
    total: Option<Tins>,
    lateness: Lateness,
}

#[derive(Debug)]
struct Limit {
    /// In bytes per second.
    rate: u64,
    bucket: Bucket,
}

impl Sharing {
    /// What an edge sends, with what was found out `before` under another plan; nothing if the plan
    /// says nothing.
    pub fn upward(plan: Plan, before: Option<&Arc<Self>>, now: Instant) -> Option<Arc<Self>> {
        if plan.is_empty() {
            return None;
        }
        let caps = plan.up.clone();
        let sharing = Self::new(plan, caps, now);
        if let Some(before) = before {
            sharing.inherit(before);
        }
        Some(Arc::new(sharing))
    }

    /// What a hub sends to a site; nothing if the plan says nothing.
    pub(crate) fn downward(plan: Plan, now: Instant) -> Option<Arc<Self>> {
        let caps = plan.down.clone();
        (!plan.is_empty()).then(|| Arc::new(Self::new(plan, caps, now)))
    }

    fn new(plan: Plan, caps: BTreeMap<String, Bitrate>, now: Instant) -> Self {
        let clock = Clock::new(now);
        let limits = plan.classes.iter().filter_map(|(&class, terms)| {
            let limit = Limit {
                rate: terms.limit?.as_bytes_per_second(),
                bucket: Bucket::default(),
            };
            Some((class, limit))
        });
        let total = plan.total.map(|rate| {
            let tins = Tins::new(clock, &plan.classes, Some(rate));
            plan.classes.keys().for_each(|&class| tins.enter(class));
            tins
        });
        Self {
            clock,
            limits: limits.collect(),
            total,
            links: Mutex::default(),
            caps,
            lateness: Lateness::default(),
            plan,
        }
    }

    /// What it is made from.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The state of a link. Only looking for it takes a lock.
    pub(crate) fn link(&self, name: &str) -> Arc<Tins> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tins) = links.get(name) {
            return Arc::clone(tins);
        }
        // A peer names its links as it likes, and as often.
        if links.len() >= MOST_NAMES {
            links.retain(|_, tins| Arc::strong_count(tins) > 1);
        }
        let cap = self.caps.get(name).copied();
        let tins = Arc::new(Tins::new(self.clock, &self.plan.classes, cap));
        links.insert(name.to_owned(), Arc::clone(&tins));
        tins
    }

    /// Goes on where another was: with what is spent, and with what it found out about the rates of
    /// the links.
    pub(crate) fn inherit(&self, before: &Self) {
        let clocks = (before.clock, self.clock);
        self.lateness
            .inherit(&before.lateness, before.clock, self.clock);
        for (class, Limit { rate, bucket }) in &self.limits {
            if let Some(known) = before.limits.get(class) {
                bucket.inherit(&known.bucket, punctual_burst(*rate), clocks);
            }
        }
        if let (Some(total), Some(known)) = (&self.total, &before.total) {
            total.inherit(known);
        }
        let known = before.links.lock().unwrap_or_else(PoisonError::into_inner);
        let used = known.iter().filter(|(_, tins)| Arc::strong_count(tins) > 1);
        for (name, tins) in used {
            self.link(name).inherit(tins);
        }
    }

    /// How a class fares on a link.
    pub(crate) fn describe(&self, tins: &Tins, class: ClassId, now: Option<Instant>) -> PathShare {
        let (share, others) = tins.describe(class, now);
        let name = |(class, rate)| {
            (
                self.plan.names.get(&class).cloned().unwrap_or_default(),
                rate,
            )
        };
        PathShare {
            others: others.into_iter().map(name).collect(),
            ..share
        }
    }

    /// What a class may send on a link now, of what it `look`s for. One that is held by its own
    /// limit does not wait for the link, and nobody waits for it.
    pub(crate) fn grant(&self, tins: &Tins, class: ClassId, look: Look, now: Instant) -> Grant {
        let at = self.clock.at(now);
        let slack = self.lateness.slack(at);
        let limited = self.limits.get(&class).map_or(Grant::ALL, |limit| {
            limit
                .bucket
                .grant(limit.rate, look, slack, (self.clock, at))
        });
        if limited.bytes < look.least {
            return limited;
        }
        let look = Look {
            wanted: look.wanted.min(limited.bytes),
            ..look
        };
        let grant = limited.and(tins.grant(class, look, slack, now));
        match &self.total {
            Some(total) if grant.bytes >= look.least => {
                let look = Look {
                    wanted: look.wanted.min(grant.bytes),
                    ..look
                };
                grant.and(total.grant(class, look, slack, now))
            }
            _ => grant,
        }
    }

    /// As [`Tins::note_path`].
    pub(crate) fn note_path(
        &self,
        tins: &Tins,
        class: ClassId,
        (load, round_trips): (Load, RoundTrips),
        now: Instant,
    ) {
        let slack = self.lateness.slack(self.clock.at(now));
        tins.note_path(class, load, round_trips, slack, now);
    }

    /// One that was `due` came only now.
    pub(crate) fn note_lateness(&self, due: Instant, now: Instant) {
        self.lateness.note(self.clock.at(due), self.clock.at(now));
    }

    /// A class that was told to wait for a link has nothing to send any more.
    pub(crate) fn release(&self, tins: &Tins, class: ClassId) {
        tins.release(class);
        if let Some(total) = &self.total {
            total.release(class);
        }
    }

    /// A class has sent something on a link. Its limit bounds what was granted to it: what nobody
    /// can hold back may take more than all of a small limit, on all links together, and would
    /// leave it nothing for good.
    pub(crate) fn spend(&self, tins: &Tins, class: ClassId, spent: Spent, now: Instant) {
        let (at, bytes) = (self.clock.at(now), spent.bytes);
        let slack = self.lateness.slack(at);
        tins.spend(class, bytes, slack, now);
        if let Some(total) = &self.total {
            total.spend(class, bytes, slack, now);
        }
        if let Some(limit) = self.limits.get(&class).filter(|_| spent.granted) {
            let least = tins.least(class);
            let leeway = Leeway { slack, least };
            limit.bucket.spend(limit.rate, bytes, leeway, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Bitrate = Bitrate::mbit(8);
    const CLASS: ClassId = ClassId(0);

    /// Bytes that a class gets within a second, whose site changes its share each millisecond.
    fn sent_under(plan: &Plan, limit: Option<Bitrate>) -> u64 {
        let start = Instant::now();
        let under = |share, now| {
            let terms = Terms {
                share: Some(Share::Percent(share)),
                limit,
            };
            let plan = Plan {
                classes: BTreeMap::from([(CLASS, terms)]),
                ..plan.clone()
            };
            Sharing::downward(plan, now).expect("it says something")
        };
        let first = under(100, start);
        let (mut at_work, mut sent) = ((first.link("dsl"), first), 0);
        for millis in 0..1000 {
            let now = start + Duration::from_millis(millis);
            let next = under(99 + (millis % 2) as u8, now);
            next.inherit(&at_work.1);
            at_work = (next.link("dsl"), next);
            at_work.0.enter(CLASS);
            let (tins, sharing) = &at_work;
            let look = Look {
                wanted: 1_000_000,
                least: 1500,
            };
            let bytes = sharing.grant(tins, CLASS, look, now).bytes;
            let bytes = bytes.min(look.wanted);
            let granted = true;
            sharing.spend(tins, CLASS, Spent { bytes, granted }, now);
            sent += bytes;
        }
        sent
    }

    #[test]
    fn a_site_that_changes_its_terms_all_the_time_gets_no_more_than_its_bounds() {
        let of_site = Plan {
            total: Some(LIMIT),
            ..Plan::default()
        };
        let of_link = Plan {
            down: BTreeMap::from([("dsl".to_owned(), LIMIT)]),
            ..Plan::default()
        };
        let all = [
            sent_under(&of_site, None),
            sent_under(&of_link, None),
            sent_under(&Plan::default(), Some(LIMIT)),
        ];
        let most = LIMIT.as_bytes_per_second();
        let fits = |sent: &u64| (most * 9 / 10..=most * 11 / 10).contains(sent);
        assert!(all.iter().all(fits), "{all:?}");
    }
}
