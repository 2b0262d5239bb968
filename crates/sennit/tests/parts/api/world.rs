//! An API over a daemon that is only a document, and clients that write what they like.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sennit::api::{self, Api, Keys};
use sennit::config::ApiConfig;
use sennit::control::{Ask, Entrance, Refused, Request, Response, Server};
use sennit::history::Recorder;
use sennit::journal::Keeper;
use sennit::status::{Role, State, Status};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const READER: &str = "reader-0123456789abcdefghij";
pub(crate) const OPERATOR: &str = "operator-0123456789abcdefg";
const PATIENCE: Duration = Duration::from_secs(20);

/// A hub with one site, that counts how often it is asked.
pub(crate) struct Fake {
    pub(crate) asked: AtomicUsize,
    pub(crate) done: AtomicUsize,
    pub(crate) refuses: bool,
    /// Bytes of a note by which its status is longer.
    pub(crate) weight: AtomicUsize,
}

impl Ask for Fake {
    fn status(&self, _: &Request) -> Result<Status, Refused> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.refuses {
            return Err(Refused::new("busy", "the daemon does not answer"));
        }
        let weight = self.weight.load(Ordering::Relaxed);
        let note = (weight > 0).then(|| "x".repeat(weight));
        Ok(Status {
            notes: note.into_iter().collect(),
            ..status()
        })
    }

    fn answer(&self, request: Request) -> Response {
        match request {
            Request::Disconnect { .. } => {
                self.done.fetch_add(1, Ordering::Relaxed);
                Response::done()
            }
            _ => Response::result(self.status(&request)),
        }
    }
}

pub(crate) fn status() -> Status {
    let full = include_str!("../schema/full.json");
    let full: serde_json::Value = serde_json::from_str(full).unwrap();
    let document = serde_json::json!({
        "schema": "sennit.status/1", "time": "2026-11-26T21:30:00Z", "role": "hub",
        "version": "0.1.0", "state": "up", "uptime_seconds": 1.0, "device": "sennit0",
        "addresses": [], "links": [], "tunnels": full["tunnels"],
        "sites": [{
            "name": "van-07", "state": "up", "classes": ["default"], "sent_bytes": 1,
            "received_bytes": 2, "links": [],
        }],
    });
    let status: Status = serde_json::from_value(document).unwrap();
    assert_eq!((status.role, status.state), (Role::Hub, State::Up));
    status
}

/// An API on a control socket and a TCP port.
pub(crate) struct World {
    pub(crate) address: SocketAddr,
    pub(crate) socket: PathBuf,
    pub(crate) fake: Arc<Fake>,
    /// For a reload.
    pub(crate) locks: api::Locks,
    pub(crate) config: ApiConfig,
    _api: Api,
    pub(crate) keeper: Keeper,
    _recorder: Recorder,
    _server: Server,
    pub(crate) dir: TempDir,
}

/// A file with a token that only we may read.
pub(crate) fn secret(dir: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path
}

/// A port that was free just now.
fn free_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

impl World {
    /// With tokens for readers and operators.
    pub(crate) fn new() -> Self {
        Self::with(|dir| ApiConfig {
            read_token: Some(secret(dir, "read", &format!("# monitor\n{READER}\n"))),
            operate_token: Some(secret(dir, "operate", OPERATOR)),
            ..ApiConfig::default()
        })
    }

    pub(crate) fn with(config: impl FnOnce(&TempDir) -> ApiConfig) -> Self {
        Self::of(false, config)
    }

    pub(crate) fn of(refuses: bool, config: impl FnOnce(&TempDir) -> ApiConfig) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fake = Arc::new(Fake {
            asked: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            refuses,
            weight: AtomicUsize::new(0),
        });
        let config = ApiConfig {
            listen: vec![free_port()],
            ..config(&dir)
        };
        let socket = dir.path().join("edge.sock");
        let (door, visitors) = api::door();
        let asked = Arc::clone(&fake);
        let server = {
            let entrance = Entrance::open(&socket).unwrap();
            Server::start_with_http(entrance, move |it| asked.answer(it), door).unwrap()
        };
        let ask: Arc<dyn Ask> = Arc::clone(&fake) as Arc<dyn Ask>;
        let keeper = Keeper::start(&dir.path().join("journal.db")).unwrap();
        let recorder = Recorder::start(&dir.path().join("history.db"), Arc::clone(&ask)).unwrap();
        let books = (keeper.journal().clone(), recorder.archive().clone());
        let keys = Keys::load(&config).unwrap();
        let locks = keys.locks();
        let api = Api::start(keys, ask, books, visitors).unwrap();
        Self {
            address: api.addresses()[0],
            socket,
            fake,
            locks,
            config,
            _api: api,
            keeper,
            _recorder: recorder,
            _server: server,
            dir,
        }
    }

    /// Reads the files again; the names of those that hold something else.
    pub(crate) fn reload(&self) -> Vec<String> {
        self.locks.change(api::Terms::load(&self.config).unwrap())
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub(crate) fn unix(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Over TCP, with a token or none, and more lines of the head.
    pub(crate) fn ask(&self, method_and_path: &str, token: Option<&str>, more: &str) -> Answer {
        let mut head = format!("{method_and_path} HTTP/1.1\r\nconnection: close\r\n");
        if !more.to_lowercase().contains("host:") {
            head += &format!("host: {}\r\n", self.address);
        }
        if let Some(token) = token {
            head += &format!("authorization: Bearer {token}\r\n");
        }
        talk(self.connect(), &format!("{head}{more}\r\n"))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path}"), Some(READER), "")
    }
}

/// An answer, read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The word of a problem document.
    pub(crate) fn problem(&self) -> String {
        assert!(self.head.contains("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.code, "{self:?}");
        assert!(!problem["detail"].as_str().unwrap().is_empty());
        let code = problem["code"].as_str().unwrap();
        assert_eq!(problem["type"], format!("urn:sennit:{code}"));
        code.to_owned()
    }
}

/// Sends a request and reads until the other side closes.
pub(crate) fn talk(mut stream: impl Read + Write, request: &str) -> Answer {
    stream.write_all(request.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    Answer {
        code: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_lowercase(),
        body: String::from_utf8(body).unwrap(),
    }
}
