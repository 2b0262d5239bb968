//! Live data, as server-sent events.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use tokio::sync::watch::Receiver;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::{
    Role, Shared,
    call::Call,
    problem::Problem,
    seats::{AT_ONCE, Stay},
    terms::{Credential, Terms},
    watch::Scope,
};
use crate::journal::{Record, Wanted};

/// Between two looks: what a person follows.
const EVERY: Duration = Duration::from_secs(1);

/// One viewer.
struct Viewer {
    shared: Arc<Shared>,
    /// When to look at the status, and at how much of it.
    status: Option<(Interval, Scope)>,
    /// The number of the newest event, as it grows.
    newest: Receiver<u64>,
    /// The last event that was taken from the journal.
    after: u64,
    events: VecDeque<Record>,
    /// By which they may look, as long as the terms say so.
    shown: Credential,
    terms: Receiver<Arc<Terms>>,
    _place: Stay,
}

/// What there is to tell.
enum Due {
    /// As much of the status.
    Status(Scope),
    /// Events, as long as the journal is kept.
    Events(bool),
    /// Nothing any more, if their token is gone.
    Terms,
}

/// A `status` event each second, and an `event` for each that is noted.
pub(super) async fn status(call: Call) -> Result<Response, Problem> {
    let scope = call.scope()?;
    let mut ticks = interval(EVERY);
    // A viewer that was slow gets the newest, and not all that it missed.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut viewer = Viewer::new(&call).await?;
    viewer.status = Some((ticks, scope));
    Ok(viewer.stream())
}

/// An `event` for each that is wanted, and for each that is noted from now on.
pub(super) async fn events(call: &Call, wanted: &Wanted) -> Result<Response, Problem> {
    let mut viewer = Viewer::new(call).await?;
    if *wanted != Wanted::default() {
        viewer.events = viewer.shared.journal.read(wanted).events.into();
        viewer.after = viewer.events.back().map_or(viewer.after, |last| last.id);
    }
    Ok(viewer.stream())
}

impl Viewer {
    async fn new(call: &Call) -> Result<Self, Problem> {
        let shared = Arc::clone(&call.shared);
        let full = || Problem::too_many(5, "too many streams are open");
        let place = shared.seats.streams.enter(&call.client, AT_ONCE).await;
        let place = place.ok_or_else(full)?;
        let mut newest = shared.journal.newest();
        let after = *newest.borrow_and_update();
        let mut terms = shared.access.locks().subscribe();
        // They may have changed since the request was let in.
        terms.mark_changed();
        Ok(Self {
            shared,
            status: None,
            newest,
            after,
            events: VecDeque::new(),
            shown: call.shown.clone(),
            terms,
            _place: place,
        })
    }

    fn stream(self) -> Response {
        let events = stream::unfold(self, |mut viewer| async {
            let event = viewer.next().await?;
            Some((Ok::<_, Infallible>(event), viewer))
        });
        let sse = Sse::new(events).keep_alive(KeepAlive::default());
        sse.into_response()
    }

    /// The next event; none if they may not look any more.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(record) = self.events.pop_front() {
                let text = serde_json::to_string(&record).expect("a record becomes JSON");
                let event = Event::default().event("event");
                return Some(event.id(record.id.to_string()).data(text));
            }
            let (status, newest) = (&mut self.status, &mut self.newest);
            let tick = async {
                match status {
                    Some((ticks, scope)) => {
                        ticks.tick().await;
                        *scope
                    }
                    None => std::future::pending().await,
                }
            };
            let due = tokio::select! {
                scope = tick => Due::Status(scope),
                changed = newest.changed() => Due::Events(changed.is_ok()),
                // There is an API as long as it is shared.
                _ = self.terms.changed() => Due::Terms,
            };
            match due {
                Due::Status(scope) => return Some(self.look(scope).await),
                Due::Events(alive) => self.take(alive).await,
                Due::Terms => {
                    let role = self.terms.borrow_and_update().role_of(&self.shown);
                    if role < Some(Role::Read) {
                        return None;
                    }
                }
            }
        }
    }

    /// Takes the events that are new.
    async fn take(&mut self, alive: bool) {
        if !alive {
            // The keeper is gone, and the daemon with it.
            return std::future::pending().await;
        }
        let wanted = Wanted {
            after: Some(self.after),
            ..Wanted::default()
        };
        self.events = self.shared.journal.read(&wanted).events.into();
        self.after = self.events.back().map_or(self.after, |last| last.id);
    }

    async fn look(&self, scope: Scope) -> Event {
        match self.shared.watch.status(scope).await {
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
