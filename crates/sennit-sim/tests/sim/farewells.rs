//! What connections that are over still send.

use std::{collections::VecDeque, net::SocketAddr, time::Instant};

use bytes::BytesMut;
use sennit_core::{Congestion, Policy};
use sennit_engine::{Bare, BareConfig, BareEvent, BareReceived, ConnId, Ended};
use sennit_sim::{Authority, EDGE, HUB_NAME, SERVER, World, udp};

use crate::{MS, SECOND, link};

/// One way.
const DELAY: u32 = 50;
/// Whatever is to be said is said by then.
const LONG: u32 = 3000;

/// A client and a server without a tunnel, on a link without limit.
struct Pair {
    ends: [Bare; 2],
    /// What is on its way to each.
    coming: [VecDeque<(Instant, BytesMut)>; 2],
    /// Packets that each has sent.
    sent: [usize; 2],
    events: [Vec<BareEvent>; 2],
    /// Nothing reaches the client.
    deaf: bool,
    now: Instant,
}

const CLIENT: usize = 0;
const SERVER_END: usize = 1;

fn address(end: usize) -> SocketAddr {
    ([10, 0, 0, end as u8 + 1], 4774).into()
}

impl Pair {
    /// The client has begun a handshake.
    fn new() -> (Self, ConnId) {
        let config = |seed| BareConfig {
            congestion: Congestion::Auto,
            idle: SECOND * 10,
            seed: [seed; 32],
            reset_key: [seed; 32],
            most: 10,
            most_per_address: 10,
        };
        let (authority, now) = (Authority::new(), Instant::now());
        let server = Bare::server(config(2), authority.server()).expect("it has the suite");
        let mut client = Bare::client(config(1));
        let id = client.connect(authority.client(), address(SERVER_END), HUB_NAME, now);
        let pair = Self {
            ends: [client, server],
            coming: Default::default(),
            sent: [0; 2],
            events: Default::default(),
            deaf: false,
            now,
        };
        (pair, id.expect("it may connect"))
    }

    /// Lets a millisecond pass; what the ends make of what has come by then leaves with the next.
    fn step(&mut self) {
        self.flush();
        self.now += MS;
        for end in [CLIENT, SERVER_END] {
            while let Some((_, packet)) = self.coming[end].pop_front_if(|(at, _)| *at <= self.now) {
                let from = BareReceived {
                    local: None,
                    remote: address(1 - end),
                    ecn: 0,
                    segment: packet.len(),
                    arrived: self.now,
                };
                if end != CLIENT || !self.deaf {
                    self.ends[end].handle_datagrams(from, packet, self.now);
                }
            }
            self.ends[end].handle_timeout(self.now);
            self.events[end].extend(std::iter::from_fn(|| self.ends[end].poll_event()));
        }
    }

    fn flush(&mut self) {
        let mut buffer = Vec::new();
        for end in [CLIENT, SERVER_END] {
            while let Some(transmit) = self.ends[end].poll_transmit(&mut buffer, self.now) {
                let size = transmit.segment.unwrap_or(transmit.size);
                for packet in buffer.chunks(size) {
                    self.sent[end] += 1;
                    self.coming[1 - end].push_back((self.now + MS * DELAY, packet.into()));
                }
                buffer.clear();
            }
        }
    }

    fn step_until(&mut self, end: usize, event: impl Fn(&BareEvent) -> bool) {
        let until = self.now + SECOND * 5;
        while !self.events[end].iter().any(&event) {
            assert!(self.now < until, "{:?}", self.events);
            self.step();
        }
    }
}

/// Its pacer lets one packet through at a time, which was a padded CLOSE of the first packet number
/// space each time: 52 of them.
#[test]
fn a_client_that_closes_with_its_handshake_done_completes_it_and_says_so_once() {
    let (mut pair, id) = Pair::new();
    pair.step_until(CLIENT, |event| matches!(event, BareEvent::Connected(_)));
    let before = pair.sent;

    pair.ends[CLIENT].close(id, 7, "enough", pair.now);
    for _ in 0..LONG {
        pair.step();
    }

    let [client, server] = [0, 1].map(|end| pair.sent[end] - before[end]);
    assert!(client <= 5 && server <= 4, "{client} {server}");
    let told = &pair.events[SERVER_END];
    assert!(
        matches!(
            &told[..],
            [
                BareEvent::Accepted(..),
                BareEvent::Lost(_, Ended::ByPeer(7, _))
            ]
        ),
        "{told:?}"
    );
    assert!(pair.ends.iter().all(Bare::is_empty));
}

#[test]
fn a_client_that_closes_before_its_handshake_is_done_says_so_once() {
    let (mut pair, id) = Pair::new();
    pair.step();
    pair.ends[CLIENT].close(id, 7, "enough", pair.now);
    let before = pair.sent[CLIENT];

    for _ in 0..LONG {
        pair.step();
    }

    let after = pair.sent[CLIENT] - before;
    assert!(after <= 3, "{after}");
}

#[test]
fn a_closed_connection_answers_fewer_and_fewer_of_the_packets_that_still_come() {
    let (mut pair, id) = Pair::new();
    pair.step_until(SERVER_END, |event| matches!(event, BareEvent::Accepted(..)));
    let Some(&BareEvent::Accepted(theirs, _)) = pair.events[SERVER_END].first() else {
        panic!("it came first");
    };
    pair.step();
    pair.deaf = true;
    pair.ends[SERVER_END].close(theirs, 7, "enough", pair.now);
    let before = pair.sent;

    for _ in 0..200 {
        pair.ends[CLIENT].send_datagram(id, [0; 20][..].into());
        pair.step();
    }

    let [client, server] = [0, 1].map(|end| pair.sent[end] - before[end]);
    assert!(client >= 100 && server <= 10, "{client} {server}");
}

#[test]
fn so_does_a_tunnel() {
    let mut world = World::new(&[link("100/20")], Policy::Bond, 1, Instant::now());
    assert!(world.connect(1));
    world.run(SECOND);
    world.blackhole_one_way(0, false, true);
    let before = world.bytes_down(0);

    world.hub.close(world.now());
    for number in 0..100 {
        world.send_from_edge(&udp(EDGE, SERVER, 5000, number, 100));
        world.run(MS);
    }

    let bytes = world.bytes_down(0) - before;
    assert!((1..1000).contains(&bytes), "{bytes}");
}
