//! How a connection reacts to what happened to it.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use noq_proto::{
    ConnectionError, EndpointEvent, Event, PathAbandonReason, PathEvent, TransportErrorCode,
};
use sennit_masque::Code;

use super::{Node, NodeEvent};
use crate::{
    h3::H3,
    ids::ConnId,
    mishap,
    path::Path,
    pipe::Pipe,
    reason::{self, plain},
    tunnel::Tunnel,
};

impl<R> Node<R> {
    /// Lets one connection react to what happened to it. The order matters: its paths are judged by
    /// what was heard before it is asked what noq has found, and noq is told last what the endpoint
    /// is to know.
    pub(super) fn digest(&mut self, id: ConnId, now: Instant) {
        if self.is_broken_off(id) || !self.judge(id, now) {
            self.turns.remove(id);
            return;
        }
        self.drain_events(id, now);
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        while let Some(event) = conn.tunnel.conn.poll_endpoint_events() {
            if event.is_drained() {
                self.drained.push((id, event));
            } else if let Some(event) = self.endpoint.handle_event(conn.handle, event) {
                conn.tunnel.conn.handle_event(event);
            }
        }
        if conn.tunnel.tail.is_some() {
            self.follow_tail(id, now);
        }
    }

    /// Gives a connection up in which noq has panicked; whether that is one.
    fn is_broken_off(&mut self, id: ConnId) -> bool {
        let conn = self.conns.get_mut(&id);
        let Some(conn) = conn.filter(|conn| conn.tunnel.is_broken()) else {
            return false;
        };
        if self.drained.iter().any(|(other, _)| *other == id) {
            return true;
        }
        self.drained.push((id, EndpointEvent::drained()));
        let conn = &mut conn.tunnel.conn;
        if !conn.is_closed() {
            let reason = mishap::REASON.to_owned();
            self.events.push_back(NodeEvent::Lost(id, reason));
        }
        while let Some(event) = conn.poll() {
            if let Event::ConnectionLost { reason } = event {
                self.events.push_back(lost(id, reason));
            }
        }
        true
    }

    /// Hands on what waited in vain, and judges the paths, with what others know of them; false if
    /// there is no such connection.
    fn judge(&mut self, id: ConnId, now: Instant) -> bool {
        let Some(conn) = self.conns.get_mut(&id) else {
            return false;
        };
        let pipe = self.pipes.of(conn.pipe);
        conn.tunnel.handle_overdue(pipe, now);
        conn.tunnel.consult(&self.ways, id, now);
        let events = &mut self.events;
        let changed = |path: &Path| events.push_back(NodeEvent::PathState(id, path.id));
        conn.tunnel.handle_health(pipe, changed, now);
        let plugged = conn.pipe;
        if conn.tunnel.inform(&mut self.ways, id, now) {
            self.wake_others(id);
        }
        if self.ways.are_too_many() {
            self.forget_ways();
        }
        self.note_arrivals(plugged);
        true
    }

    /// Forgets the ways that no path takes any more.
    fn forget_ways(&mut self) {
        let used = self.conns.values().flat_map(|conn| {
            let (party, networks) = conn.tunnel.ways();
            networks
                .into_iter()
                .map(move |network| (Arc::clone(&party), network))
        });
        self.ways.keep_only(used);
    }

    /// Gives those a turn that share ways with a connection which has news of them.
    fn wake_others(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get(&id) else {
            return;
        };
        let (party, networks) = conn.tunnel.ways();
        for (&other, conn) in &self.conns {
            let (theirs, ways) = conn.tunnel.ways();
            if party == theirs && ways.iter().any(|way| networks.contains(way)) {
                self.turns.push(other, conn.class);
            }
        }
    }

    /// Passes on what noq and HTTP/3 have found.
    fn drain_events(&mut self, id: ConnId, now: Instant) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        let pipe = self.pipes.of(conn.pipe);
        let (events, mut closed) = (&mut self.events, false);
        if !conn.tunnel.close_stuck_paths(now) {
            let reason = "no data can be sent on any path";
            conn.h3
                .fail(&mut conn.tunnel.conn, Code::H3_INTERNAL_ERROR, reason, now);
        }
        if conn.tunnel.handle_keys(now).is_err() {
            let reason = "the peer does not follow when keys are renewed";
            conn.h3
                .fail(&mut conn.tunnel.conn, Code::H3_INTERNAL_ERROR, reason, now);
        }
        conn.h3.read_on(&mut conn.tunnel.conn, now);
        while let Some(event) = conn.tunnel.conn.poll() {
            match event {
                Event::Connected => {
                    let is_client = conn.tunnel.conn.side().is_client();
                    if is_client && conn.may_write && !conn.tunnel.conn.accepted_0rtt() {
                        // The server has seen nothing of it, and noq has forgotten the streams.
                        conn.h3 = H3::client();
                    }
                    events.push_back(NodeEvent::Connected(id));
                }
                Event::ConnectionLost { reason } => events.push_back(lost(id, reason)),
                Event::Stream(event) => {
                    conn.h3.handle_stream(&mut conn.tunnel.conn, &event, now);
                }
                Event::Path(event) => {
                    closed |= matches!(event, PathEvent::Abandoned { .. });
                    digest_path(&mut conn.tunnel, pipe, id, event, events);
                }
                // A server knows now how many streams it may open, and has the keys to write. Its
                // settings are no secret, and spare the client the round trip of waiting for them.
                Event::HandshakeDataReady => conn.may_write |= conn.tunnel.has_answered(),
                Event::HandshakeConfirmed => conn.tunnel.handle_confirmed(),
                Event::DatagramReceived | Event::DatagramsUnblocked | Event::NatTraversal(_) => {}
            }
        }
        // Otherwise there are no streams before the handshake is done.
        if conn.may_write || !conn.tunnel.conn.is_handshaking() {
            conn.h3.pump(&mut conn.tunnel.conn, now);
        }
        while let Some(event) = conn.h3.poll_event() {
            events.push_back(NodeEvent::Http(id, event));
        }
        if let Some(reason) = conn.h3.take_failure() {
            events.push_back(NodeEvent::Lost(id, reason));
        }
        if closed {
            self.settle_links(id);
        }
    }
}

/// What becomes of a connection that ended so.
fn lost(id: ConnId, error: ConnectionError) -> NodeEvent {
    let text = plain(&error.to_string(), reason::LONGEST);
    match error {
        ConnectionError::ConnectionClosed(close) if is_of_certificate(close.error_code) => {
            NodeEvent::TurnedAway(id, text)
        }
        _ => NodeEvent::Lost(id, text),
    }
}

/// Whether a peer closed a connection because it does not take our certificate (RFC 8446 §6.2:
/// expired, revoked, of an authority that it does not know, or otherwise bad).
fn is_of_certificate(code: TransportErrorCode) -> bool {
    (42..=48)
        .filter(|alert| !matches!(alert, 47))
        .any(|alert| code == TransportErrorCode::crypto(alert))
}

fn digest_path(
    tunnel: &mut Tunnel,
    pipe: &mut Pipe,
    id: ConnId,
    event: PathEvent,
    events: &mut VecDeque<NodeEvent>,
) {
    match event {
        PathEvent::Established { id: path, .. } => events.push_back(NodeEvent::PathUp(id, path)),
        PathEvent::Abandoned {
            id: path, reason, ..
        } => {
            let link = tunnel.remove_path(pipe, path).map(|link| link.name);
            events.push_back(NodeEvent::PathDown(id, path, link, describe(&reason)));
        }
        // Peers that report report in their own way; see `sennit_core::frame::Report`.
        _ => {}
    }
}

fn describe(reason: &PathAbandonReason) -> String {
    match reason {
        PathAbandonReason::ApplicationClosed { .. } => "closed here".into(),
        PathAbandonReason::TimedOut => "timed out".into(),
        PathAbandonReason::UnusableAfterNetworkChange => "unusable after a network change".into(),
        PathAbandonReason::RemoteAbandoned { error_code } => {
            format!("closed by the peer with code {error_code}")
        }
        #[expect(
            deprecated,
            reason = "noq no longer emits it but the enum still has it"
        )]
        PathAbandonReason::ValidationFailed => "validation failed".into(),
    }
}
