//! Root's commands in the state directory of a daemon that somebody has taken over, who changes
//! what is there while they run.

use std::os::unix::fs::{MetadataExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, geteuid, kill_process_group};

use super::*;

/// No account of any host, and no other test's.
const SOMEBODY: u32 = 617_850;

/// A state directory of his, beside a directory of root's.
struct TakenOver(TempDir);

impl TakenOver {
    /// `None`, said loudly, without root.
    fn new() -> Option<Self> {
        if !geteuid().is_root() {
            eprintln!("SKIPPED: it needs root");
            return None;
        }
        let host = Self(tempfile::tempdir().unwrap());
        let passable = fs::Permissions::from_mode(0o711);
        fs::set_permissions(host.0.path(), passable).unwrap();
        fs::create_dir(host.at("roots")).unwrap();
        HubIdentity::init(&host.at("state"), &[], SystemTime::now()).unwrap();
        let files = fs::read_dir(host.at("state")).unwrap();
        for file in files.map(|it| it.unwrap().path()).chain([host.at("state")]) {
            chown(file, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
        }
        Some(host)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Root has written nothing anywhere but to him.
    #[track_caller]
    fn assert_all_is_his(&self) {
        let at_roots = fs::read_dir(self.at("roots")).unwrap().count();
        assert_eq!(at_roots, 0, "nothing was written there");
        for file in fs::read_dir(self.at("state")).unwrap() {
            let file = file.unwrap();
            let uid = file.metadata().unwrap().uid();
            assert_eq!(uid, SOMEBODY, "{}", file.path().display());
        }
    }
}

/// He runs until this is dropped.
struct Attacker(Child);

impl Attacker {
    /// Puts a link to root's directory in the place of each of those of a rotation, and takes it
    /// away again, all the time.
    fn start(host: &TakenOver) -> Self {
        let script = "while :; do for it in next.new next finished; do
            mv -T $it aside; ln -sT ../roots $it; rm -f $it; mv -T aside $it
        done; done 2>/dev/null";
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(host.at("state"));
        shell.uid(SOMEBODY).gid(SOMEBODY).process_group(0);
        Self(shell.spawn().unwrap())
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        // What it has just started is of its group.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

#[test]
fn who_swaps_directories_while_root_rotates_his_authority_has_root_write_nowhere_else() {
    let Some(host) = TakenOver::new() else {
        return;
    };
    let attacker = Attacker::start(&host);
    for _ in 0..25 {
        // He may well make them fail.
        let _ = identity::rotate(&host.at("state"), SystemTime::now());
        let _ = identity::finish_rotation(&host.at("state"), true, SystemTime::now());
    }
    drop(attacker);

    host.assert_all_is_his();
}

#[test]
fn a_link_in_the_place_of_his_store_or_his_files_is_followed_to_nothing_of_roots() {
    let Some(host) = TakenOver::new() else {
        return;
    };
    let state = host.at("state");
    let secret = host.at("secret");
    fs::copy(state.join("hub.db"), &secret).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let before = fs::read(&secret).unwrap();
    for name in [
        "hub.db",
        "ca.key",
        "ticket-keys",
        "hub.db-wal",
        "hub.db-shm",
    ] {
        let _ = fs::remove_file(state.join(name));
        symlink(&secret, state.join(name)).unwrap();
    }

    assert!(Store::open(&state).is_err());
    assert!(Store::create(&state).is_err());
    assert!(HubIdentity::load(&state).is_err());
    drop(Tickets::load(&state, SystemTime::now()));

    assert_eq!(fs::read(&secret).unwrap(), before);
    assert_eq!(fs::metadata(&secret).unwrap().uid(), 0);
}

#[test]
fn what_root_does_in_his_directory_is_his() {
    let Some(host) = TakenOver::new() else {
        return;
    };
    let state = host.at("state");
    let mut store = Store::open(&state).unwrap();
    let authority = HubIdentity::load(&state).unwrap().authority;
    let hubs = ["203.0.113.10:443".parse().unwrap()];
    let now = SystemTime::now();

    identity::invite(&mut store, &authority, &name("van"), &hubs, DAY, now).unwrap();
    identity::rotate(&state, now).unwrap();
    let next = fs::metadata(state.join("next/ca.key")).unwrap();
    assert_eq!((next.uid(), next.mode() & 0o777), (SOMEBODY, 0o600));
    identity::finish_rotation(&state, true, now).unwrap();
    drop(store);

    host.assert_all_is_his();
}
