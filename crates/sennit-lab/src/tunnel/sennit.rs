//! Sennit itself: a hub and an edge daemon on their hosts, joined as a user would.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use toml::{Table, Value};

use super::{Daemons, UP, log, spawn, stop};
use crate::error::{Doing, Error};
use crate::host::{Role, Running, feed, run};
use crate::lab::Lab;
use crate::plan;
use crate::scenario::TunnelTable;
use crate::scratch::Scratch;

/// The hub's port.
const PORT: u16 = 443;

/// A running hub and edge; dropping it kills both.
#[derive(Debug)]
pub(super) struct Sennit<'a> {
    lab: &'a Lab,
    program: PathBuf,
    // The daemons end before their directory goes.
    pub(super) daemons: Daemons,
    scratch: Scratch,
}

impl<'a> Sennit<'a> {
    /// Makes identities, joins the edge, starts both and waits until the tunnel is up.
    pub(super) fn start(
        lab: &'a Lab,
        table: &TunnelTable,
        program: &Path,
        logs: &Path,
    ) -> Result<Self, Error> {
        let scratch = Scratch::create()?;
        join(program, scratch.path())?;
        for role in [Role::Hub, Role::Edge] {
            write_config(lab, table, role, scratch.path(), logs)?;
        }
        let start = |role| start(lab, role, program, logs);
        let (hub, edge) = (start(Role::Hub)?, start(Role::Edge)?);
        let mut tunnel = Self {
            lab,
            program: program.to_owned(),
            daemons: Daemons::new(hub, edge, logs),
            scratch,
        };
        tunnel.wait_until_up()?;
        Ok(tunnel)
    }

    /// Stops a daemon and starts it again: the hub is asked to stop, the edge is killed.
    pub(super) fn restart(&mut self, role: Role) -> Result<(), Error> {
        let daemon = self.daemons.of(role);
        match role {
            Role::Hub => stop(daemon),
            Role::Edge | Role::Lan | Role::Server => daemon.signal(Signal::KILL),
        }
        let _ = daemon.child().wait();
        let fresh = start(self.lab, role, &self.program, &self.daemons.logs)?;
        *self.daemons.of(role) = fresh;
        Ok(())
    }

    /// The daemons' own view: hub, then edge.
    pub(super) fn status(&self) -> [serde_json::Value; 2] {
        [Role::Hub, Role::Edge].map(|role| self.status_of(role).unwrap_or_default())
    }

    /// A daemon that ends meanwhile is the reason at once.
    fn wait_until_up(&mut self) -> Result<(), Error> {
        let (control, timeout) = (
            control(self.scratch.path(), Role::Edge),
            UP.as_secs().to_string(),
        );
        let mut command = self.lab.host(Role::Edge).command(&self.program);
        command.arg("status").arg("--control").arg(control);
        command.args(["--json", "--wait", "up", "--timeout", &timeout]);
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
                    return Err(self.daemons.failed(Role::Edge, &what));
                }
                None => std::thread::sleep(std::time::Duration::from_millis(5)),
            }
        }
    }

    fn status_of(&self, role: Role) -> Option<serde_json::Value> {
        let mut command = self.lab.host(role).command(&self.program);
        command.arg("status").arg("--json");
        command
            .arg("--control")
            .arg(control(self.scratch.path(), role));
        let output = run(&mut command).ok()?;
        serde_json::from_slice(&output.stdout).ok()
    }
}

fn join(program: &Path, scratch: &Path) -> Result<(), Error> {
    let (hub, edge) = (scratch.join("hub"), scratch.join("edge"));
    run(Command::new(program)
        .args(["hub", "init", "--state"])
        .arg(&hub))?;
    let address = format!("{}:{PORT}", plan::HUB.v4);
    let mut invite = Command::new(program);
    let invited = run(invite
        .args(["invite", "lab", "--hub", &address, "--state"])
        .arg(&hub))?;
    let token = String::from_utf8_lossy(&invited.stdout);
    // By standard input: everybody may read command lines.
    let mut join = Command::new(program);
    feed(join.args(["join", "-", "--state"]).arg(&edge), &token).map(drop)
}

fn start(lab: &Lab, role: Role, program: &Path, logs: &Path) -> Result<Running, Error> {
    let mut command = lab.host(role).command(program);
    command
        .arg(role.to_string())
        .arg("--config")
        .arg(logs.join(format!("{role}.toml")));
    spawn(&mut command, &log(logs, role))
}

fn control(scratch: &Path, role: Role) -> PathBuf {
    scratch.join(format!("{role}.sock"))
}

fn write_config(
    lab: &Lab,
    table: &TunnelTable,
    role: Role,
    scratch: &Path,
    logs: &Path,
) -> Result<(), Error> {
    let mut config = match role {
        Role::Hub => hub_config(&table.hub),
        Role::Edge | Role::Lan | Role::Server => edge_config(lab, table),
    };
    if let Some(Value::Table(own)) = config.get_mut(&role.to_string()) {
        let state = scratch.join(role.to_string()).display().to_string();
        own.insert("state".into(), state.into());
        own.insert(
            "control".into(),
            control(scratch, role).display().to_string().into(),
        );
    }
    let path = logs.join(format!("{role}.toml"));
    let text = toml::to_string(&config).expect("a table of tables has a TOML form");
    std::fs::write(&path, text).doing(|| format!("write {}", path.display()))
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

fn edge_config(lab: &Lab, table: &TunnelTable) -> Table {
    let mut edge = Table::new();
    edge.insert(
        "hub".into(),
        vec![format!("{}:{PORT}", plan::HUB.v4)].into(),
    );
    edge.insert("device".into(), "sennit0".into());
    edge.insert("routes".into(), vec!["0.0.0.0/0", "::/0"].into());
    edge.insert("lan".into(), plan::LAN_PREFIXES.to_vec().into());
    edge.extend(table.edge.clone());
    let links = lab.links().map(|link| {
        let mut entry = Table::new();
        entry.insert("name".into(), link.name().into());
        entry.insert("interface".into(), link.device().into());
        entry.extend(table.link.get(link.name()).cloned().unwrap_or_default());
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
