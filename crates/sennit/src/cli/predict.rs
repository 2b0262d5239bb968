//! `sennit predict`: sums are made here, and the lab measures the same where that is asked for.

use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::time::Duration;

use sennit_load::Echo;
use sennit_predict::{PredictArgs, PredictError, Sweep, SweepArgs, What};

use super::{lab, output};
use crate::exit::{Exit, Failure};
use crate::loadtest::made;

/// Its name on the command line.
const NAME: &str = "predict";

/// An echo that takes longer is lost: twice around by satellite, and a slow link on top.
const PATIENCE: Duration = Duration::from_secs(4);

pub(super) fn run(args: &PredictArgs, log: Option<&str>) -> Result<Exit, Failure> {
    if args.what.is_checked() {
        return lab::instead(NAME, log);
    }
    match &args.what {
        What::RttSweep(args) => sweep(args),
        what => {
            let load = what.load().expect("all but the sweep are loads");
            let predicted = load.predict().map_err(impossible)?;
            output::print(&load.print(&predicted))
        }
    }
}

/// Only the host of the caller's choice hears of it.
fn sweep(args: &SweepArgs) -> Result<Exit, Failure> {
    let host = args.address.as_ref();
    let host = host.map(|host| Ok::<_, Failure>((host, resolve(host)?)));
    let host = host.transpose()?;
    let v6 = host.is_some_and(|(_, address)| address.is_ipv6());
    let mut sweep = Sweep::new(args, v6).map_err(impossible)?;
    let page = args.report.as_deref().map(output::begin).transpose()?;
    if let Some((host, address)) = host {
        let mut echo = Echo::open(address).map_err(|error| no_socket(&error))?;
        let measured = sweep.measure(|payload| echo.fastest(payload, args.count, PATIENCE));
        measured.map_err(|error| Failure::runtime(format!("cannot reach {host}: {error}")))?;
        if !sweep.is_answered() {
            let message = format!("{host} answers no ICMP echo");
            return Err(Failure::new(Exit::Unreachable, message));
        }
    }
    if let Some(page) = page {
        output::finish(page, &made(sweep.page(args)).html())?;
    }
    output::print(&sweep.print(args))
}

fn resolve(host: &str) -> Result<IpAddr, Failure> {
    if let Ok(address) = host.parse() {
        return Ok(address);
    }
    let resolved = (host, 0).to_socket_addrs();
    let first = resolved.ok().and_then(|mut addresses| addresses.next());
    let first = first.map(|address| address.ip());
    first.ok_or_else(|| Failure::new(Exit::NotFound, format!("there is no host `{host}`")))
}

fn no_socket(error: &io::Error) -> Failure {
    let exit = match error.kind() {
        io::ErrorKind::PermissionDenied => Exit::Permission,
        _ => Exit::Runtime,
    };
    Failure::new(exit, format!("cannot open an ICMP socket: {error}"))
        .hint("run it as root, or allow ping sockets: sysctl net.ipv4.ping_group_range")
}

fn impossible(error: PredictError) -> Failure {
    Failure::usage(error)
}
