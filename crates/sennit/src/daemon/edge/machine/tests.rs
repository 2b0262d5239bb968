use sennit_linux::poller::Poller;

use super::*;
use crate::{
    config,
    daemon::{
        edge::{
            ground::Ground,
            tests::{config, engines},
        },
        mailbox,
    },
    journal::Keeper,
};

fn running(classes: &[&str]) -> Arc<Running> {
    Arc::new(Running::new(config("", classes), config::effective("")))
}

/// The second of two workers, and where the first hears of it.
fn second(running: &Arc<Running>, journal: &Journal) -> (EdgeMachine, Mailbox<Letter>) {
    let poller = Poller::new().unwrap();
    let (first, slot) = mailbox::open(&poller, LETTERS).unwrap();
    let (letters, own_slot) = mailbox::open(&poller, LETTERS).unwrap();
    let (inbox, hatch) = Handoff::open_box(&poller, HANDOFF).unwrap();
    let ground = Ground::loose(&running.config.device);
    let machine = EdgeMachine {
        edge: engines(running, 2).remove(1),
        portion: Portion {
            number: 1,
            workers: 2,
        },
        site: "van".parse().unwrap(),
        links: Links::new(running, false, journal.clone(), ground),
        devices: vec![None],
        questions: mailbox::open(&poller, QUESTIONS).unwrap().0,
        letters,
        letter_slots: [slot, own_slot].into(),
        handoff: Handoff::new(inbox, [hatch].into()),
        resolved: Arc::default(),
        lead: None,
        told: BTreeMap::new(),
        running: Arc::clone(running),
        up: 0,
        journal: journal.clone(),
        moves: std::sync::mpsc::channel().0,
    };
    (machine, first)
}

/// How many tunnels the first worker hears of, letter by letter.
fn told(first: &Mailbox<Letter>) -> Vec<usize> {
    let letters = std::iter::from_fn(|| first.next());
    let told = letters.filter_map(|letter| match letter {
        Letter::Tunnels(1, up) => Some(up),
        _ => None,
    });
    told.collect()
}

#[test]
fn an_engine_that_was_made_under_the_config_of_before_follows_the_present_one() {
    let state = tempfile::tempdir().unwrap();
    let keeper = Keeper::start(&state.path().join("journal.db")).unwrap();
    let (before, after) = (running(&["a", "b"]), running(&["a", "b", "c", "d"]));
    let (mut machine, _) = second(&before, keeper.journal());
    let mut io = Io::new(Arc::new(Poller::new().unwrap()));
    let (now, done) = (Instant::now(), std::sync::mpsc::channel().0);
    let engine = Box::new(engines(&before, 2).remove(1));

    // The first worker has begun anew before it heard of the other config.
    machine.handle_letter(Letter::Change(after, done), &mut io, now);
    let letter = Letter::Engine(engine, machine.site.clone());
    machine.handle_letter(letter, &mut io, now);

    let status = machine.edge.status();
    let classes: Vec<&str> = status.iter().map(|tunnel| &*tunnel.class).collect();
    assert_eq!(classes, ["b", "d"]);
}

#[test]
fn the_first_worker_hears_of_the_tunnels_of_others_and_that_a_new_engine_has_none() {
    let state = tempfile::tempdir().unwrap();
    let keeper = Keeper::start(&state.path().join("journal.db")).unwrap();
    let running = running(&["a", "b"]);
    let (mut machine, first) = second(&running, keeper.journal());
    let mut io = Io::new(Arc::new(Poller::new().unwrap()));
    let now = Instant::now();

    machine.note_tunnel_up("b", "lte", true, now);
    assert_eq!(told(&first), [1]);
    machine.note_tunnel_down("b".into(), "it broke".into(), now);
    machine.note_tunnel_up("b", "lte", true, now);
    assert_eq!(told(&first), [0, 1]);

    let engine = engines(&running, 2).remove(1);
    machine.replace((engine, machine.site.clone()), &mut io, now);

    assert_eq!(told(&first), [0]);
}
