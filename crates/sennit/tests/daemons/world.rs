//! A lab with an operator: hubs and edges that are joined, started and stopped by their commands.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sennit::control::{Client, Request};
use sennit::status::{PathState, PathStatus, State, Status, TunnelStatus};
use sennit_lab::{Host, Lab, LabLink, LinkHandle, Role, Running, Spec, plan};
use sennit_netem::{Bitrate, Config};
use tempfile::TempDir;

pub(crate) const SENNIT: &str = env!("CARGO_BIN_EXE_sennit");

/// For anything that takes a second at most on a machine that has nothing else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Between two looks at something that should change.
const LOOK: Duration = Duration::from_millis(20);

/// The hub's inner addresses: the first of its pools.
pub(crate) const HUB_INNER: [&str; 2] = ["10.200.0.1", "fd5e:1::1"];

/// Lines of a log that are shown when a test fails.
const SHOWN: usize = 60;

/// How many worlds there may be at a time. Most of a test is waiting, so several share two cores.
const MOST_WORLDS: usize = 3;

static ROOM: (Mutex<usize>, Condvar) = (Mutex::new(MOST_WORLDS), Condvar::new());

/// Four hosts, links between edge and hub, and a directory for what daemons keep.
pub(crate) struct World {
    pub(crate) lab: Lab,
    directory: TempDir,
    _room: Room,
}

/// The room that a world takes.
struct Room;

impl Room {
    /// Waits until there is some.
    fn take() -> Self {
        let free = ROOM.0.lock().unwrap_or_else(PoisonError::into_inner);
        let free = ROOM.1.wait_while(free, |free| *free == 0);
        *free.unwrap_or_else(PoisonError::into_inner) -= 1;
        Self
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        *ROOM.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        ROOM.1.notify_one();
    }
}

/// An edge and its config; see [`Edge::default`].
#[derive(Clone, Copy)]
pub(crate) struct Edge<'a> {
    /// Its site, its state directory and its device.
    pub(crate) name: &'a str,
    pub(crate) on: Role,
    pub(crate) hub: &'a str,
    pub(crate) routes: &'a [&'a str],
    /// Name, interface, and more lines of TOML.
    pub(crate) links: &'a [(&'a str, &'a str, &'a str)],
    /// More lines of `[edge]`.
    pub(crate) more: &'a str,
    /// `[[class]]` tables.
    pub(crate) classes: &'a str,
}

/// The one edge of most tests: everything goes into the tunnel, over links `a` and `b`.
impl Default for Edge<'_> {
    fn default() -> Self {
        Self {
            name: "van",
            on: Role::Edge,
            hub: "198.19.0.1:443",
            routes: &["0.0.0.0/0", "::/0"],
            links: &[("a", "wan-a", ""), ("b", "wan-b", "")],
            more: "",
            classes: "",
        }
    }
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl World {
    /// `None`, said loudly, when this process may not make namespaces.
    pub(crate) fn new(links: &[LabLink]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !sennit_linux::privilege::has_net_admin() {
            let test = thread::current().name().unwrap_or("?").to_owned();
            // Past the capture of output, which drops what the macro prints when a test passes.
            #[expect(clippy::explicit_write, reason = "the macro's output is captured")]
            writeln!(std::io::stderr(), "SKIPPED: {test} needs root").unwrap();
            return None;
        }
        let room = Room::take();
        let spec = Spec {
            links: links.to_vec(),
            seed: 1,
            ..Spec::default()
        };
        let lab = Lab::new(&spec).unwrap();
        Some(Self {
            directory: directory_of(&lab),
            lab,
            _room: room,
        })
    }

    /// Links `a` (20 Mbit/s, 5 ms) and `b` (10 Mbit/s, 15 ms): slow enough that traffic over them
    /// keeps no machine busy.
    pub(crate) fn with_two_links() -> Option<Self> {
        Self::new(&[link("a", 20, 5), link("b", 10, 15)])
    }

    pub(crate) fn host(&self, role: Role) -> &Host {
        self.lab.host(role)
    }

    pub(crate) fn link(&self, name: &str) -> LinkHandle<'_> {
        self.lab.link(name).unwrap()
    }

    /// A file or directory of the operator.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    // ---- commands ------------------------------------------------------------------------------

    /// Runs `sennit` with its state in the directory `state` of the operator.
    pub(crate) fn try_sennit(&self, state: &str, words: &[&str]) -> Ended {
        let mut command = Command::new(SENNIT);
        // From here no hub is in reach; who wants to ask it joins on the edge's host.
        let offline = Some("--offline").filter(|_| words.first() == Some(&"join"));
        command.args(words).args(offline);
        run(command.arg("--state").arg(self.path(state)))
    }

    /// The output of a command that has to succeed.
    #[track_caller]
    pub(crate) fn sennit(&self, state: &str, words: &[&str]) -> String {
        let ended = self.try_sennit(state, words);
        assert_eq!(ended.code, Some(0), "{words:?}: {}", ended.stderr);
        ended.stdout.trim_end().to_owned()
    }

    /// A token of the hub for a site, which may announce any LAN of the plan.
    pub(crate) fn invite(&self, site: &str) -> String {
        let hub = format!("{}:443", plan::HUB.v4);
        let [v4, v6] = ["192.168.0.0/16", "fd08::/16"];
        self.sennit(
            "hub",
            &["invite", site, "--hub", &hub, "--lan", v4, "--lan", v6],
        )
    }

    /// Invites a site and joins it into the state directory of the same name.
    pub(crate) fn join(&self, site: &str) {
        let token = self.invite(site);
        self.sennit(site, &["join", &token]);
    }

    // ---- daemons -------------------------------------------------------------------------------

    /// Makes a hub unless there is one, and starts it.
    pub(crate) fn start_hub(&self) -> Daemon<'_> {
        self.start_hub_with("")
    }

    /// Makes a hub unless there is one, and starts it with more lines of `[hub]`.
    pub(crate) fn start_hub_with(&self, more: &str) -> Daemon<'_> {
        if !self.path("hub").exists() {
            self.sennit("hub", &["hub", "init", "--name", "hub.example"]);
        }
        let config = self.hub_config(more);
        let hub = self.start("hub", "hub", Role::Hub, &config);
        hub.wait_until_up();
        hub
    }

    pub(crate) fn hub_config(&self, more: &str) -> String {
        let state = self.path("hub");
        format!(
            "[hub]\ndevice = 'hub'\nlisten = ['0.0.0.0:443', '[::]:443']\n\
             pool = ['10.200.0.0/16', 'fd5e:1::/64']\nstate = '{}'\ncontrol = '{}'\n{more}",
            state.display(),
            self.path("hub.sock").display(),
        )
    }

    /// Starts an edge that has joined.
    pub(crate) fn start_edge(&self, edge: &Edge<'_>) -> Daemon<'_> {
        self.start(edge.name, "edge", edge.on, &self.edge_config(edge))
    }

    pub(crate) fn edge_config(&self, edge: &Edge<'_>) -> String {
        let name = edge.name;
        let state = self.path(name);
        let control = self.path(&format!("{name}.sock"));
        let mut config = format!(
            "[edge]\ndevice = '{name}'\nhub = ['{}']\nroutes = {:?}\nstate = '{}'\ncontrol = '{}'\n{}\n",
            edge.hub,
            edge.routes,
            state.display(),
            control.display(),
            edge.more,
        );
        for (name, interface, more) in edge.links {
            config += &format!("[[link]]\nname = '{name}'\ninterface = '{interface}'\n{more}\n");
        }
        config + edge.classes
    }

    /// Starts a daemon of this name with this config.
    pub(crate) fn start(&self, name: &str, role: &str, on: Role, config: &str) -> Daemon<'_> {
        let config = self.write(&format!("{name}.toml"), config);
        let mut command = self.host(on).command(SENNIT);
        command.arg(role).arg("--config").arg(config);
        self.spawn(name, on, command)
    }

    /// A daemon started by a command of the caller's own making.
    pub(crate) fn spawn(&self, name: &str, on: Role, mut command: Command) -> Daemon<'_> {
        let log = self.path(&format!("{name}.log"));
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        command.stdin(Stdio::null());
        command.stdout(output.try_clone().unwrap()).stderr(output);
        let host = self.host(on);
        let process = host.spawn(&mut command).unwrap();
        Daemon {
            host,
            control: self.path(&format!("{name}.sock")),
            log,
            command,
            process,
        }
    }

    /// The hub and an edge that has joined it, with everything up at both ends.
    #[track_caller]
    pub(crate) fn start_pair(&self, edge: &Edge<'_>) -> (Daemon<'_>, Daemon<'_>) {
        let hub = self.start_hub();
        self.join(edge.name);
        let links = edge.links.len();
        let edge = self.start_edge(edge);
        edge.wait_until_up();
        hub.wait("all paths at the hub", |status| {
            let up = |path: &&PathStatus| path.state == PathState::Up;
            let paths = |tunnel: &TunnelStatus| tunnel.paths.iter().filter(up).count();
            !status.tunnels.is_empty() && status.tunnels.iter().all(|it| paths(it) == links)
        });
        (hub, edge)
    }
}

impl Drop for World {
    /// Killed daemons leave behind what they have to put back, and nobody will.
    fn drop(&mut self) {
        for role in Role::ALL {
            let Ok(namespace) = fs::metadata(Path::new("/run/netns").join(self.host(role).name()))
            else {
                continue;
            };
            let prefix = format!("{}-", namespace.ino());
            let files = fs::read_dir(sennit::config::RUN_DIRECTORY)
                .into_iter()
                .flatten()
                .flatten();
            for file in files {
                if file.file_name().to_string_lossy().starts_with(&prefix) {
                    let _ = fs::remove_file(file.path());
                }
            }
        }
    }
}

/// A directory named after the lab's namespaces, so that the next lab removes it if we are killed.
fn directory_of(lab: &Lab) -> TempDir {
    let name = lab.host(Role::Edge).name().trim_end_matches("-edge");
    let mut directory = tempfile::Builder::new();
    directory.prefix(name).rand_bytes(0).tempdir().unwrap()
}

/// An emulated link, the same in both directions.
pub(crate) fn link(name: &str, mbit: u64, delay_ms: u64) -> LabLink {
    let config = Config {
        rate: Some(Bitrate::mbit(mbit)),
        delay: Duration::from_millis(delay_ms),
        ..Config::default()
    };
    LabLink::symmetric(name, &config)
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Ended {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ended {
        code: output.status.code(),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    }
}

/// Looks until what it sees is good; what it saw last.
#[track_caller]
pub(crate) fn wait_for<T: Debug>(
    what: &str,
    mut look: impl FnMut() -> T,
    good: impl Fn(&T) -> bool,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = look();
        if good(&seen) {
            return seen;
        }
        assert!(
            Instant::now() < deadline,
            "waited in vain for {what}; last: {seen:#?}"
        );
        thread::sleep(LOOK);
    }
}

/// A hub or an edge; its log is shown when a test fails.
pub(crate) struct Daemon<'w> {
    pub(crate) host: &'w Host,
    pub(crate) control: PathBuf,
    log: PathBuf,
    command: Command,
    process: Running,
}

impl Daemon<'_> {
    /// Its status document; `None` while nobody answers.
    pub(crate) fn try_status(&self) -> Option<Status> {
        let mut client = Client::connect(&self.control, PATIENCE).ok()?;
        let document = client.request(&Request::Status).ok()?;
        Some(serde_json::from_value(document).unwrap())
    }

    #[track_caller]
    pub(crate) fn status(&self) -> Status {
        self.try_status().expect("the daemon answers")
    }

    /// Waits until its status is good.
    #[track_caller]
    pub(crate) fn wait(&self, what: &str, good: impl Fn(&Status) -> bool) -> Status {
        let good = |status: &Option<Status>| status.as_ref().is_some_and(&good);
        wait_for(what, || self.try_status(), good).unwrap()
    }

    /// Waits until everything that is configured works.
    #[track_caller]
    pub(crate) fn wait_until_up(&self) {
        self.wait("everything to be up", |status| status.state == State::Up);
    }

    /// Waits until the edge has addresses and routes, without which nothing leaves.
    #[track_caller]
    pub(crate) fn wait_for_addresses(&self) {
        self.wait("addresses", |status| !status.addresses.is_empty());
    }

    #[track_caller]
    pub(crate) fn wait_for_path(&self, class: &str, link: &str, state: PathState) {
        self.wait(&format!("{class}/{link} to be {state:?}"), |status| {
            path(status, class, link).is_some_and(|path| path.state == state)
        });
    }

    /// What a command says of it that takes `--control`.
    #[track_caller]
    pub(crate) fn tell(&self, words: &[&str]) -> String {
        let mut command = Command::new(SENNIT);
        let ended = run(command.args(words).arg("--control").arg(&self.control));
        assert_eq!(ended.code, Some(0), "{words:?}: {}", ended.stderr);
        ended.stdout
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits for a line of the log with all these words; the line.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, words: &[&str]) -> String {
        let line = || {
            let log = self.log();
            let mut lines = log.lines();
            lines
                .find(|line| words.iter().all(|word| line.contains(word)))
                .map(str::to_owned)
        };
        wait_for(&format!("a line with {words:?}"), line, Option::is_some).unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    #[track_caller]
    pub(crate) fn assert_alive(&mut self) {
        let ended = self.process.child().try_wait().unwrap();
        assert!(ended.is_none(), "it ended: {ended:?}");
    }

    /// Asks it to stop and waits until it has.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.process.signal(Signal::TERM);
        self.wait_for_exit()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    pub(crate) fn kill(&mut self) {
        self.process.signal(Signal::KILL);
        self.wait_for_exit();
    }

    #[track_caller]
    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
        let ended = || self.process.child().try_wait().unwrap();
        wait_for("the daemon to end", ended, Option::is_some).unwrap()
    }

    /// Starts it again as it was started before.
    pub(crate) fn start_again(&mut self) {
        self.process = self.host.spawn(&mut self.command).unwrap();
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(SHOWN)..];
            eprintln!("the end of {}:\n{}", self.log.display(), last.join("\n"));
            eprintln!("{:#?}", self.try_status());
        }
    }
}

/// The tunnel of a class; on a hub, of the first site that has one.
pub(crate) fn tunnel<'s>(status: &'s Status, class: &str) -> Option<&'s TunnelStatus> {
    status.tunnels.iter().find(|tunnel| tunnel.class == class)
}

/// The path of a class over a link.
pub(crate) fn path<'s>(status: &'s Status, class: &str, link: &str) -> Option<&'s PathStatus> {
    let mut paths = tunnel(status, class)?.paths.iter();
    paths.find(|path| path.link.as_deref() == Some(link))
}

/// Everything on a host that a daemon may have changed, in words that can be compared.
pub(crate) fn traces(host: &Host) -> String {
    let commands = [
        "ip rule",
        "ip -6 rule",
        "ip route show table all",
        "ip -6 route show table all",
        "ip -brief address",
        "nft list ruleset",
        "sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding net.ipv4.conf.all.send_redirects",
    ];
    let look = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let output = host.exec(&words).unwrap();
        format!("# {line}\n{}", String::from_utf8_lossy(&output.stdout))
    };
    commands.map(look).concat()
}
