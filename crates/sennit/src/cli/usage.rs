//! `sennit usage`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{Exit, Failure, output};
use crate::config::DEFAULT_EDGE_CONTROL;
use crate::control::{Client, Request};
use crate::status;
use crate::usage::{Carried, UsageDocument, UsageLink};

const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit usage                       # the billing cycle of each link
  sennit usage --by day

UDP payload is counted, both ways, with probes and headers of the tunnel. Days are those of UTC.")]
pub(super) struct UsageArgs {
    /// Sum up by billing cycle, or by day
    #[arg(long, value_name = "SPAN", default_value = "cycle")]
    by: Span,
    /// Control socket of the edge
    #[arg(long, value_name = "PATH", default_value = DEFAULT_EDGE_CONTROL)]
    control: PathBuf,
    /// Print JSON (sennit.usage/1)
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Span {
    /// From one reset day to the next
    Cycle,
    Day,
}

pub(super) fn run(args: &UsageArgs) -> Result<Exit, Failure> {
    let document = Client::connect(&args.control, PATIENCE)?.request(&Request::Usage)?;
    if args.json {
        return output::print_document(&document);
    }
    let usage: UsageDocument = serde_json::from_value(document).map_err(|error| {
        Failure::runtime(format!("the daemon's answer makes no sense: {error}"))
    })?;
    output::print(&match args.by {
        Span::Cycle => by_cycle(&usage.links),
        Span::Day => by_day(&usage.links),
    })
}

fn by_cycle(links: &[UsageLink]) -> String {
    let width = width(links);
    let mut text = format!(
        "{:width$}  {:10}  {:>10}  {:>10}  {:>10}  {:>6}  {:>10}\n",
        "LINK", "SINCE", "SENT", "RECEIVED", "CAP", "USED", "FORECAST"
    );
    let bytes = |bytes: Option<u64>| bytes.map_or("-".into(), status::bytes);
    for link in links {
        let used = link.used_ratio.map(|used| format!("{:.0} %", used * 100.0));
        text += &format!(
            "{:width$}  {:10}  {:>10}  {:>10}  {:>10}  {:>6}  {:>10}\n",
            link.link,
            link.cycle_first,
            status::bytes(link.used.sent_bytes),
            status::bytes(link.used.received_bytes),
            bytes(link.cap_bytes),
            used.unwrap_or_else(|| "-".into()),
            bytes(link.forecast_bytes),
        );
        if link.over {
            let (name, end) = (&link.link, &link.cycle_end);
            text += &format!("  {name}: its cap is used up until {end}; it is in reserve\n");
        }
    }
    text
}

fn by_day(links: &[UsageLink]) -> String {
    let width = width(links);
    let mut text = format!(
        "{:10}  {:width$}  {:>10}  {:>10}\n",
        "DAY", "LINK", "SENT", "RECEIVED"
    );
    let rows = links.iter().flat_map(|link| {
        let days = link.days.iter();
        days.map(|day| (day.day.as_str(), link.link.as_str(), day.carried))
    });
    let mut rows: Vec<(&str, &str, Carried)> = rows.collect();
    rows.sort_by_key(|&(day, link, _)| (day, link));
    for (day, link, carried) in rows {
        text += &format!(
            "{day:10}  {link:width$}  {:>10}  {:>10}\n",
            status::bytes(carried.sent_bytes),
            status::bytes(carried.received_bytes),
        );
    }
    text
}

fn width(links: &[UsageLink]) -> usize {
    let widest = links.iter().map(|link| link.link.chars().count()).max();
    widest.unwrap_or(0).max(4)
}
