//! UDP that is proxied to targets (RFC 9298).
//!
//! A connection that asks for that has flows: each is a request of one target, and names the
//! datagrams that are for it and from it. The caller knows who may have which target, and has the
//! sockets; here are the requests and their datagrams. Such a connection has no tunnel, no class
//! and no pipe, and a tunnel never pays for what it does.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bytes::{BufMut, Bytes, BytesMut};
use noq_proto::{Dir, VarInt};
use sennit_masque::{
    Code, RequestHead, ResponseHead, StreamId,
    connect_ip::response_fields,
    connect_udp::{self, CONTEXT_UDP, MAX_PAYLOAD},
    datagram,
};

use super::{
    Hub, HubEvent, RequestId, Role, Stage, UdpRefusal,
    requests::{bearer, certificates},
};
use crate::{ids::ConnId, node::Conn};

/// A client may ask for this many flows at once, and then one every [`ASK_EVERY`]: a browser opens
/// a page's worth together, and each request costs the caller a look into its store. Who is granted
/// none of so many gets none on that connection.
const ASKS: u32 = 64;
const ASK_EVERY: Duration = Duration::from_millis(50);
/// Bytes that wait for one connection's congestion window, at most: a tenth of a second at
/// 20 Mbit/s. What comes then is lost, as in any full queue.
const MOST_WAITING: usize = 256 << 10;

/// The flows of one connection.
#[derive(Debug)]
pub(super) struct Proxied {
    /// With what they were granted to; nothing for those that wait for the caller's answer.
    flows: BTreeMap<StreamId, Option<[u8; 32]>>,
    /// When a client that had asked evenly would have asked last.
    asked: Instant,
    /// Requests so far; nothing once one was granted, as the client has shown then who it is.
    in_vain: Option<u32>,
}

impl Proxied {
    fn new(now: Instant) -> Self {
        Self {
            flows: BTreeMap::new(),
            asked: now,
            in_vain: Some(0),
        }
    }

    /// Whether a flow was granted to this credential.
    pub(super) fn hangs_on(&self, credential: &[u8; 32]) -> bool {
        let mut granted = self.flows.values().flatten();
        granted.any(|its| its == credential)
    }

    /// What is said of its flows when all are over.
    pub(super) fn ends(&self, conn: ConnId) -> impl Iterator<Item = HubEvent> + '_ {
        let request = move |&stream| RequestId { conn, stream };
        let requests = self.flows.keys().map(request);
        requests.map(|request| HubEvent::UdpEnded { request })
    }

    /// Grants a flow; false if it does not wait for that any more.
    fn grant(&mut self, stream: StreamId, credential: [u8; 32]) -> bool {
        let Some(flow) = self.flows.get_mut(&stream) else {
            return false;
        };
        *flow = Some(credential);
        self.in_vain = None;
        true
    }

    /// Counts a request; false if it comes too soon, or after too many in vain.
    fn may_ask(&mut self, now: Instant) -> bool {
        if let Some(in_vain) = &mut self.in_vain {
            if *in_vain >= ASKS {
                return false;
            }
            *in_vain += 1;
        }
        let asked = self.asked.max(now);
        if asked >= now + ASKS * ASK_EVERY {
            return false;
        }
        self.asked = asked + ASK_EVERY;
        true
    }

    fn is_granted(&self, stream: StreamId) -> bool {
        self.flows.get(&stream).is_some_and(Option::is_some)
    }
}

impl Hub {
    /// Lets connections have as many flows as the config says now. Those that they have stay.
    pub(super) fn bound_flows(&mut self) {
        let most = VarInt::from_u32(self.config.udp_flows);
        let ids: Vec<ConnId> = self.node.iter().map(|(id, _)| id).collect();
        for id in ids {
            let Some(conn) = self.node.get_mut(id) else {
                continue;
            };
            if proxied(conn).is_some() {
                conn.tunnel.conn.set_max_concurrent_streams(Dir::Bi, most);
            }
        }
    }

    /// Grants a flow to who proved itself by this credential; false if nobody waits for it any
    /// more.
    pub fn grant_udp(&mut self, request: RequestId, credential: [u8; 32]) -> bool {
        let most = VarInt::from_u32(self.config.udp_flows);
        let Some(conn) = self.node.get_mut(request.conn) else {
            return false;
        };
        if !proxied(conn).is_some_and(|it| it.grant(request.stream, credential)) {
            return false;
        }
        let mut head = ResponseHead::new(200);
        head.fields = response_fields();
        // Fails only if the peer has left, and then the flow ends.
        let _ = conn.h3.http.respond(request.stream, &head, false);
        conn.tunnel.conn.set_max_concurrent_streams(Dir::Bi, most);
        self.strangers.remove(request.conn);
        true
    }

    /// Refuses a flow, saying why.
    pub fn refuse_udp(&mut self, request: RequestId, refusal: &UdpRefusal, now: Instant) {
        if self.forget_flow(request, now) {
            self.send_udp_refusal(request, refusal);
        }
    }

    /// Ends a flow, as its target or its time wants it.
    pub fn end_udp(&mut self, request: RequestId, now: Instant) {
        if self.forget_flow(request, now)
            && let Some(conn) = self.node.get_mut(request.conn)
        {
            conn.h3.http.abort(request.stream, Code::H3_NO_ERROR);
        }
    }

    /// Sends a payload of the target to the client; false if it is lost.
    pub fn send_udp(&mut self, request: RequestId, payload: &[u8]) -> bool {
        let Some(conn) = self.node.get_mut(request.conn) else {
            return false;
        };
        if !proxied(conn).is_some_and(|it| it.is_granted(request.stream)) {
            return false;
        }
        let prefix = datagram::encode_prefix(request.stream, CONTEXT_UDP);
        let mut datagram = BytesMut::with_capacity(prefix.len() + payload.len());
        datagram.put_slice(&prefix);
        datagram.put_slice(payload);
        conn.tunnel.send_unbound(datagram.freeze(), MOST_WAITING)
    }

    // ---- what comes ----------------------------------------------------------------------------

    pub(super) fn handle_udp_request(
        &mut self,
        request: RequestId,
        head: &RequestHead,
        now: Instant,
    ) {
        let target = match connect_udp::accept(head) {
            Ok(target) => target,
            Err(refusal) => {
                let refusal = UdpRefusal {
                    status: refusal.status(),
                    error: Some("http_request_error"),
                    reason: refusal.to_string(),
                };
                return self.send_udp_refusal(request, &refusal);
            }
        };
        if let Err(refusal) = self.enter_flow(request, now) {
            return self.send_udp_refusal(request, &refusal);
        }
        if let Some(conn) = self.node.get(request.conn) {
            self.events.push_back(HubEvent::Udp {
                request,
                certificates: certificates(conn),
                bearer: bearer(head),
                target,
            });
        }
    }

    /// Takes up a flow that the caller decides about.
    fn enter_flow(&mut self, request: RequestId, now: Instant) -> Result<(), UdpRefusal> {
        let most = self.config.udp_flows as usize;
        let refused = |reason: &str| UdpRefusal {
            status: 429,
            error: Some("connection_limit_reached"),
            reason: reason.into(),
        };
        let Some(conn) = self.node.get_mut(request.conn) else {
            return Err(refused("the connection is gone"));
        };
        if matches!(conn.role.stage, Stage::Stranger) {
            conn.role.stage = Stage::Proxied(Proxied::new(now));
            conn.tunnel.keep_unbound();
        }
        let Some(proxied) = proxied(conn) else {
            return Err(refused("this connection has a tunnel"));
        };
        if proxied.flows.len() >= most || !proxied.may_ask(now) {
            return Err(refused("too many requests on one connection"));
        }
        proxied.flows.insert(request.stream, None);
        Ok(())
    }

    /// A datagram or a capsule of a connection that has no tunnel. What comes before its flow is
    /// granted is dropped (RFC 9297 §2.1), and so is a context that nobody has registered.
    pub(super) fn handle_udp(
        &mut self,
        request: RequestId,
        context: u64,
        payload: Bytes,
        now: Instant,
    ) {
        let granted = |stage: &Stage| match stage {
            Stage::Proxied(proxied) => proxied.is_granted(request.stream),
            Stage::Stranger
            | Stage::Asking { .. }
            | Stage::Posting { .. }
            | Stage::Up { .. }
            | Stage::Closing => false,
        };
        let conn = self.node.get(request.conn);
        if context != CONTEXT_UDP || !conn.is_some_and(|conn| granted(&conn.role.stage)) {
            return;
        }
        if payload.len() > MAX_PAYLOAD {
            // RFC 9298 §5
            self.events.push_back(HubEvent::UdpEnded { request });
            return self.end_udp(request, now);
        }
        let event = HubEvent::UdpPayload { request, payload };
        self.events.push_back(event);
    }

    /// The client ended the stream of a flow.
    pub(super) fn end_flow(&mut self, request: RequestId, now: Instant) {
        if !self.forget_flow(request, now) {
            return;
        }
        if let Some(conn) = self.node.get_mut(request.conn) {
            // Fails if the client reset the stream, and then there is nothing to end.
            let _ = conn.h3.http.finish(request.stream);
        }
        self.events.push_back(HubEvent::UdpEnded { request });
    }

    /// Forgets a flow; false if there is none. Who has no other is a stranger again.
    fn forget_flow(&mut self, request: RequestId, now: Instant) -> bool {
        let Some(conn) = self.node.get_mut(request.conn) else {
            return false;
        };
        let Some(proxied) = proxied(conn) else {
            return false;
        };
        let known = proxied.flows.remove(&request.stream).is_some();
        if known && proxied.flows.is_empty() {
            let address = conn.role.address;
            self.strangers.take_back(request.conn, address, now);
        }
        known
    }

    /// Answers a request without a change to the connection.
    fn send_udp_refusal(&mut self, request: RequestId, refusal: &UdpRefusal) {
        let mut head = ResponseHead::new(refusal.status);
        if let Some(error) = refusal.error {
            // RFC 9209 §2.1
            let status = format!("sennit; error={error}");
            head.fields.push("proxy-status", status);
        }
        self.send_refusal(request, head, &refusal.reason);
    }
}

/// The flows of a connection, if that is what it has.
fn proxied(conn: &mut Conn<Role>) -> Option<&mut Proxied> {
    match &mut conn.role.stage {
        Stage::Proxied(proxied) => Some(proxied),
        Stage::Stranger
        | Stage::Asking { .. }
        | Stage::Posting { .. }
        | Stage::Up { .. }
        | Stage::Closing => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_granted_a_flow_is_listened_to_after_any_number_of_refusals_and_nobody_else_is() {
        let start = Instant::now();
        let listened_to = |mut proxied: Proxied| {
            let asks = (1..300).map(|n| start + ASK_EVERY * n);
            asks.filter(|at| proxied.may_ask(*at)).count()
        };
        let mut granted = Proxied::new(start);
        granted.flows.insert(StreamId(0), None);
        assert!(granted.grant(StreamId(0), [7; 32]));
        granted.flows.clear();

        assert_eq!(listened_to(granted), 299);
        assert_eq!(listened_to(Proxied::new(start)), ASKS as usize);
    }

    #[test]
    fn no_client_asks_more_often_than_it_may() {
        let start = Instant::now();
        let mut granted = Proxied::new(start);
        granted.in_vain = None;

        let at_once = (0..300).filter(|_| granted.may_ask(start)).count();

        assert_eq!(at_once, ASKS as usize);
        assert!(granted.may_ask(start + ASK_EVERY));
    }
}
