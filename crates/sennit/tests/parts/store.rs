//! The hub's store: leases that last, two writers at once, and disks that refuse.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use sennit::config::Pool;
use sennit::leases::Leases;
use sennit::site::SiteName;
use sennit::store::{Lease, NewCertificate, Redeemed, Store, StoreError, TokenKind};

fn certificate(site: &SiteName, not_after: SystemTime) -> NewCertificate<'_> {
    NewCertificate {
        site,
        fingerprint: &[1; 32],
        authority: &[2; 32],
        der: &[],
        key: &[3; 32],
        not_after,
    }
}

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
                None,
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
    let refused = [(lan[1], "the hub has not granted it to the site".to_owned())];
    store.announce(&name("a"), &lan, &refused).unwrap();
    store.allow(&name("a"), &lan[..1]).unwrap();
    store.lease(&name("a"), &pool("10.200.0.0/16", "")).unwrap();
    store.revoke(&name("b"), now).unwrap();

    let sites = store.sites(now).unwrap();

    assert_eq!(sites.len(), 2);
    assert_eq!(
        (&sites[0].name, sites[0].lan.as_slice()),
        (&name("a"), &lan[..])
    );
    assert_eq!(
        (sites[0].granted.as_slice(), sites[0].refused.as_slice()),
        (&lan[..1], &refused[..])
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
fn what_is_granted_is_kept_and_taken_back_with_all_that_is_inside() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = with_sites(dir.path(), &["a"]);
    let prefixes = ["192.168.8.0/24", "192.168.9.0/24", "10.9.0.0/16"];
    let [eight, nine, ten] = prefixes.map(|prefix| prefix.parse().unwrap());
    store.allow(&name("a"), &[eight, nine]).unwrap();
    store.allow(&name("a"), &[nine, ten]).unwrap();
    drop(store);

    let mut store = Store::open(dir.path()).unwrap();
    let left = store
        .deny(&name("a"), &["192.168.0.0/16".parse().unwrap()])
        .unwrap();

    assert_eq!(left, [ten]);
    let reach = "internet 10.9.0.0/16".parse().unwrap();
    store.set_reach(&name("a"), Some(&reach)).unwrap();
    let site = store.site(&name("a"), SystemTime::now()).unwrap();
    assert_eq!((site.granted, site.reach), (vec![ten], Some(reach)));
    for unknown in [
        store.allow(&name("b"), &[ten]).map(drop),
        store.set_reach(&name("b"), None),
    ] {
        assert!(matches!(unknown, Err(StoreError::NoSuchSite { .. })));
    }
}

#[test]
fn a_name_is_a_sites_or_a_clients() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = with_sites(dir.path(), &["phone"]);
    let now = SystemTime::now();
    let mut invite = |site, n: u8, kind| {
        let expires = Some(now + Duration::from_secs(60));
        store.invite(&name(site), &[n; 32], expires, kind, None, now)
    };

    let as_site = invite("phone", 1, TokenKind::Invite);
    invite("van", 2, TokenKind::Invite).unwrap();
    let as_client = invite("van", 3, TokenKind::Bearer);

    assert!(matches!(as_site, Err(StoreError::NameOfClient { .. })));
    assert!(matches!(as_client, Err(StoreError::NameOfSite { .. })));
    store.revoke(&name("phone"), now).unwrap();
    store
        .invite(&name("phone"), &[4; 32], None, TokenKind::Invite, None, now)
        .unwrap();
}

#[test]
fn what_is_withdrawn_is_an_invitation_and_not_a_site() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = with_sites(dir.path(), &["van"]);
    let pool = Pool {
        v4: Some("10.9.0.0/29".parse().unwrap()),
        v6: Some("fd5e:9::/64".parse().unwrap()),
    };
    store.lease(&name("van"), &pool).unwrap();
    let now = SystemTime::now();
    let until = Some(now + Duration::from_secs(60));
    store
        .invite(&name("ship"), &[7; 32], until, TokenKind::Invite, None, now)
        .unwrap();

    store.withdraw(&name("ship")).unwrap();

    assert!(store.invitations().unwrap().is_empty());
    assert_eq!(store.token(&[7; 32]).unwrap(), None);
    let again = store.withdraw(&name("ship"));
    assert!(matches!(again, Err(StoreError::NoInvitation { .. })));
    let sites = store.sites(now).unwrap();
    assert!(sites.iter().all(|site| !site.invited), "{sites:?}");
    let leases = Leases::of(&sites, Some(&pool));
    let [lease] = &leases.leases[..] else {
        panic!("one site has addresses: {leases:?}");
    };
    assert_eq!((lease.site.as_str(), lease.addresses.len()), ("van", 2));
    let left: Vec<_> = leases.pools.iter().map(|it| (it.leased, it.free)).collect();
    assert_eq!(left, [(1, Some(4)), (1, None)]);
}

/// The tables as version 0.1 made them, with what it let sites announce.
const FIRST_FORMAT: &str = "
    CREATE TABLE sites (name TEXT PRIMARY KEY, created INTEGER NOT NULL, revoked INTEGER,
        v4 TEXT UNIQUE, v6 TEXT UNIQUE, lan TEXT NOT NULL DEFAULT '') STRICT;
    CREATE TABLE tokens (hash BLOB PRIMARY KEY, site TEXT NOT NULL REFERENCES sites (name),
        kind TEXT NOT NULL CHECK (kind IN ('invite', 'bearer')), created INTEGER NOT NULL,
        expires INTEGER, used_by BLOB) STRICT;
    CREATE TABLE certificates (fingerprint BLOB PRIMARY KEY, site TEXT NOT NULL REFERENCES sites (name),
        key BLOB NOT NULL, der BLOB NOT NULL, not_after INTEGER NOT NULL,
        revoked INTEGER NOT NULL DEFAULT 0) STRICT;
    CREATE INDEX certificates_of_site ON certificates (site, key);
    INSERT INTO sites (name, created, v4, lan) VALUES
        ('thief', 1, '10.200.0.2', '1.1.1.1/32 0.0.0.0/0 127.0.0.0/8 2000::/16'),
        ('van', 1, '10.200.0.3', '192.168.8.0/24 fd08::/64 8.8.8.8/32');
    INSERT INTO certificates VALUES
        (x'01', 'van', x'0a', x'', 99999999999, 0), (x'02', 'van', x'0b', x'', 99999999998, 0),
        (x'03', 'van', x'0b', x'', 99999999997, 0), (x'04', 'thief', x'0c', x'', 99999999999, 0);
    PRAGMA user_version = 1;
";

#[test]
fn the_certificate_of_a_forgotten_site_is_nobodys_also_when_its_name_is_given_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::create(dir.path()).unwrap();
    let (van, now) = (name("van"), SystemTime::now());
    let invite = |store: &mut Store, hash: [u8; 32]| {
        let invited = store.invite(&van, &hash, None, TokenKind::Invite, None, now);
        invited.unwrap();
    };
    let certificate = certificate(&van, now + Duration::from_secs(1000));
    invite(&mut store, [7; 32]);
    store.redeem(&[7; 32], &certificate, now).unwrap();
    let error = store.forget(&van).unwrap_err();
    assert!(matches!(error, StoreError::MayComeIn { .. }), "{error}");

    store.revoke(&van, now).unwrap();
    store.forget(&van).unwrap();
    invite(&mut store, [8; 32]);

    assert_eq!(store.certificate(&[1; 32]).unwrap(), None);
    assert_eq!(store.token(&[7; 32]).unwrap(), None);
}

/// Each of them was kept for good.
#[test]
fn an_invitation_that_was_used_and_has_expired_is_forgotten_with_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::create(dir.path()).unwrap();
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let van = name("van");
    let invite = |store: &mut Store, n: u8, seconds| {
        let (hash, until, kind) = ([n; 32], Some(at(seconds + 100)), TokenKind::Invite);
        let invited = store.invite(&van, &hash, until, kind, None, at(seconds));
        invited.unwrap();
    };
    let certificate = certificate(&van, at(1000));
    invite(&mut store, 7, 0);
    let used = store.redeem(&[7; 32], &certificate, at(10)).unwrap();
    assert_eq!(used, Redeemed::Done);

    invite(&mut store, 8, 50);
    let kept = store.token(&[7; 32]).unwrap();
    assert!(kept.is_some(), "its answer may have been lost");
    invite(&mut store, 9, 200);
    assert_eq!(store.token(&[7; 32]).unwrap(), None);
}

#[test]
fn a_store_from_the_midst_of_a_rotation_knows_which_invitations_name_the_former_authority() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::create(dir.path()).unwrap();
    let [former, present] = [[1; 32], [2; 32]];
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let invite = |store: &mut Store, site, n: u8, seconds| {
        let (hash, until, kind) = ([n; 32], Some(at(100)), TokenKind::Invite);
        let invited = store.invite(&name(site), &hash, until, kind, None, at(seconds));
        invited.unwrap();
    };
    invite(&mut store, "bus", 3, 10);
    store.begin_rotation(&former, &present, at(20)).unwrap();
    invite(&mut store, "car", 4, 30);
    drop(store);
    let db = rusqlite::Connection::open(dir.path().join(Store::FILE)).unwrap();
    let third = "DROP INDEX tokens_of_site; ALTER TABLE tokens DROP COLUMN authority;
                 PRAGMA user_version = 3;";
    db.execute_batch(third).unwrap();
    drop(db);

    let store = Store::open(dir.path()).unwrap();

    assert_eq!(store.stale_invitations(at(40)).unwrap(), [name("bus")]);
}

#[test]
fn a_store_of_the_first_format_is_taken_over_without_what_is_dangerous() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(Store::FILE);
    let db = rusqlite::Connection::open(&file).unwrap();
    db.execute_batch(FIRST_FORMAT).unwrap();
    drop(db);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();

    let mut store = Store::open(dir.path()).unwrap();

    let sites = store.sites(SystemTime::now()).unwrap();
    let granted: Vec<Vec<String>> = sites
        .iter()
        .map(|site| site.granted.iter().map(ToString::to_string).collect())
        .collect();
    assert_eq!(granted, [vec![], vec!["192.168.8.0/24", "fd08::/64"]]);
    assert!(sites.iter().all(|site| site.certified_until.is_some()));
    let lease = store
        .lease(&name("van"), &pool("10.200.0.0/16", ""))
        .unwrap();
    assert_eq!(lease.v4, Some(Ipv4Addr::new(10, 200, 0, 3)));
    let db = rusqlite::Connection::open(&file).unwrap();
    let retired: String = db
        .query_row(
            "SELECT group_concat(hex(fingerprint)) FROM certificates WHERE retired",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(retired, "01", "of two keys of one name the newest stays");
}

#[test]
fn a_store_that_others_can_change_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::create(dir.path()).unwrap());
    let file = dir.path().join(Store::FILE);
    for (mode, used) in [(0o666, false), (0o620, false), (0o644, true), (0o600, true)] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let opened = Store::open(dir.path());
        assert_eq!(opened.is_ok(), used, "{mode:o}");
        if let Some(error) = opened.err() {
            assert!(
                error.to_string().contains("can be changed by others"),
                "{error}"
            );
        }
    }
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

/// A process that closes any descriptor of a file loses its locks on it, and the next one to leave
/// takes itself for the last and removes what is not in the main file yet.
#[test]
fn a_store_that_is_open_keeps_its_locks_when_it_is_opened_once_more() {
    let dir = tempfile::tempdir().unwrap();
    let mut held = with_sites(dir.path(), &["van"]);
    for _ in 0..2 {
        drop(Store::open(dir.path()).unwrap());
        drop(Store::create(dir.path()).unwrap());
    }

    let other = std::process::Command::new(env!("CARGO_BIN_EXE_sennit"))
        .args(["sites", "--state"])
        .arg(dir.path())
        .output();

    assert!(other.unwrap().status.success());
    assert!(dir.path().join("hub.db-wal").exists(), "it is in use");
    held.revoke(&name("van"), SystemTime::now()).unwrap();
    assert!(dir.path().join("hub.db-wal").exists());
}

/// As sysupgrade of OpenWrt copies it while the hub runs.
#[test]
fn a_copy_of_the_main_file_alone_knows_who_was_let_in_and_who_was_shut_out() {
    let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut daemon = with_sites(dir.path(), &["a", "b"]);
    let mut command_line = Store::open(dir.path()).unwrap();
    let now = SystemTime::now();
    command_line.revoke(&name("a"), now).unwrap();
    let lan = ["192.168.8.0/24".parse().unwrap()];
    daemon.allow(&name("b"), &lan).unwrap();

    let copying = Command::new("cp")
        .arg(dir.path().join("hub.db"))
        .arg(copy.path())
        .status();
    assert!(copying.unwrap().success());

    let copied = Store::open(copy.path()).unwrap();
    assert_eq!(copied.sites(now).unwrap(), daemon.sites(now).unwrap());
    assert_eq!(copied.site(&name("b"), now).unwrap().granted, lan);
    drop(command_line);
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
