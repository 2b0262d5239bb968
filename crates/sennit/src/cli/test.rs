//! `sennit test`.

pub(super) mod read;
mod rounds;
mod told;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use sennit_core::Congestion;
use sennit_fec::Fec;
use sennit_packet::Bitrate;
use signal_hook::consts::signal::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::output;
use super::values;
use crate::config;
use crate::exit::{Exit, Failure};
use crate::loadtest::client::{self, TestError};
use crate::loadtest::gate::Gate;
use crate::loadtest::profile::Profile;
use crate::loadtest::report::Report;
use crate::loadtest::requests::{self, Requests};
use crate::loadtest::stack::StackName;
use crate::loadtest::{Pin, Plan, server};
pub(super) use told::Told;

#[derive(Debug, Args)]
pub(super) struct TestArgs {
    #[command(subcommand)]
    command: TestCommand,
}

#[derive(Debug, Subcommand)]
enum TestCommand {
    /// Wait for clients and do what they plan, until Ctrl-C
    Server(ServerArgs),
    /// Measure what the network to a server carries
    Client(Box<ClientArgs>),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit test server
  sennit test server --listen 203.0.113.10:4774 --token secret --max-duration 30

The server needs no files: it makes itself a certificate, and prints the fingerprint that a client's
--pin takes. It sends load to nobody but clients that have completed a handshake with it.")]
struct ServerArgs {
    /// Where to listen [default: port 4774 of all addresses]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// What clients must say with --token [default: anybody may test]
    #[arg(long, value_name = "TEXT", value_parser = values::secret)]
    token: Option<String>,
    /// Serve clients of other stacks too (ALPN `perf`, draft-banks-quic-performance)
    #[arg(long, conflicts_with = "token")]
    perf: bool,
    /// The QUIC to serve with: that of the tunnel, or quinn's as a second opinion
    #[arg(long, value_name = "sennit|quinn", default_value_t = StackName::Sennit)]
    stack: StackName,
    /// The longest test that a client may plan, in seconds
    #[arg(long, value_name = "S", default_value = "300", value_parser = values::seconds)]
    max_duration: Duration,
    /// The most payload of one client in each direction, like 500kbit or 50Mbit: clients must
    /// say --rate then, and cannot send --requests [default: all there is room for]
    #[arg(long, value_name = "RATE", conflicts_with = "perf", value_parser = config::rate)]
    max_rate: Option<Bitrate>,
    /// Clients at the same time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1000))]
    max_clients: u16,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  sennit test client 203.0.113.10
  sennit test client test.example.org --direction both --streams 4 --duration 20
  sennit test client '[2001:db8::1]:4774' --message 1000 --rate 5Mbit --json
  sennit test client 203.0.113.10 --requests --requests-per-second 200 --connections 10
  sennit test client 203.0.113.10 --requests --direction down --streams 4
  sennit test client 203.0.113.10 --responsiveness --connections 8 --warmup 4
  sennit test client 203.0.113.10:4433 --perf --direction both
  sennit test client 203.0.113.10 --stack quinn --profile LTE
  sennit test client 203.0.113.10 --repeat 9 --compare cc=cubic,bbr3 --profile mobile
  sennit test client 203.0.113.10 --message 1000 --rate 8Mbit --fec auto --profile mobile
  sennit test client 203.0.113.10 --profile LTE --gate 'p95_rtt < 80ms' --gate 'loss < 1%'

Goodput is payload at its receiver. Round trips are those of a probe each 20 ms on a connection of its
own, by the times at which packets left and arrived. A test connection is encrypted but not
authenticated, unless --pin names the server's certificate.
Exit codes: 4 no server answers, 6 a gate failed, 130 interrupted (what was measured until then is
printed).")]
struct ClientArgs {
    /// The server: an address or a name, with a port if it is not 4774
    #[arg(value_name = "ADDRESS")]
    server: String,
    /// How long load is counted, in seconds [default: 8, or 300 at most with --bytes]
    #[arg(long, value_name = "S", value_parser = values::seconds)]
    duration: Option<Duration>,
    /// Load is sent for so many seconds before it is counted
    #[arg(long, value_name = "S", default_value = "0", value_parser = values::seconds)]
    warmup: Duration,
    /// Connections begin one after the other over so many seconds
    #[arg(long, value_name = "S", default_value = "0", value_parser = values::seconds)]
    ramp: Duration,
    /// End when so many payload bytes have arrived in each direction, like 500k, 20M or 1G
    #[arg(long, value_name = "BYTES", conflicts_with = "message", value_parser = read::bytes)]
    bytes: Option<u64>,
    /// Which way the load goes [default: down; with --requests there is none unless this is said]
    #[arg(long, value_enum)]
    direction: Option<Ways>,
    /// Connections of the load
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    connections: u16,
    /// Streams of each connection
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    streams: u16,
    /// Send messages of so many bytes, once or never (DATAGRAM frames), instead of streams
    #[arg(long, value_name = "BYTES", conflicts_with = "streams", value_parser = read::message_bytes())]
    message: Option<u16>,
    /// Protect messages by repairs, as a class does: off, auto, xor:10+1, rs:10+2 or rlc:1/8
    #[arg(long, value_name = "CODE", default_value = "off", value_parser = read::fec)]
    fec: Fec,
    /// Payload of all connections, like 500k, 5Mbit or 1.5G bit/s [default: all there is room for]
    #[arg(long, value_name = "RATE", value_parser = read::rate)]
    rate: Option<f64>,
    /// Congestion control of both ends: auto, cubic, bbr, bbr3 or follow
    #[arg(long = "cc", value_name = "WORD", default_value = "auto", value_parser = read::congestion)]
    congestion: Congestion,
    /// Send requests, each on a stream of its own, and time their answers: instead of load, or
    /// beside it if --direction is said
    #[arg(long, conflicts_with_all = ["bytes", "handshakes", "responsiveness"])]
    requests: bool,
    /// Requests a second of all connections together [default: the next one follows an answer]
    #[arg(long, value_name = "N", requires = "requests", value_parser = read::per_second)]
    requests_per_second: Option<f64>,
    /// Requests of each connection that wait for their answer at the same time
    #[arg(long, value_name = "N", requires = "requests", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// Bytes of a request
    #[arg(long, value_name = "BYTES", requires = "requests", default_value_t = 100, value_parser = clap::value_parser!(u32).range(4..=1_048_576))]
    request_bytes: u32,
    /// Bytes of an answer
    #[arg(long, value_name = "BYTES", requires = "requests", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(0..=i64::from(requests::LONGEST)))]
    answer_bytes: u32,
    /// Shake hands instead of load, so many at the same time, over and over
    #[arg(long, value_name = "N", conflicts_with_all = ["message", "bytes", "rate", "responsiveness"], value_parser = clap::value_parser!(u16).range(1..=500))]
    handshakes: Option<u16>,
    /// Measure round trips a minute beside the load (draft-ietf-ippm-responsiveness)
    #[arg(long, conflicts_with_all = ["message", "bytes"])]
    responsiveness: bool,
    /// The server is of another stack: speak the protocol that those have for it (ALPN `perf`)
    #[arg(long, conflicts_with_all = ["message", "rate", "requests", "handshakes", "responsiveness", "token", "ramp", "compare"])]
    perf: bool,
    /// The QUIC to test with: that of the tunnel, or quinn's as a second opinion (cubic or bbr)
    #[arg(long, value_name = "sennit|quinn", default_value_t = StackName::Sennit)]
    stack: StackName,
    /// Run the test so many times
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    repeat: Option<u16>,
    /// Run each of several values in every round, in random order: cc=cubic,bbr3 or profile=LTE,GEO
    #[arg(long, value_name = "KEY=VALUE,...", requires = "repeat")]
    compare: Option<rounds::Compared>,
    /// Emulate a network under the socket: a name, a link like 30:5/20±3/0.5%, or FILE[,FILE][@MS]
    #[arg(long, value_name = "NETWORK")]
    profile: Option<Profile>,
    /// Decides what happens by chance on an emulated network, and the order of --compare: with the
    /// same number the same, with another one anew
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How long the server may take to answer, in seconds
    #[arg(long, value_name = "S", default_value = "5", value_parser = values::seconds)]
    timeout: Duration,
    /// SHA-256 of the server's certificate, which it prints when it starts
    #[arg(long, value_name = "HEX")]
    pin: Option<Pin>,
    /// What the server wants to hear
    #[arg(long, value_name = "TEXT", value_parser = values::secret)]
    token: Option<String>,
    /// What must be found, like 'p95_rtt < 80ms', or the exit code is 6; may be said many times
    #[arg(long = "gate", value_name = "BOUND")]
    gates: Vec<Gate>,
    /// Write each second to a file as a line of JSON (sennit.test.second/1)
    #[arg(long, value_name = "FILE")]
    ndjson: Option<PathBuf>,
    /// Write each second to a file as a line of a table
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Serve /metrics of the last second while the test runs
    #[arg(long, value_name = "ADDRESS:PORT")]
    prometheus: Option<SocketAddr>,
    /// Write a page with plots (HTML, which needs nothing else)
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print JSON (sennit.test/1)
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Ways {
    /// From the client to the server
    Up,
    /// From the server to the client
    Down,
    /// Both at the same time
    Both,
}

impl ClientArgs {
    /// Which way load goes, if any does.
    fn ways(&self) -> Option<Ways> {
        match self.direction {
            _ if self.handshakes.is_some() => None,
            None if self.requests => None,
            asked => Some(asked.unwrap_or(Ways::Down)),
        }
    }

    /// What is said of a load must not be overlooked because there is none.
    fn check(&self) -> Result<(), Failure> {
        let of_load = [
            ("--message", self.message.is_some()),
            ("--rate", self.rate.is_some()),
        ];
        let said = of_load.iter().find(|(_, is_said)| *is_said);
        match said.filter(|_| self.requests && self.ways().is_none()) {
            None => Ok(()),
            Some((option, _)) => Err(Failure::usage(format!(
                "{option} is of a load, and with --requests there is none"
            ))
            .hint("say which way load goes beside the requests, as in `--direction down`")),
        }
    }
}

pub(super) fn run(args: &TestArgs) -> Result<Exit, Failure> {
    match &args.command {
        TestCommand::Server(args) => serve(args),
        TestCommand::Client(args) => test(args),
    }
}

fn serve(args: &ServerArgs) -> Result<Exit, Failure> {
    let stop = stop_on_signals()?;
    let mut server = server::Server::bind(server::Options {
        listen: args.listen,
        token: args.token.clone(),
        most_seconds: args.max_duration,
        most_rate: args.max_rate,
        most_clients: args.max_clients.into(),
        perf: args.perf,
        stack: args.stack,
    })
    .map_err(Failure::runtime)?;
    let addresses: Vec<_> = server.addresses().iter().map(ToString::to_string).collect();
    output::say!("Listening on {} (UDP).", addresses.join(" and "));
    output::say!("Certificate: {}", server.fingerprint());
    server.run(&stop).map_err(Failure::runtime)?;
    Ok(Exit::Ok)
}

/// With `--bytes` a test ends earlier.
const LONGEST_FOR_BYTES: Duration = Duration::from_secs(300);
const USUAL: Duration = Duration::from_secs(8);
/// How the connections of a load are asked how responsive they are.
const PROBES_OF_LOAD: Requests = Requests {
    request_bytes: requests::HEAD as u32,
    answer_bytes: 1,
    concurrency: 32,
    per_second: Some(10.0),
};

fn plan(args: &ClientArgs) -> Result<Plan, Failure> {
    let usual = args.bytes.map_or(USUAL, |_| LONGEST_FOR_BYTES);
    let duration = args.duration.unwrap_or(usual);
    if duration.is_zero() {
        return Err(Failure::usage(
            "--duration: a test of no time measures nothing",
        ));
    }
    if !args.stack.has(args.congestion) {
        let (stack, word) = (args.stack, args.congestion);
        return Err(Failure::usage(format!(
            "--cc: {stack} has no congestion control `{word}`: write cubic or bbr"
        )));
    }
    let ways = args.ways();
    let loads = ways.is_some();
    let streams = loads && args.message.is_none();
    let asked = Requests {
        request_bytes: args.request_bytes,
        answer_bytes: args.answer_bytes,
        concurrency: args.concurrency,
        per_second: args.requests_per_second,
    };
    let plan = Plan {
        token: args.token.clone(),
        up: matches!(ways, Some(Ways::Up | Ways::Both)),
        down: matches!(ways, Some(Ways::Down | Ways::Both)),
        connections: args.connections,
        streams: if streams { args.streams } else { 0 },
        congestion: args.congestion.to_string(),
        seconds: duration.as_secs_f64(),
        warmup_seconds: args.warmup.as_secs_f64(),
        ramp_seconds: args.ramp.as_secs_f64(),
        bytes: args.bytes,
        message_bytes: args.message,
        fec: code(args)?,
        // Nothing else has a rate, also where --compare goes round what clap refuses.
        rate_bits_per_second: args.rate.filter(|_| loads),
        requests: match args.responsiveness {
            true => Some(PROBES_OF_LOAD),
            false => args.requests.then_some(asked),
        },
    };
    if plan.has_too_many_messages() {
        return Err(Failure::usage(format!(
            "--rate: that is more than {} messages of {} bytes a second",
            Plan::MOST_MESSAGES,
            args.message.unwrap_or_default()
        )));
    }
    Ok(plan)
}

/// The code by which messages are protected, or `auto`.
fn code(args: &ClientArgs) -> Result<Option<String>, Failure> {
    let sends = matches!(args.ways(), Some(Ways::Up | Ways::Both));
    match args.fec {
        Fec::Off => Ok(None),
        Fec::Fixed(_) | Fec::Auto if args.message.is_none() => {
            let failure = Failure::usage("--fec: only messages are protected");
            Err(failure.hint("say how long they are, as in `--message 1000 --fec rs:10+2`"))
        }
        Fec::Auto if sends && !args.stack.tells_losses() => Err(Failure::usage(format!(
            "--fec: {} does not tell what it loses, by which `auto` chooses: name a code",
            args.stack
        ))),
        fec @ (Fec::Fixed(_) | Fec::Auto) => Ok(Some(fec.to_string())),
    }
}

fn options(args: &ClientArgs) -> Result<client::Options, Failure> {
    Ok(client::Options {
        server: read::resolve(&args.server)?,
        plan: plan(args)?,
        patience: args.timeout,
        pin: args.pin,
        profile: args.profile.clone(),
        seed: args.seed,
        handshakes: args.handshakes,
        responsiveness: args.responsiveness,
        perf: args.perf,
        stack: args.stack,
    })
}

fn test(args: &ClientArgs) -> Result<Exit, Failure> {
    args.check()?;
    let (ndjson, csv) = (args.ndjson.as_deref(), args.csv.as_deref());
    let mut told = Told::new(ndjson, csv, args.prometheus)?;
    let stop = stop_on_signals()?;
    if let Some(profile) = &args.profile {
        told.say(&format!(
            "Checking that this machine can emulate {} ...",
            profile.name
        ));
    }
    let page = args.report.as_deref().map(output::begin).transpose()?;
    if let Some(count) = args.repeat {
        return rounds::run(args, count, &stop, &mut told, page);
    }
    let mut report = client::run(&options(args)?, &stop, &mut |second| told.tell(second))
        .map_err(|error| failure(&error))?;
    report.gates = args.gates.iter().map(|gate| gate.check(&report)).collect();
    let printed = output::print_measured(&report, args.json);
    // What has no room in one place may have it in another.
    let written = page.map_or(Ok(()), |page| output::finish(page, &report.page().html()));
    printed?;
    written?;
    let broken = report.broken.clone().filter(|_| !report.interrupted);
    let broken = broken.map(Failure::runtime);
    broken
        .or_else(|| told.failure())
        .map_or(Ok(exit(&report)), Err)
}

fn exit(report: &Report) -> Exit {
    if report.interrupted {
        Exit::Interrupted
    } else if report.gates.iter().all(|gate| gate.passed) {
        Exit::Ok
    } else {
        Exit::Findings
    }
}

pub(super) fn failure(error: &TestError) -> Failure {
    let exit = match error {
        TestError::NoServer { .. } | TestError::OtherProtocol { .. } => Exit::Unreachable,
        TestError::Interrupted | TestError::Unbegun => Exit::Interrupted,
        TestError::OtherServer { .. }
        | TestError::NoFec { .. }
        | TestError::Refused { .. }
        | TestError::Broken { .. }
        | TestError::Host(_) => Exit::Runtime,
    };
    let failure = Failure::new(exit, error);
    match error {
        TestError::NoServer { .. } => failure.hint(
            "start `sennit test server` there, and see that firewalls let UDP through to its port",
        ),
        TestError::OtherProtocol { perf: true, .. } => {
            failure.hint("our own server does so with `sennit test server --perf`")
        }
        TestError::OtherProtocol { .. } => {
            failure.hint("see which port `sennit test server` prints there, and `sennit version`")
        }
        TestError::OtherServer { .. } => {
            failure.hint("a server has a new certificate each time it starts, and prints it")
        }
        TestError::NoFec { .. } => {
            failure.hint("update Sennit there, or leave --fec out: messages are not protected then")
        }
        TestError::Interrupted
        | TestError::Unbegun
        | TestError::Refused { .. }
        | TestError::Broken { .. }
        | TestError::Host(_) => failure,
    }
}

/// A flag that Ctrl-C and SIGTERM set; a second Ctrl-C ends the program at once.
pub(super) fn stop_on_signals() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let code = i32::from(Exit::Interrupted as u8);
    flag::register_conditional_shutdown(SIGINT, code, Arc::clone(&stop))
        .and_then(|_| flag::register(SIGINT, Arc::clone(&stop)))
        .and_then(|_| flag::register(SIGTERM, Arc::clone(&stop)))
        .map_err(|error| Failure::runtime(format!("cannot watch for signals: {error}")))?;
    debug_assert!(!stop.load(Ordering::Relaxed));
    Ok(stop)
}
