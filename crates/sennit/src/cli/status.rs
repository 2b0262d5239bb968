//! `sennit status`.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::{Exit, Failure, WhyArgs, output, values};
use crate::config::{DEFAULT_EDGE_CONTROL, DEFAULT_HUB_CONTROL};
use crate::control::{Client, ClientError, Request};
use crate::described::DescribedPacket;
use crate::flow::FlowName;
use crate::status::{self, State, Status};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_WAIT: Duration = Duration::from_secs(30);
/// Between two looks at a daemon that is not there yet; short against what a person notices.
const POLL: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit status
  sennit status --json | jq .tunnels
  sennit status --wait usable --timeout 30 # for scripts; exit code 8 when it takes longer
  sennit top                         # the same as it changes; --once prints one look")]
pub(super) struct StatusArgs {
    /// Control socket of the daemon [default: the edge's, else the hub's, in /run/sennit]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Print JSON (sennit.status/1)
    #[arg(long)]
    json: bool,
    /// Print the JSON Schema of what --json prints, and ask nobody
    #[arg(long, conflicts_with_all = ["json", "wait"])]
    schema: bool,
    /// Wait until the daemon is in this state
    #[arg(long, value_name = "STATE")]
    wait: Option<Awaited>,
    /// Seconds to wait for an answer, or for the state [default: 5, with --wait 30]
    #[arg(long, value_name = "S", value_parser = values::seconds)]
    timeout: Option<Duration>,
}

/// What `--wait` can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Awaited {
    /// All that is configured works
    Up,
    /// The tunnel carries packets, also while a link or a class is missing
    Usable,
}

impl Awaited {
    fn is_met(self, state: State) -> bool {
        match self {
            Self::Up => state == State::Up,
            Self::Usable => state.is_usable(),
        }
    }
}

pub(super) fn run(args: &StatusArgs) -> Result<Exit, Failure> {
    if args.schema {
        return output::print(&format!("{:#}\n", status::json_schema()));
    }
    let control = || args.control.clone().map_or_else(find_control, Ok);
    let document = match args.wait {
        Some(awaited) => wait_for(awaited, control, args.timeout.unwrap_or(DEFAULT_WAIT)),
        None => ask(&control()?, args.timeout.unwrap_or(DEFAULT_TIMEOUT)).map_err(Failure::from),
    };
    match document {
        Ok(document) => print(args, &document),
        Err(failure) => Err(failure),
    }
}

/// `sennit why`.
pub(super) fn why(args: &WhyArgs) -> Result<Exit, Failure> {
    let control = args.control.clone().map_or_else(find_control, Ok)?;
    if let Some(packet) = &args.packet {
        return why_packet(args, &control, packet);
    }
    let what = args.what.join(" ");
    let flow: Option<FlowName> = what.parse().ok();
    let request = match &flow {
        Some(flow) => Request::Flow { flow: flow.clone() },
        None => Request::Status,
    };
    let document = Client::connect(&control, DEFAULT_TIMEOUT)?.request(&request)?;
    let status = read(&document)?;
    let link = Some(what.as_str()).filter(|it| !it.is_empty());
    let reasons = status::reasons(&status, link);
    // A link is what it is called, even if that reads like a flow.
    if args.flows || (flow.is_some() && reasons.is_empty()) {
        return why_flows(args, &status, flow.as_ref());
    }
    if reasons.is_empty() && !what.is_empty() {
        let message = format!("no tunnel has a path on link `{what}`, and it is no flow either");
        return Err(Failure::new(Exit::NotFound, message).hint(
            "`sennit status` lists the links, `sennit why --flows` the busiest flows; a flow is \
             named like 10.9.0.2:5201",
        ));
    }
    if args.json {
        return output::print_document(&json!({ "schema": "sennit.why/1", "paths": reasons }));
    }
    let shared = status::render_shared(&status, link);
    output::print(&(status::render_reasons(&reasons) + &shared))
}

fn why_packet(args: &WhyArgs, control: &Path, packet: &DescribedPacket) -> Result<Exit, Failure> {
    let packet = packet.clone();
    let request = Request::Packet { packet };
    let document = Client::connect(control, DEFAULT_TIMEOUT)?.request(&request)?;
    let reason: status::PacketReason = serde_json::from_value(document).map_err(|error| {
        Failure::runtime(format!("the daemon's answer makes no sense: {error}"))
    })?;
    if args.json {
        return output::print_document(&json!({ "schema": "sennit.why/1", "packet": reason }));
    }
    output::print(&format!("{}\n", reason.why))
}

fn why_flows(args: &WhyArgs, status: &Status, flow: Option<&FlowName>) -> Result<Exit, Failure> {
    let reasons = status::flow_reasons(status);
    if let Some(flow) = flow.filter(|_| reasons.is_empty()) {
        let message = format!("nothing of flow `{flow}` was sent from here within a minute");
        return Err(Failure::new(Exit::NotFound, message)
            .hint("`sennit why --flows` lists the busiest flows, `sennit status` the links"));
    }
    if args.json {
        return output::print_document(&json!({ "schema": "sennit.why/1", "flows": reasons }));
    }
    output::print(&match flow {
        Some(_) => status::render_flows(status),
        None => status::render_busiest(status),
    })
}

/// The daemon's document as it came, so that `--json` loses nothing that this version does not
/// know.
fn ask(control: &Path, patience: Duration) -> Result<Value, ClientError> {
    Client::connect(control, patience)?.request(&Request::Status)
}

fn print(args: &StatusArgs, document: &Value) -> Result<Exit, Failure> {
    if args.json {
        return output::print_document(document);
    }
    let (color, width) = (output::wants_color(), output::width());
    output::print(&status::render(&read(document)?, color, width))
}

pub(super) fn read(document: &Value) -> Result<Status, Failure> {
    let schema = document
        .get("schema")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if schema != status::SCHEMA {
        return Err(Failure::runtime(format!(
            "the daemon speaks `{schema}`, not `{}`",
            status::SCHEMA
        ))
        .hint("restart the daemon after an update, so that both are of one version"));
    }
    serde_json::from_value(document.clone())
        .map_err(|error| Failure::runtime(format!("the daemon's status makes no sense: {error}")))
}

/// Asks until the state is the awaited one; a daemon that is still starting is waited for as well,
/// and so is its socket.
pub(super) fn wait_for(
    awaited: Awaited,
    control: impl Fn() -> Result<PathBuf, Failure>,
    timeout: Duration,
) -> Result<Value, Failure> {
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let failure = match control() {
            Ok(control) => match look(awaited, &control, left.max(POLL), timeout)? {
                Look::Met(document) => return Ok(document),
                Look::NotYet(failure) => failure,
            },
            Err(nobody) => nobody,
        };
        if failure.exit() == Exit::Permission {
            return Err(failure);
        }
        if Instant::now() >= deadline {
            let is_told = failure.exit() == Exit::Timeout;
            return Err(if is_told {
                failure
            } else {
                failure.still_after(timeout)
            });
        }
        thread::sleep(POLL.min(left));
    }
}

/// What one look at a daemon has found.
enum Look {
    Met(Value),
    /// What to say if there is no time for another look.
    NotYet(Failure),
}

fn look(
    awaited: Awaited,
    control: &Path,
    patience: Duration,
    timeout: Duration,
) -> Result<Look, Failure> {
    match ask(control, patience) {
        Ok(document) => {
            let status = read(&document)?;
            if awaited.is_met(status.state) {
                return Ok(Look::Met(document));
            }
            Ok(Look::NotYet(timed_out(&status, timeout)))
        }
        Err(
            error @ (ClientError::Unreachable { .. }
            | ClientError::Ended { .. }
            | ClientError::Silent { .. }),
        ) => Ok(Look::NotYet(error.into())),
        Err(error) => Err(error.into()),
    }
}

fn timed_out(status: &Status, timeout: Duration) -> Failure {
    let state = match status.state {
        State::Up => "up",
        State::Connecting => "connecting",
        State::Degraded => "degraded",
        State::Down => "down",
    };
    let seconds = timeout.as_secs_f64();
    let failure = Failure::new(
        Exit::Timeout,
        format!("after {seconds} s the daemon is still {state}"),
    );
    let reasons = status.reason.iter().cloned();
    let links = status
        .links
        .iter()
        .filter_map(|link| Some(format!("link {}: {}", link.name, link.reason.as_ref()?)));
    let tunnels = status.tunnels.iter().filter_map(|tunnel| {
        Some(format!(
            "class {}: {}",
            tunnel.class,
            tunnel.reason.as_ref()?
        ))
    });
    let all: Vec<String> = reasons.chain(links).chain(tunnels).collect();
    if all.is_empty() {
        failure
    } else {
        failure.hint(all.join("\n  "))
    }
}

/// The edge's socket, or else the hub's.
pub(super) fn find_control() -> Result<PathBuf, Failure> {
    let known = [DEFAULT_EDGE_CONTROL, DEFAULT_HUB_CONTROL].map(Path::new);
    known
        .into_iter()
        .find(|path| path.exists())
        .map(Path::to_path_buf)
        .ok_or_else(|| {
            Failure::new(
                Exit::Unreachable,
                format!(
                    "no daemon runs: {} and {} are not there",
                    known[0].display(),
                    known[1].display()
                ),
            )
            .hint("start one (sennit edge, sennit hub), or say where its socket is: --control PATH")
        })
}
