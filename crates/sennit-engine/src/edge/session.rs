//! What an edge asks of its hub, and what the hub answers.

use std::{collections::BTreeMap, time::Instant};

use sennit_core::{Delivery, PathState};
use sennit_masque::{
    self as masque, Capsule, RequestHead, ResponseHead, StreamId,
    capsule::{AssignedAddress, IpAddressRange, LinkInfo, LinkState, MAX_REASON, RefusedPrefix},
    connect_ip,
};
use sennit_packet::Prefix;

use super::{Edge, EdgeConfig, EdgeEvent, Purpose, Role, Slot, Stage, assigned};
use crate::{
    codec::{Abilities, Codec, Peer},
    hello::{self, ENROL_PATH, Hello, Takes, Wishes},
    ids::{ConnId, SocketId},
    node::Conn,
    numbers::{Numbers, Run},
    path::{Path, number},
    reason::plain,
    sharing::Sharing,
};

/// An enrolment's answer holds a certificate chain.
const MAX_ANSWER: usize = 64 << 10;

impl Edge {
    pub(super) fn handle_http(&mut self, id: ConnId, event: masque::Event, now: Instant) {
        match event {
            masque::Event::Settings(settings) if !settings.h3_datagram => {
                self.give_up(id, "the hub takes no HTTP datagrams".into(), now);
            }
            masque::Event::Settings(settings) => {
                self.hub_settings = Some(settings);
                self.request(id, now);
            }
            masque::Event::Response { stream, head } => {
                self.handle_response(id, stream, &head, now);
            }
            masque::Event::Capsule { stream, capsule } => {
                self.handle_capsule(id, stream, capsule, now);
            }
            masque::Event::Data { bytes, .. } => self.handle_answer(&bytes),
            masque::Event::Finished { .. } => self.handle_finished(id, now),
            masque::Event::Reset { code, .. } => {
                self.give_up(id, format!("the hub ended the request: {code}"), now);
            }
            masque::Event::Failed { error, .. } => self.give_up(id, error.to_string(), now),
            masque::Event::GoAway => self.give_up(id, "the hub is going away".into(), now),
            masque::Event::Request { .. } | masque::Event::Stopped { .. } => {}
        }
    }

    /// Sends the request for a tunnel with the first packets of a handshake that resumes, if the
    /// hub may take it then. Only a class without a tunnel does so: the hub takes the connection
    /// for the class's own as soon as the handshake is complete.
    pub(super) fn request_early(&mut self, id: ConnId) {
        let (Purpose::Tunnels, Some(settings)) = (&self.purpose, self.hub_settings) else {
            return;
        };
        let run = self.run(id);
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let slot = &self.slots[conn.role.slot];
        if slot.live.is_some() || !conn.tunnel.conn.has_0rtt() {
            return;
        }
        let Some(stream) = conn.h3.open_request(&mut conn.tunnel.conn) else {
            return;
        };
        let head = tunnel_request(&self.config, slot, run, &conn.role);
        conn.h3.http.remember(settings);
        if conn.h3.http.send_request(stream, &head, None).is_ok() {
            conn.role.early = Some(stream);
        }
        conn.may_write = true;
    }

    /// The handshake is complete: a request that the hub has taken as early data is made.
    pub(super) fn go_on_with_early(&mut self, id: ConnId) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        if let Some(stream) = conn.role.early.take()
            && conn.tunnel.conn.accepted_0rtt()
        {
            conn.role.stage = Stage::Requested(stream);
        }
    }

    /// Sends the request that the connection is for.
    pub(super) fn request(&mut self, id: ConnId, now: Instant) {
        let run = self.run(id);
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        if conn.role.stage != Stage::Connected {
            return;
        }
        let (head, body) = match &self.purpose {
            Purpose::Tunnels => (
                tunnel_request(&self.config, &self.slots[conn.role.slot], run, &conn.role),
                None,
            ),
            Purpose::Enrol(body) => (
                RequestHead::new("POST", &self.config.server_name, ENROL_PATH),
                Some(body.clone()),
            ),
        };
        self.answer.clear();
        let sent = conn
            .h3
            .open_request(&mut conn.tunnel.conn)
            .ok_or_else(|| "the hub allows no streams".to_owned())
            .and_then(|stream| {
                let sent = conn.h3.http.send_request(stream, &head, body);
                sent.map(|()| stream).map_err(|error| error.to_string())
            });
        match sent {
            Ok(stream) => conn.role.stage = Stage::Requested(stream),
            Err(reason) => self.give_up(id, reason, now),
        }
    }

    fn handle_response(&mut self, id: ConnId, stream: StreamId, head: &ResponseHead, now: Instant) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        if conn.role.stage != Stage::Requested(stream) {
            return;
        }
        if !head.is_success() {
            let reason = self.refusal(head);
            return self.end(id, reason, is_lasting(head.status), now);
        }
        let answer = head.fields.text(hello::NAME);
        let numbers = answer.and_then(hello::numbers);
        if !self.can_go_on(id, numbers) {
            let reason = "the class's numbers have changed since it asked";
            return self.give_up(id, reason.into(), now);
        }
        self.handle_granted(id, stream, (answer, numbers), now);
    }

    /// Why the hub does not give what it was asked for.
    fn refusal(&self, head: &ResponseHead) -> String {
        let what = match self.purpose {
            Purpose::Tunnels => "the tunnel",
            Purpose::Enrol(_) => "a certificate",
        };
        let why = head.fields.text("sennit-reason");
        let why = why.map_or_else(|| "no reason given".into(), |why| plain(why, MAX_REASON));
        format!("the hub refused {what}: {why} (status {})", head.status)
    }

    /// The hub gives what it was asked for: a tunnel is up.
    fn handle_granted(
        &mut self,
        id: ConnId,
        stream: StreamId,
        (answer, numbers): (Option<&str>, Option<Numbers>),
        now: Instant,
    ) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let index = conn.role.slot;
        let slot = &mut self.slots[index];
        slot.dial.granted();
        self.slow.granted(conn.role.link, id, now);
        if matches!(self.purpose, Purpose::Enrol(_)) {
            return;
        }
        let old = self.take_place(index, id);
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let slot = &mut self.slots[index];
        conn.role.stage = Stage::Up(stream);
        let beside = conn.role.beside;
        let treated_otherwise = conn.role.treatment != slot.class.treatment;
        let peer = answer.map_or(Peer::Standard, hello::answered);
        let peer = peer.with_headers(slot.class.treatment.headers);
        let inside = answer.map_or_else(Vec::new, hello::inside);
        conn.role.hub = answer.map_or_else(Takes::default, hello::takes);
        if !inside.is_empty() {
            self.hub_inside.hear(inside);
        }
        let multipath = conn.tunnel.conn.is_multipath_negotiated();
        let link = conn.role.link;
        announce_lan(conn, stream, &self.config.lan);
        slot.reason = if multipath {
            "up"
        } else {
            "up, on one link: no multipath at the hub"
        }
        .into();
        let of = (slot.pipe, slot.id);
        self.node
            .plug(id, of, (Codec::new(stream, peer), numbers), beside, now);
        match old {
            Some(old) => self.leave_behind(index, old, id, now),
            None => self.tell_up(index, link, multipath, now),
        }
        // What the class is to have may have changed since it was asked for beside another tunnel.
        if old.is_some() || beside || treated_otherwise {
            self.tell_terms(index, true);
        }
        if treated_otherwise {
            self.treat(index, now);
        }
        self.announce_links(id);
        self.follow(now);
        self.settle(now);
    }

    /// Says that a class has a tunnel, the first path of which is over this link.
    fn tell_up(&mut self, index: usize, link: SocketId, multipath: bool, now: Instant) {
        let slot = &mut self.slots[index];
        slot.since = now;
        let class = slot.class.name.clone();
        let link = self.links.get(&link);
        let link = link.map_or_else(String::new, |link| link.label.name.clone());
        self.events.push_back(EdgeEvent::TunnelUp {
            class,
            link,
            multipath,
        });
    }

    /// The run of numbers that a connection's class goes on with, if delivery is reliable or the
    /// tunnel of before carries. Others ask for a new one, with which delivery may become reliable
    /// while the connection lasts.
    fn run(&mut self, id: ConnId) -> Option<Run> {
        let role = &self.node.get(id)?.role;
        let slot = &self.slots[role.slot];
        let goes_on = role.beside || slot.class.treatment.delivery == Delivery::Reliable;
        let pipe = self.node.pipe_mut(slot.pipe)?;
        Some(if goes_on { pipe.run() } else { Run::NONE })
    }

    /// Whether a connection's class can have the numbers that the hub says it has.
    fn can_go_on(&mut self, id: ConnId, numbers: Option<Numbers>) -> bool {
        let run = self.run(id).unwrap_or(Run::NONE);
        numbers.is_none_or(|numbers| numbers.fit(run))
    }

    /// Tells the hub how the links are called and to be treated.
    pub(super) fn announce_links(&mut self, id: ConnId) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let Stage::Up(stream) = conn.role.stage else {
            return;
        };
        if !conn.tunnel.is_numbered() {
            return;
        }
        for path in &conn.tunnel.paths {
            if let Err(error) = conn
                .h3
                .http
                .send_capsule(stream, &Capsule::Link(link_info(path)))
            {
                tracing::warn!(%error, "cannot describe a link to the hub");
            }
        }
    }

    fn handle_capsule(&mut self, id: ConnId, stream: StreamId, capsule: Capsule, now: Instant) {
        match capsule {
            Capsule::AddressAssign(assigned) => self.handle_addresses(&assigned, now),
            Capsule::AddressRequest(requests) => {
                // An edge has no addresses to give (RFC 9484 §4.7.2: it must say so).
                let refusals = requests.iter().map(AssignedAddress::refusal).collect();
                if let Some(conn) = self.node.get_mut(id) {
                    // Fails only if the stream is gone, and with it the question.
                    let _ = conn
                        .h3
                        .http
                        .send_capsule(stream, &Capsule::AddressAssign(refusals));
                }
            }
            Capsule::Datagram(content) => {
                self.node.handle_capsule(id, content, now);
            }
            Capsule::RefusedLan(refused) => self.handle_refused(refused, now),
            Capsule::Authority(next) => {
                self.next_authority.hear(Some(next));
                self.follow(now);
            }
            Capsule::RouteAdvertisement(_) | Capsule::Link(_) | Capsule::Terms(_) => {}
        }
    }

    fn handle_addresses(&mut self, assigned: &[AssignedAddress], now: Instant) {
        let addresses = assigned::usable(assigned);
        if !addresses.is_empty() {
            self.addresses.hear(addresses);
            self.follow(now);
        }
    }

    /// The hub says which of our prefixes it does not route, over each tunnel.
    fn handle_refused(&mut self, refused: Vec<RefusedPrefix>, now: Instant) {
        // Of a prefix that is named twice the first reason counts.
        let mut reasons = BTreeMap::new();
        for RefusedPrefix { prefix, reason } in refused {
            if let Ok(prefix) = Prefix::new(prefix.addr(), prefix.prefix_len())
                && self.config.lan.contains(&prefix)
            {
                reasons.entry(prefix).or_insert(reason);
            }
        }
        self.refused.hear(reasons.into_iter().collect());
        self.follow(now);
    }

    /// Tells the owner what the hub has said, if it is time for that.
    pub(super) fn follow(&mut self, now: Instant) {
        let addresses = self.addresses.poll(now).cloned().map(EdgeEvent::Addresses);
        let refused = self.refused.poll(now).cloned().map(EdgeEvent::LanRefused);
        let inside = self.hub_inside.poll(now).cloned().map(EdgeEvent::HubInside);
        let next = self.next_authority.poll(now).copied().flatten();
        let next = next.map(EdgeEvent::Authority);
        let said = addresses.into_iter().chain(refused).chain(inside);
        self.events.extend(said.chain(next));
    }

    fn handle_answer(&mut self, bytes: &[u8]) {
        if self.answer.len() + bytes.len() <= MAX_ANSWER {
            self.answer.extend_from_slice(bytes);
        }
    }

    fn handle_finished(&mut self, id: ConnId, now: Instant) {
        let Purpose::Enrol(_) = self.purpose else {
            return self.give_up(id, "the hub ended the tunnel".into(), now);
        };
        let requested = |conn: &Conn<Role>| matches!(conn.role.stage, Stage::Requested(_));
        if self.node.get(id).is_some_and(requested) {
            let answer = std::mem::take(&mut self.answer).freeze();
            self.events.push_back(EdgeEvent::Enrolled(answer));
        }
    }
}

/// What a class wants of the hub, with the run of numbers that it asks for, if it does.
pub(super) fn wants(config: &EdgeConfig, slot: &Slot, run: Option<Run>) -> Hello {
    let plan = config.sharing.as_deref().map(Sharing::plan);
    Hello {
        class: slot.class.name.clone(),
        index: slot.id,
        treatment: slot.class.treatment,
        fallback: slot.id == config.classifier.fallback(),
        abilities: Abilities::OURS.with_headers(slot.class.treatment.headers),
        wishes: Wishes::of(plan, slot.id, slot.class.dscp),
        run,
        beside: false,
    }
}

/// The request for a tunnel. Some proxies compare `:authority` with their own address including the
/// port, so it is always there.
fn tunnel_request(config: &EdgeConfig, slot: &Slot, run: Option<Run>, role: &Role) -> RequestHead {
    let mut head = connect_ip::request(
        &format!("{}:{}", config.server_name, role.remote.port()),
        &connect_ip::Scope::ANY.path(),
    );
    let wants = Hello {
        beside: role.beside,
        ..wants(config, slot, run)
    };
    head.fields.push(hello::NAME, wants.encode());
    if let Some(bearer) = &config.bearer {
        head.fields
            .push("authorization", format!("Bearer {bearer}"));
    }
    head
}

/// Whether a hub that answers so will answer the same the next time (RFC 9110 §15.5): all that is
/// the client's fault, but for what says itself that it passes.
fn is_lasting(status: u16) -> bool {
    (400..500).contains(&status) && !matches!(status, 408 | 425 | 429)
}

/// Tells the hub which prefixes are behind this edge (RFC 9484 §4.7.3 allows it to either side).
fn announce_lan(conn: &mut Conn<Role>, stream: StreamId, lan: &[Prefix]) {
    if !lan.is_empty() {
        send_lan(conn, stream, lan);
    }
}

/// Tells it in place of what was told before, also that there is nothing.
pub(super) fn send_lan(conn: &mut Conn<Role>, stream: StreamId, lan: &[Prefix]) {
    // Ranges may not overlap (RFC 9484 §4.7.3).
    let inside = |prefix: &Prefix| {
        let mut others = lan.iter().filter(|other| other.bits() < prefix.bits());
        others.any(|other| other.contains(prefix.first()))
    };
    let mut ranges: Vec<IpAddressRange> = lan
        .iter()
        .filter(|prefix| !inside(prefix))
        .filter_map(|prefix| IpAddressRange::new(prefix.first(), prefix.last(), 0).ok())
        .collect();
    ranges.sort_by_key(|range| (range.start().is_ipv6(), range.start()));
    if let Err(error) = conn
        .h3
        .http
        .send_capsule(stream, &Capsule::RouteAdvertisement(ranges))
    {
        tracing::warn!(%error, "cannot announce the LAN prefixes");
    }
}

/// What a hub should know of one path.
fn link_info(path: &Path) -> LinkInfo {
    let state = match path.health.state().0 {
        PathState::Up => LinkState::Up,
        PathState::Probation | PathState::Suspect => LinkState::Backup,
        PathState::Down => LinkState::Down,
    };
    LinkInfo {
        path_id: u64::from(number(path.id)),
        tier: path.link.tier,
        weight: path.link.weight,
        state,
        name: path.link.name.clone(),
    }
}
