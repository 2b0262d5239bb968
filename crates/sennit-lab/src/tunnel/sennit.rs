//! Sennit itself: a hub and its edges as daemons on their hosts, joined as a user would.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use toml::{Table, Value};

use super::{Daemons, UP, log, spawn, stop};
use crate::error::{Doing, Error};
use crate::host::{Host, Role, Running, feed, run};
use crate::lab::Lab;
use crate::plan;
use crate::scenario::TunnelTable;
use crate::scratch::Scratch;
use crate::site::Site;

/// The hub's port.
const PORT: u16 = 443;

/// A running hub and its edges; dropping it ends them all.
#[derive(Debug)]
pub(super) struct Sennit<'a> {
    lab: &'a Lab,
    program: PathBuf,
    // The daemons end before their directory goes.
    pub(super) daemons: Daemons,
    scratch: Scratch,
}

/// One daemon, before it runs and when it is asked.
struct End<'a> {
    host: &'a Host,
    role: Role,
    /// What its files are called: by its role, and its number if there are several edges.
    name: String,
}

impl<'a> Sennit<'a> {
    /// Makes identities, joins the edges, starts all and waits until their tunnels are up.
    pub(super) fn start(
        lab: &'a Lab,
        table: &TunnelTable,
        program: &Path,
        logs: &Path,
    ) -> Result<Self, Error> {
        let scratch = Scratch::create()?;
        let path = scratch.path();
        let hub = End::hub(lab);
        run(Command::new(program)
            .args(["hub", "init", "--state"])
            .arg(hub.state(path)))?;
        hub.write_config(hub_config(&table.hub), path, logs)?;
        for (site, edge) in lab.sites().zip(End::edges(lab)) {
            join(
                program,
                &hub.state(path),
                &site.own("lab"),
                &site.lan().prefixes(),
                &edge.state(path),
            )?;
            edge.write_config(edge_config(site, table), path, logs)?;
        }
        let mut daemons = Daemons::new(hub.start(program, logs)?, logs);
        for edge in End::edges(lab) {
            daemons.add(&edge.name, edge.start(program, logs)?);
        }
        let mut tunnel = Self {
            lab,
            program: program.to_owned(),
            daemons,
            scratch,
        };
        End::edges(lab).try_for_each(|edge| tunnel.wait_until_up(&edge))?;
        Ok(tunnel)
    }

    /// Stops a daemon and starts it again: the hub is asked to stop, the only edge is killed.
    pub(super) fn restart(&mut self, role: Role) -> Result<(), Error> {
        let daemon = self.daemons.of(role);
        match role {
            Role::Hub => stop(daemon),
            Role::Edge | Role::Lan | Role::Server => daemon.signal(Signal::KILL),
        }
        let _ = daemon.child().wait();
        let mut ends = End::all(self.lab).filter(|end| end.role == role);
        let end = ends.next().expect("a hub and an edge have daemons");
        *self.daemons.of(role) = end.start(&self.program, &self.daemons.logs)?;
        Ok(())
    }

    /// The daemons' own view: the hub's, then that of each edge.
    pub(super) fn status(&self) -> Vec<serde_json::Value> {
        End::all(self.lab)
            .map(|end| self.status_of(&end).unwrap_or_default())
            .collect()
    }

    /// A daemon that ends meanwhile is the reason at once.
    fn wait_until_up(&mut self, edge: &End<'_>) -> Result<(), Error> {
        let mut command = edge.status(&self.program, self.scratch.path());
        command.args(["--wait", "up", "--timeout", &UP.as_secs().to_string()]);
        let mut waiting = Running::start(command.stdin(Stdio::null()).stdout(Stdio::null()))?;
        loop {
            self.daemons.check_alive()?;
            match waiting
                .child()
                .try_wait()
                .doing(|| "wait for the tunnel".into())?
            {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    let what = format!("did not come up ({status})");
                    return Err(self.daemons.failed(&edge.name, &what));
                }
                None => std::thread::sleep(std::time::Duration::from_millis(5)),
            }
        }
    }

    fn status_of(&self, end: &End<'_>) -> Option<serde_json::Value> {
        let output = run(&mut end.status(&self.program, self.scratch.path())).ok()?;
        serde_json::from_slice(&output.stdout).ok()
    }
}

impl<'a> End<'a> {
    fn hub(lab: &'a Lab) -> Self {
        let role = Role::Hub;
        Self {
            host: lab.host(role),
            role,
            name: role.to_string(),
        }
    }

    fn edges(lab: &'a Lab) -> impl Iterator<Item = Self> {
        let role = Role::Edge;
        lab.sites().map(move |site| Self {
            host: site.host(role),
            role,
            name: site.own(&role.to_string()),
        })
    }

    fn all(lab: &'a Lab) -> impl Iterator<Item = Self> {
        [Self::hub(lab)].into_iter().chain(Self::edges(lab))
    }

    fn state(&self, scratch: &Path) -> PathBuf {
        scratch.join(&self.name)
    }

    fn control(&self, scratch: &Path) -> PathBuf {
        scratch.join(format!("{}.sock", self.name))
    }

    fn config(&self, logs: &Path) -> PathBuf {
        logs.join(format!("{}.toml", self.name))
    }

    fn start(&self, program: &Path, logs: &Path) -> Result<Running, Error> {
        let mut command = self.host.command(program);
        command
            .arg(self.role.to_string())
            .arg("--config")
            .arg(self.config(logs));
        spawn(&mut command, &log(logs, &self.name))
    }

    fn status(&self, program: &Path, scratch: &Path) -> Command {
        let mut command = self.host.command(program);
        command
            .args(["status", "--json", "--control"])
            .arg(self.control(scratch));
        command
    }

    fn write_config(&self, mut config: Table, scratch: &Path, logs: &Path) -> Result<(), Error> {
        if let Some(Value::Table(own)) = config.get_mut(&self.role.to_string()) {
            let paths = [
                ("state", self.state(scratch)),
                ("control", self.control(scratch)),
            ];
            own.extend(paths.map(|(key, path)| (key.into(), path.display().to_string().into())));
        }
        let path = self.config(logs);
        let text = toml::to_string(&config).expect("a table of tables has a TOML form");
        std::fs::write(&path, text).doing(|| format!("write {}", path.display()))
    }
}

/// Lets an edge of this name be the hub's.
fn join(program: &Path, hub: &Path, name: &str, lan: &[String], edge: &Path) -> Result<(), Error> {
    let address = format!("{}:{PORT}", plan::HUB.v4);
    let mut invite = Command::new(program);
    let invited = run(invite
        .args(["invite", name, "--hub", &address])
        .args(lan.iter().flat_map(|prefix| ["--lan", prefix]))
        .arg("--state")
        .arg(hub))?;
    let token = String::from_utf8_lossy(&invited.stdout);
    // By standard input: everybody may read command lines.
    let mut join = Command::new(program);
    feed(
        join.args(["join", "-", "--offline", "--state"]).arg(edge),
        &token,
    )
    .map(drop)
}

fn hub_config(extra: &Table) -> Table {
    let mut hub = Table::new();
    hub.insert(
        "listen".into(),
        vec![format!("0.0.0.0:{PORT}"), format!("[::]:{PORT}")].into(),
    );
    hub.insert("pool".into(), plan::INNER_PREFIXES.to_vec().into());
    hub.insert("nat".into(), true.into());
    hub.insert("device".into(), "sennit0".into());
    hub.extend(extra.clone());
    Table::from_iter([("hub".to_owned(), Value::Table(hub))])
}

fn edge_config(site: Site<'_>, table: &TunnelTable) -> Table {
    let mut edge = Table::new();
    edge.insert(
        "hub".into(),
        vec![format!("{}:{PORT}", plan::HUB.v4)].into(),
    );
    edge.insert("device".into(), "sennit0".into());
    edge.insert("routes".into(), vec!["0.0.0.0/0", "::/0"].into());
    edge.insert("lan".into(), site.lan().prefixes().to_vec().into());
    edge.extend(table.edge.clone());
    let links = site.links().map(|link| {
        let (mut entry, name) = (Table::new(), &link.spec().name);
        entry.insert("name".into(), name.as_str().into());
        entry.insert("interface".into(), link.device().into());
        entry.extend(table.link.get(name).cloned().unwrap_or_default());
        Value::Table(entry)
    });
    let mut config = Table::from_iter([
        ("edge".to_owned(), Value::Table(edge)),
        ("link".to_owned(), Value::Array(links.collect())),
    ]);
    if !table.class.is_empty() {
        let classes = table.class.iter().cloned().map(Value::Table);
        config.insert("class".into(), Value::Array(classes.collect()));
    }
    config
}
