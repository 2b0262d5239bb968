//! Other configs while sites run, as a user's reload brings them.
//!
//! A class is treated otherwise, another one comes, takes over a flow and goes again, links are
//! taken out or shared by other rules, the hub is at its other address, and for a while it bounds
//! what sites get, or has nothing to do with one of them. Reloads come at any time. What one loses
//! can be told in a calm only: where a site's links lose nothing, and nothing was broken, mended or
//! changed there for some time, nothing is until the [`Watch`] ends, and every packet arrives.
//! Reliable delivery owes that on links that lose packets, too.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use sennit_core::{Congestion, Delivery, Headers, Policy};
use sennit_engine::{Fec, MOST_COPIES, Treatment};
use sennit_netem::Bitrate;

use super::{
    drafts::{SiteConfig, other_plan},
    faults::Faults,
};
use crate::{Dice, World};

const SECOND: Duration = Duration::from_secs(1);
/// What is sent from so long before a reload until so long after it is lost by nothing else.
pub(super) const BEFORE: Duration = SECOND;
const AFTER: Duration = Duration::from_secs(2);
/// A calm is waited for as long, and comes in that time where nobody disturbs it.
const PATIENCE: Duration = Duration::from_secs(8);
/// A site that is revoked has no tunnel after so long, and nothing comes out of one.
const CUT_WITHIN: Duration = SECOND;
/// What was sent has so much time to arrive, lost packets of reliable delivery as well.
const ARRIVES: Duration = Duration::from_secs(3);

/// What may not be lost by a reload, which is over once all of it has had its time.
pub(super) struct Watch {
    pub(super) site: usize,
    /// When the packets that are judged were sent.
    pub(super) judged: [Instant; 2],
    /// How many of the site's flows are judged.
    pub(super) flows: usize,
    /// What was reloaded.
    pub(super) what: String,
    until: Instant,
}

/// A reload: its kind, in words, and whether nothing may be lost by it.
pub(super) struct Reload {
    pub(super) name: &'static str,
    pub(super) what: String,
    loses: bool,
}

/// When there is a reload, and of what. It has dice of its own, so that a seed gives the links the
/// same faults without it.
pub(super) struct Reloads {
    dice: Dice,
    next: Instant,
    /// The site that has the class which goes again.
    guest_at: Option<usize>,
    /// Since when the hub has not bounded its sites, if it does not.
    unbound_since: Option<Instant>,
    /// The site at which a reload waits for a calm, and until when.
    waits: Option<(usize, Instant)>,
    watch: Option<Watch>,
    revoked: Option<Revoked>,
}

/// A site with which the hub has nothing to do.
struct Revoked {
    site: usize,
    since: Instant,
    /// When it is to join anew.
    until: Instant,
}

impl Reloads {
    pub(super) fn new(seed: u64, now: Instant) -> Self {
        let mut dice = Dice::beside(seed, 5);
        let next = now + SECOND * (8 + dice.roll(20) as u32);
        Self {
            dice,
            next,
            guest_at: None,
            unbound_since: Some(now),
            waits: None,
            watch: None,
            revoked: None,
        }
    }

    /// The site that has been revoked for so long that it is cut off.
    pub(super) fn cut_off(&self, now: Instant) -> Option<usize> {
        let is_over = |it: &&Revoked| it.since + CUT_WITHIN <= now;
        self.revoked.as_ref().filter(is_over).map(|it| it.site)
    }

    /// The site that is to join anew.
    pub(super) fn to_invite(&self, now: Instant) -> Option<usize> {
        let revoked = self.revoked.as_ref().filter(|it| it.until <= now);
        revoked.map(|it| it.site)
    }

    /// It does.
    pub(super) fn invited(&mut self) {
        self.revoked = None;
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// The site at which a reload waits for a calm, and until when.
    pub(super) fn waits(&self) -> Option<(usize, Instant)> {
        self.waits
    }

    /// Whether a reload is watched.
    pub(super) fn is_watching(&self) -> bool {
        self.watch.is_some()
    }

    /// The site at which nothing is to be disturbed, because a reload waits there or is watched.
    pub(super) fn held(&self) -> Option<usize> {
        let watched = self.watch.as_ref().map(|watch| watch.site);
        watched.or(self.waits.map(|(site, _)| site))
    }

    /// Since when the hub has not bounded its sites, if it does not.
    pub(super) fn unbound_since(&self) -> Option<Instant> {
        self.unbound_since
    }

    /// The site whose turn it is of so many, unless its reload has to wait for a calm, as it does
    /// in half of all cases where one may come.
    pub(super) fn site(&mut self, sites: usize, calm: &[usize], now: Instant) -> Option<usize> {
        let any = self.dice.roll(sites as u64) as usize;
        let one = self.dice.roll(calm.len().max(1) as u64) as usize;
        let waits = self.dice.roll(2) == 0;
        let mut able = calm.iter().copied();
        let quiet = match self.guest_at {
            Some(site) => able.find(|&it| it == site),
            None => able.nth(one),
        };
        self.waits = quiet.filter(|_| waits).map(|site| (site, now + PATIENCE));
        let at_once = self.waits.is_none();
        at_once.then_some(self.guest_at.unwrap_or(any))
    }

    /// Puts the reload off: the machine stands still.
    pub(super) fn put_off(&mut self, now: Instant) {
        (self.next, self.waits) = (now + SECOND, None);
    }

    /// Reloads the config of a site, at which the world looks, or of the hub, if that runs. The
    /// site's links have these numbers among those of all sites; not all sites may share them.
    pub(super) fn reload(
        &mut self,
        site: usize,
        (links, may_share, hub_runs): (Range<usize>, bool, bool),
        config: &mut SiteConfig,
        faults: &mut Faults,
        world: &mut World,
    ) -> Reload {
        let now = world.now();
        // A class that came goes soon, and may come again before its tunnel is gone.
        let pause = [3, 8, 40][self.dice.roll(3) as usize];
        self.next = now + SECOND + SECOND * self.dice.roll(pause) as u32;
        self.waits = None;
        let changes = |name, what| Reload {
            name,
            what,
            loses: false,
        };
        if self.unbound_since.is_none() && hub_runs {
            return changes("hub", self.bound(None, world));
        }
        let before = config.clone();
        let reload = match self.dice.roll(10) {
            _ if self.guest_at.take().is_some() => {
                config.has_guest = false;
                changes("class goes", "the guest".into())
            }
            0 => return self.take_out(links.len(), faults, world),
            1 if hub_runs => {
                let bound = 60_000 + self.dice.roll(200_000);
                let bound = Some(Bitrate::bytes_per_second(bound));
                return changes("hub", self.bound(bound, world));
            }
            2 | 3 => {
                (config.has_guest, self.guest_at) = (true, Some(site));
                changes("class comes", "the guest".into())
            }
            4 if may_share => {
                config.plan = other_plan(links, &mut self.dice);
                changes("shares", format!("{:?}", config.plan))
            }
            5 => {
                config.elsewhere = !config.elsewhere;
                changes("hub moves", format!("elsewhere {}", config.elsewhere))
            }
            6 if hub_runs && self.revoked.is_none() => return self.revoke(site, faults, world),
            _ => {
                self.treat(&mut config.treatment);
                changes("class", format!("{:?}", config.treatment))
            }
        };
        config.since = now;
        config.apply(&before, world);
        reload
    }

    /// Treats a class otherwise in one way.
    fn treat(&mut self, class: &mut Treatment) {
        let dice = &mut self.dice;
        match dice.roll(7) {
            0 => class.congestion = one_of(Congestion::ALL, dice),
            1 => class.headers = one_of(Headers::ALL, dice),
            2 => {
                let code = "rs:10+2".parse().expect("it is a code");
                class.fec = one_of(&[Fec::Off, Fec::Auto, code], dice);
            }
            3 => class.copies = 2 + dice.roll(u64::from(MOST_COPIES) - 1) as u8,
            4 | 5 => class.delivery = one_of(Delivery::ALL, dice),
            _ => class.policy = one_of(Policy::ALL, dice),
        }
    }

    /// What is on its way on the link is lost with it.
    fn take_out(&mut self, links: usize, faults: &mut Faults, world: &mut World) -> Reload {
        let link = self.dice.roll(links as u64) as usize;
        let span = Duration::from_millis(100 + self.dice.roll(10_000));
        faults.take_out(link, span, world);
        Reload {
            name: "link goes",
            what: format!("link {link} for {span:?}"),
            loses: true,
        }
    }

    /// The hub revokes a site for some time, which it spends without a tunnel.
    pub(super) fn revoke(&mut self, site: usize, faults: &mut Faults, world: &mut World) -> Reload {
        let span = Duration::from_millis(100 + self.dice.roll(20_000));
        let since = world.now();
        self.revoked = Some(Revoked {
            site,
            since,
            until: since + span,
        });
        faults.revoke(world);
        Reload {
            name: "revoked",
            what: format!("for {span:?}"),
            loses: true,
        }
    }

    fn bound(&mut self, bound: Option<Bitrate>, world: &mut World) -> String {
        self.unbound_since = bound.is_none().then_some(world.now());
        world.bound_sites(bound);
        format!("sites get {bound:?}")
    }

    /// Nothing may be lost by a reload in a calm of the site: all that is `lossless`, or else what
    /// was and is delivered reliably.
    pub(super) fn watch(&mut self, site: usize, reload: &Reload, lossless: bool, now: Instant) {
        if reload.loses {
            return;
        }
        self.watch = Some(Watch {
            site,
            judged: [now - BEFORE, now + AFTER],
            flows: if lossless { usize::MAX } else { 1 },
            what: format!("{}: {}", reload.name, reload.what),
            until: now + AFTER + ARRIVES,
        });
    }

    /// The watch that is over now.
    pub(super) fn take_watch(&mut self, now: Instant) -> Option<Watch> {
        self.watch.take_if(|watch| now >= watch.until)
    }
}

fn one_of<T: Copy>(all: &[T], dice: &mut Dice) -> T {
    all[dice.roll(all.len() as u64) as usize]
}
