//! A hub that has another address in the next config: the tunnel moves there, and nobody notices.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use sennit_core::{Classifier, Delivery, Policy};
use sennit_engine::{ClassConfig, EdgeEvent, SocketId};
use sennit_sim::{EDGE, SERVER, Stream, World, class, number, udp};

use crate::{MS, SECOND, link};

/// The flow of a [`Stream`], and one of the same ports the other way.
const PORT: u16 = 7;
/// What nobody notices.
const PAUSE: Duration = Duration::from_millis(100);

/// Where the hub is at first, two other addresses of it, and one at which nobody is.
const HOME: &str = "203.0.113.1:443";
const OTHER: &str = "203.0.113.2:443";
const THIRD: &str = "203.0.113.3:443";
const DEAD: &str = "203.0.113.9:443";

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn world(links: &[&str], classes: Vec<ClassConfig>, seed: u64) -> World {
    let all: Vec<_> = links.iter().map(|text| link(text)).collect();
    let begin = Instant::now();
    let mut world = World::with_classes(&all, classes, Classifier::default(), seed, begin);
    world.more_hubs = vec![address(OTHER), address(THIRD)];
    assert!(world.connect(links.len()), "{:?}", world.edge.status());
    world.run(SECOND);
    world
}

fn one(delivery: Delivery) -> Vec<ClassConfig> {
    let mut class = class("default", Policy::Bond);
    class.treatment.delivery = delivery;
    vec![class]
}

fn move_to(world: &mut World, hubs: &[&str]) {
    let hubs: Vec<SocketAddr> = hubs.iter().map(|hub| address(hub)).collect();
    world.set_hubs(&hubs, &[]);
}

/// Where the paths of the first class lead to, if all lead to the same.
fn place(world: &mut World) -> Option<SocketAddr> {
    let paths = world.edge.status().swap_remove(0).paths;
    let first = paths.first()?.remote;
    paths.iter().all(|it| it.remote == first).then_some(first)
}

/// How often the edge said so.
fn count(world: &World, what: fn(&EdgeEvent) -> bool) -> usize {
    let events = world.edge_events.iter();
    events.filter(|(_, event)| what(event)).count()
}

fn moved(world: &World) -> usize {
    count(world, |event| {
        matches!(event, EdgeEvent::TunnelMoved { .. })
    })
}

fn lost(world: &World) -> usize {
    count(world, |event| matches!(event, EdgeEvent::TunnelDown { .. }))
}

/// Packets both ways, one each so often.
struct Both {
    every: Duration,
    len: usize,
    up: Stream,
    sent: u32,
    /// The numbers of what came down, in its order, and the longest time without any.
    down: Vec<u32>,
    last: Instant,
    gap: Duration,
}

impl Both {
    fn new(every: Duration, len: usize, world: &World) -> Self {
        let now = world.now();
        Self {
            every,
            len,
            up: Stream::new(every, len, now),
            sent: 0,
            down: Vec::new(),
            last: now,
            gap: Duration::ZERO,
        }
    }

    fn run(&mut self, world: &mut World, span: Duration) {
        let end = world.now() + span;
        while world.now() < end {
            self.up.run(world, self.every);
            world.send_from_hub(&udp(SERVER, EDGE, PORT, self.sent, self.len));
            self.sent += 1;
            self.take(world);
        }
    }

    fn take(&mut self, world: &mut World) {
        while let Some(arrival) = world.at_edge.pop_front() {
            self.gap = self.gap.max(arrival.at - self.last);
            self.last = arrival.at;
            self.down.extend(number(&arrival.packet));
        }
    }

    fn finish(&mut self, world: &mut World) {
        self.up.finish(world);
        self.take(world);
    }

    /// All packets have come, once each and in their order, and none of them late.
    fn is_whole(&self, what: &str) {
        let up = &self.up;
        println!("{what}: gaps {:?} up, {:?} down", up.longest_gap, self.gap);
        let wrong = (up.lost(), up.duplicates, up.disordered);
        assert_eq!(wrong, (0, 0, 0), "{what}: lost, twice, out of order");
        let all: Vec<u32> = (0..self.sent).collect();
        assert!(
            self.down == all,
            "{what}: {} of {}",
            self.down.len(),
            all.len()
        );
        assert!(up.longest_gap < PAUSE, "{what}: {:?} up", up.longest_gap);
        assert!(self.gap < PAUSE, "{what}: {:?} down", self.gap);
    }
}

/// A change of `hub` waited for a restart, which cut off all classes.
#[test]
fn a_tunnel_moves_to_another_address_of_its_hub_and_loses_nothing() {
    let links: [&[&str]; 3] = [&["20/20"], &["20/20", "20/45"], &["40/5", "40/25", "10/60"]];
    let loads = [(10 * MS, 84), (MS, 600)];
    let deliveries = [Delivery::Datagram, Delivery::Repair, Delivery::Reliable];
    for (links, delivery) in links.iter().flat_map(|it| deliveries.map(|one| (it, one))) {
        for (every, len) in loads {
            let what = format!("{links:?} {delivery} {len}");
            let mut world = world(links, one(delivery), 1);
            let mut both = Both::new(every, len, &world);
            both.run(&mut world, SECOND);
            move_to(&mut world, &[OTHER]);
            both.run(&mut world, 3 * SECOND);
            assert_eq!(place(&mut world), Some(address(OTHER)), "{what}");
            assert_eq!((moved(&world), lost(&world)), (1, 0), "{what}");
            let status = world.edge.status().swap_remove(0);
            assert!(status.up && status.moving.is_none(), "{what}: {status:?}");
            assert_eq!(status.paths.len(), links.len(), "{what}");
            let left = (world.edge.tunnels(), world.hub.tunnels());
            assert_eq!(left, (1, 1), "{what}: the old one is gone");
            both.finish(&mut world);
            both.is_whole(&what);
        }
    }
}

/// What was put back was taken for what had arrived, so that thin packets came with the numbers of
/// others, and these were lost.
#[test]
fn what_is_lost_on_the_way_while_a_tunnel_moves_is_sent_again() {
    let deliveries = [Delivery::Repair, Delivery::Reliable];
    for (seed, delivery) in (1..=8).flat_map(|seed| deliveries.map(|it| (seed, it))) {
        let what = format!("{seed} {delivery}");
        let mut world = world(&["20/20/5%", "20/30/5%"], one(delivery), seed);
        let mut both = Both::new(2 * MS, 300, &world);
        both.run(&mut world, SECOND);
        for hub in [OTHER, THIRD, HOME] {
            move_to(&mut world, &[hub]);
            both.run(&mut world, 2 * SECOND);
        }
        both.finish(&mut world);
        assert_eq!(moved(&world), 3, "{what}");
        both.down.sort_unstable();
        let all: Vec<u32> = (0..both.sent).collect();
        assert!(both.down == all, "{what}: {}", both.down.len());
        assert_eq!((both.up.lost(), both.up.duplicates), (0, 0), "{what}");
    }
}

#[test]
fn a_tunnel_stays_where_it_is_while_nobody_answers_at_the_new_address() {
    let mut world = world(&["20/20", "20/30"], one(Delivery::Repair), 1);
    let mut both = Both::new(10 * MS, 84, &world);
    both.run(&mut world, SECOND);
    move_to(&mut world, &[DEAD]);
    both.run(&mut world, 100 * MS);
    let moving = world.edge.status()[0].moving.clone();
    assert!(moving.expect("it is to move").contains("are tried"));
    both.run(&mut world, 30 * SECOND);
    let status = world.edge.status().swap_remove(0);
    assert!(status.up, "{status:?}");
    let moving = status.moving.expect("it is to move");
    assert!(moving.contains("does not answer on link a, b"), "{moving}");
    assert_eq!(place(&mut world), Some(address(HOME)));

    // A link that comes and goes gets its path as ever.
    world.set_link(1, false);
    both.run(&mut world, 20 * SECOND);
    world.set_link(1, true);
    both.run(&mut world, 5 * SECOND);
    assert_eq!(world.edge.status()[0].paths.len(), 2);

    move_to(&mut world, &[HOME]);
    both.run(&mut world, 3 * SECOND);
    assert_eq!(world.edge.status()[0].moving, None);
    assert_eq!((moved(&world), lost(&world)), (0, 0));
    assert_eq!(world.edge.tunnels(), 1, "nothing is tried any more");
    both.finish(&mut world);
    both.is_whole("dead");
}

/// Runs until the hub is asked for the tunnel at an address, where it then says nothing more.
fn ask_in_vain(world: &mut World, hub: &str) {
    move_to(world, &[hub]);
    let asks = world.run_until(SECOND, |world| {
        let moving = world.edge.status().swap_remove(0).moving;
        moving.is_some_and(|why| why.contains("is asked"))
    });
    assert!(asks, "{:?}", world.edge.status());
}

/// The hub took what the edge had given up for the tunnel, and closed the other one after ten
/// seconds as replaced: the edge thought of another box, and did nothing for half a minute.
#[test]
fn a_tunnel_of_whose_grant_nobody_hears_is_soon_replaced() {
    for hub_hears in [true, false] {
        let mut world = world(&["20/20", "20/30"], one(Delivery::Repair), 1);
        let mut both = Both::new(10 * MS, 84, &world);
        ask_in_vain(&mut world, OTHER);
        world.lost_from = Some(address(OTHER));
        both.run(&mut world, 200 * MS);
        assert_eq!(world.hub.status().len(), 1);
        world.lost_to = Some(address(OTHER)).filter(|_| !hub_hears);
        both.run(&mut world, 5 * SECOND);
        assert_eq!(lost(&world), usize::from(hub_hears));
        both.run(&mut world, 7 * SECOND);
        assert_eq!(lost(&world), 1, "{hub_hears}");
        let others = count(&world, |event| match event {
            EdgeEvent::TunnelDown { reason, .. } => reason.contains("another box"),
            _ => false,
        });
        assert_eq!(others, 0, "{hub_hears}");
        (world.lost_from, world.lost_to) = (None, None);
        both.run(&mut world, 6 * SECOND);
        assert_eq!(place(&mut world), Some(address(OTHER)), "{hub_hears}");
        let before = (both.up.arrived(), both.down.len());
        both.run(&mut world, SECOND);
        assert!(both.up.arrived() > before.0 && both.down.len() > before.1);
    }
}

/// The tunnel that carries was asked for a sign of life in place of the one that did not answer.
#[test]
fn an_address_that_dies_after_it_was_asked_is_soon_given_up_for_another() {
    let mut world = world(&["20/20", "20/30"], one(Delivery::Repair), 1);
    let mut both = Both::new(10 * MS, 84, &world);
    world.is_slow_to_grant = true;
    ask_in_vain(&mut world, OTHER);
    both.run(&mut world, 300 * MS);
    world.is_slow_to_grant = false;
    world.lost_to = Some(address(OTHER));
    move_to(&mut world, &[OTHER, THIRD]);
    both.run(&mut world, 2500 * MS);
    assert_eq!(place(&mut world), Some(address(THIRD)));
    assert_eq!((moved(&world), lost(&world)), (1, 0));
    both.finish(&mut world);
    both.is_whole("asked");
}

/// The one that is asked for may have been granted, so that the hub sends over it already.
#[test]
fn a_list_that_changes_again_at_once_costs_nothing() {
    let seconds = [HOME, THIRD, DEAD];
    let delays = [0, 5, 20, 45, 60, 85, 110, 200, 600];
    for (second, delay) in seconds
        .iter()
        .flat_map(|it| delays.map(|delay| (it, delay)))
    {
        let what = format!("{second} after {delay} ms");
        let mut world = world(&["20/20", "20/30"], one(Delivery::Repair), delay.into());
        let mut both = Both::new(5 * MS, 84, &world);
        both.run(&mut world, SECOND);
        move_to(&mut world, &[OTHER]);
        both.run(&mut world, delay * MS);
        move_to(&mut world, &[second]);
        both.run(&mut world, 4 * SECOND);
        if *second == DEAD {
            assert!(world.edge.status()[0].moving.is_some(), "{what}");
            move_to(&mut world, &[THIRD]);
            both.run(&mut world, 4 * SECOND);
        } else {
            assert_eq!(place(&mut world), Some(address(second)), "{what}");
        }
        assert_eq!(world.edge.status()[0].moving, None, "{what}");
        assert_eq!(lost(&world), 0, "{what}");
        let left = (world.edge.tunnels(), world.hub.status().len());
        assert_eq!(left, (1, 1), "{what}");
        both.finish(&mut world);
        both.is_whole(&what);
    }
}

/// Whoever changes the address of a hub may do so because the old one is dead.
#[test]
fn a_tunnel_that_is_cut_off_moves_at_once() {
    for after in [100, 1000, 2000, 8000, 60_000] {
        let mut world = world(&["20/20", "20/30"], one(Delivery::Reliable), 1);
        let mut both = Both::new(10 * MS, 84, &world);
        both.run(&mut world, SECOND);
        world.lost_to = Some(address(HOME));
        both.run(&mut world, after * MS);
        move_to(&mut world, &[OTHER]);
        let before = both.up.arrived();
        both.run(&mut world, 500 * MS);
        assert!(
            both.up.arrived() > before,
            "{after} ms: {:?}",
            world.edge.status()
        );
        both.run(&mut world, 3 * SECOND);
        assert_eq!(place(&mut world), Some(address(OTHER)), "{after} ms");
        both.finish(&mut world);
        assert_eq!(
            (both.up.duplicates, both.up.disordered),
            (0, 0),
            "{after} ms"
        );
        // What waited for longer is too old to be sent.
        if after < 5000 {
            assert_eq!(both.up.lost(), 0, "{after} ms");
            let all: Vec<u32> = (0..both.sent).collect();
            assert!(both.down == all, "{after} ms: {}", both.down.len());
        }
    }
}

#[test]
fn a_tunnel_whose_address_is_still_in_the_list_is_not_touched() {
    let mut world = world(&["20/20", "20/30"], one(Delivery::Repair), 1);
    let mut both = Both::new(10 * MS, 84, &world);
    both.run(&mut world, SECOND);
    for hubs in [
        &[OTHER, HOME][..],
        &[HOME, DEAD],
        &[DEAD, THIRD, HOME],
        &[HOME],
    ] {
        move_to(&mut world, hubs);
        both.run(&mut world, 2 * SECOND);
        assert_eq!(place(&mut world), Some(address(HOME)));
        assert_eq!((world.edge.tunnels(), moved(&world)), (1, 0));
    }
    both.finish(&mut world);
    both.is_whole("stays");
}

/// Each class has a tunnel of its own, and moves by itself.
#[test]
fn all_classes_move() {
    let classes = ["default", "calls", "bulk"].map(|name| class(name, Policy::Redundant));
    let mut world = world(&["20/20", "20/30"], classes.into(), 1);
    let mut both = Both::new(10 * MS, 84, &world);
    both.run(&mut world, SECOND);
    move_to(&mut world, &[DEAD, OTHER]);
    both.run(&mut world, 5 * SECOND);
    for status in world.edge.status() {
        assert!(status.up && status.moving.is_none(), "{status:?}");
        assert!(status.paths.iter().all(|it| it.remote == address(OTHER)));
    }
    assert_eq!((moved(&world), lost(&world)), (3, 0));
    both.finish(&mut world);
    both.is_whole("classes");
}

/// What the hub was asked for may not be what the class is to have by the time it is granted.
#[test]
fn a_class_that_changes_while_it_moves_is_as_the_config_says_at_both_ends() {
    for delay in [0, 30, 60, 90, 120] {
        let mut world = world(&["20/20", "20/30"], one(Delivery::Repair), 1);
        let mut both = Both::new(10 * MS, 84, &world);
        both.run(&mut world, SECOND);
        move_to(&mut world, &[OTHER]);
        both.run(&mut world, delay * MS);
        world.reload(|classes| {
            for class in classes.values_mut() {
                class.treatment.policy = Policy::Redundant;
            }
        });
        both.run(&mut world, 3 * SECOND);
        let ends = [world.edge.status(), world.hub.status()];
        for status in &ends {
            assert_eq!(status[0].treatment.policy, Policy::Redundant, "{delay} ms");
        }
        assert_eq!(place(&mut world), Some(address(OTHER)), "{delay} ms");
        both.finish(&mut world);
        both.is_whole(&format!("changed after {delay} ms"));
    }
}

/// What a name means may change from day to day, which is no reason to move.
#[test]
fn a_tunnel_to_a_name_of_the_hub_moves_when_the_name_is_gone() {
    const NAME: &str = "hub.example:443";
    let mut world = world(&["20/20", "20/30"], one(Delivery::Repair), 1);
    let mut both = Both::new(10 * MS, 84, &world);
    let resolve = |world: &mut World, to: &str| {
        for link in 0..2 {
            let found = vec![(NAME.into(), address(to))];
            let now = world.now();
            world.edge.handle_resolved(SocketId(link), found, now);
        }
    };
    both.run(&mut world, SECOND);
    // A name that means what was there before: nothing moves.
    world.set_hubs(&[], &[NAME]);
    both.run(&mut world, 100 * MS);
    resolve(&mut world, HOME);
    both.run(&mut world, 2 * SECOND);
    assert_eq!((moved(&world), world.edge.tunnels()), (0, 1));

    move_to(&mut world, &[OTHER]);
    both.run(&mut world, 2 * SECOND);
    world.set_hubs(&[], &[NAME]);
    resolve(&mut world, THIRD);
    both.run(&mut world, 2 * SECOND);
    assert_eq!(place(&mut world), Some(address(THIRD)));
    resolve(&mut world, HOME);
    both.run(&mut world, 2 * SECOND);
    assert_eq!(
        (moved(&world), place(&mut world)),
        (2, Some(address(THIRD)))
    );

    world.set_hubs(&[address(OTHER)], &[]);
    // Somebody who still looked for the name is too late.
    resolve(&mut world, HOME);
    both.run(&mut world, 2 * SECOND);
    assert_eq!(
        (moved(&world), place(&mut world)),
        (3, Some(address(OTHER)))
    );
    both.finish(&mut world);
    both.is_whole("names");
}

/// The links have no family in common, so the paths of one tunnel lead to two addresses.
#[test]
fn a_path_to_an_address_that_is_gone_gives_way_to_one_to_another() {
    let [before, after] = ["[2001:db8::1]:443", "[2001:db8::2]:443"].map(address);
    let links = ["20/10", "20/30"].map(link);
    let mut world = World::with_dead_hubs(&links, &[before], 1, Instant::now());
    world.more_hubs = vec![before, after];
    world.move_to(1, "2001:db8:9::2".parse().expect("an address"));
    world.set_families(1, false, true);
    assert!(world.connect(2), "{:?}", world.edge.status());
    let mut both = Both::new(10 * MS, 84, &world);
    both.run(&mut world, SECOND);
    let leads = |world: &mut World| -> Vec<SocketAddr> {
        let paths = world.edge.status().swap_remove(0).paths;
        paths.iter().map(|path| path.remote).collect()
    };
    assert_eq!(leads(&mut world), [address(HOME), before]);
    world.set_hubs(&[after, address(HOME)], &[]);
    both.run(&mut world, 3 * SECOND);
    assert_eq!(leads(&mut world), [address(HOME), after]);
    assert_eq!((moved(&world), world.edge.tunnels()), (0, 1));
    both.finish(&mut world);
    both.is_whole("paths");
}
