//! The control socket of a daemon: JSON lines over a Unix socket.
//!
//! A client sends one [`Request`] per line and gets one line for each, a document or
//! `{"error": {"code": …, "message": …}}`. [`Server`] has a thread for accepting and one for each
//! client, so a slow client delays nobody; their number, the length of a request and the time for
//! each are bounded. [`Client`] is the other end.

mod client;
mod lock;
mod server;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::client::{Client, ClientError};
pub use self::server::{BindError, Server};

use crate::{flow::FlowName, site::SiteName};

/// A request is a line of at most this many bytes.
pub const MAX_REQUEST_BYTES: usize = 64 * 1024;

/// What a client wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The [`crate::status::Status`] document.
    Status,
    /// The [`crate::status::Status`] document with no flows but these, and not only the busiest of
    /// them.
    Flow { flow: FlowName },
    /// Drop the tunnels of a site whose permission was withdrawn (hub).
    Disconnect { site: SiteName },
}

/// What a daemon says.
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    Document(Value),
    Refused(Refused),
}

/// Why a daemon did not do it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// A word for programs.
    pub code: String,
    pub message: String,
}

impl Response {
    /// A document.
    pub fn document(document: &impl Serialize) -> Self {
        match serde_json::to_value(document) {
            Ok(value) => Self::Document(value),
            Err(error) => {
                Self::refused("internal", format!("the answer cannot be written: {error}"))
            }
        }
    }

    /// Success without more to say.
    pub fn done() -> Self {
        Self::Document(serde_json::json!({}))
    }

    pub fn refused(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Refused(Refused {
            code: code.into(),
            message: message.into(),
        })
    }

    fn into_line(self) -> Vec<u8> {
        let value = match self {
            Self::Document(value) => value,
            Self::Refused(refused) => serde_json::json!({ "error": refused }),
        };
        let mut line = value.to_string().into_bytes();
        line.push(b'\n');
        line
    }

    fn parse(line: &[u8]) -> serde_json::Result<Self> {
        let value: Value = serde_json::from_slice(line)?;
        match value.get("error") {
            Some(error) => serde_json::from_value(error.clone()).map(Self::Refused),
            None => Ok(Self::Document(value)),
        }
    }
}
