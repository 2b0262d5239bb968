//! What an edge runs with, and how it gets from one config to the next.
//!
//! Links and classes have numbers that the engine knows them by. They keep them for as long as they
//! are in the config; those that come get numbers that nobody has.

use std::sync::Arc;

use sennit_core::ClassId;
use sennit_engine::Sharing;

use super::{
    limits::{self, Limits},
    sharing::sharing,
};
use crate::{
    config::{
        self, ApiConfig, Change, Class, EdgeConfig, Entry, HostFinding, Loaded, Notify, Report,
    },
    control::{LinkBounds, Refused},
    daemon::reload::{Planned, Runs, order_differs, with_old},
    remote::Remote,
    status::LinkStatus,
};

/// A config with the numbers of what is in it.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) config: EdgeConfig,
    /// Of each class of the config.
    pub(super) classes: Vec<ClassId>,
    /// The links by their numbers, which are those of their sockets, as they are to be used.
    pub(super) links: Vec<Option<config::Link>>,
    /// The file that it came from, key by key.
    pub(super) entries: Vec<Entry>,
    /// How the classes share the links, for all workers.
    pub(super) sharing: Option<Arc<Sharing>>,
    /// What an operator lets links carry, whatever the config says.
    pub(super) limits: Limits,
}

/// Keys of `[edge]` that take effect at once.
const LIVE: [&str; 7] = [
    "hub",
    "routes",
    "dns",
    "lan",
    "leak",
    "leak_when_stopped",
    "share_links",
];

impl Runs for Running {
    type Config = EdgeConfig;

    fn parse(file: &str, source: &[u8]) -> Result<Loaded<EdgeConfig>, Report> {
        EdgeConfig::parse(file, source)
    }

    fn look_at_host(config: &EdgeConfig) -> Vec<HostFinding> {
        crate::onsite::look_at_edge(config)
    }

    fn plan(&self, wanted: &EdgeConfig, entries: &[Entry]) -> Planned<Self> {
        let all = config::changes(&self.entries, entries);
        let waits = |change: &Change| self.needs_restart(change, wanted);
        let (mut needs_restart, changes): (Vec<_>, Vec<_>) = all.into_iter().partition(waits);
        let config = self.reachable(wanted);
        let what = "the order of the classes in which they have their turns";
        let (before, after) = (names(&self.config), names(&config));
        needs_restart.extend(order_differs(what, &before, &after));
        let classes = self.number_classes(&config.classes);
        let links = limits::apply(&config.links, &self.limits);
        let next = Self {
            sharing: sharing(&config, &classes, &links, self.sharing.as_ref()),
            classes,
            links: self.place_links(&links),
            limits: self.limits.clone(),
            config,
            entries: with_old(entries, &self.entries, &needs_restart),
        };
        Planned {
            next,
            changes,
            needs_restart,
        }
    }

    fn named(config: &EdgeConfig) -> (&ApiConfig, &[Notify]) {
        (&config.api, &config.notify)
    }

    fn parts(&self) -> (&EdgeConfig, &[Entry]) {
        (&self.config, &self.entries)
    }
}

impl Running {
    pub(super) fn new(config: EdgeConfig, entries: Vec<Entry>) -> Self {
        let classes: Vec<ClassId> = (0..config.classes.len()).map(id).collect();
        Self {
            sharing: sharing(&config, &classes, &config.links, None),
            classes,
            links: config.links.iter().cloned().map(Some).collect(),
            config,
            entries,
            limits: Limits::new(),
        }
    }

    /// The classes with their numbers.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (ClassId, &Class)> {
        self.classes.iter().copied().zip(&self.config.classes)
    }

    /// How to go on with other bounds of a link.
    pub(super) fn limited(&self, link: &str, bounds: LinkBounds) -> Result<Self, Refused> {
        if !self.config.links.iter().any(|it| it.name == link) {
            return Err(Refused::no_link(link));
        }
        let mut next = self.clone();
        limits::set(&mut next.limits, link, bounds)?;
        let links = limits::apply(&self.config.links, &next.limits);
        let before = self.sharing.as_ref();
        next.sharing = sharing(&self.config, &self.classes, &links, before);
        next.links = self.place_links(&links);
        Ok(next)
    }

    /// Says what bounds the links.
    pub(super) fn describe_limits(&self, links: &mut [LinkStatus]) {
        for link in links {
            let mut used = self.links.iter().flatten();
            if let Some(used) = used.find(|it| it.name == link.name) {
                limits::describe(link, used, &self.limits);
            }
        }
    }

    fn needs_restart(&self, change: &Change, wanted: &EdgeConfig) -> bool {
        let (section, name, key) = &change.place;
        match (*section, key) {
            ("[edge]", Some("hub")) => self.is_other_proxy(wanted),
            ("[edge]", Some(key)) => !LIVE.contains(key),
            ("[[class]]", Some("device")) => true,
            // Who may reach it goes with where it listens.
            ("[api]", _) => self.config.api.listen != wanted.api.listen,
            // Rules that need a device need it from the start.
            ("[[class]]", Some("match")) => {
                let find = |all: &[Class]| {
                    let own = all.iter().find(|class| Some(&class.name) == name.as_ref());
                    own.and_then(|class| class.device.clone())
                };
                find(&self.config.classes) != find(&wanted.classes)
            }
            // A class with a device of its own comes and goes with that.
            ("[[class]]", None) => {
                let both = self.config.classes.iter().chain(&wanted.classes);
                let mut own = both.filter(|class| Some(&class.name) == name.as_ref());
                own.any(|class| class.device.is_some())
            }
            _ => false,
        }
    }

    /// Whether the name that the certificate of the far side must bear is that of its first
    /// address, and would be another.
    fn is_other_proxy(&self, wanted: &EdgeConfig) -> bool {
        let proxy = self.config.proxy.as_ref();
        let first = |config: &EdgeConfig| config.hub.first().map(Remote::host);
        proxy.is_some_and(|it| it.name.is_none()) && first(&self.config) != first(wanted)
    }

    /// The wanted config as far as it can be had without a restart.
    fn reachable(&self, wanted: &EdgeConfig) -> EdgeConfig {
        let now = &self.config;
        let hub = if self.is_other_proxy(wanted) {
            now.hub.clone()
        } else {
            wanted.hub.clone()
        };
        EdgeConfig {
            hub,
            routes: wanted.routes.clone(),
            dns: wanted.dns.clone(),
            lan: wanted.lan.clone(),
            leak: wanted.leak,
            leak_when_stopped: wanted.leak_when_stopped,
            share_links: wanted.share_links,
            api: now.api.next(&wanted.api),
            notify: wanted.notify.clone(),
            links: wanted.links.clone(),
            classes: self.reachable_classes(&wanted.classes),
            ..now.clone()
        }
    }

    /// Devices stay as they are, and the classes that have one.
    fn reachable_classes(&self, wanted: &[Class]) -> Vec<Class> {
        let present = &self.config.classes;
        let find = |all: &[Class], name: &str| all.iter().find(|it| it.name == name).cloned();
        let kept = wanted.iter().filter_map(|class| {
            let now = find(present, &class.name);
            if now.is_none() && class.device.is_some() {
                return None;
            }
            let mut kept = class.clone();
            if let Some(now) = now.filter(|now| now.device != class.device) {
                (kept.device, kept.matches) = (now.device, now.matches);
            }
            Some(kept)
        });
        let mut classes: Vec<Class> = kept.collect();
        for (place, class) in present.iter().enumerate() {
            if class.device.is_none() || find(wanted, &class.name).is_some() {
                continue;
            }
            // It stays behind what it stood behind.
            let at = |before: &Class| classes.iter().position(|it| it.name == before.name);
            let behind = present[..place].iter().rev().find_map(at);
            classes.insert(behind.map_or(0, |index| index + 1), class.clone());
        }
        classes
    }

    fn number_classes(&self, classes: &[Class]) -> Vec<ClassId> {
        let own = |class: &Class| {
            let mut known = self.numbered();
            known
                .find(|(_, it)| it.name == class.name)
                .map(|(id, _)| id)
        };
        let mut taken: Vec<ClassId> = self.classes.clone();
        let mut number = |class: &Class| {
            own(class).unwrap_or_else(|| {
                let free = (0..).map(id).find(|id| !taken.contains(id));
                let free = free.expect("there are fewer classes than numbers");
                taken.push(free);
                free
            })
        };
        classes.iter().map(&mut number).collect()
    }

    /// Links keep their places by name; others take free ones.
    fn place_links(&self, links: &[config::Link]) -> Vec<Option<config::Link>> {
        let find = |name: &str| links.iter().find(|link| link.name == name).cloned();
        let stay = |place: &Option<config::Link>| find(&place.as_ref()?.name);
        let mut places: Vec<Option<config::Link>> = self.links.iter().map(stay).collect();
        // A place that was left just now is free at the next reload only.
        let mut free: Vec<usize> = (0..self.links.len())
            .rev()
            .filter(|&index| self.links[index].is_none())
            .collect();
        for link in links {
            if !places.iter().flatten().any(|it| it.name == link.name) {
                match free.pop() {
                    Some(index) => places[index] = Some(link.clone()),
                    None => places.push(Some(link.clone())),
                }
            }
        }
        places
    }
}

fn id(index: usize) -> ClassId {
    ClassId(u8::try_from(index).unwrap_or(u8::MAX))
}

fn names(config: &EdgeConfig) -> Vec<String> {
    let classes = config.classes.iter();
    classes.map(|class| class.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(text: &str) -> Running {
        Running::new(parse(text), config::effective(text))
    }

    fn parse(text: &str) -> EdgeConfig {
        let loaded = EdgeConfig::parse("edge.toml", text.as_bytes());
        loaded.unwrap_or_else(|report| panic!("{report}")).config
    }

    fn plan(running: &Running, text: &str) -> Planned<Running> {
        running.plan(&parse(text), &config::effective(text))
    }

    fn text(edge: &str, links: &[&str], classes: &[&str]) -> String {
        let mut text = format!("[edge]\nhub = ['203.0.113.10:443']\n{edge}\n");
        for link in links {
            text += &format!("[[link]]\nname = '{link}'\ninterface = 'wan-{link}'\n");
        }
        for class in classes {
            text += &format!("[[class]]\nname = '{class}'\nmatch = ['udp port 1']\n");
        }
        text
    }

    fn whats(changes: &[Change]) -> Vec<&str> {
        changes.iter().map(|change| change.what.as_str()).collect()
    }

    #[test]
    fn who_stays_keeps_its_number_and_who_comes_gets_a_free_one() {
        let before = running(&text("", &["a", "b"], &["calls", "bulk"]));

        let after = plan(&before, &text("", &["c", "b"], &["games", "bulk"])).next;
        let names: Vec<(u8, &str)> = after
            .numbered()
            .map(|(id, class)| (id.0, class.name.as_str()))
            .collect();
        assert_eq!(names, [(3, "games"), (1, "bulk"), (2, "default")]);
        let places = |running: &Running| -> Vec<String> {
            let names = running.links.iter();
            let names = names.map(|it| it.as_ref().map_or("-", |link| &link.name).to_owned());
            names.collect()
        };
        assert_eq!(places(&after), ["-", "b", "c"]);

        let later = plan(&after, &text("", &["d", "b"], &["bulk"])).next;
        assert_eq!(places(&later), ["d", "b", "-"]);
    }

    #[test]
    fn what_needs_a_restart_is_named_until_there_is_one() {
        let before = running(&text("mtu = 1400", &["a"], &[]));
        let wanted = text("mtu = 1300\nroutes = ['10.9.0.0/16']", &["a"], &[]);

        let planned = plan(&before, &wanted);
        assert_eq!(whats(&planned.changes), ["edge.routes"]);
        assert_eq!(whats(&planned.needs_restart), ["edge.mtu"]);
        assert_eq!(planned.next.config.mtu, 1400);
        assert_eq!(planned.next.config.routes.len(), 1);

        let again = plan(&planned.next, &wanted);
        assert_eq!(whats(&again.changes), Vec::<&str>::new());
        assert_eq!(whats(&again.needs_restart), ["edge.mtu"]);
    }

    #[test]
    fn plain_classes_share_links_from_the_reload_that_says_so() {
        let before = running(&text("", &["a"], &["calls"]));
        assert!(before.sharing.is_none());

        let planned = plan(&before, &text("share_links = true", &["a"], &["calls"]));

        assert_eq!(whats(&planned.changes), ["edge.share_links"]);
        assert_eq!(planned.needs_restart.len(), 0);
        assert!(planned.next.sharing.is_some());
    }

    #[test]
    fn a_class_with_a_device_comes_and_goes_with_a_restart() {
        let own = "[[class]]\nname = 'bulk'\ndevice = 'bulk0'\n";
        let without = text("", &["a"], &["calls"]);
        let with = format!("{without}{own}");

        let comes = plan(&running(&without), &with);
        assert_eq!(whats(&comes.needs_restart), ["class bulk"]);
        assert!(comes.next.config.classes.iter().all(|it| it.name != "bulk"));

        let goes = plan(&running(&with), &without);
        assert_eq!(whats(&goes.needs_restart), ["class bulk"]);
        assert!(goes.next.config.classes.iter().any(|it| it.name == "bulk"));
    }

    #[test]
    fn rules_for_the_kernel_need_the_device_that_they_had_at_the_start() {
        let class = |rule: &str| format!("[[class]]\nname = 'calls'\nmatch = ['{rule}']\n");
        let with = |rule: &str| text("", &["a"], &[]) + &class(rule);
        let before = running(&with("udp port 1"));

        let planned = plan(&before, &with("mark 0x10/0xff"));
        assert_eq!(whats(&planned.needs_restart), ["class calls: match"]);
        assert!(!planned.next.config.classes[0].matches[0].is_kernel());

        let named = |rules: &str| {
            text("", &["a"], &[]) + "[[class]]\nname = 'calls'\ndevice = 'calls0'\n" + rules
        };
        let planned = plan(&running(&named("")), &named("match = ['uid 1000']"));
        assert_eq!(planned.needs_restart.len(), 0, "it has its device");
        assert!(planned.next.config.classes[0].matches[0].is_kernel());

        let marked = running(&with("mark 0x10/0xff"));
        let planned = plan(&marked, &with("mark 0x20/0xff"));
        assert_eq!(planned.needs_restart.len(), 0);
        let rule = &planned.next.config.classes[0].matches[0];
        assert_eq!(rule.kernel.mark, Some((0x20, 0xff)));
    }

    #[test]
    fn classes_that_change_places_say_so() {
        let planned = plan(
            &running(&text("", &["a"], &["calls", "bulk"])),
            &text("", &["a"], &["bulk", "calls"]),
        );
        assert_eq!(planned.needs_restart.len(), 1);
        let ids: Vec<u8> = planned.next.classes.iter().map(|id| id.0).collect();
        assert_eq!(ids, [1, 0, 2]);
    }

    #[test]
    fn another_hub_takes_effect_unless_a_proxy_is_known_by_its_address() {
        let with = |hub: &str, more: &str| {
            let text = text(more, &["a"], &[]);
            text.replace("203.0.113.10:443", hub)
        };
        let plans = |more: &str, hub: &str| {
            let before = running(&with("203.0.113.10:443", more));
            let planned = plan(&before, &with(hub, more));
            let hub = planned.next.config.hub[0].to_string();
            (whats(&planned.needs_restart).len(), hub)
        };
        let other = "203.0.113.20:443";
        assert_eq!(plans("", other), (0, other.into()));
        let proxy = "proxy_ca = '/etc/proxy.pem'";
        assert_eq!(plans(proxy, other), (1, "203.0.113.10:443".into()));
        let port = "203.0.113.10:444";
        assert_eq!(plans(proxy, port), (0, port.into()));
        let named = format!("{proxy}\nproxy_name = 'proxy.example'");
        assert_eq!(plans(&named, other), (0, other.into()));
    }
}
