//! The command line: what there is to say, and what each word does.
//!
//! Data goes to stdout, talk to stderr. Every command ends in one of the [`Exit`] codes.

#[cfg(test)]
mod book;
mod bugreport;
mod check;
mod doctor;
mod events;
mod grants;
mod host;
mod hub;
mod join;
mod lab;
mod links;
mod output;
mod predict;
mod reload;
mod shell;
mod show;
mod sites;
mod speedtest;
mod starter;
mod status;
mod test;
mod top;
mod usage;
mod values;
mod wait;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::config::{self, ConfigError, EdgeConfig, Loaded, Prefix, Salvaged};
use crate::described::DescribedPacket;
pub use crate::exit::{Exit, Failure};
use crate::remote::Remote;
use crate::site::SiteName;
use crate::{daemon, logging};

/// Plaits several WAN links into one encrypted tunnel
///
/// An edge (a router, vessel, van) joins its links into one tunnel to a hub (a server). Both run
/// this program.
#[derive(Debug, Parser)]
#[command(name = "sennit", version, after_help = EXAMPLES, max_term_width = 100)]
struct Cli {
    /// What to log, like warn, debug or sennit_engine=trace [default: $SENNIT_LOG, else info or,
    /// for commands that end, warn]
    #[arg(long, global = true, value_name = "LEVEL")]
    log: Option<String>,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
From nothing to a tunnel:
  hub#  sennit hub init
  hub#  sennit hub                             # or systemctl enable --now sennit-hub
  hub#  sennit invite van-07 --hub 203.0.113.10:443
  edge# sennit join TOKEN --route-all
  edge# sennit edge                            # or systemctl enable --now sennit-edge
  edge# sennit status --wait usable

Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 daemon unreachable, 5 config invalid,
6 findings (check --strict, doctor, links drill, test --gate, hub authority finish),
7 permission denied, 8 timeout, 130 interrupted";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a hub in the foreground, or make its identity
    Hub(hub::HubArgs),
    /// Run an edge in the foreground
    Edge(EdgeArgs),
    /// Make unreachable what belongs into the tunnel, from before an edge starts (at boot)
    Guard(host::GuardArgs),
    /// Let a site in: print a one-time token for `sennit join` (on the hub)
    Invite(InviteArgs),
    /// Accept an invitation: make this edge's key and first config (also works offline)
    Join(JoinArgs),
    /// List the sites that a hub knows, or say what one may announce and reach
    Sites(SitesArgs),
    /// Shut a site out: void its certificates and tokens, free its addresses
    Revoke(RevokeArgs),
    /// Show what the running daemon does
    Status(status::StatusArgs),
    /// Say why a link carries what it carries, or why a flow goes where it goes
    Why(WhyArgs),
    /// List an edge's links, pause one, or see what happens when one is lost
    Links(links::LinksArgs),
    /// Have a daemon read its config again, without a cut
    Reload(reload::ReloadArgs),
    /// Find out what is wrong with an edge's host, links and way to the hub, and what to do
    Doctor(doctor::DoctorArgs),
    /// Watch what passes, by link and class, or at a hub by site
    Top(top::TopArgs),
    /// Show what links have carried, by day or billing cycle, and what is left of their caps
    Usage(usage::UsageArgs),
    /// Gather what somebody who helps wants to know, without public addresses, names and secrets
    Bugreport(bugreport::BugreportArgs),
    /// Wait until the daemon is up, or usable, for scripts
    Wait(wait::WaitArgs),
    /// Show a config, also with what holds without being said
    Config(show::ConfigArgs),
    /// Show what happened: links and tunnels that came and went, failovers, sites
    Events(events::EventsArgs),
    /// Check a config file
    Check(check::CheckArgs),
    /// Remove what a killed daemon left on this host: routes, rules, tables, devices
    Cleanup(host::CleanupArgs),
    /// Measure tunnels over emulated links, all on this machine (as root)
    Lab(lab::LabArgs),
    /// Run scenarios in virtual time: a matrix of controllers, profiles, links and flows
    Sim(lab::LabArgs),
    /// Measure what a network carries, by QUIC between two hosts, without a tunnel or root
    Test(test::TestArgs),
    /// Measure what the tunnel carries, or one link of it, with the hub's help
    Speedtest(speedtest::SpeedtestArgs),
    /// Print the script by which a shell completes commands
    Completions(shell::CompletionsArgs),
    /// Print the manual page, or write those of all commands
    Man(shell::ManArgs),
    /// Predict what links carry, from the sizes of headers alone
    Predict(sennit_predict::PredictArgs),
    /// Change the network for the daemon that has started this
    #[command(name = daemon::helper::COMMAND, hide = true)]
    Helper,
    /// Print the version
    Version,
}

#[derive(Debug, Args)]
struct StateArg {
    /// Directory with the identity
    #[arg(long = "state", value_name = "DIR", default_value = config::DEFAULT_STATE)]
    dir: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit edge --config /etc/sennit/edge.toml
  sennit edge --user sennit          # gives root up")]
struct EdgeArgs {
    /// The edge's config
    #[arg(long, value_name = "FILE", default_value = config::DEFAULT_EDGE_FILE)]
    config: PathBuf,
    #[command(flatten)]
    user: UserArg,
}

#[derive(Debug, Args)]
struct UserArg {
    /// Whose the daemon is once it has started: a user, or UID:GID [default: who starts it]
    #[arg(long = "user", value_name = "NAME")]
    name: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit invite van-07 --hub 203.0.113.10:443 --hub '[2001:db8::1]:443'
  sennit invite van-07 --hub 203.0.113.10:443 --lan 192.168.8.0/24
  sennit invite ship-3 --hub vpn.example.org:443 --qr
  sennit invite phone --bearer       # for a CONNECT-IP client that is not Sennit")]
struct InviteArgs {
    /// Name of the site: 1 to 63 of a-z, 0-9 and `-`
    #[arg(value_name = "SITE")]
    site: SiteName,
    /// Where the site reaches this hub, by address or name; repeatable
    #[arg(long = "hub", value_name = "HOST:PORT", required_unless_present = "bearer", value_parser = values::hub)]
    hubs: Vec<Remote>,
    #[command(flatten)]
    state: StateArg,
    /// How long the token is good, like 30m, 24h, 7d [default: 24h, for a bearer token for ever]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    ttl: Option<Duration>,
    /// A prefix that the site may announce as its LAN, or parts of it; repeatable
    #[arg(long = "lan", value_name = "PREFIX", value_parser = values::prefix)]
    lans: Vec<Prefix>,
    /// Print a bearer token for a third-party CONNECT-IP client instead
    #[arg(long, conflicts_with = "hubs")]
    bearer: bool,
    /// Also show the token as a QR code, for a telephone
    #[arg(long)]
    qr: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit join sennit_AQAAAA... --link starlink=eth1 --link lte=wwan0 --route-all
  sennit join sennit_AQAAAA... --route-all --lan 192.168.8.0/24
  ssh hub sennit invite van-07 --hub 203.0.113.10:443 | sennit join -
  sennit join file:/run/token")]
struct JoinArgs {
    /// The token, or `-` for stdin, or file:PATH
    #[arg(value_name = "TOKEN")]
    token: String,
    #[command(flatten)]
    state: StateArg,
    /// Replace the identity that is there, by a token that nobody has used
    #[arg(long)]
    force: bool,
    /// A link of the first config, like starlink=eth1; repeatable [default: the interfaces with a
    /// default route]
    #[arg(long = "link", value_name = "NAME=INTERFACE")]
    links: Vec<starter::StarterLink>,
    /// Interfaces of links may come later, as that of a modem which is not plugged in
    #[arg(long)]
    absent: bool,
    /// Have everything go into the tunnel, by the first config
    #[arg(long)]
    route_all: bool,
    /// A prefix behind this edge, by the first config; repeatable. The hub has to grant it: sennit
    /// invite --lan
    #[arg(long = "lan", value_name = "PREFIX", value_parser = values::prefix)]
    lans: Vec<Prefix>,
    /// Where to write the first config [default: /etc/sennit/edge.toml, or edge.toml in another
    /// state directory than the usual one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Do not ask the hub whether the token is good; the first connection does
    #[arg(long)]
    offline: bool,
}

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  sennit sites
  sennit sites allow van-07 192.168.8.0/24
  sennit sites deny van-07 192.168.8.0/24
  sennit sites reach van-07 internet 10.9.0.0/16
  sennit sites forget van-06         # once it is revoked, or if it never joined

A running hub does what these say within a second."
)]
struct SitesArgs {
    #[command(subcommand)]
    command: Option<SitesCommand>,
    #[command(flatten)]
    state: StateArg,
    /// Control socket of the hub, for who is online
    #[arg(long, value_name = "PATH", default_value = config::DEFAULT_HUB_CONTROL)]
    control: PathBuf,
    /// Print JSON (sennit.sites/1)
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum SitesCommand {
    /// Let a site announce prefixes as its LAN; without a prefix, list what it may
    Allow(GrantArgs),
    /// Take prefixes back, and what was allowed inside them
    Deny(DenyArgs),
    /// Say what a site may reach; without a place, tell it
    Reach(ReachArgs),
    /// Remove a site that is revoked or has never joined; what it had is refused as unknown
    Forget(grants::ForgetArgs),
}

#[derive(Debug, Args)]
struct GrantArgs {
    /// Name of the site
    #[arg(value_name = "SITE")]
    site: SiteName,
    /// Like 192.168.8.0/24
    #[arg(value_name = "PREFIX", value_parser = values::prefix)]
    prefixes: Vec<Prefix>,
    #[command(flatten)]
    state: StateArg,
}

#[derive(Debug, Args)]
struct DenyArgs {
    /// Name of the site
    #[arg(value_name = "SITE")]
    site: SiteName,
    /// Like 192.168.8.0/24
    #[arg(value_name = "PREFIX", value_parser = values::prefix, required = true)]
    prefixes: Vec<Prefix>,
    #[command(flatten)]
    state: StateArg,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Places: everything, internet (public addresses, but for those behind sites), sites (the others and
what is behind them), hub (its own services), nothing, and prefixes like 10.9.0.0/16.")]
struct ReachArgs {
    /// Name of the site
    #[arg(value_name = "SITE")]
    site: SiteName,
    /// Where it may go; nowhere else then
    #[arg(value_name = "PLACE", conflicts_with = "default")]
    places: Vec<String>,
    /// What the hub's config says of all sites
    #[arg(long)]
    default: bool,
    #[command(flatten)]
    state: StateArg,
}

#[derive(Debug, Args)]
struct RevokeArgs {
    /// Name of the site
    #[arg(value_name = "SITE")]
    site: SiteName,
    #[command(flatten)]
    state: StateArg,
    /// Control socket of the hub, so that the site's tunnels end at once
    #[arg(long, value_name = "PATH", default_value = config::DEFAULT_HUB_CONTROL)]
    control: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit why                         # every link
  sennit why lte-b                   # one link
  sennit why --flows                 # which flows there are
  sennit why 10.9.0.2:5201           # one flow, or all with this end
  sennit why tcp 10.0.0.2:40000 to 10.9.0.2:5201
  sennit why --packet \"udp 192.168.8.7 10.9.0.2 5060\"
  sennit why --packet \"udp 192.168.8.7 10.9.0.2 5060 dscp ef mark 0x10 in eth1.20\"

A flow is named by addresses, ports (:443), a protocol (udp), or several of these. Each end of the
tunnel tells of what it sends, so ask the hub about downloads. At a hub --packet is about flows that
begin behind it.")]
struct WhyArgs {
    /// Only this link, or this flow
    #[arg(value_name = "LINK|FLOW")]
    what: Vec<String>,
    /// List the busiest flows
    #[arg(long, conflicts_with = "what")]
    flows: bool,
    /// Say which class a packet would take, and by which rule: protocol, source, destination, port,
    /// then sport, dscp, size, mark, in and uid as in `match`
    #[arg(long, value_name = "PACKET", conflicts_with_all = ["what", "flows"])]
    packet: Option<DescribedPacket>,
    /// Control socket of the daemon [default: the edge's, else the hub's, in /run/sennit]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Print JSON (sennit.why/1)
    #[arg(long)]
    json: bool,
}

/// Runs the program with `args`, the first of which is its own name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let json = asks_for_json(&args);
    let parsed = Cli::command()
        .try_get_matches_from(args)
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) if json && error.use_stderr() => {
            let failure =
                Failure::usage(error.to_string().trim_start_matches("error: ").trim_end());
            output::say!("{}", failure.json());
            return failure.exit().into();
        }
        Err(error) => {
            // `--help` and `--version` are such errors too, and go to stdout with code 0.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match run(cli) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            match json {
                true => output::say!("{}", failure.json()),
                false => output::say!("{failure}"),
            }
            failure.exit().into()
        }
    }
}

/// Whether a program reads what is printed, which is known also where the rest makes no sense.
fn asks_for_json(args: &[OsString]) -> bool {
    let options = args.iter().take_while(|arg| *arg != "--");
    options.into_iter().any(|arg| arg == "--json")
}

fn run(cli: Cli) -> Result<Exit, Failure> {
    logging::start(cli.log.as_deref(), cli.command.default_log()).map_err(Failure::usage)?;
    match cli.command {
        Command::Hub(args) => hub::run(args),
        Command::Edge(EdgeArgs { config: file, user }) => {
            let config = load(EdgeConfig::load(&file))?;
            daemon::edge::run(&config, &file, user.name.as_deref()).map(|()| Exit::Ok)
        }
        Command::Guard(args) => host::guard(&args.config),
        Command::Invite(args) => sites::invite(&args),
        Command::Join(args) => join::join(&args),
        Command::Sites(args) => match &args.command {
            None => sites::list(&args),
            Some(SitesCommand::Allow(args)) => grants::allow(args),
            Some(SitesCommand::Deny(args)) => grants::deny(args),
            Some(SitesCommand::Reach(args)) => grants::reach(args),
            Some(SitesCommand::Forget(args)) => grants::forget(args),
        },
        Command::Revoke(args) => sites::revoke(&args),
        Command::Status(args) => status::run(&args),
        Command::Why(args) => status::why(&args),
        Command::Events(args) => events::run(&args),
        Command::Links(args) => links::run(&args),
        Command::Reload(args) => reload::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Usage(args) => usage::run(&args),
        Command::Bugreport(args) => bugreport::run(&args),
        Command::Wait(args) => wait::run(&args),
        Command::Config(args) => show::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Cleanup(args) => host::cleanup(&args),
        Command::Lab(args) => lab::run(&args, cli.log.as_deref()),
        Command::Sim(_) => lab::instead("sim", cli.log.as_deref()),
        Command::Test(args) => test::run(&args),
        Command::Speedtest(args) => speedtest::run(&args),
        Command::Completions(args) => shell::completions(&args),
        Command::Man(args) => shell::man(&args),
        Command::Predict(args) => predict::run(&args, cli.log.as_deref()),
        Command::Helper => host::help(),
        Command::Version => output::print(concat!("sennit ", env!("CARGO_PKG_VERSION"), "\n")),
    }
}

impl Command {
    fn default_log(&self) -> &'static str {
        let is_hub = matches!(self, Self::Hub(args) if args.runs());
        match is_hub || matches!(self, Self::Edge(_) | Self::Helper | Self::Lab(_)) {
            true => "info",
            false => "warn",
        }
    }
}

/// The edge's config, or else the hub's; where neither is, the edge's is missed.
fn find_config() -> PathBuf {
    let known = [config::DEFAULT_EDGE_FILE, config::DEFAULT_HUB_FILE];
    let there = known.into_iter().find(|file| Path::new(file).exists());
    there.unwrap_or(config::DEFAULT_EDGE_FILE).into()
}

/// What a config that may have errors tells of its daemon.
fn salvage(file: &Path) -> Result<Salvaged, Failure> {
    let source = config::read_file(file).map_err(|source| ConfigError::Read {
        path: file.into(),
        source,
    })?;
    Ok(config::salvage(&source))
}

/// The config, its warnings told.
fn load<C>(loaded: Result<Loaded<C>, ConfigError>) -> Result<C, Failure> {
    let Loaded { config, warnings } = loaded?;
    if !warnings.is_empty() {
        output::say!("{warnings}\n");
    }
    Ok(config)
}
