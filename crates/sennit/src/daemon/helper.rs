//! The process that changes the host for a daemon, which gives up the right to do so
//! (docs/decisions/0033).

use std::{
    process::Child,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use sennit_linux::{confine, helper};

use super::worker::Stop;
use crate::exit::Failure;

/// By this word the program runs as a helper.
pub(crate) const COMMAND: &str = "helper";

/// What it does last may take so long.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(5);

/// Runs until this is dropped, unless it is killed.
#[derive(Debug)]
pub(super) struct Helper {
    process: Option<Child>,
    watch: Option<JoinHandle<()>>,
    is_dismissed: Arc<AtomicBool>,
}

impl Helper {
    /// Starts it; to be called before this process gives up what the helper is to keep.
    pub(super) fn start() -> Result<Self, Failure> {
        Ok(Self {
            process: Some(helper::engage(&[COMMAND])?),
            watch: None,
            is_dismissed: Arc::default(),
        })
    }

    /// From now on the daemon ends, as a failure, where the helper does.
    pub(super) fn watch(&mut self, stop: Stop) -> Result<(), Failure> {
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        let is_dismissed = Arc::clone(&self.is_dismissed);
        let watch = move || {
            confine::keep_files_only();
            let ended = process.wait();
            if !is_dismissed.load(Ordering::Acquire) {
                tracing::error!(
                    ?ended,
                    "the helper has ended, and nobody can change the host"
                );
                stop.fail();
            }
        };
        let thread = thread::Builder::new().name("helper".into()).spawn(watch);
        self.watch = Some(thread.map_err(Failure::runtime)?);
        Ok(())
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.is_dismissed.store(true, Ordering::Release);
        helper::dismiss();
        if let Some(process) = &mut self.process {
            let _ = process.wait();
        }
        if let Some(watch) = self.watch.take() {
            let deadline = Instant::now() + PATIENCE;
            while !watch.is_finished() && Instant::now() < deadline {
                thread::sleep(LOOK);
            }
            if watch.is_finished() {
                let _ = watch.join();
            } else {
                tracing::warn!("the helper waits for a command; it ends after that");
            }
        }
    }
}
