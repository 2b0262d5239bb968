//! `sennit events`.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{Exit, Failure, output, status, values};
use crate::control::{Client, Request};
use crate::journal::{self, Events, Record, Wanted};

/// More than this is a question with `--since`.
const LIMIT: usize = 50;
/// How long the daemon holds a question until there is something new.
const WAIT: u64 = 10;
/// How long its answer may take beyond that.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit events                      # the last 50
  sennit events --since 2h
  sennit events -f --json            # one event a line, as they happen
  sennit events --file /var/lib/sennit/edge-journal.db    # of a daemon that does not run")]
pub(super) struct EventsArgs {
    /// Go on with what happens from now on
    #[arg(short, long)]
    follow: bool,
    /// Only those of the last time, like 30m, 24h, 7d
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    since: Option<Duration>,
    /// Only so many, the newest [default: 50, with --since all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Control socket of the daemon [default: the edge's, else the hub's, in /run/sennit]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Read a journal's file instead of asking a daemon
    #[arg(long, value_name = "FILE", conflicts_with_all = ["control", "follow"])]
    file: Option<PathBuf>,
    /// Print JSON (sennit.events/1), one event a line
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &EventsArgs) -> Result<Exit, Failure> {
    let default = args.since.is_none().then_some(LIMIT);
    let wanted = Wanted {
        since_seconds: args.since.map(|since| since.as_secs()),
        limit: args.limit.or(default),
        ..Wanted::default()
    };
    if let Some(file) = &args.file {
        let what = format!("cannot read the journal {}", file.display());
        // SQLite has the same words for each file that it cannot open.
        File::open(file).map_err(|error| Failure::io(&error, format!("{what}: {error}")))?;
        let found = journal::read_file(file, &wanted)
            .map_err(|error| Failure::runtime(format!("{what}: {error}")));
        return show(args, &found?.events).map(|_| Exit::Ok);
    }
    let control = args.control.clone().map_or_else(status::find_control, Ok)?;
    let patience = Duration::from_secs(WAIT) + PATIENCE;
    let mut client = Client::connect(&control, patience)?;
    let mut found = ask(&mut client, wanted)?;
    let mut open = show(args, &found.events)?;
    let mut last = found.events.last().map_or(0, |record| record.id);
    while args.follow && open {
        let wanted = Wanted {
            after: Some(last),
            wait_seconds: Some(WAIT),
            ..Wanted::default()
        };
        found = ask(&mut client, wanted)?;
        open = show(args, &found.events)?;
        last = found.events.last().map_or(last, |record| record.id);
    }
    Ok(Exit::Ok)
}

fn ask(client: &mut Client, wanted: Wanted) -> Result<Events, Failure> {
    let document = client.request(&Request::Events { wanted })?;
    serde_json::from_value(document)
        .map_err(|error| Failure::runtime(format!("the daemon's events make no sense: {error}")))
}

/// Prints events; false if nobody reads them any more.
fn show(args: &EventsArgs, records: &[Record]) -> Result<bool, Failure> {
    let line = |record: &Record| {
        if args.json {
            let json = serde_json::to_string(record).map_err(Failure::runtime)?;
            return Ok(json + "\n");
        }
        // A reason may come from afar.
        let text = record.text.replace(char::is_control, "?");
        Ok(format!("{}  {text}\n", record.time))
    };
    let lines: Result<Vec<String>, Failure> = records.iter().map(line).collect();
    output::print_open(&lines?.concat())
}
