//! Programs that measure something themselves and print it as JSON.

use std::collections::BTreeMap;
use std::process::Stdio;

use super::{Context, wait};
use crate::error::{Doing, Error};
use crate::figure::Figure;
use crate::host::Running;
use crate::scenario::Program;

/// What it printed; keys that are no figures of ours are an error.
pub(super) fn run(
    program: &Program,
    context: &Context<'_>,
) -> Result<BTreeMap<Figure, f64>, Error> {
    let (path, out) = context.file("program.json")?;
    let (complaints, err) = context.file("program.txt")?;
    let mut words = program.command.iter();
    let mut command = context
        .host(program.at)
        .command(words.next().unwrap_or(&String::new()));
    command
        .args(words)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err);
    wait(&mut Running::start(&mut command)?, context.deadline())?;
    let text = std::fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| {
        let said = std::fs::read_to_string(&complaints).unwrap_or_default();
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        Error::Traffic {
            name: program.command.join(" "),
            reason: format!(
                "no figures ({error}): {}",
                last.unwrap_or("it said nothing")
            ),
        }
    })
}
