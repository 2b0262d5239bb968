//! What a hub runs with, and what of another config it can have without a restart.

use crate::{
    config::{ApiConfig, Entry, HostFinding, HubConfig, Loaded, Notify, Report, changes},
    daemon::reload::{Planned, Runs, order_differs, with_old},
    onsite,
};

/// A config and the file that it came from, key by key.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) config: HubConfig,
    pub(super) entries: Vec<Entry>,
}

/// Keys of `[hub]` that take effect at once.
const LIVE: [&str; 4] = ["nat", "reach", "bearer_reach", "site_limit"];

impl Runs for Running {
    type Config = HubConfig;

    fn parse(file: &str, source: &[u8]) -> Result<Loaded<HubConfig>, Report> {
        HubConfig::parse(file, source)
    }

    fn look_at_host(config: &HubConfig) -> Vec<HostFinding> {
        onsite::look_at_hub(config)
    }

    fn plan(&self, wanted: &HubConfig, entries: &[Entry]) -> Planned<Self> {
        let all = changes(&self.entries, entries);
        let (needs_restart, mut changes): (Vec<_>, Vec<_>) =
            all.into_iter()
                .partition(|change| match (change.place.0, change.place.2) {
                    ("[hub]", Some(key)) => !LIVE.contains(&key),
                    // Who may reach it goes with where it listens.
                    ("[api]", _) => self.config.api.listen != wanted.api.listen,
                    _ => false,
                });
        let names = |config: &HubConfig| -> Vec<String> {
            let classes = config.classes.iter();
            classes.map(|class| class.name.clone()).collect()
        };
        changes.extend(order_differs(
            "the order of the classes",
            &names(&self.config),
            &names(wanted),
        ));
        let config = HubConfig {
            nat: wanted.nat,
            reach: wanted.reach.clone(),
            bearer_reach: wanted.bearer_reach.clone(),
            site_limit: wanted.site_limit,
            classes: wanted.classes.clone(),
            connect_udp: wanted.connect_udp.clone(),
            api: self.config.api.next(&wanted.api),
            notify: wanted.notify.clone(),
            ..self.config.clone()
        };
        Planned {
            next: Self {
                config,
                entries: with_old(entries, &self.entries, &needs_restart),
            },
            changes,
            needs_restart,
        }
    }

    fn named(config: &HubConfig) -> (&ApiConfig, &[Notify]) {
        (&config.api, &config.notify)
    }

    fn parts(&self) -> (&HubConfig, &[Entry]) {
        (&self.config, &self.entries)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use super::*;
    use crate::{
        config::{Change, effective},
        control::{ConfigOrder, Response},
        daemon::reload::{Applied, Reloader, tests},
        journal::Keeper,
    };

    fn parse(text: &str) -> HubConfig {
        let loaded = HubConfig::parse("hub.toml", text.as_bytes());
        loaded.unwrap_or_else(|report| panic!("{report}")).config
    }

    fn text(hub: &str, more: &str) -> String {
        format!("[hub]\nlisten = ['0.0.0.0:443']\npool = ['10.200.0.0/16']\n{hub}\n{more}")
    }

    fn plan(before: &str, after: &str) -> Planned<Running> {
        let running = Running {
            config: parse(before),
            entries: effective(before),
        };
        running.plan(&parse(after), &effective(after))
    }

    fn whats(changes: &[Change]) -> Vec<&str> {
        changes.iter().map(|change| change.what.as_str()).collect()
    }

    #[test]
    fn what_sites_may_changes_and_what_the_hub_stands_on_waits() {
        let before = text("", "");
        let after = text(
            "reach = ['internet']\nsite_limit = '20Mbit'\nmtu = 1300\nrequire_pq = true",
            "[connect_udp]\n[api]\nlisten = ['127.0.0.1:8479']\n\
             [[class]]\nname = 'calls'\nmatch = ['udp port 5060']\n",
        );

        let planned = plan(&before, &after);

        assert_eq!(
            whats(&planned.changes),
            ["connect_udp", "class calls", "hub.reach", "hub.site_limit"]
        );
        assert_eq!(
            whats(&planned.needs_restart),
            ["api", "hub.mtu", "hub.require_pq"]
        );
        let wanted = parse(&after);
        let next = planned.next.config;
        assert_eq!(next.reach, wanted.reach);
        assert_eq!(next.connect_udp, wanted.connect_udp);
        assert_eq!(next.classes, wanted.classes);
        assert_eq!((next.mtu, next.require_pq), (1400, false));
    }

    #[test]
    fn who_may_ask_changes_at_once_unless_the_api_is_to_listen_elsewhere() {
        let api = |listen: &str, more: &str| {
            let api = format!("[api]\nlisten = ['127.0.0.1:{listen}']\n{more}");
            text("", &api)
        };
        let token = "read_token = 'file:/etc/sennit/token'\n";
        let told = "[[notify]]\nname = 'ops'\nkind = 'ntfy'\nurl = 'https://ntfy.sh/vans'\n";

        let more = format!("{token}{told}");
        let planned = plan(&api("8479", ""), &api("8479", &more));
        assert_eq!(whats(&planned.changes), ["notify ops", "api.read_token"]);
        assert_eq!(planned.next.config.notify[0].name, "ops");
        assert!(planned.next.config.api.read_token.is_some());

        let planned = plan(&api("8479", ""), &api("8480", token));
        let waits = ["api.listen", "api.read_token"];
        assert_eq!(whats(&planned.needs_restart), waits);
        assert_eq!(planned.next.config.api.read_token, None);
    }

    #[test]
    fn rules_that_change_places_say_so() {
        let class = |name: &str| format!("[[class]]\nname = '{name}'\nmatch = ['udp']\n");
        let (one, other) = (class("a") + &class("b"), class("b") + &class("a"));
        let planned = plan(&text("", &one), &text("", &other));
        assert_eq!(whats(&planned.changes), ["the order of the classes"]);
        assert_eq!(planned.next.config.classes[0].name, "b");
    }

    #[test]
    fn a_file_that_holds_a_secret_is_shown_neither_whole_nor_by_what_differs_from_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("hub.toml");
        let config = text("", "");
        let secret =
            "[[notify]]\nname = 'ops'\nurl = 'https://example.org/x'\nsecret = 'whsec_a'\n";
        fs::write(&file, text("", secret)).unwrap();
        let keeper = Keeper::start(&directory.path().join("journal.db")).unwrap();
        let running = Arc::new(Running {
            config: parse(&config),
            entries: effective(&config),
        });
        let (journal, secrets) = (keeper.journal().clone(), tests::secrets());
        let reloader = Reloader::new(file, &running, journal, secrets, |_| Ok(Applied::Whole));
        let reloader = Arc::new(reloader);

        for order in [ConfigOrder::Show, ConfigOrder::Check { text: config }] {
            let Response::Refused(refused) = reloader.handle_config(&order) else {
                panic!("{order:?}");
            };
            assert_eq!(refused.code, "holds_secret");
            assert!(!refused.message.contains("whsec_a"));
        }
    }
}
