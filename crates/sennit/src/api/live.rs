//! Live data, as server-sent events.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::{Shared, problem::Problem, seats::Busy};

/// Between two looks: what a person follows.
const EVERY: Duration = Duration::from_secs(1);

/// One viewer.
struct Viewer {
    shared: Arc<Shared>,
    flows: bool,
    ticks: Interval,
    _room: Busy,
}

/// A `status` event each second.
pub(super) fn stream(shared: Arc<Shared>, flows: bool) -> Result<Response, Problem> {
    let full = || Problem::too_many(5, "too many streams are open");
    let room = shared.seats.stream().ok_or_else(full)?;
    let mut ticks = interval(EVERY);
    // A viewer that was slow gets the newest, and not all that it missed.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let viewer = Viewer {
        shared,
        flows,
        ticks,
        _room: room,
    };
    let events = stream::unfold(viewer, |mut viewer| async {
        let event = viewer.next().await;
        Some((Ok::<_, Infallible>(event), viewer))
    });
    let sse = Sse::new(events).keep_alive(KeepAlive::default());
    Ok(sse.into_response())
}

impl Viewer {
    async fn next(&mut self) -> Event {
        self.ticks.tick().await;
        match self.shared.watch.status(self.flows).await {
            Ok(sight) => {
                let text = String::from_utf8_lossy(&sight.json);
                Event::default().event("status").data(text)
            }
            Err(problem) => {
                let text = serde_json::to_string(&problem).expect("a problem becomes JSON");
                Event::default().event("problem").data(text)
            }
        }
    }
}
