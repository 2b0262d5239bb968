//! A crowd at the API of an edge, which its tunnel does not notice.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::proxied::resident;
use crate::traffic::{Answers, Pings};
use crate::world::{Daemon, Edge, HUB_INNER, PATIENCE, World, wait_for};

const ADDRESS: &str = "127.0.0.1:8479";

const CROWD: usize = 10_000;
/// So many come between two who ask: fewer than wait to be accepted, or each waits for a second.
const BETWEEN: usize = 100;
/// Of the process of these tests, which has other files too.
const FILES: u64 = CROWD as u64 + 2000;

/// The API's seats, and some files that a daemon opens for a moment.
const MOST_FILES: usize = 256 + 32;
/// Of heads that do not end, 16 KiB are kept for each seat; the rest is what an allocator keeps.
const MOST_MEMORY: u64 = 16 << 20;

/// Raises the limit of this process, for as long as it runs.
fn may_open_files() -> bool {
    let limit = getrlimit(Resource::Nofile);
    let at_least = |limit: Option<u64>| limit.map(|it| it.max(FILES));
    let raised = Rlimit {
        current: at_least(limit.current),
        maximum: at_least(limit.maximum),
    };
    setrlimit(Resource::Nofile, raised).is_ok()
}

fn files(daemon: &Daemon<'_>) -> usize {
    let files = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
    files.count()
}

/// Clients that say nothing, and as many that begin a request.
fn comers() -> Vec<TcpStream> {
    let comer = |number: usize| {
        let mut client = TcpStream::connect(ADDRESS).unwrap();
        if number.is_multiple_of(2) {
            // Whoever has lost its seat already cannot write any more.
            let _ = client.write_all(b"GET /v1/status HTTP/1.1\r\nhost: localhost\r\n");
        }
        client
    };
    (0..BETWEEN).map(comer).collect()
}

/// Asks as a monitor does.
#[track_caller]
fn assert_answers(edge: &Daemon<'_>) {
    let ask = || -> io::Result<String> {
        let mut client = TcpStream::connect(ADDRESS)?;
        client.set_read_timeout(Some(PATIENCE))?;
        client.write_all(
            b"GET /v1/status HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        )?;
        let mut answer = String::new();
        client.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = edge.host.netns().run(ask).unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn ten_thousand_idle_and_slow_clients_keep_nobody_out_and_cost_the_tunnel_nothing() {
    if !may_open_files() {
        println!("SKIPPED: this process may not have {FILES} files open");
        return;
    }
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (_hub, mut edge) = world.start_pair(&Edge {
        more: "[api]\nlisten = ['127.0.0.1:8479']\n",
        ..Edge::default()
    });
    assert_answers(&edge);
    let before = (files(&edge), resident(&edge));
    let assert_bounded = || {
        let (more, grown) = (
            files(&edge).saturating_sub(before.0),
            resident(&edge).saturating_sub(before.1),
        );
        assert!(more <= MOST_FILES, "{more} files more");
        assert!(grown <= MOST_MEMORY, "{} MiB more", grown >> 20);
        (more, grown)
    };
    let pings = Pings::start(edge.host, HUB_INNER[0], 1000);

    let mut crowd = Vec::new();
    let mut most = (0, 0);
    while crowd.len() < CROWD {
        crowd.extend(edge.host.netns().run(comers).unwrap());
        assert_answers(&edge);
        let now = assert_bounded();
        most = (most.0.max(now.0), most.1.max(now.1));
    }
    // A line of a head now and then, from each that may still write.
    for _ in 0..3 {
        for client in &mut crowd {
            let _ = client.write_all(b"x: y\r\n");
        }
        assert_answers(&edge);
        assert_bounded();
        thread::sleep(Duration::from_secs(1));
    }

    println!("{} files and {} KiB more", most.0, most.1 >> 10);
    assert!(most.0 > 200, "they did come");
    let left = || files(&edge).saturating_sub(before.0);
    wait_for("all of them to have to leave", left, |files| *files <= 32);
    assert_eq!(pings.finish(), Answers::all(1000));
    edge.assert_alive();
}
