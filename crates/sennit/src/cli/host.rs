//! `sennit guard` and `sennit cleanup`: what is on this host without a daemon.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use sennit_linux::DeviceName;

use super::{Exit, Failure, load, output, salvage};
use crate::config::{self, EdgeConfig, Prefix, Salvaged};
use crate::daemon;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit cleanup
  sennit cleanup --config /etc/sennit/dock.toml
  sennit cleanup --all               # as when the program is removed

A daemon cleans up when it stops, and when it starts after it was killed; this is for a daemon that
will not start again. What a running daemon uses is left alone. What a killed edge would have sent into
its tunnel is unreachable until then (leak = \"block\").")]
pub(super) struct CleanupArgs {
    /// The daemon's TUN device
    #[arg(long, value_name = "NAME", default_value = config::DEFAULT_DEVICE)]
    device: String,
    /// The daemon's config, which may have errors, in place of --device
    #[arg(long, value_name = "FILE", conflicts_with = "device")]
    config: Option<PathBuf>,
    /// What daemons with any device have left, and guards
    #[arg(long, conflicts_with_all = ["device", "config", "keep_block"])]
    all: bool,
    /// Let stay unreachable what belongs into the tunnel of an edge that was killed, and let the
    /// addresses be translated that a hub translated: connections go on when it is back. The
    /// kernel's switches stay as well
    #[arg(long)]
    keep_block: bool,
}

/// A config with errors is no reason to let leave what belongs into the tunnel: no edge starts with
/// it.
pub(super) fn guard(file: &Path) -> Result<Exit, Failure> {
    let (device, blocked, errors) = match load(EdgeConfig::load(file)) {
        Ok(config) => (config.device.clone(), config.blocked().to_vec(), None),
        Err(failure) if failure.exit() == Exit::NotFound => return Err(failure),
        Err(failure) => {
            // What cannot be read says nothing, and everything is in doubt.
            let source = config::read_file(file).unwrap_or_default();
            let Salvaged {
                device, blocked, ..
            } = config::salvage(&source);
            (device, blocked, Some(failure))
        }
    };
    daemon::edge::guard(&device, &blocked)?;
    say_blocked(&device, &blocked);
    match errors {
        Some(failure) => Err(failure.hint(format!(
            "no edge starts with it: mend it, or let all leave by `sennit cleanup --device {device}`"
        ))),
        None => Ok(Exit::Ok),
    }
}

fn say_blocked(device: &DeviceName, blocked: &[Prefix]) {
    let blocked: Vec<String> = blocked.iter().map(ToString::to_string).collect();
    if blocked.is_empty() {
        output::say!(
            "Nothing is made unreachable: the config has no `routes`, or `leak = \"allow\"`."
        );
    } else {
        let blocked = blocked.join(" ");
        output::say!("Unreachable until the edge of {device} is up: {blocked}");
    }
}

pub(super) fn cleanup(args: &CleanupArgs) -> Result<Exit, Failure> {
    if args.all {
        return cleanup_all();
    }
    let device = match &args.config {
        Some(file) => salvage(file)?.device,
        None => args.device.parse()?,
    };
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

fn cleanup_all() -> Result<Exit, Failure> {
    let mut known = configured(Path::new("/etc/sennit"));
    known.extend(daemon::edge::whose_dns());
    let cleaned = sennit_linux::cleanup_all(known, Path::new(config::RUN_DIRECTORY))?;
    cleaned.devices.iter().for_each(daemon::edge::restore_dns);
    let running = cleaned.running.iter().map(ToString::to_string);
    let running: Vec<String> = running.collect();
    match running.is_empty() {
        true => output::say!("Nothing of Sennit is left on this host."),
        false => output::say!(
            "Nothing of Sennit is left on this host, but of what runs: {}.",
            running.join(", ")
        ),
    }
    Ok(Exit::Ok)
}

/// The devices of the configs in a directory.
fn configured(directory: &Path) -> Vec<DeviceName> {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let files = files.map(|entry| entry.path());
    let configs = files.filter(|file| file.extension().is_some_and(|kind| kind == "toml"));
    let known = configs.filter_map(|file| salvage(&file).ok());
    known.map(|salvaged| salvaged.device).collect()
}
