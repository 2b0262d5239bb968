//! The hub's store: leases that last, two writers at once, and disks that refuse.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use sennit::config::Pool;
use sennit::site::SiteName;
use sennit::store::{Lease, Store, StoreError, TokenKind};

fn name(site: &str) -> SiteName {
    site.parse().unwrap()
}

fn pool(v4: &str, v6: &str) -> Pool {
    Pool {
        v4: v4.parse().ok(),
        v6: v6.parse().ok(),
    }
}

fn with_sites(state: &Path, sites: &[&str]) -> Store {
    let mut store = Store::create(state).unwrap();
    for site in sites {
        let hash = hash_of(site);
        store
            .invite(
                &name(site),
                &hash,
                None,
                TokenKind::Bearer,
                SystemTime::now(),
            )
            .unwrap();
    }
    store
}

fn hash_of(site: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash[..site.len()].copy_from_slice(site.as_bytes());
    hash
}

#[test]
fn a_lease_stays_the_same_across_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pool("10.200.0.0/16", "fd5e:1::/64");
    let mut store = with_sites(dir.path(), &["a", "b"]);
    let (a, b) = (
        store.lease(&name("a"), &pool).unwrap(),
        store.lease(&name("b"), &pool).unwrap(),
    );
    drop(store);

    let mut again = Store::open(dir.path()).unwrap();

    assert_eq!(again.lease(&name("b"), &pool).unwrap(), b);
    assert_eq!(again.lease(&name("a"), &pool).unwrap(), a);
    assert_eq!(
        a,
        Lease {
            v4: Some(Ipv4Addr::new(10, 200, 0, 2)),
            v6: Some("fd5e:1::2".parse().unwrap())
        }
    );
    assert_eq!(
        b,
        Lease {
            v4: Some(Ipv4Addr::new(10, 200, 0, 3)),
            v6: Some("fd5e:1::3".parse().unwrap())
        }
    );
    assert_eq!(
        Lease::of_hub(&pool),
        Lease {
            v4: Some(Ipv4Addr::new(10, 200, 0, 1)),
            v6: Some("fd5e:1::1".parse().unwrap())
        }
    );
}

#[test]
fn a_small_pool_is_used_up_to_its_last_host_and_then_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pool("192.0.2.0/29", "");
    let sites = ["a", "b", "c", "d", "e", "f"];
    let mut store = with_sites(dir.path(), &sites);

    let leases: Vec<_> = sites[..5]
        .iter()
        .map(|site| store.lease(&name(site), &pool).unwrap().v4.unwrap())
        .collect();
    let refused = store.lease(&name("f"), &pool).unwrap_err();
    store.revoke(&name("b"), SystemTime::now()).unwrap();
    let freed = store.lease(&name("f"), &pool).unwrap();

    let last_bytes: Vec<u8> = leases.iter().map(|v4| v4.octets()[3]).collect();
    assert_eq!(last_bytes, [2, 3, 4, 5, 6]);
    assert_eq!(
        refused.to_string(),
        "no address is left in pool 192.0.2.0/29"
    );
    assert_eq!(
        freed,
        Lease {
            v4: Some(leases[1]),
            v6: None
        },
        "the revoked site's address"
    );
}

#[test]
fn a_pool_that_moves_takes_its_sites_along() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = with_sites(dir.path(), &["a"]);
    store.lease(&name("a"), &pool("10.200.0.0/16", "")).unwrap();

    let moved = store
        .lease(&name("a"), &pool("10.201.0.0/24", "fd00::/64"))
        .unwrap();

    assert_eq!(
        moved,
        Lease {
            v4: Some(Ipv4Addr::new(10, 201, 0, 2)),
            v6: Some("fd00::2".parse().unwrap())
        }
    );
}

#[test]
fn only_known_and_valid_sites_get_a_lease() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = with_sites(dir.path(), &["a"]);
    store.revoke(&name("a"), SystemTime::now()).unwrap();
    let pool = pool("10.200.0.0/16", "");

    assert!(matches!(
        store.lease(&name("a"), &pool),
        Err(StoreError::Revoked { .. })
    ));
    assert!(matches!(
        store.lease(&name("b"), &pool),
        Err(StoreError::NoSuchSite { .. })
    ));
    assert!(matches!(
        store.revoke(&name("b"), SystemTime::now()),
        Err(StoreError::NoSuchSite { .. })
    ));
    assert!(
        !store.revoke(&name("a"), SystemTime::now()).unwrap(),
        "it was revoked before"
    );
}

#[test]
fn sites_are_listed_with_what_is_known_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = with_sites(dir.path(), &["b", "a"]);
    let now = SystemTime::now();
    let lan = [
        "192.168.8.0/24".parse().unwrap(),
        "fd08::/48".parse().unwrap(),
    ];
    store.announce(&name("a"), &lan).unwrap();
    store.lease(&name("a"), &pool("10.200.0.0/16", "")).unwrap();
    store.revoke(&name("b"), now).unwrap();

    let sites = store.sites(now).unwrap();

    assert_eq!(sites.len(), 2);
    assert_eq!(
        (&sites[0].name, sites[0].lan.as_slice()),
        (&name("a"), &lan[..])
    );
    assert_eq!(
        (sites[0].v4, sites[0].revoked),
        (Some(Ipv4Addr::new(10, 200, 0, 2)), None)
    );
    assert!(
        sites[1]
            .revoked
            .is_some_and(|at| at.duration_since(now).unwrap_or_default() < Duration::from_secs(2))
    );
}

#[test]
fn a_daemon_notices_what_the_command_line_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = with_sites(dir.path(), &["a"]);
    let before = daemon.generation().unwrap();
    assert_eq!(daemon.generation().unwrap(), before);

    let mut command_line = Store::open(dir.path()).unwrap();
    command_line.revoke(&name("a"), SystemTime::now()).unwrap();

    assert_ne!(daemon.generation().unwrap(), before);
}

#[test]
fn files_that_are_no_store_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(
        Store::open(dir.path()),
        Err(StoreError::Missing { .. })
    ));

    fs::write(
        dir.path().join("hub.db"),
        "not a database, but long enough to have a header of one, surely so",
    )
    .unwrap();
    assert!(matches!(
        Store::open(dir.path()),
        Err(StoreError::Damaged { .. })
    ));
    assert!(matches!(
        Store::create(dir.path()),
        Err(StoreError::Damaged { .. })
    ));
}

#[test]
fn a_store_of_a_newer_version_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::create(dir.path()).unwrap());
    let db = rusqlite::Connection::open(dir.path().join("hub.db")).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    drop(db);

    let refused = Store::open(dir.path()).err().unwrap();

    assert!(
        matches!(refused, StoreError::Newer { found: 99, .. }),
        "{refused}"
    );
}

/// Runs `script` with a mount namespace of its own, in which it may mount things over `$STATE`.
fn in_mount_namespace(state: &Path, script: &str) -> Option<std::process::Output> {
    let run = |script: &str| {
        let mut command = Command::new("unshare");
        command.args([
            "--user",
            "--map-root-user",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-ec",
            script,
        ]);
        command
            .env("STATE", state)
            .env("SENNIT", env!("CARGO_BIN_EXE_sennit"))
            .output()
    };
    if run("mount -t tmpfs none \"$STATE\"").is_ok_and(|output| output.status.success()) {
        return Some(run(script).unwrap());
    }
    eprintln!("SKIPPED: needs a user and mount namespace");
    None
}

#[test]
fn a_read_only_state_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let script = "\"$SENNIT\" hub init --state \"$STATE\" 2>/dev/null
                  mount --bind \"$STATE\" \"$STATE\" && mount -o remount,bind,ro \"$STATE\"
                  \"$SENNIT\" invite van-07 --state \"$STATE\" --hub 203.0.113.10:443";
    let Some(output) = in_mount_namespace(dir.path(), script) else {
        return;
    };

    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("hub.db") && stderr.contains("read-only"),
        "{stderr}"
    );
    assert!(
        output.stdout.is_empty(),
        "no token is printed that the hub does not know"
    );
}

#[test]
fn a_full_disk_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=256k none \"$STATE\"
                  \"$SENNIT\" hub init --state \"$STATE\" 2>/dev/null
                  dd if=/dev/zero of=\"$STATE/ballast\" bs=4k count=999 2>/dev/null || true
                  \"$SENNIT\" invite van-07 --state \"$STATE\" --hub 203.0.113.10:443";
    let Some(output) = in_mount_namespace(dir.path(), script) else {
        return;
    };

    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("hub.db") && stderr.contains("disk is full"),
        "{stderr}"
    );
    assert!(
        output.stdout.is_empty(),
        "no token is printed that the hub does not know"
    );
}
