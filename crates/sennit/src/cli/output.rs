//! What commands print.

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

use super::{Exit, Failure};

/// Data to stdout. A reader that has seen enough is no error.
pub(super) fn print(text: &str) -> Result<Exit, Failure> {
    print_open(text).map(|_| Exit::Ok)
}

/// Data to stdout; false if nobody reads it any more.
pub(super) fn print_open(text: &str) -> Result<bool, Failure> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::runtime(format!("cannot write to stdout: {error}")))
        }
        written => Ok(written.is_ok()),
    }
}

/// A line of talk to stderr. That nobody reads it any more is no reason to stop, which is why this
/// is not `eprintln!`.
macro_rules! say {
    ($($line:tt)*) => {
        $crate::cli::output::say_text(&(format!($($line)*) + "\n"))
    };
}
pub(super) use say;

/// Talk to stderr, as it is.
pub(super) fn say_text(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

pub(super) fn print_json(document: &impl Serialize) -> Result<Exit, Failure> {
    let text = serde_json::to_string_pretty(document).map_err(Failure::runtime)?;
    print(&format!("{text}\n"))
}

/// Whether stdout shows colours and wants them (no-color.org).
pub(super) fn wants_color() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !refused && io::stdout().is_terminal()
}
