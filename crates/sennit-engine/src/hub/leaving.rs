//! Connections whose classes go on over others.
//!
//! One that came *beside* another has taken its place here, and its edge closes the other one when
//! it has heard of that and nothing is on its way any more. An edge that does not hear of it takes
//! the old one for its tunnel as before, so that one must not outlive the new one.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use sennit_masque::Code;

use super::{Credential, Hub, Owner, Stage};
use crate::{hello::REPLACED, ids::ConnId};

/// A connection that has given its place to another one is closed after this, unless its edge has
/// done so before: that waits for a second from when it has heard, which may take as long as it has
/// patience with a request.
const LEAVES_WITHIN: Duration = Duration::from_secs(10);
/// So many of a class may be there beside its tunnel: the one that carried, and one whose grant its
/// edge has not waited for.
const MOST: usize = 2;
/// Why one ends with the connection that had taken its place.
const GONE: &str = "the connection that had taken its place is gone";

/// A connection that has given its place to another one.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) until: Instant,
    conn: ConnId,
    pub(super) owner: Owner,
    /// What it was granted to.
    pub(super) credential: Credential,
}

impl Hub {
    /// A connection may have given its place to another one of its edge. If that came `beside` it,
    /// the edge closes it once nothing is on its way any more.
    pub(super) fn let_leave(&mut self, replaced: Option<ConnId>, beside: bool, now: Instant) {
        let Some(id) = replaced else {
            return;
        };
        if !beside {
            return self.fail(id, REPLACED, now);
        }
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let stage = std::mem::replace(&mut conn.role.stage, Stage::Closing);
        let Stage::Up {
            site,
            class,
            credential,
            ..
        } = stage
        else {
            return;
        };
        let owner = Owner { site, class };
        let others = self.leaving.iter().filter(|it| it.owner == owner);
        let others: Vec<ConnId> = others.map(|it| it.conn).collect();
        if let Some(&oldest) = others.first().filter(|_| others.len() >= MOST) {
            self.end_left(|it| it.conn == oldest, (Code::H3_NO_ERROR, REPLACED), now);
        }
        self.leaving.push_back(Leaving {
            until: now + LEAVES_WITHIN,
            conn: id,
            owner,
            credential,
        });
    }

    /// Closes those that their edges have not closed in time.
    pub(super) fn end_leaving(&mut self, now: Instant) {
        self.end_left(|it| it.until <= now, (Code::H3_NO_ERROR, REPLACED), now);
    }

    /// A connection is over: if it was a tunnel, so are those whose place it had taken.
    pub(super) fn end_left_with(&mut self, id: ConnId, now: Instant) {
        let stage = self.node.get(id).map(|conn| &conn.role.stage);
        if let Some(Stage::Up { site, class, .. }) = stage {
            let (site, class) = (site.clone(), *class);
            let owner = Owner { site, class };
            self.end_left(|it| it.owner == owner, (Code::H3_NO_ERROR, GONE), now);
        } else {
            self.leaving.retain(|it| it.conn != id);
        }
    }

    /// Closes those of which this is so.
    pub(super) fn end_left(
        &mut self,
        which: impl Fn(&Leaving) -> bool,
        (code, reason): (Code, &str),
        now: Instant,
    ) {
        let all = std::mem::take(&mut self.leaving).into_iter();
        let (ended, left): (VecDeque<_>, VecDeque<_>) = all.partition(which);
        self.leaving = left;
        for Leaving { conn, .. } in ended {
            self.node.unplug(conn, now);
            self.node.close(conn, code.0, reason, now);
        }
    }
}
