use std::{
    io::{Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, symlink},
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use tempfile::TempDir;

use super::*;
use crate::user::tests::{SOMEBODY, is_root, set_mode};

/// Somebody's state directory, and one of root's that he wants to see written to.
struct Host(TempDir);

impl Host {
    fn new() -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        set_mode(host.0.path(), 0o711);
        for name in ["state", "state/next", "roots"] {
            fs::create_dir(host.at(name)).unwrap();
            set_mode(&host.at(name), 0o700);
        }
        fs::write(host.at("roots/key"), "root's").unwrap();
        SOMEBODY.hand_over(&host.at("state"), &[]).unwrap();
        host
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    #[track_caller]
    fn assert_nothing_of_roots_has_changed(&self) {
        let names = fs::read_dir(self.at("roots")).unwrap();
        let names: Vec<OsString> = names.map(|it| it.unwrap().file_name()).collect();
        assert_eq!(names, ["key"]);
        assert_eq!(fs::read(self.at("roots/key")).unwrap(), b"root's");
        assert_eq!(fs::metadata(self.at("roots")).unwrap().uid(), 0);
    }
}

fn name(name: &str) -> &OsStr {
    OsStr::new(name)
}

#[test]
fn what_takes_the_place_of_a_directory_is_not_the_one_that_was_opened() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let (next, key) = Directory::of(&host.at("state/next/key")).unwrap();
    fs::rename(host.at("state/next"), host.at("state/aside")).unwrap();
    symlink(host.at("roots"), host.at("state/next")).unwrap();

    next.make(&key, 0o600).unwrap().write_all(b"his").unwrap();
    next.rename(&key, name("ca.key")).unwrap();
    next.append(name("ca.key"))
        .unwrap()
        .write_all(b"!")
        .unwrap();
    next.make_directory(name("deep")).unwrap();
    next.remove_all(name("deep")).unwrap();

    let made = host.at("state/aside/ca.key");
    assert_eq!(fs::read(&made).unwrap(), b"his!");
    assert_eq!(fs::metadata(&made).unwrap().uid(), SOMEBODY.uid());
    let state = Directory::open(&host.at("state")).unwrap();
    state.inner(name("next")).expect_err("it is a link");
    state.remove_all(name("next")).expect("the link goes");
    Directory::open(&host.at("state/next")).expect_err("it is gone");
    host.assert_nothing_of_roots_has_changed();
}

#[test]
fn root_opens_in_a_directory_of_somebody_else_what_he_could_open() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let state = Directory::open(&host.at("state")).unwrap();
    symlink(host.at("roots/key"), host.at("state/hub.db")).unwrap();

    // A library takes a path, and follows a link at its end.
    let by_path = || File::options().append(true).open(host.at("state/hub.db"));
    let refused = state.as_owner(by_path).unwrap_err();

    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    by_path().expect("root is root again");
    for foreign in ["../roots/key", "..", ".", "", "next/key", "next/"] {
        let found = state.find(name(foreign));
        assert!(found.is_err(), "{foreign}");
    }
}

/// What a command of root's does in a state directory, again and again; what it read there.
fn work(host: &Host) -> io::Result<String> {
    let (next, key) = Directory::of(&host.at("state/next/key"))?;
    let draft = name("key.new");
    let _ = next.remove(draft);
    next.make(draft, 0o600)?.write_all(b"secret")?;
    next.rename(draft, &key)?;
    let mut read = String::new();
    next.read(&key)?.read_to_string(&mut read)?;
    next.append(&key)?.write_all(b"more")?;
    let (state, next) = Directory::of(&host.at("state/next"))?;
    state.remove_all(&next)?;
    state.make_directory(&next)?;
    Ok(read)
}

/// What somebody does meanwhile: a directory, a link to one of root's, a link to a file of root's.
fn swap(host: &Host) {
    let next = host.at("state/next");
    let _ = fs::rename(&next, host.at("state/aside"));
    let _ = symlink(host.at("roots"), &next);
    let _ = symlink(host.at("roots/key"), host.at("state/aside/key"));
    let _ = fs::remove_file(&next);
    let _ = fs::rename(host.at("state/aside"), &next);
    let _ = fs::create_dir(&next);
}

#[test]
fn somebody_who_swaps_directories_and_links_all_the_time_leads_root_nowhere() {
    const TIMES: usize = 3000;
    if !is_root() {
        return;
    }
    let (host, is_over) = (Host::new(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            SOMEBODY.take_thread().unwrap();
            while !is_over.load(Ordering::Relaxed) {
                swap(&host);
            }
        });
        // What finds something else in its place fails.
        let read: Vec<String> = (0..TIMES).filter_map(|_| work(&host).ok()).collect();
        is_over.store(true, Ordering::Relaxed);
        println!("{} of {TIMES} were done", read.len());
        assert!(read.iter().all(|it| it == "secret"));
    });

    host.assert_nothing_of_roots_has_changed();
}
