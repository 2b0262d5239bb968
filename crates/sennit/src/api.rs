//! The HTTP API of a daemon.
//!
//! It lives on a thread of its own with a runtime of its own, and asks the daemon in the way in
//! which `sennit status` does, through [`Ask`], at most a few times a second however many ask
//! ([`watch`]). So no packet ever waits for it. It answers on the control socket, and over TCP
//! where the config says so.
//!
//! What there is to call is one table ([`routes`]): path, method, who may, what it answers. The
//! router ([`router`]), the check of roles ([`access`]) and the OpenAPI description ([`describe`])
//! are made from it. What files say of who may is read again at each reload ([`terms`]). How many
//! connections and requests there may be is bounded ([`seats`], [`limit`]), and so is how many of
//! them wait for the daemon ([`desk`]) and how much of what it said waits for them ([`portions`],
//! [`reader`]).

mod access;
mod answers;
mod call;
mod describe;
mod desk;
mod limit;
mod live;
mod page;
mod portions;
mod problem;
mod reader;
mod router;
mod routes;
mod seats;
mod serve;
mod terms;
mod watch;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::unix::net::UnixStream,
    sync::Arc,
    thread,
};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use tokio::sync::{mpsc, oneshot};

use self::{access::Access, seats::Seats, watch::Watch};
pub use self::{
    describe::openapi,
    terms::{Locks, Role, Terms},
};
use crate::{config::ApiConfig, control::Ask, history::Archive, journal::Journal};

/// Clients that wait to be accepted, as many as those of other listeners.
const BACKLOG: i32 = 128;

/// Why there is no API.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("cannot listen on {address} for the API: {source}")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("cannot read {}: {source}", path.display())]
    File {
        path: std::path::PathBuf,
        source: io::Error,
    },
    #[error("{} {what}", path.display())]
    BadFile {
        path: std::path::PathBuf,
        what: String,
    },
    #[error("cannot start the API: {0}")]
    Thread(io::Error),
}

/// Clients of the control socket that speak HTTP.
#[derive(Debug)]
pub struct Visitors(mpsc::UnboundedReceiver<UnixStream>);

/// A way to give clients to an API, which may come later.
pub fn door() -> (impl Fn(UnixStream) + Send + Sync + 'static, Visitors) {
    let (unix, clients) = mpsc::unbounded_channel();
    let door = move |client| {
        // If the API is gone, so is the daemon soon.
        let _ = unix.send(client);
    };
    (door, Visitors(clients))
}

/// What the files of its config say, and where it listens. The files may be root's alone, and so
/// are read before a daemon gives root up.
pub struct Keys {
    locks: Locks,
    listeners: Vec<TcpListener>,
}

impl Keys {
    /// Reads the files, and listens.
    ///
    /// # Errors
    /// If a file is missing, open to others, or holds something else, or an address is another's.
    pub fn load(config: &ApiConfig) -> Result<Self, ApiError> {
        Ok(Self {
            locks: Locks::new(Terms::load(config)?),
            listeners: listen(&config.listen)?,
        })
    }

    /// What others may take the place of while the API runs.
    pub fn locks(&self) -> Locks {
        self.locks.clone()
    }
}

/// The API of a running daemon; it ends when this is dropped.
#[derive(Debug)]
pub struct Api {
    addresses: Vec<SocketAddr>,
    _stop: oneshot::Sender<()>,
}

/// What all requests share.
struct Shared {
    access: Access,
    watch: Watch,
    seats: Seats,
    ask: Arc<dyn Ask>,
    journal: Journal,
    archive: Archive,
    /// What there is to call, as an OpenAPI document.
    description: serde_json::Value,
}

/// What is wrong with the files that the config names, as [`Keys::load`] would say it.
pub fn look_at_files(config: &ApiConfig) -> Vec<ApiError> {
    terms::look_at_files(config)
}

impl Api {
    /// Starts the thread.
    pub fn start(
        keys: Keys,
        ask: Arc<dyn Ask>,
        (journal, archive): (Journal, Archive),
        visitors: Visitors,
    ) -> Result<Self, ApiError> {
        let Keys { locks, listeners } = keys;
        let addresses = listeners.iter().filter_map(|it| it.local_addr().ok());
        let addresses: Vec<SocketAddr> = addresses.collect();
        let shared = Arc::new(Shared {
            access: Access::new(locks),
            watch: Watch::new(Arc::clone(&ask)),
            seats: Seats::default(),
            ask,
            journal,
            archive,
            description: openapi(),
        });
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(desk::ASKERS)
            .thread_name("api-asks")
            .build()
            .map_err(ApiError::Thread)?;
        let run = move || {
            sennit_linux::confine::keep_files_only();
            let serve = serve::run(listeners, visitors.0, shared);
            runtime.block_on(async {
                tokio::select! {
                    () = serve => {}
                    _ = stopped => {}
                }
            });
            // Nobody waits for an answer that the daemon still owes.
            runtime.shutdown_background();
        };
        thread::Builder::new()
            .name("api".into())
            .spawn(run)
            .map_err(ApiError::Thread)?;
        for address in &addresses {
            tracing::info!(%address, "the API listens");
        }
        Ok(Self {
            addresses,
            _stop: stop,
        })
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

fn listen(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, ApiError> {
    let listeners = addresses.iter().map(|&address| {
        let bound = match TcpListener::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                let what = "this host does not have the address: the API answers there once it has";
                tracing::warn!(%address, "{what}");
                listen_early(address)
            }
            bound => bound,
        };
        let bound = bound.and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        bound.map_err(|source| ApiError::Listen { address, source })
    });
    listeners.collect()
}

/// Listens at an address that the host may get later, as by DHCP after boot.
fn listen_early(address: SocketAddr) -> io::Result<TcpListener> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    match address {
        SocketAddr::V4(_) => sockopt::set_ip_freebind(&socket, true)?,
        SocketAddr::V6(_) => sockopt::set_ipv6_freebind(&socket, true)?,
    }
    net::bind(&socket, &address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_the_host_does_not_have_yet_is_listened_at() {
        // For documentation (RFC 5737, RFC 3849): no host has them.
        let addresses = ["192.0.2.77:0", "[2001:db8::77]:0"].map(|it| it.parse().unwrap());
        let has_family = |it: &SocketAddr| it.is_ipv4() || TcpListener::bind("[::]:0").is_ok();
        let addresses: Vec<SocketAddr> = addresses.into_iter().filter(has_family).collect();

        let listeners = listen(&addresses).unwrap();

        for (listener, address) in listeners.iter().zip(addresses) {
            let bound = listener.local_addr().unwrap();
            assert_eq!(bound.ip(), address.ip());
            assert_ne!(bound.port(), 0);
        }
    }

    #[test]
    fn an_address_that_somebody_else_has_is_an_error() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = other.local_addr().unwrap();

        let error = listen(&[taken]).unwrap_err().to_string();

        assert!(error.contains(&taken.to_string()), "{error}");
    }
}
