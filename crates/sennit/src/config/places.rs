//! Files and directories that a config names: what a daemon may read and write from its start on.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{ApiConfig, Config, EdgeConfig, HubConfig, Notify};

type Place = (&'static str, PathBuf);

/// Why a text must not take the place of a config that a daemon edits which is not root: it names a
/// file or directory that none of the texts before has named. A daemon that somebody has taken over
/// could have root read such a file at its next start, or give it such a directory.
pub(crate) fn name_no_other_places(before: &[String; 2], after: &str) -> Result<(), String> {
    let parse = |text: &str| Config::parse("config", text.as_bytes());
    let known = before.iter().filter_map(|text| parse(text).ok());
    let known: BTreeSet<Place> = known.flat_map(|it| places(&it.config)).collect();
    let wanted = parse(after).map_err(|report| report.to_string())?;
    let mut wanted = places(&wanted.config).into_iter();
    match wanted.find(|it| !known.contains(it)) {
        None => Ok(()),
        Some((key, place)) => Err(format!(
            "it names {} as `{key}`: write that into the file by hand, and restart the daemon",
            place.display()
        )),
    }
}

fn places(config: &Config) -> Vec<Place> {
    let (mut places, api, notify) = match config {
        Config::Hub(hub) => {
            let own = vec![("state", &hub.state), ("control", &hub.control)];
            (own, &hub.api, &hub.notify)
        }
        Config::Edge(edge) => (of_edge(edge), &edge.api, &edge.notify),
    };
    places.extend(of_api(api));
    places.extend(secrets(notify));
    let owned = places.into_iter().map(|(key, place)| (key, place.clone()));
    owned.collect()
}

impl HubConfig {
    /// The directories that a hub keeps things in.
    pub(crate) fn kept(&self) -> Vec<&Path> {
        vec![&self.state]
    }

    /// The config itself, which is in `file`, and those that it names for a daemon to read.
    pub(crate) fn files<'a>(&'a self, file: &'a Path) -> Vec<&'a Path> {
        let named = of_api(&self.api).chain(secrets(&self.notify));
        let named = named.map(|(_, path)| path.as_path());
        [file].into_iter().chain(named).collect()
    }
}

impl EdgeConfig {
    /// The directories that an edge keeps things in.
    pub(crate) fn kept(&self) -> Vec<&Path> {
        vec![&self.state, &self.records]
    }

    /// The config itself, which is in `file`, and those that it names for an edge to read.
    pub(crate) fn files<'a>(&'a self, file: &'a Path) -> Vec<&'a Path> {
        let named = of_api(&self.api).chain(secrets(&self.notify));
        let named = named.chain(of_proxy(self));
        let named = named.map(|(_, path)| path.as_path());
        [file].into_iter().chain(named).collect()
    }
}

fn of_edge(edge: &EdgeConfig) -> Vec<(&'static str, &PathBuf)> {
    let mut places = vec![
        ("state", &edge.state),
        ("records", &edge.records),
        ("control", &edge.control),
    ];
    places.extend(of_proxy(edge));
    places
}

fn of_proxy(edge: &EdgeConfig) -> impl Iterator<Item = (&'static str, &PathBuf)> {
    let proxy = edge.proxy.iter();
    proxy.flat_map(|proxy| {
        let bearer = proxy.bearer.iter().map(|it| ("bearer", it));
        [("proxy_ca", &proxy.ca)].into_iter().chain(bearer)
    })
}

fn of_api(api: &ApiConfig) -> impl Iterator<Item = (&'static str, &PathBuf)> {
    let tls = api.tls.as_ref();
    let places = [
        ("tls_certificate", tls.map(|it| &it.certificate)),
        ("tls_key", tls.map(|it| &it.key)),
        ("read_token", api.read_token.as_ref()),
        ("operate_token", api.operate_token.as_ref()),
        ("admin_token", api.admin_token.as_ref()),
    ];
    let named = places.into_iter();
    named.filter_map(|(key, place)| Some((key, place?)))
}

fn secrets(notify: &[Notify]) -> impl Iterator<Item = (&'static str, &PathBuf)> {
    let secrets = notify.iter().filter_map(|it| it.secret.as_ref());
    secrets.map(|it| ("secret", it))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUB: &str = "[hub]\nlisten = ['0.0.0.0:443']\npool = ['10.200.0.0/16']\n\
                       state = '/srv/hub'\n[api]\nread_token = 'file:/srv/token'\n";

    #[test]
    fn a_text_changes_what_it_likes_but_names_no_other_file() {
        let by_hand = format!("{HUB}admin_token = 'file:/srv/admin'\n");
        let before = [HUB.to_owned(), by_hand.clone()];
        let judged = |after: &str| name_no_other_places(&before, after);

        judged(HUB).unwrap();
        judged(&by_hand).unwrap();
        judged(&HUB.replace("10.200", "10.201")).unwrap();
        for (from, to, key) in [
            ("/srv/hub", "/root/.ssh", "state"),
            ("[api]", "control = '/etc/x.sock'\n[api]", "control"),
            ("/srv/token", "/srv/admin", "read_token"),
        ] {
            let said = judged(&HUB.replace(from, to)).unwrap_err();
            assert!(said.contains(&format!("as `{key}`")), "{said}");
        }
        judged("[hub").unwrap_err();
        judged("").unwrap_err();
    }

    #[test]
    fn a_config_that_was_broken_by_hand_may_be_mended() {
        let before = [HUB.to_owned(), "[hub".to_owned()];
        name_no_other_places(&before, HUB).unwrap();
        let edge = "[edge]\nhub = ['203.0.113.10:443']\nstate = '/srv/e'\n\
                    [[link]]\nname = 'a'\ninterface = 'wan0'\n";
        let before = [edge.to_owned(), edge.to_owned()];
        name_no_other_places(&before, edge).unwrap();
        let other = edge.replace("state =", "records = '/srv/r'\nstate =");
        let said = name_no_other_places(&before, &other).unwrap_err();
        assert!(said.contains("as `records`"), "{said}");
    }
}
