//! Programs that measure something themselves and print it as JSON.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;

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
    let mut words = program.command.iter();
    let mut command = context
        .host(program.at)
        .command(words.next().unwrap_or(&String::new()));
    printed(command.args(words), &program.command.join(" "), context)
}

/// What a command prints as JSON before it ends; `name` is what an error calls it.
pub(super) fn printed<T: DeserializeOwned>(
    command: &mut Command,
    name: &str,
    context: &Context<'_>,
) -> Result<T, Error> {
    let (path, out) = context.file("program.json")?;
    let (complaints, err) = context.file("program.txt")?;
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    wait(&mut Running::start(command)?, context.deadline())?;
    let text = std::fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| {
        let said = std::fs::read_to_string(&complaints).unwrap_or_default();
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        Error::Traffic {
            name: name.to_owned(),
            reason: format!(
                "no figures ({error}): {}",
                last.unwrap_or("it said nothing")
            ),
        }
    })
}
