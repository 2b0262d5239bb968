//! The daemon's status, asked for at most a few times a second however many want it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::body::Bytes;
use tokio::sync::Mutex;

use super::{Ask, problem::Problem};
use crate::{control::Request, status::Status};

/// Threads that wait for the daemon.
pub(super) const ASKERS: usize = 4;
/// An answer is given again for so long.
const FRESH: Duration = Duration::from_millis(200);

/// Whoever watches the daemon.
pub(super) struct Watch {
    ask: Arc<dyn Ask>,
    whole: Mutex<Option<Sight>>,
    summary: Mutex<Option<Sight>>,
}

/// What the daemon said.
#[derive(Clone)]
pub(super) struct Sight {
    at: Instant,
    pub(super) status: Arc<Status>,
    /// As JSON.
    pub(super) json: Bytes,
}

impl Watch {
    pub(super) fn new(ask: Arc<dyn Ask>) -> Self {
        Self {
            ask,
            whole: Mutex::default(),
            summary: Mutex::default(),
        }
    }

    /// The status, with the busiest flows or without.
    pub(super) async fn status(&self, flows: bool) -> Result<Sight, Problem> {
        let (kept, request) = if flows {
            (&self.whole, Request::Status)
        } else {
            (&self.summary, Request::Summary)
        };
        // Who asks meanwhile waits here, and gets the same.
        let mut kept = kept.lock().await;
        if let Some(sight) = kept.as_ref().filter(|it| it.at.elapsed() < FRESH) {
            return Ok(sight.clone());
        }
        let sight = self.look(request).await?;
        *kept = Some(sight.clone());
        Ok(sight)
    }

    /// What the daemon says to a request that asks for a status.
    pub(super) async fn look(&self, request: Request) -> Result<Sight, Problem> {
        let ask = Arc::clone(&self.ask);
        let look = move || {
            let status = ask.status(&request)?;
            let json = serde_json::to_vec(&status).expect("a status becomes JSON");
            Ok(Sight {
                at: Instant::now(),
                status: Arc::new(status),
                json: json.into(),
            })
        };
        in_background(look)
            .await?
            .map_err(|it| Problem::refused(&it))
    }
}

/// Runs what waits on a thread that may.
pub(super) async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| {
        let status = axum::http::StatusCode::INTERNAL_SERVER_ERROR;
        Problem::new(status, "internal", "the answer could not be made")
    })
}
