//! What a daemon adds to its host does what it should, and goes again.

mod routes;
mod rules;

use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use sennit_linux::{
    DeviceName, Error, Footprint, Instance, Masquerade, TunnelRoute, cleanup, cleanup_all,
    netlink::{Family, Interface, Netlink},
    tun::{Offload, Tun, TunConfig},
};

use crate::world::Host;

/// A directory of one test, removed with it.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let (pid, number) = (std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(format!("sennit-linux-{pid}-{number}")))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn sennit0() -> DeviceName {
    "sennit0".parse().unwrap()
}

fn open_tun(name: &DeviceName) -> Tun {
    let config = TunConfig {
        name: name.clone(),
        mtu: 1400,
        queues: 1,
        offload: Offload::None,
    };
    Tun::open(&config).unwrap().remove(0)
}

/// Everything that a daemon could have changed, as text.
fn snapshot(host: &Host) -> String {
    host.sh("ip rule; ip -6 rule
         ip route show table all; ip -6 route show table all
         ip address | grep -v valid_lft
         nft list ruleset
         cd /proc/sys/net; grep . ipv4/ip_forward ipv4/conf/*/rp_filter ipv4/conf/*/forwarding \
             ipv6/conf/*/forwarding ipv6/conf/*/accept_ra")
}

fn into_tunnel(device: u32, prefixes: &[&str]) -> Vec<TunnelRoute> {
    let route = |prefix: &&str| TunnelRoute {
        prefix: prefix.parse().unwrap(),
        device,
        source: None,
    };
    prefixes.iter().map(route).collect()
}

/// An edge with two links into different networks, both 192.168.1.0/24 with the same gateway, a
/// LAN, and strict reverse path filtering.
struct Site {
    edge: Host,
    left: Host,
    right: Host,
    lan: Host,
    directory: Directory,
}

impl Site {
    fn new() -> Option<Self> {
        let site = Self {
            edge: Host::new()?,
            left: Host::new()?,
            right: Host::new()?,
            lan: Host::new()?,
            directory: Directory::new(),
        };
        site.edge.sh("sysctl -qw net.ipv4.conf.all.rp_filter=1");
        for (device, far, metric) in [("eth1", &site.left, 100), ("eth2", &site.right, 200)] {
            site.edge.cable(device, far, "eth1");
            site.edge.sh(&format!(
                "ip address add 192.168.1.2/24 dev {device}
                 ip address add 2001:db8:1::2/64 dev {device} nodad
                 ip route add default via 192.168.1.1 dev {device} metric {metric}
                 ip route add default via fe80::1 dev {device} metric {metric}"
            ));
            // Both gateways are also the hub, at an address far away.
            far.sh(
                "ip address add 192.168.1.1/24 dev eth1; ip address add fe80::1/64 dev eth1 nodad
                 ip address add 2001:db8:1::1/64 dev eth1 nodad
                 ip address add 203.0.113.1/32 dev lo; ip address add 2001:db8:ff::1/128 dev lo",
            );
        }
        site.edge.cable("lan0", &site.lan, "eth0");
        site.edge.sh("ip address add 192.168.8.1/24 dev lan0");
        Some(site)
    }

    fn begin(&self) -> Result<Footprint, Error> {
        self.edge
            .run(|| Footprint::begin(&sennit0(), self.directory.path()))
    }

    fn interface(&self, name: &str) -> Interface {
        self.edge
            .run(|| Interface::lookup(&mut Netlink::open().unwrap(), name).unwrap())
    }

    /// The whole set-up of an edge that sends everything into the tunnel.
    fn apply(&self, footprint: &mut Footprint) -> Tun {
        self.edge.run(|| apply(footprint))
    }

    /// The device by which the edge reaches `to`.
    fn way_to(&self, to: &str) -> String {
        let way = self.edge.sh(&format!("ip route get {to}"));
        let mut words = way.split(' ').skip_while(|word| *word != "dev");
        words.nth(1).unwrap_or_default().to_owned()
    }
}

fn apply(footprint: &mut Footprint) -> Tun {
    let tun = open_tun(&sennit0());
    let addresses = ["10.200.0.7/32", "fd5e:1::7/128"].map(|a| a.parse().unwrap());
    footprint.set_addresses(tun.index(), &addresses).unwrap();
    for (link, name) in ["eth1", "eth2"].into_iter().enumerate() {
        footprint.route_link(link, name).unwrap();
    }
    let routes = into_tunnel(tun.index(), &["0.0.0.0/0", "::/0", "10.0.0.0/8"]);
    footprint.route_into_tunnel(routes).unwrap();
    footprint.forward(Family::V4).unwrap();
    footprint.forward(Family::V6).unwrap();
    let sources = vec!["10.200.0.0/16".parse().unwrap()];
    footprint
        .masquerade(&Masquerade {
            sources,
            inside: Vec::new(),
        })
        .unwrap();
    tun
}

#[test]
fn nothing_is_left_after_a_stop() {
    let Some(site) = Site::new() else { return };
    let before = snapshot(&site.edge);

    let mut footprint = site.begin().unwrap();
    let tun = site.apply(&mut footprint);
    let during = snapshot(&site.edge);
    drop(tun);
    site.edge.run(|| footprint.remove().unwrap());

    assert_ne!(during, before);
    assert_eq!(snapshot(&site.edge), before);
    assert_eq!(site.begin().map(drop).map_err(|e| e.to_string()), Ok(()));
}

#[test]
fn the_device_may_go_after_the_footprint() {
    let Some(site) = Site::new() else { return };
    let before = snapshot(&site.edge);

    let mut footprint = site.begin().unwrap();
    let tun = site.apply(&mut footprint);
    site.edge.run(|| drop(footprint));
    drop(tun);

    assert_eq!(snapshot(&site.edge), before);
}

#[test]
fn a_crash_leaves_nothing_after_the_next_start_or_a_cleanup() {
    let Some(site) = Site::new() else { return };
    let before = snapshot(&site.edge);
    let starts: [&(dyn Fn() + Sync); 2] = [&|| site.begin().unwrap().remove().unwrap(), &|| {
        cleanup(&sennit0(), site.directory.path()).unwrap();
    }];
    for start in starts {
        site.edge.run(|| kill_a_daemon(site.directory.path()));
        assert_ne!(snapshot(&site.edge), before, "the crash removed it already");

        site.edge.run(start);

        assert_eq!(snapshot(&site.edge), before);
    }
}

#[test]
fn a_cleanup_of_all_finds_what_nobody_names_and_leaves_alone_what_runs() {
    let Some(site) = Site::new() else { return };
    let (wan0, run0): (DeviceName, DeviceName) = ("wan0".parse().unwrap(), "run0".parse().unwrap());
    let blocked = ["0.0.0.0/0", "::/0", "10.9.0.0/16"].map(|it| it.parse().unwrap());
    let block = |device: &DeviceName| {
        let directory = site.directory.path();
        site.edge
            .run(|| Footprint::begin_blocking(device, directory, &blocked).unwrap())
    };
    let clean = |known: &[&str]| {
        let directory = site.directory.path();
        let known: Vec<DeviceName> = known.iter().map(|it| it.parse().unwrap()).collect();
        site.edge.run(|| cleanup_all(known, directory).unwrap())
    };
    let before = snapshot(&site.edge);
    let running = block(&run0);
    let beside = snapshot(&site.edge);
    assert_ne!(beside, before);

    // Of a guard there are routes and rules alone, of a killed daemon also what has its name.
    let guard = block(&wan0);
    site.edge.run(|| guard.remove_but_block().unwrap());
    site.edge.run(|| kill_a_daemon(site.directory.path()));
    let twin = twin_of(&run0);
    let cleaned = clean(&["run0", "else0", twin.as_str()]);

    assert_eq!(snapshot(&site.edge), beside);
    assert_eq!(cleaned.devices, [sennit0()], "nothing of else0 was here");
    assert_eq!(cleaned.running, [run0], "its twin by number does not run");
    site.edge.run(|| running.remove_but_block().unwrap());
    assert_eq!(clean(&["run0"]).devices, ["run0".parse().unwrap()]);
    assert_eq!(snapshot(&site.edge), before);
}

/// Another name with the same number.
fn twin_of(device: &DeviceName) -> DeviceName {
    let mut names = (0..).map(|i| format!("x{i}").parse::<DeviceName>().unwrap());
    let is_twin = |name: &DeviceName| Instance::of(name) == Instance::of(device);
    names.find(is_twin).unwrap()
}

const DIRECTORY: &str = "SENNIT_TEST_DIRECTORY";

/// Lets a process set everything up on the caller's host, and kills it with SIGKILL.
fn kill_a_daemon(directory: &Path) {
    let mut daemon = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "footprint::the_daemon_that_is_killed",
            "--ignored",
            "--nocapture",
        ])
        .env(DIRECTORY, directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(daemon.stdout.take().unwrap()).lines();
    let ready = lines.any(|line| line.unwrap().contains("ready"));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert!(ready, "the daemon failed to start");
}

#[test]
#[ignore = "the process that another test kills"]
fn the_daemon_that_is_killed() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    let mut footprint = Footprint::begin(&sennit0(), Path::new(&directory)).unwrap();
    let _tun = apply(&mut footprint);
    println!("ready");
    // Until killed, or until the killer itself has died.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn a_running_daemon_is_not_disturbed() {
    let Some(site) = Site::new() else { return };
    let mut footprint = site.begin().unwrap();
    let _tun = site.apply(&mut footprint);
    let before = snapshot(&site.edge);

    let second = site.begin().unwrap_err();
    let cleaned = site
        .edge
        .run(|| cleanup(&sennit0(), site.directory.path()))
        .unwrap_err();
    site.edge
        .run(|| cleanup(&"other0".parse().unwrap(), site.directory.path()))
        .unwrap();

    assert!(matches!(second, Error::DeviceBusy(_)), "{second}");
    assert!(matches!(cleaned, Error::DeviceBusy(_)), "{cleaned}");
    assert_eq!(snapshot(&site.edge), before);
}

#[test]
fn two_devices_with_the_same_numbers_do_not_run_together() {
    let Some(host) = Host::new() else { return };
    let directory = Directory::new();
    let twin = twin_of(&sennit0());
    let _footprint = host
        .run(|| Footprint::begin(&sennit0(), directory.path()))
        .unwrap();

    let error = host
        .run(|| Footprint::begin(&twin, directory.path()))
        .unwrap_err();

    assert!(matches!(error, Error::InstanceTaken(_)), "{error}");
}

#[test]
fn without_the_capability_nothing_begins_and_the_reason_is_said() {
    let Some(host) = Host::new() else { return };
    let directory = Directory::new();
    let errors = host.run(|| {
        let mut capabilities = rustix::thread::capabilities(None).unwrap();
        capabilities
            .effective
            .remove(rustix::thread::CapabilitySet::NET_ADMIN);
        rustix::thread::set_capabilities(None, capabilities).unwrap();
        let config = TunConfig {
            name: sennit0(),
            mtu: 1400,
            queues: 1,
            offload: Offload::Auto,
        };
        [
            Footprint::begin(&sennit0(), directory.path())
                .map(drop)
                .unwrap_err(),
            Tun::open(&config).map(drop).unwrap_err(),
        ]
    });

    for error in errors {
        assert!(matches!(error, Error::NotPrivileged), "{error}");
        assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
    }
}
