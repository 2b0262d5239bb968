//! Tells edges of another authority of the hub, by which they should know it from now on.

use sennit_masque::{Capsule, capsule::NextAuthority};

use super::{Credential, Hub, Stage};
use crate::{codec::Abilities, ids::ConnId};

impl Hub {
    /// Tells whoever was let in by this credential, and moves, of the authority to move to.
    pub fn offer_authority(&mut self, credential: &Credential, next: NextAuthority) {
        let mut up = Vec::new();
        for id in self.node.iter().map(|(id, _)| id).collect::<Vec<ConnId>>() {
            let Some(conn) = self.node.get_mut(id) else {
                continue;
            };
            match &mut conn.role.stage {
                Stage::Up {
                    credential: its, ..
                } if its == credential => up.push(id),
                // It is told once its handshake is complete.
                Stage::Asking {
                    granted: Some((grant, _)),
                    ..
                } if grant.credential == *credential => grant.next = Some(next),
                Stage::Stranger
                | Stage::Asking { .. }
                | Stage::Posting { .. }
                | Stage::Up { .. }
                | Stage::Proxied(_)
                | Stage::Closing => {}
            }
        }
        for id in up {
            self.tell_authority(id, next);
        }
    }

    /// Tells the edge of one tunnel.
    pub(super) fn tell_authority(&mut self, id: ConnId, next: NextAuthority) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let Stage::Up {
            site,
            stream,
            abilities: Some(Abilities { moves: true, .. }),
            ..
        } = &conn.role.stage
        else {
            return;
        };
        let capsule = Capsule::Authority(next);
        if let Err(error) = conn.h3.http.send_capsule(*stream, &capsule) {
            tracing::debug!(%error, %site, "cannot tell the edge of another authority");
        }
    }
}
