//! `sennit links drill`: a link is lost on purpose while pings pass.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use sennit_linux::echo::Echo;

use super::{DrillArgs, order};
use crate::cli::test::stop_on_signals;
use crate::cli::{Exit, Failure, output};
use crate::control::Client;
use crate::drill::{self, Course, Drill, DrillError};

const OTHER_PROBE: &str = "name something behind the tunnel that answers pings: --probe ADDRESS";

pub(super) fn run(args: &DrillArgs, json: bool, client: &mut Client) -> Result<Exit, Failure> {
    let stop = stop_on_signals()?;
    let found = measure(args, client, &stop, &mut |line| {
        if !json {
            output::say!("{line}");
        }
    })?;
    if json {
        output::print_json(&found)?;
    } else {
        output::print(&text(&found))?;
    }
    Ok(if found.interrupted {
        Exit::Interrupted
    } else if found.survived {
        Exit::Ok
    } else {
        Exit::Findings
    })
}

/// Loses the link while pings pass, restores it, and says what came of that.
pub(super) fn measure(
    args: &DrillArgs,
    client: &mut Client,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&str),
) -> Result<Drill, Failure> {
    let course = Course {
        link: args.link.clone(),
        span: args.span,
        probe: args.probe,
        open: |probe| Echo::open(probe, None),
    };
    let link = &args.link;
    let mut begun = |probe: IpAddr| {
        tell(&format!(
            "Pinging {probe} through the tunnel; `{link}` is lost now."
        ));
    };
    let mut order = |wanted| order(client, link, wanted);
    let stop = || stop.load(Ordering::Relaxed);
    drill::measure(&course, &mut order, &stop, &mut begun).map_err(failure)
}

fn failure(error: DrillError<Failure>) -> Failure {
    let said = error.to_string();
    match error {
        DrillError::Edge(failure) => failure,
        DrillError::LinkDown { .. } => {
            Failure::runtime(said).hint("there is nothing to lose; `sennit status` says more")
        }
        DrillError::NoProbe | DrillError::NoAnswer(_) => Failure::runtime(said).hint(OTHER_PROBE),
        DrillError::Ping { source, .. } => Failure::io(&source, said),
        DrillError::Interrupted => Failure::new(Exit::Interrupted, said),
    }
}

pub(super) fn text(found: &Drill) -> String {
    let ms = |seconds: f64| format!("{:.0} ms", seconds * 1e3);
    let known = |rtt: Option<f64>| rtt.map_or("none".into(), |rtt| format!("{:.1} ms", rtt * 1e3));
    let verdict = if found.survived {
        format!("nothing came through for {}", ms(found.gap_seconds))
    } else {
        "nothing came through until it was restored".into()
    };
    let early = match found.interrupted {
        true => "interrupted: the figures are of the time until then\n",
        false => "",
    };
    format!(
        "{} was lost for {:.1} s: {verdict} (before: {})\n\
         {} of {} pings answered; round trip {} before, {} meanwhile\n\
         {early}The link is restored.\n",
        found.link,
        found.cut_seconds,
        ms(found.gap_before_seconds),
        found.answered_pings,
        found.sent_pings,
        known(found.rtt_before_seconds),
        known(found.rtt_meanwhile_seconds),
    )
}
