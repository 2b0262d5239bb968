//! Connections that are ready: which becomes that of its class.

use std::time::Instant;

use noq_proto::PathId;
use sennit_masque as masque;

use super::{Edge, Purpose, Stage, race::Exchange};
use crate::ids::ConnId;

impl Edge {
    /// The first link to complete the handshake wins the race of its class. A tunnel that is only
    /// cut off is replaced, unless it is heard again soon.
    pub(super) fn handle_connected(&mut self, id: ConnId, now: Instant) {
        // An attempt may have been closed in the moment in which it won.
        let conn = self.node.get_mut(id);
        let Some(conn) = conn.filter(|conn| conn.role.stage == Stage::Handshake) else {
            return;
        };
        conn.role.stage = Stage::Ready;
        let (index, exchange) = (conn.role.slot, conn.role.exchange);
        let is_first = self.slots[index].live.is_none();
        if !is_first && !self.may_replace(index, now) {
            return self.end_race(index, now);
        }
        match exchange {
            Exchange::Classic => self.ask_once_more(id, now),
            Exchange::Usual if is_first || self.moves(index) => self.promote(id, now),
            Exchange::Usual => {
                self.slots[index].dial.keep_spare(id, now);
                self.settle(now);
            }
        }
    }

    /// A connection that is ready becomes that of its class, or is to if the tunnel that there is
    /// moves.
    pub(super) fn promote(&mut self, id: ConnId, now: Instant) {
        let Some(conn) = self.node.get(id) else {
            return;
        };
        let (index, socket) = (conn.role.slot, conn.role.link);
        let beside = self.moves(index);
        if let Some(old) = self.slots[index].live.filter(|_| !beside) {
            let reason = "nothing was heard of it, but the hub answers a new connection";
            self.node
                .close(old, masque::Code::H3_NO_ERROR.0, reason, now);
            self.lose(old, reason.into(), false, now);
            self.doubt_others(index, now);
        }
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        conn.role.stage = Stage::Connected;
        let patience = self.answers_within(id, now);
        if beside {
            self.ask_beside(index, id, now);
        }
        let slot = &mut self.slots[index];
        if !beside {
            slot.live = Some(id);
            if !slot.dial.is_failing() {
                slot.reason = "waiting for the hub's answer".into();
            }
        }
        slot.dial.won(id, patience, now);
        self.end_race(index, now);
        self.adopt(id, PathId::ZERO, socket, now);
        self.go_on_with_early(id);
        let conn = self.node.get(id);
        let is_known = conn.is_some_and(|conn| conn.h3.http.peer_settings().is_some());
        if is_known || matches!(self.purpose, Purpose::Enrol(_)) {
            self.request(id, now);
        }
        self.settle(now);
    }
}
