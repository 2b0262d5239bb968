//! Names that are nobody's business, from wherever they are known: they are hidden also when no
//! daemon answers, and when the config is not valid.

use std::{fs, path::Path};

use super::redact::Redaction;
use crate::{config, identity::EdgeIdentity, remote::Remote, store::Store};

/// Hides the names of this host, those in the text of a config, and those in the state of which it
/// tells: the site and its hubs, or all sites that a hub knows.
pub(super) fn hide(redaction: &mut Redaction, config: &str) {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    redaction.hide(host, "host");
    redaction.hide(host.split('.').next().unwrap_or(host), "host");
    for name in config::hosts(config) {
        redaction.hide(&name, "name");
    }
    hide_known(redaction, &config::salvage(config.as_bytes()).state);
}

fn hide_known(redaction: &mut Redaction, state: &Path) {
    if let Ok(identity) = EdgeIdentity::load(state) {
        redaction.hide(identity.site.as_str(), "site");
        for hub in &identity.hubs {
            if let Remote::Name { host, .. } = hub {
                redaction.hide(host, "name");
            }
        }
    }
    let sites = Store::open(state).and_then(|store| store.sites(std::time::SystemTime::now()));
    for site in sites.unwrap_or_default() {
        redaction.hide(site.name.as_str(), "site");
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::identity::{self, HubIdentity};

    #[test]
    fn names_are_hidden_without_a_daemon_and_with_a_config_that_is_not_valid() {
        let dir = tempfile::tempdir().unwrap();
        let [hub, van] = ["hub", "van"].map(|name| dir.path().join(name));
        let now = SystemTime::now();
        let authority = HubIdentity::init(&hub, &[], now).unwrap().authority;
        let mut store = Store::open(&hub).unwrap();
        let (site, day) = ("van-07".parse().unwrap(), Duration::from_secs(86_400));
        let hubs = ["first.example.org:443".parse().unwrap()];
        let invited = identity::invite(&mut store, &authority, &site, &hubs, day, now).unwrap();
        EdgeIdentity::join(&van, &invited, false).unwrap();
        let shown = |config: &str| {
            let mut redaction = Redaction::default();
            hide(&mut redaction, config);
            redaction.apply("van-07 first.example.org second.example.org router.lan")
        };

        let edge = format!(
            "[edge]\nhub = [\"second.example.org:443\"\nstate = '{}'\nmtu = 5\n",
            van.display()
        );
        let hub = format!(
            "[hub]\nlisten = 5\nstate = '{}'\n[api]\nhosts = [\n  \"router.lan\",\n]\n",
            hub.display()
        );

        assert_eq!(shown(&edge), "<site-1> <name-2> <name-1> router.lan");
        assert_eq!(
            shown(&hub),
            "<site-1> first.example.org second.example.org <name-1>"
        );
    }
}
