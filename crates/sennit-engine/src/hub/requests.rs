//! What peers ask of a hub, and what it answers: tunnels, certificates, and the capsules of a
//! tunnel.

use std::{net::IpAddr, time::Instant};

use bytes::{Bytes, BytesMut};
use noq_proto::PathId;
use rustls::pki_types::CertificateDer;

use sennit_masque::{
    self as masque, Capsule, Code, RequestHead, ResponseHead, StreamError, StreamId,
    capsule::{
        AssignedAddress, IpAddressRange, LinkInfo, MAX_REASON, RefusedPrefix, RequestedAddress,
    },
    connect_ip, connect_udp,
};

use super::{Hub, HubEvent, RequestId, Role, Stage, sites::Announced};
use crate::{
    codec::split_capsule,
    facts::LinkLabel,
    hello::{self, ENROL_PATH, Hello},
    ids::ConnId,
    node::Conn,
    path::number,
    reason::plain,
};
use sennit_packet::Prefix;

/// More path descriptions than this are not kept for paths that do not exist.
const MAX_EARLY_LINKS: usize = 32;
/// Requests on one connection. A Sennit makes one; each costs the caller a look into its store, and
/// who takes back what it asked could ask for ever.
const MAX_REQUESTS: u32 = 8;
/// An enrolment is a token and a certificate request.
const MAX_BODY: usize = 16 << 10;

impl Hub {
    /// Refuses a tunnel or an enrolment, saying why.
    pub fn refuse(&mut self, request: RequestId, status: u16, reason: &str, now: Instant) {
        if self.conclude(request, now) {
            self.turn_down(request, status, reason);
        }
    }

    /// Whether a request still waits for its answer; then it does so no longer.
    fn conclude(&mut self, request: RequestId, now: Instant) -> bool {
        let conn = self.node.get_mut(request.conn);
        let Some(conn) = conn.filter(|conn| conn.role.awaits(request.stream)) else {
            return false;
        };
        conn.role.stage = Stage::Stranger;
        conn.role.since = now;
        true
    }

    /// Answers an enrolment.
    pub fn reply(&mut self, request: RequestId, status: u16, body: Bytes, now: Instant) {
        if !self.conclude(request, now) {
            return;
        }
        let Some(conn) = self.node.get_mut(request.conn) else {
            return;
        };
        let sent = conn
            .h3
            .http
            .respond(request.stream, &ResponseHead::new(status), false)
            .and_then(|()| conn.h3.http.send_data(request.stream, body, true));
        if let Err(error) = sent {
            tracing::debug!(%error, "the peer left before its enrolment was answered");
        }
    }

    // ---- what comes ----------------------------------------------------------------------------

    pub(super) fn handle_http(&mut self, id: ConnId, event: masque::Event, now: Instant) {
        match event {
            masque::Event::Request { stream, head } => {
                self.handle_request(id, stream, &head, now);
            }
            masque::Event::Data { stream, bytes } => self.handle_body(id, stream, &bytes, now),
            masque::Event::Capsule { stream, capsule } => {
                self.handle_capsule(id, stream, capsule, now);
            }
            masque::Event::Finished { stream } => self.handle_finished(id, stream, now),
            masque::Event::Reset { stream, .. } => self.handle_ended(id, stream, None, now),
            masque::Event::Failed { stream, error } => {
                self.handle_ended(id, stream, Some(error), now);
            }
            masque::Event::Settings(_)
            | masque::Event::Response { .. }
            | masque::Event::Stopped { .. }
            | masque::Event::GoAway => {}
        }
    }

    fn handle_request(&mut self, id: ConnId, stream: StreamId, head: &RequestHead, now: Instant) {
        let request = RequestId { conn: id, stream };
        let conn = self.node.get(id);
        let is_early = conn.is_some_and(|conn| conn.tunnel.conn.is_handshaking());
        if is_early && !connect_ip::is_meant(head) {
            // Only a tunnel can wait for the handshake once it is granted (RFC 8470 §5.2).
            return self.turn_down(request, 425, "not before the handshake is complete");
        }
        if self.config.udp_flows > 0 && connect_udp::is_meant(head) {
            return self.handle_udp_request(request, head, now);
        }
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        if !matches!(conn.role.stage, Stage::Stranger) {
            return self.turn_down(request, 429, "one request per connection");
        }
        conn.role.requests += 1;
        if conn.role.requests > MAX_REQUESTS {
            return self.turn_down(request, 429, "too many requests on one connection");
        }
        if head.method == "POST" && head.path.as_deref() == Some(ENROL_PATH) {
            conn.role.stage = Stage::Posting {
                stream,
                body: BytesMut::new(),
            };
            return;
        }
        match connect_ip::accept(head) {
            Ok(scope) if scope == connect_ip::Scope::ANY => {}
            Ok(_) => return self.turn_down(request, 403, "only unscoped tunnels are offered"),
            Err(refusal) => {
                return self.turn_down(request, refusal.status(), &refusal.to_string());
            }
        }
        let hello = head.fields.text(hello::NAME).and_then(Hello::decode);
        let event = HubEvent::Connect {
            request,
            certificates: certificates(conn),
            bearer: bearer(head),
            moves: hello.as_ref().is_some_and(|hello| hello.abilities.moves),
        };
        conn.role.stage = Stage::Asking {
            stream,
            hello,
            granted: None,
        };
        self.events.push_back(event);
    }

    /// Answers a request without a change to the connection.
    fn turn_down(&mut self, request: RequestId, status: u16, reason: &str) {
        self.send_refusal(request, ResponseHead::new(status), reason);
    }

    pub(super) fn send_refusal(
        &mut self,
        request: RequestId,
        mut head: ResponseHead,
        reason: &str,
    ) {
        let Some(conn) = self.node.get_mut(request.conn) else {
            return;
        };
        head.fields.push("sennit-reason", reason.to_owned());
        // Fails only if the peer has left.
        let _ = conn.h3.http.respond(request.stream, &head, true);
    }

    fn handle_body(&mut self, id: ConnId, stream: StreamId, bytes: &[u8], now: Instant) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let Stage::Posting {
            stream: posting,
            body,
        } = &mut conn.role.stage
        else {
            return;
        };
        if *posting != stream {
            return;
        }
        if body.len() + bytes.len() > MAX_BODY {
            let request = RequestId { conn: id, stream };
            return self.refuse(request, 413, "the request is too large", now);
        }
        body.extend_from_slice(bytes);
    }

    fn handle_finished(&mut self, id: ConnId, stream: StreamId, now: Instant) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let Stage::Posting {
            stream: posting,
            body,
        } = &mut conn.role.stage
        else {
            return self.handle_ended(id, stream, None, now);
        };
        if *posting != stream {
            return;
        }
        let body = std::mem::take(body).freeze();
        let event = HubEvent::Enrol {
            request: RequestId { conn: id, stream },
            certificates: certificates(conn),
            body,
        };
        self.events.push_back(event);
    }

    /// A stream has ended, perhaps the one that a tunnel hangs on: the peer ended it, or broke a
    /// rule there. Which one, the peer and the log are told.
    fn handle_ended(
        &mut self,
        id: ConnId,
        stream: StreamId,
        error: Option<StreamError>,
        now: Instant,
    ) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        match &conn.role.stage {
            Stage::Up { stream: tunnel, .. }
            | Stage::Asking {
                stream: tunnel,
                granted: Some(_),
                ..
            } if *tunnel == stream => {
                let (code, told, why) = match error {
                    None => (
                        Code::H3_NO_ERROR,
                        "the tunnel ended".to_owned(),
                        "the peer ended the tunnel".to_owned(),
                    ),
                    Some(error) => (
                        error.code(),
                        error.to_string(),
                        format!("the peer broke a rule: {error}"),
                    ),
                };
                self.node.close(id, code.0, &told, now);
                self.leave(id, why, now);
            }
            Stage::Proxied(_) => self.end_flow(RequestId { conn: id, stream }, now),
            _ => {
                self.conclude(RequestId { conn: id, stream }, now);
            }
        }
    }

    fn handle_capsule(&mut self, id: ConnId, stream: StreamId, capsule: Capsule, now: Instant) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        if let (Stage::Proxied(_), Capsule::Datagram(content)) = (&conn.role.stage, &capsule) {
            let request = RequestId { conn: id, stream };
            if let Some((context, payload)) = split_capsule(content.clone()) {
                self.handle_udp(request, context, payload, now);
            }
            return;
        }
        let Stage::Up {
            site,
            stream: tunnel,
            ..
        } = &conn.role.stage
        else {
            return;
        };
        if *tunnel != stream {
            return;
        }
        match capsule {
            Capsule::RouteAdvertisement(ranges) => {
                let site = site.clone();
                match self.sites.announce(&site, &ranges) {
                    Some(Announced { prefixes, left_out }) => {
                        self.events.push_back(HubEvent::Lan {
                            site,
                            prefixes,
                            left_out,
                        });
                    }
                    // It is decided already, and this tunnel may not know how.
                    None if !self.sites.refused(&site).is_empty() => self.tell_refused(id),
                    None => {}
                }
            }
            Capsule::AddressRequest(requests) => {
                let answer = assignment(&self.sites.addresses(site), &requests);
                // Fails only if the peer has left.
                let _ = conn.h3.http.send_capsule(stream, &answer);
            }
            Capsule::Link(link) => self.handle_label(id, link),
            Capsule::Datagram(content) => self.node.handle_capsule(id, content, now),
            Capsule::Terms(text) => self.handle_terms(id, &text, now),
            Capsule::AddressAssign(_) | Capsule::RefusedLan(_) | Capsule::Authority(_) => {}
        }
    }

    /// The edge says how the link of a path is called and to be treated.
    fn handle_label(&mut self, id: ConnId, link: LinkInfo) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let label = LinkLabel {
            name: link.name,
            tier: link.tier,
            weight: link.weight,
        };
        let is_it = |path: &PathId| u64::from(number(*path)) == link.path_id;
        let known = conn.tunnel.paths.iter().map(|path| path.id).find(is_it);
        let Some(path) = known else {
            conn.role.links.insert(link.path_id, label);
            // Numbers of paths only grow: the lowest is of a path that never came up.
            if conn.role.links.len() > MAX_EARLY_LINKS {
                conn.role.links.pop_first();
            }
            return;
        };
        let is_new = conn.role.unnamed.remove(&number(path));
        self.node.label_path(id, path, label);
        if is_new {
            self.tell_path(id, path);
        }
    }

    /// Tells an edge which of the prefixes that it announced are not routed.
    pub(super) fn tell_refused(&mut self, id: ConnId) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let Stage::Up {
            site,
            stream,
            abilities: Some(_),
            ..
        } = &conn.role.stage
        else {
            return;
        };
        let refused = self.sites.refused(site).to_vec();
        let capsule = Capsule::RefusedLan(refused);
        if let Err(error) = conn.h3.http.send_capsule(*stream, &capsule) {
            tracing::debug!(%error, %site, "cannot tell the edge what is refused");
        }
    }
}

/// A refusal as it goes on the wire: a reason that is too long is cut.
pub(super) fn refused_prefix((prefix, reason): &(Prefix, String)) -> Option<RefusedPrefix> {
    let reason = plain(reason, MAX_REASON);
    let prefix = masque::IpPrefix::new(prefix.first(), prefix.bits()).ok()?;
    Some(RefusedPrefix { prefix, reason })
}

/// The bearer token of a request (RFC 6750 §2.1), whose scheme has no case (RFC 9110 §11.1).
pub(super) fn bearer(head: &RequestHead) -> Option<String> {
    let (scheme, token) = head.fields.text("authorization")?.split_once(' ')?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    is_bearer.then(|| token.trim_start_matches(' ').to_owned())
}

/// The certificates that TLS verified.
pub(super) fn certificates(conn: &Conn<Role>) -> Vec<CertificateDer<'static>> {
    conn.tunnel
        .conn
        .crypto_session()
        .peer_identity()
        .and_then(|identity| identity.downcast::<Vec<CertificateDer<'static>>>().ok())
        .map_or_else(Vec::new, |chain| *chain)
}

/// ADDRESS_ASSIGN of whole addresses; requests of the same family are answered by number.
pub(super) fn assignment(addresses: &[IpAddr], requests: &[RequestedAddress]) -> Capsule {
    let mut open: Vec<&RequestedAddress> = requests.iter().collect();
    let mut assigned: Vec<AssignedAddress> = addresses
        .iter()
        .map(|&address| {
            let asked = open
                .iter()
                .position(|r| r.prefix.addr().is_ipv4() == address.is_ipv4());
            let request_id = asked.map_or(0, |index| open.remove(index).request_id);
            AssignedAddress {
                request_id,
                prefix: masque::IpPrefix::host(address),
            }
        })
        .collect();
    assigned.extend(open.into_iter().map(AssignedAddress::refusal));
    Capsule::AddressAssign(assigned)
}

/// ROUTE_ADVERTISEMENT of the whole internet, in the families that the site has addresses of.
pub(super) fn everywhere(addresses: &[IpAddr]) -> Capsule {
    let range = |start: IpAddr, end: IpAddr| IpAddressRange::new(start, end, 0).ok();
    let v4 =
        range([0; 4].into(), [255; 4].into()).filter(|_| addresses.iter().any(IpAddr::is_ipv4));
    let v6 = range([0_u16; 8].into(), [0xffff_u16; 8].into())
        .filter(|_| addresses.iter().any(IpAddr::is_ipv6));
    Capsule::RouteAdvertisement(v4.into_iter().chain(v6).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_token_is_read_whatever_the_case_of_its_scheme() {
        let read = |value: &str| {
            let mut head = RequestHead::new("CONNECT", "hub", "/");
            head.fields.push("authorization", value.to_owned());
            bearer(&head)
        };
        for value in ["Bearer abc", "bearer abc", "BEARER  abc"] {
            assert_eq!(read(value).as_deref(), Some("abc"), "{value}");
        }
        for value in ["Bearer", "Bearerabc", "Basic abc", ""] {
            assert_eq!(read(value), None, "{value}");
        }
    }
}
