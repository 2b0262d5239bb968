//! What commands print.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::SystemTime;

use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Exit, Failure};

/// Data to stdout. A reader that has seen enough is no error.
pub(super) fn print(text: &str) -> Result<Exit, Failure> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::runtime(format!("cannot write to stdout: {error}")))
        }
        _ => Ok(Exit::Ok),
    }
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

/// RFC 3339, in UTC and whole seconds.
pub(super) fn date(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time);
    let whole = time.replace_nanosecond(0).unwrap_or(time);
    whole.format(&Rfc3339).unwrap_or_else(|_| whole.to_string())
}
