//! Paths that are closed because they are of no use, so that others may take their places.

use std::time::{Duration, Instant};

use noq_proto::PathId;
use sennit_core::{PathState, health::Reason};

use super::{Edge, paths::is_up};
use crate::{
    ids::{ConnId, SocketId},
    path::Path,
    tunnel::POOR,
};

/// A path on which so many packets left since it was up is closed and tried anew, if another one
/// works: noq keeps 350 bytes of each until the path is heard.
const MOST_UNHEARD: u64 = 1 << 13;
/// A path that is down while packets flow, and was never heard later than this after it began, is
/// tried anew likewise. A hub that knows no connection ID for it yet gives up an address that
/// changes meanwhile: it answers there, which validates the path here, and sends nothing else for
/// good. Where it sends, it does so each 50 ms.
const BEGINS_WITHIN: Duration = Duration::from_millis(100);
/// A link that cannot carry the tunnel's packets is left alone for this long.
const TOO_SMALL_FOR: Duration = Duration::from_secs(60);

impl Edge {
    /// Closes paths that are down and cost much or never carried anything, while another is up.
    pub(super) fn drop_dead_paths(&mut self, id: ConnId, now: Instant) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let tunnel = &mut conn.tunnel;
        let works = tunnel.paths.iter().any(is_up);
        let flows = !tunnel.is_idle(now);
        for path in &mut tunnel.paths {
            let Some(stats) = tunnel.conn.path_stats(path.id) else {
                continue;
            };
            if matches!(path.state().0, PathState::Up | PathState::Probation) {
                path.sent_up = stats.sent_packets;
                continue;
            }
            let unheard = stats.sent_packets.saturating_sub(path.sent_up) >= MOST_UNHEARD;
            if works && (unheard || flows && is_still_born(path)) {
                // Fails only for a path that is closed already.
                let _ = tunnel.conn.close_path(now, path.id, POOR);
            }
        }
    }

    /// Closes paths that turned out too small for the tunnel's packets.
    pub(super) fn drop_small_paths(&mut self, index: usize, id: ConnId, now: Instant) {
        let need = self.node.settings().outer_mtu();
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        if conn.tunnel.takes_halves() {
            return;
        }
        let small: Vec<(PathId, SocketId)> = conn
            .tunnel
            .paths
            .iter()
            .filter(|path| path.gate.is_small())
            .map(|path| (path.id, path.socket))
            .collect();
        for (path, socket) in small {
            // The last path is not closed: a tunnel for small packets is better than none.
            if conn.tunnel.conn.close_path(now, path, POOR).is_err() {
                continue;
            }
            let link = self.links.get(&socket).map_or("?", |link| &link.label.name);
            tracing::warn!(
                link,
                need,
                "link does not carry packets as large as the tunnel's: kept out; a smaller mtu at both ends would let it in"
            );
            self.slots[index].dial.hold(socket, TOO_SMALL_FOR, now);
        }
    }
}

fn is_still_born(path: &Path) -> bool {
    let is_silent = path.state() == (PathState::Down, Reason::Silent);
    is_silent && path.health.heard() < path.began + BEGINS_WITHIN
}
