//! `sennit speedtest`: what the tunnel carries, and what one link of it does.
//!
//! The running edge measures ([`crate::speedtest`]). This asks it to, follows it and prints what it
//! has found. If this command dies, the test ends by itself.

use std::io::{self, BufRead as _, IsTerminal as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;

use super::{Exit, Failure, output, test, values};
use crate::config::DEFAULT_EDGE_CONTROL;
use crate::control::{Client, ClientError, Request};
use crate::speedtest::{
    Measured, Progress, Speedtest, SpeedtestOrder, SpeedtestState, SpeedtestWish, Trouble, Way,
};
use crate::status;

/// A daemon answers within one turn of its loop.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often the edge is asked how far it is.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit speedtest
  sennit speedtest --link starlink --link lte --bytes 5M --metered
  sennit speedtest --json

The hub's config has to say `speedtest = true` since the hub was started, and the site must be allowed to
reach the hub. A link is measured while the others rest, so for some seconds everything goes over that link.
A link with a `cap` is used only with --metered, or after you have agreed. The running edge measures, one test
at a time.")]
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

pub(super) fn run(args: &SpeedtestArgs) -> Result<Exit, Failure> {
    let mut client = Client::connect(&args.control, PATIENCE)?;
    let wish = SpeedtestWish {
        links: args.links.clone(),
        bytes: args.bytes,
        milliseconds: u32::try_from(args.duration.as_millis()).ok(),
        metered: args.metered,
        attended: true,
    };
    let stop = test::stop_on_signals()?;
    start(&mut client, wish)?;
    let told = io::stderr().is_terminal();
    let test = follow(&mut client, &stop, &mut |line| {
        if told {
            output::say!("{line}");
        }
    })?;
    if let Some(Trouble { code, message }) = &test.problem {
        let exit = match code.as_str() {
            "no_server" => Exit::Unreachable,
            "interrupted" => Exit::Interrupted,
            _ => Exit::Runtime,
        };
        return Err(Failure::new(exit, message));
    }
    if args.json {
        output::print_json(&test)?;
    } else {
        output::print(&text(&test))?;
    }
    Ok(if test.interrupted {
        Exit::Interrupted
    } else {
        Exit::Ok
    })
}

/// Starts it, if need be after somebody has agreed that links with a cap are used.
fn start(client: &mut Client, mut wish: SpeedtestWish) -> Result<(), Failure> {
    match order(client, SpeedtestOrder::Start(wish.clone())) {
        Err(ClientError::Refused(refused)) if refused.code == "metered" => {
            agree(&refused.message)?;
            wish.metered = true;
            order(client, SpeedtestOrder::Start(wish))?;
            Ok(())
        }
        Err(ClientError::Refused(refused)) if refused.code == "not_an_edge" => {
            Err(Failure::runtime(refused).hint("a speed test is for an edge"))
        }
        started => Ok(started.map(drop)?),
    }
}

/// Has the edge start or stop a test, or tell of the last one.
pub(super) fn order(
    client: &mut Client,
    order: SpeedtestOrder,
) -> Result<serde_json::Value, ClientError> {
    client.request(&Request::Speedtest { order })
}

fn agree(question: &str) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        let failure = Failure::new(
            Exit::Usage,
            format!("{question}, and nobody is here to agree"),
        );
        return Err(failure.hint("to do it without being asked: --metered"));
    }
    output::say_text(&format!("{question}. Measure? [y/N] "));
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    if read.is_ok() && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
        return Ok(());
    }
    Err(Failure::runtime("nothing was done"))
}

/// Looks at it until it is over, and tells how far it is.
pub(super) fn follow(
    client: &mut Client,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&str),
) -> Result<Speedtest, Failure> {
    let mut before = None;
    loop {
        let wish = if stop.load(Ordering::Relaxed) {
            SpeedtestOrder::Stop
        } else {
            SpeedtestOrder::Look
        };
        let answer = order(client, wish)?;
        let test: Speedtest = serde_json::from_value(answer)
            .map_err(|error| Failure::runtime(format!("the answer makes no sense: {error}")))?;
        if test.state != SpeedtestState::Running {
            return Ok(test);
        }
        if test.now != before {
            before.clone_from(&test.now);
            test.now.iter().for_each(|now| tell(&in_words(now)));
        }
        thread::sleep(LOOK);
    }
}

fn in_words(now: &Progress) -> String {
    let (name, way) = (now.link.as_deref().unwrap_or("tunnel"), &now.way);
    match now.bits_per_second {
        Some(bits) => format!(
            "[{:5.1} s]  {name}, {way}  {}",
            now.elapsed_seconds,
            status::rate(bits / 8.0)
        ),
        None => format!("Measuring {name}, {way} ..."),
    }
}

/// What was found, as a table.
pub(super) fn text(test: &Speedtest) -> String {
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
    for Measured { link, down, up } in &test.measured {
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
    if test.interrupted {
        text += "interrupted: the last figures are of the time until then\n";
    }
    text
}
