//! Where requests wait that need the daemon or a file: on a few threads, and behind them in a short
//! queue.
//!
//! Whoever hangs up while it waits leaves the queue. What a thread has begun it ends, and so it has
//! its place until then.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::problem::Problem;

/// Threads that wait for the daemon.
pub(super) const ASKERS: usize = 4;
/// Requests that may wait for one of them. An answer takes milliseconds as a rule: who comes later
/// than that many would hear sooner by asking again.
const WAITING: usize = 64;

#[derive(Debug)]
pub(super) struct Desk {
    threads: Arc<Semaphore>,
    queue: Semaphore,
}

impl Default for Desk {
    fn default() -> Self {
        Self {
            threads: Arc::new(Semaphore::new(ASKERS)),
            queue: Semaphore::new(WAITING),
        }
    }
}

impl Desk {
    /// Runs what waits on a thread that may.
    pub(super) async fn in_background<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let queued = self.queue.try_acquire();
        let queued = queued.map_err(|_| Problem::busy("too many requests wait for an answer"))?;
        let turn = Arc::clone(&self.threads).acquire_owned().await;
        drop(queued);
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        done.await.map_err(|_| Problem::internal())
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use axum::response::IntoResponse as _;

    use super::*;

    #[test]
    fn who_comes_when_all_wait_is_told_and_who_hangs_up_makes_room() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(fill_and_empty());
    }

    async fn fill_and_empty() {
        let desk = Arc::new(Desk::default());
        let (open, gate) = mpsc::channel::<()>();
        let gate = Arc::new(std::sync::Mutex::new(gate));
        let ask = || {
            let (desk, gate) = (Arc::clone(&desk), Arc::clone(&gate));
            tokio::spawn(async move {
                desk.in_background(move || gate.lock().unwrap().recv())
                    .await
            })
        };
        let asked: Vec<_> = (0..ASKERS + WAITING).map(|_| ask()).collect();
        while desk.queue.available_permits() > 0 {
            tokio::task::yield_now().await;
        }

        let late = desk.in_background(|| ()).await;

        assert_eq!(late.unwrap_err().into_response().status(), 503);
        for waiting in &asked {
            waiting.abort();
        }
        while desk.queue.available_permits() < WAITING {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            desk.threads.available_permits(),
            0,
            "what has begun goes on"
        );
        drop(open);
        let soon = tokio::time::timeout(Duration::from_secs(20), desk.in_background(|| 7));
        assert_eq!(soon.await.unwrap().unwrap(), 7);
    }
}
