//! `sennit top`: links, classes and sites with what passes now and why, for people who watch.

mod app;
mod ask;
mod draw;
mod entries;
mod errands;
mod live;
mod once;
mod picture;
mod rates;
mod trace;
mod why;

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::Args;

use self::ask::Strings;
use self::rates::Now;
use super::{Exit, Failure, output, status, values};

/// Columns of what `--once` prints.
const WIDTH: u16 = 80;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit top
  sennit top --once                  # one look, as text
  sennit top --once --json | jq .links

Keys: ? lists them. The arrows select a link, class or site, and the pane below the tables says
why it is so. / filters, s sorts, p stops the picture, q ends it. At an edge o pauses a link or has
it carry again, d loses it on purpose, and t measures it; each asks first, but to carry again.
What passes is counted in bits a second.
With NO_COLOR set there are no colours.")]
pub(super) struct TopArgs {
    /// Control socket of the daemon [default: the edge's, else the hub's, in /run/sennit]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Seconds between two looks, 0.2 to 60
    #[arg(long, value_name = "S", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// Look once, print it, and end
    #[arg(long)]
    once: bool,
    /// Print JSON (sennit.top/1)
    #[arg(long, requires = "once")]
    json: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let span = values::seconds(text)?;
    if !(0.2..=60.0).contains(&span.as_secs_f64()) {
        return Err("0.2 to 60 seconds are allowed".into());
    }
    Ok(span)
}

pub(super) fn run(args: &TopArgs) -> Result<Exit, Failure> {
    let control = args.control.clone().map_or_else(status::find_control, Ok)?;
    if args.once {
        let strings = match args.json {
            true => Strings::AsTheyCame,
            false => Strings::Printable,
        };
        let before = ask::look(&control, strings)?;
        thread::sleep(args.interval);
        let now = Now::between(&before, &ask::look(&control, strings)?);
        return match args.json {
            true => output::print_json(&now),
            false => output::print(&once::text(&now, WIDTH)),
        };
    }
    live::watch(&control, args.interval)
}
