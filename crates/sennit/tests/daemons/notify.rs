//! Who is told of events, and that a daemon that was killed tells them still.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sennit::status::LinkState;
use sennit_lab::{Host, Role};
use serde_json::Value;

use crate::world::{Edge, World, wait_for};

const KEY: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A request that somebody got.
#[derive(Clone, Debug)]
struct Told {
    path: String,
    headers: BTreeMap<String, String>,
    body: String,
    accepted: bool,
}

/// A server on the edge's host, which takes what it is told, or refuses it.
struct Server {
    address: String,
    accepts: Arc<AtomicBool>,
    told: Arc<Mutex<Vec<Told>>>,
}

impl Server {
    fn start(host: &Host) -> Self {
        let listener = host.netns().run(|| TcpListener::bind("127.0.0.1:0"));
        let listener = listener.unwrap().unwrap();
        let server = Self {
            address: listener.local_addr().unwrap().to_string(),
            accepts: Arc::default(),
            told: Arc::default(),
        };
        let (accepts, told) = (Arc::clone(&server.accepts), Arc::clone(&server.told));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // One that is killed in the middle of a request is none of ours.
                if let Some(request) = answer(&stream, accepts.load(Ordering::Relaxed)) {
                    told.lock().unwrap().push(request);
                }
            }
        });
        server
    }

    fn told(&self) -> Vec<Told> {
        self.told.lock().unwrap().clone()
    }
}

fn answer(mut stream: &TcpStream, accepted: bool) -> Option<Told> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(": ") else {
            break;
        };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length")?.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let status = if accepted {
        "204 No Content"
    } else {
        "503 Service Unavailable"
    };
    let reply = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(reply.as_bytes()).ok()?;
    Some(Told {
        path,
        headers,
        body: String::from_utf8(body).ok()?,
        accepted,
    })
}

/// Whether a webhook bears the signature of its id, time and body.
fn is_signed(told: &Told) -> bool {
    let header = |name: &str| told.headers.get(name).cloned().unwrap_or_default();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(KEY).unwrap());
    let (id, time) = (header("webhook-id"), header("webhook-timestamp"));
    let signed = hmac::sign(&key, format!("{id}.{time}.{}", told.body).as_bytes());
    header("webhook-signature") == format!("v1,{}", STANDARD.encode(signed))
}

/// The config of an edge that tells the server of links, in each of the ways.
fn config(world: &World, server: &Server) -> String {
    let key = world.write("key", &format!("whsec_{KEY}\n"));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let mut config = world.edge_config(&Edge::default());
    for (kind, path) in [
        ("webhook", "hook"),
        ("ntfy", "topic"),
        ("alertmanager", "alerts"),
    ] {
        config += &format!(
            "[[notify]]\nname = '{path}'\nkind = '{kind}'\nurl = 'http://{}/{path}'\n\
             events = ['link_down', 'link_up']\n",
            server.address
        );
        if kind == "webhook" {
            config += &format!("secret = 'file:{}'\n", key.display());
        }
    }
    config
}

#[test]
fn an_event_that_nobody_took_is_told_by_the_daemon_after_it_was_killed() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let _hub = world.start_hub();
    world.join("van");
    let host = world.host(Role::Edge);
    let server = Server::start(host);
    let mut edge = world.start("van", "edge", Role::Edge, &config(&world, &server));
    edge.wait_until_up();
    host.ip("link set wan-a down").unwrap();
    edge.wait("link a to be down", |status| {
        status.links[0].state == LinkState::Down
    });
    let refused = wait_for(
        "all to be told",
        || server.told(),
        |told| {
            ["/hook", "/topic", "/alerts"]
                .iter()
                .all(|path| told.iter().any(|it| it.path == *path))
        },
    );

    edge.kill();
    server.accepts.store(true, Ordering::Relaxed);
    edge.start_again();

    let of = |told: &[Told], path: &str| -> Vec<Told> {
        let taken = told.iter().filter(|it| it.accepted && it.path == path);
        taken.cloned().collect()
    };
    let id = |told: &Told| told.headers["webhook-id"].clone();
    let first = refused.iter().find(|it| it.path == "/hook").unwrap();
    let down = |told: &[Told]| told.iter().any(|it| it.body.contains("link a is down"));
    let told = wait_for(
        "all to take it",
        || server.told(),
        |told| {
            ["/hook", "/topic", "/alerts"]
                .iter()
                .all(|path| down(&of(told, path)))
                && of(told, "/hook").iter().any(|it| id(it) == id(first))
        },
    );
    let hooks = of(&told, "/hook");
    assert!(hooks.iter().all(is_signed), "{hooks:#?}");
    let again = hooks.iter().find(|it| id(it) == id(first)).unwrap();
    assert_eq!(again.body, first.body, "the same is told again");
    let mut ids: Vec<String> = hooks.iter().map(id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), hooks.len(), "what was taken is not told again");
    let event: Value = serde_json::from_str(&hooks[0].body).unwrap();
    assert_eq!(
        event["type"].as_str().map(|it| &it[..12]),
        Some("sennit.link_"),
        "{event}"
    );
    let alerts = of(&told, "/alerts");
    let alerts = alerts
        .iter()
        .map(|it| serde_json::from_str::<Value>(&it.body).unwrap());
    let mut names = alerts.map(|it| it[0]["labels"]["alertname"].clone());
    assert!(names.all(|name| name == "SennitLinkDown"));
}
