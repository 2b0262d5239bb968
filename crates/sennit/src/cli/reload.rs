//! `sennit reload`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::{Exit, Failure, output, status, values};
use crate::config::{Change, Salvaged};
use crate::control::{Client, ClientError, ReloadAnswer, Request};
use crate::daemon::claim::Last;

/// The daemon reads a file, and its workers change over within a turn.
const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit reload
  sennit reload --confirm 60s        # taken back after a minute, unless you say:
  sennit reload --keep
  sennit reload --config /etc/sennit/dock.toml

Flows live on. Files that the config names are read again: tokens, certificates, secrets. A config with errors changes nothing, and all of them are said (exit code 5). SIGHUP does
the same. What needs a restart is named, and stays as it is until then.")]
pub(super) struct ReloadArgs {
    /// Control socket of the daemon [default: the edge's, else the hub's, in /run/sennit]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// The daemon's config, whose `control` it is asked at, in place of --control; where that is
    /// new, the daemon is found by its `state`
    #[arg(long, value_name = "FILE", conflicts_with = "control")]
    config: Option<PathBuf>,
    /// Take it back after this time unless it is confirmed, like 60s
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    confirm: Option<Duration>,
    /// Confirm the last reload
    #[arg(long, conflicts_with = "confirm")]
    keep: bool,
    /// Print JSON (sennit.reload/1)
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ReloadArgs) -> Result<Exit, Failure> {
    let config = args.config.as_deref().map(super::salvage).transpose()?;
    let mut client = connect(args.control.as_deref(), config.as_ref(), PATIENCE)?;
    if args.keep {
        let kept = client.request(&Request::Keep)?;
        if args.json {
            return output::print_document(&kept);
        }
        output::say!("The config stays.");
        return Ok(Exit::Ok);
    }
    let seconds = |span: Duration| u32::try_from(span.as_secs()).unwrap_or(u32::MAX);
    let request = Request::Reload {
        confirm_seconds: args.confirm.map(seconds),
    };
    let document = client.request(&request)?;
    let answer: ReloadAnswer = serde_json::from_value(document.clone()).map_err(|error| {
        Failure::runtime(format!("the daemon's answer makes no sense: {error}"))
    })?;
    if args.json {
        output::print_document(&document)?;
    } else if answer.applied {
        output::print(&text(&answer))?;
    }
    if !answer.applied {
        let message = match args.json {
            true => "nothing was changed".to_owned(),
            false => format!("{}\n\nerror: nothing was changed", answer.report)
                .trim_start()
                .to_owned(),
        };
        return Err(Failure::new(Exit::ConfigInvalid, message));
    }
    Ok(Exit::Ok)
}

/// Connects to the daemon at a socket, or to that of a config, or to the one that runs.
pub(super) fn connect(
    control: Option<&Path>,
    config: Option<&Salvaged>,
    patience: Duration,
) -> Result<Client, Failure> {
    match (control, config) {
        (Some(control), _) => Ok(Client::connect(control, patience)?),
        (None, Some(file)) => Ok(connect_by(file, patience)?),
        (None, None) => Ok(Client::connect(&status::find_control()?, patience)?),
    }
}

/// Where the config says, or where it said so when the daemon with its state was started.
fn connect_by(file: &Salvaged, patience: Duration) -> Result<Client, ClientError> {
    let unreachable = match Client::connect(&file.control, patience) {
        Err(error @ ClientError::Unreachable { .. }) => error,
        connected => return connected,
    };
    let last = Last::read(&file.state, file.role);
    let client = last.and_then(|last| Client::connect(&last.control, patience).ok());
    client.ok_or(unreachable)
}

fn text(answer: &ReloadAnswer) -> String {
    let mut text = String::new();
    if !answer.report.is_empty() {
        text += &format!("{}\n\n", answer.report);
    }
    for change in &answer.changes {
        text += &format!("{}\n", line(change));
    }
    for change in &answer.needs_restart {
        text += &format!("{}: needs a restart\n", line(change));
    }
    for file in &answer.reread {
        text += &format!("{file}: read anew\n");
    }
    for note in &answer.notes {
        text += &format!("{note}\n");
    }
    let changed = [&answer.changes, &answer.needs_restart];
    if changed.iter().all(|it| it.is_empty()) && answer.reread.is_empty() {
        text += "nothing has changed\n";
    }
    if let Some(seconds) = answer.reverts_in_seconds {
        text += &format!("taken back in {seconds} s, unless you say: sennit reload --keep\n");
    }
    text
}

fn line(change: &Change) -> String {
    let what = &change.what;
    match (&change.before, &change.after) {
        (Some(before), Some(after)) => format!("{what}: {before} -> {after}"),
        (Some(_), None) if change.is_table() => format!("{what}: taken out"),
        (None, Some(_)) if change.is_table() => format!("{what}: new"),
        (Some(before), None) => format!("{what}: {before} -> not set"),
        (None, Some(after)) => format!("{what}: {after}"),
        (None, None) => what.clone(),
    }
}
