//! What is asked of the daemon, and that nothing it says can steer the terminal.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::http::{Request as HttpRequest, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::rates::Seen;
use crate::cli::{Failure, status};
use crate::control::{Client, Request};
use crate::history::History;
use crate::journal::{Events, Record, Wanted};
use crate::status::Role;

/// A daemon answers within one turn of its loop.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// How long the daemon holds a question until there is a new event.
const WAIT: u64 = 10;
/// An hour of seconds of 256 series is less than this.
const MOST_HISTORY: usize = 128 << 20;
/// The finest step of the history is kept for so long, in seconds.
const KEPT: f64 = 3600.0;

/// How strings of the daemon are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strings {
    AsTheyCame,
    /// Without control characters.
    Printable,
}

/// Looks at the daemon once.
pub(super) fn look(control: &Path, strings: Strings) -> Result<Seen, Failure> {
    let mut document = Client::connect(control, PATIENCE)?.request(&Request::Status)?;
    if strings == Strings::Printable {
        disarm(&mut document);
    }
    Ok(Seen::new(status::read(&document)?, Instant::now()))
}

/// The events after this one, the oldest first; waits for one if there is none. Without one to
/// begin after it is the newest.
pub(super) fn events(
    client: &mut Client,
    after: Option<u64>,
    most: usize,
) -> Result<Vec<Record>, Failure> {
    let wanted = Wanted {
        after,
        limit: Some(most),
        wait_seconds: after.map(|_| WAIT),
        ..Wanted::default()
    };
    let mut document = client.request(&Request::Events { wanted })?;
    disarm(&mut document);
    let events: Events = serde_json::from_value(document)
        .map_err(|error| Failure::runtime(format!("the daemon's events make no sense: {error}")))?;
    Ok(events.events)
}

/// A connection on which a question for events may be held.
pub(super) fn patient(control: &Path) -> Result<Client, Failure> {
    Ok(Client::connect(
        control,
        PATIENCE + Duration::from_secs(WAIT),
    )?)
}

/// What the daemon has kept of so many seconds; its API answers on the control socket too.
pub(super) fn history(control: &Path, role: Role, seconds: f64) -> Result<History, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let since = seconds.min(KEPT).ceil();
    // Those of a hub are by class, and its picture is by site.
    let series = match role {
        Role::Edge => "",
        Role::Hub => "&series=total",
    };
    let target = format!("/v1/history?step=second&since={since}{series}");
    let asked = async { timeout(PATIENCE, get(control, &target)).await };
    let body = match runtime.block_on(asked) {
        Ok(body) => body.map_err(|error| error.to_string())?,
        Err(_) => return Err("the daemon does not answer in time".into()),
    };
    let mut document: Value = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
    disarm(&mut document);
    serde_json::from_value(document).map_err(|error| error.to_string())
}

async fn get(control: &Path, target: &str) -> io::Result<axum::body::Bytes> {
    let stream = UnixStream::connect(control).await?;
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(io::Error::other)?;
    let request = HttpRequest::get(target)
        .header(header::HOST, "sennit")
        .body(String::new())
        .map_err(io::Error::other)?;
    let exchange = async {
        let response = sender.send_request(request).await;
        let response = response.map_err(io::Error::other)?;
        if !response.status().is_success() {
            let status = response.status();
            return Err(io::Error::other(format!("the answer is {status}")));
        }
        let body = to_bytes(Body::new(response.into_body()), MOST_HISTORY).await;
        body.map_err(io::Error::other)
    };
    tokio::select! {
        body = exchange => body,
        ended = connection => Err(ended.err().map_or_else(
            || io::ErrorKind::UnexpectedEof.into(),
            io::Error::other,
        )),
    }
}

/// Names and reasons from afar have no control characters after this.
fn disarm(document: &mut Value) {
    match document {
        Value::String(text) => *text = printable(text),
        Value::Array(values) => values.iter_mut().for_each(disarm),
        Value::Object(fields) => fields.values_mut().for_each(disarm),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// One line that cannot steer the terminal.
pub(super) fn printable(text: &str) -> String {
    text.replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::api::{self, Api, Keys};
    use crate::config::ApiConfig;
    use crate::control::{Ask, Entrance, Refused, Response, Server};
    use crate::history::Recorder;
    use crate::journal::{Event, Keeper};
    use crate::status::Status;

    /// An edge with a class whose reason would clear the screen.
    struct Hostile;

    impl Ask for Hostile {
        fn status(&self, _: &Request) -> Result<Status, Refused> {
            let full = include_str!("../../../tests/parts/schema/full.json");
            let mut status: Status = serde_json::from_str(full).expect("it is one");
            status.tunnels[0].reason = Some("no\u{1b}[2Jtunnel".into());
            Ok(status)
        }

        fn answer(&self, request: Request) -> Response {
            Response::result(self.status(&request))
        }
    }

    #[test]
    fn a_look_has_no_control_characters_and_events_and_history_come_over_the_same_socket() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("edge.sock");
        let ask: Arc<dyn Ask> = Arc::new(Hostile);
        let keeper = Keeper::start(&dir.path().join("journal.db")).unwrap();
        let recorder = Recorder::start(&dir.path().join("history.db"), Arc::clone(&ask)).unwrap();
        let (door, visitors) = api::door();
        let journal = keeper.journal().clone();
        let answer = {
            let journal = journal.clone();
            move |request| match request {
                Request::Events { wanted } => Response::document(&journal.read(&wanted)),
                other => Hostile.answer(other),
            }
        };
        let entrance = Entrance::open(&socket).unwrap();
        let _server = Server::start_with_http(entrance, answer, door).unwrap();
        let books = (journal.clone(), recorder.archive().clone());
        let config = ApiConfig::default();
        let keys = Keys::load(&config).unwrap();
        let _api = Api::start(keys, ask, books, visitors).unwrap();
        let link = "lte\u{7}".to_owned();
        journal.note(Event::LinkUp { link });

        let seen = look(&socket, Strings::Printable).unwrap();
        let raw = look(&socket, Strings::AsTheyCame).unwrap();
        let mut client = patient(&socket).unwrap();
        let told = events(&mut client, Some(0), 5).unwrap();
        let kept = || history(&socket, Role::Edge, 120.0).is_ok_and(|it| !it.series.is_empty());

        let reason = |seen: &Seen| seen.status.tunnels[0].reason.clone().unwrap();
        assert_eq!(reason(&seen), "no?[2Jtunnel");
        assert_eq!(reason(&raw), "no\u{1b}[2Jtunnel");
        assert_eq!(told[0].text, "link lte? is up");
        let deadline = Instant::now() + Duration::from_secs(20);
        while !kept() {
            assert!(Instant::now() < deadline, "nothing is in the history");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
