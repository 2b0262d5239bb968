//! What is routed to whom.
//!
//! A site gets those of the prefixes it announces that were granted to it, that take nothing from
//! the hub, and that no other site has: first come, first served, and who has something keeps it
//! while it announces it. A site that changes its mind often is listened to now and then: each
//! change costs a write to the disk and a change of the kernel's tables, and others wait meanwhile.
//!
//! A site that loses its tunnels keeps for a moment what it has, unless another wants it: most are
//! back soon and announce the same, which changes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::{Duration, Instant},
};

use sennit_packet::Prefix;

use crate::{
    config,
    daemon::hub::directory::Announced,
    lan::{self, Host, Objection},
};

/// A site may change its announcement once in this time on average.
const CHANGE_EVERY: Duration = Duration::from_secs(2);
/// A site may make this many changes of its announcement at once: it starts, loses its links and
/// returns without waiting.
const CHANGES_AT_ONCE: u32 = 4;
/// A site without a tunnel keeps its prefixes for so long: an edge that is restarted, or that lost
/// all its links for a moment, is back by then.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// Lines of the log, and events, for one change: enough to see what is wrong.
pub(super) const LOGGED: usize = 8;

/// What every site announces, and what came of it.
#[derive(Debug, Default)]
pub(super) struct Lans {
    sites: BTreeMap<String, Site>,
    /// Those that changed something and are to be listened to later.
    waiting: BTreeSet<String>,
    /// Those that say again what is decided already: their tunnels may be new, and know nothing.
    untold: BTreeSet<String>,
    /// When a site's changes are all paid for; those of the past are forgotten.
    paid: BTreeMap<String, Instant>,
    next: Option<Instant>,
    arrivals: u64,
}

#[derive(Debug, Default)]
struct Site {
    /// First come, first served.
    arrival: u64,
    announced: Announced,
    /// Until when that counts, if the site has left and has not announced anything since.
    kept_until: Option<Instant>,
    lan: Vec<Prefix>,
    refused: Vec<(Prefix, String)>,
    /// It differs from what was decided last.
    changed: bool,
}

/// What comes of one site's announcement.
#[derive(Debug, Default)]
struct Decision {
    lan: Vec<Prefix>,
    refused: Vec<(Prefix, String)>,
}

/// What has changed for one site.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct News {
    pub(super) name: String,
    pub(super) announced: Vec<Prefix>,
    /// Ranges that it announced beside those.
    pub(super) left_out: usize,
    pub(super) lan: Vec<Prefix>,
    pub(super) refused: Vec<(Prefix, String)>,
    /// What of that was not refused before, or for another reason.
    pub(super) newly_refused: Vec<(Prefix, String)>,
    /// It announces nothing any more.
    pub(super) left: bool,
}

impl Lans {
    /// Takes over what sites have `changed`, as far as they may by now; true if there is something
    /// to decide. A site that has not announced anything since it came, or has gone, is `None`.
    pub(super) fn take(
        &mut self,
        changed: BTreeSet<String>,
        announced: impl Fn(&str) -> Option<Announced>,
        now: Instant,
    ) -> bool {
        self.waiting.extend(changed);
        let due = self.sites.iter().filter(|(_, site)| site.is_due(now));
        self.waiting.extend(due.map(|(name, _)| name.clone()));
        self.next = None;
        if self.waiting.is_empty() {
            return false;
        }
        self.paid.retain(|_, at| *at > now);
        let mut taken = false;
        for name in std::mem::take(&mut self.waiting) {
            let new = announced(&name);
            let known = self.sites.get_mut(&name);
            if new.is_none()
                && let Some(site) = known
                && !site.is_due(now)
            {
                // Another that wants what it has may get it now.
                taken |= site.kept_until.is_none();
                site.kept_until.get_or_insert(now + KEPT_FOR);
                continue;
            }
            let new = new.unwrap_or_default();
            if self.announced_before(&name) == new {
                self.untold.insert(name);
                continue;
            }
            let paid = self.paid.get(&name).copied().unwrap_or(now);
            let may_from = paid.checked_sub(CHANGE_EVERY * (CHANGES_AT_ONCE - 1));
            // To give all back needs no patience: it can be done once for each announcement.
            let may_from = may_from.filter(|_| new != Announced::default());
            if let Some(at) = may_from.filter(|at| *at > now) {
                self.next = Some(self.next.map_or(at, |next| next.min(at)));
                self.waiting.insert(name);
                continue;
            }
            self.paid.insert(name.clone(), paid + CHANGE_EVERY);
            self.arrivals += 1;
            let arrival = self.arrivals;
            let site = self.sites.entry(name).or_insert_with(|| Site {
                arrival,
                ..Site::default()
            });
            site.announced = new;
            site.changed = true;
            taken = true;
        }
        taken
    }

    /// What a site that says something announced before; what it says counts from now on.
    fn announced_before(&mut self, name: &str) -> Announced {
        self.sites
            .get_mut(name)
            .map_or_else(Announced::default, |site| {
                site.kept_until = None;
                site.announced.clone()
            })
    }

    /// The next [`Self::take`] looks at this site too.
    pub(super) fn look_at(&mut self, site: &str) {
        self.waiting.insert(site.to_owned());
    }

    /// When a site that had to wait may be listened to, or one that left is to give back what it
    /// has.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let kept = self.sites.values().filter_map(|site| site.kept_until);
        kept.chain(self.next).min()
    }

    /// Decides on all that is announced; what is new.
    pub(super) fn decide(
        &mut self,
        granted: &BTreeMap<String, Vec<config::Prefix>>,
        host: &Host,
        networks: &[config::Prefix],
        outer: &[(String, BTreeSet<IpAddr>)],
    ) -> Vec<News> {
        let mut taken: Vec<(Prefix, String)> = Vec::new();
        let mut objections: BTreeMap<(&str, Prefix), Objection> = BTreeMap::new();
        let mut order: Vec<(&String, &Site)> = self.sites.iter().collect();
        order.sort_by_key(|(_, site)| site.arrival);
        // Whoever is here comes before who has left, and whoever has something keeps it.
        for (left, keeps) in [(false, true), (false, false), (true, true), (true, false)] {
            let order = order.iter();
            for (name, site) in order.filter(|(_, site)| site.kept_until.is_some() == left) {
                for prefix in &site.announced.prefixes {
                    if site.lan.contains(prefix) != keeps {
                        continue;
                    }
                    let granted = granted.get(*name).map_or(&[][..], Vec::as_slice);
                    let objection = objection(prefix, granted, host, networks)
                        .or_else(|| used_by_another(name, prefix, &taken))
                        .or_else(|| if keeps { None } else { cuts_off(prefix, outer) });
                    match objection {
                        Some(why) => drop(objections.insert((name, *prefix), why)),
                        None => taken.push((*prefix, (*name).clone())),
                    }
                }
            }
        }
        let mut decided: BTreeMap<String, Decision> = BTreeMap::new();
        for (prefix, name) in taken {
            decided.entry(name).or_default().lan.push(prefix);
        }
        for ((name, prefix), why) in objections {
            let refused = &mut decided.entry(name.to_owned()).or_default().refused;
            refused.push((prefix, why.to_string()));
        }
        let mut news = Vec::new();
        for (name, site) in &mut self.sites {
            let Decision { mut lan, refused } = decided.remove(name).unwrap_or_default();
            lan.sort_unstable();
            if !site.changed && site.lan == lan && site.refused == refused {
                continue;
            }
            news.push(site.news(name, lan.clone(), refused.clone()));
            (site.lan, site.refused, site.changed) = (lan, refused, false);
            self.untold.remove(name);
        }
        self.sites
            .retain(|_, site| site.announced != Announced::default());
        news
    }

    /// What was decided before on those that announced the same again.
    pub(super) fn take_untold(&mut self) -> Vec<News> {
        let names = std::mem::take(&mut self.untold).into_iter();
        let known = names.filter_map(|name| {
            let site = self.sites.get(&name).filter(|site| !site.changed)?;
            Some(site.news(&name, site.lan.clone(), site.refused.clone()))
        });
        known.collect()
    }

    /// The next decision is told to this site though nothing has changed.
    pub(super) fn reconsider(&mut self, site: &str) {
        if let Some(site) = self.sites.get_mut(site) {
            site.changed = true;
        }
    }

    /// What is routed to a site.
    pub(super) fn of(&self, site: &str) -> &[Prefix] {
        self.sites.get(site).map_or(&[], |site| &site.lan)
    }

    /// All that is routed to any.
    pub(super) fn all(&self) -> Vec<Prefix> {
        self.sites
            .values()
            .flat_map(|site| &site.lan)
            .copied()
            .collect()
    }
}

impl Site {
    /// It left, and has had its time.
    fn is_due(&self, now: Instant) -> bool {
        self.kept_until.is_some_and(|until| until <= now)
    }

    /// What there is to tell of the site of this name, after what was decided before.
    fn news(&self, name: &str, lan: Vec<Prefix>, refused: Vec<(Prefix, String)>) -> News {
        let new = refused.iter().filter(|it| !self.refused.contains(it));
        News {
            name: name.to_owned(),
            announced: self.announced.prefixes.clone(),
            left_out: self.announced.left_out,
            newly_refused: new.cloned().collect(),
            lan,
            refused,
            left: self.announced == Announced::default(),
        }
    }
}

impl News {
    pub(super) fn log(&self) {
        let site = &self.name;
        for (prefix, why) in self.refused.iter().take(LOGGED) {
            tracing::warn!(site, %prefix, why, "LAN prefix refused");
        }
        let more = self.refused.len().saturating_sub(LOGGED);
        if more > 0 {
            tracing::warn!(site, more, "more LAN prefixes refused");
        }
        if self.left_out > 0 {
            let count = self.left_out;
            tracing::warn!(
                site,
                count,
                "announced ranges that are no prefixes, or too many"
            );
        }
        tracing::info!(site, count = self.lan.len(), "LAN prefixes routed");
    }
}

fn objection(
    prefix: &Prefix,
    granted: &[config::Prefix],
    host: &Host,
    networks: &[config::Prefix],
) -> Option<Objection> {
    let net = prefix.net();
    let never = lan::never(&net, host);
    never.or_else(|| not_granted(&net, granted, networks))
}

/// A grant of much is none of the hub's own networks inside it: there its gateways and neighbours
/// are, which a longer prefix would take from everybody.
fn not_granted(
    net: &config::Prefix,
    granted: &[config::Prefix],
    networks: &[config::Prefix],
) -> Option<Objection> {
    let around = |other: &&config::Prefix| other.contains(net);
    let grants: Vec<_> = granted.iter().filter(around).collect();
    if grants.is_empty() {
        return Some(Objection::NotGranted);
    }
    let mut networks = networks.iter().filter(around);
    let taken = networks.find(|network| !grants.iter().any(|grant| network.contains(*grant)));
    taken.map(|network| Objection::Attached(*network))
}

fn used_by_another(site: &str, prefix: &Prefix, taken: &[(Prefix, String)]) -> Option<Objection> {
    let mut others = taken.iter().filter(|(_, other)| other != site);
    let (_, other) = others.find(|(held, _)| held.overlaps(prefix))?;
    Some(Objection::Taken(other.parse().ok()?))
}

fn cuts_off(prefix: &Prefix, outer: &[(String, BTreeSet<IpAddr>)]) -> Option<Objection> {
    let mut inside = outer
        .iter()
        .filter(|(_, from)| from.iter().any(|address| prefix.contains(*address)));
    let (other, _) = inside.next()?;
    Some(Objection::Outer(other.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    fn announced(texts: &[&str]) -> Announced {
        Announced {
            prefixes: texts.iter().map(|text| prefix(text)).collect(),
            left_out: 0,
        }
    }

    /// A van and a ship that were granted private space, and the van public space too.
    struct World {
        lans: Lans,
        granted: BTreeMap<String, Vec<config::Prefix>>,
        host: Host,
        networks: Vec<config::Prefix>,
        outer: Vec<(String, BTreeSet<IpAddr>)>,
        now: Instant,
    }

    impl World {
        fn new() -> Self {
            let granted = [
                ("van", "192.168.0.0/16 1.1.1.0/24"),
                ("ship", "192.168.0.0/16 10.0.0.0/8"),
            ];
            let granted = granted.map(|(site, prefixes)| {
                let prefixes = prefixes.split(' ').map(|it| it.parse().unwrap());
                (site.to_owned(), prefixes.collect())
            });
            Self {
                lans: Lans::default(),
                granted: granted.into(),
                host: Host {
                    pool: vec!["10.200.0.0/16".parse().unwrap()],
                    addresses: vec!["192.168.1.1".parse().unwrap()],
                },
                networks: vec!["192.168.1.0/24".parse().unwrap()],
                outer: Vec::new(),
                now: Instant::now(),
            }
        }

        fn announce(&mut self, site: &str, prefixes: &[&str]) -> bool {
            let changed = BTreeSet::from([site.to_owned()]);
            let says = |_: &str| Some(announced(prefixes));
            self.lans.take(changed, says, self.now)
        }

        /// The site loses its tunnels.
        fn leave(&mut self, site: &str) -> bool {
            let changed = BTreeSet::from([site.to_owned()]);
            self.lans.take(changed, |_| None, self.now)
        }

        /// Time passes, and nobody comes back.
        fn wait(&mut self, time: Duration) -> bool {
            self.now += time;
            self.lans.take(BTreeSet::new(), |_| None, self.now)
        }

        fn decide(&mut self) -> Vec<News> {
            let Self {
                granted,
                host,
                networks,
                outer,
                ..
            } = self;
            self.lans.decide(granted, host, networks, outer)
        }

        /// What is refused of one announcement, and why.
        fn refused(&mut self, site: &str, prefixes: &[&str]) -> Vec<String> {
            self.now += Duration::from_secs(60);
            assert!(self.announce(site, prefixes));
            let news = self.decide();
            let news = news.into_iter().find(|news| news.name == site).unwrap();
            news.refused.into_iter().map(|(_, why)| why).collect()
        }
    }

    #[test]
    fn only_what_was_granted_is_routed_and_what_lies_in_it() {
        let mut world = World::new();
        let why = world.refused(
            "van",
            &[
                "192.168.8.0/24",
                "172.16.0.0/16",
                "1.1.0.0/16",
                "1.1.1.1/32",
            ],
        );
        assert_eq!(why, ["the hub has not granted it to the site"; 2]);
        assert_eq!(
            world.lans.of("van"),
            [prefix("1.1.1.1/32"), prefix("192.168.8.0/24")]
        );
    }

    #[test]
    fn what_is_refused_is_news_once_and_again_for_another_reason() {
        let mut world = World::new();
        let mut news = |prefixes: &[&str]| {
            world.now += Duration::from_secs(60);
            assert!(world.announce("van", prefixes));
            let news = world.decide();
            let new = news.into_iter().flat_map(|news| news.newly_refused);
            new.map(|(prefix, _)| prefix).collect::<Vec<_>>()
        };
        let [first, second] = ["172.16.0.0/16", "172.17.0.0/16"];

        assert_eq!(news(&[first]), [prefix(first)]);
        assert_eq!(news(&[first, second]), [prefix(second)]);
        assert_eq!(news(&[first]), []);

        world.host.addresses.push("172.16.0.1".parse().unwrap());
        let news = world.decide();
        assert!(news[0].newly_refused[0].1.contains("an address of the hub"));
    }

    #[test]
    fn a_grant_of_too_much_gives_nobody_what_the_hub_needs() {
        let mut world = World::new();
        let why = world.refused(
            "ship",
            &[
                "10.200.0.0/24",
                "192.168.1.0/24",
                "192.168.1.254/32",
                "10.9.0.0/16",
            ],
        );
        assert_eq!(
            why,
            [
                "it overlaps the hub's pool 10.200.0.0/16",
                "it holds 192.168.1.1, an address of the hub",
                "it lies in the hub's own network 192.168.1.0/24 and was not granted by itself"
            ]
        );
        assert_eq!(world.lans.of("ship"), [prefix("10.9.0.0/16")]);

        let printer = "192.168.1.254/32";
        let granted = world.granted.get_mut("ship").unwrap();
        granted.push(printer.parse().unwrap());
        assert_eq!(world.refused("ship", &[printer]), [""; 0], "it is meant");
    }

    #[test]
    fn who_came_first_keeps_a_prefix_until_it_gives_it_up() {
        let mut world = World::new();
        assert_eq!(world.refused("van", &["192.168.9.0/24"]), [""; 0]);
        let why = world.refused("ship", &["192.168.8.0/24", "192.168.9.128/25"]);
        assert_eq!(why, ["it overlaps a LAN of site `van`"]);
        // The van, which came first, does not get by that what the ship has.
        let why = world.refused("van", &["192.168.8.0/24", "192.168.9.0/24"]);
        assert_eq!(why, ["it overlaps a LAN of site `ship`"]);

        world.now += Duration::from_secs(60);
        world.announce("van", &[]);
        let news = world.decide();

        assert_eq!(world.lans.of("van"), []);
        assert_eq!(world.lans.of("ship").len(), 2, "it is free now: {news:?}");
    }

    #[test]
    fn nobody_gets_the_address_that_another_is_connected_from() {
        let mut world = World::new();
        let outer = BTreeSet::from(["1.1.1.9".parse().unwrap()]);
        world.outer.push(("ship".into(), outer));
        let why = world.refused("van", &["1.1.1.0/24"]);
        assert_eq!(why, ["site `ship` is connected from an address in it"]);

        world.outer.clear();
        assert_eq!(world.decide().len(), 1, "it is told when that has ended");
        assert_eq!(world.lans.of("van"), [prefix("1.1.1.0/24")]);
        world.outer = vec![("ship".into(), ["1.1.1.9".parse().unwrap()].into())];
        assert_eq!(
            world.decide(),
            [],
            "and cannot be robbed of it by whoever comes later"
        );
    }

    #[test]
    fn a_grant_that_is_taken_back_is_taken_back_at_once() {
        let mut world = World::new();
        world.refused("van", &["192.168.8.0/24"]);
        world.granted.clear();

        let news = world.decide();

        assert_eq!(news[0].lan, []);
        assert_eq!(news[0].refused.len(), 1);
        assert_eq!(world.decide(), [], "it is said once");
    }

    #[test]
    fn a_site_that_changes_its_mind_all_the_time_is_listened_to_now_and_then() {
        let mut world = World::new();
        let start = world.now;
        let mut decided = 0;
        for n in 0..2000_u32 {
            world.now = start + Duration::from_millis(10) * n;
            let lan = format!("192.168.{}.0/24", 2 + n % 100);
            decided += u32::from(world.announce("van", &[&lan]));
        }

        let most = CHANGES_AT_ONCE + 20 / CHANGE_EVERY.as_secs() as u32;
        assert!(
            (most - 1..=most).contains(&decided),
            "{decided} of 2000 in 20 s"
        );
        // Others need not wait for it.
        assert!(world.announce("ship", &["10.9.0.0/16"]));
        // And what it said last counts in the end.
        world.now = world.lans.poll_timeout().unwrap();
        assert!(world.announce("van", &["192.168.77.0/24"]));
        world.decide();
        assert_eq!(world.lans.of("van"), [prefix("192.168.77.0/24")]);
    }

    #[test]
    fn a_site_that_left_and_came_back_unheard_is_told_again_what_it_has() {
        let mut world = World::new();
        world.refused("van", &["192.168.8.0/24", "172.16.0.0/16"]);
        assert!(world.lans.take_untold().is_empty(), "all is told");

        // By the time that it is listened to it announces what it did before.
        assert!(!world.announce("van", &["192.168.8.0/24", "172.16.0.0/16"]));

        let told = world.lans.take_untold();
        assert_eq!(told.len(), 1);
        assert_eq!((&*told[0].name, told[0].left), ("van", false));
        assert_eq!(told[0].lan, [prefix("192.168.8.0/24")]);
        assert_eq!(told[0].refused.len(), 1);
        assert!(world.lans.take_untold().is_empty(), "once");
    }

    #[test]
    fn a_site_that_reconnects_all_the_time_changes_nothing_and_keeps_its_lan() {
        let mut world = World::new();
        world.refused("van", &["192.168.8.0/24"]);
        for _ in 0..100 {
            world.leave("van");
            assert_eq!(world.decide(), []);
            assert!(!world.wait(Duration::from_millis(300)));
            assert_eq!(world.lans.of("van"), [prefix("192.168.8.0/24")]);
            assert!(!world.announce("van", &["192.168.8.0/24"]));
            assert_eq!(world.lans.take_untold().len(), 1, "its tunnel is new");
            assert_eq!(world.lans.poll_timeout(), None);
            world.now += Duration::from_millis(900);
        }
        // It has all its changes left.
        for n in 0..CHANGES_AT_ONCE {
            assert!(world.announce("van", &[&format!("192.168.{}.0/24", 20 + n)]));
        }
    }

    #[test]
    fn a_site_that_does_not_come_back_or_announces_nothing_then_loses_its_lan_in_time() {
        let mut world = World::new();
        world.refused("van", &["192.168.8.0/24"]);
        world.leave("van");
        world.decide();
        let due = world.now + KEPT_FOR;
        assert_eq!(world.lans.poll_timeout(), Some(due));

        // It is back for a moment and leaves again without a word: that gives it no more time.
        world.now += KEPT_FOR / 2;
        assert!(!world.leave("van"));
        assert!(!world.wait(KEPT_FOR / 2 - Duration::from_millis(1)));
        assert!(world.wait(Duration::from_millis(1)));

        let news = world.decide();
        assert_eq!((news.len(), news[0].left), (1, true));
        assert_eq!(world.lans.all(), []);
        assert_eq!(world.lans.poll_timeout(), None);
        assert!(!world.leave("van"), "nobody knows it any more");
    }

    #[test]
    fn what_a_site_that_left_has_is_another_ones_that_is_here_and_wants_it() {
        let mut world = World::new();
        world.refused("van", &["192.168.8.0/24", "192.168.9.0/24"]);
        let why = world.refused("ship", &["192.168.8.0/24"]);
        assert_eq!(why, ["it overlaps a LAN of site `van`"]);

        assert!(world.leave("van"));
        world.decide();
        assert_eq!(world.lans.of("ship"), [prefix("192.168.8.0/24")]);
        assert_eq!(world.lans.of("van"), [prefix("192.168.9.0/24")]);

        // One that comes to want it meanwhile gets it too.
        assert!(world.announce("ship", &["192.168.8.0/24", "192.168.9.128/25"]));
        world.decide();
        assert_eq!(world.lans.of("ship").len(), 2);
        assert_eq!(world.lans.of("van"), []);

        // Whoever is back finds it taken, and is told.
        assert!(!world.announce("van", &["192.168.8.0/24", "192.168.9.0/24"]));
        assert_eq!(world.lans.take_untold()[0].refused.len(), 2);
        assert_eq!(world.decide(), []);
    }

    #[test]
    fn a_site_gives_back_all_at_once_however_many_changes_it_has_made() {
        let mut world = World::new();
        for n in 0..CHANGES_AT_ONCE {
            assert!(world.announce("van", &[&format!("192.168.{}.0/24", 20 + n)]));
        }
        assert!(!world.announce("van", &["192.168.8.0/24"]));
        assert!(world.announce("van", &[]));
        world.decide();
        assert_eq!(world.lans.all(), []);
        assert!(!world.announce("van", &["192.168.8.0/24"]));
    }

    #[test]
    fn what_could_not_be_done_is_decided_anew_and_told_to_nobody_meanwhile() {
        let mut world = World::new();
        world.refused("van", &["192.168.8.0/24"]);
        world.lans.reconsider("van");

        assert!(!world.announce("van", &["192.168.8.0/24"]));
        assert!(world.lans.take_untold().is_empty());

        assert_eq!(world.decide().len(), 1);
        assert_eq!(world.decide(), []);
    }

    #[test]
    fn an_announcement_of_the_same_costs_nothing() {
        let mut world = World::new();
        assert!(world.announce("van", &["192.168.8.0/24"]));
        for _ in 0..100 {
            assert!(!world.announce("van", &["192.168.8.0/24"]));
        }
        assert_eq!(world.lans.poll_timeout(), None);
    }
}
