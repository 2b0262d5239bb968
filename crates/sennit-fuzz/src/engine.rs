//! `sennit-engine`: a hub and an edge, in virtual time, on a network that does what the input says.
//!
//! [`hub`] and [`edge`] attack from outside: nobody holds any key but those that QUIC's Initial
//! packets are sealed with, which are no secret (RFC 9001 §5.2). [`hub_peer`] and [`edge_peer`]
//! attack from inside: the other end has completed the handshake, and says whatever it wants.

mod attack;
mod edges;
pub mod hostile;
mod hubs;
mod initial;
mod peer;
mod scene;

use std::time::Duration;

use sennit_engine::Purpose;

use crate::input::Input;
use attack::Attack;
use edges::EdgeSide;
use hubs::HubSide;
use peer::Peer;
use scene::Scene;

/// Longer than any backoff, and than a hub remembers what a site without a connection had.
const PEACE: Duration = Duration::from_secs(400);

/// An edge connects while strangers send to its hub, and its own packets are lost, doubled and
/// changed on the way. Once the strangers have left, the edge is up.
///
/// Script: links (1), then what [`attack`] says.
pub fn hub(data: &[u8]) {
    let mut input = Input::new(data);
    let edge = EdgeSide::new(1 + usize::from(input.byte() % 2), Purpose::Tunnels);
    let mut scene = Scene::new(edge, HubSide::generous());
    Attack::on_hub(&mut input).run(&mut scene);
    let is_up = scene.rest(PEACE, |scene| scene.site.is_up());
    assert!(is_up, "{:?}", scene.site.edge.status());
}

/// Strangers send to an edge, and what its hub sends is meddled with; the edge gets over it.
pub fn edge(data: &[u8]) {
    let mut input = Input::new(data);
    let edge = EdgeSide::new(1 + usize::from(input.byte() % 2), Purpose::Tunnels);
    let mut scene = Scene::new(edge, HubSide::generous());
    Attack::on_edge(&mut input).run(&mut scene);
    let is_up = scene.rest(PEACE, |scene| scene.site.is_up());
    assert!(is_up, "{:?}", scene.site.edge.status());
}

/// A client that does as it pleases on its connection to a hub. Once it has gone, the hub has
/// forgotten it.
///
/// Script: steps as [`peer`] has them.
pub fn hub_peer(data: &[u8]) {
    let mut input = Input::new(data);
    let mut scene = Scene::new(
        Peer::client(scene::START.with(|start| *start)),
        HubSide::slow(),
    );
    scene.rest(Duration::from_secs(1), |scene| scene.site.is_connected());
    while !input.is_empty() {
        let step = input.byte();
        if scene.hub.is_up() {
            scene.site.limit_paths();
        }
        if scene.site.act(step, &mut input, scene.now) {
            scene.hub.act(step, &mut input, scene.now);
        }
        scene.exchange();
        scene.hub.check_status();
    }
    scene.site.vanish();
    scene.rest(PEACE, |_| false);
    scene.hub.check_forgotten(scene.now);
}

/// A hub that does as it pleases on the connections of an edge. Once an honest one is there in its
/// place, the edge is up.
///
/// Script: purpose (1), then steps as [`peer`] has them.
pub fn edge_peer(data: &[u8]) {
    let mut input = Input::new(data);
    let enrols = input.byte() % 4 == 3;
    let purpose = if enrols {
        Purpose::Enrol(b"request"[..].into())
    } else {
        Purpose::Tunnels
    };
    let mut scene = Scene::new(EdgeSide::new(1, purpose), Peer::server());
    scene.rest(Duration::from_secs(1), |scene| scene.hub.is_connected());
    while !input.is_empty() {
        let step = input.byte();
        if scene.hub.act(step, &mut input, scene.now) {
            scene.site.act(step, &mut input, scene.now);
        }
        scene.exchange();
    }
    if enrols {
        return;
    }
    let mut scene = scene.with_hub(HubSide::generous());
    let is_up = scene.rest(PEACE, |scene| scene.site.is_up());
    assert!(is_up, "{:?}", scene.site.edge.status());
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use noq_proto::Dir;
    use rustls::Side;
    use sennit_masque::capsule::{AssignedAddress, IpAddressRange, RefusedPrefix};
    use sennit_masque::{Capsule, Connection, IpPrefix, Output, ResponseHead, Settings, StreamId};
    use sennit_masque::{connect_ip, varint};

    use super::initial::Ids;
    use super::scene::{HUB, STRANGER, Wire};
    use super::*;

    #[test]
    fn a_client_that_wants_nothing_is_sent_away() {
        let client = Peer::client(scene::START.with(|start| *start));
        let mut scene = Scene::new(client, HubSide::slow());
        let second = Duration::from_secs(1);
        assert!(scene.rest(second, |scene| scene.site.is_connected()));
        assert!(!scene.rest(9 * second, |scene| scene.site.is_closed()));
        assert!(scene.rest(2 * second, |scene| scene.site.is_closed()));
    }

    /// What a client says on its control stream, and to ask for a tunnel.
    fn request() -> (Bytes, Bytes) {
        let mut http = Connection::client();
        http.remember(Settings {
            enable_connect_protocol: true,
            h3_datagram: true,
            ..Settings::default()
        });
        let head = connect_ip::request("hub:443", &connect_ip::Scope::ANY.path());
        http.send_request(StreamId(0), &head, None).expect("it may");
        match (http.poll_output(), http.poll_output()) {
            (Some(Output::Control(control)), Some(Output::Send { bytes, .. })) => (control, bytes),
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn capsules_that_come_in_tens_of_thousands_are_handled_few_at_a_time_and_all_in_the_end() {
        const COUNT: usize = 40_000;
        let range = IpAddressRange::new([10, 9, 0, 0].into(), [10, 9, 0, 255].into(), 0);
        let announcements = [vec![range.expect("it is one")], vec![]].map(|ranges| {
            let mut capsule = Vec::new();
            let announcement = Capsule::RouteAdvertisement(ranges);
            announcement.encode(&mut capsule).expect("it is small");
            capsule
        });
        let capsules = announcements.concat().repeat(COUNT / 2);
        let mut data = vec![0];
        varint::put(&mut data, capsules.len() as u64);
        let mut data = Bytes::from([data, capsules].concat());
        let (mut control, mut request) = request();

        let client = Peer::client(scene::START.with(|start| *start));
        let mut scene = Scene::new(client, HubSide::generous());
        let second = Duration::from_secs(1);
        assert!(scene.rest(second, |scene| scene.site.is_connected()));
        scene.site.say(Dir::Uni, &mut control);
        let stream = scene.site.say(Dir::Bi, &mut request);
        assert!(scene.rest(second, |scene| scene.hub.is_up()));

        // The hub's side asserts that it is never asked for much at once.
        let all = scene.rest(60 * second, |scene| {
            scene.site.go_on(stream, &mut data);
            scene.hub.announcements == COUNT
        });
        assert!(all, "{} of {COUNT}", scene.hub.announcements);
        // A frame that the client has not asked for would have ended the connection.
        assert!(!scene.site.is_closed(), "it does not ask where it is seen");
    }

    /// What a hub says on its control stream, and to grant a tunnel.
    fn grant() -> (Bytes, Bytes) {
        let (control, asked) = request();
        let mut http = Connection::server();
        http.handle_stream_data(StreamId(2), control, false);
        http.handle_stream_data(StreamId(0), asked, false);
        let mut head = ResponseHead::new(200);
        head.fields = connect_ip::response_fields();
        http.respond(StreamId(0), &head, false).expect("it may");
        let (mut own, mut answer) = (Bytes::new(), Bytes::new());
        while let Some(output) = http.poll_output() {
            match output {
                Output::Control(bytes) => own = bytes,
                Output::Send { bytes, .. } => answer = bytes,
                other => unreachable!("{other:?}"),
            }
        }
        (own, answer)
    }

    #[test]
    fn a_hub_that_says_something_else_all_the_time_has_the_host_changed_a_few_times_a_second() {
        const SECONDS: u32 = 5;
        let capsule = |capsule: Capsule| {
            let mut bytes = Vec::new();
            capsule.encode(&mut bytes).expect("it is not too large");
            bytes
        };
        let assigned = |last: u8| {
            let of = |third: u8| AssignedAddress {
                request_id: 0,
                prefix: IpPrefix::host([10, 200, third, last].into()),
            };
            capsule(Capsule::AddressAssign((0..200).map(of).collect()))
        };
        let refused = |reason: &str| {
            let refused = RefusedPrefix {
                prefix: IpPrefix::new([192, 168, 8, 0].into(), 24).expect("it is one"),
                reason: reason.into(),
            };
            capsule(Capsule::RefusedLan(vec![refused; 300]))
        };
        let all = [assigned(1), assigned(2), refused("no"), refused("never")].concat();
        let mut frame = vec![0];
        varint::put(&mut frame, all.len() as u64);
        let frame = Bytes::from([frame, all].concat());
        let (mut control, mut said) = grant();

        let mut scene = Scene::new(EdgeSide::new(1, Purpose::Tunnels), Peer::server());
        let second = Duration::from_secs(1);
        assert!(scene.rest(second, |scene| scene.hub.is_connected()));
        scene.hub.say(Dir::Uni, &mut control);
        let stream = noq_proto::StreamId::new(noq_proto::Side::Client, Dir::Bi, 0);
        let mut frames = 0;
        scene.rest(SECONDS * second, |scene| {
            assert!(!scene.hub.is_closed(), "{:?}", scene.site.edge.status());
            scene.hub.go_on(stream, &mut said);
            if said.is_empty() {
                said = frame.clone();
                frames += 1;
            }
            false
        });

        assert!(scene.site.is_up() && frames > 100, "{frames}");
        let (most, changes) = (2 * 4 * (SECONDS as usize + 1), scene.site.changes);
        assert!((most / 2..=most).contains(&changes), "{changes}");
        assert_eq!(scene.site.edge.addresses().len(), 16);
        assert_eq!(scene.site.edge.refused_lan().len(), 1);
        let observed = scene.site.edge.status()[0].paths[0].observed;
        assert_eq!(
            observed, None,
            "this hub does not tell where it sees an edge"
        );
    }

    #[test]
    fn packets_with_a_forged_source_lock_nobody_out() {
        let mut scene = Scene::new(EdgeSide::new(1, Purpose::Tunnels), HubSide::generous());
        for client in 0..100_u8 {
            let script = [client];
            let mut input = Input::new(&script);
            let wire = Wire {
                from: STRANGER,
                to: HUB,
                bytes: Ids::of_client(&mut input).seal(Side::Client, &mut input),
            };
            scene.deliver(wire);
        }
        let is_up = scene.rest(Duration::from_secs(1), |scene| scene.site.is_up());
        assert!(is_up, "{:?}", scene.site.edge.status());
    }
}
