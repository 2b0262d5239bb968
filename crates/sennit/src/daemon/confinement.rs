//! What a daemon gives up once it runs, and what it says of that; how it becomes another user is in
//! docs/decisions/0035.

use std::{
    fs::DirBuilder,
    io,
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

use crate::{
    config::{DEFAULT_STATE, RUN_DIRECTORY},
    control::Entrance,
    exit::Failure,
    status::Confinement,
};

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
    let failed = |directory: &Path, error: io::Error| {
        let what = format!("cannot hand {} over to user {user}", directory.display());
        Failure::runtime(format!("{what}: {error}")).hint(STAY_ROOT)
    };
    let above = closed_above(kept, DEFAULT_STATE.as_ref());
    let others: Vec<&Path> = kept.iter().copied().chain(above).collect();
    if let Some(above) = above {
        let given = user.hand_over_alone(above);
        given.map_err(|error| failed(above, error))?;
    }
    for directory in kept {
        let given = user.hand_over(directory, &others);
        given.map_err(|error| failed(directory, error))?;
    }
    Ok(Some(user))
}

/// Where states are by custom, if one of these directories is in there and none but root may pass
/// to it, as where root's commands have made both.
fn closed_above<'a>(kept: &[&Path], states: &'a Path) -> Option<&'a Path> {
    let is_inside = |it: &&Path| it.starts_with(states) && *it != states;
    let is_closed = kept.iter().any(is_inside) && sennit_linux::is_closed_by_root(states);
    is_closed.then_some(states)
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
        let Unfit { why, help } = Unfit::unknown(name);
        return Err(Failure::usage(why).hint(help));
    };
    if user.uid() == geteuid().as_raw() {
        return Ok(None);
    }
    let mut found = match privilege::may_change_user() {
        true => obstacles(user, kept, files),
        false => vec!["that takes CAP_SETUID, CAP_SETGID and CAP_CHOWN".into()],
    };
    match found.is_empty() {
        true => Ok(Some(user)),
        false => {
            let Unfit { why, help } = Unfit::for_daemon(name, &found.swap_remove(0));
            Err(Failure::runtime(why).hint(help))
        }
    }
}

/// Why a daemon could not become a user.
pub(crate) struct Unfit {
    pub(crate) why: String,
    pub(crate) help: String,
}

impl Unfit {
    /// Whether a daemon that keeps things in these directories and reads these files could start as
    /// this user; also said by who may not do it, as far as that one sees.
    pub(crate) fn find(name: &str, kept: &[&Path], files: &[&Path]) -> Option<Self> {
        let Some(user) = User::find(name) else {
            return Some(Self::unknown(name));
        };
        let mut found = obstacles(user, kept, files).into_iter();
        let first = found.next().filter(|_| user.uid() != 0)?;
        Some(Self::for_daemon(name, &first))
    }

    fn unknown(name: &str) -> Self {
        Self {
            why: format!("there is no user {name} on this host"),
            help: format!("make one: useradd --system --user-group {name}"),
        }
    }

    fn for_daemon(name: &str, why: &str) -> Self {
        Self {
            why: format!("the daemon cannot become user {name}: {why}"),
            help: STAY_ROOT.into(),
        }
    }
}

/// What is in the way of handing those directories over to a user. One that this process may not
/// look at it cannot hand over either, and says so then.
fn obstacles(user: User, kept: &[&Path], files: &[&Path]) -> Vec<String> {
    let above = closed_above(kept, DEFAULT_STATE.as_ref());
    let others: Vec<&Path> = kept.iter().copied().chain(above).collect();
    let of_kept = kept.iter().map(|it| (it, user.obstacle(it, &others)));
    let of_files = files.iter();
    let of_files = of_files.map(|it| (it, user.obstacle_of_file(it, &others)));
    let said = of_kept.chain(of_files).filter_map(|(path, found)| {
        found.unwrap_or_else(|error| {
            let is_seen = error.kind() != io::ErrorKind::PermissionDenied;
            is_seen.then(|| format!("{}: {error}", path.display()))
        })
    });
    said.collect()
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

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn the_directory_of_all_states_is_in_the_way_of_those_in_it_where_root_keeps_it_closed() {
        let folder = tempfile::tempdir().unwrap();
        let states = folder.path();
        let set_mode =
            |mode| fs::set_permissions(states, fs::Permissions::from_mode(mode)).unwrap();
        let (dock, elsewhere) = (states.join("dock"), states.with_extension("other"));

        set_mode(0o700);
        let is_roots = geteuid().is_root();
        let found = closed_above(&[&dock], states);
        assert_eq!(found, is_roots.then_some(states));
        assert_eq!(closed_above(&[states], states), None, "it is handed over");
        assert_eq!(closed_above(&[&elsewhere], states), None);
        set_mode(0o711);
        assert_eq!(closed_above(&[&dock], states), None, "he passes");
    }
}
