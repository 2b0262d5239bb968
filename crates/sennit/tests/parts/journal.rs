//! The journal: what it keeps, what it survives, and that nobody waits for it.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use sennit::journal::{Event, Events, Journal, KEPT, Keeper, Record, Wanted, read_file};
use sennit::status::LinkCause;

const PATIENCE: Duration = Duration::from_secs(20);

fn up(link: &str) -> Event {
    Event::LinkUp { link: link.into() }
}

fn failover(gap_seconds: f64) -> Event {
    Event::Failover {
        class: "default".into(),
        from: "sat".into(),
        to: vec!["lte".into()],
        gap_seconds,
    }
}

fn all(journal: &Journal) -> Vec<Record> {
    journal.read(&Wanted::default()).events
}

/// Reads until it is good.
fn wait(read: impl Fn() -> Events, good: impl Fn(&[Record]) -> bool) -> Vec<Record> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = read().events;
        if good(&found) {
            return found;
        }
        assert!(Instant::now() < deadline, "{found:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn events(records: &[Record]) -> Vec<Event> {
    records.iter().map(|record| record.event.clone()).collect()
}

fn stored(file: &Path) -> Events {
    read_file(file, &Wanted::default()).unwrap_or(Events {
        schema: String::new(),
        events: Vec::new(),
    })
}

#[test]
fn what_was_noted_is_there_after_a_restart_and_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("edge-journal.db");
    let keeper = Keeper::start(&file).unwrap();
    keeper.journal().note(up("lte"));
    keeper.journal().note(failover(0.25));
    drop(keeper);
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );

    let keeper = Keeper::start(&file).unwrap();
    keeper.journal().note(up("sat"));
    wait(|| stored(&file), |found| found.len() == 3);
    // As a kill does, it leaves everything as it is.
    std::mem::forget(keeper);

    let keeper = Keeper::start(&file).unwrap();
    let found = wait(
        || keeper.journal().read(&Wanted::default()),
        |found| found.len() == 3,
    );
    assert_eq!(events(&found), [up("lte"), failover(0.25), up("sat")]);
    assert!(found.is_sorted_by(|one, next| one.id < next.id));
    assert_eq!(
        found[1].text,
        "class default moved from link sat to lte after 0.250 s"
    );
    assert!(found[0].time.ends_with('Z') && found[0].time.starts_with("20"));
}

#[test]
fn only_what_is_wanted_is_read_and_a_wait_ends_with_the_next_event() {
    let dir = tempfile::tempdir().unwrap();
    let keeper = Keeper::start(&dir.path().join("journal.db")).unwrap();
    let journal = keeper.journal().clone();
    for link in ["a", "b", "c"] {
        journal.note(up(link));
    }
    let found = wait(
        || journal.read(&Wanted::default()),
        |found| found.len() == 3,
    );
    let read = |wanted: Wanted| events(&journal.read(&wanted).events);

    let limit = Some(2);
    assert_eq!(
        read(Wanted {
            limit,
            ..Wanted::default()
        }),
        [up("b"), up("c")]
    );
    let after = Some(found[1].id);
    assert_eq!(
        read(Wanted {
            after,
            ..Wanted::default()
        }),
        [up("c")]
    );
    let since_seconds = Some(3600);
    assert_eq!(
        read(Wanted {
            since_seconds,
            ..Wanted::default()
        })
        .len(),
        3
    );
    let since_seconds = Some(u64::MAX);
    assert_eq!(
        read(Wanted {
            since_seconds,
            ..Wanted::default()
        })
        .len(),
        3
    );

    let wanted = Wanted {
        after: Some(found[2].id),
        wait_seconds: Some(20),
        ..Wanted::default()
    };
    let waiter = journal.clone();
    let waiting = thread::spawn(move || waiter.read(&wanted).events);
    journal.note(up("d"));
    assert_eq!(events(&waiting.join().unwrap()), [up("d")]);
}

#[test]
fn a_damaged_file_is_set_aside_and_said_and_a_new_one_begun() {
    for damage in [
        &b"this is no database at all, but a text of some length"[..],
        &[0xff; 9000],
    ] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("journal.db");
        fs::write(&file, damage).unwrap();

        let keeper = Keeper::start(&file).unwrap();
        keeper.journal().note(up("lte"));
        drop(keeper);

        let found = events(&stored(&file).events);
        assert!(found.contains(&up("lte")), "{found:?}");
        let aside = dir.path().join("journal.db.damaged");
        let told = found.iter().any(|event| {
            matches!(event, Event::JournalSetAside { file, .. } if Path::new(file) == aside)
        });
        assert!(told, "{found:?}");
        assert_eq!(fs::read(&aside).unwrap(), damage);
    }
}

#[test]
fn a_file_that_is_damaged_half_way_is_set_aside_too() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal.db");
    let keeper = Keeper::start(&file).unwrap();
    (0..500).for_each(|number| keeper.journal().note(up(&format!("link-{number}"))));
    drop(keeper);
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[4096..middle].fill(0xa5);
    fs::write(&file, bytes).unwrap();

    drop(Keeper::start(&file).unwrap());

    let found = events(&stored(&file).events);
    assert!(
        matches!(found[..], [Event::JournalSetAside { .. }]),
        "{found:?}"
    );
}

#[test]
fn without_room_on_the_disk_it_goes_on_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal.db");
    symlink("/dev/full", &file).unwrap();
    let keeper = Keeper::start(&file).unwrap();

    keeper.journal().note(up("lte"));

    let found = wait(
        || keeper.journal().read(&Wanted::default()),
        |found| !found.is_empty(),
    );
    assert_eq!(events(&found), [up("lte")]);
    // There is room again when the daemon stops.
    fs::remove_file(&file).unwrap();
    drop(keeper);
    assert_eq!(events(&stored(&file).events), [up("lte")]);
}

#[test]
fn a_file_of_a_newer_version_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal.db");
    let db = rusqlite::Connection::open(&file).unwrap();
    db.execute_batch("PRAGMA user_version = 99; CREATE TABLE wonders (a)")
        .unwrap();
    drop(db);
    let before = fs::read(&file).unwrap();

    let keeper = Keeper::start(&file).unwrap();
    keeper.journal().note(up("lte"));
    let found = wait(
        || keeper.journal().read(&Wanted::default()),
        |found| !found.is_empty(),
    );
    drop(keeper);

    assert_eq!(events(&found), [up("lte")]);
    assert_eq!(fs::read(&file).unwrap(), before);
}

#[test]
fn it_is_bounded_and_what_came_too_fast_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let keeper = Keeper::start(&dir.path().join("journal.db")).unwrap();
    let journal = keeper.journal();
    let mut noted = 3 * KEPT as u64;

    for number in 0..noted {
        journal.note(up(&format!("link-{number}")));
    }
    while journal.tally().last_gap().is_none() {
        journal.note(failover(1.5));
        noted += 1;
        thread::sleep(Duration::from_millis(5));
    }

    let done = |found: &[Record]| found.len() <= KEPT && journal.tally().last_gap().is_some();
    let found = wait(|| journal.read(&Wanted::default()), done);
    assert!(found.len() <= KEPT);
    let lost: u64 = all(journal)
        .iter()
        .map(|record| match record.event {
            Event::EventsLost { count } => count,
            _ => 0,
        })
        .sum();
    let tally = journal.tally();
    let kept = tally
        .counts()
        .find(|(kind, _)| *kind == "link_up")
        .unwrap()
        .1;
    assert!(
        kept + lost <= noted && kept + 1024 + lost >= KEPT as u64,
        "{kept} {lost}"
    );
    assert_eq!(tally.last_gap(), Some(1.5));
}

#[test]
fn an_event_that_a_later_version_wrote_is_no_obstacle() {
    let text =
        r#"{"id": 7, "time": "2026-11-26T22:00:00Z", "text": "x", "event": "eclipse", "moon": 1}"#;
    let record: Record = serde_json::from_str(text).unwrap();
    assert_eq!(record.event, Event::Other);
    let event = Event::LinkDown {
        link: "lte".into(),
        cause: LinkCause::NoAddress,
        reason: "it has no address".into(),
    };
    let json = serde_json::to_value(&event).unwrap();
    assert_eq!(json["event"], "link_down");
    assert_eq!(event.kind(), "link_down");
    assert_eq!(serde_json::from_value::<Event>(json).unwrap(), event);
}
