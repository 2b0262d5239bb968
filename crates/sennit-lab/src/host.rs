//! The hosts of a lab: named network namespaces, and programs that run in them.
//!
//! A namespace is called `snt<pid>-<n>-<host>`, or `…-<host>-<e>` at one edge of several, so that
//! several labs of one process and several processes never meet, and a human can look inside with
//! `ip netns exec`. All names in use are kept in one list: a lab removes its own when it is
//! dropped, [`remove_all`] those of this process when a signal ends it, and [`remove_leftovers`]
//! those of processes that died without doing so.

use std::ffi::OsStr;
use std::fmt;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use sennit_linux::netns::Netns;

use crate::error::{Doing, Error};
use crate::made::Made;

/// Where iproute2 keeps named namespaces.
const NAMED: &str = "/run/netns";

/// Where daemons remember the kernel switches of a host, in files that begin with the number of its
/// namespace. Another one may get that number later.
const REMEMBERED: &str = "/run/sennit";

/// The namespaces that this process has made and not yet removed.
static LIVE: Made<String> = Made::new();

/// Tells the labs of one process apart.
static LABS: AtomicU32 = AtomicU32::new(0);

/// IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) const BOTH: [Self; 2] = [Self::V4, Self::V6];
}

/// One of the hosts that every lab has, the near ones once for each edge.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize, serde::Serialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A host behind the edge.
    Lan,
    /// The site's router, with all links.
    Edge,
    /// The far end of all links.
    Hub,
    /// A host behind the hub.
    Server,
}

impl Role {
    /// All of them, from the near to the far end.
    pub const ALL: [Self; 4] = [Self::Lan, Self::Edge, Self::Hub, Self::Server];
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lan => "lan",
            Self::Edge => "edge",
            Self::Hub => "hub",
            Self::Server => "server",
        })
    }
}

/// The prefix that no other lab of any living process has.
pub(crate) fn unique_prefix() -> String {
    let number = LABS.fetch_add(1, Ordering::Relaxed);
    format!("snt{}-{number}", std::process::id())
}

/// A network namespace with its name; dropping it ends what runs in it and removes it.
#[derive(Debug)]
pub struct Host {
    name: String,
    netns: Netns,
}

impl Host {
    /// An empty namespace with only `lo`, up.
    pub(crate) fn create(prefix: &str, name: &str) -> Result<Self, Error> {
        let name = format!("{prefix}-{name}");
        let made = LIVE.make(&name, || {
            run(Command::new("ip").args(["netns", "add", &name]))?;
            Netns::open(&Path::new(NAMED).join(&name)).doing(|| format!("open namespace {name}"))
        });
        let netns = made.inspect_err(|_| remove(&name))?;
        let host = Self { name, netns };
        host.ip("link set lo up\n")?;
        Ok(host)
    }

    /// The name for `ip netns exec`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The namespace itself.
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// A command that will run here; the process it becomes is the program itself.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Runs a program here to its end and gives its output; a failure is an error.
    pub fn exec(&self, line: &[&str]) -> Result<Output, Error> {
        let (program, arguments) = line
            .split_first()
            .ok_or_else(|| Error::Scenario("an empty command cannot run".into()))?;
        run(self.command(program).args(arguments))
    }

    /// Starts a program here that is killed when the returned value is dropped.
    pub fn spawn(&self, command: &mut Command) -> Result<Running, Error> {
        Running::start(command)
    }

    /// Runs lines of `ip` commands here, all or up to the first that fails.
    pub fn ip(&self, lines: &str) -> Result<(), Error> {
        feed(
            Command::new("ip").args(["-n", &self.name, "-batch", "-"]),
            lines,
        )
        .map(drop)
    }

    /// Runs lines of `ip` commands for one family, where no address tells which.
    pub(crate) fn ip_of(&self, family: Family, lines: &str) -> Result<(), Error> {
        let option = match family {
            Family::V4 => "-4",
            Family::V6 => "-6",
        };
        feed(
            Command::new("ip").args([option, "-n", &self.name, "-batch", "-"]),
            lines,
        )
        .map(drop)
    }

    /// What `ip -json -stats link show` says about a device.
    pub(crate) fn show_link(&self, device: &str) -> Result<serde_json::Value, Error> {
        let mut command = Command::new("ip");
        let output =
            run(command.args(["-n", &self.name, "-j", "-s", "link", "show", "dev", device]))?;
        let mut shown: Vec<serde_json::Value> =
            serde_json::from_slice(&output.stdout).unwrap_or_default();
        shown.pop().ok_or_else(|| Error::Command {
            command: line_of(&command),
            output: "it printed no link".into(),
        })
    }

    /// The files in which daemons remember what to put back here, if they have not.
    pub(crate) fn remembered(&self) -> Vec<PathBuf> {
        remembered(&self.name)
    }

    /// Runs an `nft` script here.
    pub fn nft(&self, script: &str) -> Result<(), Error> {
        feed(self.command("nft").args(["-f", "-"]), script).map(drop)
    }

    /// Sets kernel parameters here, each `key=value`.
    pub fn sysctl(&self, settings: &[&str]) -> Result<(), Error> {
        run(self.command("sysctl").arg("-qw").args(settings)).map(drop)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// A program that does not outlive this value.
#[derive(Debug)]
pub struct Running {
    child: Child,
    line: String,
}

impl Running {
    /// Starts `command`.
    pub(crate) fn start(command: &mut Command) -> Result<Self, Error> {
        let line = line_of(command);
        let child = command.spawn().map_err(|error| Error::Command {
            command: line.clone(),
            output: error.to_string(),
        })?;
        Ok(Self { child, line })
    }

    /// The process, for its pipes and its state.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The command line it was started with.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// Sends a signal, such as [`Signal::TERM`].
    pub fn signal(&self, signal: Signal) {
        signal_to(self.child.id(), signal);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command to its end; a failure is an error with what it printed.
pub(crate) fn run(command: &mut Command) -> Result<Output, Error> {
    let output = command.stdin(Stdio::null()).output();
    checked(command, output)
}

/// Runs a command with `input` on its standard input.
pub(crate) fn feed(command: &mut Command, input: &str) -> Result<Output, Error> {
    let piped = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = piped.spawn().and_then(|mut child| {
        let mut stdin = child.stdin.take().expect("it is piped");
        // A command that fails early closes its input; its own message says why.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        child.wait_with_output()
    });
    checked(command, output)
}

fn checked(command: &Command, output: std::io::Result<Output>) -> Result<Output, Error> {
    let failed = |output: String| Error::Command {
        command: line_of(command),
        output,
    };
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(output);
    }
    let printed = [&output.stderr[..], &output.stdout[..]].concat();
    Err(failed(format!(
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&printed).trim()
    )))
}

fn line_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Removes all namespaces of this process, with what runs in them; it can make no others.
pub fn remove_all() {
    for name in LIVE.close() {
        remove(&name);
    }
}

/// Removes the namespaces of lab processes that are no longer alive; gives their names.
pub fn remove_leftovers() -> Vec<String> {
    let dead = |name: &String| owner(name).is_some_and(|pid| !is_alive(pid));
    let names: Vec<_> = named().into_iter().filter(dead).collect();
    for name in &names {
        remove(name);
    }
    names
}

/// The process that made a namespace of this name, if a lab did.
fn owner(name: &str) -> Option<u32> {
    let of_role = |role: &Role| name.split_once(&format!("-{role}"));
    let (prefix, edge) = Role::ALL.iter().find_map(of_role)?;
    let number = |text: &str| text.parse::<usize>().is_ok();
    let known = edge.is_empty() || edge.strip_prefix('-').is_some_and(number);
    owner_of_prefix(prefix).filter(|_| known)
}

/// The process to which [`unique_prefix`] gave this.
pub(crate) fn owner_of_prefix(prefix: &str) -> Option<u32> {
    let (pid, number) = prefix.strip_prefix("snt")?.split_once('-')?;
    number.parse::<u32>().ok()?;
    pid.parse().ok()
}

pub(crate) fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

fn named() -> Vec<String> {
    let entries = std::fs::read_dir(NAMED).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// Best effort: on the way out there is nobody left to tell.
fn remove(name: &str) {
    for pid in pids_in(name) {
        signal_to(pid, Signal::KILL);
    }
    for file in remembered(name) {
        let _ = std::fs::remove_file(file);
    }
    let path: PathBuf = Path::new(NAMED).join(name);
    if path.exists() && run(Command::new("ip").args(["netns", "del", name])).is_err() {
        tracing::warn!(namespace = name, "cannot be removed");
    }
    LIVE.forget(&name.to_owned());
}

fn remembered(name: &str) -> Vec<PathBuf> {
    let Ok(namespace) = Path::new(NAMED).join(name).metadata() else {
        return Vec::new();
    };
    let prefix = format!("{}-", namespace.ino());
    let files = std::fs::read_dir(REMEMBERED).into_iter().flatten();
    files
        .flatten()
        .filter(|file| file.file_name().to_string_lossy().starts_with(&prefix))
        .map(|file| file.path())
        .collect()
}

fn pids_in(name: &str) -> Vec<u32> {
    let Ok(output) = run(Command::new("ip").args(["netns", "pids", name])) else {
        return Vec::new();
    };
    let own = std::process::id();
    let pids = String::from_utf8_lossy(&output.stdout);
    pids.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .filter(|pid| *pid != own)
        .collect()
}

fn signal_to(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_a_lab_makes_have_an_owner() {
        assert_eq!(owner("snt4711-0-edge"), Some(4711));
        assert_eq!(owner("snt4711-0-edge-60"), Some(4711));
        assert_eq!(owner("snt4711-0-edge-x"), None);
        assert_eq!(owner("snt4711-0-edges"), None);
        assert_eq!(owner("snt4711-0-other"), None);
        assert_eq!(owner("snt-edge"), None);
        assert_eq!(owner("sntx-0-edge"), None);
        assert_eq!(owner("production"), None);
    }
}
