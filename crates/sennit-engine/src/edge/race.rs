//! How far the race of one class is: what is tried, and when a link may be tried again.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::{Duration, Instant},
};

use super::{Role, Stage};
use crate::{
    hello::Takes,
    ids::{ConnId, SocketId},
    treatment::Treatment,
};

/// A handshake that is not answered by then is begun anew, perhaps to another address of the hub;
/// and so is a connection whose request is not answered. `slow.rs` has the exceptions. A hub that
/// could not validate an address that changed after the handshake says nothing for good (RFC 9000
/// §8.2), but its acknowledgements keep the connection alive.
pub(super) const ATTEMPT: Duration = Duration::from_secs(4);
/// An attempt that is not answered is kept for so long, and so is one on a slow link after
/// something last arrived. A slow link has so much time for the hub's answer to the request, too.
pub(super) const LONGEST: Duration = Duration::from_secs(60);
/// A hub that answers a new connection gets so much time to answer on the old one as well, which is
/// probed four times a second: both were cut off, and the new one's packet was the first to pass.
const OLD_FIRST: Duration = Duration::from_millis(600);
/// Links that come put a race off for so long.
const WAITS_FOR: Duration = Duration::from_secs(3);
/// After a failure that came at once (a refusal, a dead link) this is how long to wait; doubled
/// with every further one.
const RETRY: Duration = Duration::from_millis(500);
pub(super) const RETRY_MAX: Duration = Duration::from_secs(8);
/// First wait after the hub has said that it does not want this edge, which only its operator can
/// change; doubled with every further one.
const TURNED_AWAY: Duration = Duration::from_secs(5);
/// Longest wait after that: a hub is asked a few hundred times a day by an edge that was forgotten
/// somewhere, and one that is let in again is back within this time.
const TURNED_AWAY_MAX: Duration = Duration::from_secs(300);
/// Two boxes with one identity (a copied disk) would take the tunnel from each other for ever; the
/// one that lost it waits for so long, so that it is a nuisance and not a storm.
const DISPLACED_FOR: Duration = Duration::from_secs(30);
/// After this many attempts without an answer on a link, a classic handshake is begun beside the
/// post-quantum one: there are boxes that drop the second packet of a large ClientHello.
const BEFORE_CLASSIC: u32 = 2;

/// Which key exchange a handshake offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Exchange {
    /// Whatever the configuration offers, post-quantum first.
    Usual,
    /// Classic groups alone, whose ClientHello is one packet.
    Classic,
}

/// One handshake: where it leaves from, whom it asks, and for what.
pub(super) type Attempt = (SocketId, SocketAddr, Exchange);

impl Role {
    /// Of a handshake that begins, for a class whose packets are treated so.
    pub(super) fn new(
        (slot, treatment): (usize, Treatment),
        (link, remote, exchange): Attempt,
    ) -> Self {
        Self {
            slot,
            link,
            remote,
            name: None,
            exchange,
            stage: Stage::Handshake,
            beside: false,
            outlived: false,
            treatment,
            early: None,
            hub: Takes::default(),
            opening: BTreeMap::new(),
            tried: BTreeMap::new(),
            gone: BTreeSet::new(),
        }
    }
}

/// The race of one class.
#[derive(Debug)]
pub(super) struct Dial {
    pub(super) attempts: BTreeMap<Attempt, (ConnId, Instant)>,
    /// The first of those that nobody answered in time, beside those that took their places.
    pub(super) late: BTreeMap<Attempt, (ConnId, Instant)>,
    /// Links on which a whole attempt went by without an answer.
    pub(super) unanswered: BTreeSet<SocketId>,
    /// How many whole attempts in a row that was on each link, since the hub last granted anything.
    pub(super) stalled: BTreeMap<SocketId, u32>,
    /// When a link may be tried again, for a handshake or a path.
    pub(super) not_before: BTreeMap<SocketId, Instant>,
    /// Rounds of handshakes begun on a link since the last success: each is for the next addresses
    /// of the hub.
    pub(super) turns: BTreeMap<SocketId, usize>,
    /// Of all links, since then.
    pub(super) failures: u32,
    /// How often the hub has turned us away since it last let us in.
    pub(super) refusals: u32,
    /// When the last connection won, or was last asked for a sign of life.
    pub(super) asked: Instant,
    /// The connection that won is of no use unless the hub has answered by then.
    pub(super) answer_by: Option<Instant>,
    /// Since when all paths are down while no link came.
    pub(super) cut_off: Option<Instant>,
    /// Until when a link that comes puts that off.
    waits_until: Option<Instant>,
    /// The attempt that is ready, and takes the place of the connection that is cut off then.
    pub(super) spare: Option<(ConnId, Instant)>,
    pub(super) next_look: Option<Instant>,
}

impl Dial {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            attempts: BTreeMap::new(),
            late: BTreeMap::new(),
            unanswered: BTreeSet::new(),
            stalled: BTreeMap::new(),
            not_before: BTreeMap::new(),
            turns: BTreeMap::new(),
            failures: 0,
            refusals: 0,
            asked: now,
            answer_by: None,
            cut_off: None,
            waits_until: None,
            spare: None,
            next_look: Some(now),
        }
    }

    /// One attempt has won, and waits for the hub's answer for at most so long.
    pub(super) fn won(&mut self, winner: ConnId, patience: Duration, now: Instant) {
        self.forget(winner);
        self.unanswered.clear();
        self.cut_off = None;
        (self.asked, self.answer_by) = (now, Some(now + patience));
    }

    /// The attempts that nobody needs any more, to be closed.
    pub(super) fn take_attempts(&mut self) -> Vec<ConnId> {
        self.take_if(|_, _| true)
    }

    /// All attempts, those that are late as well, and when each began.
    pub(super) fn tries(&self) -> impl Iterator<Item = (Attempt, ConnId, Instant)> {
        let all = self.attempts.iter().chain(&self.late);
        all.map(|(&to, &(id, since))| (to, id, since))
    }

    /// An attempt was not answered in time. It is kept if it is the first of its kind; otherwise it
    /// is to be closed.
    pub(super) fn is_kept_late(&mut self, to: Attempt) -> bool {
        let attempt = self.attempts.remove(&to);
        let first = to.2 == Exchange::Usual && !self.late.contains_key(&to);
        self.late
            .extend(attempt.filter(|_| first).map(|attempt| (to, attempt)));
        first
    }

    /// An attempt that is late is answered after all; the one in its place is to be closed.
    pub(super) fn revive(&mut self, to: Attempt, id: ConnId) -> Option<ConnId> {
        let late = self.late.remove(&to)?;
        if late.0 != id {
            self.late.insert(to, late);
            return None;
        }
        self.attempts.insert(to, late).map(|(id, _)| id)
    }

    /// The attempts of which this is so, to be closed.
    pub(super) fn take_if(&mut self, ends: impl Fn(&Attempt, ConnId) -> bool) -> Vec<ConnId> {
        let mut taken = Vec::new();
        for attempts in [&mut self.attempts, &mut self.late] {
            let found = attempts.extract_if(.., |to, (id, _)| ends(to, *id));
            taken.extend(found.map(|(_, (id, _))| id));
        }
        self.spare = self.spare.filter(|(spare, _)| !taken.contains(spare));
        taken
    }

    /// The attempts that are late by more than can be hoped for, to be closed.
    pub(super) fn take_too_late(&mut self, now: Instant) -> Vec<ConnId> {
        let is_past = |since: Instant| now.saturating_duration_since(since) >= LONGEST;
        let past = self.late.extract_if(.., |_, (_, since)| is_past(*since));
        past.map(|(_, (id, _))| id).collect()
    }

    /// One attempt has won while the connection before it may still come back.
    pub(super) fn keep_spare(&mut self, id: ConnId, now: Instant) {
        let better = |(spare, _)| self.is_classic(spare) && !self.is_classic(id);
        if self.spare.is_none_or(better) {
            self.spare = Some((id, now + OLD_FIRST));
        }
    }

    /// A classic attempt has won while a post-quantum one may still be answered, which has time
    /// until then. False if another one has won already.
    pub(super) fn keep_classic(&mut self, id: ConnId, until: Instant) -> bool {
        let is_new = self.spare.is_none();
        self.spare.get_or_insert((id, until));
        is_new
    }

    /// Whether it is an attempt with classic groups alone.
    pub(super) fn is_classic(&self, id: ConnId) -> bool {
        let mut attempts = self.attempts.iter();
        attempts
            .any(|((_, _, exchange), &(known, _))| (*exchange, known) == (Exchange::Classic, id))
    }

    /// Attempts that have had more time than a new one has to wait for, to be closed if this is so.
    pub(super) fn take_old(
        &mut self,
        ends: impl Fn(SocketId, ConnId) -> bool,
        now: Instant,
    ) -> Vec<ConnId> {
        let is_old = |since: Instant| now.saturating_duration_since(since) >= RETRY;
        let taken = self.attempts.extract_if(.., |(link, _, _), (id, since)| {
            is_old(*since) && ends(*link, *id)
        });
        taken.map(|(_, (id, _))| id).collect()
    }

    /// The attempts over a link, to be closed.
    pub(super) fn take_attempts_over(&mut self, socket: SocketId) -> Vec<ConnId> {
        self.take_if(|(link, _, _), _| *link == socket)
    }

    /// Whether an attempt over a link is under way.
    pub(super) fn is_tried(&self, socket: SocketId) -> bool {
        self.attempts.keys().any(|(link, _, _)| *link == socket)
    }

    /// The hub has granted what was asked of it. A handshake alone is no success: a hub that
    /// refuses would otherwise be asked again at once, by one link after the other.
    pub(super) fn granted(&mut self) {
        self.failures = 0;
        self.refusals = 0;
        self.turns.clear();
        self.stalled.clear();
        self.answer_by = None;
        self.not_before.clear();
    }

    /// The tunnel is heard: attempts that failed beside it say nothing of the next ones. What is
    /// held for longer than a failure is, is held for something else.
    pub(super) fn calm(&mut self, now: Instant) {
        if self.failures > 0 {
            self.failures = 0;
            self.turns.clear();
            self.stalled.clear();
            self.not_before.retain(|_, at| *at > now + RETRY_MAX);
        }
    }

    /// Whether the last attempt failed; why is worth more than that there is another one.
    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0 || self.refusals > 0
    }

    /// A connection is gone, before or after it won.
    pub(super) fn failed(&mut self, id: ConnId, link: SocketId, now: Instant) {
        self.forget(id);
        let wait = RETRY
            .saturating_mul(1 << self.failures.min(8))
            .min(RETRY_MAX);
        self.failures += 1;
        self.hold(link, wait, now);
    }

    fn forget(&mut self, id: ConnId) {
        self.attempts.retain(|_, (attempt, _)| *attempt != id);
        self.late.retain(|_, (attempt, _)| *attempt != id);
        self.spare = self.spare.filter(|(spare, _)| *spare != id);
    }

    /// The hub does not want us, whichever link we come by.
    pub(super) fn turned_away(
        &mut self,
        id: ConnId,
        links: impl Iterator<Item = SocketId>,
        now: Instant,
    ) {
        self.forget(id);
        let wait = TURNED_AWAY
            .saturating_mul(1 << self.refusals.min(8))
            .min(TURNED_AWAY_MAX);
        self.refusals += 1;
        for link in links {
            self.hold(link, wait, now);
        }
    }

    /// Another box took the tunnel over.
    pub(super) fn displaced(&mut self, links: impl Iterator<Item = SocketId>, now: Instant) {
        for link in links {
            self.not_before.insert(link, now + DISPLACED_FOR);
        }
        self.look_at(now + DISPLACED_FOR);
    }

    /// Something changed: nobody needs to wait any longer.
    pub(super) fn retry_soon(&mut self, now: Instant) {
        self.not_before.clear();
        self.failures = 0;
        self.turns.clear();
        self.unanswered.clear();
        self.next_look = Some(now);
    }

    /// There is a new way, over which the connection that is cut off may be heard: a race that has
    /// not begun waits for that, but not for a link that comes again and again.
    pub(super) fn wait_for_old(&mut self, now: Instant) {
        let since = self.cut_off.filter(|_| self.attempts.is_empty());
        let until = since.map(|since| *self.waits_until.get_or_insert(since + WAITS_FOR));
        if until.is_some_and(|until| now < until) {
            self.cut_off = None;
        }
    }

    /// A path is heard.
    pub(super) fn handle_heard(&mut self) {
        (self.cut_off, self.waits_until) = (None, None);
    }

    /// Whether its connection is up and heard.
    pub(super) fn is_settled(&self) -> bool {
        self.cut_off.is_none() && self.answer_by.is_none()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.next_look
    }

    pub(super) fn hold(&mut self, link: SocketId, wait: Duration, now: Instant) {
        self.not_before.insert(link, now + wait);
        self.look_at(now + wait);
    }

    pub(super) fn look_at(&mut self, at: Instant) {
        self.next_look = Some(self.next_look.map_or(at, |next| next.min(at)));
    }

    pub(super) fn next_turn(&mut self, link: SocketId) -> usize {
        let next = self.turns.entry(link).or_default();
        let turn = *next;
        *next = next.wrapping_add(1);
        turn
    }

    /// Whether a link is about to be tried again after it failed.
    pub(super) fn is_held_briefly(&self, link: SocketId, now: Instant) -> bool {
        let until = self.not_before.get(&link);
        until.is_some_and(|&at| at > now && at <= now + RETRY_MAX)
    }

    /// When a link's race began, if a classic handshake may join it and none has.
    pub(super) fn without_classic(&self, socket: SocketId) -> Option<Instant> {
        if *self.stalled.get(&socket)? < BEFORE_CLASSIC {
            return None;
        }
        let over = |(link, _, _): &Attempt| *link == socket;
        let mut tried = self.attempts.iter().filter(|(to, _)| over(to));
        if tried
            .clone()
            .any(|((_, _, exchange), _)| *exchange == Exchange::Classic)
        {
            return None;
        }
        tried.next().map(|(_, &(_, since))| since)
    }

    pub(super) fn may_try(&self, link: SocketId, now: Instant) -> bool {
        self.not_before.get(&link).is_none_or(|&at| now >= at)
    }
}

#[cfg(test)]
mod tests;
