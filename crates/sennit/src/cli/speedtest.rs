//! `sennit speedtest`: what the tunnel carries, and what one link of it does.
//!
//! The hub serves the tests of `sennit test` inside the tunnel, if its config says so, and this is
//! a client like any program behind the edge. To measure one link the others rest meanwhile. That
//! is a lease: the edge ends it by itself when nobody renews it, however this command ends.

mod resting;

use std::io::{self, BufRead as _, IsTerminal as _};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::{Exit, Failure, links, output, test, values};
use crate::config::DEFAULT_EDGE_CONTROL;
use crate::control::{Client, LinkOrder, Request};
use crate::loadtest::client::{self, TestError};
use crate::loadtest::report::Report;
use crate::loadtest::{PORT, Plan};
use crate::status::{self, LinkState, Status};
use crate::usage::UsageDocument;
use resting::Resting;

/// A daemon answers within one turn of its loop.
const PATIENCE: Duration = Duration::from_secs(5);
/// In each direction, if no link that is used has a cap, and if one has.
const MOST_BYTES: [u64; 2] = [200_000_000, 20_000_000];
/// One connection would measure one loss, on a long link.
const CONNECTIONS: u16 = 4;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit speedtest
  sennit speedtest --link starlink --link lte --bytes 5M --metered
  sennit speedtest --json

The hub's config has to say `speedtest = true`, and the site must be allowed to reach the hub. A link is
measured while the others rest, so for some seconds everything goes over that link. A link with a `cap` is
used only with --metered, or after you have agreed.")]
pub(super) struct SpeedtestArgs {
    /// Measure this link alone; repeatable [default: the tunnel with all its links]
    #[arg(long = "link", value_name = "LINK")]
    links: Vec<String>,
    /// Payload in each direction at most, like 500k, 20M or 1G [default: 200M, or 20M where a link
    /// has a cap]
    #[arg(long, value_name = "BYTES", value_parser = test::read::bytes)]
    bytes: Option<u64>,
    /// How long each direction is measured at most, in seconds, 1 to 30
    #[arg(long, value_name = "S", default_value = "8", value_parser = span)]
    duration: Duration,
    /// Links with a cap may be used, without a question
    #[arg(long)]
    metered: bool,
    /// Control socket of the edge
    #[arg(long, value_name = "PATH", default_value = DEFAULT_EDGE_CONTROL)]
    control: PathBuf,
    /// Print JSON (sennit.speedtest/1)
    #[arg(long)]
    json: bool,
}

fn span(text: &str) -> Result<Duration, String> {
    let span = values::seconds(text)?;
    if !(1.0..=30.0).contains(&span.as_secs_f64()) {
        return Err("1 to 30 seconds are allowed".into());
    }
    Ok(span)
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Document {
    schema: &'static str,
    /// The hub, inside the tunnel.
    server: SocketAddr,
    /// Payload in each direction at most.
    most_bytes: u64,
    measured: Vec<Measured>,
    interrupted: bool,
}

/// The tunnel, or one link.
#[derive(Debug, Serialize)]
struct Measured {
    /// Absent for the tunnel with all its links.
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    down: Option<Way>,
    #[serde(skip_serializing_if = "Option::is_none")]
    up: Option<Way>,
}

/// One direction.
#[derive(Debug, Serialize)]
struct Way {
    /// Payload that arrived.
    bits_per_second: f64,
    bytes: u64,
    seconds: f64,
    /// Medians of before, and of while the load ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_rtt_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    loaded_rtt_seconds: Option<f64>,
}

pub(super) fn run(args: &SpeedtestArgs) -> Result<Exit, Failure> {
    let mut client = Client::connect(&args.control, PATIENCE)?;
    let status = links::status(&mut client)?;
    for link in &args.links {
        check_link(&status, link)?;
    }
    let server = SocketAddr::new(inside(&mut client, &status)?, PORT);
    let is_capped = agree(args, &mut client, &status)?;
    let most_bytes = args.bytes.unwrap_or(MOST_BYTES[usize::from(is_capped)]);
    let mut document = Document {
        schema: "sennit.speedtest/1",
        server,
        most_bytes,
        measured: Vec::new(),
        interrupted: false,
    };
    let stop = test::stop_on_signals()?;
    let mut told = test::Told::new(None, None, None)?;
    let links = args.links.iter().map(|link| Some(link.as_str()));
    let whole = Some(None).filter(|_| args.links.is_empty());
    for link in links.chain(whole) {
        let _resting = match link {
            Some(link) => Some(Resting::all_but(link, &status, &args.control)?),
            None => None,
        };
        let mut measured = Measured {
            link: link.map(str::to_owned),
            down: None,
            up: None,
        };
        for down in [true, false] {
            let (way, name) = (["up", "down"][usize::from(down)], link.unwrap_or("tunnel"));
            told.say(&format!("Measuring {name}, {way} ..."));
            let options = options(server, plan(args, most_bytes, down));
            let report = client::run(&options, &stop, &mut |second| told.tell(second));
            let report = report.map_err(|error| failure(&error, document.measured.is_empty()))?;
            document.interrupted |= report.interrupted;
            let found = Way::of(&report, down);
            *(if down {
                &mut measured.down
            } else {
                &mut measured.up
            }) = found;
            if document.interrupted {
                break;
            }
        }
        document.measured.push(measured);
        if document.interrupted {
            break;
        }
    }
    if args.json {
        output::print_json(&document)?;
    } else {
        output::print(&document.text())?;
    }
    Ok(if document.interrupted {
        Exit::Interrupted
    } else {
        Exit::Ok
    })
}

// ---- before it ----------------------------------------------------------------------------------

fn check_link(status: &Status, name: &str) -> Result<(), Failure> {
    let Some(link) = status.links.iter().find(|link| link.name == name) else {
        return Err(Failure::new(
            Exit::NotFound,
            format!("there is no link `{name}`"),
        ));
    };
    if link.state == LinkState::Up {
        return Ok(());
    }
    let reason = link.reason.clone().unwrap_or_default();
    let failure = Failure::runtime(format!("link `{name}` is down: {reason}"));
    Err(failure.hint("there is nothing to measure; `sennit status` says more"))
}

/// The hub's address in the tunnel: IPv4 if there is one, as the server has it.
fn inside(client: &mut Client, status: &Status) -> Result<IpAddr, Failure> {
    let Some(link) = status.links.first() else {
        let failure = Failure::runtime("this daemon has no links");
        return Err(failure.hint("a speed test is for an edge"));
    };
    let answer = links::order(client, &link.name, LinkOrder::Describe)?;
    let mut all = answer.hub_inside.iter();
    let v4 = all.clone().find(|address| address.is_ipv4());
    v4.or_else(|| all.next()).copied().ok_or_else(|| {
        Failure::runtime("the hub has not said how it is called in the tunnel")
            .hint("is the tunnel up? `sennit status` says why not")
    })
}

/// Whether a link with a cap will be used; somebody has agreed to it then.
fn agree(args: &SpeedtestArgs, client: &mut Client, status: &Status) -> Result<bool, Failure> {
    let usage: UsageDocument = serde_json::from_value(client.request(&Request::Usage)?)
        .map_err(|error| Failure::runtime(format!("the answer makes no sense: {error}")))?;
    let is_used = |name: &String| {
        let mut up = status.links.iter().filter(|it| it.state == LinkState::Up);
        let all = args.links.is_empty() && up.any(|it| it.name == *name);
        all || args.links.contains(name)
    };
    let links = usage.links.iter();
    let capped = links.filter(|it| it.cap_bytes.is_some() && is_used(&it.link));
    let capped: Vec<&str> = capped.map(|it| it.link.as_str()).collect();
    if capped.is_empty() || args.metered {
        return Ok(!capped.is_empty());
    }
    let most = args.bytes.unwrap_or(MOST_BYTES[1]);
    let question = format!(
        "{} may carry {} in each direction, which counts against a cap",
        capped.join(" and "),
        status::bytes(most)
    );
    if !io::stdin().is_terminal() {
        let failure = Failure::new(
            Exit::Usage,
            format!("{question}, and nobody is here to agree"),
        );
        return Err(failure.hint("to do it without being asked: --metered"));
    }
    eprint!("{question}. Measure? [y/N] ");
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    if read.is_ok() && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
        return Ok(true);
    }
    Err(Failure::runtime("nothing was done"))
}

// ---- the test -----------------------------------------------------------------------------------

fn plan(args: &SpeedtestArgs, most_bytes: u64, down: bool) -> Plan {
    Plan {
        token: None,
        up: !down,
        down,
        connections: CONNECTIONS,
        streams: 1,
        congestion: "auto".into(),
        seconds: args.duration.as_secs_f64(),
        warmup_seconds: 0.0,
        ramp_seconds: 0.0,
        bytes: Some(most_bytes),
        message_bytes: None,
        rate_bits_per_second: None,
        requests: None,
    }
}

fn options(server: SocketAddr, plan: Plan) -> client::Options {
    client::Options {
        server,
        plan,
        patience: PATIENCE,
        pin: None,
        profile: None,
        seed: 1,
        handshakes: None,
        responsiveness: false,
        perf: false,
    }
}

fn failure(error: &TestError, is_first: bool) -> Failure {
    match error {
        TestError::NoServer { .. } if is_first => Failure::new(Exit::Unreachable, error).hint(
            "the hub's config has to say `speedtest = true`, and the site must be allowed to reach the \
             hub: `sennit sites reach` there tells",
        ),
        other => test::failure(other),
    }
}

impl Way {
    fn of(report: &Report, down: bool) -> Option<Self> {
        let way = if down { &report.down } else { &report.up };
        way.as_ref().map(|way| Self {
            bits_per_second: way.goodput_bits_per_second,
            bytes: way.bytes,
            seconds: way.seconds,
            idle_rtt_seconds: report.rtt.idle.p50_seconds,
            loaded_rtt_seconds: report.rtt.loaded.p50_seconds,
        })
    }
}

impl Document {
    fn text(&self) -> String {
        let mut text = format!(
            "{:16}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}\n",
            "", "DOWN", "UP", "RTT", "RTT DOWN", "RTT UP"
        );
        let rate = |way: &Option<Way>| {
            way.as_ref()
                .map(|it| status::rate(it.bits_per_second / 8.0))
        };
        let ms = |rtt: Option<f64>| rtt.map(|rtt| format!("{:.1} ms", rtt * 1e3));
        let loaded = |way: &Option<Way>| ms(way.as_ref().and_then(|it| it.loaded_rtt_seconds));
        let known = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        for measured in &self.measured {
            let Measured { link, down, up } = measured;
            let idle = down.as_ref().and_then(|way| way.idle_rtt_seconds);
            text += &format!(
                "{:16}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}\n",
                link.as_deref().unwrap_or("tunnel"),
                known(rate(down)),
                known(rate(up)),
                known(ms(idle)),
                known(loaded(down)),
                known(loaded(up)),
            );
        }
        if self.interrupted {
            text += "interrupted: the last figures are of the time until then\n";
        }
        text
    }
}
