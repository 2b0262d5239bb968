//! Connections that end: what becomes of their class.

use std::time::{Duration, Instant};

use sennit_masque as masque;

use super::{Edge, EdgeEvent, Stage, dial::close_attempt};
use crate::{hello::REPLACED, ids::ConnId};

/// A class that lost its tunnel takes packets for the next one for this long; then their senders
/// are told that there is no route. A race over links of 250 ms one way takes less, with the pause
/// before it.
pub(super) const BRIDGED_FOR: Duration = Duration::from_millis(1500);

impl Edge {
    /// A connection is over; `lasting` if the hub does not want another one either.
    pub(super) fn handle_lost(&mut self, id: ConnId, reason: String, lasting: bool, now: Instant) {
        let Some(conn) = self.node.get(id) else {
            return;
        };
        let (index, link, outlived) = (conn.role.slot, conn.role.link, conn.role.outlived);
        if self.has_left(index, id) {
            // It had its time, or its end comes early; the tunnel of its class is another.
            self.slots[index].left.retain(|(_, left)| *left != id);
            return self.node.unplug(id, now);
        }
        let up = matches!(conn.role.stage, Stage::Up(_));
        self.slow.give_up(link, id);
        if up {
            self.begin_anew(index, now);
        }
        let dial = &mut self.slots[index].dial;
        if lasting {
            dial.turned_away(id, self.links.keys().copied(), now);
            // Each handshake of a race would ask it again, with its first packets.
            self.hub_settings = None;
        } else {
            dial.failed(id, link, now);
        }
        if up {
            self.doubt_others(index, now);
        }
        // We have no newer one, and the hub has granted none that was given up, so somebody else
        // has.
        let is_others = self.slots[index].next.is_none() && !outlived;
        if up && reason.contains(REPLACED) && is_others {
            let links = self.links.keys().copied();
            self.slots[index].dial.displaced(links, now);
            let reason = format!("{reason}, of another box with this site's identity");
            self.lose(id, reason, false, now);
        } else {
            self.lose(id, reason, lasting, now);
        }
        self.settle(now);
    }

    /// A class loses a tunnel that the hub had granted, mostly by a word of the hub, so something
    /// passes again. That nobody answered beside it is no reason to wait with the next attempt, and
    /// one that nothing was heard of may be seconds away from its next packet.
    fn begin_anew(&mut self, index: usize, now: Instant) {
        let (node, slow) = (&self.node, &self.slow);
        let is_unheard = |id| {
            let conn = node.get(id);
            conn.is_some_and(|conn| conn.tunnel.answered().is_none())
        };
        let dial = &mut self.slots[index].dial;
        dial.calm(now);
        for id in dial.take_old(|link, id| !slow.has(link, now) && is_unheard(id), now) {
            close_attempt(&mut self.node, id, "begun anew", now);
        }
    }

    /// A class has lost its tunnel by itself: perhaps the hub has started anew, and knows nothing
    /// of the others.
    pub(super) fn doubt_others(&mut self, index: usize, now: Instant) {
        for id in self.live() {
            let conn = self.node.get_mut(id);
            if let Some(conn) = conn.filter(|conn| conn.role.slot != index) {
                conn.tunnel.doubt(now);
            }
        }
    }

    /// A connection is over.
    pub(super) fn lose(&mut self, id: ConnId, reason: String, lasting: bool, now: Instant) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let stage = std::mem::replace(&mut conn.role.stage, Stage::Closing);
        let (index, mtu) = (conn.role.slot, conn.tunnel.max_packet());
        self.unplug(index, id, now);
        if self.slots[index].next == Some(id) {
            return self.lose_next(index, &reason);
        }
        let slot = &mut self.slots[index];
        if matches!(stage, Stage::Up(_)) {
            slot.bridge = Some((now + BRIDGED_FOR, mtu));
        }
        if slot.live == Some(id) {
            slot.live = slot.next.take();
            slot.since = now;
        } else if !matches!(stage, Stage::Handshake | Stage::Ready) || slot.live.is_some() {
            return;
        }
        slot.reason = reason.clone();
        let class = slot.class.name.clone();
        self.events.push_back(match stage {
            Stage::Up(_) => EdgeEvent::TunnelDown { class, reason },
            _ => EdgeEvent::Refused {
                class,
                reason,
                lasting,
            },
        });
    }

    /// Closes a connection that is of no use; its class is dialled again later.
    pub(super) fn give_up(&mut self, id: ConnId, reason: String, now: Instant) {
        self.end(id, reason, false, now);
    }

    /// Closes a connection; `lasting` if the hub does not want another one either.
    pub(super) fn end(&mut self, id: ConnId, reason: String, lasting: bool, now: Instant) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        if conn.role.stage == Stage::Closing {
            return;
        }
        self.node.close(id, masque::Code::H3_NO_ERROR.0, "", now);
        self.handle_lost(id, reason, lasting, now);
    }
}
