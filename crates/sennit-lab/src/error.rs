//! What can go wrong in a lab, and whose fault it is.

use std::io;

use serde::Serialize;

/// Why a lab could not be built or a scenario could not be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line asks for something that there is not, or that cannot be.
    #[error("{0}")]
    Usage(String),
    /// The scenario asks for something that cannot be.
    #[error("scenario: {0}")]
    Scenario(String),
    /// The host refused a system call.
    #[error("failed to {doing}: {source}")]
    Host {
        /// What was tried.
        doing: String,
        /// What the host said.
        source: io::Error,
    },
    /// A program that the lab needs did not do its work.
    #[error("`{command}` failed: {output}")]
    Command {
        /// The command line.
        command: String,
        /// What it printed, or why it did not start.
        output: String,
    },
    /// Programs of the distribution are not installed.
    #[error("{programs} not found: install the packages {packages}")]
    ProgramsMissing {
        /// Their names.
        programs: String,
        /// Debian's names for what has them.
        packages: String,
    },
    /// Making network namespaces takes root.
    #[error("the lab makes network namespaces: run it as root")]
    NotRoot,
    /// The emulated links are not what the scenario asked for, so no figure would be honest.
    #[error("the links are not as asked, nothing is reported:\n{0}")]
    SelfCheck(String),
    /// A traffic tool did not deliver its figures.
    #[error("traffic {name}: {reason}")]
    Traffic {
        /// Which of the step's traffic.
        name: String,
        /// Why there are no figures.
        reason: String,
    },
    /// The tunnel did not come up or did not stay up.
    #[error("tunnel: {0}")]
    Tunnel(String),
    /// Linux set-up through `sennit-linux`.
    #[error(transparent)]
    Linux(#[from] sennit_linux::Error),
}

impl Error {
    /// How the program ends, as `sennit` does: 2 wrong usage, 3 not found, 5 not valid, 7
    /// permission denied, 1 anything else.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        let denied = |source: &io::Error| source.kind() == io::ErrorKind::PermissionDenied;
        let missing = |source: &io::Error| source.kind() == io::ErrorKind::NotFound;
        match self {
            Self::NotRoot | Self::Linux(sennit_linux::Error::NotPrivileged) => 7,
            Self::Host { source, .. } if denied(source) => 7,
            Self::Host { source, .. } if missing(source) => 3,
            Self::Usage(_) => 2,
            Self::Scenario(_) => 5,
            Self::Host { .. }
            | Self::Command { .. }
            | Self::ProgramsMissing { .. }
            | Self::SelfCheck(_)
            | Self::Traffic { .. }
            | Self::Tunnel(_)
            | Self::Linux(_) => 1,
        }
    }
}

/// What went wrong as programs read it (`sennit.error/1`), in one line, as `sennit` prints it.
#[must_use]
pub fn error_json(exit_code: u8, message: &str) -> String {
    let code = match exit_code {
        2 => "usage",
        3 => "not_found",
        5 => "config_invalid",
        7 => "permission_denied",
        _ => "failed",
    };
    let document = Document {
        schema: "sennit.error/1",
        code,
        exit_code,
        message,
    };
    serde_json::to_string(&document).expect("strings become JSON")
}

/// An error for programs; the lab has no `hint`.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    code: &'static str,
    exit_code: u8,
    message: &'a str,
}

/// Adds what was being done to an I/O error.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Host {
            doing: what(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_a_document_of_one_line_with_its_code_as_a_word() {
        let error = Error::Usage("there is no variant \"x\"\nat all".into());

        let told = error_json(error.exit_code(), &error.to_string());

        assert_eq!(
            told,
            r#"{"schema":"sennit.error/1","code":"usage","exit_code":2,"message":"there is no variant \"x\"\nat all"}"#
        );
    }
}
