//! What a hub tells of its tunnels when it is asked.

use std::{collections::BTreeSet, time::Instant};

use sennit_core::{Classifier, Policy};
use sennit_engine::{
    facts::FlowsWanted,
    hub::{AT_ONCE, Walk},
};
use sennit_sim::{World, class};

use crate::link;

/// The tunnels of so many classes.
const CLASSES: usize = AT_ONCE + 4;

#[test]
fn a_hub_tells_of_some_tunnels_in_each_turn_and_of_each_class_once() {
    let classes = (0..CLASSES).map(|number| class(&format!("class-{number}"), Policy::Bond));
    let (classes, rules) = (classes.collect(), Classifier::default());
    let mut world = World::with_classes(&[link("50/10")], classes, rules, 1, Instant::now());
    assert!(world.connect(1), "{:?}", world.edge.status());
    let (mut walk, wanted) = (Walk::default(), FlowsWanted::default());

    let now = world.now();
    let first = world.hub.status_of_next(&mut walk, &wanted, now);
    assert_eq!((first.len(), walk.is_over()), (AT_ONCE, false));

    // All classes have other tunnels by the next turn.
    world.restart_edge();
    assert!(world.connect(1), "{:?}", world.edge.status());
    let now = world.now();
    let rest = world.hub.status_of_next(&mut walk, &wanted, now);
    assert_eq!((rest.len(), walk.is_over()), (CLASSES - AT_ONCE, true));
    let told: BTreeSet<String> = first.into_iter().chain(rest).map(|it| it.class).collect();
    assert_eq!(told.len(), CLASSES);
}
