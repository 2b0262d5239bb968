//! The history of a running daemon.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sennit::control::{Ask, Refused, Request, Response};
use sennit::history::{Archive, History, Recorder, Step};
use sennit::status::Status;

const PATIENCE: Duration = Duration::from_secs(20);

/// An edge that sends a megabyte more each time that it is asked.
#[derive(Default)]
struct Sending(AtomicU64);

impl Ask for Sending {
    fn status(&self, _: &Request) -> Result<Status, Refused> {
        let asked = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        let mut status: Status = serde_json::from_str(include_str!("schema/full.json")).unwrap();
        status.links[0].traffic.sent_bytes = asked * 1_000_000;
        status.tunnels[0].sent_bytes = asked * 900_000;
        Ok(status)
    }

    fn answer(&self, _: Request) -> Response {
        Response::done()
    }
}

/// Waits until there are seconds.
fn seconds(archive: &Archive) -> History {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match archive.read(Step::Second, 60, None) {
            Ok(history) if !history.series.is_empty() => return history,
            other => assert!(Instant::now() < deadline, "{other:?}"),
        }
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn each_second_is_there_by_link_by_class_and_in_all() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::start(&dir.path().join("h.db"), Arc::<Sending>::default()).unwrap();

    let history = seconds(recorder.archive());

    let names: Vec<&str> = history.series.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["class/default", "link/lte", "total"]);
    let rates = history.series.iter().map(|it| it.sent_bytes_per_second[0]);
    let rates: Vec<f64> = rates.collect();
    assert!((rates[0] / rates[1] - 0.9).abs() < 1e-6, "{rates:?}");
    assert!(rates[1] > 10_000.0, "{rates:?}");
    assert_eq!(history.step_seconds, 1);
}

#[test]
fn a_damaged_file_is_set_aside_and_a_new_one_begun() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("h.db");
    fs::write(
        &path,
        "this is no database, although it is long enough to be looked at",
    )
    .unwrap();
    let recorder = Recorder::start(&path, Arc::<Sending>::default()).unwrap();

    seconds(recorder.archive());

    assert!(dir.path().join("h.db.damaged").exists());
}

#[test]
fn what_a_stopped_daemon_has_seen_is_in_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let ask = Arc::new(Sending::default());
    let recorder = Recorder::start(&dir.path().join("h.db"), Arc::clone(&ask) as _).unwrap();
    let archive = recorder.archive().clone();
    while ask.0.load(Ordering::Relaxed) < 2 {
        thread::sleep(Duration::from_millis(20));
    }

    drop(recorder);

    assert!(
        !archive
            .read(Step::Second, 60, Some("total"))
            .unwrap()
            .series
            .is_empty()
    );
}
