//! Which paths carry packets, how often they are probed, and what other tunnels hear of them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use noq_proto::FourTuple;
use sennit_core::{Pace, PathState, health::Keep, numbering::FULL};

use super::{Tunnel, within};
use crate::{gate::SizeSource, ids::ConnId, path::Path, pipe::Pipe, ways::Ways};

/// Without data for this long a tunnel is idle and its paths are probed slowly.
const IDLE_AFTER: Duration = Duration::from_secs(2);
/// A tunnel that carries this many bytes within [`FLOOD_WINDOW`], 2.6 Mbit/s, is busy.
const FLOOD: usize = 64 << 10;
/// The time in which [`FLOOD`] is counted.
const FLOOD_WINDOW: Duration = Duration::from_millis(200);
/// A tunnel is busy until it carried no [`FLOOD`] for this long.
const FLOOD_LASTS: Duration = Duration::from_secs(1);
/// An end sends a transfer until it had no full packet for this long: some round trips of most
/// paths, and less than there is between two long requests of a client.
const SENDS_FOR: Duration = Duration::from_millis(200);
/// A tunnel in use tells the others of its paths this often: an idle one needs to know within
/// seconds.
const INFORM_EVERY: Duration = Duration::from_secs(1);

/// How much goes in and out. Both ends see the same packets, so they agree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Activity {
    last: Option<Instant>,
    /// When a packet last came to be sent that is as long as those of transfers.
    last_full: Option<Instant>,
    /// Since when `bytes` are counted.
    since: Instant,
    bytes: usize,
    /// When they last were a flood.
    flood: Option<Instant>,
}

impl Activity {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            last: None,
            last_full: None,
            since: now,
            bytes: 0,
            flood: None,
        }
    }

    fn note(&mut self, bytes: usize, now: Instant) {
        self.last = Some(now);
        if now.saturating_duration_since(self.since) >= FLOOD_WINDOW {
            (self.since, self.bytes) = (now, 0);
        }
        self.bytes += bytes;
        if self.bytes >= FLOOD {
            self.flood = Some(now);
        }
    }

    /// Whether any packet went in or out of late.
    pub(super) fn is_active(&self, now: Instant) -> bool {
        within(self.last, IDLE_AFTER, now)
    }

    /// A packet of so many bytes came to be sent.
    pub(super) fn note_to_send(&mut self, bytes: usize, now: Instant) {
        self.note(bytes, now);
        if bytes >= FULL {
            self.last_full = Some(now);
        }
    }

    /// Whether packets flow of which those of transfers are not sent by this end.
    pub(super) fn only_answers(&self, now: Instant) -> bool {
        self.is_active(now) && !within(self.last_full, SENDS_FOR, now)
    }

    fn is_flood(&self, now: Instant) -> bool {
        within(self.flood, FLOOD_LASTS, now)
    }
}

impl Tunnel {
    /// An inner packet went in or out.
    pub(super) fn note_data(&mut self, bytes: usize, now: Instant) {
        self.activity.note(bytes, now);
    }

    /// Asks for a sign of life on all paths.
    pub(crate) fn ping(&mut self) {
        for path in &self.paths {
            // Fails only for a path that is closing.
            let _ = self.conn.ping_path(path.id);
        }
    }

    /// How much flows, here or (as its reports say) at the peer.
    fn pace(&self, now: Instant) -> Pace {
        let flows = self.activity.is_active(now) || self.reports.is_peer_active(now);
        // Where there is no other path, nothing is gained by knowing at once that this one is dead.
        if self.paths.len() > 1 && self.activity.is_flood(now) {
            Pace::Busy
        } else if flows {
            Pace::Active
        } else {
            Pace::Idle
        }
    }

    /// Whether nothing flows, here or at the peer.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        self.pace(now) == Pace::Idle
    }

    /// Learns what other tunnels know of the ways that an idle one shares with them.
    pub(crate) fn consult(&mut self, ways: &Ways, id: ConnId, now: Instant) {
        let heard = |since: Instant| self.paths.iter().any(|path| path.health.heard() > since);
        if self.doubted.is_some_and(heard) {
            self.doubted = None;
            let paths = self.paths.iter_mut();
            paths.for_each(|path| path.health.believe());
        }
        if !self.is_numbered() || self.pace(now) != Pace::Idle {
            return;
        }
        for path in &mut self.paths {
            let company = ways.company(&self.party, path.network, id, now);
            path.health.set_company(company, now);
        }
    }

    /// The other end may have started anew, and know nothing of this connection. What others hear
    /// says that the ways work and no more, so an idle one has to be heard itself, and does not
    /// judge for others until then.
    pub(crate) fn doubt(&mut self, now: Instant) {
        if self.is_numbered() && self.pace(now) == Pace::Idle {
            self.doubted = Some(now);
            self.paths.iter_mut().for_each(|path| path.health.ask(now));
        }
    }

    /// Tells other tunnels of the ways; true if they should hear of it at once.
    pub(crate) fn inform(&mut self, ways: &mut Ways, id: ConnId, now: Instant) -> bool {
        if !self.is_numbered() {
            return false;
        }
        if self.doubted.is_some() {
            // That it hears nothing says nothing of the ways.
            ways.forget(id);
            return false;
        }
        let pace = self.pace(now);
        let every = if pace == Pace::Idle {
            Duration::ZERO
        } else {
            INFORM_EVERY
        };
        let mut changed = false;
        for path in &mut self.paths {
            if path.is_news(every, now) {
                changed |= ways.inform(&self.party, path.network, (id, pace), &path.health, now);
            }
        }
        changed
    }

    /// Who is at the other end, and the ways there.
    pub(crate) fn ways(&self) -> (Arc<str>, Vec<FourTuple>) {
        let networks = self.paths.iter().map(|path| path.network);
        (Arc::clone(&self.party), networks.collect())
    }

    /// How often an idle path is probed.
    fn keep(&self, path: &Path) -> Keep {
        let trusted = self.paths.iter().filter(|path| path.is_trusted());
        let first = trusted.clone().next().map(|path| path.id);
        let best = trusted.clone().map(|path| path.link.tier).min();
        let stands_by = best.is_some_and(|best| path.link.tier > best);
        let keep = match (self.is_numbered(), self.conn.side().is_client(), stands_by) {
            (false, _, _) => Keep::ALONE,
            (true, true, false) => Keep::ASKING,
            (true, true, true) => Keep::ASKING_RARELY,
            (true, false, false) => Keep::ANSWERING,
            (true, false, true) => Keep::ANSWERING_RARELY,
        };
        // The first carries the acknowledgements, and keeps the connection.
        if first == Some(path.id) {
            keep.of_the_first()
        } else {
            keep
        }
    }

    /// Judges the paths and probes those that are due. Calls `changed` for each path whose state
    /// changed.
    pub(crate) fn handle_health(
        &mut self,
        pipe: &mut Pipe,
        mut changed: impl FnMut(&Path),
        now: Instant,
    ) {
        let pace = self.pace(now);
        // A peer that is no Sennit does not probe, so silence means nothing there.
        let listens = self.is_numbered();
        let mut moved = false;
        if pace == Pace::Idle {
            self.set_keeps(now);
        }
        let probing = self.paths.iter().any(|path| path.health.is_probe_due(now));
        let lost = |path: &Path| match path.health.state().0 {
            PathState::Up | PathState::Probation => false,
            PathState::Suspect | PathState::Down => true,
        };
        let alone = self.paths.iter().all(lost);
        for path in &mut self.paths {
            path.health.set_alone(alone, now);
            if probing {
                path.health.probe_in_company(now);
            }
            if path.follow(&self.conn) {
                path.gate.set_congestion(self.congestion);
                moved = true;
            }
            path.health
                .set_pace(pace, path.gate.srtt().unwrap_or_default(), now);
            if path.health.poll_probe(now) {
                // Fails only for a path that is closing, which needs no probe.
                let _ = self.conn.ping_path(path.id);
                path.probes_size = path.gate.probing();
            }
            if path.health.is_unsteady(now) && path.swings() {
                path.health.handle_swing(now);
            }
            let heard = path.health.hears();
            let differs = listens && path.health.handle_timeout(now);
            // Whoever judges for this path reports as well.
            if (differs || path.health.hears() != heard) && !path.health.is_judged() {
                self.reports.announce(now);
            }
            if differs {
                changed(path);
                if path.health.state().0 == PathState::Down && !path.is_trusted() {
                    path.gate.ledger().give_up();
                }
            }
        }
        self.trust(now);
        if moved {
            self.set_floors();
            self.abort_batch(pipe);
        }
        self.tell_of_shrunk(now);
        self.repeat_bad_news(pace, now);
    }

    /// Has the peer hear at once of a path that carries less than before: what it sends there may
    /// be lost as well, and as long as all of that is small it does not notice.
    fn tell_of_shrunk(&mut self, now: Instant) {
        for path in &mut self.paths {
            let is_small = u64::from(path.gate.carries()) < self.packet_size;
            let shrunk = is_small && path.gate.size_source() == SizeSource::BlackHole;
            if shrunk && !path.shrunk {
                self.reports.announce(now);
            }
            path.shrunk = shrunk;
        }
    }

    /// Says what keeps each path up while nothing is sent.
    fn set_keeps(&mut self, now: Instant) {
        for index in 0..self.paths.len() {
            let keep = self.keep(&self.paths[index]);
            self.paths[index].health.set_keep(keep, now);
        }
    }

    /// Tells the peer now and then of paths that are not up.
    fn repeat_bad_news(&mut self, pace: Pace, now: Instant) {
        let all_up = self
            .paths
            .iter()
            .all(|path| path.health.state().0 == PathState::Up);
        let judged = self.paths.iter().all(|path| path.health.is_judged());
        if !all_up && !judged {
            self.reports.repeat(pace != Pace::Idle, now);
        }
    }

    /// Decides which paths carry packets: those that are up. If none is, those on which the peer
    /// hears us: each direction may have a link that works, and not the same.
    fn trust(&mut self, now: Instant) {
        let is_up = |path: &Path| path.health.state().0 == PathState::Up;
        let none_up = !self.paths.iter().any(is_up);
        let goes = |path: &Path| is_up(path) || none_up && path.health.is_heard_by_peer(now);
        // Where no other path can carry it, what is under way may well arrive: a link that changes
        // its cell or satellite is silent for a moment and loses nothing.
        let others = self.paths.iter().any(goes);
        let mut rerouted = false;
        for path in &mut self.paths {
            let trusted = goes(path);
            if path.set_trusted(trusted) {
                rerouted = true;
                // Fails only for a path that is closing.
                let _ = self.conn.set_path_status(path.id, path.status());
                if !trusted && others {
                    path.gate.ledger().give_up();
                }
            }
        }
        if rerouted {
            for path in &self.paths {
                path.gate.set_rerouted();
            }
        }
    }

    /// Tells noq anew what to schedule by: a path that it measures anew is available to it, and so
    /// is one that was lent to a batch.
    pub(super) fn say_statuses(&mut self) {
        for path in &self.paths {
            // Fails only for a path that is closing.
            let _ = self.conn.set_path_status(path.id, path.status());
        }
    }

    /// Whether noq schedules by what is trusted, as it has to unless a batch is leaving.
    pub(super) fn agrees_on_statuses(&self) -> bool {
        let agrees = |path: &Path| {
            let said = self.conn.path_status(path.id).ok();
            said.is_none_or(|said| said == path.status())
        };
        !self.conn.is_multipath_negotiated() || self.paths.iter().all(agrees)
    }
}
