//! What a daemon adds to its host does what it should, and goes again.

use std::{
    io::{BufRead, BufReader, Read},
    net::{IpAddr, UdpSocket},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use sennit_linux::{
    DeviceName, Error, Footprint, Instance, Masquerade, Passage, Rules, TunnelRoute, cleanup,
    cleanup_all, cleanup_but_block, forward_blockers,
    netlink::{Family, Interface, Netlink},
    tun::{Offload, TUN_BUFFER, Tun, TunConfig},
    udp::{LinkBinding, LinkSocket, Transmit},
};

use crate::{tun::next_run, world::Host};

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

#[test]
fn a_passage_is_for_marked_packets_alone() {
    let Some(site) = Site::new() else { return };
    let blocked = ["0.0.0.0/0", "::/0"].map(|it| it.parse().unwrap());
    let directory = site.directory.path();
    let guard = site
        .edge
        .run(|| Footprint::begin_blocking(&sennit0(), directory, &blocked).unwrap());
    site.edge.run(|| guard.remove_but_block().unwrap());
    let held_back = snapshot(&site.edge);
    let links = ["eth1", "eth2"].map(|name| Some(site.interface(name)));

    let passage = site
        .edge
        .run(|| Passage::open(&sennit0(), links).unwrap().unwrap());

    let way = |more: &str| {
        site.edge
            .sh(&format!("ip route get 203.0.113.1 {more} 2>&1 || true"))
    };
    let marked = way(&format!("mark {}", passage.mark(1).unwrap()));
    assert!(marked.contains("dev eth2"), "{marked}");
    for more in ["", "from 192.168.1.2"] {
        assert!(
            way(more).contains("No route to host"),
            "{more}: {}",
            way(more)
        );
    }
    site.edge.run(|| drop(passage));
    assert_eq!(snapshot(&site.edge), held_back);
}

#[test]
fn what_was_translated_stays_so_until_the_next_daemon_has_rules_of_its_own() {
    let Some(site) = Site::new() else { return };
    let translates = || site.edge.sh("nft list ruleset").contains("masquerade");
    let forwards = || site.edge.sh("cat /proc/sys/net/ipv4/ip_forward") == "1\n";
    site.edge.run(|| kill_a_daemon(site.directory.path()));
    site.edge
        .run(|| cleanup_but_block(&sennit0(), site.directory.path()).unwrap());
    assert!(translates(), "after a crash");

    let mut footprint = site.begin().unwrap();
    assert!(translates(), "while the next one starts");
    site.edge
        .run(|| footprint.set_rules(&Rules::default()).unwrap());
    assert!(!translates(), "the next one has none");

    let tun = site.apply(&mut footprint);
    site.edge.run(|| footprint.remove_for_restart().unwrap());
    drop(tun);
    assert!(translates() && forwards(), "while it is restarted");
    let mut next = site.begin().unwrap();
    assert!(translates() && forwards(), "while the next one starts");
    let tun = site.apply(&mut next);
    site.edge.run(|| next.remove_but_block().unwrap());
    drop(tun);
    assert!(translates() && !forwards(), "stopped, but for its block");
    let last = site.begin().unwrap();
    site.edge.run(|| last.remove().unwrap());
    assert!(!translates() && !forwards());
}

#[test]
fn rules_that_another_program_takes_away_are_put_back_and_others_leave_them_alone() {
    let Some(site) = Site::new() else { return };
    let mut footprint = site.begin().unwrap();
    let _tun = site.apply(&mut footprint);
    let listing = || site.edge.sh("nft list ruleset");
    let restore = |footprint: &mut Footprint| site.edge.run(|| footprint.restore_rules().unwrap());
    let before = listing();
    assert!(!restore(&mut footprint), "nothing has happened");

    site.edge.sh("nft add table inet another");
    assert!(!restore(&mut footprint), "it is still there");
    for change in [
        "flush ruleset",
        "delete table inet sennit_sennit0",
        "flush table inet sennit_sennit0",
        "add rule inet sennit_sennit0 postrouting accept",
    ] {
        site.edge.sh(&format!("nft '{change}'"));
        assert!(restore(&mut footprint), "{change}");
        assert!(!restore(&mut footprint), "once is enough");
        let now = listing().replace("table inet another {\n}\n", "");
        assert_eq!(now, before, "{change}");
    }
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
fn everything_goes_into_the_tunnel_but_what_is_near() {
    let Some(site) = Site::new() else { return };
    assert_eq!(site.way_to("198.51.100.1"), "eth1");

    let mut footprint = site.begin().unwrap();
    let _tun = site.apply(&mut footprint);

    for (to, device) in [
        ("198.51.100.1", "sennit0"),
        ("2001:db8:77::1", "sennit0"),
        ("10.1.2.3", "sennit0"),
        ("192.168.8.9", "lan0"),
        ("192.168.1.1", "eth1"),
        ("198.51.100.1 from 192.168.1.2", "eth1"),
        ("2001:db8:77::1 from 2001:db8:1::2", "eth1"),
        ("192.168.8.9 from 192.168.1.2", "lan0"),
    ] {
        assert_eq!(site.way_to(to), device, "{to}");
    }
}

#[test]
fn only_the_prefixes_asked_for_go_into_the_tunnel() {
    let Some(site) = Site::new() else { return };
    site.edge.sh("ip route add 10.7.0.0/16 via 192.168.8.2");
    let mut footprint = site.begin().unwrap();
    let tun = site.edge.run(|| open_tun(&sennit0()));

    let routes = into_tunnel(tun.index(), &["10.0.0.0/8", "192.168.8.0/24", "fd5e::/16"]);
    site.edge
        .run(|| footprint.route_into_tunnel(routes).unwrap());

    for (to, device) in [
        ("10.1.2.3", "sennit0"),
        ("fd5e::1", "sennit0"),
        ("10.7.1.1", "lan0"),
        ("192.168.8.9", "lan0"),
        ("198.51.100.1", "eth1"),
    ] {
        assert_eq!(site.way_to(to), device, "{to}");
    }
    site.edge
        .run(|| footprint.route_into_tunnel(Vec::new()).unwrap());
    assert_eq!(site.way_to("10.1.2.3"), "eth1");
}

#[test]
fn tunnel_packets_keep_to_their_link_and_their_answers_arrive() {
    let Some(site) = Site::new() else { return };
    let mut footprint = site.begin().unwrap();
    let mut tun = site.apply(&mut footprint);
    let links = [("eth1", &site.left), ("eth2", &site.right)];
    for (address, hub) in [
        ("192.168.1.2", "203.0.113.1:4433"),
        ("2001:db8:1::2", "[2001:db8:ff::1]:4433"),
    ] {
        for (link, (device, far)) in links.into_iter().enumerate() {
            let mark = footprint.link_mark(link).unwrap();
            let address: IpAddr = address.parse().unwrap();
            let binding = LinkBinding {
                device,
                address,
                mark: Some(mark),
            };
            let mut socket = site.edge.run(|| LinkSocket::bind(&binding)).unwrap();
            let mut listener = far
                .run(|| LinkSocket::listen(hub.parse().unwrap()))
                .unwrap();

            let packet = |to, contents| Transmit {
                destination: to,
                ecn: None,
                contents,
                segment_size: None,
                src_ip: None,
            };
            socket
                .send(&packet(hub.parse().unwrap(), device.as_bytes()))
                .unwrap();
            let (received, meta) = next_run(&mut listener);
            listener.send(&packet(meta.addr, b"back")).unwrap();

            assert_eq!(received, device.as_bytes());
            assert_eq!(next_run(&mut socket).0, b"back");
        }
    }
    let mut buffer = vec![0; TUN_BUFFER];
    while let Some((_, len)) = tun.recv(&mut buffer).unwrap() {
        // A router tells its groups (RFC 3810) on every interface; that is none of ours.
        let multicast = len > 40 && buffer[0] >> 4 == 6 && buffer[24] == 0xff;
        assert!(multicast, "leaked {:02x?}", &buffer[..len]);
    }
}

#[test]
fn the_mark_finds_the_gateway_past_a_kill_switch() {
    let Some(site) = Site::new() else { return };
    let mut footprint = site.begin().unwrap();
    let _tun = site.apply(&mut footprint);
    let mark = footprint.link_mark(1).unwrap();
    let way = |how: &str| {
        site.edge
            .sh(&format!("ip route get 203.0.113.1 oif eth2 {how}"))
    };

    site.edge.sh("ip rule add priority 5000 prohibit");

    assert!(!way("").contains("via 192.168.1.1"), "{}", way(""));
    let marked = way(&format!("mark {mark}"));
    assert!(marked.contains("via 192.168.1.1"), "{marked}");
}

#[test]
fn a_link_follows_its_interface() {
    let Some(site) = Site::new() else { return };
    let mut footprint = site.begin().unwrap();
    let _tun = site.apply(&mut footprint);
    let mark = footprint.link_mark(0).unwrap();
    let marked = |site: &Site| site.way_to(&format!("203.0.113.1 mark {mark}"));
    let route = |site: &Site| site.edge.sh(&format!("ip route show table {mark} default"));
    assert_eq!(marked(&site), "eth1");

    site.edge
        .sh("ip route replace default via 192.168.1.77 dev eth1 metric 100");
    site.edge.run(|| footprint.route_link(0, "eth1").unwrap());
    assert!(
        route(&site).contains("via 192.168.1.77"),
        "{}",
        route(&site)
    );

    site.edge
        .sh("ip route delete default via 192.168.1.77 dev eth1");
    site.edge.run(|| footprint.route_link(0, "eth1").unwrap());
    assert_eq!(
        marked(&site),
        "eth1",
        "without a gateway the device is the way"
    );

    site.edge.sh("ip link set eth1 down");
    site.edge.run(|| footprint.route_link(0, "eth1").unwrap());
    assert_eq!(marked(&site), "sennit0");
    assert!(!site.edge.sh("ip rule").contains(&format!("{mark:#x}")));
}

#[test]
fn addresses_of_the_tunnel_are_replaced() {
    let Some(site) = Site::new() else { return };
    let mut footprint = site.begin().unwrap();
    let tun = site.apply(&mut footprint);

    site.edge.run(|| {
        let addresses = ["10.200.0.8/32".parse().unwrap()];
        footprint.set_addresses(tun.index(), &addresses).unwrap();
    });

    let nets: Vec<_> = site
        .interface("sennit0")
        .addresses
        .iter()
        .map(|a| a.net.to_string())
        .collect();
    assert_eq!(nets, ["10.200.0.8/32"]);
}

#[test]
fn a_device_made_beforehand_loses_our_addresses_only() {
    let Some(site) = Site::new() else { return };
    site.edge
        .sh("ip tuntap add sennit0 mode tun vnet_hdr; ip address add 10.9.9.9/32 dev sennit0");

    let mut footprint = site.begin().unwrap();
    let tun = site.apply(&mut footprint);
    drop(tun);
    site.edge.run(|| drop(footprint));

    let nets: Vec<_> = site
        .interface("sennit0")
        .addresses
        .iter()
        .map(|a| a.net.to_string())
        .collect();
    assert_eq!(nets, ["10.9.9.9/32"]);
}

#[test]
fn the_last_of_two_daemons_switches_forwarding_off() {
    let Some(host) = Host::new() else { return };
    let directory = Directory::new();
    let forwarding =
        || host.sh("cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding");
    let begin = |name: &str| {
        host.run(|| {
            let mut footprint = Footprint::begin(&name.parse().unwrap(), directory.path()).unwrap();
            footprint.forward(Family::V4).unwrap();
            footprint.forward(Family::V6).unwrap();
            footprint
        })
    };

    let (first, second) = (begin("sennit0"), begin("sennit1"));
    host.run(|| drop(first));
    let with_one = forwarding();
    host.run(|| drop(second));

    assert_eq!(with_one, "1\n1\n");
    assert_eq!(forwarding(), "0\n0\n");
}

#[test]
fn forwarding_that_was_on_stays_on_and_so_does_an_administrators_change() {
    let Some(host) = Host::new() else { return };
    let directory = Directory::new();
    host.sh("sysctl -qw net.ipv4.ip_forward=1");
    host.run(|| {
        let mut footprint = Footprint::begin(&sennit0(), directory.path()).unwrap();
        footprint.forward(Family::V4).unwrap();
        footprint.forward(Family::V6).unwrap();
        std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "2").unwrap();
    });

    assert_eq!(host.sh("cat /proc/sys/net/ipv4/ip_forward"), "1\n");
    assert_eq!(host.sh("cat /proc/sys/net/ipv6/conf/all/forwarding"), "2\n");
}

#[test]
fn strict_reverse_path_filtering_is_loosened_where_it_is_strict() {
    let Some(site) = Site::new() else { return };
    let mode = || site.edge.sh("cat /proc/sys/net/ipv4/conf/eth1/rp_filter");
    let before = mode();

    let mut footprint = site.begin().unwrap();
    site.edge
        .run(|| footprint.loosen_reverse_path("eth1").unwrap());
    let during = mode();
    site.edge.run(|| drop(footprint));

    assert_eq!(during, "2\n");
    assert_eq!(mode(), before);
}

#[test]
fn what_leaves_the_hub_gets_its_address() {
    let Some((hub, server)) = Host::pair() else {
        return;
    };
    let directory = Directory::new();
    hub.cable("eth0", &server, "eth0");
    hub.sh("ip address add 198.18.1.1/24 dev eth0; ip address add 10.200.5.5/32 dev lo");
    server.sh("ip address add 198.18.1.9/24 dev eth0");
    let listener = server.run(|| UdpSocket::bind("198.18.1.9:9").unwrap());

    let source = hub.run(|| {
        let mut footprint = Footprint::begin(&sennit0(), directory.path()).unwrap();
        let sources = vec![
            "10.200.0.0/16".parse().unwrap(),
            "fd5e:1::/64".parse().unwrap(),
        ];
        footprint
            .masquerade(&Masquerade {
                sources,
                inside: Vec::new(),
            })
            .unwrap();
        let sender = UdpSocket::bind("10.200.5.5:0").unwrap();
        sender.send_to(b"x", "198.18.1.9:9").unwrap();
        listener.recv_from(&mut [0; 8]).unwrap().1.ip()
    });

    assert_eq!(source.to_string(), "198.18.1.1");
}

#[test]
fn what_a_hub_itself_sends_enters_no_tunnel_even_if_there_is_no_other_way() {
    let Some((hub, server)) = Host::pair() else {
        return;
    };
    let directory = Directory::new();
    hub.cable("eth0", &server, "eth0");
    hub.sh("ip address add 198.18.1.1/24 dev eth0; ip -6 address add fd18::1/64 dev eth0 nodad");
    let way = |mark: u32, to: &str| hub.sh(&format!("ip route get {to} mark {mark} 2>&1 || true"));

    hub.run(|| {
        let mut footprint = Footprint::begin(&sennit0(), directory.path()).unwrap();
        let tun = open_tun(&sennit0());
        let mark = footprint.keep_outside().unwrap();
        let announced = ["10.7.0.0/16", "198.18.1.9/32", "fd07::/64"];
        let routes = into_tunnel(tun.index(), &announced);
        footprint.route_into_tunnel(routes).unwrap();

        for to in ["10.7.0.1", "fd07::1"] {
            assert!(way(0, to).contains("dev sennit0"), "{}", way(0, to));
            // Words differ by family: no route, or unreachable.
            assert!(!way(mark, to).contains(" dev "), "{}", way(mark, to));
        }
        assert!(way(mark, "198.18.1.9").contains("dev eth0"));

        hub.sh("ip route add default via 198.18.1.8; ip -6 route add default via fd18::9");
        footprint.refresh_routes().unwrap();
        for to in ["10.7.0.1", "fd07::1"] {
            assert!(way(mark, to).contains("dev eth0"), "{}", way(mark, to));
        }
    });
    assert!(!snapshot(&hub).contains("10.7.0.0/16"), "nothing is left");
}

#[test]
fn a_firewall_that_drops_forwarded_packets_is_named() {
    let Some(host) = Host::new() else { return };
    assert_eq!(host.run(forward_blockers).unwrap(), Vec::<String>::new());

    host.sh(
        "nft 'table ip guard { chain f { type filter hook forward priority 0; policy drop; }; }'",
    );

    assert_eq!(host.run(forward_blockers).unwrap(), ["ip guard f"]);
}

#[test]
fn marks_belong_to_the_instance() {
    let Some(host) = Host::new() else { return };
    let directory = Directory::new();

    let footprint = host.run(|| Footprint::begin(&sennit0(), directory.path()).unwrap());

    let mark = footprint.link_mark(3).unwrap();
    assert_eq!(mark, Instance::of(&sennit0()).link_mark(3).unwrap());
    host.run(|| drop(footprint));
}

#[test]
fn a_route_taken_back_goes_whichever_device_it_was_for() {
    let Some(site) = Site::new() else { return };
    let mut footprint = site.begin().unwrap();
    let tuns = site
        .edge
        .run(|| ["sennit0", "bulk0"].map(|name| open_tun(&name.parse().unwrap())));

    let [main, bulk] = tuns.each_ref().map(Tun::index);
    site.edge.run(|| {
        footprint
            .route_into_tunnel(into_tunnel(bulk, &["10.9.0.0/16"]))
            .unwrap();
        assert_eq!(site.way_to("10.9.1.1"), "bulk0");
        footprint
            .route_into_tunnel(into_tunnel(main, &["10.8.0.0/16"]))
            .unwrap();
    });

    assert_eq!(site.way_to("10.9.1.1"), "eth1");
    assert_eq!(site.way_to("10.8.1.1"), "sennit0");
}

#[test]
fn a_host_without_ipv6_gets_the_rest() {
    let Some(site) = Site::new() else { return };
    site.edge
        .sh("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1");
    let mut footprint = site.begin().unwrap();

    let _tun = site.apply(&mut footprint);

    assert_eq!(site.way_to("198.51.100.1"), "sennit0");
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
