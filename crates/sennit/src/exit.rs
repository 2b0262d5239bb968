//! How a command ends.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;

use crate::api::ApiError;
use crate::config::{ConfigError, DEFAULT_EDGE_CONTROL, DEFAULT_HUB_CONTROL};
use crate::control::{BindError, ClientError};
use crate::identity::{IdentityError, InvitationError};
use crate::store::StoreError;

/// The exit codes, which scripts may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Ok = 0,
    Runtime = 1,
    Usage = 2,
    NotFound = 3,
    Unreachable = 4,
    ConfigInvalid = 5,
    Findings = 6,
    Permission = 7,
    Timeout = 8,
    /// What a shell expects after Ctrl-C.
    Interrupted = 130,
}

impl Exit {
    /// What JSON calls it.
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Runtime => "failed",
            Self::Usage => "usage",
            Self::NotFound => "not_found",
            Self::Unreachable => "unreachable",
            Self::ConfigInvalid => "config_invalid",
            Self::Findings => "findings",
            Self::Permission => "permission_denied",
            Self::Timeout => "timeout",
            Self::Interrupted => "interrupted",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

const NEEDS_ROOT: &str = "run it as root, or as the user whose it is";

/// Why a command failed, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    exit: Exit,
    message: String,
    hint: Option<String>,
}

impl Failure {
    pub fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self {
            exit,
            message: message.to_string(),
            hint: None,
        }
    }

    /// A failure of the operating system.
    pub(super) fn io(source: &io::Error, message: impl fmt::Display) -> Self {
        let exit = match source.kind() {
            io::ErrorKind::NotFound => Exit::NotFound,
            io::ErrorKind::PermissionDenied => Exit::Permission,
            _ => Exit::Runtime,
        };
        let failure = Self::new(exit, message);
        match exit {
            Exit::Permission => failure.hint(NEEDS_ROOT),
            _ => failure,
        }
    }

    /// A failure of no special kind.
    pub fn runtime(message: impl fmt::Display) -> Self {
        Self::new(Exit::Runtime, message)
    }

    pub(super) fn usage(message: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// What to do.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// What still was so when a wait of this time was over.
    pub(super) fn still_after(self, waited: Duration) -> Self {
        Self {
            exit: Exit::Timeout,
            message: format!("after {} s: {}", waited.as_secs_f64(), self.message),
            hint: self.hint,
        }
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// What programs read (`sennit.error/1`), in one line.
    pub(super) fn json(&self) -> String {
        let document = Document {
            schema: "sennit.error/1",
            code: self.exit.word(),
            exit_code: self.exit as u8,
            message: &self.message,
            hint: self.hint.as_deref(),
        };
        serde_json::to_string(&document).expect("strings become JSON")
    }
}

/// A failure for programs.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    code: &'static str,
    exit_code: u8,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A config's report has its own form.
        let prefix = if self.exit == Exit::ConfigInvalid {
            ""
        } else {
            "error: "
        };
        write!(f, "{prefix}{}", self.message)?;
        self.hint
            .as_ref()
            .map_or(Ok(()), |hint| write!(f, "\n  {hint}"))
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        match &error {
            ConfigError::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Self::io(source, &error).hint(
                    "`sennit join` writes the first config of an edge, `sennit hub init` that of a hub",
                )
            }
            ConfigError::Read { source, .. } => Self::io(source, &error),
            ConfigError::Invalid(report) => {
                let count = report.errors();
                let plural = if count == 1 { "error" } else { "errors" };
                Self::new(Exit::ConfigInvalid, format!("{report}\n\n{count} {plural}"))
            }
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Missing { .. } => Self::new(Exit::NotFound, error)
                .hint("make a hub's identity and store: sennit hub init --state DIR"),
            StoreError::NoInvitation { .. } => {
                Self::new(Exit::NotFound, error).hint("which do: sennit hub invitations")
            }
            StoreError::NoSuchSite { .. } => {
                Self::new(Exit::NotFound, error).hint("the known ones: sennit sites")
            }
            StoreError::Io { source, .. } => Self::io(source, &error),
            StoreError::Exposed { path, .. } => {
                let hint = format!("only its owner may: chmod 600 {}", path.display());
                Self::new(Exit::Permission, error).hint(hint)
            }
            StoreError::NameOfSite { .. } => {
                Self::new(Exit::Usage, error).hint("like: sennit invite phone --bearer")
            }
            StoreError::NotGrantable { .. } | StoreError::MayComeIn { .. } => {
                Self::new(Exit::Usage, error)
            }
            _ => Self::runtime(error),
        }
    }
}

impl From<IdentityError> for Failure {
    fn from(error: IdentityError) -> Self {
        match error {
            IdentityError::Store(error) => error.into(),
            IdentityError::Io { ref source, .. } => Self::io(source, &error),
            IdentityError::NoHub { .. } => {
                Self::new(Exit::NotFound, error).hint("make one: sennit hub init --state DIR")
            }
            IdentityError::Exposed { ref path, .. } => {
                let hint = format!("only its owner may: chmod 600 {}", path.display());
                Self::new(Exit::Permission, error).hint(hint)
            }
            IdentityError::NotJoined { .. } => Self::new(Exit::NotFound, error)
                .hint("ask the hub for a token (sennit invite SITE --hub ADDR:PORT), then: sennit join TOKEN"),
            IdentityError::LocksOut { .. } => Self::new(Exit::Findings, error).hint(
                "wait until they were here, or invite them again; or lock them out: --force",
            ),
            IdentityError::NotRotating { .. } => Self::new(Exit::NotFound, error),
            IdentityError::AlreadyJoined { .. } => {
                Self::runtime(error).hint("to replace its key and certificate by those of this new token: --force")
            }
            _ => Self::runtime(error),
        }
    }
}

impl From<sennit_linux::Error> for Failure {
    fn from(error: sennit_linux::Error) -> Self {
        let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
        let exit = match &error {
            sennit_linux::Error::NotPrivileged => Exit::Permission,
            sennit_linux::Error::NoInterface(_) => Exit::NotFound,
            sennit_linux::Error::BadDeviceName(_) => Exit::Usage,
            _ => Exit::Runtime,
        };
        Self::new(exit, format!("{error}{}", source.unwrap_or_default()))
    }
}

impl From<InvitationError> for Failure {
    fn from(error: InvitationError) -> Self {
        let hint = match error {
            InvitationError::Expired => {
                "ask the hub for a new one: sennit invite SITE --hub ADDR:PORT"
            }
            InvitationError::Foreign | InvitationError::Damaged => {
                "copy the whole line that sennit invite printed"
            }
            InvitationError::Bearer => {
                "an invitation is printed without --bearer: sennit invite SITE --hub ADDR:PORT"
            }
            InvitationError::Newer(_) => "update this Sennit",
        };
        Self::runtime(error).hint(hint)
    }
}

impl From<BindError> for Failure {
    fn from(error: BindError) -> Self {
        match &error {
            BindError::AlreadyRunning { .. } | BindError::NotASocket { .. } => Self::runtime(error)
                .hint("give each daemon a socket of its own: `control = \"PATH\"` in its config"),
            BindError::Io { source, .. } => Self::io(source, &error),
        }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        match &error {
            ApiError::Listen { source, .. } | ApiError::File { source, .. } => {
                Self::io(source, &error)
            }
            ApiError::BadFile { .. } | ApiError::Thread(_) => Self::runtime(error),
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match &error {
            ClientError::Denied { source, .. } => Self::io(source, &error),
            ClientError::Ended { .. } => Self::new(Exit::Unreachable, error)
                .hint("its log says why: journalctl -u sennit-edge, or sennit-hub"),
            ClientError::Unreachable { path, .. }
                if path == Path::new(DEFAULT_EDGE_CONTROL)
                    && Path::new(DEFAULT_HUB_CONTROL).exists() =>
            {
                Self::new(Exit::Unreachable, error)
                    .hint("only a hub runs here, and this is for edges: say it at one")
            }
            ClientError::Unreachable { .. } => Self::new(Exit::Unreachable, error)
                .hint("is it running? one with a socket of its own: --control PATH"),
            ClientError::Silent { .. } => Self::new(Exit::Timeout, error),
            ClientError::Refused(refused) if refused.code.starts_with("no_such_") => {
                Self::new(Exit::NotFound, error)
            }
            ClientError::Garbled { .. } | ClientError::Refused(_) => Self::runtime(error),
        }
    }
}
