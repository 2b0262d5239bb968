//! The tunnel under test: a hub and an edge daemon on their hosts, joined as a user would.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::Serialize;
use toml::{Table, Value};

use crate::error::{Doing, Error};
use crate::host::{Role, Running, feed, run};
use crate::lab::Lab;
use crate::plan;
use crate::scenario::TunnelTable;
use crate::scratch::Scratch;

/// The hub's port.
const PORT: u16 = 443;

/// The longest that a tunnel may take to come up.
const UP_SECONDS: u32 = 20;

/// The longest that a daemon may take to stop when asked.
const STOP: Duration = Duration::from_secs(5);

/// Lines of a daemon's log that an error quotes.
const QUOTED_LINES: usize = 12;

/// A running hub and edge; dropping it kills both.
#[derive(Debug)]
pub(crate) struct Tunnel<'a> {
    lab: &'a Lab,
    program: PathBuf,
    logs: PathBuf,
    // The daemons end before their directory goes.
    hub: Running,
    edge: Running,
    scratch: Scratch,
}

/// CPU time and memory of a process up to now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Usage {
    /// User and system time.
    pub cpu_seconds: f64,
    /// Resident memory.
    pub rss_bytes: u64,
    /// The most resident memory so far.
    pub rss_peak_bytes: u64,
}

impl<'a> Tunnel<'a> {
    /// Makes identities, joins the edge, starts both and waits until the tunnel is up.
    pub(crate) fn start(
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
        let (program, logs) = (program.to_owned(), logs.to_owned());
        let mut tunnel = Self {
            lab,
            program,
            logs,
            hub,
            edge,
            scratch,
        };
        tunnel.wait_until_up()?;
        Ok(tunnel)
    }

    /// Stops a daemon and starts it again: the hub is asked to stop, the edge is killed.
    pub(crate) fn restart(&mut self, role: Role) -> Result<(), Error> {
        let daemon = self.daemon(role);
        match role {
            Role::Hub => stop(daemon),
            Role::Edge | Role::Lan | Role::Server => daemon.signal(Signal::KILL),
        }
        let _ = daemon.child().wait();
        let fresh = start(self.lab, role, &self.program, &self.logs)?;
        *self.daemon(role) = fresh;
        Ok(())
    }

    /// What each daemon has used so far: hub, then edge.
    pub(crate) fn usage(&self) -> Result<[Usage; 2], Error> {
        Ok([usage(self.hub.pid())?, usage(self.edge.pid())?])
    }

    /// The daemons' own view: hub, then edge.
    pub(crate) fn status(&self) -> [serde_json::Value; 2] {
        [Role::Hub, Role::Edge].map(|role| self.status_of(role).unwrap_or_default())
    }

    /// An error if a daemon is no longer alive.
    pub(crate) fn check_alive(&mut self) -> Result<(), Error> {
        for role in [Role::Hub, Role::Edge] {
            let status = self.daemon(role).child().try_wait();
            if let Some(status) = status.doing(|| format!("look after the {role}"))? {
                return Err(self.failed(role, &format!("ended by itself ({status})")));
            }
        }
        Ok(())
    }

    fn daemon(&mut self, role: Role) -> &mut Running {
        match role {
            Role::Hub | Role::Server => &mut self.hub,
            Role::Edge | Role::Lan => &mut self.edge,
        }
    }

    /// A daemon that ends meanwhile is the reason at once.
    fn wait_until_up(&mut self) -> Result<(), Error> {
        let (control, timeout) = (
            control(self.scratch.path(), Role::Edge),
            UP_SECONDS.to_string(),
        );
        let mut command = self.lab.host(Role::Edge).command(&self.program);
        command.arg("status").arg("--control").arg(control);
        command.args(["--json", "--wait", "up", "--timeout", &timeout]);
        let mut waiting = Running::start(command.stdin(Stdio::null()).stdout(Stdio::null()))?;
        loop {
            self.check_alive()?;
            match waiting
                .child()
                .try_wait()
                .doing(|| "wait for the tunnel".into())?
            {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return Err(self.failed(Role::Edge, &format!("did not come up ({status})")));
                }
                None => std::thread::sleep(Duration::from_millis(5)),
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

    fn failed(&self, role: Role, what: &str) -> Error {
        let path = log(&self.logs, role);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(QUOTED_LINES)..].join("\n  ");
        Error::Tunnel(format!(
            "the {role} {what}; the end of {}:\n  {last}",
            path.display()
        ))
    }
}

impl Drop for Tunnel<'_> {
    fn drop(&mut self) {
        stop(&mut self.edge);
        stop(&mut self.hub);
    }
}

/// Asks a daemon to stop; it is killed later if it does not.
fn stop(daemon: &mut Running) {
    daemon.signal(Signal::TERM);
    let deadline = Instant::now() + STOP;
    while Instant::now() < deadline && matches!(daemon.child().try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(5));
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
    feed(join.args(["join", "-", "--state"]).arg(&edge), &token)
}

fn start(lab: &Lab, role: Role, program: &Path, logs: &Path) -> Result<Running, Error> {
    let path = log(logs, role);
    let open = || {
        let file = File::options().create(true).append(true).open(&path)?;
        Ok((file.try_clone()?, file))
    };
    let (out, err) = open().doing(|| format!("open {}", path.display()))?;
    let mut command = lab.host(role).command(program);
    command
        .arg(role.to_string())
        .arg("--config")
        .arg(logs.join(format!("{role}.toml")));
    Running::start(command.stdin(Stdio::null()).stdout(out).stderr(err))
}

fn control(scratch: &Path, role: Role) -> PathBuf {
    scratch.join(format!("{role}.sock"))
}

fn log(logs: &Path, role: Role) -> PathBuf {
    logs.join(format!("{role}.log"))
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
    hub.insert("pool".into(), vec!["10.200.0.0/16", "fd5e:1::/64"].into());
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

/// Reads what a process has used from `/proc`.
fn usage(pid: u32) -> Result<Usage, Error> {
    let read = |file: &str| {
        let path = format!("/proc/{pid}/{file}");
        std::fs::read_to_string(&path).doing(|| format!("read {path}"))
    };
    let (stat, status) = (read("stat")?, read("status")?);
    Ok(Usage {
        cpu_seconds: cpu_seconds(&stat).unwrap_or(0.0),
        rss_bytes: kilobytes(&status, "VmRSS:").unwrap_or(0),
        rss_peak_bytes: kilobytes(&status, "VmHWM:").unwrap_or(0),
    })
}

/// proc_pid_stat(5): utime and stime are fields 14 and 15; the name before them may hold spaces.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let total = ticks()? + ticks()?;
    Some(total as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn kilobytes(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_any_process_name() {
        let stat = "42 (a ) (b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1 0 99";

        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(cpu_seconds(stat), Some(200.0 / ticks));
        assert_eq!(cpu_seconds("garbage"), None);
    }

    #[test]
    fn memory_is_given_in_bytes() {
        assert_eq!(
            kilobytes("VmHWM:\t  20 kB\nVmRSS:\t   12 kB\n", "VmRSS:"),
            Some(12 * 1024)
        );
        assert_eq!(kilobytes("", "VmRSS:"), None);
    }

    #[test]
    fn a_process_uses_some_memory() {
        let own = usage(std::process::id()).expect("we are alive");

        assert!(own.rss_bytes > 100_000 && own.rss_peak_bytes >= own.rss_bytes);
    }
}
