//! The thread that has the host look names up behind the tunnel, while there is one
//! ([`NameServers`]). Packets do not wait for commands.

use std::{
    io,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use sennit_linux::{
    DeviceName, Error, confine,
    nameservers::{NameServers, Standing},
};

/// The host is told again after this what it did not take, or what another program has undone: who
/// looks after its servers may have been about to start, or has written the file for a new lease.
const AGAIN: Duration = Duration::from_secs(10);

/// Dropped, it has the host forget what it was told.
pub(super) struct Dns {
    words: Option<Sender<Vec<IpAddr>>>,
    note: Arc<Mutex<Option<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Dns {
    /// Takes over from an earlier run: what that left behind is put back.
    pub(super) fn start(device: &DeviceName) -> io::Result<Self> {
        let (words, told) = mpsc::channel::<Vec<IpAddr>>();
        let note = Arc::<Mutex<Option<String>>>::default();
        let (shared, device) = (Arc::clone(&note), device.clone());
        let run = move || {
            confine::keep_files_only();
            let mut servers = match NameServers::begin(&device) {
                Ok(servers) => servers,
                Err(error) => return complain(&error),
            };
            let mut standing = Standing::default();
            loop {
                let heard = match standing {
                    Some(_) => told.recv_timeout(AGAIN),
                    None => told.recv().map_err(RecvTimeoutError::from),
                };
                let outcome = match heard {
                    Ok(wanted) => servers.set(&wanted),
                    Err(RecvTimeoutError::Timeout) => servers.tell(),
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                match outcome {
                    Ok(now) => standing = now,
                    Err(error) => return complain(&error),
                }
                let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                shared.clone_from(&standing);
            }
        };
        let thread = thread::Builder::new().name("dns".into()).spawn(run)?;
        Ok(Self {
            words: Some(words),
            note,
            thread: Some(thread),
        })
    }

    /// From now on these are asked; none means that the host is left as it was.
    pub(super) fn set(&self, servers: &[IpAddr]) {
        if let Some(words) = &self.words {
            // The thread ends with us only.
            let _ = words.send(servers.to_vec());
        }
    }

    /// What an operator should know.
    pub(super) fn note(&self) -> Option<String> {
        self.note
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.words = None;
        if let Some(thread) = self.thread.take() {
            // It has said what went wrong, if it panicked.
            let _ = thread.join();
        }
    }
}

fn complain(error: &Error) {
    let error = error as &dyn std::error::Error;
    tracing::error!(error, "the host learns of no name servers any more");
}
