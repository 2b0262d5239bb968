//! Large answers: few at once, each with a place until all of it has been taken. Those of the
//! history have places of their own, as they take longest: who fetches a year over a slow link
//! keeps nobody from the status.
//!
//! They leave in portions, each when there is room for it, so that an answer has its place for as
//! long as it is memory of the daemon.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::{Body, HttpBody as _, to_bytes},
    response::{IntoResponse as _, Response},
};
use futures_util::stream;

use super::{
    Shared,
    problem::Problem,
    seats::{Client, Room, Stay},
};

/// An answer of more bytes is large: more than a page with a status in it.
const LARGE: u64 = 1 << 20;
/// As much as a connection holds to be sent.
const PORTION: usize = 16 << 10;
/// Who is to have a large answer waits for a place so long.
const PATIENCE: Duration = Duration::from_secs(5);

/// A place for a part of the history that is still to be read, which goes with the answer among its
/// extensions.
pub(super) async fn place(shared: &Shared, client: &Arc<Client>) -> Result<Arc<Stay>, Problem> {
    enter(&shared.seats.histories, client).await
}

/// Sends an answer in portions if it is large.
pub(super) async fn send(mut answer: Response, shared: &Shared, client: &Arc<Client>) -> Response {
    let place = answer.extensions_mut().remove::<Arc<Stay>>();
    let length = answer.body().size_hint().exact();
    if length.is_none_or(|length| length <= LARGE) {
        return answer;
    }
    let stay = match place {
        Some(stay) => stay,
        None => match enter(&shared.seats.answers, client).await {
            Ok(stay) => stay,
            Err(problem) => return problem.into_response(),
        },
    };
    let (head, body) = answer.into_parts();
    let Ok(whole) = to_bytes(body, usize::MAX).await else {
        return Problem::internal().into_response();
    };
    let portions = stream::unfold((whole, stay), |(mut rest, stay)| async move {
        let portion = rest.split_to(rest.len().min(PORTION));
        (!portion.is_empty()).then_some((Ok::<_, Infallible>(portion), (rest, stay)))
    });
    // The head says how long it is.
    Response::from_parts(head, Body::from_stream(portions))
}

async fn enter(room: &Room, client: &Arc<Client>) -> Result<Arc<Stay>, Problem> {
    let stay = room.enter(client, PATIENCE).await;
    let full = || Problem::busy("too many large answers wait to be taken");
    stay.map(Arc::new).ok_or_else(full)
}
