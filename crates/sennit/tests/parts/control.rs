//! The control socket and the status that people read.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use sennit::config::{Delivery, Policy};
use sennit::control::{
    BindError, Client, ClientError, MAX_REQUEST_BYTES, Request, Response, Server,
};
use sennit::status::{
    Cause, CongestionCause, Controller, FlowLinkStatus, FlowQueueStatus, FlowStatus, HeaderStatus,
    LinkAccount, LinkCause, LinkState, LinkStatus, LinkTraffic, MtuSource, OrderStatus, PathState,
    PathStatus, Placement, PublicStatus, QueueStatus, RefusedPrefix, RepairStatus, Role, SCHEMA,
    SiteStatus, State, Status, TunnelStatus, WIDTH, WorkerStatus, render, render_busiest,
    render_flows,
};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);

fn socket() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run/edge.sock");
    (dir, path)
}

fn echo(request: Request) -> Response {
    match request {
        Request::Status | Request::Summary | Request::Events { .. } => {
            Response::document(&sample())
        }
        Request::Flow { flow } => Response::document(&flow),
        Request::Packet { packet } => Response::document(&packet),
        Request::Disconnect { site } => Response::refused("not_found", format!("no site `{site}`")),
        Request::Link { link, .. } | Request::Limit { link, .. } => {
            Response::refused("no_such_link", format!("no link `{link}`"))
        }
        Request::Reload { .. }
        | Request::Identity
        | Request::Drill { .. }
        | Request::Keep
        | Request::Config { .. }
        | Request::Invitations { .. }
        | Request::Leases
        | Request::Speedtest { .. }
        | Request::Usage => Response::done(),
    }
}

fn ask(path: &Path, request: &Request) -> Result<serde_json::Value, ClientError> {
    Client::connect(path, PATIENCE)?.request(request)
}

#[test]
fn a_request_gets_its_document_or_its_refusal() {
    let (_dir, path) = socket();
    let _server = Server::bind(&path, echo).unwrap();
    let mut client = Client::connect(&path, PATIENCE).unwrap();

    let status: Status = serde_json::from_value(client.request(&Request::Status).unwrap()).unwrap();
    let refused = client
        .request(&Request::Disconnect {
            site: "van-07".parse().unwrap(),
        })
        .unwrap_err();

    assert_eq!(status, sample());
    assert!(
        matches!(&refused, ClientError::Refused(refused) if refused.code == "not_found"),
        "{refused}"
    );
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o660
    );
}

#[test]
fn what_is_no_request_is_refused_and_the_next_one_answered() {
    let (_dir, path) = socket();
    let _server = Server::bind(&path, echo).unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    for line in [
        "",
        "{}",
        "status",
        "{\"command\":\"stat\"}",
        "{\"command\":\"disconnect\",\"site\":\"../x\"}",
        "\u{0}",
    ] {
        let mut answer = String::new();
        stream.write_all(format!("{line}\n").as_bytes()).unwrap();
        answers.read_line(&mut answer).unwrap();
        assert!(answer.contains("bad_request"), "{line}: {answer}");
    }
    let mut answer = String::new();
    stream.write_all(b"{\"command\":\"status\"}\n").unwrap();
    answers.read_line(&mut answer).unwrap();
    assert!(answer.contains(SCHEMA), "{answer}");
}

#[test]
fn a_request_without_end_is_cut_off() {
    let (_dir, path) = socket();
    let _server = Server::bind(&path, echo).unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();

    stream
        .write_all(&vec![b'x'; MAX_REQUEST_BYTES + 1])
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();

    assert!(answer.contains("too_long"), "{answer}");
}

#[test]
fn a_client_that_sleeps_delays_nobody() {
    let (_dir, path) = socket();
    let _server = Server::bind(&path, echo).unwrap();
    let mut sleeper = UnixStream::connect(&path).unwrap();
    sleeper.write_all(b"{\"command\":").unwrap();

    assert!(ask(&path, &Request::Status).is_ok());
}

#[test]
fn a_slow_handler_delays_only_its_own_client() {
    let (_dir, path) = socket();
    let entered = Arc::new(Barrier::new(2));
    let (release, blocked) = mpsc::channel::<()>();
    let (gate, blocked) = (Arc::clone(&entered), Mutex::new(blocked));
    let _server = Server::bind(&path, move |request| {
        if matches!(request, Request::Disconnect { .. }) {
            gate.wait();
            let _ = blocked.lock().map(|blocked| blocked.recv());
        }
        Response::done()
    })
    .unwrap();
    let slow = path.clone();
    let slow = std::thread::spawn(move || {
        ask(
            &slow,
            &Request::Disconnect {
                site: "a".parse().unwrap(),
            },
        )
    });
    entered.wait();

    let meanwhile = ask(&path, &Request::Status);
    drop(release);

    assert!(meanwhile.is_ok());
    assert!(slow.join().unwrap().is_ok());
}

#[test]
fn too_many_clients_are_told_so() {
    let (_dir, path) = socket();
    let _server = Server::bind(&path, echo).unwrap();
    let seated: Vec<_> = (0..32)
        .map(|_| {
            let mut client = Client::connect(&path, PATIENCE).unwrap();
            client.request(&Request::Status).unwrap();
            client
        })
        .collect();

    let refused = ask(&path, &Request::Status).unwrap_err();

    // The refusal may arrive before the request could be written.
    let busy = matches!(&refused, ClientError::Refused(refused) if refused.code == "busy");
    assert!(
        busy || matches!(refused, ClientError::Ended { .. }),
        "{refused}"
    );
    assert_eq!(seated.len(), 32);
}

#[test]
fn a_living_daemons_socket_is_left_alone() {
    let (_dir, path) = socket();
    let _first = Server::bind(&path, echo).unwrap();

    let second = Server::bind(&path, |_| Response::done()).unwrap_err();

    assert!(
        matches!(second, BindError::AlreadyRunning { .. }),
        "{second}"
    );
    assert_eq!(
        ask(&path, &Request::Status).unwrap()["schema"],
        SCHEMA,
        "the first still answers"
    );
}

#[test]
fn a_dead_daemons_socket_is_replaced() {
    let (_dir, path) = socket();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "as a killed daemon leaves it");

    let _server = Server::bind(&path, echo).unwrap();

    assert!(ask(&path, &Request::Status).is_ok());
}

#[test]
fn a_flow_is_asked_for_by_name_and_what_is_no_flow_is_refused() {
    let (_dir, path) = socket();
    let _server = Server::bind(&path, echo).unwrap();

    let flow = "tcp 10.9.0.2:5201".parse().unwrap();
    let answer = ask(&path, &Request::Flow { flow }).unwrap();
    assert_eq!(answer, "tcp 10.9.0.2:5201");

    let mut client = UnixStream::connect(&path).unwrap();
    client
        .write_all(b"{\"command\": \"flow\", \"flow\": \"lte-a\"}\n")
        .unwrap();
    let mut line = String::new();
    BufReader::new(client).read_line(&mut line).unwrap();
    assert!(
        line.contains("bad_request") && line.contains("`lte-a` names no flow"),
        "{line}"
    );
}

#[test]
fn a_file_in_the_way_is_not_removed() {
    let (_dir, path) = socket();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "precious").unwrap();

    let error = Server::bind(&path, echo).unwrap_err();

    assert!(matches!(error, BindError::NotASocket { .. }), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn nothing_is_left_of_a_server_and_its_place_is_free() {
    let (_dir, path) = socket();

    drop(Server::bind(&path, echo).unwrap());

    let left: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(matches!(
        ask(&path, &Request::Status),
        Err(ClientError::Unreachable { .. })
    ));
    assert!(Server::bind(&path, echo).is_ok());
}

#[test]
fn a_daemon_that_does_not_answer_is_not_waited_for_for_ever() {
    let (_dir, path) = socket();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let _mute = UnixListener::bind(&path).unwrap();

    let silent = Client::connect(&path, Duration::from_millis(20))
        .unwrap()
        .request(&Request::Status)
        .unwrap_err();

    assert!(matches!(silent, ClientError::Silent { .. }), "{silent}");
}

fn path(link: &str, state: PathState) -> PathStatus {
    PathStatus {
        id: 0,
        link: Some(link.into()),
        local: Some("100.64.3.7:40001".parse().unwrap()),
        remote: "203.0.113.10:443".parse().unwrap(),
        observed: Some("198.51.100.7:1024".parse().unwrap()),
        state,
        cause: None,
        reason: None,
        since_seconds: 42.0,
        heard_seconds: Some(0.1),
        rtt_seconds: Some(0.0384),
        rtt_min_seconds: Some(0.024),
        sent_packets: 500,
        lost_packets: 2,
        recent_packets: 500,
        recent_lost_packets: 2,
        loss_ratio: Some(0.004),
        rate_bytes_per_second: Some(18_500_000.0),
        cwnd_bytes: 1_900_000,
        congestion: Some(Controller::Bbr3),
        congestion_cause: Some(CongestionCause::Usual),
        congestion_reason: Some("nothing asks for another".into()),
        in_flight_bytes: 700_000,
        mtu_bytes: 1_452,
        mtu_source: Some(MtuSource::Probed),
        sent_bytes: 657_129_472,
        received_bytes: 1_288_490_188,
        fec: Default::default(),
        share_ratio: Some(0.69),
        shared: None,
        shared_down: None,
        why: "first choice: it has the least delay".into(),
    }
}

fn sample() -> Status {
    let link = |name: &str, interface: &str, state, reason: Option<&str>| LinkStatus {
        name: name.into(),
        interface: interface.into(),
        address: (state == LinkState::Up)
            .then(|| "2001:db8:1234:5678:9abc:def0:1234:5678".parse().unwrap()),
        public: Vec::new(),
        tier: 1,
        weight: 2,
        state,
        cause: reason.map(|_| LinkCause::NoAddress),
        reason: reason.map(Into::into),
        hub: None,
        since_seconds: 42.0,
        standby: false,
        up_limit_bytes_per_second: None,
        down_limit_bytes_per_second: None,
        limited_by_operator: false,
        up_limited_by_operator: false,
        down_limited_by_operator: false,
        sent_bytes_per_second: (state == LinkState::Up).then_some(1_512_500.0),
        received_bytes_per_second: (state == LinkState::Up).then_some(18_500_000.0),
        account: None,
        traffic: LinkTraffic {
            sent_bytes: 1_000,
            received_bytes: 2_000,
            delivered_bytes_per_second: 3.0,
            rtt_seconds: Some(0.0384),
            loss_ratio: None,
        },
    };
    let dead = PathStatus {
        cause: Some(Cause::Silent),
        reason: Some("nothing arrives from the peer".into()),
        rtt_seconds: None,
        loss_ratio: None,
        rate_bytes_per_second: None,
        share_ratio: None,
        shared: None,
        shared_down: None,
        ..path("lte-a", PathState::Down)
    };
    Status {
        schema: SCHEMA.into(),
        time: "2026-11-26T21:30:00Z".into(),
        role: Role::Edge,
        version: "0.1.0".into(),
        state: State::Degraded,
        reason: Some("1 of 2 links is down".into()),
        uptime_seconds: 97_000.0,
        device: "sennit0".into(),
        addresses: vec!["10.200.0.2".parse().unwrap(), "fd5e:1::2".parse().unwrap()],
        refused_lan: Vec::new(),
        notes: Vec::new(),
        sites: Vec::new(),
        links: vec![
            link("starlink", "eth1", LinkState::Up, None),
            link("lte-a", "wwan0", LinkState::Down, Some("it has no address")),
        ],
        tunnels: vec![TunnelStatus {
            class: "default".into(),
            site: "van-07".parse().unwrap(),
            policy: Policy::Bond,
            delivery: Delivery::Repair,
            state: State::Degraded,
            reason: None,
            links: None,
            since_seconds: 61.0,
            key_exchange: None,
            resumed: false,
            early: false,
            key_updates: 0,
            sent_bytes: 1_024,
            received_bytes: 5_368_709_120,
            wrong_source_packets: 0,
            wrong_destination_packets: 0,
            queue: QueueStatus::default(),
            queue_down: None,
            order: OrderStatus::default(),
            repair: RepairStatus::default(),
            headers: HeaderStatus::default(),
            fec: Default::default(),
            striping: None,
            paths: vec![path("starlink", PathState::Up), dead],
            shares: Vec::new(),
            unanswered: Vec::new(),
            flow_count: 0,
            flows: Vec::new(),
        }],
        leak: None,
        pools: Vec::new(),
        config: None,
        certificate: None,
        authority: None,
        workers: Vec::new(),
        confinement: None,
        turned_away: false,
    }
}

const SHOWN: &str = "\
degraded  edge on sennit0, site van-07, running for 1 d 2 h, version 0.1.0
  ! 1 of 2 links is down
  inner addresses 10.200.0.2, fd5e:1::2

LINK      INTERFACE  STATE  TIER      RTT  LOSS      DOWN         UP
starlink  eth1       up        1  38.4 ms     -  148 Mb/s  12.1 Mb/s
lte-a     wwan0      down      1  38.4 ms     -         -          -
  ! lte-a is down for 42 s: it has no address

TUNNEL class default: degraded for 1 min
  bond, repair; sent 1.0 KiB, received 5.0 GiB
  PATH      STATE      RTT   LOSS   RATE UP     SENT  RECEIVED  SHARE
  starlink  up     38.4 ms  0.4 %  148 Mb/s  627 MiB   1.2 GiB   69 %
  lte-a     down         -      -         -  627 MiB   1.2 GiB      -
  ! lte-a is down for 42 s: nothing arrives from the peer
  UDP packets of 1452 bytes fit (probed): starlink, lte-a
";

#[test]
fn the_status_fits_80_columns_and_says_why() {
    let shown = render(&sample(), false, WIDTH);

    assert_eq!(shown, SHOWN);
    assert!(shown.lines().all(|line| line.chars().count() <= 80));
}

/// A dead link counted as up for half a minute, without a word, while nothing flowed.
#[test]
fn a_link_on_which_nothing_has_arrived_for_seconds_is_named() {
    let mut status = sample();
    let mut other = status.tunnels[0].clone();
    (other.class, other.paths[0].heard_seconds) = ("voice".into(), Some(23.0));
    status.tunnels.push(other);
    let shown = render(&status, false, WIDTH);
    assert!(
        !shown.contains("has arrived"),
        "one class hears it: {shown}"
    );

    status.tunnels[0].paths[0].heard_seconds = Some(17.4);
    let shown = render(&status, false, WIDTH);
    assert!(
        shown.contains("  ! starlink: nothing has arrived for 17 s\n"),
        "{shown}"
    );
}

#[test]
fn several_workers_are_summed_up_in_a_line() {
    let worker = |tunnels| WorkerStatus {
        tunnels,
        handed_packets: 5,
        overflowed_packets: 2,
        unowned_packets: 1,
        ..WorkerStatus::default()
    };
    let mut status = sample();
    status.workers = vec![worker(1)];
    assert_eq!(
        render(&status, false, WIDTH),
        SHOWN,
        "one is not worth a line"
    );

    status.workers = vec![worker(1), worker(0)];

    let line = "  2 workers, 10 packets handed over, 6 of them lost, tunnels 1 0\n";
    let shown = render(&status, false, WIDTH);
    assert!(shown.contains(line), "{shown}");
}

#[test]
fn what_is_too_wide_is_cut_where_it_is_widest() {
    let mut status = sample();
    status.links[0].name = "a-link-with-the-longest-name-yet".into();
    status.tunnels[0].paths[0].link = Some("a-link-with-the-longest-name-yet".into());

    let shown = render(&status, false, WIDTH);

    assert!(
        shown.lines().all(|line| line.chars().count() <= 80),
        "{shown}"
    );
    let link = "a-link-with-the-longest-name-yet  up  ";
    assert!(shown.lines().any(|line| line.starts_with(link)), "{shown}");
    assert!(shown.contains("  a-link-with-the-lo…  "), "{shown}");
}

const WIDE: &str = "
LINK      INTERFACE  ADDRESS                                 STATE  TIER  WEIGHT      RTT  LOSS      DOWN         UP
starlink  eth1       2001:db8:1234:5678:9abc:def0:1234:5678  up        1       2  38.4 ms     -  148 Mb/s  12.1 Mb/s
";

#[test]
fn with_more_room_links_have_their_addresses() {
    let shown = render(&sample(), false, 120);

    assert!(shown.contains(WIDE), "{shown}");
}

#[test]
fn with_still_more_room_links_say_where_the_hub_sees_them() {
    let mut status = sample();
    status.links[0].address = Some("192.168.8.2".parse().unwrap());
    status.links[0].public = vec![PublicStatus {
        seen: vec!["198.51.100.7:1024".parse().unwrap()],
        translated: true,
        port_kept: Some(false),
        mapping: None,
    }];

    let shown = render(&status, false, 120);

    let line = "starlink  eth1       192.168.8.2  198.51.100.7:1024  up  ";
    assert!(shown.lines().any(|it| it.starts_with(line)), "{shown}");
    let unknown = "lte-a     wwan0      -            -                  down  ";
    assert!(shown.lines().any(|it| it.starts_with(unknown)), "{shown}");
}

#[test]
fn each_path_says_how_large_packets_fit_and_how_that_is_known() {
    let mut status = sample();
    let small = &mut status.tunnels[0].paths[1];
    (small.mtu_bytes, small.mtu_source) = (1212, Some(MtuSource::BlackHole));

    let shown = render(&status, false, WIDTH);

    let lines = "
  UDP packets of 1452 bytes fit (probed): starlink
  UDP packets of 1212 bytes fit (larger ones do not arrive any more): lte-a
";
    assert!(shown.ends_with(lines), "{shown}");
}

#[test]
fn a_link_with_a_cap_says_what_is_used_of_it_and_whether_it_will_last() {
    let mut status = sample();
    status.links[0].standby = true;
    status.links[0].account = Some(LinkAccount {
        cost: 5,
        cap_bytes: Some(100_000_000_000),
        used_bytes: 38_000_000_000,
        forecast_bytes: Some(131_000_000_000),
        cycle_end: "2026-12-14".into(),
        days_left: 18,
        demoted: false,
    });

    let shown = render(&status, false, WIDTH);

    let line = "starlink  standby     1  38.4 ms     -  148 Mb/s  12.1 Mb/s  38 %, 18 d";
    assert!(shown.lines().any(|it| it == line), "{shown}");
    let note = "  ! starlink: its cap of 93.1 GiB will not last: 122 GiB by its end";
    assert!(shown.lines().any(|it| it == note), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn colour_changes_nothing_but_the_colour() {
    let coloured = render(&sample(), true, WIDTH);

    assert!(coloured.contains("\x1b[31mdown\x1b[0m"), "{coloured}");
    let plain = ["\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"]
        .iter()
        .fold(coloured, |text, code| text.replace(code, ""));
    assert_eq!(plain, SHOWN);
}

#[test]
fn names_from_the_wire_cannot_steer_the_terminal() {
    let mut status = sample();
    status.tunnels[0].paths[0].link = Some("evil\x1b[2J\nname".into());
    status.tunnels[0].paths[0].reason = Some("also\x1b[2J".into());
    status.tunnels[0].class = "class\x07".into();
    status.reason = Some("bell\x07".into());

    let shown = render(&status, false, WIDTH);

    assert!(
        !shown.chars().any(|c| c.is_control() && c != '\n'),
        "{shown:?}"
    );
}

fn flow(shares: &[(&str, f64)]) -> FlowStatus {
    let link = |&(link, share_ratio): &(&str, f64)| FlowLinkStatus {
        link: link.into(),
        share_ratio,
    };
    FlowStatus {
        flow: "tcp 10.200.0.2:40000 to 10.9.0.2:5201".into(),
        protocol: "tcp".into(),
        source: "10.200.0.2".parse().unwrap(),
        source_port: 40_000,
        destination: "10.9.0.2".parse().unwrap(),
        destination_port: 5201,
        age_seconds: 41.0,
        silent_seconds: 0.0,
        sent_bytes: 1_288_490_188,
        sent_packets: 920_350,
        rate_bytes_per_second: 30_400_000.0,
        placement: Placement::Striped,
        thin: false,
        ordered: true,
        links: shares.iter().map(link).collect(),
        queue: FlowQueueStatus::default(),
        why: vec![
            "striped over starlink and lte-a: there is more to send than starlink carries".into(),
            "waits 12.0 ms here, and nothing had to slow it down".into(),
        ],
    }
}

const FLOW_SHOWN: &str = "\
class default, from here to the hub
  tcp 10.200.0.2:40000 to 10.9.0.2:5201
    243 Mb/s, 1.2 GiB in 41 s; starlink 78 %, lte-a 22 %
    - striped over starlink and lte-a: there is more to send than starlink
      carries
    - waits 12.0 ms here, and nothing had to slow it down
What comes back is sent by the hub, which decides by itself: ask there.
";

#[test]
fn a_flow_is_told_in_80_columns_and_in_the_direction_that_this_end_sends() {
    let mut status = sample();
    status.tunnels[0].flows = vec![flow(&[("starlink", 0.78), ("lte-a", 0.22)])];
    status.tunnels[0].flow_count = 1;

    let shown = render_flows(&status);
    assert_eq!(shown, FLOW_SHOWN);
    assert!(shown.lines().all(|line| line.chars().count() <= 80));

    status.role = Role::Hub;
    let shown = render_flows(&status);
    assert!(shown.starts_with("class default, from here to site van-07\n"));
    assert!(shown.contains("sent by the edge"), "{shown}");
}

#[test]
fn the_busiest_flows_are_a_line_each() {
    let mut status = sample();
    status.tunnels[0].flows = vec![flow(&[("starlink", 1.0)]), flow(&[])];
    status.tunnels[0].flow_count = 30;

    let expected = "\
class default, from here to the hub: the busiest 2 of 30 flows
   243 Mb/s  tcp 10.200.0.2:40000 to 10.9.0.2:5201  (starlink 100 %)
   243 Mb/s  tcp 10.200.0.2:40000 to 10.9.0.2:5201  (silent)
";
    assert_eq!(render_busiest(&status), expected);
}

#[test]
fn a_hub_tells_which_sites_are_away_and_what_is_not_routed_to_those_that_are_here() {
    let mut status = sample();
    status.role = Role::Hub;
    let site = |name: &str, class: Option<&str>| SiteStatus {
        name: name.parse().unwrap(),
        state: State::Down,
        last_seen: class.is_none().then(|| "2026-11-26T21:30:00Z".into()),
        classes: class.into_iter().map(Into::into).collect(),
        sent_bytes: 0,
        received_bytes: 0,
        links: Vec::new(),
        refused_lan: Vec::new(),
    };
    let mut van = site("van-07", Some("default"));
    van.refused_lan = vec![RefusedPrefix {
        prefix: "1.1.1.1/32".into(),
        reason: "the hub has not granted it to the site".into(),
    }];
    status.sites = vec![site("ship", None), van];

    let shown = render(&status, false, WIDTH);

    let (_, away) = shown
        .split_once("\n\nSITE THAT IS AWAY  LAST HERE\n")
        .unwrap();
    assert_eq!(away, "ship               2026-11-26T21:30:00Z\n");
    let refused =
        "  ! 1.1.1.1/32 is not routed to site van-07: the hub has not granted it to the site\n";
    assert!(shown.contains(refused), "{shown}");
}

#[test]
fn a_link_cannot_steer_the_terminal_through_a_flow() {
    let mut status = sample();
    status.tunnels[0].flows = vec![flow(&[("evil\x1b[2J\nname", 1.0)])];
    for shown in [render_flows(&status), render_busiest(&status)] {
        assert!(!shown.contains('\x1b'), "{shown:?}");
    }
}
