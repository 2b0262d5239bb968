//! Sennit itself: a hub and its edges as daemons on their hosts, joined as a user would.

mod operate;
mod shortage;
mod traces;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use toml::{Table, Value};

use self::operate::Life;
use self::shortage::Starved;
use super::{Daemons, UP, log, spawn};
use crate::error::{Doing, Error};
use crate::host::{Host, Role, Running, run};
use crate::lab::{Lab, Site};
use crate::plan;
use crate::scenario::{Action, TunnelTable};
use crate::scratch::Scratch;
pub use operate::Operated;
pub use shortage::take_files;
pub use traces::Leaks;
pub(crate) use traces::Traces;

/// The hub's port.
const PORT: u16 = 443;

/// A running hub and its edges; dropping it ends them all.
#[derive(Debug)]
pub(super) struct Sennit<'a> {
    pub(super) lab: &'a Lab,
    pub(super) program: PathBuf,
    // The daemons end before their directory goes.
    pub(super) daemons: Daemons,
    /// Those that try to join in vain.
    intruders: Vec<Running>,
    pub(super) scratch: Scratch,
    pub(super) table: TunnelTable,
    /// Whether each edge has its other config.
    pub(super) turned: Vec<bool>,
    /// The hosts before any daemon ran, if somebody wants to know.
    clean: Option<Traces>,
    /// Those that can open nothing.
    starved: Vec<Starved>,
    /// When each edge that runs was started, and those that were killed since the last look.
    started: Vec<SystemTime>,
    lives: Vec<Life>,
    pub(super) operated: Operated,
}

/// One daemon, before it runs and when it is asked.
pub(super) struct End<'a> {
    pub(super) host: &'a Host,
    role: Role,
    /// What its files are called: by its role, and its number if there are several edges.
    pub(super) name: String,
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
        if let Some(megabytes) = table.disk_mb {
            scratch.mount(megabytes)?;
        }
        let path = scratch.path();
        let look = || Traces::of_hosts(&End::all(lab).collect::<Vec<_>>());
        let clean = table.watched.then(look).transpose()?;
        let hub = End::hub(lab);
        run(Command::new(program)
            .args(["hub", "init", "--state"])
            .arg(hub.state(path)))?;
        hub.write_config(hub_config(table), path, logs)?;
        for (site, edge) in lab.sites().zip(End::edges(lab)) {
            join(program, path, site, &edge)?;
            let config = edge_config(site, &table.of_edge(site.index));
            edge.write_config(config, path, logs)?;
        }
        let mut daemons = Daemons::new(hub.start(program, logs)?, logs);
        for edge in End::edges(lab) {
            daemons.add(&edge.name, edge.start(program, logs)?);
        }
        let mut tunnel = Self {
            lab,
            program: program.to_owned(),
            daemons,
            intruders: Vec::new(),
            scratch,
            table: table.clone(),
            turned: vec![false; lab.edges()],
            clean,
            starved: Vec::new(),
            started: vec![SystemTime::now(); lab.edges()],
            lives: Vec::new(),
            operated: Operated::default(),
        };
        End::edges(lab).try_for_each(|edge| tunnel.wait_until_up(&edge))?;
        Ok(tunnel)
    }

    /// Does what happens to daemons and not to links.
    pub(super) fn apply(&mut self, action: Action, edge: usize) -> Result<(), Error> {
        match action {
            Action::RestartHub => self.restart_hub(),
            Action::KillHub => self.kill_hub(),
            Action::RestartEdge => self.restart_edge(edge),
            Action::StopAll => self.stop_all(),
            Action::FillDisk => self.scratch.fill(),
            Action::FreeDisk => self.scratch.free(),
            Action::TakeFiles => self.take_files(),
            Action::GiveFiles => self.give_files(),
            Action::Revoke => self.revoke(edge),
            Action::JoinAnew => self.join_anew(edge),
            Action::JoinUsed => self.join_used(edge),
            Action::Reload => self.reload(edge),
            Action::ReadHistory => self.read_history(),
            Action::Drill
            | Action::Outage
            | Action::Restore
            | Action::Set
            | Action::CarrierDown
            | Action::CarrierUp
            | Action::DeviceDown
            | Action::DeviceUp
            | Action::AddressRemove
            | Action::AddressAdd
            | Action::AddressChange
            | Action::DeviceDelete
            | Action::DeviceCreate
            | Action::DeviceMtu
            | Action::DeviceMtuBack
            | Action::DropIn
            | Action::DropOut
            | Action::DropMarked
            | Action::DropOnTun
            | Action::Accept
            | Action::NatForget
            | Action::NatWedge => Ok(()),
        }
    }

    fn restart_hub(&mut self) -> Result<(), Error> {
        let daemon = self.daemons.hub();
        daemon.stop();
        let _ = daemon.running.child().wait();
        self.start_hub()
    }

    /// Nobody asks it to stop.
    fn kill_hub(&mut self) -> Result<(), Error> {
        self.daemons.hub().kill();
        self.operated.kills += 1;
        self.start_hub()
    }

    fn start_hub(&mut self) -> Result<(), Error> {
        let hub = End::hub(self.lab).start(&self.program, &self.daemons.logs)?;
        self.daemons.hub().running = hub;
        Ok(())
    }

    /// Each has to end by itself, and well.
    fn stop_all(&mut self) -> Result<(), Error> {
        let ends: Vec<_> = End::all(self.lab).collect();
        // The edges first, while the hub can be told.
        for index in (0..ends.len()).rev() {
            let daemon = &mut self.daemons.all[index];
            daemon.stop();
            let ended = daemon.running.child().try_wait();
            let ended = ended.doing(|| "wait for a daemon".into())?;
            if !ended.is_some_and(|status| status.success()) {
                let what = format!("did not stop as asked ({ended:?})");
                return Err(self.daemons.failed(&ends[index].name, &what));
            }
        }
        let left = Traces::of_hosts(&ends)?;
        let clean = self.clean.iter();
        let left = clean.flat_map(|clean| left.changed(clean)).collect();
        self.operated.left = Some(left);
        for (index, end) in ends.iter().enumerate() {
            self.daemons.all[index].running = end.start(&self.program, &self.daemons.logs)?;
        }
        self.wait_until_all_up()
    }

    /// Nobody asks it to stop.
    fn restart_edge(&mut self, index: usize) -> Result<(), Error> {
        let killed = SystemTime::now();
        self.daemons.edge(index).kill();
        self.operated.kills += 1;
        let from = std::mem::replace(&mut self.started[index], SystemTime::now());
        self.lives.push(Life {
            edge: index,
            from,
            killed,
        });
        let edge = End::edge(self.lab, index).start(&self.program, &self.daemons.logs)?;
        self.daemons.edge(index).running = edge;
        Ok(())
    }

    fn revoke(&self, index: usize) -> Result<(), Error> {
        let (hub, scratch) = (End::hub(self.lab), self.scratch.path());
        let mut command = Command::new(&self.program);
        command.args(["revoke", &site_name(self.site(index))]);
        command.arg("--state").arg(hub.state(scratch));
        run(command.arg("--control").arg(hub.control(scratch))).map(drop)
    }

    fn join_anew(&mut self, index: usize) -> Result<(), Error> {
        let (edge, scratch) = (End::edge(self.lab, index), self.scratch.path());
        let state = edge.state(scratch);
        std::fs::remove_dir_all(&state).doing(|| format!("remove {}", state.display()))?;
        join(&self.program, scratch, self.site(index), &edge)?;
        self.restart_edge(index)
    }

    /// It is not waited for.
    fn join_used(&mut self, index: usize) -> Result<(), Error> {
        let (edge, scratch) = (End::edge(self.lab, index), self.scratch.path());
        let ended = |running: &mut Running| matches!(running.child().try_wait(), Ok(Some(_)));
        self.intruders.retain_mut(|running| !ended(running));
        let mut command = edge.host.command(&self.program);
        command.arg("join");
        command.arg(format!("file:{}", edge.token(scratch).display()));
        command.arg("--state");
        command.arg(scratch.join(format!("intruder-{}", self.intruders.len())));
        let log = log(&self.daemons.logs, "intruders");
        self.intruders.push(spawn(&mut command, &log)?);
        Ok(())
    }

    pub(super) fn site(&self, index: usize) -> Site<'a> {
        Site {
            lab: self.lab,
            index,
        }
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

    /// The control sockets: the hub's, then that of each edge.
    pub(super) fn controls(&self) -> Vec<PathBuf> {
        End::all(self.lab)
            .map(|end| end.control(self.scratch.path()))
            .collect()
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

    pub(super) fn edge(lab: &'a Lab, index: usize) -> Self {
        let (site, role) = (Site { lab, index }, Role::Edge);
        Self {
            host: site.host(role),
            role,
            name: site.own(&role.to_string()),
        }
    }

    fn edges(lab: &'a Lab) -> impl Iterator<Item = Self> {
        (0..lab.edges()).map(move |index| Self::edge(lab, index))
    }

    pub(super) fn all(lab: &'a Lab) -> impl Iterator<Item = Self> {
        [Self::hub(lab)].into_iter().chain(Self::edges(lab))
    }

    fn state(&self, scratch: &Path) -> PathBuf {
        scratch.join(&self.name)
    }

    /// The token that it joined with.
    fn token(&self, scratch: &Path) -> PathBuf {
        scratch.join(format!("{}.token", self.name))
    }

    pub(super) fn control(&self, scratch: &Path) -> PathBuf {
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

    pub(super) fn write_config(
        &self,
        mut config: Table,
        scratch: &Path,
        logs: &Path,
    ) -> Result<(), Error> {
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

fn add_api(config: &mut Table, table: &TunnelTable) {
    if !table.api.is_empty() {
        config.insert("api".into(), Value::Table(table.api.clone()));
    }
}

/// What the hub calls a site.
fn site_name(site: Site<'_>) -> String {
    site.own("lab")
}

/// Invites a site, and lets its edge be the hub's when it is next started.
fn join(program: &Path, scratch: &Path, site: Site<'_>, edge: &End<'_>) -> Result<(), Error> {
    let address = format!("{}:{PORT}", plan::HUB.v4);
    let lan = site.lan().prefixes();
    let mut invite = Command::new(program);
    let invited = run(invite
        .args(["invite", &site_name(site), "--hub", &address])
        .args(lan.iter().flat_map(|prefix| ["--lan", prefix]))
        .arg("--state")
        .arg(End::hub(site.lab).state(scratch)))?;
    // In a file of a directory that is ours alone: everybody may read command lines.
    let token = edge.token(scratch);
    std::fs::write(&token, &invited.stdout).doing(|| format!("write {}", token.display()))?;
    let mut join = Command::new(program);
    join.arg("join").arg(format!("file:{}", token.display()));
    run(join.args(["--offline", "--state"]).arg(edge.state(scratch))).map(drop)
}

fn hub_config(table: &TunnelTable) -> Table {
    let mut hub = Table::new();
    hub.insert(
        "listen".into(),
        vec![format!("0.0.0.0:{PORT}"), format!("[::]:{PORT}")].into(),
    );
    hub.insert("pool".into(), plan::INNER_PREFIXES.to_vec().into());
    hub.insert("nat".into(), true.into());
    hub.insert("device".into(), "sennit0".into());
    hub.extend(table.hub.clone());
    let mut config = Table::from_iter([("hub".to_owned(), Value::Table(hub))]);
    add_api(&mut config, table);
    config
}

pub(super) fn edge_config(site: Site<'_>, table: &TunnelTable) -> Table {
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
    add_api(&mut config, table);
    if !table.class.is_empty() {
        let classes = table.class.iter().cloned().map(Value::Table);
        config.insert("class".into(), Value::Array(classes.collect()));
    }
    config
}
