//! The daemon's status, asked for at most a few times a second however many want it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::body::Bytes;
use tokio::{
    sync::{Mutex, Semaphore},
    time::sleep_until,
};

use super::{Ask, desk::Desk, problem::Problem};
use crate::{
    control::Request,
    status::{Role, Status},
};

/// An answer is given again for so long.
const FRESH: Duration = Duration::from_millis(200);
/// Questions whose answers nobody else can have, and that wait for their turns: the last of them
/// waits for 1.6 s.
const APART: usize = 8;

/// Whoever watches the daemon.
pub(super) struct Watch {
    ask: Arc<dyn Ask>,
    /// Without flows and with them, and of both with so many [`Paths`].
    kept: [[Mutex<Option<Sight>>; 3]; 2],
    desk: Desk,
    apart: Semaphore,
    /// When the next question that stands alone may be asked.
    next_apart: Mutex<Instant>,
}

/// How much of the status somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scope {
    /// The busiest flows of each tunnel.
    pub(super) flows: bool,
    pub(super) paths: Paths,
}

/// Which paths of tunnels; those of a hub with many sites are most of what it has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paths {
    None,
    /// Those over links of the daemon's own: of an edge all, of a hub none.
    Own,
    All,
}

impl Scope {
    /// All but flows.
    pub(super) const SUMMARY: Self = Self {
        flows: false,
        paths: Paths::All,
    };
    pub(super) const WHOLE: Self = Self {
        flows: true,
        paths: Paths::All,
    };
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
            kept: Default::default(),
            desk: Desk::default(),
            apart: Semaphore::new(APART),
            next_apart: Mutex::new(Instant::now()),
        }
    }

    /// As much of the status as is wanted.
    pub(super) async fn status(&self, scope: Scope) -> Result<Sight, Problem> {
        let request = if scope.flows {
            Request::Status
        } else {
            Request::Summary
        };
        let kept = &self.kept[usize::from(scope.flows)][scope.paths as usize];
        // Who asks meanwhile waits here, and gets the same.
        let mut kept = kept.lock().await;
        if let Some(sight) = kept.as_ref().filter(|it| it.at.elapsed() < FRESH) {
            return Ok(sight.clone());
        }
        let sight = self.look(request, scope.paths).await?;
        *kept = Some(sight.clone());
        Ok(sight)
    }

    /// Waits until something may be asked that only one caller wants to know: not more often than
    /// what all want to.
    pub(super) async fn wait_apart(&self) -> Result<(), Problem> {
        let busy = |_| Problem::busy("too many questions wait for an answer");
        let _place = self.apart.try_acquire().map_err(busy)?;
        let mut next = self.next_apart.lock().await;
        sleep_until((*next).into()).await;
        *next = Instant::now() + FRESH;
        Ok(())
    }

    /// Runs what waits on a thread that may.
    pub(super) async fn in_background<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        self.desk.in_background(work).await
    }

    /// What the daemon says to a request that asks for a status, with these paths.
    pub(super) async fn look(&self, request: Request, paths: Paths) -> Result<Sight, Problem> {
        let ask = Arc::clone(&self.ask);
        let look = move || {
            let mut status = ask.status(&request)?;
            match paths {
                Paths::Own if status.role == Role::Edge => {}
                Paths::None | Paths::Own => status.leave_paths_out(),
                Paths::All => {}
            }
            let json = serde_json::to_vec(&status).expect("a status becomes JSON");
            Ok(Sight {
                at: Instant::now(),
                status: Arc::new(status),
                json: json.into(),
            })
        };
        self.in_background(look)
            .await?
            .map_err(|it| Problem::refused(&it))
    }
}
