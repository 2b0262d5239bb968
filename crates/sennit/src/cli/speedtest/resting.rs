//! Links that rest while another is measured.

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::PATIENCE;
use crate::cli::{Failure, links};
use crate::control::{Client, LinkOrder};
use crate::status::{PathState, Status};

/// The edge has links carry again that were not heard of for this long.
const LEASE: Duration = Duration::from_millis(1500);
const RENEW: Duration = Duration::from_millis(300);
/// Paths of a link that rests close within a round trip.
const SETTLED: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(50);

/// Ends when it is dropped.
pub(super) struct Resting {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Resting {
    /// Has all links rest but one, until nothing passes over them.
    pub(super) fn all_but(link: &str, status: &Status, control: &Path) -> Result<Self, Failure> {
        let others = status.links.iter().map(|it| it.name.clone());
        let others: Vec<String> = others.filter(|name| name != link).collect();
        let mut client = Client::connect(control, PATIENCE)?;
        rest(&mut client, &others, LEASE)?;
        let (stop, stopped) = mpsc::channel();
        let (mut renewing, names) = (Client::connect(control, PATIENCE)?, others.clone());
        let run = move || {
            while stopped.recv_timeout(RENEW) == Err(RecvTimeoutError::Timeout) {
                if rest(&mut renewing, &names, LEASE).is_err() {
                    return;
                }
            }
            // If the edge is gone, there is nobody who rests.
            let _ = rest(&mut renewing, &names, Duration::ZERO);
        };
        let thread = thread::Builder::new().name("resting".into()).spawn(run);
        let resting = Self {
            stop: Some(stop),
            thread: Some(thread.map_err(Failure::runtime)?),
        };
        let deadline = Instant::now() + SETTLED;
        while is_any_up(&links::status(&mut client)?, &others) && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
        Ok(resting)
    }
}

impl Drop for Resting {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been shown.
            let _ = thread.join();
        }
    }
}

fn rest(client: &mut Client, names: &[String], span: Duration) -> Result<(), Failure> {
    let milliseconds = span.as_millis() as u32;
    for name in names {
        links::order(client, name, LinkOrder::Rest { milliseconds })?;
    }
    Ok(())
}

fn is_any_up(status: &Status, names: &[String]) -> bool {
    let mut paths = status.tunnels.iter().flat_map(|tunnel| &tunnel.paths);
    paths.any(|path| {
        let is_named = path.link.as_ref().is_some_and(|link| names.contains(link));
        is_named && path.state == PathState::Up
    })
}
