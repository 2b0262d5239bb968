//! What each thing that a client can do costs its hub, and the other sites: a client that was let
//! in does nothing else for a while, beside an edge that is honest.

mod client;
mod tap;
mod weapons;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use sennit_engine::{Grant, Hub, HubClasses, HubConfig, HubEvent, Purpose};
use sennit_packet::IpPacket;
use sennit_sim::EDGE;

use self::client::Client;
use self::weapons::Weapon;
use super::edges::EdgeSide;
use super::scene::{HUB, LINKS, Machine, Scene, Wire, arrival, settings};
use crate::input::Input;

/// The hub's own inner address.
const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 200, 0, 1));

/// Does something, and says how long that took and how many bytes it left allocated.
pub type Meter<'a> = &'a mut dyn FnMut(&mut dyn FnMut()) -> (Duration, i64);

/// What came of it.
#[derive(Clone, Debug)]
pub struct Damage {
    pub weapon: &'static str,
    /// Packets of the client, and of the hub to it, after it was let in.
    pub packets: u64,
    pub answers: u64,
    /// Time that the hub's engine spent on each of those.
    pub cost: Duration,
    /// Streams that the client took back.
    pub resets: u64,
    /// What the hub held at most, and in the end, beside what it held when it was attacked first.
    pub most_bytes: i64,
    pub left_bytes: i64,
    /// Events that the hub's owner heard.
    pub events: u64,
    /// Paths that the hub had of one client, at most.
    pub paths: usize,
    /// Packets of the honest edge, and those that arrived.
    pub sent: u64,
    pub arrived: u64,
    /// Why the client's connection ended, if it did.
    pub ended: Option<String>,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:46} {:7} {:7} {:8.2} {:7} {:7} {:6} {:4}/{:4} {}",
            self.weapon,
            self.packets,
            self.answers,
            self.cost.as_secs_f64() * 1e6,
            self.most_bytes / 1000,
            self.left_bytes / 1000,
            self.events,
            self.arrived,
            self.sent,
            self.ended.as_deref().unwrap_or("-"),
        )
    }
}

/// Tries each weapon for a time.
pub fn hostile(
    span: Duration,
    only: Option<&str>,
    meter: Meter<'_>,
    told: &mut dyn FnMut(&Damage),
) {
    let wanted = |name: &str| only.is_none_or(|only| name.contains(only));
    let weapons = weapons::all().into_iter();
    for (name, weapon) in weapons.filter(|(name, _)| wanted(name)) {
        told(&attack(name, weapon, span, &mut *meter));
    }
}

fn attack(name: &'static str, weapon: Weapon, span: Duration, meter: Meter<'_>) -> Damage {
    let start = super::scene::START.with(|start| *start);
    let crowd = Crowd {
        honest: EdgeSide::new(2, Purpose::Tunnels),
        client: None,
    };
    let mut scene = Scene::new(crowd, Host::new(meter));
    let second = Duration::from_secs(1);
    assert!(scene.rest(10 * second, |scene| scene.hub.sites == 1));
    scene.site.client = Some(Client::new(weapon, scene.now));
    assert!(scene.rest(second, |scene| scene.site.client().is_connected));
    scene.site.client().ask();
    assert!(scene.rest(second, |scene| scene.hub.sites == 2));
    scene.hub.begin();
    let end = scene.now + span;
    let (mut sent, mut paths, mut rounds) = (0, 0, 0_u32);
    while scene.now < end && scene.site.client().lost.is_none() {
        scene.site.client().strike(scene.now);
        if sent < (scene.now - start).as_millis() as u64 / 20 {
            sent += 1;
            scene.site.honest.act(0, &mut Input::new(&[]), scene.now);
        }
        scene.round(|wire| vec![wire]);
        rounds += 1;
        if rounds.is_multiple_of(100) {
            let tunnels = scene.hub.hub.status();
            paths = tunnels
                .iter()
                .map(|it| it.paths.len())
                .fold(paths, usize::max);
        }
    }
    let lost = scene.site.client().lost.take();
    let resets = scene.site.client().resets();
    scene.rest(second, |_| false);
    let mut hub = scene.hub;
    let ended = lost.or(hub.ended.take());
    Damage {
        weapon: name,
        packets: hub.packets,
        answers: hub.answers,
        resets,
        cost: hub.spent / u32::try_from(hub.packets.max(1)).unwrap_or(u32::MAX),
        most_bytes: hub.most,
        left_bytes: hub.held,
        events: hub.events,
        paths,
        sent,
        arrived: hub.arrived,
        ended,
    }
}

/// Both sites.
struct Crowd {
    honest: EdgeSide,
    client: Option<Client>,
}

impl Crowd {
    fn client(&mut self) -> &mut Client {
        self.client.as_mut().expect("it is there")
    }
}

impl Machine for Crowd {
    fn handle(&mut self, wire: Wire, now: Instant) {
        if LINKS.contains(&wire.to) {
            self.honest.handle(wire, now);
        } else if let Some(client) = &mut self.client {
            client.handle(wire, now);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.honest.poll_timeout()) {
            self.honest.handle_timeout(now);
        }
        if let Some(client) = &mut self.client
            && due(client.poll_timeout())
        {
            client.handle_timeout(now);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let client = self.client.as_ref().and_then(Client::poll_timeout);
        [self.honest.poll_timeout(), client]
            .into_iter()
            .flatten()
            .min()
    }

    fn drain(&mut self, now: Instant) -> Vec<Wire> {
        let mut wires = self.honest.drain(now);
        wires.extend(self.client.iter_mut().flat_map(|client| client.drain(now)));
        wires
    }
}

/// A hub that lets in whoever asks, and is watched.
struct Host<'a> {
    hub: Hub,
    meter: Meter<'a>,
    sites: u8,
    spent: Duration,
    held: i64,
    most: i64,
    packets: u64,
    answers: u64,
    events: u64,
    arrived: u64,
    /// Why a tunnel ended.
    ended: Option<String>,
}

impl<'a> Host<'a> {
    fn new(meter: Meter<'a>) -> Self {
        let config = HubConfig {
            addresses: vec![OWN],
            max_strangers: 64,
            site_limit: None,
            classes: HubClasses::default(),
            udp_flows: 4,
        };
        let tls = super::peer::AUTHORITY.with(sennit_sim::Authority::server);
        let start = super::scene::START.with(|start| *start);
        Self {
            hub: Hub::new(settings(2), config, tls, start).expect("QUIC's initial suite is there"),
            meter,
            sites: 0,
            spent: Duration::ZERO,
            held: 0,
            most: 0,
            packets: 0,
            answers: 0,
            events: 0,
            arrived: 0,
            ended: None,
        }
    }

    /// What was before does not count.
    fn begin(&mut self) {
        (self.spent, self.held, self.most) = (Duration::ZERO, 0, 0);
        (self.packets, self.answers, self.events, self.arrived) = (0, 0, 0, 0);
    }

    fn watch<T>(&mut self, mut act: impl FnMut(&mut Hub) -> T) -> T {
        let (hub, mut made) = (&mut self.hub, None);
        let (took, bytes) = (self.meter)(&mut || made = Some(act(hub)));
        self.spent += took;
        self.held += bytes;
        self.most = self.most.max(self.held);
        made.expect("it was done")
    }

    fn handle_event(&mut self, event: HubEvent, now: Instant) {
        self.events += 1;
        match event {
            HubEvent::Connect { request, .. } => {
                self.sites += 1;
                let mut grant = Some(Grant {
                    site: format!("site-{}", self.sites).as_str().into(),
                    addresses: vec![Ipv4Addr::new(10, 200, 0, 1 + self.sites).into()],
                    credential: [self.sites; 32],
                    next: None,
                });
                self.watch(|hub| hub.grant(request, grant.take().expect("once"), now));
            }
            HubEvent::Lan { site, prefixes, .. } => {
                let mut lan = Some((site, prefixes));
                self.watch(|hub| {
                    let (site, prefixes) = lan.take().expect("once");
                    hub.set_lan(&site, &prefixes, &[]);
                });
            }
            HubEvent::Udp { request, .. } => {
                self.watch(|hub| hub.grant_udp(request, [7; 32]));
            }
            HubEvent::Enrol { .. }
            | HubEvent::UdpPayload { .. }
            | HubEvent::UdpEnded { .. }
            | HubEvent::TunnelUp { .. }
            | HubEvent::Path { .. } => {}
            HubEvent::TunnelDown { reason, .. } => self.ended = Some(reason),
        }
    }
}

impl Machine for Host<'_> {
    fn handle(&mut self, wire: Wire, now: Instant) {
        if LINKS.contains(&wire.from) {
            let (from, bytes) = arrival(0, &wire, now);
            return self.hub.handle_datagrams(from, bytes, now);
        }
        self.packets += 1;
        self.watch(|hub| {
            let (from, bytes) = arrival(0, &wire, now);
            hub.handle_datagrams(from, bytes, now);
        });
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.watch(|hub| hub.handle_timeout(now));
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.hub.poll_timeout().map(|due| due.at)
    }

    fn drain(&mut self, now: Instant) -> Vec<Wire> {
        while let Some(event) = self.watch(|hub| hub.poll_event(now)) {
            self.handle_event(event, now);
        }
        // A packet ends where its bytes are counted.
        let arrives = |hub: &mut Hub| {
            let packet = hub.poll_packet(now)?;
            IpPacket::parse(&packet.bytes).ok().map(|it| it.src())
        };
        while let Some(source) = self.watch(arrives) {
            self.arrived += u64::from(source == EDGE);
        }
        let (mut wires, mut buffer) = (Vec::new(), Vec::with_capacity(1 << 17));
        while let Some(transmit) = self.watch(|hub| hub.poll_transmit(&mut buffer, now)) {
            for packet in buffer.chunks(transmit.segment.unwrap_or(buffer.len()).max(1)) {
                wires.push(Wire {
                    from: HUB,
                    to: transmit.remote,
                    bytes: packet.to_vec(),
                });
            }
            buffer.clear();
        }
        self.answers += wires
            .iter()
            .filter(|wire| !LINKS.contains(&wire.to))
            .count() as u64;
        wires
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a weapon does within this time.
    fn damage_of(seconds: u64, weapon: &str) -> Damage {
        let mut all = Vec::new();
        let mut meter = |act: &mut dyn FnMut()| {
            let info = allocation_counter::measure(act);
            (Duration::ZERO, info.bytes_current)
        };
        let span = Duration::from_secs(seconds);
        hostile(span, Some(weapon), &mut meter, &mut |damage| {
            all.push(damage.clone());
        });
        assert_eq!(all.len(), 1, "{weapon}");
        all.remove(0)
    }

    #[test]
    fn who_sends_each_packet_from_another_port_is_measured_anew_with_each() {
        let damage = damage_of(60, "another port");
        assert!(damage.packets > 10_000, "{damage}");
        // noq has 2 MB of them for packets that it sent; whatever is kept of a port is more.
        assert!(damage.most_bytes < 3_000_000, "{damage}");
        assert_eq!(damage.arrived, damage.sent);
    }

    /// noq panicked when the acknowledgements of ninety paths did not fit a packet, and repair
    /// when there were more than sixteen.
    #[test]
    fn who_saves_up_paths_has_sixteen_of_them() {
        let damage = damage_of(70, "paths that the hub hears of late");
        assert_eq!(damage.paths, 16, "{damage}");
        assert_eq!(damage.arrived, damage.sent);
    }

    /// noq panics there still.
    #[test]
    fn whose_acknowledgements_do_not_fit_a_packet_loses_its_tunnel_and_nobody_else_a_packet() {
        let damage = damage_of(10, "gaps on all paths");
        assert_eq!(damage.paths, 16, "{damage}");
        let ended = damage.ended.expect("its tunnel is gone");
        assert!(ended.starts_with("the QUIC library failed"), "{ended}");
        assert_eq!(damage.arrived, damage.sent);
    }

    #[test]
    fn fifty_thousand_streams_that_are_taken_back_at_once_leave_nothing_and_others_lose_no_packet()
    {
        let damage = damage_of(120, "streams of no type that are taken back");
        assert!(damage.resets >= 50_000, "{}: {damage}", damage.resets);
        assert!(damage.most_bytes < 1_000_000, "{damage}");
        assert_eq!(damage.arrived, damage.sent);
        let asked = damage_of(40, "requests that are taken back");
        assert!(asked.resets > 3000, "{}: {asked}", asked.resets);
        assert!(asked.most_bytes < 1_000_000, "{asked}");
        assert_eq!(asked.arrived, asked.sent);
    }
}
