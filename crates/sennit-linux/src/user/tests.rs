use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

use super::*;

/// No account of any host.
const SOMEBODY: User = User {
    uid: 1_234_567,
    gid: 1_234_568,
};

/// Whether this process may give files to others, said loudly if not.
fn is_root() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED: it needs root");
    }
    is_root
}

fn owner(path: &Path) -> (u32, u32) {
    let found = fs::symlink_metadata(path).unwrap();
    (found.uid(), found.gid())
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_user_is_found_by_name_or_by_numbers() {
    let accounts = "root:x:0:0:root:/root:/bin/sh\nsennit:x:998:997::/var/lib/sennit:/bin/false\n";
    let found = |name| User::among(accounts, name).map(|it| (it.uid, it.gid));

    assert_eq!(found("sennit"), Some((998, 997)));
    assert_eq!(found("root"), Some((0, 0)));
    assert_eq!(found("1234"), Some((1234, 1234)));
    assert_eq!(found("1234:5"), Some((1234, 5)));
    for nobody in ["", "senni", "x", "4294967295", "-1", "1:2:3"] {
        assert_eq!(found(nobody), None, "{nobody}");
    }
}

#[test]
fn what_is_handed_over_is_what_root_has_there_and_nothing_that_a_link_leads_to() {
    if !is_root() {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    let [theirs, secret] = ["theirs", "secret"].map(|name| outside.path().join(name));
    fs::write(&theirs, "").unwrap();
    fs::write(&secret, "").unwrap();
    let state = tempfile::tempdir().unwrap();
    let at = |name: &str| state.path().join(name);
    fs::create_dir(at("next")).unwrap();
    for name in ["edge.key", "next/ca.key"] {
        fs::write(at(name), "").unwrap();
    }
    symlink(&theirs, at("link")).unwrap();
    symlink(outside.path(), at("directory")).unwrap();
    fs::hard_link(&secret, at("name")).unwrap();
    fs::write(at("another's"), "").unwrap();
    chown(at("another's"), Some(7), Some(7)).unwrap();

    SOMEBODY.hand_over(state.path()).unwrap();

    let his = (SOMEBODY.uid, SOMEBODY.gid);
    for name in ["", "edge.key", "next", "next/ca.key"] {
        assert_eq!(owner(&at(name)), his, "{name}");
    }
    let outside = outside.path().to_owned();
    for path in [theirs, secret, at("link"), at("directory"), outside] {
        assert_eq!(owner(&path), (0, 0), "{}", path.display());
    }
    assert_eq!(owner(&at("another's")), (7, 7));
    SOMEBODY.hand_over(&at("not there")).unwrap();
}

#[test]
fn a_directory_that_is_not_sennits_alone_is_not_handed_over() {
    if !is_root() {
        return;
    }
    let above = tempfile::tempdir().unwrap();
    let state = above.path().join("state");
    fs::create_dir(&state).unwrap();
    set_mode(&state, 0o700);
    set_mode(above.path(), 0o700);
    let obstacle = || SOMEBODY.obstacle(&state).unwrap().unwrap_or_default();

    assert!(obstacle().contains("chmod o+x"), "{}", obstacle());
    set_mode(above.path(), 0o711);
    assert_eq!(obstacle(), "");
    set_mode(&state, 0o755);
    assert!(obstacle().contains("chmod 700"), "{}", obstacle());
    chown(&state, Some(SOMEBODY.uid), None).unwrap();
    assert_eq!(obstacle(), "", "it is his");
    chown(&state, Some(7), None).unwrap();
    assert!(obstacle().contains("belongs to user 7"), "{}", obstacle());
    let missing = SOMEBODY.obstacle(&above.path().join("missing"));
    assert_eq!(missing.unwrap(), None);
}

#[test]
fn what_roots_commands_make_in_a_directory_is_its_owners_and_no_link_of_his_leads_them_away() {
    if !is_root() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let at = |name: &str| state.path().join(name);
    SOMEBODY.hand_over(state.path()).unwrap();
    let his = (SOMEBODY.uid, SOMEBODY.gid);

    open_private(&at("hub.db")).unwrap();
    make_private_directory(&at("next")).unwrap();

    assert_eq!(owner(&at("hub.db")), his);
    assert_eq!(owner(&at("next")), his);
    let modes = ["hub.db", "next"].map(|name| fs::metadata(at(name)).unwrap().mode() & 0o777);
    assert_eq!(modes, [0o600, 0o700]);
    open_private(&at("hub.db")).expect("it is there");
    symlink(elsewhere.path().join("made"), at("edge.lock")).unwrap();
    open_private(&at("edge.lock")).unwrap_err();
    assert!(!elsewhere.path().join("made").exists());
    // Where nobody but root makes links, they lead on as ever.
    let [made, link] = ["made", "hub.db"].map(|name| elsewhere.path().join(name));
    symlink(&made, &link).unwrap();
    open_private(&link).unwrap();
    assert_eq!(owner(&made), (0, 0));
}

#[test]
fn a_user_reaches_what_is_in_his_directories_and_in_those_that_all_may_write() {
    if !is_root() {
        return;
    }
    let above = tempfile::tempdir().unwrap();
    let inner = above.path().join("inner");
    fs::create_dir(&inner).unwrap();
    set_mode(above.path(), 0o755);

    assert!(!SOMEBODY.reaches(&inner));
    set_mode(above.path(), 0o777);
    assert!(SOMEBODY.reaches(&inner));
    set_mode(above.path(), 0o1777);
    assert!(!SOMEBODY.reaches(&inner), "what is not his stays");
    chown(above.path(), None, Some(SOMEBODY.gid)).unwrap();
    set_mode(above.path(), 0o775);
    assert!(SOMEBODY.reaches(&inner));
    set_mode(above.path(), 0o755);
    assert!(!SOMEBODY.reaches(&inner));
    chown(above.path(), Some(SOMEBODY.uid), None).unwrap();
    assert!(SOMEBODY.reaches(&inner));
}

#[test]
fn a_thread_that_is_somebody_elses_reads_what_is_his_and_nothing_of_roots() {
    if !is_root() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let [his, roots] = ["his", "roots"].map(|name| state.path().join(name));
    for path in [&his, &roots] {
        open_private(path).unwrap();
    }
    set_mode(state.path(), 0o711);
    chown(&his, Some(SOMEBODY.uid), Some(SOMEBODY.gid)).unwrap();
    let status = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            SOMEBODY.take_thread().unwrap();
            File::open(&his).unwrap();
            let error = File::open(&roots).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            fs::read_to_string("/proc/thread-self/status").unwrap()
        });
        thread.join().unwrap()
    });

    let uid = format!("\nUid:\t{0}\t{0}\t{0}\t{0}\n", SOMEBODY.uid);
    assert!(status.contains(&uid), "{status}");
    assert!(status.contains("\nGroups:\t \n"), "{status}");
    assert!(File::open(&roots).is_ok(), "the others are who they were");
}
