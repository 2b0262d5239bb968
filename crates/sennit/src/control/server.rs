//! The daemon's end.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::net::{RecvFlags, Shutdown};
use sennit_linux::helper;

use super::lock::Lock;
use super::{MAX_REQUEST_BYTES, Request, Response};

/// Clients are an operator, a monitor, a page or two.
const MAX_CLIENTS: usize = 32;
/// How long a client may stay silent, or leave an answer unread.
const PATIENCE: Duration = Duration::from_secs(30);
/// Accepting fails for want of descriptors, which takes a while to pass.
const RETRY: Duration = Duration::from_millis(100);

type Handler = dyn Fn(Request) -> Response + Send + Sync;
/// Takes clients that speak HTTP.
type Door = dyn Fn(UnixStream) + Send + Sync;

/// The socket, with mode 0660, of which nobody is answered yet: who comes waits. Dropped, it is
/// removed.
#[derive(Debug)]
pub struct Entrance {
    path: PathBuf,
    listener: UnixListener,
    lock: Lock,
}

/// Answers clients until it is dropped, which removes the socket.
#[derive(Debug)]
pub struct Server {
    entrance: Entrance,
    stop: Arc<AtomicBool>,
}

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("another daemon is running with the control socket {}", path.display())]
    AlreadyRunning { path: PathBuf },
    #[error("{} is in the way: it is not a socket", path.display())]
    NotASocket { path: PathBuf },
    #[error("cannot make the control socket {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl Entrance {
    /// Makes the socket, unless another daemon has it.
    pub fn open(path: &Path) -> Result<Self, BindError> {
        let failed = |source| BindError::Io {
            path: path.into(),
            source,
        };
        if let Some(parent) = path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(parent)
                .map_err(failed)?;
        }
        let lock = Lock::take(path).map_err(failed)?;
        let lock = lock.ok_or_else(|| BindError::AlreadyRunning { path: path.into() })?;
        remove_stale(path)?;
        let listener = UnixListener::bind(path).map_err(failed)?;
        fs::set_permissions(path, Permissions::from_mode(0o660)).map_err(failed)?;
        Ok(Self {
            path: path.into(),
            listener,
            lock,
        })
    }
}

impl Entrance {
    /// What is removed with it: the socket, and the lock beside it.
    pub fn files(&self) -> [&Path; 2] {
        [&self.path, self.lock.path()]
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        let _ = helper::remove_file(&self.path);
    }
}

impl Server {
    /// Makes the socket and answers each request by `handler`, on threads of its own.
    pub fn bind(
        path: &Path,
        handler: impl Fn(Request) -> Response + Send + Sync + 'static,
    ) -> Result<Self, BindError> {
        Self::start(Entrance::open(path)?, Arc::new(handler), None)
    }

    /// Answers each request by `handler`, on threads of its own, and leaves clients that speak HTTP
    /// to the `door`.
    pub fn start_with_http(
        entrance: Entrance,
        handler: impl Fn(Request) -> Response + Send + Sync + 'static,
        door: impl Fn(UnixStream) + Send + Sync + 'static,
    ) -> Result<Self, BindError> {
        Self::start(entrance, Arc::new(handler), Some(Arc::new(door)))
    }

    fn start(
        entrance: Entrance,
        handler: Arc<Handler>,
        door: Option<Arc<Door>>,
    ) -> Result<Self, BindError> {
        let failed = |source| BindError::Io {
            path: entrance.path.clone(),
            source,
        };
        let listener = entrance.listener.try_clone().map_err(failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let acceptor = Acceptor {
            handler,
            door,
            clients: Arc::default(),
            stop: Arc::clone(&stop),
        };
        let named = thread::Builder::new().name("control".into());
        named
            .spawn(move || {
                sennit_linux::confine::keep_files_only();
                acceptor.run(&listener);
            })
            .map_err(failed)?;
        Ok(Self { entrance, stop })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the acceptor.
        let _ = rustix::net::shutdown(&self.entrance.listener, Shutdown::Both);
    }
}

/// Removes a socket whose daemon is dead: the lock says that none is alive.
fn remove_stale(path: &Path) -> Result<(), BindError> {
    let failed = |source| BindError::Io {
        path: path.into(),
        source,
    };
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path).map_err(failed),
        Ok(_) => Err(BindError::NotASocket { path: path.into() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

struct Acceptor {
    handler: Arc<Handler>,
    door: Option<Arc<Door>>,
    clients: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Acceptor {
    fn run(&self, listener: &UnixListener) {
        let mut failing = false;
        loop {
            let accepted = listener.accept();
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            match accepted {
                Ok((client, _)) => {
                    failing = false;
                    self.welcome(client);
                }
                Err(error) => {
                    // Once, and not ten times a second for as long as it lasts.
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(%error, "control socket");
                    }
                    thread::sleep(RETRY);
                }
            }
        }
    }

    fn welcome(&self, client: UnixStream) {
        let seat = Seat(Arc::clone(&self.clients));
        if self.clients.fetch_add(1, Ordering::AcqRel) >= MAX_CLIENTS {
            let _ = client.set_nonblocking(true);
            let _ = (&client).write_all(&Response::refused("busy", "too many clients").into_line());
            return;
        }
        let (handler, door) = (Arc::clone(&self.handler), self.door.clone());
        let spawned = thread::Builder::new()
            .name("control-client".into())
            .spawn(move || {
                let _seat = seat;
                let served = match door {
                    Some(door) => match speaks_http(&client) {
                        Ok(true) => return door(client),
                        Ok(false) => serve(&client, &*handler),
                        Err(error) => Err(error),
                    },
                    None => serve(&client, &*handler),
                };
                if let Err(error) = served {
                    tracing::debug!(%error, "control client");
                }
            });
        if let Err(error) = spawned {
            tracing::warn!(%error, "control client");
        }
    }
}

/// Counts one client for as long as it is here.
struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether the first letter is that of a method of HTTP; requests of ours begin with a brace.
fn speaks_http(client: &UnixStream) -> io::Result<bool> {
    client.set_read_timeout(Some(PATIENCE))?;
    let mut first = [0];
    let (_, read) = rustix::net::recv(client, &mut first, RecvFlags::PEEK)?;
    Ok(read == 1 && first[0].is_ascii_uppercase())
}

/// Answers line by line until the client hangs up, falls asleep or talks too long.
fn serve(client: &UnixStream, handler: &Handler) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut requests = BufReader::new(client);
    loop {
        let mut line = Vec::new();
        let limit = MAX_REQUEST_BYTES as u64 + 1;
        requests.by_ref().take(limit).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        if line.len() > MAX_REQUEST_BYTES {
            return (&*client)
                .write_all(&Response::refused("too_long", "the request is too long").into_line());
        }
        let response = match serde_json::from_slice(&line) {
            Ok(request) => handler(request),
            Err(error) => Response::refused("bad_request", format!("not a request: {error}")),
        };
        (&*client).write_all(&response.into_line())?;
    }
}
