//! One request: what it may, its query and its body.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes, to_bytes},
    http::{HeaderMap, StatusCode, header},
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::{
    Role, Shared,
    problem::Problem,
    seats::Client,
    terms::Credential,
    watch::{Paths, Scope},
};
use crate::status::Status;

/// What a body may have at most where it is a few words, and where it is a config.
pub(super) const BODY_BYTES: usize = 64 << 10;
pub(super) const CONFIG_BYTES: usize = 2 << 20;
/// For the body of a request.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// Who asks, and over which connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Caller {
    pub(super) role: Option<Role>,
    /// What they have shown for it.
    pub(super) shown: Credential,
    pub(super) client: Arc<Client>,
}

/// One request, read and allowed.
pub(super) struct Call {
    pub(super) shared: Arc<Shared>,
    pub(super) client: Arc<Client>,
    pub(super) path: BTreeMap<String, String>,
    pub(super) query: BTreeMap<String, String>,
    pub(super) role: Option<Role>,
    pub(super) shown: Credential,
    pub(super) body: Bytes,
    pub(super) headers: HeaderMap,
}

pub(super) fn check_role(has: Option<Role>, needs: Option<Role>) -> Result<(), Problem> {
    match (has, needs) {
        (_, None) => Ok(()),
        (None, Some(_)) => Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "a token is needed: Authorization: Bearer TOKEN",
        )),
        (Some(has), Some(needs)) if has < needs => {
            let name = |role| serde_json::to_value(role).unwrap_or_default();
            let (has, needs) = (name(has), name(needs));
            Err(Problem::forbidden(format!(
                "this needs the role {needs}, and the token is for {has}"
            )))
        }
        (Some(_), Some(_)) => Ok(()),
    }
}

/// A form of another page has no such type, so it is refused even where no token is asked for.
pub(super) async fn read_body(
    headers: &HeaderMap,
    body: Body,
    most: usize,
) -> Result<Bytes, Problem> {
    let late = |_| {
        let status = StatusCode::REQUEST_TIMEOUT;
        Problem::new(status, "timeout", "the body did not come in time")
    };
    let bytes = timeout(BODY_WITHIN, to_bytes(body, most))
        .await
        .map_err(late)?;
    let bytes = bytes.map_err(|_| {
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        Problem::new(
            status,
            "too_large",
            format!("this body has at most {most} bytes"),
        )
    })?;
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_json = kind
        .split(';')
        .next()
        .is_some_and(|it| it.trim() == "application/json");
    let is_nothing = bytes.is_empty() && kind.is_empty();
    if !(is_json || is_nothing) {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(Problem::new(
            status,
            "not_json",
            "a body must be application/json",
        ));
    }
    Ok(bytes)
}

impl Call {
    pub(super) fn part(&self, name: &str) -> String {
        self.path.get(name).cloned().unwrap_or_default()
    }

    /// What the body says, if there is one.
    pub(super) fn document<T: DeserializeOwned>(&self) -> Result<Option<T>, Problem> {
        if self.body.is_empty() {
            return Ok(None);
        }
        let wrong = |error| Problem::bad_request(format!("the body is not as it must be: {error}"));
        serde_json::from_slice(&self.body).map(Some).map_err(wrong)
    }

    /// What the body says.
    pub(super) fn needed<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let missing = || Problem::bad_request("a body is needed");
        self.document()?.ok_or_else(missing)
    }

    pub(super) fn flag(&self, name: &str, usual: bool) -> Result<bool, Problem> {
        match self.query.get(name).map(String::as_str) {
            None => Ok(usual),
            Some("false") => Ok(false),
            Some("true" | "") => Ok(true),
            Some(_) => Err(Problem::bad_request(format!("`{name}` is true or false"))),
        }
    }

    /// How much of the status is wanted.
    pub(super) fn scope(&self) -> Result<Scope, Problem> {
        Ok(Scope {
            flows: self.flag("flows", false)?,
            paths: self.paths()?,
        })
    }

    fn paths(&self) -> Result<Paths, Problem> {
        match self.query.get("paths").map(String::as_str) {
            Some("own") => Ok(Paths::Own),
            Some("false") => Ok(Paths::None),
            None | Some("true" | "") => Ok(Paths::All),
            Some(_) => Err(Problem::bad_request("`paths` is true, false or own")),
        }
    }

    /// A number in the query.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        let text = self.query.get(name);
        let number = text.map(|text| {
            text.parse()
                .map_err(|_| Problem::bad_request(format!("`{name}` is a whole number")))
        });
        number.transpose()
    }

    /// Whether the caller wants server-sent events.
    pub(super) fn wants_stream(&self) -> bool {
        let accept = self.header(header::ACCEPT);
        accept.is_some_and(|accept| accept.contains("text/event-stream"))
    }

    /// The number of the last event that a stream's viewer has seen before it was cut off.
    pub(super) fn last_event(&self) -> Option<u64> {
        let name = header::HeaderName::from_static("last-event-id");
        self.header(name)?.parse().ok()
    }

    pub(super) fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(super) async fn summary(&self) -> Result<Arc<Status>, Problem> {
        Ok(self.shared.watch.status(Scope::SUMMARY).await?.status)
    }
}
