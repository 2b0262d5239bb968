//! Some minutes of chaos.

use std::time::Duration;

use sennit_sim::chaos::{self, Mishaps, Summary};

fn play(seed: u64, seconds: u64) {
    let summary = play_with(seed, seconds, Mishaps::OfLinks);
    assert!(summary.arrived > summary.sent / 4, "{summary:?}");
}

fn play_with(seed: u64, seconds: u64, mishaps: Mishaps) -> Summary {
    let run = chaos::run(seed, Duration::from_secs(seconds), mishaps);
    run.unwrap_or_else(|broken| panic!("{broken}"))
}

#[test]
fn whatever_happens_to_links_and_ends_the_rules_hold() {
    for seed in [1, 2, 3, 4, 6, 8] {
        play(seed, 90);
    }
}

/// An attempt that was closed in the moment in which it won was waited for, and no other was made.
#[test]
fn an_edge_goes_on_dialling_after_an_attempt_that_won_too_late() {
    play(19, 180);
}

/// An edge that started anew on small links had no answer for as long as packets flowed.
#[test]
fn a_tunnel_on_small_links_is_back_while_packets_flow() {
    for seed in [5, 17] {
        play(seed, 180);
    }
}

/// What had arrived and was not acknowledged came out again by the tunnel that took another's
/// place.
#[test]
fn nothing_comes_out_twice_where_a_tunnel_takes_anothers_place() {
    for seed in [7, 21] {
        play(seed, 180);
    }
}

#[test]
fn several_sites_on_machines_that_stand_still_break_no_rule() {
    for seed in [1, 2, 3] {
        let summary = play_with(seed, 90, Mishaps::All);
        assert!(summary.faults.contains_key("stall"), "{summary:?}");
        assert!(summary.sites > 1 && summary.forged > 50, "{summary:?}");
    }
}

/// Caps and rates that are looked for, with more to send than they give.
#[test]
fn the_rules_hold_where_links_are_shared_and_full() {
    for seed in [2, 4] {
        let summary = play_with(seed, 120, Mishaps::All);
        assert!(summary.load > 100, "{summary:?}");
    }
}

#[test]
fn a_site_that_bonds_is_never_below_its_best_link() {
    for seed in [24, 28, 29] {
        let summary = play_with(seed, 90, Mishaps::All);
        assert!(!summary.best_link.is_empty(), "{summary:?}");
    }
}

/// Classes that change, come and go, links, shares and limits, the hub's address, sites that are
/// revoked, and all of it while keys are renewed.
#[test]
fn reloads_lose_nothing_and_end_no_tunnel() {
    let (mut watched, mut moved, mut invited, mut renewed) = (0, 0, 0, 0);
    for seed in [4, 8, 16, 22, 24] {
        let summary = play_with(seed, 180, Mishaps::All);
        assert!(summary.reloads >= 5, "seed {seed}: {summary:?}");
        watched += summary.watched;
        moved += summary.moved;
        invited += summary.invited;
        renewed = summary.renewed.max(renewed);
    }
    assert!(watched >= 3, "{watched}");
    assert!(moved >= 3 && invited >= 2, "{moved} and {invited}");
    assert!(renewed >= 10, "{renewed}");
}
