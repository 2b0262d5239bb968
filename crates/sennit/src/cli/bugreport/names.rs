//! Names that are nobody's business, from wherever they are known: they are hidden also when no
//! daemon answers, and when the config is not valid.

use std::{fs, path::Path};

use super::redact::Redaction;
use crate::{
    config, event::Event, identity::EdgeIdentity, journal::Record, remote::Remote, store::Store,
};

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

/// Hides the names of the sites that events are about.
pub(super) fn hide_in_events(redaction: &mut Redaction, records: &[Record]) {
    for record in records {
        let fields = serde_json::to_value(&record.event).unwrap_or_default();
        let site = fields["site"].as_str();
        let locked_out = match &record.event {
            Event::AuthorityFinished { locked_out, .. } => locked_out.as_slice(),
            _ => &[],
        };
        let sites = locked_out.iter().map(String::as_str).chain(site);
        sites.for_each(|site| redaction.hide(site, "site"));
    }
}

/// Hides the names of the sites that lines of a log are about, each in a field `site`.
pub(super) fn hide_in_log(redaction: &mut Redaction, log: &str) {
    let words = log.split_whitespace();
    for site in words.filter_map(|word| word.strip_prefix("site=")) {
        redaction.hide(site.trim_matches('"'), "site");
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::identity::{self, HubIdentity};

    #[test]
    fn a_site_that_only_old_events_and_the_log_know_is_hidden() {
        let record = |event: &str| -> Record {
            let text = format!(r#"{{"id": 1, "time": "", "text": "", {event}}}"#);
            serde_json::from_str(&text).unwrap()
        };
        let records = [
            record(r#""event": "expelled", "site": "van-01", "reason": "revoked""#),
            record(r#""event": "authority_finished", "authority": "ab", "locked_out": ["van-02"]"#),
        ];
        let log = "INFO sennit: invited site=van-03\nINFO sennit: tunnel is up site=\"van-04\" class=bulk\n";
        let mut redaction = Redaction::default();
        hide_in_events(&mut redaction, &records);
        hide_in_log(&mut redaction, log);

        let shown = redaction.apply(&format!("van-01 van-02 van-05 class\n{log}"));

        assert_eq!(
            shown,
            "<site-1> <site-2> van-05 class\nINFO sennit: invited site=<site-3>\n\
             INFO sennit: tunnel is up site=\"<site-4>\" class=bulk\n"
        );
    }

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
