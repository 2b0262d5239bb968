//! A hub with all that must hold of it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use bytes::Bytes;
use sennit_engine::{Grant, Hub, HubClasses, HubConfig, HubEvent, RequestId};
use sennit_packet::gso::VirtioNetHdr;
use sennit_packet::{Bitrate, IpPacket, Prefix, Protocol};
use sennit_sim::{SERVER, udp};

use super::scene::{HUB, Machine, Wire, arrival, check, sent, settings};
use crate::input::Input;
use crate::packet::mend;

/// The hub's own inner address.
const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 200, 0, 1));
/// The site's.
pub(super) const SITE: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 2);
const SITE_V6: Ipv6Addr = Ipv6Addr::new(0xfd5e, 1, 0, 0, 0, 0, 0, 2);

/// Events at one point in time: what one peer sends at once is not handled at once.
const MOST_EVENTS: usize = 300;

pub(super) struct HubSide {
    hub: Hub,
    /// When it last had events, and how many they were then; and how often a site's prefixes
    /// changed.
    busy: (Option<Instant>, usize),
    pub(super) announcements: usize,
    /// Whether every request is granted at once.
    generous: bool,
    asking: Vec<RequestId>,
    posting: Vec<RequestId>,
    up: BTreeSet<String>,
    lan: Vec<Prefix>,
    /// Whether the last probe was answered by an error.
    unreachable: bool,
}

impl HubSide {
    /// Grants whatever is asked.
    pub(super) fn generous() -> Self {
        Self::new(true)
    }

    /// Answers when the script says so.
    pub(super) fn slow() -> Self {
        Self::new(false)
    }

    fn new(generous: bool) -> Self {
        let config = HubConfig {
            addresses: vec![OWN],
            max_strangers: 8,
            site_limit: Some(Bitrate::mbit(8)),
            classes: HubClasses::default(),
            udp_flows: 4,
        };
        let tls = super::peer::AUTHORITY.with(sennit_sim::Authority::server);
        let start = super::scene::START.with(|start| *start);
        Self {
            hub: Hub::new(settings(2), config, tls, start).expect("QUIC's initial suite is there"),
            busy: (None, 0),
            announcements: 0,
            generous,
            asking: Vec::new(),
            posting: Vec::new(),
            up: BTreeSet::new(),
            lan: Vec::new(),
            unreachable: false,
        }
    }

    fn handle_event(&mut self, event: HubEvent, now: Instant) {
        let count = match self.busy {
            (Some(at), count) if at == now => count + 1,
            _ => 1,
        };
        self.busy = (Some(now), count);
        assert!(count <= MOST_EVENTS, "too much is handled at once");
        match event {
            HubEvent::Connect { request, .. } if self.generous => self.grant(request, now),
            HubEvent::Connect { request, .. } => self.asking.push(request),
            HubEvent::Enrol { request, .. } => self.posting.push(request),
            HubEvent::Udp { request, .. } => {
                self.hub.grant_udp(request, [7; 32]);
            }
            // A target that echoes.
            HubEvent::UdpPayload { request, payload } => {
                self.hub.send_udp(request, &payload);
            }
            HubEvent::UdpEnded { .. } => {}
            HubEvent::TunnelUp { site, class, .. } => {
                assert_eq!(site.as_str(), "site");
                self.up.insert(class);
            }
            HubEvent::TunnelDown { class, .. } => {
                assert!(self.up.remove(&class), "{class} was not up");
                if self.up.is_empty() {
                    self.hub.set_lan(&"site".into(), &[], &[]);
                    self.lan.clear();
                }
            }
            HubEvent::Lan { site, prefixes, .. } => {
                self.announcements += 1;
                self.hub.set_lan(&site, &prefixes, &[]);
                self.lan = prefixes;
            }
            HubEvent::Path { class, .. } => {
                assert!(self.up.contains(&class), "{class} is not up");
            }
        }
    }

    fn grant(&mut self, request: RequestId, now: Instant) {
        let grant = Grant {
            site: "site".into(),
            addresses: vec![SITE.into(), SITE_V6.into()],
            credential: [7; 32],
            next: None,
        };
        self.hub.grant(request, grant, now);
    }

    pub(super) fn is_up(&self) -> bool {
        !self.up.is_empty()
    }

    /// A step of the hub's owner.
    pub(super) fn act(&mut self, step: u8, input: &mut Input<'_>, now: Instant) {
        match step % 8 {
            0..=2 => {
                if let Some(request) = self.asking.pop() {
                    self.grant(request, now);
                }
            }
            3 => {
                if let Some(request) = self.asking.pop() {
                    self.hub.refuse(request, 403, "no", now);
                }
            }
            4 => {
                if let Some(request) = self.posting.pop() {
                    self.hub
                        .reply(request, 200, Bytes::from_static(b"certificate"), now);
                }
            }
            5 => self.hub.expel(&"site".into(), "revoked", now),
            6 => {
                let mut packet = input.block().to_vec();
                mend(&mut packet);
                self.hub
                    .handle_packet(&VirtioNetHdr::default(), &packet, now);
            }
            _ => self.probe(now),
        }
    }

    /// Sends a packet to the site.
    fn probe(&mut self, now: Instant) {
        self.unreachable = false;
        let packet = udp(SERVER, SITE, 7, 1, 100);
        self.hub
            .handle_packet(&VirtioNetHdr::default(), &packet, now);
    }

    /// An inner packet comes from the hub itself, or bears an address of the site.
    fn handle_inner(&mut self, bytes: &[u8]) {
        let packet = IpPacket::parse(bytes).expect("only packets reach the TUN device");
        let source = packet.src();
        self.unreachable |= source == OWN && packet.protocol() == Protocol::ICMP;
        let legal = [OWN, SITE.into(), SITE_V6.into()].contains(&source)
            || self.lan.iter().any(|prefix| prefix.contains(source));
        assert!(legal, "{source} is not the site's");
    }

    /// The hub's events and its status say the same.
    pub(super) fn check_status(&mut self) {
        let status: BTreeSet<String> = self.hub.status().into_iter().map(|s| s.class).collect();
        assert_eq!(status, self.up);
    }

    /// Nothing is left of a site that has gone.
    pub(super) fn check_forgotten(&mut self, now: Instant) {
        assert_eq!(self.hub.status().len(), 0);
        assert_eq!(self.up, BTreeSet::new());
        assert_eq!(self.lan, []);
        self.probe(now);
        self.drain(now);
        assert!(self.unreachable, "packets still go to a site that has gone");
        assert_eq!(self.hub.poll_timeout(), None, "a connection is still there");
    }
}

impl Machine for HubSide {
    fn handle(&mut self, wire: Wire, now: Instant) {
        let (from, bytes) = arrival(0, &wire, now);
        self.hub.handle_datagrams(from, bytes, now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.hub.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.hub.poll_timeout().map(|due| due.at)
    }

    fn drain(&mut self, now: Instant) -> Vec<Wire> {
        while let Some(event) = self.hub.poll_event(now) {
            self.handle_event(event, now);
        }
        while let Some(packet) = self.hub.poll_packet(now) {
            check(&packet);
            self.handle_inner(&packet.bytes);
        }
        sent(|buffer| self.hub.poll_transmit(buffer, now), |_| HUB)
    }
}
