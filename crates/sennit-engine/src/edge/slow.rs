//! Links that take seconds to answer, and whose turn it is there.
//!
//! A handshake takes some kilobytes each way: eight seconds of a link of 9600 bit/s. Those of all
//! classes to all addresses of the hub, begun anew every four seconds, fill it for minutes with
//! what nobody waits for any more. So an attempt that is not answered in time is kept for a while
//! beside the one that takes its place ([`Dial::late`](super::race::Dial)). Once one is answered
//! after all, and its round trip takes seconds, the link is *slow*: from then on one class at a
//! time tries there, at the address that answered, for as long as something arrives. That goes for
//! the classes of one worker: others do not hear of it.
//!
//! A slow link on which nothing is answered any more may be dead, or its hub, or that address of
//! it; and where attempts are answered in vain, a box may drop large handshakes. So it is tried as
//! ever then: by all classes, at all addresses, and by classic handshakes beside the others.

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
/// Round trips in which an attempt on a slow link is answered even if its first packet is lost,
/// which is sent again after three (RFC 9002 §6.2.2).
const ROUNDS: u32 = 4;
/// So many attempts in a row come to nothing on a slow link before it is tried as any other: what
/// the race has left on it may hold up the first ones for longer than the hub has patience.
const CHANCES: u32 = 3;

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
    /// The address of the hub that answered there.
    remote: SocketAddr,
    rtt: Duration,
    /// When something last arrived there, slowly.
    seen: Instant,
    turn: Option<Turn>,
    /// The hub has granted a tunnel there, so that what the race had filled the link with is gone.
    proven: bool,
    /// How many attempts in a row came to nothing there.
    failures: u32,
}

impl Slow {
    /// How long a hub that is there may take to answer.
    fn patience(&self) -> Duration {
        match self.proven {
            true => (ATTEMPT + ROUNDS * self.rtt).min(LONGEST),
            false => LONGEST,
        }
    }
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

    /// The hub is only at these addresses any more.
    pub(super) fn keep_at(&mut self, is_there: impl Fn(SocketAddr) -> bool) {
        self.0.retain(|_, slow| is_there(slow.remote));
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
        let Some(slow) = self.find(link, now) else {
            return false;
        };
        slow.turn.filter(|turn| turn.id == id).is_some_and(|turn| {
            let unheard = turn.began + slow.patience();
            now < turn.heard.map_or(unheard, |heard| heard + LONGEST)
        })
    }

    /// An attempt there came to nothing. If it had the turn, the link may be one like others.
    pub(super) fn give_up(&mut self, link: SocketId, id: ConnId) {
        let slow = self.0.get_mut(&link);
        let slow = slow.filter(|slow| slow.turn.is_some_and(|turn| turn.id == id));
        let Some(slow) = slow else { return };
        let turn = slow.turn.take();
        slow.failures += 1;
        let is_silent = slow.proven && turn.is_some_and(|turn| turn.heard.is_none());
        if is_silent || slow.failures >= CHANCES {
            self.forget(link);
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
            (slow.seen, slow.proven, slow.failures) = (now, true, 0);
        }
    }

    /// It is the turn of this attempt, which begins now.
    fn begin(&mut self, link: SocketId, id: ConnId, now: Instant) {
        if let Some(slow) = self.0.get_mut(&link) {
            slow.turn = Some(Turn {
                id,
                began: now,
                heard: None,
            });
        }
    }

    /// It is the turn of this attempt, which is answered.
    fn hear(
        &mut self,
        (link, remote): (SocketId, SocketAddr),
        (id, began): (ConnId, Instant),
        (heard, rtt): (Instant, Duration),
    ) {
        let slow = self.0.entry(link).or_insert(Slow {
            remote,
            rtt,
            seen: heard,
            turn: None,
            proven: false,
            failures: 0,
        });
        (slow.remote, slow.rtt, slow.seen) = (remote, rtt, slow.seen.max(heard));
        slow.turn = Some(Turn {
            id,
            began,
            heard: Some(heard),
        });
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
            self.slow.hear((link, remote), (id, began), answer);
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

    /// Takes a link for one like others if the connection that has the turn there waits for the
    /// hub's answer, and has not been heard for long.
    fn forget_silent(&mut self, link: SocketId, now: Instant) {
        let slow = self.slow.find(link, now);
        let Some((turn, patience)) = slow.and_then(|slow| Some((slow.turn?, slow.patience())))
        else {
            return;
        };
        let Some(conn) = self.node.get(turn.id) else {
            return;
        };
        let waits = matches!(conn.role.stage, Stage::Connected | Stage::Requested(_));
        let mut heard = conn.paths().iter().map(|path| path.health.heard());
        if waits && heard.all(|heard| now >= heard + patience) {
            self.slow.forget(link);
        }
    }

    /// Whether a handshake may begin on a link: not while another has the turn on a slow one.
    pub(super) fn may_begin(&mut self, link: SocketId, now: Instant) -> bool {
        self.forget_silent(link, now);
        let turn = self.slow.turn(link, now);
        turn.is_none_or(|turn| !self.is_pending(turn))
    }

    /// Begins one handshake on a slow link; false if it is none.
    pub(super) fn begin_slowly(&mut self, index: usize, link: SocketId, now: Instant) -> bool {
        let Some(&Slow { remote, .. }) = self.slow.find(link, now) else {
            return false;
        };
        let to = (link, remote, Exchange::Usual);
        self.attempt(index, to, now, now);
        if let Some(&(id, _)) = self.slots[index].dial.attempts.get(&to) {
            self.slow.begin(link, id, now);
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
        links.hear((LINK, hub()), (ConnId(1), start), answer);
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
        links.begin(LINK, ConnId(2), later);
        links.granted(LINK, ConnId(2), later + SECOND);
        assert!(!links.has(LINK, later));
    }

    #[test]
    fn a_link_that_carried_a_tunnel_has_a_few_round_trips_for_the_next_answer() {
        let start = Instant::now();
        let mut links = slow(start);
        let later = start + 9 * SECOND;
        links.granted(LINK, ConnId(1), later);
        links.begin(LINK, ConnId(2), later);
        assert!(links.keeps(LINK, ConnId(2), later + 19 * SECOND));
        assert!(!links.keeps(LINK, ConnId(2), later + 20 * SECOND));
        links.give_up(LINK, ConnId(3));
        assert!(links.has(LINK, later));
        links.give_up(LINK, ConnId(2));
        assert!(!links.has(LINK, later));
    }

    #[test]
    fn a_link_on_which_attempts_come_to_nothing_is_tried_like_others() {
        let start = Instant::now();
        let mut links = slow(start);
        let later = start + 9 * SECOND;
        for id in (1..4).map(ConnId) {
            assert!(links.has(LINK, later));
            links.begin(LINK, id, later);
            assert!(links.keeps(LINK, id, later + LONGEST - SECOND));
            links.give_up(LINK, id);
        }
        assert!(!links.has(LINK, later));
    }

    #[test]
    fn a_link_is_not_taken_for_a_slow_one_for_good() {
        let start = Instant::now();
        let heard = start + 5 * SECOND;
        let links = slow(start);
        assert!(links.has(LINK, heard + REMEMBERED - SECOND));
        assert!(!links.has(LINK, heard + REMEMBERED));
    }
}
