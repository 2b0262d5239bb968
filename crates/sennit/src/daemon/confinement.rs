//! What a daemon gives up once it runs, and what it says of that; how it becomes another user is in
//! docs/decisions/0035.

use std::{
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use rustix::process::geteuid;
use sennit_linux::{
    User,
    confine::{self, Held},
    helper, privilege,
};

use crate::{config::RUN_DIRECTORY, control::Entrance, exit::Failure, status::Confinement};

/// A process is confined once.
static HELD: OnceLock<Held> = OnceLock::new();

/// What every daemon writes to beside its own.
const DEVICES: [&str; 2] = ["/dev/net/tun", "/dev/null"];

const STAY_ROOT: &str = "or let it stay root: without --user";

/// What a daemon goes on with.
pub(super) struct Belongings<'a> {
    /// Its config.
    pub(super) file: &'a Path,
    /// Files that the config names, for the daemon to read again while it runs.
    pub(super) named: &'a [&'a Path],
    /// Directories that it keeps things in.
    pub(super) kept: &'a [&'a Path],
    pub(super) entrance: &'a Entrance,
}

/// Gives the directories that are `kept` to the user that is `wanted`, by name or number, and that
/// the daemon is to become. Without one it stays who it is.
///
/// These `files` are root's to choose: in a directory that the user has, he could have root read
/// what he likes at the next start.
pub(super) fn hand_over(
    kept: &[&Path],
    files: &[&Path],
    wanted: Option<&str>,
) -> Result<Option<User>, Failure> {
    let Some(user) = choose(wanted, kept, files)? else {
        return Ok(None);
    };
    for directory in kept {
        user.hand_over(directory, kept).map_err(|error| {
            let what = format!("cannot hand {} over to user {user}", directory.display());
            Failure::runtime(format!("{what}: {error}")).hint(STAY_ROOT)
        })?;
    }
    Ok(Some(user))
}

/// Confines this process, which has one thread yet, to the files of a daemon, and makes it the user
/// that these were handed over to.
pub(super) fn begin(own: &Belongings<'_>, user: Option<User>) -> Result<(), Failure> {
    let run = Path::new(RUN_DIRECTORY);
    let control = own.entrance.files()[0];
    let folders = [run, control.parent().unwrap_or(run)];
    for folder in folders {
        // Who cannot make it says so when he needs it.
        let _ = DirBuilder::new().recursive(true).mode(0o755).create(folder);
    }
    let removed = own.entrance.files().map(PathBuf::from);
    let named = || own.named.iter().map(PathBuf::from).collect();
    let entrust = |user| helper::entrust(user, own.file, named(), removed.into());
    let helper_has_config = user.map_or(Ok(false), entrust)?;
    let kept = own.kept.iter().copied();
    let mut writable: Vec<PathBuf> = kept.chain(folders).map(PathBuf::from).collect();
    if !helper_has_config {
        // A config that is edited is put in place of the one that its name leads to.
        let place = own.file.canonicalize().ok();
        writable.extend(place.as_deref().and_then(Path::parent).map(PathBuf::from));
    }
    writable.extend(DEVICES.iter().map(PathBuf::from));
    let held = confine::process(&writable, user)?;
    let held = HELD.get_or_init(|| held);
    let uid = geteuid().as_raw();
    if held.missing.is_empty() {
        tracing::debug!(uid, "the daemon is confined");
    } else {
        let missing = held.missing.join("; ");
        tracing::warn!(
            uid,
            missing,
            "this host does not confine the daemon in every way"
        );
    }
    Ok(())
}

/// As whom the daemon goes on, if it does not stay who it is.
fn choose(wanted: Option<&str>, kept: &[&Path], files: &[&Path]) -> Result<Option<User>, Failure> {
    let Some(name) = wanted else {
        return Ok(None);
    };
    let Some(user) = User::find(name) else {
        let make = format!("make one: useradd --system --user-group {name}");
        let none = format!("there is no user {name} on this host");
        return Err(Failure::usage(none).hint(make));
    };
    if user.uid() == geteuid().as_raw() {
        return Ok(None);
    }
    obstacle(user, kept, files).map_or(Ok(Some(user)), |why| {
        let cannot = format!("the daemon cannot become user {name}: {why}");
        Err(Failure::runtime(cannot).hint(STAY_ROOT))
    })
}

fn obstacle(user: User, kept: &[&Path], files: &[&Path]) -> Option<String> {
    if !privilege::may_change_user() {
        return Some("that takes CAP_SETUID, CAP_SETGID and CAP_CHOWN".into());
    }
    let of_kept = kept.iter().map(|it| (it, user.obstacle(it, kept)));
    let of_files = files.iter().map(|it| (it, user.obstacle_of_file(it, kept)));
    of_kept.chain(of_files).find_map(|(path, obstacle)| {
        obstacle.unwrap_or_else(|error| Some(format!("{}: {error}", path.display())))
    })
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
        uid: geteuid().as_raw(),
        no_new_privs: held.no_new_privs,
        capabilities: held.capabilities,
        system_calls: held.calls,
        files: held.files,
        missing: held.missing.clone(),
        network_threads: confine::who_may_change_the_network(),
    })
}
