//! The first `hub.toml` and `edge.toml`, written by `sennit hub init` and `join` where there is
//! none.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::{Exit, Failure, output};
use crate::config::{ConfigError, DEFAULT_EDGE_FILE, DEFAULT_HUB_FILE, DEFAULT_STATE, EdgeConfig};
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
            if !wishes.links.is_empty() || wishes.route_all {
                output::say!(
                    "warning: {} is there already: --link and --route-all change nothing in it",
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
        let found = default_routes(&fs::read_to_string("/proc/net/route").unwrap_or_default());
        let found = found.iter().map(|interface| StarterLink {
            name: interface.clone(),
            interface: interface.clone(),
        });
        let links = match wishes.links {
            [] => found.collect(),
            links => links.to_vec(),
        };
        look_at_interfaces(&links, wishes.absent)?;
        let text = text(&absolute(state), invitation, &links, wishes.route_all);
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

/// Writes the hub's config unless it is there; its path.
pub(super) fn write_hub(state: &Path, file: Option<&Path>) -> Result<PathBuf, Failure> {
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
    let path = place(file, state, Path::new(DEFAULT_HUB_FILE));
    if let Some(parent) = path.parent() {
        // What fails here fails below too, and says so.
        let _ = fs::create_dir_all(parent);
    }
    let file = OpenOptions::new().write(true).create_new(true).open(&path);
    match file.and_then(|mut file| file.write_all(text.as_bytes())) {
        Ok(()) => output::say!(
            "Its first config is {}: look at its addresses and reach.",
            path.display()
        ),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            output::say!("{} stays as it is.", path.display());
        }
        Err(error) => return Err(unwritable(&path, &error)),
    }
    Ok(path)
}

/// Says how to start a daemon with this config.
pub(super) fn say_start(role: &str, config: &Path) {
    if [DEFAULT_HUB_FILE, DEFAULT_EDGE_FILE]
        .map(Path::new)
        .contains(&config)
    {
        output::say!(
            "  systemctl enable --now sennit-{role}\nor without systemd:\n  sennit {role}"
        );
    } else {
        output::say!("  sennit {role} --config {}", config.display());
    }
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

/// How to have one that runs begin anew.
pub(super) fn say_restart(role: &str, config: &Path) {
    let usual = [DEFAULT_HUB_FILE, DEFAULT_EDGE_FILE].map(Path::new);
    let how = match usual.contains(&config) {
        true => format!("systemctl restart sennit-{role}"),
        false => format!("sennit {role} --config {}", config.display()),
    };
    output::say!("  {how}");
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

/// The interfaces with an IPv4 default route, as `/proc/net/route` lists them, the preferred first.
fn default_routes(table: &str) -> Vec<String> {
    let mut found: Vec<(u32, String)> = Vec::new();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let [interface, "00000000", _, _, _, _, metric, "00000000", ..] = fields[..]
            && !found.iter().any(|(_, other)| other == interface)
        {
            found.push((metric.parse().unwrap_or(u32::MAX), interface.into()));
        }
    }
    found.sort();
    found.into_iter().map(|(_, interface)| interface).collect()
}

fn text(state: &Path, invitation: &Invitation, links: &[StarterLink], route_all: bool) -> String {
    let hubs: Vec<String> = invitation
        .hubs
        .iter()
        .map(|hub| format!("\"{hub}\""))
        .collect();
    let routes = if route_all {
        "routes = [\"0.0.0.0/0\", \"::/0\"]   # what goes into the tunnel"
    } else {
        "routes = []        # what goes into the tunnel; everything: [\"0.0.0.0/0\", \"::/0\"]"
    };
    let mut text = format!(
        "# Site {}\n[edge]\nhub = [{}]\nstate = {}\n{routes}\n\
         lan = []           # prefixes behind this edge, like [\"192.168.8.0/24\"]\n\n\
         # One [[link]] for each WAN interface.\n",
        invitation.site,
        hubs.join(", "),
        quoted(state),
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
    use super::*;

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

    #[test]
    fn links_are_the_interfaces_with_a_default_route() {
        let table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                     wwan0\t00000000\t0101A8C0\t0003\t0\t0\t700\t00000000\t0\t0\t0\n\
                     eth1\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                     eth1\t0000A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n\
                     tun0\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0\n";

        assert_eq!(default_routes(table), ["eth1", "wwan0"]);
        let link: StarterLink = "starlink=eth1".parse().unwrap();
        assert_eq!((&*link.name, &*link.interface), ("starlink", "eth1"));
        assert!("=eth1".parse::<StarterLink>().is_err());
        assert_eq!(default_routes("garbage\n\n x y"), Vec::<String>::new());
    }
}
