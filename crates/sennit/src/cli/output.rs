//! What commands print.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;

use ratatui::crossterm::terminal;
use sennit_linux::Draft;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::{Exit, Failure};
use crate::status;

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

/// A document, which begins with its schema.
pub(super) fn print_json(document: &impl Serialize) -> Result<Exit, Failure> {
    let text = serde_json::to_string_pretty(document).map_err(Failure::runtime)?;
    debug_assert!(text.starts_with("{\n  \"schema\": \"sennit."), "{text}");
    print(&format!("{text}\n"))
}

/// What was measured, as JSON or in words. If stdout has no room for it, the words go to stderr, so
/// that nothing has to be measured again.
pub(super) fn print_measured(
    measured: &(impl Serialize + Display),
    json: bool,
) -> Result<Exit, Failure> {
    let printed = match json {
        true => print_json(measured),
        false => print(&measured.to_string()),
    };
    printed.inspect_err(|_| say_text(&measured.to_string()))
}

/// Begins the file that a command ends with: that it cannot be written is told before anything is
/// measured.
pub(super) fn begin(path: &Path) -> Result<Draft, Failure> {
    Draft::begin(path).map_err(cannot_write(path))
}

/// Ends it.
pub(super) fn finish(draft: Draft, text: &str) -> Result<(), Failure> {
    let path = draft.path().to_owned();
    draft.finish(text).map_err(cannot_write(&path))
}

fn cannot_write(path: &Path) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::runtime(format!("cannot write {}: {error}", path.display()))
}

/// A document as a daemon has sent it, which loses nothing that this version does not know.
pub(super) fn print_document(document: &Value) -> Result<Exit, Failure> {
    print_json(&SchemaFirst(document))
}

/// Keys of an object are kept in the order of the alphabet; this puts `schema` in front.
struct SchemaFirst<'a>(&'a Value);

impl Serialize for SchemaFirst<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Value::Object(object) = self.0 else {
            return self.0.serialize(serializer);
        };
        let (schema, others): (Vec<_>, Vec<_>) =
            object.iter().partition(|(key, _)| *key == "schema");
        serializer.collect_map(schema.into_iter().chain(others))
    }
}

/// Whether stdout shows colours and wants them (no-color.org).
pub(super) fn wants_color() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !refused && io::stdout().is_terminal()
}

/// Columns of the terminal that stdout is; what is none has as few as there ever are.
pub(super) fn width() -> usize {
    let size = terminal::size().ok().filter(|_| io::stdout().is_terminal());
    size.map_or(status::WIDTH, |(columns, _)| columns.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_of_a_daemon_begins_with_its_schema_and_is_otherwise_as_it_came() {
        let document = json!({ "links": [{ "schema": 1, "a": 2 }], "schema": "sennit.usage/1" });
        let text = serde_json::to_string(&SchemaFirst(&document)).unwrap();
        let asked = r#"{"schema":"sennit.usage/1","links":[{"a":2,"schema":1}]}"#;
        assert_eq!(text, asked);
    }
}
