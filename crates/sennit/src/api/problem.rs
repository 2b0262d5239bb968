//! Errors as problem documents (RFC 9457).

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Serialize;

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(super) struct Problem {
    /// A name for the kind of problem, `urn:sennit:` and its `code`.
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    /// The HTTP status.
    #[serde(with = "status")]
    #[schemars(with = "u16")]
    status: StatusCode,
    /// What went wrong this time.
    detail: String,
    /// A word for programs.
    code: String,
    /// After so many seconds it may be tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u64>,
}

mod status {
    use axum::http::StatusCode;
    use serde::Serializer;

    pub(super) fn serialize<S: Serializer>(status: &StatusCode, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u16(status.as_u16())
    }
}

impl Problem {
    pub(super) fn new(status: StatusCode, code: &str, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:sennit:{code}"),
            title: status.canonical_reason().unwrap_or("Error"),
            status,
            detail: detail.into(),
            code: code.into(),
            retry_after_seconds: None,
        }
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail)
    }

    pub(super) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// Too many requests; there is room for another after so many seconds.
    pub(super) fn too_many(after: u64, detail: impl Into<String>) -> Self {
        Self {
            retry_after_seconds: Some(after),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", detail)
        }
    }

    /// So many wait already that nobody else can; soon there is room again.
    pub(super) fn busy(detail: impl Into<String>) -> Self {
        Self {
            retry_after_seconds: Some(1),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
        }
    }

    /// The fault is the daemon's.
    pub(super) fn internal() -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self::new(status, "internal", "the answer could not be made")
    }

    /// What a daemon refused.
    pub(super) fn refused(refused: &crate::control::Refused) -> Self {
        let status = match refused.code.as_str() {
            "busy" => StatusCode::SERVICE_UNAVAILABLE,
            "not_found" => StatusCode::NOT_FOUND,
            "bad_request" => StatusCode::BAD_REQUEST,
            code if code.starts_with("no_such_") => StatusCode::NOT_FOUND,
            "internal" => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::CONFLICT,
        };
        Self::new(status, &refused.code, &refused.message)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self).expect("a problem becomes JSON");
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, json);
        if self.status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer realm=\"sennit\"");
            headers.insert(header::WWW_AUTHENTICATE, bearer);
        }
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}
