//! Connections of sites and clients come and go.

use std::time::Instant;

use noq_proto::PathId;

use super::{Hub, HubEvent, Owner, RequestId, Stage};
use crate::{facts::LinkLabel, ids::ConnId, node::NodeEvent, path::number};

impl Hub {
    pub(super) fn handle_node(&mut self, event: NodeEvent, now: Instant) {
        match event {
            NodeEvent::Connected(id) => {
                self.note_connected(id);
                self.adopt(id, PathId::ZERO, now);
                self.begin(id, now);
            }
            NodeEvent::Lost(id, reason) | NodeEvent::TurnedAway(id, reason) => {
                self.leave(id, reason, now);
            }
            NodeEvent::Gone(id) => self.strangers.remove(id),
            NodeEvent::Http(id, event) => self.handle_http(id, event, now),
            NodeEvent::Datagram(conn, stream, context, payload) => {
                self.handle_udp(RequestId { conn, stream }, context, payload, now);
            }
            NodeEvent::PathUp(id, path) => {
                self.adopt(id, path, now);
                self.tell_path(id, path);
            }
            NodeEvent::PathDown(id, path, link, reason) => {
                tracing::debug!(?id, %path, link, reason, "path closed");
                if let Some(conn) = self.node.get_mut(id) {
                    conn.role.unnamed.remove(&number(path));
                }
            }
            NodeEvent::PathState(id, path) => self.tell_path(id, path),
        }
    }

    fn note_connected(&mut self, id: ConnId) {
        if let Some(conn) = self.node.get_mut(id) {
            conn.role.connected = true;
            self.strangers.note_handshake(true);
        }
    }

    fn adopt(&mut self, id: ConnId, path: PathId, now: Instant) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let label = conn.role.links.remove(&u64::from(number(path)));
        let label = label.unwrap_or_else(|| {
            conn.role.unnamed.insert(number(path));
            LinkLabel {
                name: format!("path-{}", number(path)),
                tier: 1,
                weight: 1,
            }
        });
        self.node.adopt_path(id, path, label, now);
    }

    pub(super) fn leave(&mut self, id: ConnId, reason: String, now: Instant) {
        self.end_left_with(id, now);
        self.node.unplug(id, now);
        // What was held for a missing packet is handed on now: nobody knows whose addresses are
        // whose once the site is forgotten.
        while let Some(packet) = self.next_admitted(now) {
            self.to_tun.push_back(packet);
        }
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let stage = std::mem::replace(&mut conn.role.stage, Stage::Closing);
        if !conn.role.connected && !matches!(stage, Stage::Closing) {
            self.strangers.note_handshake(false);
        }
        if let Stage::Proxied(proxied) = &stage {
            self.events.extend(proxied.ends(id));
        }
        let Stage::Up {
            site, class, name, ..
        } = stage
        else {
            return;
        };
        let owner = Owner { site, class };
        self.pipes.park(&owner, now);
        let site = owner.site;
        if self.sites.leave(&site, class, id) {
            self.node.links.set_sharing(Some(&site), None);
        }
        self.events.push_back(HubEvent::TunnelDown {
            site,
            class: name,
            class_id: class,
            reason,
        });
    }

    pub(super) fn tell_path(&mut self, id: ConnId, path: PathId) {
        let Some(conn) = self.node.get(id) else {
            return;
        };
        let Stage::Up {
            site,
            name,
            abilities,
            ..
        } = &conn.role.stage
        else {
            return;
        };
        // It is told of once the edge has said which link it is.
        if abilities.is_some() && conn.role.unnamed.contains(&number(path)) {
            return;
        }
        let Some(path) = conn.paths().iter().find(|known| known.id == path) else {
            return;
        };
        let (state, reason) = path.health.state();
        self.events.push_back(HubEvent::Path {
            site: site.clone(),
            class: name.clone(),
            link: path.link.name.clone(),
            state,
            before: path.health.before(),
            reason,
            heard: path.health.lost_from(),
        });
    }
}
