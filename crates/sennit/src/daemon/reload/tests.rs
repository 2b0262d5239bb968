use std::{cell::RefCell, fs, sync::LazyLock};

use sennit_linux::poller::Poller;

use super::*;
use crate::{
    config::EdgeConfig,
    control::ConfigOrder,
    daemon::mailbox,
    journal::{Keeper, Wanted},
};

thread_local! {
    /// Whose state has to be locked while this thread reads a file.
    static READS_FOR: RefCell<Option<Arc<Reloader<Text>>>> = const { RefCell::new(None) };
}

/// A daemon whose config is any text.
struct Text(String);

impl Runs for Text {
    type Config = String;

    fn parse(_: &str, source: &[u8]) -> Result<Loaded<String>, Report> {
        READS_FOR.with_borrow(|reloader| {
            let locked = |it: &Arc<Reloader<Self>>| it.state.try_lock().is_err();
            assert!(
                reloader.as_ref().is_none_or(locked),
                "another may overtake it"
            );
        });
        let any = "[edge]\nhub = ['203.0.113.10:443']\n[[link]]\nname = 'a'\ninterface = 'b'\n";
        let warnings = EdgeConfig::parse("edge.toml", any.as_bytes())?.warnings;
        let config = String::from_utf8_lossy(source).into_owned();
        Ok(Loaded { config, warnings })
    }

    fn look_at_host(text: &String) -> Vec<HostFinding> {
        let finding = text.contains("collides").then(|| HostFinding {
            severity: Severity::Error,
            message: "it collides".into(),
            help: None,
            named: None,
        });
        finding.into_iter().collect()
    }

    fn plan(&self, wanted: &String, _: &[Entry]) -> Planned<Self> {
        let change = Change {
            what: "the text".into(),
            before: None,
            after: None,
            place: ("[edge]", None, None),
        };
        Planned {
            next: Self(wanted.clone()),
            changes: (self.0 != *wanted).then_some(change).into_iter().collect(),
            needs_restart: Vec::new(),
        }
    }

    fn named(_: &String) -> (&ApiConfig, &[Notify]) {
        static API: LazyLock<ApiConfig> = LazyLock::new(ApiConfig::default);
        (&API, &[])
    }

    fn parts(&self) -> (&String, &[Entry]) {
        (&self.0, &[])
    }
}

/// Of a daemon whose config names no files.
pub(in crate::daemon) fn secrets() -> Arc<Secrets> {
    let read = Secrets::load(&ApiConfig::default(), &[]);
    read.unwrap().secrets
}

/// Runs with this text, which is in the file.
fn reloader(directory: &Path, text: &str) -> (Arc<Reloader<Text>>, Keeper) {
    let file = directory.join("edge.toml");
    fs::write(&file, text).unwrap();
    let keeper = Keeper::start(&directory.join("journal.db")).unwrap();
    let (running, journal) = (Arc::new(Text(text.into())), keeper.journal().clone());
    let reloader = Reloader::new(file, &running, journal, secrets(), |_| Ok(Applied::Whole));
    (Arc::new(reloader), keeper)
}

#[test]
fn nobody_reloads_between_the_look_at_the_file_and_the_change() {
    let directory = tempfile::tempdir().unwrap();
    let (reloader, _keeper) = reloader(directory.path(), "old");
    fs::write(&reloader.file, "new").unwrap();
    READS_FOR.set(Some(Arc::clone(&reloader)));

    let answer = reloader.try_reload(None);

    READS_FOR.set(None);
    assert!(answer.unwrap().applied);
    assert_eq!(reloader.running().0, "new");
}

#[test]
fn a_text_that_nobody_has_to_confirm_does_not_end_a_trial() {
    let directory = tempfile::tempdir().unwrap();
    let (reloader, _keeper) = reloader(directory.path(), "old");
    let version = edit::version(b"old");
    reloader.apply_text("tried", &version, Some(60)).unwrap();

    for text in ["other", "tried"] {
        let refused = reloader.apply_text(text, &version, None).unwrap_err();
        assert_eq!(refused.code, "waits_to_be_kept");
    }
    assert_eq!(reloader.running().0, "tried");
    assert_eq!(fs::read_to_string(&reloader.file).unwrap(), "old");

    // Another trial may take its place.
    reloader.apply_text("other", &version, Some(60)).unwrap();
    assert_eq!(reloader.running().0, "other");
    assert_eq!(reloader.keep(), Response::done());
    assert_eq!(fs::read_to_string(&reloader.file).unwrap(), "other");
}

#[test]
fn the_first_worker_has_a_letter_when_all_others_have_it() {
    let poller = Poller::new().unwrap();
    let (boxes, slots): (Vec<_>, Vec<_>) = (0..3)
        .map(|token| mailbox::open::<(usize, Done)>(&poller, token).unwrap())
        .unzip();
    let told = thread::scope(|scope| {
        let first = scope.spawn(move || {
            let letter = loop {
                match boxes[0].next() {
                    Some(letter) => break letter,
                    None => thread::yield_now(),
                }
            };
            let others = boxes[1..].iter().filter_map(mailbox::Mailbox::next);
            let all = std::iter::once(letter).chain(others);
            let numbers = all.map(|(number, done)| {
                done.send(()).unwrap();
                number
            });
            numbers.collect::<Vec<usize>>()
        });
        assert_eq!(
            tell_all(&slots, |number, done| (number, done)),
            Applied::Whole
        );
        first.join().unwrap()
    });
    assert_eq!(told, [0, 1, 2]);
}

#[test]
fn what_does_not_fit_the_host_refuses_a_change_unless_it_does_not_fit_already() {
    let directory = tempfile::tempdir().unwrap();
    let (reloader, _keeper) = reloader(directory.path(), "old");
    fs::write(&reloader.file, "it collides").unwrap();
    let answer = reloader.try_reload(None).unwrap();
    assert!(!answer.applied);
    assert_eq!(answer.report, "error: on this host, it collides");

    // As when a lease has come since.
    let running = Arc::new(Text("it collides".into()));
    reloader.lock().running = running;
    fs::write(&reloader.file, "it collides still").unwrap();
    let answer = reloader.try_reload(None).unwrap();
    assert!(answer.applied);
    assert_eq!(answer.report, "warning: on this host, it collides");
    let text = "it collides anew".into();
    let Response::Document(checked) = reloader.handle_config(&ConfigOrder::Check { text }) else {
        panic!("it can be checked");
    };
    assert_eq!(checked["host"][0]["severity"], "warning");
    assert_eq!(checked["valid"], true);
}

#[test]
fn whether_the_last_reload_was_taken_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let (reloader, _keeper) = reloader(directory.path(), "old");
    let successful = || reloader.status().last_reload_successful;
    assert!(successful(), "it has started with it");

    fs::remove_file(&reloader.file).unwrap();
    reloader.reload(None);
    assert!(!successful(), "there is nothing to read");

    fs::write(&reloader.file, "new").unwrap();
    reloader.reload(Some(60));
    assert!(successful());
    reloader.handle_config(&ConfigOrder::Revert);
    assert!(!successful(), "it was taken back");
}

#[test]
fn a_reload_that_a_signal_asks_for_in_vain_is_an_event() {
    let directory = tempfile::tempdir().unwrap();
    let (reloader, keeper) = reloader(directory.path(), "old");
    fs::write(&reloader.file, "it collides").unwrap();

    reloader.hang_up();

    let wanted = Wanted {
        wait_seconds: Some(20),
        ..Wanted::default()
    };
    let told = keeper.journal().read(&wanted).events;
    let text = "the reload was refused, and nothing has changed: error: on this host, it collides";
    assert_eq!(told[0].text, text);
}
