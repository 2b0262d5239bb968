//! The tunnel under test: a daemon on the hub, one on each edge, and what they use.
//!
//! It is Sennit, or another tunnel that the same steps run over to compare: those know no more than
//! the hub, the edge and the first link between them, and their inner addresses.

mod rival;
mod sennit;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::Serialize;

use crate::error::{Doing, Error};
use crate::host::{Role, Running};
use crate::lab::Lab;
use crate::scenario::{Action, TunnelKind, TunnelTable};
use rival::Rival;
use sennit::Sennit;
pub(crate) use sennit::Traces;
pub use sennit::{Leaks, Operated, take_files};

/// The longest that a tunnel may take to come up.
const UP: Duration = Duration::from_secs(20);

/// The longest that a daemon may take to stop when asked.
const STOP: Duration = Duration::from_secs(5);

/// Lines of a daemon's log that an error quotes.
const QUOTED_LINES: usize = 12;

/// The programs of the tunnels.
#[derive(Debug, Clone)]
pub struct Programs {
    /// `sennit`.
    pub sennit: PathBuf,
    /// `wireguard-go`; a bare name is looked for where the shell would.
    pub wireguard_go: PathBuf,
    /// `ideal-tunnel` of this crate.
    pub ideal: PathBuf,
}

impl Programs {
    /// With this `sennit`, and the others at their usual places.
    pub fn beside(sennit: PathBuf) -> Self {
        Self {
            ideal: sennit.with_file_name("ideal-tunnel"),
            wireguard_go: "wireguard-go".into(),
            sennit,
        }
    }

    /// Which version of somebody else's tunnel it is, if it says so.
    pub(crate) fn version(&self, kind: TunnelKind) -> Option<String> {
        match kind {
            TunnelKind::WireguardGo => rival::wireguard_version(&self.wireguard_go).ok(),
            TunnelKind::Sennit | TunnelKind::Ideal => None,
        }
    }

    /// An error that says what to do if a program of this tunnel is not there.
    pub(crate) fn require(&self, kind: TunnelKind) -> Result<(), Error> {
        match kind {
            TunnelKind::Sennit => Ok(()),
            TunnelKind::WireguardGo => rival::require_wireguard(&self.wireguard_go),
            TunnelKind::Ideal => rival::require_ideal(&self.ideal),
        }
    }
}

/// A running tunnel; dropping it ends its daemons.
#[derive(Debug)]
pub(crate) struct Tunnel<'a> {
    kind: TunnelKind,
    inner: Inner<'a>,
}

#[derive(Debug)]
enum Inner<'a> {
    Sennit(Box<Sennit<'a>>),
    Rival(Rival),
}

impl<'a> Tunnel<'a> {
    /// Starts both ends and waits until packets pass.
    pub(crate) fn start(
        lab: &'a Lab,
        kind: TunnelKind,
        table: &TunnelTable,
        programs: &Programs,
        logs: &Path,
    ) -> Result<Self, Error> {
        let inner = match kind {
            TunnelKind::Sennit => {
                Inner::Sennit(Box::new(Sennit::start(lab, table, &programs.sennit, logs)?))
            }
            TunnelKind::WireguardGo => {
                Inner::Rival(Rival::wireguard(lab, &programs.wireguard_go, logs)?)
            }
            TunnelKind::Ideal => Inner::Rival(Rival::ideal(lab, &programs.ideal, logs)?),
        };
        Ok(Self { kind, inner })
    }

    pub(crate) fn kind(&self) -> TunnelKind {
        self.kind
    }

    /// Does what happens to daemons, to those of the edge at this index or to the hub.
    pub(crate) fn apply(&mut self, action: Action, edge: usize) -> Result<(), Error> {
        match &mut self.inner {
            Inner::Sennit(sennit) => sennit.apply(action, edge),
            Inner::Rival(_) => Err(Error::Tunnel(format!("{} cannot be restarted", self.kind))),
        }
    }

    /// Cuts a link of an edge on purpose, by the command that people use.
    pub(crate) fn drill(&mut self, link: &str, edge: usize) -> Result<(), Error> {
        match &mut self.inner {
            Inner::Sennit(sennit) => sennit.drill(link, edge),
            Inner::Rival(_) => Err(Error::Tunnel(format!("{} has no drills", self.kind))),
        }
    }

    /// What came of operating it since this was last asked.
    pub(crate) fn operated(&mut self) -> Operated {
        match &mut self.inner {
            Inner::Sennit(sennit) => std::mem::take(&mut sennit.operated),
            Inner::Rival(_) => Operated::default(),
        }
    }

    /// What its hosts and daemons have now.
    pub(crate) fn traces(&self) -> Result<Traces, Error> {
        match &self.inner {
            Inner::Sennit(sennit) => sennit.traces(),
            Inner::Rival(_) => Err(Error::Tunnel(format!("{} is not watched", self.kind))),
        }
    }

    /// Waits until everything is up again, and notes what is different.
    pub(crate) fn note_leaks(&mut self, before: &Traces) -> Result<(), Error> {
        match &mut self.inner {
            Inner::Sennit(sennit) => {
                sennit.operated.leaks = Some(sennit.leaks_since(before)?);
                Ok(())
            }
            Inner::Rival(_) => Ok(()),
        }
    }

    /// The control sockets, if it has some: the hub's, then that of each edge.
    pub(crate) fn controls(&self) -> Vec<PathBuf> {
        match &self.inner {
            Inner::Sennit(sennit) => sennit.controls(),
            Inner::Rival(_) => Vec::new(),
        }
    }

    /// What each daemon has used so far: the hub, then each edge.
    pub(crate) fn usage(&self) -> Result<Vec<Usage>, Error> {
        self.daemons().all.iter().map(Daemon::usage).collect()
    }

    /// Lets the most resident memory count from now.
    pub(crate) fn forget_peaks(&mut self) {
        let daemons = match &mut self.inner {
            Inner::Sennit(sennit) => &mut sennit.daemons,
            Inner::Rival(rival) => &mut rival.daemons,
        };
        for daemon in &mut daemons.all {
            daemon.before.rss_peak_bytes = 0;
            // proc_pid_clear_refs(5). A kernel without it counts from the daemon's start.
            let pid = daemon.running.pid();
            let _ = std::fs::write(format!("/proc/{pid}/clear_refs"), "5");
        }
    }

    /// The daemons' own view, if they have one: the hub's, then that of each edge.
    pub(crate) fn status(&self) -> Vec<serde_json::Value> {
        match &self.inner {
            Inner::Sennit(sennit) => sennit.status(),
            Inner::Rival(_) => Vec::new(),
        }
    }

    /// An error if a daemon is no longer alive.
    pub(crate) fn check_alive(&mut self) -> Result<(), Error> {
        match &mut self.inner {
            Inner::Sennit(sennit) => sennit.daemons.check_alive(),
            Inner::Rival(rival) => rival.daemons.check_alive(),
        }
    }

    fn daemons(&self) -> &Daemons {
        match &self.inner {
            Inner::Sennit(sennit) => &sennit.daemons,
            Inner::Rival(rival) => &rival.daemons,
        }
    }
}

/// All ends of a tunnel, which are asked to stop when this is dropped.
#[derive(Debug)]
struct Daemons {
    /// The hub, then each edge.
    all: Vec<Daemon>,
    logs: PathBuf,
}

/// A daemon and what its files are called.
#[derive(Debug)]
struct Daemon {
    name: String,
    running: Running,
    /// What those have used that ran in its place before.
    before: Usage,
}

impl Daemon {
    /// Ends it at once, without asking.
    fn kill(&mut self) {
        self.keep_usage();
        self.running.signal(Signal::KILL);
        let _ = self.running.child().wait();
    }

    /// Asks it to stop; it is killed later if it does not.
    fn stop(&mut self) {
        self.keep_usage();
        self.running.signal(Signal::TERM);
        wait_for_end(&mut self.running);
    }

    /// Nobody can tell what a process has used once it was waited for. What it uses to end is left
    /// out.
    fn keep_usage(&mut self) {
        if let Ok(used) = self.usage() {
            self.before = used;
        }
    }

    /// What it has used so far, with those that ran in its place before.
    fn usage(&self) -> Result<Usage, Error> {
        let now = usage(self.running.pid())?;
        Ok(Usage {
            cpu_seconds: self.before.cpu_seconds + now.cpu_seconds,
            rss_bytes: now.rss_bytes,
            rss_peak_bytes: self.before.rss_peak_bytes.max(now.rss_peak_bytes),
        })
    }
}

impl Daemons {
    /// The hub alone; edges are added.
    fn new(hub: Running, logs: &Path) -> Self {
        let mut daemons = Self {
            all: Vec::new(),
            logs: logs.to_owned(),
        };
        daemons.add(&Role::Hub.to_string(), hub);
        daemons
    }

    fn add(&mut self, name: &str, running: Running) {
        let (name, before) = (name.to_owned(), Usage::default());
        self.all.push(Daemon {
            name,
            running,
            before,
        });
    }

    fn hub(&mut self) -> &mut Daemon {
        &mut self.all[0]
    }

    fn edge(&mut self, index: usize) -> &mut Daemon {
        &mut self.all[1 + index]
    }

    fn pids(&self) -> impl Iterator<Item = u32> {
        self.all.iter().map(|daemon| daemon.running.pid())
    }

    fn check_alive(&mut self) -> Result<(), Error> {
        for index in 0..self.all.len() {
            let Daemon { name, running, .. } = &mut self.all[index];
            let status = running.child().try_wait();
            if let Some(status) = status.doing(|| format!("look after the {name}"))? {
                let name = name.clone();
                return Err(self.failed(&name, &format!("ended by itself ({status})")));
            }
        }
        Ok(())
    }

    fn failed(&self, name: &str, what: &str) -> Error {
        let path = log(&self.logs, name);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(QUOTED_LINES)..].join("\n  ");
        Error::Tunnel(format!(
            "the {name} {what}; the end of {}:\n  {last}",
            path.display()
        ))
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        let (hub, edges) = self.all.split_at_mut(1);
        for daemons in [edges, hub] {
            for Daemon { running, .. } in daemons.iter() {
                running.signal(Signal::TERM);
            }
            for Daemon { running, .. } in daemons {
                wait_for_end(running);
            }
        }
    }
}

fn wait_for_end(daemon: &mut Running) {
    let deadline = Instant::now() + STOP;
    while Instant::now() < deadline && matches!(daemon.child().try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn log(logs: &Path, name: &str) -> PathBuf {
    logs.join(format!("{name}.log"))
}

/// Starts a daemon that adds what it says to `log`.
fn spawn(command: &mut Command, log: &Path) -> Result<Running, Error> {
    let open = || {
        let file = File::options().create(true).append(true).open(log)?;
        Ok((file.try_clone()?, file))
    };
    let (out, err) = open().doing(|| format!("open {}", log.display()))?;
    Running::start(command.stdin(Stdio::null()).stdout(out).stderr(err))
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

/// Processor time of a process in `/proc/PID/stat` (proc_pid_stat(5)): fields 14 and 15, utime and
/// stime; the name before them may hold spaces.
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
    fn what_a_killed_daemon_has_used_counts_with_its_successor() {
        let start = |script: &str| Running::start(Command::new("sh").args(["-c", script]));
        let busy = start("while :; do :; done").expect("there is a shell");
        let (name, before) = ("edge".to_owned(), Usage::default());
        let mut daemon = Daemon {
            name,
            running: busy,
            before,
        };
        let used = |daemon: &Daemon| daemon.usage().expect("it runs").cpu_seconds;
        while used(&daemon) < 0.1 {
            std::thread::sleep(Duration::from_millis(5));
        }

        daemon.kill();
        daemon.running = start("exec sleep 1000").expect("there is a shell");

        let after = daemon.usage().expect("it runs");
        assert!(after.cpu_seconds >= 0.1, "{after:?}");
        assert!(after.rss_peak_bytes > 0, "{after:?}");
    }

    #[test]
    fn a_process_uses_some_memory() {
        let own = usage(std::process::id()).expect("we are alive");

        assert!(own.rss_bytes > 100_000 && own.rss_peak_bytes >= own.rss_bytes);
    }
}
