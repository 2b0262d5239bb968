//! `sennit links`: what an operator does with one link at a time.
//!
//! All of it is asked of the running edge, and none of it outlives that.

mod drill;
mod limit;

use std::io::{self, BufRead as _, IsTerminal as _};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{Exit, Failure, output, values};
use crate::config::DEFAULT_EDGE_CONTROL;
use crate::control::{Client, LinkAnswer, LinkOrder, Request};
use crate::drill::{SECONDS, USUAL_SECONDS};
use crate::status::{self, LinkState, LinkStatus, Links, ListedLink, Status};

/// A daemon answers within one turn of its loop.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit links
  sennit links pause lte-b           # until `resume`, or until the edge is started again
  sennit links limit lte-b up=2Mbit  # until `off`, or until the edge is started again
  sennit links drill starlink        # lose it on purpose, and see how long nothing passes

What is said here is not saved: the config is what the edge starts with.")]
pub(super) struct LinksArgs {
    #[command(subcommand)]
    command: Option<LinksCommand>,
    /// Control socket of the edge
    #[arg(long, global = true, value_name = "PATH", default_value = DEFAULT_EDGE_CONTROL)]
    control: PathBuf,
    /// Print JSON (sennit.links/1; of pause, resume and limit sennit.link/1; of a drill
    /// sennit.drill/1)
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum LinksCommand {
    /// List the links with what they do now
    List,
    /// Have a link carry nothing, as if it were down, until it is resumed
    Pause {
        /// Name of the link
        #[arg(value_name = "LINK")]
        link: String,
    },
    /// Have a paused link carry again
    Resume {
        /// Name of the link
        #[arg(value_name = "LINK")]
        link: String,
    },
    /// Bound what a link carries, in each direction, until that is lifted
    Limit(limit::LimitArgs),
    /// Lose a link on purpose while pings pass, say how long none came through, and restore it
    Drill(DrillArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Everything that the edge sends and receives on the link is dropped without a word, as when the network
behind a modem dies. The edge restores the link by itself if this command ends before its time.

Exit code 6: the pings did not come through again while the link was lost.")]
struct DrillArgs {
    /// Name of the link
    #[arg(value_name = "LINK")]
    link: String,
    /// Do not ask first
    #[arg(long)]
    yes: bool,
    /// How long the link is lost, in seconds, 1 to 60
    #[arg(long = "for", value_name = "S", default_value = USUAL_SECONDS, value_parser = drill_seconds)]
    span: Duration,
    /// What to ping [default: the hub's address in the tunnel]
    #[arg(long, value_name = "ADDRESS")]
    probe: Option<std::net::IpAddr>,
}

fn drill_seconds(text: &str) -> Result<Duration, String> {
    let span = values::seconds(text)?;
    if !SECONDS.contains(&span.as_secs_f64()) {
        return Err("1 to 60 seconds are allowed".into());
    }
    Ok(span)
}

pub(super) fn run(args: &LinksArgs) -> Result<Exit, Failure> {
    let mut client = Client::connect(&args.control, PATIENCE)?;
    match &args.command {
        None | Some(LinksCommand::List) => list(args, &mut client),
        Some(LinksCommand::Pause { link }) => set(args, &mut client, link, LinkOrder::Pause),
        Some(LinksCommand::Resume { link }) => set(args, &mut client, link, LinkOrder::Resume),
        Some(LinksCommand::Limit(limit)) => limit::run(args, limit, &mut client),
        Some(LinksCommand::Drill(drill)) => {
            confirm(drill, &status(&mut client)?)?;
            drill::run(drill, args.json, &mut client)
        }
    }
}

pub(super) fn status(client: &mut Client) -> Result<Status, Failure> {
    super::status::read(&client.request(&Request::Status)?)
}

/// Has the edge obey an order for a link.
pub(super) fn order(
    client: &mut Client,
    link: &str,
    order: LinkOrder,
) -> Result<LinkAnswer, Failure> {
    let request = Request::Link {
        link: link.into(),
        order,
    };
    ordered(client, &request)
}

/// Has the edge do something that it answers with the link.
fn ordered(client: &mut Client, request: &Request) -> Result<LinkAnswer, Failure> {
    let answer = client.request(request)?;
    serde_json::from_value(answer)
        .map_err(|error| Failure::runtime(format!("the daemon's answer makes no sense: {error}")))
}

// ---- pause and resume ---------------------------------------------------------------------------

fn set(
    args: &LinksArgs,
    client: &mut Client,
    link: &str,
    wish: LinkOrder,
) -> Result<Exit, Failure> {
    let answer = order(client, link, wish)?;
    if args.json {
        return output::print_json(&answer);
    }
    if wish == LinkOrder::Pause {
        output::say!(
            "Link `{link}` carries nothing until `sennit links resume {link}`, or until the edge is \
             started again."
        );
        if !status(client)?.links.iter().any(is_up) {
            output::say!("No other link is up: nothing leaves through the tunnel now.");
        }
    } else {
        output::say!("Link `{link}` may carry again.");
    }
    Ok(Exit::Ok)
}

/// Loses a link for the usual time while pings pass; what came of it, in words.
pub(super) fn drill(
    link: &str,
    client: &mut Client,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&str),
) -> Result<String, Failure> {
    let args = DrillArgs {
        link: link.into(),
        yes: true,
        span: drill_seconds(USUAL_SECONDS).map_err(Failure::usage)?,
        probe: None,
    };
    let found = drill::measure(&args, client, stop, tell)?;
    Ok(drill::text(&found))
}

fn is_up(link: &LinkStatus) -> bool {
    link.state == LinkState::Up
}

// ---- list ---------------------------------------------------------------------------------------

fn cells(listed: &ListedLink) -> [String; 9] {
    let known = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    let (link, traffic) = (&listed.link, &listed.link.traffic);
    let state = match link.state {
        LinkState::Up => "up",
        LinkState::Down => "down",
    };
    let loss = traffic.loss_ratio.map(|loss| loss * 100.0);
    [
        link.name.clone(),
        link.interface.clone(),
        state.into(),
        link.tier.to_string(),
        known(
            traffic
                .rtt_seconds
                .map(|rtt| format!("{:.1} ms", rtt * 1e3)),
        ),
        known(loss.map(|percent| format!("{percent:.1} %"))),
        known(listed.rate_bytes_per_second.map(status::rate)),
        status::bytes(traffic.sent_bytes),
        status::bytes(traffic.received_bytes),
    ]
}

fn notes(link: &LinkStatus) -> Vec<String> {
    let limits = status::limits(link);
    let reasons = link.reason.iter().chain(&link.hub).chain(&limits);
    reasons
        .map(|reason| format!("{}: {reason}", link.name))
        .collect()
}

fn list(args: &LinksArgs, client: &mut Client) -> Result<Exit, Failure> {
    let listed = Links::of(&status(client)?);
    if args.json {
        return output::print_json(&listed);
    }
    let titles = [
        "LINK",
        "INTERFACE",
        "STATE",
        "TIER",
        "RTT",
        "LOSS",
        "RATE UP",
        "SENT",
        "RECEIVED",
    ];
    let rows = listed.links.iter();
    let rows: Vec<_> = rows.map(|it| (cells(it), notes(&it.link))).collect();
    let mut text = status::columns(titles, 3, &rows);
    for ListedLink { link, .. } in &listed.links {
        text += &seen(link);
    }
    output::print(&text)
}

/// Where the hub sees a link, a line for each family.
fn seen(link: &LinkStatus) -> String {
    let name = status::printable(&link.name);
    if link.public.is_empty() {
        return format!("  {name}: where the hub sees it is not known\n");
    }
    let lines = link.public.iter();
    lines
        .map(|public| format!("  {name}: {public}\n"))
        .collect()
}

// ---- before a drill -----------------------------------------------------------------------------

/// Asks a person, if there is one, whether the link may be lost.
fn confirm(args: &DrillArgs, status: &Status) -> Result<(), Failure> {
    let mut others = status.links.iter().filter(|link| link.name != args.link);
    let alone = !others.any(is_up);
    if args.yes {
        return Ok(());
    }
    let refused = |message: &str| Failure::new(Exit::Usage, message.to_owned());
    if !io::stdin().is_terminal() {
        let hint = "to lose it without being asked: --yes";
        return Err(refused("a drill cuts the link, and nobody is here to agree").hint(hint));
    }
    if alone {
        output::say!(
            "No other link is up: nothing will pass while `{}` is lost.",
            args.link
        );
    }
    let seconds = args.span.as_secs_f64();
    output::say_text(&format!("Lose `{}` for {seconds} s? [y/N] ", args.link));
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    let agreed = ["y", "yes"].contains(&answer.trim().to_lowercase().as_str());
    if read.is_ok() && agreed {
        Ok(())
    } else {
        Err(Failure::runtime("nothing was done"))
    }
}
