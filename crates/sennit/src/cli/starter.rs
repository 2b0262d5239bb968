//! The first `hub.toml` and `edge.toml`, written by `sennit hub init` and `join` where there is
//! none.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sennit_linux::{
    DeviceName,
    netlink::{Family, Netlink, Route},
};

use super::{Exit, Failure, output};
use crate::config::{
    ConfigError, DEFAULT_EDGE_CONTROL, DEFAULT_EDGE_FILE, DEFAULT_HUB_FILE, DEFAULT_STATE,
    EdgeConfig, Prefix, RUN_DIRECTORY,
};
use crate::identity::Invitation;

/// What goes into the first config of an edge.
#[derive(Debug, Default)]
pub(super) struct Wishes<'a> {
    /// Where the config goes, if not where one usually is.
    pub(super) file: Option<&'a Path>,
    /// The links; if there are none, the interfaces with a default route.
    pub(super) links: &'a [StarterLink],
    /// Everything goes into the tunnel.
    pub(super) route_all: bool,
    /// Prefixes behind the edge.
    pub(super) lans: &'a [Prefix],
    /// Interfaces of links may come later.
    pub(super) absent: bool,
}

/// A link as the command line names it: `starlink=eth1`, or just `eth1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StarterLink {
    pub(super) name: String,
    pub(super) interface: String,
}

impl FromStr for StarterLink {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, interface) = text.split_once('=').unwrap_or((text, text));
        if name.is_empty() || interface.is_empty() {
            return Err("write NAME=INTERFACE, like starlink=eth1, or an interface".into());
        }
        Ok(Self {
            name: name.into(),
            interface: interface.into(),
        })
    }
}

/// The first config of an edge, ready to be put where it goes: all that could go wrong with it has
/// been looked at.
pub(super) struct Starter {
    pub(super) path: PathBuf,
    /// What it says, or what the one says that is there.
    pub(super) config: EdgeConfig,
    /// Beside the place where it goes; nothing if there is a config already.
    draft: Option<Draft>,
}

impl Starter {
    /// Makes the config of the edge that `invitation` makes of this host.
    pub(super) fn prepare(
        state: &Path,
        invitation: &Invitation,
        wishes: &Wishes<'_>,
    ) -> Result<Self, Failure> {
        let path = place(wishes.file, state, Path::new(DEFAULT_EDGE_FILE));
        if path.exists() {
            if !wishes.links.is_empty() || wishes.route_all || !wishes.lans.is_empty() {
                output::say!(
                    "warning: {} is there already: --link, --lan and --route-all change nothing in it",
                    path.display()
                );
            }
            let config = EdgeConfig::load(&path)?.config;
            belongs_to(&config, &path, state)?;
            let draft = None;
            return Ok(Self {
                path,
                config,
                draft,
            });
        }
        let links = match wishes.links {
            [] => found_links(),
            links => links.to_vec(),
        };
        if links.is_empty() {
            output::say!(
                "warning: no interface has a default route now: the config names `eth0`, which is made \
                 up; write your links there, or name them by --link"
            );
        }
        look_at_interfaces(&links, wishes.absent)?;
        let text = text(&path, state, invitation, &links, wishes);
        let parsed = EdgeConfig::parse(&path.display().to_string(), text.as_bytes());
        let config = parsed.map_err(ConfigError::Invalid)?.config;
        let draft = Some(Draft::write(&path, &text)?);
        Ok(Self {
            path,
            config,
            draft,
        })
    }

    /// Puts the config in its place unless one is there.
    pub(super) fn publish(&self) -> Result<(), Failure> {
        let path = &self.path;
        let published = match &self.draft {
            Some(draft) => fs::hard_link(&draft.0, path),
            None => Err(io::ErrorKind::AlreadyExists.into()),
        };
        match published {
            Ok(()) => output::say!(
                "Its first config is {}: look at its links and routes.",
                path.display()
            ),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                output::say!("{} stays as it is.", path.display());
            }
            Err(error) => return Err(unwritable(path, &error)),
        }
        Ok(())
    }
}

/// An edge with this config takes its identity from there.
fn belongs_to(config: &EdgeConfig, path: &Path, state: &Path) -> Result<(), Failure> {
    let [of_config, wanted] = [&config.state, state].map(absolute);
    // Where a relative one is depends on where the daemon is started.
    if of_config == wanted || config.state.is_relative() {
        return Ok(());
    }
    let (path, of_config) = (path.display(), of_config.display());
    let what = format!(
        "the edge of {path} has its identity in {of_config}, and not in {}",
        wanted.display()
    );
    Err(Failure::usage(what).hint(format!("say --state {of_config}, or name another --config")))
}

/// A file beside the one that it may become, which goes when this does.
struct Draft(PathBuf);

impl Draft {
    fn write(path: &Path, text: &str) -> Result<Self, Failure> {
        let draft = Self(path.with_added_extension("draft"));
        if let Some(parent) = path.parent() {
            // What fails here fails below too, and says so.
            let _ = fs::create_dir_all(parent);
        }
        let _ = fs::remove_file(&draft.0);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).open(&draft.0);
        let written = file.and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        match written {
            Ok(()) => Ok(draft),
            Err(error) => Err(unwritable(path, &error)),
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::io(error, format!("cannot write {}: {error}", path.display()))
}

/// A mistyped interface is told before the token is used; one that comes later is nothing wrong.
fn look_at_interfaces(links: &[StarterLink], absent: bool) -> Result<(), Failure> {
    for StarterLink { name, interface } in links.iter().filter(|it| is_missing(&it.interface)) {
        let what = format!("link `{name}`: there is no interface `{interface}` on this host now");
        if !absent {
            let hint = format!(
                "there are {}; if it comes later: --absent (the token is not used yet)",
                interfaces().join(", ")
            );
            return Err(Failure::new(Exit::NotFound, what).hint(hint));
        }
        output::say!("warning: {what}: the link waits for it");
    }
    Ok(())
}

/// What may be a link.
fn interfaces() -> Vec<String> {
    let found = fs::read_dir("/sys/class/net")
        .into_iter()
        .flatten()
        .flatten();
    let names = found.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name != "lo").collect();
    names.sort();
    names
}

fn is_missing(interface: &str) -> bool {
    !Path::new("/sys/class/net").join(interface).exists()
}

/// Where the hub's config goes, or is.
///
/// # Errors
/// If something else is there, such as the directory that Docker makes of a file to be mounted.
pub(super) fn place_of_hub(state: &Path, file: Option<&Path>) -> Result<PathBuf, Failure> {
    let path = place(file, state, Path::new(DEFAULT_HUB_FILE));
    match path.metadata() {
        Ok(there) if !there.is_file() => Err(Failure::runtime(format!(
            "{} is there, and no regular file",
            path.display()
        ))
        .hint("remove it, or name another place: --config FILE; in a container mount a directory")),
        Ok(_) | Err(_) => Ok(path),
    }
}

/// Writes the hub's config unless it is there.
pub(super) fn write_hub(state: &Path, path: &Path) -> Result<(), Failure> {
    let text = format!(
        "[hub]\nlisten = [\"0.0.0.0:443\", \"[::]:443\"]\nstate = {}\n\
         pool = [\"10.200.0.0/16\", \"fd5e:1::/64\"]   # sites get their addresses from here\n\
         nat = true                                 # masquerade what leaves for the internet\n\n\
         # What may be reached: everything, internet (public addresses, but for those behind sites),\n\
         # sites (the others, and what is behind them), hub (its own services), and prefixes. Of one\n\
         # site: sennit sites reach SITE PLACE...\n\
         reach = [\"everything\"]                     # by sites, so they reach each other too\n\
         bearer_reach = [\"internet\"]                # by clients with a bearer token\n",
        quoted(&absolute(state)),
    );
    if let Some(parent) = path.parent() {
        // What fails here fails below too, and says so.
        let _ = fs::create_dir_all(parent);
    }
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    match file.and_then(|mut file| file.write_all(text.as_bytes())) {
        Ok(()) => output::say!(
            "Its first config is {}: look at its addresses and reach.",
            path.display()
        ),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            output::say!("{} stays as it is.", path.display());
        }
        Err(error) => return Err(unwritable(path, &error)),
    }
    Ok(())
}

/// The unit that reads this config, if one does.
pub(super) fn unit(role: &str, config: &Path) -> Option<String> {
    let usual = [(DEFAULT_EDGE_FILE, "edge"), (DEFAULT_HUB_FILE, "hub")];
    if let Some((_, role)) = usual.iter().find(|(file, _)| Path::new(file) == config) {
        return Some(format!("sennit-{role}"));
    }
    let is_beside = config.parent() == Path::new(DEFAULT_EDGE_FILE).parent();
    let name = config.file_stem()?.to_str()?;
    let is_read = is_beside && role == "edge" && config.extension()? == "toml";
    is_read.then(|| format!("sennit-edge@{name}"))
}

/// How to run a daemon with this config in the foreground.
fn command(role: &str, config: &Path) -> String {
    let usual = [DEFAULT_HUB_FILE, DEFAULT_EDGE_FILE].map(Path::new);
    match usual.contains(&config) {
        true => format!("sennit {role}"),
        false => format!("sennit {role} --config {}", config.display()),
    }
}

/// Says how to start a daemon with this config.
pub(super) fn say_start(role: &str, config: &Path) {
    if let Some(unit) = unit(role, config) {
        output::say!("  systemctl enable --now {unit}\nor without systemd:");
    }
    output::say!("  {}", command(role, config));
}

/// Says what two hubs on a host cannot share, to whoever makes one in another state directory than
/// the usual one.
pub(super) fn say_beside(state: &Path, config: &Path) {
    if state != Path::new(DEFAULT_STATE) {
        output::say!(
            "Beside another hub on this host, `device`, `control`, `listen` and `pool` in {} have \
             to be others than that hub's.",
            config.display()
        );
    }
}

/// Says where an edge is asked that is not found without being named.
pub(super) fn say_asked(config: &EdgeConfig) {
    let control = &config.control;
    if control != Path::new(DEFAULT_EDGE_CONTROL) {
        output::say!("Ask it: sennit status --control {}", control.display());
    }
}

/// How to have one that runs begin anew.
pub(super) fn say_restart(role: &str, config: &Path) {
    let how = unit(role, config).map(|unit| format!("systemctl restart {unit}"));
    output::say!("  {}", how.unwrap_or_else(|| command(role, config)));
}

/// Where a config goes: where somebody wants it, else where the unit reads it. Another state
/// directory than the usual one is another daemon's, whose config goes there too.
fn place(wanted: Option<&Path>, state: &Path, usual: &Path) -> PathBuf {
    match (wanted, usual.file_name()) {
        (Some(wanted), _) => wanted.into(),
        (None, Some(name)) if state != Path::new(DEFAULT_STATE) => state.join(name),
        (None, _) => usual.into(),
    }
}

fn absolute(state: &Path) -> PathBuf {
    fs::canonicalize(state)
        .or_else(|_| std::path::absolute(state))
        .unwrap_or_else(|_| state.into())
}

/// A link on each interface with a default route; none where the kernel cannot be asked.
fn found_links() -> Vec<StarterLink> {
    let Ok(mut netlink) = Netlink::open() else {
        return Vec::new();
    };
    let of = |family| netlink.main_routes(family).unwrap_or_default();
    let routes = Family::BOTH.map(of);
    let indices = with_default_route(&routes).into_iter();
    let names = indices.filter_map(|index| netlink.name_of(index));
    let links = names.map(|name| StarterLink {
        name: name.clone(),
        interface: name,
    });
    links.collect()
}

/// The interfaces by which a default route of others leads, the preferred first: those of IPv4
/// before what only IPv6 has.
fn with_default_route(families: &[Vec<Route>]) -> Vec<u32> {
    let mut found = Vec::new();
    for routes in families {
        let leads_away = |it: &&Route| it.is_default() && !it.is_ours() && !it.unreachable;
        let mut defaults: Vec<&Route> = routes.iter().filter(leads_away).collect();
        defaults.sort_by_key(|route| (route.metric, route.device));
        for route in defaults {
            if !found.contains(&route.device) {
                found.push(route.device);
            }
        }
    }
    found
}

/// What no other edge of this host may have, named after the config or the state directory of this
/// one; of the usual edge it goes without saying.
fn own_keys(config: &Path, state: &Path) -> Option<String> {
    // A router whose /var is in memory keeps the usual edge's state beside its config.
    let beside_config = Path::new(DEFAULT_EDGE_FILE).parent();
    if state == Path::new(DEFAULT_STATE) || Some(state) == beside_config {
        return None;
    }
    let name = name_beside(config, state)?;
    let control = Path::new(RUN_DIRECTORY).join(format!("{name}.sock"));
    let (name, control) = (quoted(Path::new(name.as_str())), quoted(&control));
    Some(format!(
        "device = {name}   # no other edge of this host has these two\ncontrol = {control}\n"
    ))
}

fn name_beside(config: &Path, state: &Path) -> Option<DeviceName> {
    let usual = Path::new(DEFAULT_EDGE_FILE).file_stem();
    let of_config = config.file_stem().filter(|stem| Some(*stem) != usual);
    let state = absolute(state);
    let name = of_config.or(state.file_name())?.to_string_lossy();
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let begun = name.chars().skip_while(|c| !c.is_ascii_alphanumeric());
    let legal = begun.map(|c| if is_legal(c) { c } else { '-' });
    legal.take(15).collect::<String>().parse().ok()
}

fn text(
    file: &Path,
    state: &Path,
    invitation: &Invitation,
    links: &[StarterLink],
    wishes: &Wishes<'_>,
) -> String {
    let hubs: Vec<String> = invitation
        .hubs
        .iter()
        .map(|hub| format!("\"{hub}\""))
        .collect();
    let routes = if wishes.route_all {
        "routes = [\"0.0.0.0/0\", \"::/0\"]   # what goes into the tunnel"
    } else {
        "routes = []        # what goes into the tunnel; everything: [\"0.0.0.0/0\", \"::/0\"]"
    };
    let lans: Vec<String> = wishes.lans.iter().map(|lan| format!("\"{lan}\"")).collect();
    let lan = match lans.is_empty() {
        true => "lan = []           # prefixes behind this edge, like [\"192.168.8.0/24\"]".into(),
        false => format!("lan = [{}]   # behind this edge", lans.join(", ")),
    };
    let mut text = format!(
        "# Site {}\n[edge]\nhub = [{}]\nstate = {}\n{}{routes}\n{lan}\n\n\
         # One [[link]] for each WAN interface.\n",
        invitation.site,
        hubs.join(", "),
        quoted(&absolute(state)),
        own_keys(file, state).unwrap_or_default(),
    );
    if links.is_empty() {
        text += "# No interface has a default route now: name yours.\n";
    }
    let placeholder = [StarterLink {
        name: "eth0".into(),
        interface: "eth0".into(),
    }];
    let links = if links.is_empty() {
        &placeholder
    } else {
        links
    };
    for StarterLink { name, interface } in links {
        let [name, interface] = [name, interface].map(|it| quoted(Path::new(it)));
        text += &format!("[[link]]\nname = {name}\ninterface = {interface}\n\n");
    }
    text.trim_end().to_owned() + "\n"
}

/// A TOML basic string; JSON's escapes are a subset of TOML's, but for DEL.
fn quoted(path: &Path) -> String {
    let json = serde_json::Value::from(path.display().to_string()).to_string();
    json.replace('\u{7f}', "\\u007F")
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::identity::{Fingerprint, Secret};

    #[test]
    fn a_config_goes_where_its_unit_reads_it_unless_the_state_is_elsewhere() {
        let usual = Path::new(DEFAULT_HUB_FILE);
        let placed = |wanted: Option<&str>, state: &str| {
            place(wanted.map(Path::new), Path::new(state), usual)
        };

        assert_eq!(placed(None, "/var/lib/sennit"), usual);
        assert_eq!(placed(None, "/var/lib/sennit/"), usual);
        assert_eq!(placed(None, "/srv/a"), Path::new("/srv/a/hub.toml"));
        assert_eq!(placed(Some("/x.toml"), "/srv/a"), Path::new("/x.toml"));
    }

    fn edge(file: &str, state: &str, lans: &[&str]) -> EdgeConfig {
        let invitation = Invitation {
            site: "van-07".parse().unwrap(),
            hubs: vec!["203.0.113.10:443".parse().unwrap()],
            authority: Fingerprint::of(b"any"),
            secret: Secret::random(),
            expires: SystemTime::UNIX_EPOCH,
        };
        let lans: Vec<Prefix> = lans.iter().map(|lan| lan.parse().unwrap()).collect();
        let wishes = Wishes {
            lans: &lans,
            ..Wishes::default()
        };
        let text = text(Path::new(file), Path::new(state), &invitation, &[], &wishes);
        EdgeConfig::parse(file, text.as_bytes()).unwrap().config
    }

    #[test]
    fn a_second_edge_of_a_host_has_a_device_and_a_socket_of_its_own() {
        let of = |file: &str, state: &str| {
            let edge = edge(file, state, &[]);
            (edge.device.to_string(), edge.control)
        };
        let is = |name: &str, control: &str| (name.to_owned(), PathBuf::from(control));

        let usual = of("/etc/sennit/edge.toml", "/var/lib/sennit");
        let router = of("/etc/sennit/joined.toml", "/etc/sennit");
        let bulk = of("/etc/sennit/bulk.toml", "/var/lib/sennit/bulk");
        let hidden = of("/srv/.dock/edge.toml", "/srv/.dock");
        let north = of(
            "/srv/vessel of the north/edge.toml",
            "/srv/vessel of the north",
        );

        assert_eq!(usual, is("sennit0", "/run/sennit/edge.sock"));
        assert_eq!(router, usual);
        assert_eq!(bulk, is("bulk", "/run/sennit/bulk.sock"));
        assert_eq!(hidden, is("dock", "/run/sennit/dock.sock"));
        assert_eq!(
            north,
            is("vessel-of-the-n", "/run/sennit/vessel-of-the-n.sock")
        );
    }

    #[test]
    fn what_is_behind_the_edge_is_in_its_first_config() {
        let lans = ["192.168.8.0/24", "fd08::/64"];
        let edge = edge("edge.toml", "/var/lib/sennit", &lans);

        assert_eq!(edge.lan, lans.map(|lan| lan.parse::<Prefix>().unwrap()));
    }

    #[test]
    fn units_are_known_by_the_configs_that_they_read() {
        let unit = |role, file: &str| unit(role, Path::new(file));

        assert_eq!(
            unit("edge", DEFAULT_EDGE_FILE).as_deref(),
            Some("sennit-edge")
        );
        assert_eq!(unit("hub", DEFAULT_HUB_FILE).as_deref(), Some("sennit-hub"));
        let bulk = unit("edge", "/etc/sennit/bulk.toml");
        assert_eq!(bulk.as_deref(), Some("sennit-edge@bulk"));
        assert_eq!(unit("hub", "/etc/sennit/far.toml"), None);
        assert_eq!(unit("edge", "/srv/edge.toml"), None);
    }

    #[test]
    fn links_are_the_interfaces_with_a_default_route() {
        let route = |destination: &str, device, metric| Route {
            metric,
            protocol: 4,
            ..Route::via_device(destination.parse().unwrap(), device, 254)
        };
        let v4 = [
            route("0.0.0.0/0", 3, 700),
            route("0.0.0.0/0", 2, 100),
            route("192.168.0.0/24", 4, 100),
            route("0.0.0.0/1", 5, 0),
            Route::via_device(Family::V4.default_prefix(), 6, 254),
            Route {
                protocol: 4,
                ..Route::unreachable(Family::V4.default_prefix(), 254, 5)
            },
        ];
        let v6 = [route("::/0", 7, 1024), route("::/0", 3, 50)];
        assert_eq!(with_default_route(&[v4.into(), v6.into()]), [2, 3, 7]);

        let link: StarterLink = "starlink=eth1".parse().unwrap();
        assert_eq!((&*link.name, &*link.interface), ("starlink", "eth1"));
        assert!("=eth1".parse::<StarterLink>().is_err());
    }
}
