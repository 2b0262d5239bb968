//! The server by which sites measure their tunnels.
//!
//! It is that of `sennit test`, at an address of the hub inside the tunnel, where only sites come.
//! It has a thread of its own, and its packets pass the TUN device like those of any other host
//! behind the hub.

use std::{
    net::SocketAddr,
    sync::{atomic::AtomicBool, mpsc},
    thread,
    time::Duration,
};

use super::gateway;
use crate::{
    config::HubConfig,
    daemon::worker::Lifeline,
    exit::Failure,
    loadtest::{PORT, server, stack::StackName},
};

/// A test measures for some seconds in each direction.
const LONGEST: Duration = Duration::from_secs(60);
/// Sites at once: each fills its links.
const MOST_CLIENTS: usize = 4;

/// Starts the server, if the config wants it; it ends with the daemon.
pub(super) fn start(config: &HubConfig, lifeline: Lifeline) -> Result<(), Failure> {
    let own = gateway::own_addresses(config);
    let Some(inside) = own.first().filter(|_| config.speedtest) else {
        return Ok(());
    };
    let listen = SocketAddr::new(inside.addr(), PORT);
    let options = server::Options {
        listen: Some(listen),
        token: None,
        most_seconds: LONGEST,
        most_rate: None,
        most_clients: MOST_CLIENTS,
        perf: false,
        stack: StackName::Sennit,
    };
    let (bound, is_bound) = mpsc::channel();
    let run = move || {
        // What a test does wrong ends the tests, within the server.
        let _lifeline = lifeline;
        // Its sockets stay on the thread that they were made on.
        let mut server = match server::Server::bind(options) {
            Ok(server) => server,
            Err(error) => return drop(bound.send(Err(error))),
        };
        let _ = bound.send(Ok(()));
        sennit_linux::confine::keep_files_only();
        if let Err(error) = server.run(&AtomicBool::new(false)) {
            tracing::error!(%error, "speed tests are served no more");
        }
    };
    let thread = thread::Builder::new().name("speedtest".into()).spawn(run);
    thread.map_err(Failure::runtime)?;
    let outcome = is_bound.recv().map_err(Failure::runtime)?;
    outcome.map_err(|error| {
        Failure::runtime(format!("cannot serve speed tests at {listen}: {error}"))
    })?;
    tracing::info!(address = %listen, "sites may measure their tunnels");
    Ok(())
}
