//! Names are looked up at servers behind the tunnel, while there is one.
//!
//! Three ways, the first that the host has: systemd-resolved, which is told of the device's
//! servers; resolvconf, which is given a record; or `/etc/resolv.conf` itself. What was in that
//! file stays in it as comments, so that it can be put back whatever happens in between: a crash, a
//! reboot, a lost state directory. What somebody else has written there since is left alone.

use std::{
    fs, io,
    io::Write as _,
    net::IpAddr,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle},
};

use sennit_linux::{DeviceName, confine};

use crate::daemon::deputy::Deputy;

/// The file that the C library reads.
pub(crate) const FILE: &str = "/etc/resolv.conf";
/// There while systemd-resolved runs.
const RESOLVED: &str = "/run/systemd/resolve/stub-resolv.conf";
/// The first line of our file, with the device after it.
const OURS: &str = "# Written by sennit for ";
/// Before each line of the file that was there.
const BEFORE: &str = "#before: ";

/// Who was told of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Resolved,
    Resolvconf,
    File,
}

/// What tells the host, on a thread of its own: packets do not wait for commands. Dropped, it has
/// the host forget what it was told.
pub(super) struct Dns {
    words: Option<Sender<Vec<IpAddr>>>,
    note: Arc<Mutex<Option<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Dns {
    /// Takes over from an earlier run: what that left behind is put back. The thread is started by
    /// `free`, which may write where each host has its nameservers.
    pub(super) fn start(device: &DeviceName, free: &Deputy<()>) -> io::Result<Self> {
        let (words, told) = mpsc::channel::<Vec<IpAddr>>();
        let note = Arc::<Mutex<Option<String>>>::default();
        let (shared, device) = (Arc::clone(&note), device.clone());
        let run = move || {
            confine::all_but_files();
            confine::keep_files_only();
            let mut host = Host::new(&device);
            for servers in told {
                host.set(&servers);
                *shared.lock().unwrap_or_else(PoisonError::into_inner) = host.note();
            }
        };
        let thread = free.ask(move |()| thread::Builder::new().name("dns".into()).spawn(run))?;
        Ok(Self {
            words: Some(words),
            note,
            thread: Some(thread),
        })
    }

    /// From now on these are asked; none means that the host is left as it was.
    pub(super) fn set(&self, servers: &[IpAddr]) {
        if let Some(words) = &self.words {
            // The thread ends with us only.
            let _ = words.send(servers.to_vec());
        }
    }

    /// What an operator should know.
    pub(super) fn note(&self) -> Option<String> {
        self.note
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.words = None;
        if let Some(thread) = self.thread.take() {
            // It has said what went wrong, if it panicked.
            let _ = thread.join();
        }
    }
}

/// The servers that the host knows because of us.
#[derive(Debug)]
struct Host {
    device: DeviceName,
    servers: Vec<IpAddr>,
    way: Option<Way>,
}

impl Host {
    fn new(device: &DeviceName) -> Self {
        restore(device);
        Self {
            device: device.clone(),
            servers: Vec::new(),
            way: None,
        }
    }

    fn set(&mut self, servers: &[IpAddr]) {
        if self.servers == servers {
            return;
        }
        self.forget();
        self.servers = servers.to_vec();
        if servers.is_empty() {
            return;
        }
        let mut failures = Vec::new();
        for way in [Way::Resolved, Way::Resolvconf, Way::File] {
            match self.tell(way) {
                Ok(true) => {
                    tracing::info!(?servers, by = way.name(), "names are looked up there");
                    self.way = Some(way);
                    return;
                }
                Ok(false) => {}
                Err(error) => failures.push(format!("{}: {error}", way.name())),
            }
        }
        tracing::warn!(
            ?servers,
            ?failures,
            "the host does not learn of the name servers"
        );
    }

    fn note(&self) -> Option<String> {
        if self.servers.is_empty() {
            return None;
        }
        let servers: Vec<String> = self.servers.iter().map(ToString::to_string).collect();
        let servers = servers.join(", ");
        Some(match self.way {
            Some(way) => format!("names are looked up at {servers}, by {}", way.name()),
            None => format!("names are not looked up at {servers}: see the log"),
        })
    }

    /// Tells the host; false if it has not this way.
    fn tell(&self, way: Way) -> io::Result<bool> {
        let device = self.device.as_str();
        match way {
            Way::Resolved if !Path::new(RESOLVED).exists() => Ok(false),
            Way::Resolved => {
                let servers: Vec<String> = self.servers.iter().map(ToString::to_string).collect();
                let mut words = vec!["dns", device];
                words.extend(servers.iter().map(String::as_str));
                run("resolvectl", &words, "")?;
                run("resolvectl", &["domain", device, "~."], "")?;
                run("resolvectl", &["default-route", device, "yes"], "")
            }
            Way::Resolvconf => run("resolvconf", &["-a", device], &lines(&self.servers)),
            Way::File => replace(Path::new(FILE), device, &self.servers).map(|()| true),
        }
    }

    fn forget(&mut self) {
        let device = self.device.as_str();
        let done = match self.way.take() {
            Some(Way::Resolved) => run("resolvectl", &["revert", device], "").map(drop),
            Some(Way::Resolvconf) => run("resolvconf", &["-d", device], "").map(drop),
            Some(Way::File) => put_back(Path::new(FILE), device).map(drop),
            None => Ok(()),
        };
        if let Err(error) = done {
            tracing::warn!(%error, "the host still knows our name servers");
        }
        self.servers.clear();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.forget();
    }
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Resolved => "systemd-resolved",
            Self::Resolvconf => "resolvconf",
            Self::File => FILE,
        }
    }
}

/// Puts back what a run with this device left behind when it was killed. What systemd-resolved was
/// told is gone with the device.
pub(crate) fn restore(device: &DeviceName) {
    let device = device.as_str();
    match put_back(Path::new(FILE), device) {
        Ok(true) => tracing::info!("{FILE} is as it was before"),
        Ok(false) => {}
        Err(error) => tracing::warn!(%error, "cannot put back {FILE}"),
    }
    // Nobody may have told it anything.
    let _ = run("resolvconf", &["-d", device], "");
}

/// The text of a file as it was before us.
pub(super) fn before(text: &str) -> String {
    if !text.starts_with(OURS) {
        return text.to_owned();
    }
    let kept = text.lines().filter_map(|line| line.strip_prefix(BEFORE));
    kept.map(|line| format!("{line}\n")).collect()
}

fn lines(servers: &[IpAddr]) -> String {
    let lines = servers
        .iter()
        .map(|server| format!("nameserver {server}\n"));
    lines.collect()
}

/// Writes our servers into the file, and keeps what was there.
fn replace(file: &Path, device: &str, servers: &[IpAddr]) -> io::Result<()> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    let kept = before(&text);
    let kept = kept.lines().map(|line| format!("{BEFORE}{line}\n"));
    let head = format!("{OURS}{device}; what was here before follows as comments.\n");
    fs::write(file, head + &lines(servers) + &kept.collect::<String>())
}

/// Puts back what was in the file, if it is ours; whether it was.
fn put_back(file: &Path, device: &str) -> io::Result<bool> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        read => read?,
    };
    let ours = format!("{OURS}{device};");
    if !text.starts_with(&ours) {
        return Ok(false);
    }
    fs::write(file, before(&text)).map(|()| true)
}

/// Runs a command with this input; false if there is no such command.
fn run(program: &str, words: &[&str], input: &str) -> io::Result<bool> {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::piped());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        spawned => spawned?,
    };
    if let Some(mut stdin) = child.stdin.take() {
        // Who does not read it has an opinion of its own, which it tells below.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(true);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{program}: {}", said.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "# by DHCP\nsearch example.org\nnameserver 192.168.8.1\n";

    fn servers() -> Vec<IpAddr> {
        vec!["10.200.0.1".parse().unwrap(), "fd5e:1::1".parse().unwrap()]
    }

    #[test]
    fn what_was_in_the_file_comes_back_also_after_a_crash() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("resolv.conf");
        fs::write(&file, PLAIN).unwrap();

        replace(&file, "sennit0", &servers()).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let names: Vec<&str> = text
            .lines()
            .filter(|it| it.starts_with("nameserver"))
            .collect();
        assert_eq!(names, ["nameserver 10.200.0.1", "nameserver fd5e:1::1"]);
        assert_eq!(before(&text), PLAIN, "the hub's name is looked up there");

        // It was killed and starts again: what it keeps is not its own.
        replace(&file, "sennit0", &servers()[..1]).unwrap();
        assert!(!put_back(&file, "sennit1").unwrap(), "another edge's");
        assert!(put_back(&file, "sennit0").unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), PLAIN);
        assert!(!put_back(&file, "sennit0").unwrap());
    }

    #[test]
    fn what_somebody_else_has_written_stays() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("resolv.conf");
        replace(&file, "sennit0", &servers()).unwrap();
        fs::write(&file, PLAIN).unwrap();

        assert!(!put_back(&file, "sennit0").unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), PLAIN);
    }
}
