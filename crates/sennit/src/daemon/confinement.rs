//! What a daemon gives up once it runs, and what it says of that.

use std::{
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use sennit_linux::confine::{self, Held};

use crate::{config::RUN_DIRECTORY, status::Confinement};

/// A process is confined once.
static HELD: OnceLock<Held> = OnceLock::new();

/// What every daemon writes to beside its own.
const DEVICES: [&str; 2] = ["/dev/net/tun", "/dev/null"];

/// Confines this process, which has one thread yet, to the files of a daemon with this config file,
/// directories that it keeps things in, and control socket.
pub(super) fn begin(file: &Path, kept: &[&Path], control: &Path) {
    let run = Path::new(RUN_DIRECTORY);
    let folders = [run, control.parent().unwrap_or(run)];
    for folder in folders {
        // Who cannot make it says so when he needs it.
        let _ = DirBuilder::new().recursive(true).mode(0o755).create(folder);
    }
    let mut writable: Vec<PathBuf> = kept
        .iter()
        .copied()
        .chain(folders)
        .map(PathBuf::from)
        .collect();
    // A config that is edited is put in place of the one that its name leads to.
    let config = file.canonicalize();
    writable.extend(
        config
            .ok()
            .as_deref()
            .and_then(Path::parent)
            .map(PathBuf::from),
    );
    writable.extend(DEVICES.iter().map(PathBuf::from));
    let held = HELD.get_or_init(|| confine::process(&writable));
    if held.missing.is_empty() {
        tracing::debug!("the daemon is confined");
    } else {
        let missing = held.missing.join("; ");
        tracing::warn!(
            missing,
            "this host does not confine the daemon in every way"
        );
    }
}

/// Gives up what a packet thread does not need. What this host lacks was said at the start.
pub(super) fn confine_worker(writes: bool) {
    let mut outcomes = vec![confine::carry_packets()];
    if !writes {
        outcomes.push(confine::write_nothing());
    }
    for why in outcomes.into_iter().filter_map(Result::err) {
        tracing::debug!(why, "a packet thread is not confined in every way");
    }
}

/// For a daemon's status.
pub(super) fn status() -> Option<Confinement> {
    let held = HELD.get()?;
    Some(Confinement {
        no_new_privs: held.no_new_privs,
        capabilities: held.capabilities,
        system_calls: held.calls,
        files: held.files,
        missing: held.missing.clone(),
        network_threads: confine::who_may_change_the_network(),
    })
}
