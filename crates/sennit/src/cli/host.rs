//! `sennit guard` and `sennit cleanup`: what is on this host without a daemon.

use std::path::Path;

use clap::Args;

use super::{Exit, Failure, output};
use crate::config::{self, EdgeConfig};
use crate::daemon;

#[derive(Debug, Args)]
#[command(after_help = "\
A daemon cleans up when it stops, and when it starts after it was killed; this is for a daemon that
will not start again. What a running daemon uses is left alone. What a killed edge would have sent into
its tunnel is unreachable until then (leak = \"block\").")]
pub(super) struct CleanupArgs {
    /// The daemon's TUN device
    #[arg(long, value_name = "NAME", default_value = config::DEFAULT_DEVICE)]
    device: String,
    /// Let stay unreachable what belongs into the tunnel of an edge that was killed, and let the
    /// addresses be translated that a hub translated: connections go on when it is back. The
    /// kernel's switches stay as well
    #[arg(long)]
    keep_block: bool,
}

pub(super) fn guard(config: &EdgeConfig) -> Result<Exit, Failure> {
    let blocked = daemon::edge::guard(config)?;
    let blocked: Vec<String> = blocked.iter().map(ToString::to_string).collect();
    if blocked.is_empty() {
        output::say!(
            "Nothing is made unreachable: the config has no `routes`, or `leak = \"allow\"`."
        );
    } else {
        let (device, blocked) = (&config.device, blocked.join(" "));
        output::say!("Unreachable until the edge of {device} is up: {blocked}");
    }
    Ok(Exit::Ok)
}

pub(super) fn cleanup(args: &CleanupArgs) -> Result<Exit, Failure> {
    let device = args.device.parse()?;
    let directory = Path::new(config::RUN_DIRECTORY);
    if args.keep_block {
        sennit_linux::cleanup_but_block(&device, directory)?;
        daemon::edge::restore_dns(&device);
        output::say!(
            "Nothing of {device} is left on this host, but what it had made unreachable or translated, and switches of the kernel."
        );
        return Ok(Exit::Ok);
    }
    sennit_linux::cleanup(&device, directory)?;
    daemon::edge::restore_dns(&device);
    output::say!("Nothing of {device} is left on this host.");
    Ok(Exit::Ok)
}
