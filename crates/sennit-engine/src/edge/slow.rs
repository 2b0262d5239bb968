//! Links that take seconds to answer, and whose turn it is there.
//!
//! A handshake takes some kilobytes each way: eight seconds of a link of 9600 bit/s. Those of all
//! classes to all addresses of the hub, begun anew every four seconds, fill it for minutes with
//! what nobody waits for any more. So an attempt that is not answered in time is kept for a while
//! beside the one that takes its place ([`Dial::late`](super::race::Dial)). Once one is answered
//! after all, and its round trip takes seconds, the link is *slow*: from then on one class at a
//! time tries there, at the address that answered, for as long as something arrives.
//!
//! A link that is dead, or whose hub is, answers nothing, and is tried as ever.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use super::{
    Edge, Stage,
    dial::close_attempt,
    race::{ATTEMPT, Attempt, Exchange, LONGEST},
};
use crate::ids::{ConnId, SocketId};

/// A link is taken for a slow one for so long after it was one.
const REMEMBERED: Duration = Duration::from_secs(600);
/// A handshake on a slow link takes the round trip for this at most, so that it is sent again in
/// time if it is lost.
const MOST_RTT: Duration = Duration::from_secs(4);

/// The attempt whose turn it is on a slow link.
#[derive(Clone, Copy, Debug)]
struct Turn {
    id: ConnId,
    began: Instant,
    /// When something of it last arrived.
    heard: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Slow {
    /// The address of the hub that answered there, unless it has fallen silent.
    remote: Option<SocketAddr>,
    rtt: Duration,
    /// When something last arrived there, slowly.
    seen: Instant,
    turn: Option<Turn>,
}

/// The links that are slow.
#[derive(Debug, Default)]
pub(super) struct SlowLinks(BTreeMap<SocketId, Slow>);

impl SlowLinks {
    fn find(&self, link: SocketId, now: Instant) -> Option<&Slow> {
        let slow = self.0.get(&link)?;
        (now < slow.seen + REMEMBERED).then_some(slow)
    }

    pub(super) fn has(&self, link: SocketId, now: Instant) -> bool {
        self.find(link, now).is_some()
    }

    /// It has another address, or is gone.
    pub(super) fn forget(&mut self, link: SocketId) {
        self.0.remove(&link);
    }

    /// The round trip that a handshake there should expect.
    pub(super) fn rtt(&self, link: SocketId, now: Instant) -> Option<Duration> {
        Some(self.find(link, now)?.rtt.min(MOST_RTT))
    }

    fn turn(&self, link: SocketId, now: Instant) -> Option<ConnId> {
        Some(self.find(link, now)?.turn?.id)
    }

    /// Whether something arrived there not long ago.
    pub(super) fn passes(&self, link: SocketId, now: Instant) -> bool {
        let slow = self.0.get(&link);
        slow.is_some_and(|slow| now < slow.seen + LONGEST)
    }

    /// Whether an attempt goes on although it is not complete in the usual time.
    pub(super) fn keeps(&self, link: SocketId, id: ConnId, now: Instant) -> bool {
        let turn = self.find(link, now).and_then(|slow| slow.turn);
        turn.filter(|turn| turn.id == id)
            .is_some_and(|turn| now < turn.heard.unwrap_or(turn.began) + LONGEST)
    }

    /// An attempt there is given up: another address may answer.
    pub(super) fn give_up(&mut self, link: SocketId, id: ConnId) {
        let slow = self.0.get_mut(&link);
        if let Some(slow) = slow.filter(|slow| slow.turn.is_some_and(|turn| turn.id == id)) {
            (slow.turn, slow.remote) = (None, None);
        }
    }

    /// The hub has granted what was asked of it there; a link on which that was soon is not slow.
    pub(super) fn granted(&mut self, link: SocketId, id: ConnId, now: Instant) {
        let slow = self.0.get_mut(&link);
        let slow = slow.filter(|slow| slow.turn.is_some_and(|turn| turn.id == id));
        let Some(slow) = slow else { return };
        let turn = slow.turn.take();
        if turn.is_some_and(|turn| now < turn.began + ATTEMPT) {
            self.forget(link);
        } else {
            slow.seen = now;
        }
    }

    /// It is this attempt's turn, which began then, or is heard of.
    fn take_turn(
        &mut self,
        (link, remote): (SocketId, SocketAddr),
        (id, began): (ConnId, Instant),
        answer: Option<(Instant, Duration)>,
    ) {
        let slow = self.0.entry(link).or_insert(Slow {
            remote: None,
            rtt: Duration::ZERO,
            seen: began,
            turn: None,
        });
        let heard = answer.map(|(heard, _)| heard);
        slow.turn = Some(Turn { id, began, heard });
        if let Some((heard, rtt)) = answer {
            (slow.remote, slow.rtt) = (Some(remote), rtt);
            slow.seen = slow.seen.max(heard);
        }
    }
}

impl Edge {
    /// Looks at the attempts of a class that are not complete in the usual time: where one was
    /// answered, if slowly, all others over its link end.
    pub(super) fn find_slow(&mut self, index: usize, now: Instant) {
        let old = |since: Instant| now.saturating_duration_since(since) >= ATTEMPT;
        let tries = self.slots[index].dial.tries();
        let tries: Vec<(Attempt, ConnId, Instant)> =
            tries.filter(|&(_, _, since)| old(since)).collect();
        for (to, id, began) in tries {
            let conn = self.node.get(id);
            let Some(answer) = conn.and_then(|conn| conn.tunnel.answered()) else {
                continue;
            };
            let is_slow = conn.is_some_and(|conn| conn.tunnel.is_slow());
            let (link, remote, _) = to;
            let turn = self.slow.turn(link, now);
            if !is_slow && turn != Some(id) || self.is_others_turn(link, id, now) {
                continue;
            }
            let way = (link, remote);
            self.slow.take_turn(way, (id, began), Some(answer));
            if turn != Some(id) {
                self.leave_alone(index, (to, id), now);
            }
        }
    }

    /// Whether another attempt has the turn on a slow link.
    fn is_others_turn(&self, link: SocketId, id: ConnId, now: Instant) -> bool {
        let turn = self.slow.turn(link, now);
        turn.is_some_and(|turn| turn != id && self.is_pending(turn))
    }

    /// Whether a connection is on its way to a tunnel.
    fn is_pending(&self, id: ConnId) -> bool {
        self.node.get(id).is_some_and(|conn| match conn.role.stage {
            Stage::Handshake | Stage::Ready | Stage::Connected | Stage::Requested(_) => true,
            Stage::Up(_) | Stage::Closing => false,
        })
    }

    /// Whether a handshake may begin on a link: not while another has the turn on a slow one.
    pub(super) fn may_begin(&self, link: SocketId, now: Instant) -> bool {
        let turn = self.slow.turn(link, now);
        turn.is_none_or(|turn| !self.is_pending(turn))
    }

    /// Begins one handshake on a slow link; false if it is none.
    pub(super) fn begin_slowly(&mut self, index: usize, link: SocketId, now: Instant) -> bool {
        let Some(slow) = self.slow.find(link, now).copied() else {
            return false;
        };
        let turn = self.slots[index].dial.next_turn(link);
        let hubs = self.hubs_for(link, 0);
        let answered = slow.remote.filter(|remote| hubs.contains(remote));
        let in_turn = || hubs.get(turn.checked_rem(hubs.len())?).copied();
        let Some(remote) = answered.or_else(in_turn) else {
            return true;
        };
        let to = (link, remote, Exchange::Usual);
        self.attempt(index, to, now, now);
        if let Some(&(id, _)) = self.slots[index].dial.attempts.get(&to) {
            self.slow.take_turn((link, remote), (id, now), None);
        }
        true
    }

    /// Ends all handshakes over a link but this one, which is in the race if it was late.
    fn leave_alone(&mut self, index: usize, (to, id): (Attempt, ConnId), now: Instant) {
        let mut others: Vec<ConnId> = self.slots[index].dial.revive(to, id).into_iter().collect();
        let node = &self.node;
        let is_complete = |other| {
            node.get(other)
                .is_some_and(|conn| conn.role.stage != Stage::Handshake)
        };
        for slot in &mut self.slots {
            let ends =
                |&(link, _, _): &Attempt, other| link == to.0 && other != id && !is_complete(other);
            others.extend(slot.dial.take_if(ends));
        }
        for other in others {
            // To say so takes as long as half of a handshake.
            if let Some(conn) = self.node.get_mut(other) {
                conn.detours.insert(to.0, None);
            }
            let reason = "the link is slow, and another handshake has its turn";
            close_attempt(&mut self.node, other, reason, now);
        }
    }

    /// How long the hub has for its answer to the request.
    pub(super) fn answers_within(&self, id: ConnId, now: Instant) -> Duration {
        let conn = self.node.get(id);
        let is_slow =
            conn.is_some_and(|conn| conn.tunnel.is_slow() || self.slow.has(conn.role.link, now));
        if is_slow { LONGEST } else { ATTEMPT }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: SocketId = SocketId(1);
    const SECOND: Duration = Duration::from_secs(1);

    fn hub() -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], 443))
    }

    /// A link on which an attempt that began at `start` was heard after five seconds.
    fn slow(start: Instant) -> SlowLinks {
        let mut links = SlowLinks::default();
        let answer = (start + 5 * SECOND, 4 * SECOND);
        let way = (LINK, hub());
        links.take_turn(way, (ConnId(1), start), Some(answer));
        links
    }

    #[test]
    fn what_has_the_turn_goes_on_while_something_arrives() {
        let start = Instant::now();
        let links = slow(start);
        let heard = start + 5 * SECOND;
        assert!(links.keeps(LINK, ConnId(1), heard + LONGEST - SECOND));
        assert!(links.passes(LINK, heard + LONGEST - SECOND));
        assert!(!links.keeps(LINK, ConnId(1), heard + LONGEST));
        assert!(!links.passes(LINK, heard + LONGEST));
        assert!(!links.keeps(LINK, ConnId(2), heard));
    }

    #[test]
    fn a_link_on_which_a_handshake_is_soon_complete_is_not_slow_any_more() {
        let start = Instant::now();
        let mut links = slow(start);
        let later = start + 9 * SECOND;
        links.granted(LINK, ConnId(1), later);
        assert!(links.has(LINK, later));
        links.take_turn((LINK, hub()), (ConnId(2), later), None);
        links.granted(LINK, ConnId(2), later + SECOND);
        assert!(!links.has(LINK, later));
    }

    #[test]
    fn another_address_is_tried_where_the_one_that_answered_falls_silent() {
        let start = Instant::now();
        let mut links = slow(start);
        links.give_up(LINK, ConnId(2));
        assert_eq!(links.0[&LINK].remote, Some(hub()));
        links.give_up(LINK, ConnId(1));
        assert_eq!(links.0[&LINK].remote, None);
        assert!(!links.has(LINK, start + 5 * SECOND + REMEMBERED));
    }
}
