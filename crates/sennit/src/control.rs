//! The control socket of a daemon: JSON lines over a Unix socket.
//!
//! A client sends one [`Request`] per line and gets one line for each, a document or `{"error":
//! {"code": …, "message": …}}`. A client whose first letter is a capital speaks HTTP, and is left
//! to the [API](crate::api). [`Server`] has a thread for accepting and one for each client, so a
//! slow client delays nobody; their number, the length of a request and the time for each are
//! bounded. [`Client`] is the other end.

mod client;
mod lock;
mod server;

use std::{collections::BTreeMap, net::IpAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::client::{Client, ClientError};
pub use self::server::{BindError, Entrance, Server};

use crate::{
    config::{Change, HostFinding, Severity},
    described::DescribedPacket,
    flow::FlowName,
    journal::Wanted,
    remote::Remote,
    site::SiteName,
    status::{LinkStatus, Status},
};

/// A request is a line of at most this many bytes.
pub const MAX_REQUEST_BYTES: usize = 64 * 1024;

/// What a client wants. Those that say so are for an edge or a hub alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The status, `sennit.status/1`.
    Status,
    /// The status without flows, which costs less.
    Summary,
    /// The status with no flows but these, and not only the busiest of them.
    Flow { flow: FlowName },
    /// The class that a packet would take which is only described, and why. At a hub it is the
    /// first of a flow that begins behind it.
    Packet { packet: DescribedPacket },
    /// The events that somebody wants, `sennit.events/1`.
    Events {
        #[serde(default)]
        wanted: Wanted,
    },
    /// Drop the tunnels of a site whose permission was withdrawn (hub).
    Disconnect { site: SiteName },
    /// Have a link do something; the answer is `sennit.link/1` (edge).
    Link { link: String, order: LinkOrder },
    /// Lose a link while pings pass, or look at how that goes; the answer is `sennit.drill-run/1`
    /// (edge).
    Drill { link: String, order: DrillOrder },
    /// Bound what a link carries, all classes together; the answer is `sennit.link/1` (edge).
    Limit { link: String, bounds: LinkBounds },
    /// Start over as who the state directory says that this edge is by now; the answer is
    /// `sennit.identity/1` (edge).
    Identity,
    /// Read the config again and go on with what it says; the answer is `sennit.reload/1`. What is
    /// not confirmed within this time is taken back.
    Reload {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        confirm_seconds: Option<u32>,
    },
    /// Confirm the last reload, or keep what is on trial.
    Keep,
    /// Show the config, check another text of it, try that, or take it back.
    Config { order: ConfigOrder },
    /// What the tunnel or a link carries is measured, or somebody looks at that; the answer is
    /// `sennit.speedtest/1` (edge).
    Speedtest { order: SpeedtestOrder },
    /// Invite a site, take an invitation back, or list those that have not joined yet (hub).
    Invitations { order: InvitationsOrder },
    /// Which addresses sites have, `sennit.leases/1` (hub).
    Leases,
    /// What links have carried, `sennit.usage/1` (edge).
    Usage,
}

/// A daemon that can be asked; whoever asks waits, so it is asked on threads that may.
pub trait Ask: Send + Sync + 'static {
    /// The status; `request` is one that asks for it.
    fn status(&self, request: &Request) -> Result<Status, Refused>;
    /// What it says to any request.
    fn answer(&self, request: Request) -> Response;
    /// What went over links within a second is counted, when its status was this; an edge tells of
    /// both.
    fn note_second(&self, _: &Status, _: LinkRates) {}
}

/// Bytes that links sent and received in a second, by their names.
pub type LinkRates = BTreeMap<String, [f64; 2]>;

/// What somebody wants of the config who edits it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConfigOrder {
    /// The answer is `sennit.config-text/1`.
    Show,
    /// The answer is `sennit.config-check/1`.
    Check { text: String },
    /// Run with this text, which takes the place of the one of this version in the file: at once,
    /// or when it is kept. What is not kept within this time is taken back. The answer is
    /// `sennit.reload/1`.
    Apply {
        text: String,
        version: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        confirm_seconds: Option<u32>,
    },
    /// Take back at once what was not confirmed.
    Revert,
}

/// What somebody wants of speed tests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SpeedtestOrder {
    /// Nothing but to hear of the last one.
    Look,
    Start(SpeedtestWish),
    Stop,
}

/// What somebody wants of drills.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DrillOrder {
    /// Nothing but to hear of the one that runs, or ran last; one that runs ends if nobody does so
    /// for four seconds.
    Look,
    Start(DrillWish),
    /// Restore the link at once.
    Stop,
}

/// What is to be lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DrillWish {
    /// For how long, 1000 to 60000; 5000 without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub milliseconds: Option<u32>,
}

/// What is to be measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SpeedtestWish {
    /// Each of these alone; the tunnel with all its links if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<String>,
    /// Payload in each direction at most: 200 MB without it, or 20 MB where a link has a cap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// How long each direction is measured at most, 1000 to 30000; 8000 without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub milliseconds: Option<u32>,
    /// Links with a cap may be used.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub metered: bool,
    /// Whoever asks stays: the test ends if nobody looks at it for four seconds.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub attended: bool,
}

/// The text of the config file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigText {
    /// `sennit.config-text/1`.
    pub schema: String,
    /// Where it is.
    pub file: String,
    pub text: String,
    /// Tells this text from others of the same file; whoever replaces it names it.
    pub version: String,
    /// What runs at the moment, if it is not in the file yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<String>,
    /// After so long what was changed last is taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverts_in_seconds: Option<f64>,
}

/// What there is to say of a text before it is tried.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ConfigCheck {
    /// `sennit.config-check/1`.
    pub schema: &'static str,
    /// Whether the daemon would take it.
    pub valid: bool,
    pub findings: Vec<ConfigFinding>,
    /// What this host has or lacks for it.
    pub host: Vec<HostFinding>,
    /// What would take effect at once.
    pub changes: Vec<Change>,
    /// What would take effect when the daemon is started again.
    pub needs_restart: Vec<Change>,
    /// The lines that differ from the file, as `diff -u` shows them; empty if none do.
    pub diff: String,
}

/// One thing that is wrong or odd in a config. Lines and columns count from 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ConfigFinding {
    pub severity: Severity,
    pub line: usize,
    pub column: usize,
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub label: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

impl ConfigText {
    pub const SCHEMA: &str = "sennit.config-text/1";
}

impl ConfigCheck {
    pub const SCHEMA: &str = "sennit.config-check/1";
}

/// What somebody wants of invitations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InvitationsOrder {
    /// The answer is `sennit.invitations/1`.
    List,
    /// The answer is `sennit.invite/1`.
    Invite(InviteWish),
    /// The token of this site lets nobody in any more.
    Withdraw { site: SiteName },
}

/// Who is to be invited, as for `sennit invite`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InviteWish {
    pub site: SiteName,
    /// Where the site reaches this hub, like `203.0.113.10:443`.
    #[schemars(with = "Vec<String>")]
    pub hubs: Vec<Remote>,
    /// Prefixes that the site may announce as its LAN.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lans: Vec<String>,
    /// How long the token is good, 60 to 2678400; a day without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u32>,
}

/// A token that lets a site in, which is shown this once; also what `sennit invite --json` prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Invited {
    /// `sennit.invite/1`.
    pub schema: String,
    pub site: String,
    /// `invite`, or `bearer` for a client that is not Sennit.
    pub kind: String,
    pub token: String,
    /// Absent if it is good until it is revoked.
    pub expires: Option<String>,
    /// The token as a QR code, row by row: `1` is dark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qr: Option<Vec<String>>,
}

/// The invitations that nobody has used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Invitations {
    /// `sennit.invitations/1`.
    pub schema: &'static str,
    /// The first on which the hub listens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    pub invitations: Vec<InvitedSite>,
}

/// An invitation that nobody has used. Its token is not kept anywhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InvitedSite {
    pub site: String,
    pub created: String,
    pub expires: String,
    /// It is of no use any more.
    pub expired: bool,
}

impl Invited {
    pub const SCHEMA: &str = "sennit.invite/1";
}

impl Invitations {
    pub const SCHEMA: &str = "sennit.invitations/1";
}

/// What an operator wants of a link. None of it outlives the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LinkOrder {
    /// Nothing but to be described.
    Describe,
    /// Carry nothing until it is resumed.
    Pause,
    Resume,
    /// Drop all that is sent and received, without a word to anybody, for as long as this; from
    /// now, whatever was said before.
    Cut {
        milliseconds: u32,
    },
    /// Carry nothing for as long as this, as if it were paused; from now, whatever was said before.
    Rest {
        milliseconds: u32,
    },
}

/// What a link is to carry at most until the edge ends. What is absent stays as it is, and with 0
/// what the config says holds again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkBounds {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_bytes_per_second: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_bytes_per_second: Option<u64>,
}

/// What an edge answers to an order for a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkAnswer {
    pub schema: String,
    pub link: LinkStatus,
    /// The hub's own addresses in the tunnel, as far as it has told.
    pub hub_inside: Vec<IpAddr>,
}

/// What an edge answers that goes on as who the state directory says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityAnswer {
    /// `sennit.identity/1`.
    pub schema: String,
    pub site: SiteName,
}

impl IdentityAnswer {
    pub const SCHEMA: &str = "sennit.identity/1";
}

/// What a daemon answers to a request to reload, and what `sennit reload --json` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReloadAnswer {
    pub schema: String,
    /// Otherwise nothing has changed.
    pub applied: bool,
    /// What is otherwise from now on.
    #[serde(default)]
    pub changes: Vec<Change>,
    /// What is otherwise when the daemon is started again.
    #[serde(default)]
    pub needs_restart: Vec<Change>,
    /// Files that the config names and that hold something else than before: tokens, certificates
    /// and keys that are good from now on in the place of what they held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reread: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverts_in_seconds: Option<f64>,
    /// The errors, or else the warnings, for people.
    #[serde(default)]
    pub report: String,
    /// The errors, with their places.
    #[serde(default)]
    pub findings: Vec<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl ReloadAnswer {
    pub const SCHEMA: &str = "sennit.reload/1";
}

impl LinkAnswer {
    pub const SCHEMA: &str = "sennit.link/1";
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

impl Refused {
    pub(crate) fn no_link(name: &str) -> Self {
        Self::new("no_such_link", format!("there is no link `{name}`"))
    }

    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
        }
    }
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

    /// A document, or why there is none.
    pub fn result(result: Result<impl Serialize, Refused>) -> Self {
        match result {
            Ok(document) => Self::document(&document),
            Err(refused) => Self::Refused(refused),
        }
    }

    /// Success without more to say.
    pub fn done() -> Self {
        Self::Document(serde_json::json!({}))
    }

    pub fn refused(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Refused(Refused::new(code, message))
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
