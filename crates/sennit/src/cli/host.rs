//! `sennit guard` and `sennit cleanup`: what is on this host without a daemon.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use clap::Args;
use rustix::net::sockopt::socket_peercred;
use sennit_linux::{DeviceName, confine, nameservers, service};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;

use super::{Exit, Failure, load, output, salvage};
use crate::config::{self, EdgeConfig, Prefix, Salvaged};
use crate::daemon::{self, claim::Last};

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
    /// The daemon's config, which may have errors, in place of --device; its earlier device is
    /// cleaned up as well
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

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  sennit guard --config /etc/sennit/edge.toml")]
pub(super) struct GuardArgs {
    /// The edge's config
    #[arg(long, value_name = "FILE", default_value = config::DEFAULT_EDGE_FILE)]
    pub(super) config: PathBuf,
}

/// Runs as the helper of a daemon, whose end is standard input. It ends with the daemon, and not by
/// the signals that a terminal or a service manager sends to both.
pub(super) fn help() -> Result<Exit, Failure> {
    let socket = io::stdin().as_fd().try_clone_to_owned();
    let socket = socket.map_err(Failure::runtime)?;
    if socket_peercred(&socket).is_err() {
        return Err(Failure::usage("a daemon starts its helper itself"));
    }
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGUSR1] {
        flag::register(signal, Arc::default()).map_err(Failure::runtime)?;
    }
    confine::helper();
    service::serve(socket, config::name_no_other_places).map_err(Failure::runtime)?;
    Ok(Exit::Ok)
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
    let devices = match &args.config {
        Some(file) => devices_of(&salvage(file)?),
        None => vec![args.device.parse()?],
    };
    for device in devices {
        cleanup_device(&device, args.keep_block)?;
    }
    Ok(Exit::Ok)
}

/// The device of a config, and the one with which its daemon was started if that was another.
fn devices_of(file: &Salvaged) -> Vec<DeviceName> {
    let last = Last::read(&file.state, file.role).map(|last| last.device);
    let mut devices = vec![file.device.clone()];
    devices.extend(last.filter(|it| *it != file.device));
    devices
}

fn cleanup_device(device: &DeviceName, keep_block: bool) -> Result<(), Failure> {
    let directory = Path::new(config::RUN_DIRECTORY);
    let before = Left::of(device);
    let (cleaned, but) = match keep_block {
        true => (
            sennit_linux::cleanup_but_block(device, directory).map(drop),
            ", but what it had made unreachable or translated, and switches of the kernel",
        ),
        false => (sennit_linux::cleanup(device, directory), ""),
    };
    cleaned?;
    nameservers::restore(device);
    let gone = before.gone_by(&Left::of(device));
    if !gone.is_empty() {
        output::say!("Removed of {device}: {}.", gone.join("; "));
    }
    output::say!("Nothing of {device} is left on this host{but}.");
    Ok(())
}

/// What of a device is on this host.
struct Left {
    routes: usize,
    rules: usize,
    blocked: Vec<String>,
    names: bool,
}

impl Left {
    /// Nothing where it cannot be seen.
    fn of(device: &DeviceName) -> Self {
        let (routes, rules) = sennit_linux::count_left(device).unwrap_or_default();
        let blocked = sennit_linux::find_blocked(device).unwrap_or_default();
        Self {
            routes,
            rules,
            blocked: blocked.iter().map(ToString::to_string).collect(),
            names: nameservers::owner().as_ref() == Some(device),
        }
    }

    /// What was there and is not now, in words.
    fn gone_by(&self, now: &Self) -> Vec<String> {
        let count = |before: usize, now: usize, thing: &str| match before.saturating_sub(now) {
            0 => None,
            1 => Some(format!("1 {thing}")),
            gone => Some(format!("{gone} {thing}s")),
        };
        let blocked = self.blocked.iter().filter(|it| !now.blocked.contains(it));
        let blocked: Vec<&str> = blocked.map(String::as_str).collect();
        let freed = format!("what held back packets to {}", blocked.join(" "));
        let names = "its resolvers in /etc/resolv.conf".to_owned();
        let all = [
            count(self.routes, now.routes, "route"),
            count(self.rules, now.rules, "routing rule"),
            (!blocked.is_empty()).then_some(freed),
            (self.names && !now.names).then_some(names),
        ];
        all.into_iter().flatten().collect()
    }
}

fn cleanup_all() -> Result<Exit, Failure> {
    let mut known = configured(Path::new("/etc/sennit"));
    let owner = nameservers::owner();
    known.extend(owner.clone());
    let cleaned = sennit_linux::cleanup_all(known, Path::new(config::RUN_DIRECTORY))?;
    cleaned.devices.iter().for_each(nameservers::restore);
    // Of a daemon that ran before a reboot nothing else is here.
    let ended = owner.filter(|it| is_first_namespace() && !cleaned.running.contains(it));
    ended.iter().for_each(nameservers::restore);
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

/// Whether this is known to be the host's first network namespace. A daemon in another one may
/// share the host's files, and nobody sees from here whether it runs.
fn is_first_namespace() -> bool {
    let of = |process| fs::read_link(format!("/proc/{process}/ns/net"));
    matches!((of("1"), of("self")), (Ok(first), Ok(own)) if first == own)
}

/// The devices of the configs in a directory.
fn configured(directory: &Path) -> Vec<DeviceName> {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let files = files.map(|entry| entry.path());
    let configs = files.filter(|file| file.extension().is_some_and(|kind| kind == "toml"));
    let known = configs.filter_map(|file| salvage(&file).ok());
    known.map(|salvaged| salvaged.device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cleanup_has_removed_is_said_in_words() {
        let left = |routes, rules, blocked: &[&str], names| Left {
            routes,
            rules,
            blocked: blocked.iter().map(ToString::to_string).collect(),
            names,
        };
        let before = left(4, 2, &["0.0.0.0/0", "::/0"], true);

        let gone = before.gone_by(&left(0, 1, &[], false));

        let expected = [
            "4 routes",
            "1 routing rule",
            "what held back packets to 0.0.0.0/0 ::/0",
            "its resolvers in /etc/resolv.conf",
        ];
        assert_eq!(gone, expected);
        assert_eq!(before.gone_by(&before), [""; 0]);
    }
}
