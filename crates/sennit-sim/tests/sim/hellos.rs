//! Post-quantum handshakes, and boxes that their size is too much for.

use std::time::{Duration, Instant};

use rustls::NamedGroup;
use sennit_core::Policy;
use sennit_sim::{LinkSpec, World};

use crate::{MS, SECOND};

fn link() -> LinkSpec {
    "20/20".parse().expect("it is a link")
}

fn group(world: &mut World) -> (Option<NamedGroup>, bool) {
    let status = world.edge.status().remove(0);
    (status.group, status.fell_back)
}

#[test]
fn both_ends_know_that_the_key_exchange_is_post_quantum() {
    let mut world = World::new(&[link()], Policy::Bond, 1, Instant::now());

    assert!(world.connect(1));

    let wanted = (Some(NamedGroup::X25519MLKEM768), false);
    assert_eq!(group(&mut world), wanted);
    assert_eq!(world.hub.status()[0].group, wanted.0);
}

#[test]
fn where_a_box_drops_large_hellos_the_third_handshake_is_classic_as_well() {
    let mut world = World::with_hello_boxes(&[link()], &[0], true, 1, Instant::now());

    let up = world.run_until(SECOND * 20, |world| world.edge.status()[0].up);

    assert!(up, "a classic hello is one packet");
    assert!(world.elapsed() >= SECOND * 8, "two post-quantum ones first");
    assert!(world.elapsed() <= SECOND * 11, "{:?}", world.elapsed());
    assert_eq!(group(&mut world), (Some(NamedGroup::X25519), true));
}

#[test]
fn without_a_classic_offer_no_hello_passes_such_a_box() {
    let mut world = World::with_hello_boxes(&[link()], &[0], false, 1, Instant::now());

    let up = world.run_until(SECOND * 20, |world| world.edge.status()[0].up);

    assert!(!up, "the box does what it is for");
}

/// Whichever of the two handshakes of the race was heard first decided.
#[test]
fn a_hub_that_was_away_for_long_is_no_box_that_drops_large_hellos() {
    for tenths in (260..=440).step_by(7) {
        let mut world = World::with_hello_boxes(&[link()], &[], true, 1, Instant::now());
        world.blackhole(0, true);
        world.restart_edge();
        world.run(Duration::from_millis(100) * tenths);
        world.blackhole(0, false);

        let up = world.run_until(SECOND * 10, |world| world.edge.status()[0].up);

        assert!(up, "{tenths}");
        let post_quantum = (Some(NamedGroup::X25519MLKEM768), false);
        assert_eq!(group(&mut world), post_quantum, "{tenths}");
    }
}

#[test]
fn beside_a_link_with_such_a_box_another_one_connects_at_once_and_both_carry() {
    let mut world = World::with_hello_boxes(&[link(), link()], &[0], true, 1, Instant::now());

    assert!(world.connect(2), "a path needs no hello");

    assert!(world.elapsed() < SECOND * 2, "{:?}", world.elapsed());
    assert_eq!(group(&mut world), (Some(NamedGroup::X25519MLKEM768), false));
}

/// It need not wait for a probe timeout: what the second one brings asks for it.
#[test]
fn a_large_hello_whose_first_packet_is_lost_is_repaired_by_what_the_second_brings() {
    let took = |lost| {
        let mut world = World::new(&[link()], Policy::Bond, 1, Instant::now());
        assert!(world.connect(1));
        world.lose_next(0, lost);
        let begun = world.now();
        world.restart_edge();
        assert!(world.run_until(SECOND * 5, |world| world.edge.status()[0].up));
        world.now() - begun
    };
    let [without, with] = [took(0), took(1)];
    println!("{without:?}, with a loss {with:?}");
    assert!(with < without + MS * 60, "{without:?}, {with:?}");
}
