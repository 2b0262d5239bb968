use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use rustix::thread::{CapabilitySets, set_capabilities};

use super::*;

/// No account of any host.
pub(super) const SOMEBODY: User = User {
    uid: 1_234_567,
    gid: 1_234_568,
};

/// Whether this process may give files to others, said loudly if not.
pub(super) fn is_root() -> bool {
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

pub(super) fn set_mode(path: &Path, mode: u32) {
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
    set_mode(state.path(), 0o700);
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

    SOMEBODY.hand_over(state.path(), &[]).unwrap();

    let his = (SOMEBODY.uid, SOMEBODY.gid);
    for name in ["", "edge.key", "next", "next/ca.key"] {
        assert_eq!(owner(&at(name)), his, "{name}");
    }
    let outside = outside.path().to_owned();
    for path in [theirs, secret, at("link"), at("directory"), outside] {
        assert_eq!(owner(&path), (0, 0), "{}", path.display());
    }
    assert_eq!(owner(&at("another's")), (7, 7));
    SOMEBODY.hand_over(&at("not there"), &[]).unwrap();
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
    let obstacle = || SOMEBODY.obstacle(&state, &[]).unwrap().unwrap_or_default();

    assert!(obstacle().contains("chmod o+x"), "{}", obstacle());
    set_mode(above.path(), 0o711);
    assert_eq!(obstacle(), "");
    let records = state.join("records");
    fs::create_dir(&records).unwrap();
    set_mode(&records, 0o700);
    let with = |others| SOMEBODY.obstacle(&records, others).unwrap();
    assert!(with(&[]).is_some_and(|it| it.contains("chmod o+x")));
    assert_eq!(with(&[&state]), None, "that becomes his too");
    set_mode(&state, 0o755);
    assert!(obstacle().contains("chmod 700"), "{}", obstacle());
    chown(&state, Some(SOMEBODY.uid), None).unwrap();
    assert_eq!(obstacle(), "", "it is his");
    chown(&state, Some(7), None).unwrap();
    assert!(obstacle().contains("belongs to user 7"), "{}", obstacle());
    let missing = SOMEBODY.obstacle(&above.path().join("missing"), &[]);
    assert_eq!(missing.unwrap(), None);
}

#[test]
fn what_roots_commands_make_in_a_directory_is_its_owners_and_no_link_of_his_leads_them_away() {
    if !is_root() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    set_mode(state.path(), 0o700);
    let at = |name: &str| state.path().join(name);
    SOMEBODY.hand_over(state.path(), &[]).unwrap();
    let his = (SOMEBODY.uid, SOMEBODY.gid);

    open_private(&at("hub.db")).unwrap();
    let (directory, name) = Directory::of(&at("next")).unwrap();
    directory.make_directory(&name).unwrap();

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

/// Does something on a thread of root's that is shut out from what others keep closed.
fn shut_out<T: Send>(task: impl FnOnce() -> T + Send) -> T {
    let lacks = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    let shut_out = || {
        let sets = capabilities(None).unwrap();
        let kept = CapabilitySets {
            effective: sets.effective.difference(lacks),
            permitted: sets.permitted.difference(lacks),
            inheritable: sets.inheritable,
        };
        set_capabilities(None, kept).unwrap();
        task()
    };
    std::thread::scope(|scope| scope.spawn(shut_out).join().unwrap())
}

#[test]
fn root_that_is_shut_out_hands_over_what_it_has_in_directories_that_are_closed_to_it() {
    if !is_root() {
        return;
    }
    let above = tempfile::tempdir().unwrap();
    set_mode(above.path(), 0o711);
    let at = |name: &str| above.path().join(name);
    for name in ["state", "state/his", "state/his/deep", "state/roots"] {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("key"), "").unwrap();
        set_mode(&at(name), 0o700);
    }
    for name in ["state", "state/his"] {
        chown(at(name), Some(SOMEBODY.uid), Some(SOMEBODY.gid)).unwrap();
    }

    shut_out(|| {
        let state = at("state");
        File::open(state.join("key")).expect_err("it is closed");
        for directory in [state.clone(), state.join("his"), state.join("roots")] {
            assert_eq!(SOMEBODY.obstacle(&directory, &[]).unwrap(), None);
            SOMEBODY.hand_over(&directory, &[]).unwrap();
        }
        SOMEBODY.hand_over(&state.join("not there"), &[]).unwrap();
        chown(above.path(), Some(0), Some(0)).expect("root is who it was");
    });

    for name in ["state", "state/his", "state/his/deep", "state/roots"] {
        let his = (SOMEBODY.uid, SOMEBODY.gid);
        assert_eq!(owner(&at(name)), his, "{name}");
        assert_eq!(owner(&at(name).join("key")), his, "{name}");
    }
}

#[test]
fn a_directory_that_root_keeps_closed_is_handed_over_without_what_is_in_it() {
    if !is_root() {
        return;
    }
    let states = tempfile::tempdir().unwrap();
    let (dock, other) = (states.path().join("dock"), states.path().join("other"));
    for state in [&dock, &other] {
        fs::create_dir(state).unwrap();
        set_mode(state, 0o700);
    }
    let alone = || SOMEBODY.hand_over_alone(states.path()).unwrap();

    set_mode(states.path(), 0o711);
    assert!(!is_closed_by_root(states.path()));
    alone();
    assert_eq!(owner(states.path()), (0, 0), "he passes as it is");
    set_mode(states.path(), 0o700);
    assert!(is_closed_by_root(states.path()));
    let obstacle = SOMEBODY.obstacle(&dock, &[]).unwrap();
    assert!(obstacle.is_some_and(|it| it.contains("may not pass through")));
    shut_out(alone);
    SOMEBODY.hand_over(&dock, &[]).unwrap();

    let his = (SOMEBODY.uid, SOMEBODY.gid);
    assert_eq!([owner(states.path()), owner(&dock)], [his; 2]);
    assert_eq!(owner(&other), (0, 0));
    assert!(!is_closed_by_root(states.path()), "it is his");
    assert!(!is_closed_by_root(&dock.join("not there")));
}

#[test]
fn root_that_is_shut_out_is_the_owner_of_files_for_as_long_as_a_task_takes() {
    if !is_root() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let secret = state.path().join("secret");
    fs::write(&secret, "").unwrap();
    set_mode(&secret, 0o600);
    set_mode(state.path(), 0o700);
    chown(&secret, Some(7), Some(7)).unwrap();
    SOMEBODY.hand_over(state.path(), &[]).unwrap();
    let users = || {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let lines = status.lines().filter(|line| line.starts_with("Uid:"));
        lines.map(str::to_owned).collect::<String>()
    };

    shut_out(|| {
        let made = state.path().join("made");
        as_owner_of(&made, || File::create(&made)).unwrap();
        assert_eq!(users(), "Uid:\t0\t0\t0\t0");
        let inner = || as_owner_of(&made, || File::open(&made));
        as_owner_of(state.path(), || inner().map(|_| File::open(&made).unwrap())).unwrap();
        let error = as_owner_of(&secret, || File::open(&secret)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        let failing = || as_owner_of(state.path(), || resume_unwind(Box::new(())));
        catch_unwind(AssertUnwindSafe(failing)).unwrap_err();
        assert_eq!(users(), "Uid:\t0\t0\t0\t0");
    });

    assert_eq!(
        owner(&state.path().join("made")),
        (SOMEBODY.uid, SOMEBODY.gid)
    );
    assert_eq!(
        as_owner_of(&secret, users),
        "Uid:\t0\t0\t0\t0",
        "root that may all stays root"
    );
}

#[test]
fn nothing_is_handed_over_or_made_through_a_link_that_somebody_else_may_have_put_there() {
    if !is_root() {
        return;
    }
    let above = tempfile::tempdir().unwrap();
    set_mode(above.path(), 0o711);
    let at = |name: &str| above.path().join(name);
    for name in ["state", "roots"] {
        fs::create_dir(at(name)).unwrap();
        set_mode(&at(name), 0o700);
    }
    let (link, state) = (at("state/dock"), at("state"));
    symlink(at("roots"), &link).unwrap();
    let refuses = |others: &[&Path]| {
        let obstacle = SOMEBODY.obstacle(&link, others).unwrap();
        assert!(obstacle.is_some_and(|it| it.contains("symbolic link")));
        SOMEBODY.hand_over(&link, others).unwrap_err();
        assert_eq!(owner(&at("roots")), (0, 0));
    };

    refuses(&[&state, &link]);
    SOMEBODY.hand_over(&state, &[]).unwrap();
    refuses(&[&link]);
    make_private_directories(&link.join("deep")).unwrap_err();
    assert!(!at("roots/deep").exists());
    make_private_directories(&at("state/new/deep")).unwrap();
    SOMEBODY.hand_over(&at("state/new"), &[]).unwrap();
    assert_eq!(owner(&at("state/new/deep")), (SOMEBODY.uid, SOMEBODY.gid));
}

#[test]
fn root_reads_in_a_directory_of_somebody_else_what_is_his_and_through_no_link() {
    if !is_root() {
        return;
    }
    let above = tempfile::tempdir().unwrap();
    set_mode(above.path(), 0o711);
    let at = |name: &str| above.path().join(name);
    for name in ["state", "roots"] {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("key"), name).unwrap();
        set_mode(&at(name).join("key"), 0o600);
    }
    SOMEBODY.hand_over(&at("state"), &[]).unwrap_err();
    set_mode(&at("state"), 0o700);
    SOMEBODY.hand_over(&at("state"), &[]).unwrap();
    symlink(at("roots/key"), at("state/link")).unwrap();
    symlink(at("roots"), at("state/joining")).unwrap();
    fs::hard_link(at("roots/key"), at("state/name")).unwrap();

    open_state(&at("state/key")).unwrap();
    open_state(&at("roots/key")).unwrap();
    for name in ["state/link", "state/joining/key", "state/name"] {
        open_state(&at(name)).expect_err(name);
    }
    let missing = open_state(&at("state/missing")).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_file_that_only_root_chooses_lies_where_the_user_puts_nothing() {
    if !is_root() {
        return;
    }
    let above = tempfile::tempdir().unwrap();
    set_mode(above.path(), 0o711);
    let at = |name: &str| above.path().join(name);
    for name in ["state", "roots"] {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("token"), "").unwrap();
    }
    symlink(at("state/token"), at("roots/link")).unwrap();
    symlink(at("roots"), at("state/roots")).unwrap();
    let state = at("state");
    let is_refused = |name: &str, handed: &[&Path]| {
        let obstacle = SOMEBODY.obstacle_of_file(&at(name), handed).unwrap();
        obstacle.is_some_and(|it| it.contains("move it out of"))
    };

    let names = ["state/token", "roots/link", "state/roots/token"];
    assert_eq!(names.map(|name| is_refused(name, &[])), [false; 3]);
    assert_eq!(names.map(|name| is_refused(name, &[&state])), [true; 3]);
    assert!(!is_refused("roots/token", &[&state]));
    chown(&state, Some(SOMEBODY.uid), None).unwrap();
    assert_eq!(names.map(|name| is_refused(name, &[])), [true; 3]);
}
