//! Sennit against connect-ip-go and masque-go, implementations of RFC 9484 and RFC 9298 that share
//! no line with it, and its load tester against quic-go and aioquic.
//!
//! `interop/` of this repository joins a TUN device to a connect-ip-go tunnel. What is tested is
//! what the kernels at both ends say: pings and TCP connections over IPv4 and IPv6.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::process::Signal;
use sennit_lab::{Host, Kind, Lab, LabLink, Role, Running, Spec, plan};
use sennit_netem::Config;
use tempfile::TempDir;

const SENNIT: &str = env!("CARGO_BIN_EXE_sennit");

/// For anything that should take a second at most.
const PATIENCE: Duration = Duration::from_secs(20);

/// The hub's inner addresses: the first of its pools.
const HUB_INNER: [&str; 2] = ["10.200.0.1", "fd5e:1::1"];

#[test]
fn connect_ip_go_is_a_client_of_our_hub() {
    let Some(go) = interop() else { return };
    let site = Site::new();
    let hub = site.start_hub();
    let bearer = sennit(&["invite", "phone", "--bearer"], &site.state("hub"));

    let (addresses, _client) = site.start_client(go, Role::Edge, &bearer).up();

    let client = site.lab.host(Role::Edge);
    assert_eq!(addresses.len(), 2, "one of each pool: {addresses:?}");
    for inner in HUB_INNER {
        ping(client, inner);
    }
    for address in &addresses {
        ping(site.lab.host(Role::Hub), &address.to_string());
    }
    let server = site.lab.host(Role::Server);
    assert_tcp_both_ways(client, server, plan::SERVER.v4.into());
    assert_tcp_both_ways(client, server, plan::SERVER.v6.into());
    assert_eq!(hub.tunnels(), 1);
}

/// While noq validates the new address it keeps what it is given, and no reports of ours show when
/// it is done.
#[test]
fn a_nat_may_give_connect_ip_go_another_address() {
    let Some(go) = interop() else { return };
    let late = Config {
        delay: Duration::from_millis(20),
        ..Config::default()
    };
    let site = Site::over(Kind::Emulated, &late);
    let _hub = site.start_hub();
    let bearer = sennit(&["invite", "phone", "--bearer"], &site.state("hub"));
    let (addresses, _client) = site.start_client(go, Role::Lan, &bearer).up();
    let (hub, client) = (site.lab.host(Role::Hub), site.lab.host(Role::Lan));
    ping(hub, &addresses[0].to_string());

    let mut pings = hub.command("ping");
    pings.args(["-n", "-q", "-i", "0.01", &addresses[0].to_string()]);
    let pings = hub.spawn(pings.stdout(Stdio::null())).unwrap();
    site.lab.link("a").unwrap().set_address(Some(77)).unwrap();

    assert_tcp_both_ways(client, hub, HUB_INNER[0].parse().unwrap());
    drop(pings);
}

#[test]
fn our_hub_refuses_connect_ip_go_with_a_wrong_token() {
    let Some(go) = interop() else { return };
    let site = Site::new();
    let _hub = site.start_hub();

    let complaint = site
        .start_client(go, Role::Edge, "sennit_bearer_AAAA")
        .failure();

    assert!(complaint.contains("the hub says 403"), "{complaint}");
}

#[test]
fn masque_go_has_udp_proxied_by_our_hub() {
    let Some(go) = masque_go() else { return };
    let site = Site::new();
    let _hub = site.start_hub_with("[connect_udp]\n");
    let bearer = sennit(&["invite", "phone", "--bearer"], &site.state("hub"));
    let server = site.lab.host(Role::Server);
    let targets = [plan::SERVER.v4.into(), plan::SERVER.v6.into()];
    let targets = targets.map(|address| echo_udp(server, address).to_string());

    let echoed = site.start_udp(go, &bearer, &targets.join(","));

    let line = echoed.lines.recv_timeout(PATIENCE);
    assert_eq!(line.as_deref(), Ok("echoed 2"), "{}", echoed.log.text());
}

#[test]
fn our_hub_tells_masque_go_why_it_refuses() {
    let Some(go) = masque_go() else { return };
    let site = Site::new();
    let _hub = site.start_hub_with("[connect_udp]\n");
    let bearer = sennit(&["invite", "phone", "--bearer"], &site.state("hub"));

    let local = site.start_udp(go, &bearer, "127.0.0.1:53").failure();
    let stranger = site.start_udp(go, "sennit_bearer_AAAA", "192.0.2.1:53");

    let why = "403 Forbidden (sennit; error=destination_ip_prohibited)";
    assert!(local.contains(why), "{local}");
    let complaint = stranger.failure();
    assert!(complaint.contains("the hub says 403"), "{complaint}");
}

#[test]
fn our_edge_is_a_client_of_a_connect_ip_go_proxy() {
    let Some(go) = interop() else { return };
    let site = Site::new();
    let peer = site.start_proxy(go, "let-me-in");

    let edge = site.start_edge();
    let (_, _proxy) = peer.up();
    edge.wait_until_up();

    let (edge, proxy) = (site.lab.host(Role::Edge), site.lab.host(Role::Hub));
    for address in ["10.77.0.1", "fd77::1"] {
        ping(edge, address);
        assert_tcp_both_ways(edge, proxy, address.parse().unwrap());
    }
    for address in ["10.77.0.2", "fd77::2"] {
        ping(proxy, address);
        assert_tcp_both_ways(proxy, edge, address.parse().unwrap());
    }
}

#[test]
fn quic_go_is_a_client_and_a_server_of_performance_tests() {
    let Some(go) = interop() else { return };
    let end = |role: &str| {
        let mut command = Command::new(go);
        command.arg(format!("perf-{role}"));
        command
    };
    performs(end, 3_000_001);
}

#[test]
fn aioquic_is_a_client_and_a_server_of_performance_tests() {
    let Some(packages) = aioquic() else { return };
    let end = |role: &str| {
        let mut command = Command::new("python3");
        command.arg(repository("interop/aioquic/perf.py")).arg(role);
        command.env("PYTHONPATH", packages);
        command
    };
    performs(end, 300_001);
}

/// The QUIC performance protocol, with another stack at either end, which carries streams of so
/// many bytes in a moment.
fn performs(end: impl Fn(&str) -> Command, size: u64) {
    let mut server = Command::new(SENNIT);
    server.args(["test", "server", "--perf", "--listen", "127.0.0.1:0"]);
    let (server, line) = first_line(server.stderr(Stdio::piped()), |child| {
        Box::new(child.stderr.take().unwrap())
    });
    let address = line.strip_prefix("Listening on ").unwrap();
    let address = address.strip_suffix(" (UDP).").unwrap();
    let [down, up] = [size, size / 2].map(|bytes| bytes.to_string());
    let theirs = end("client")
        .args(["--server", address, "--down", &down, "--up", &up])
        .args(["--streams", "3"])
        .output();
    let theirs = theirs.unwrap();
    let said = String::from_utf8_lossy(&theirs.stdout);
    // Three streams of both directions, and one of one.
    assert_eq!(said.trim(), format!("received {}", 4 * size), "{theirs:?}");
    drop(server);

    let mut server = end("server");
    server.args(["--listen", "127.0.0.1:0"]);
    server.stdin(Stdio::piped());
    let (_server, line) = first_line(server.stdout(Stdio::piped()), |child| {
        Box::new(child.stdout.take().unwrap())
    });
    let address = line.strip_prefix("up ").unwrap();
    let bytes = 4 * size;
    let ours = Command::new(SENNIT)
        .args(["test", "client", address, "--perf", "--json"])
        .args(["--direction", "both", "--streams", "4", "--bytes"])
        .arg(bytes.to_string())
        .output();
    let ours = ours.unwrap();
    let report: serde_json::Value = serde_json::from_slice(&ours.stdout).unwrap();
    for way in ["up", "down"] {
        let arrived = report[way]["bytes"].as_u64();
        assert_eq!(arrived, Some(bytes), "{way}: {report}");
    }
    assert!(
        report["rtt"]["idle"]["count"].as_u64() > Some(5),
        "{report}"
    );
}

/// A program that runs until it is dropped, and the first line that it said. Nobody reads what else
/// it says, and it must not mind.
fn first_line(
    command: &mut Command,
    says: impl FnOnce(&mut Child) -> Box<dyn std::io::Read>,
) -> (Ends, String) {
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(says(&mut child))
        .read_line(&mut line)
        .unwrap();
    (Ends(child), line.trim().to_owned())
}

struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program of `interop/`; `None`, said loudly, where it cannot be built or run.
fn interop() -> Option<&'static Path> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    program(BUILT.get_or_init(|| build("interop")))
}

/// The program of `interop/udp/`.
fn masque_go() -> Option<&'static Path> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    program(BUILT.get_or_init(|| build("interop/udp")))
}

/// The packages of `interop/aioquic/`.
fn aioquic() -> Option<&'static Path> {
    static INSTALLED: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    program(INSTALLED.get_or_init(install_aioquic))
}

fn program(built: &'static Result<PathBuf, String>) -> Option<&'static Path> {
    match built {
        Ok(program) => Some(program),
        Err(why) => {
            eprintln!("SKIPPED: {why}");
            None
        }
    }
}

fn build(module: &str) -> Result<PathBuf, String> {
    if !sennit_linux::privilege::has_net_admin() {
        return Err("needs root".into());
    }
    let go = |args: &[&str]| {
        let mut command = Command::new("go");
        command.args(args);
        command.current_dir(format!("{}/../../{module}", env!("CARGO_MANIFEST_DIR")));
        command.output()
    };
    // Fails where Go is older than go.mod asks for and cannot fetch a newer one.
    let usable = go(&["list", "-m"]).map_err(|_| "needs go".to_owned())?;
    if !usable.status.success() {
        let why = String::from_utf8_lossy(&usable.stderr);
        return Err(format!("needs a newer go: {}", why.trim()));
    }
    let name = module.replace('/', "-");
    let program = format!("{}/{name}", env!("CARGO_TARGET_TMPDIR"));
    let built = go(&["build", "-buildvcs=false", "-o", &program, "."]).unwrap();
    let complaint = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{complaint}");
    Ok(program.into())
}

fn install_aioquic() -> Result<PathBuf, String> {
    let wanted = repository("interop/aioquic/requirements.txt");
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop-aioquic");
    let there = packages.join("requirements.txt");
    if fs::read(&there).is_ok_and(|there| there == fs::read(&wanted).unwrap()) {
        return Ok(packages);
    }
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--upgrade", "--target"]);
    pip.arg(&packages).arg("--requirement").arg(&wanted);
    let installed = pip.output().map_err(|_| "needs python3".to_owned())?;
    if !installed.status.success() {
        let why = String::from_utf8_lossy(&installed.stderr);
        return Err(format!("needs aioquic by pip: {}", why.trim()));
    }
    fs::copy(&wanted, &there).unwrap();
    Ok(packages)
}

/// A file of this repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// A lab with a link, and a directory for what daemons keep.
struct Site {
    // Daemons end with the lab, and before their directory goes.
    lab: Lab,
    directory: TempDir,
}

impl Site {
    fn new() -> Self {
        Self::over(Kind::Veth, &Config::default())
    }

    fn over(kind: Kind, way: &Config) -> Self {
        let link = LabLink {
            kind,
            ..LabLink::symmetric("a", way)
        };
        let spec = Spec {
            links: vec![link],
            ..Spec::default()
        };
        Self {
            lab: Lab::new(&spec).unwrap(),
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn state(&self, role: &str) -> [String; 2] {
        ["--state".into(), self.path(role).display().to_string()]
    }

    fn start_hub(&self) -> Daemon<'_> {
        self.start_hub_with("")
    }

    fn start_hub_with(&self, more: &str) -> Daemon<'_> {
        sennit(
            &["hub", "init", "--name", "hub.example"],
            &self.state("hub"),
        );
        let hub = "listen = ['0.0.0.0:443', '[::]:443']\npool = ['10.200.0.0/16', 'fd5e:1::/64']\nbearer_reach = ['everything']\n";
        let daemon = self.start("hub", self.lab.host(Role::Hub), hub, more);
        daemon.wait_until_up();
        daemon
    }

    /// connect-ip-go on the edge's host or behind it, towards our hub.
    fn start_client(&self, go: &Path, on: Role, bearer: &str) -> Peer<'_> {
        let client = self.lab.host(on);
        // The tunnel's own packets must not go into the tunnel.
        let gateway = match on {
            Role::Lan => plan::Lan::of(0).edge().v4,
            _ => plan::Subnet::of(0).hub().v4,
        };
        let pin = format!("route add {}/32 via {gateway}\n", plan::HUB.v4);
        client.ip(&pin).unwrap();
        let ca = sennit(&["hub", "ca"], &self.state("hub"));
        let mut command = client.command(go);
        command.args(["client", "--device", "go0", "--name", "hub.example"]);
        command.args(["--hub", &format!("{}:443", plan::HUB.v4)]);
        command.arg("--ca").arg(self.file("ca.pem", &ca));
        command.arg("--bearer").arg(self.file("bearer", bearer));
        Peer::start(self, client, command)
    }

    /// The client of masque-go on the edge's host, towards our hub and by it to targets.
    fn start_udp(&self, go: &Path, bearer: &str, targets: &str) -> Peer<'_> {
        let client = self.lab.host(Role::Edge);
        let ca = sennit(&["hub", "ca"], &self.state("hub"));
        let mut command = client.command(go);
        command.args(["--name", "hub.example", "--targets", targets]);
        command.args(["--hub", &format!("{}:443", plan::HUB.v4)]);
        command.arg("--ca").arg(self.file("ca.pem", &ca));
        command.arg("--bearer").arg(self.file("bearer", bearer));
        Peer::start(self, client, command)
    }

    /// connect-ip-go on the hub's host, for our edge.
    fn start_proxy(&self, go: &Path, bearer: &str) -> Peer<'_> {
        self.write_proxy_identity();
        let proxy = self.lab.host(Role::Hub);
        let mut command = proxy.command(go);
        command.args(["proxy", "--device", "go0", "--name", "proxy.example:4433"]);
        command.args(["--listen", &format!("{}:4433", plan::HUB.v4)]);
        command.args([
            "--own",
            "10.77.0.1,fd77::1",
            "--assign",
            "10.77.0.2,fd77::2",
        ]);
        command.arg("--cert").arg(self.path("proxy.pem"));
        command.arg("--key").arg(self.path("proxy.key"));
        command.arg("--bearer").arg(self.file("bearer", bearer));
        Peer::start(self, proxy, command)
    }

    fn start_edge(&self) -> Daemon<'_> {
        let edge = format!(
            "hub = ['{}:4433']\nroutes = ['10.77.0.0/24', 'fd77::/64']\n\
             proxy_ca = '{}'\nproxy_name = 'proxy.example'\nbearer = 'file:{}'\n",
            plan::HUB.v4,
            self.path("proxy-ca.pem").display(),
            self.path("bearer").display(),
        );
        // One link, as a peer without multipath uses no second one.
        let links = "[[link]]\nname = 'a'\ninterface = 'wan-a'\n";
        self.start("edge", self.lab.host(Role::Edge), &edge, links)
    }

    fn start<'a>(&'a self, role: &str, host: &'a Host, section: &str, more: &str) -> Daemon<'a> {
        let control = self.path(&format!("{role}.sock"));
        // The name is one of this process, because daemons share /run/sennit across namespaces.
        let device = format!("it{}{}", std::process::id(), &role[..1]);
        let config = format!(
            "[{role}]\ndevice = '{device}'\nstate = '{}'\ncontrol = '{}'\n{section}{more}",
            self.path(role).display(),
            control.display(),
        );
        let config = self.file(&format!("{role}.toml"), &config);
        let log = Log(self.path(&format!("{role}.log")));
        let output = log.create();
        let mut command = host.command(SENNIT);
        command.arg(role).arg("--config").arg(config);
        command.stdin(Stdio::null());
        command.stdout(output.try_clone().unwrap()).stderr(output);
        let process = host.spawn(&mut command).unwrap();
        Daemon {
            host,
            control,
            _log: log,
            process,
        }
    }

    /// A certificate for `proxy.example` and the authority that signed it.
    fn write_proxy_identity(&self) {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["proxy.example".into()]).unwrap();
        let certificate = params.signed_by(&key, &ca).unwrap();
        self.file("proxy-ca.pem", &ca.pem());
        self.file("proxy.pem", &certificate.pem());
        self.file("proxy.key", &key.serialize_pem());
    }
}

/// A running hub or edge.
struct Daemon<'a> {
    host: &'a Host,
    control: PathBuf,
    _log: Log,
    process: Running,
}

impl Daemon<'_> {
    fn status(&self, more: &[&str]) -> String {
        let mut command = self.host.command(SENNIT);
        command
            .args(["status", "--json", "--control"])
            .arg(&self.control);
        let output = command.args(more).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{complaint}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn wait_until_up(&self) {
        self.status(&["--wait", "up", "--timeout", &PATIENCE.as_secs().to_string()]);
    }

    fn tunnels(&self) -> usize {
        let status: serde_json::Value = serde_json::from_str(&self.status(&[])).unwrap();
        status["tunnels"].as_array().unwrap().len()
    }
}

/// Stopped rather than killed, it leaves nothing in /run/sennit.
impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        self.process.signal(Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && matches!(self.process.child().try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The program of `interop/`, started; it ends when its input does.
struct Peer<'a> {
    process: Running,
    lines: mpsc::Receiver<String>,
    log: Log,
    _site: &'a Site,
}

impl<'a> Peer<'a> {
    fn start(site: &'a Site, host: &Host, mut command: Command) -> Self {
        let log = Log(site.path("go.log"));
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.create());
        let mut process = host.spawn(&mut command).unwrap();
        let output = BufReader::new(process.child().stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Self {
            process,
            lines,
            log,
            _site: site,
        }
    }

    /// Waits for the tunnel; its inner addresses on the peer's side.
    fn up(self) -> (Vec<IpAddr>, Self) {
        let line = self
            .lines
            .recv_timeout(PATIENCE)
            .expect("the tunnel comes up");
        let addresses = line.strip_prefix("up ").expect("that is what it says");
        let addresses = addresses.split(' ').map(|word| word.parse().unwrap());
        (addresses.collect(), self)
    }

    /// Waits for it to give up; what it complains about.
    fn failure(mut self) -> String {
        let line = self.lines.recv_timeout(PATIENCE);
        assert_eq!(line, Err(mpsc::RecvTimeoutError::Disconnected), "no tunnel");
        let input = self.process.child().stdin.take();
        assert!(!self.process.child().wait().unwrap().success());
        drop(input);
        self.log.text()
    }
}

/// What a program says, shown when the test fails.
struct Log(PathBuf);

impl Log {
    fn create(&self) -> File {
        File::create(&self.0).unwrap()
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.0).unwrap_or_default()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}:\n{}", self.0.display(), self.text());
        }
    }
}

/// Runs `sennit` to its end; its output.
fn sennit(words: &[&str], more: &[String]) -> String {
    let output = Command::new(SENNIT)
        .args(words)
        .args(more)
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    String::from_utf8(output.stdout).unwrap()
}

/// Sends back whatever comes to a socket at this address, for as long as the test runs.
fn echo_udp(host: &Host, address: IpAddr) -> SocketAddr {
    let socket = host.netns().run(|| UdpSocket::bind((address, 0)));
    let socket = socket.unwrap().unwrap();
    let bound = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut packet = [0; 2048];
        while let Ok((len, from)) = socket.recv_from(&mut packet) {
            let _ = socket.send_to(&packet[..len], from);
        }
    });
    bound
}

/// Three pings, all answered.
#[track_caller]
fn ping(from: &Host, to: &str) {
    let line = ["ping", "-n", "-q", "-c", "3", "-i", "0.1", "-W", "2", to];
    from.exec(&line).unwrap();
}

/// A megabyte goes there and comes back.
#[track_caller]
fn assert_tcp_both_ways(client: &Host, server: &Host, address: IpAddr) {
    let sent: Vec<u8> = (0_u32..1 << 18).flat_map(u32::to_be_bytes).collect();
    let listener = server.netns().run(|| TcpListener::bind((address, 0)));
    let listener = listener.unwrap().unwrap();
    let port = listener.local_addr().unwrap().port();

    // Not waited for: it ends when its client leaves, and there may be none.
    thread::spawn(move || echo(&listener));
    let talk = || {
        let to = SocketAddr::new(address, port);
        let mut stream = TcpStream::connect_timeout(&to, PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut back = stream.try_clone().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| stream.write_all(&sent).unwrap());
            let mut received = vec![0; sent.len()];
            back.read_exact(&mut received).unwrap();
            received
        })
    };
    let received = client.netns().run(talk).unwrap();

    assert!(received == sent, "what came back is not what was sent");
}

/// Sends one client back what it sends.
fn echo(listener: &TcpListener) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut back = stream.try_clone().unwrap();
    // Ends with an error when the client leaves.
    let _ = std::io::copy(&mut stream, &mut back);
}
