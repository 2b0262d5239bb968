//! `sennit wait`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{Exit, Failure, output, status, values};

/// For scripts that know no better.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  sennit wait --for usable --timeout 60 && start-the-rest

It also waits for a daemon that is not started yet. Exit code 8: it took too long.")]
pub(super) struct WaitArgs {
    /// What to wait for
    #[arg(long = "for", value_name = "STATE", default_value = "up")]
    state: status::Awaited,
    /// Seconds to wait [default: 30]
    #[arg(long, value_name = "S", value_parser = values::seconds)]
    timeout: Option<Duration>,
    /// Control socket of the daemon [default: the edge's, else the hub's, in /run/sennit]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Print the status that was waited for as JSON (sennit.status/1)
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &WaitArgs) -> Result<Exit, Failure> {
    let control = || args.control.clone().map_or_else(status::find_control, Ok);
    let timeout = args.timeout.unwrap_or(DEFAULT_TIMEOUT);
    let document = status::wait_for(args.state, control, timeout)?;
    if args.json {
        return output::print_document(&document);
    }
    Ok(Exit::Ok)
}
