//! Whose turn it is on one link, in one direction.
//!
//! A [`Bucket`] says until when what was sent keeps its owner busy (the generic cell rate
//! algorithm): whoever sends moves that ahead by the time that the bytes take at its rate, and who
//! is not ahead of the clock may send. The link has one at its rate, and so has each class at the
//! rate that is guaranteed to it. A class within its own sends at once, and charges the link, so
//! that the others wait for it; a class beyond it waits for the link, and, if others wait too, for
//! those that had less for their share of late (start-time fair queueing). On a link whose rate
//! moves, what may be under way is bounded as well, for each class by its share.
//!
//! All state is atomic, since an edge may have a worker for each class; none waits for another. Two
//! that ask at the same time may both be granted the same bytes, which the link's bucket makes up
//! for with the next.

mod recent;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use sennit_core::ClassId;
use sennit_packet::Bitrate;

use self::recent::Recent;
use super::{
    Load, RoundTrips, Share, Terms,
    bucket::{
        Bucket, Clock, Grant, LEAST_BURST, Leeway, Look, TURN, burst, punctual_burst, time_for,
        turn,
    },
    found::{Found, Seen},
};
use crate::facts::PathShare;

/// Who was told to wait is taken to wait still for this long; it comes back within a turn or two
/// unless it has nothing to send any more.
const WAITS: Duration = Duration::from_millis(3);
/// Of the rate of a link this part is given out. A link carries at best what it is said to carry.
/// Its queue drains only while it is given less.
const GIVEN: f64 = 0.98;
/// What classes send within their guarantees keeps the link busy for no longer than this.
const MOST_BUSY: Duration = Duration::from_millis(100);
/// A class without a guarantee has at least this part of the link, or it would never have a turn.
const LEAST_PART: u64 = 100;

/// A class on a link.
#[derive(Debug, Default)]
struct Tin {
    share: Option<Share>,
    /// What that is now, in bytes per second.
    guaranteed: AtomicU64,
    /// It has a path there, so that its share counts.
    present: AtomicBool,
    /// What it sent within its guarantee.
    own: Bucket,
    /// What it sent, as time at its guaranteed rate, from the link's `turn` on.
    served: AtomicU64,
    /// When it was last told to wait.
    held: AtomicU64,
    /// When it was, if it has had something to send since.
    waits: AtomicU64,
    /// Bytes below which it sends nothing.
    least: AtomicU64,
    recent: Recent,
    /// What no acknowledgement has settled there, and what may stand in the link, with what was
    /// sent since somebody looked.
    in_flight: AtomicU64,
    under_way: AtomicU64,
    /// How much longer the least of its round trips was of late than the path's, in nanoseconds,
    /// and that one.
    delay: AtomicU64,
    rtt: AtomicU64,
    /// How late acknowledgements come, in nanoseconds.
    back: AtomicU64,
    /// Looks at it since the rate of the link was last looked at.
    heard: AtomicU64,
}

impl Tin {
    fn leeway(&self, slack: u64) -> Leeway {
        let least = self.least.load(Relaxed);
        Leeway { slack, least }
    }

    /// Whether it was told to wait, and comes back for more.
    fn waits(&self, slack: u64, at: u64) -> bool {
        let waits = WAITS.as_nanos() as u64 + slack;
        let recently = at.saturating_sub(waits).max(1);
        self.waits.load(Relaxed) >= recently
    }
}

/// Classes, and what each sends.
pub(crate) type Others = Vec<(ClassId, Bitrate)>;

/// One link in one direction.
#[derive(Debug)]
pub(crate) struct Tins {
    clock: Clock,
    /// What is given out, in bytes per second; 0 while it is not known.
    rate: AtomicU64,
    cap: Option<Bitrate>,
    /// What may be under way, in bytes; 0 if that is not bounded.
    window: AtomicU64,
    link: Bucket,
    /// Where those that wait for the link stand, as [`Tin::served`].
    turn: AtomicU64,
    tins: BTreeMap<ClassId, Tin>,
    sent: AtomicU64,
    /// Bytes of these that were under way with paths that are gone.
    gone: AtomicU64,
    /// When its rate is looked at next.
    due: AtomicU64,
    found: Mutex<Found>,
}

impl Tins {
    /// A link that carries `cap` at most, if that is known. No class has a path there yet.
    pub(super) fn new(
        clock: Clock,
        classes: &BTreeMap<ClassId, Terms>,
        cap: Option<Bitrate>,
    ) -> Self {
        let tins = classes.iter().map(|(&class, terms)| {
            let share = terms.share;
            let tin = Tin {
                share,
                ..Tin::default()
            };
            (class, tin)
        });
        let tins = Self {
            clock,
            rate: AtomicU64::new(0),
            cap,
            window: AtomicU64::new(0),
            link: Bucket::default(),
            turn: AtomicU64::new(0),
            tins: tins.collect(),
            sent: AtomicU64::new(0),
            gone: AtomicU64::new(0),
            due: AtomicU64::new(0),
            found: Mutex::default(),
        };
        if let Some(cap) = cap {
            tins.set_rate((cap.as_bytes_per_second() as f64 * GIVEN) as u64);
        }
        tins
    }

    /// A class has a path on this link from now on: what is guaranteed to it counts.
    pub(crate) fn enter(&self, class: ClassId) {
        if let Some(tin) = self.tins.get(&class)
            && !tin.present.load(Relaxed)
        {
            self.set_present(tin, true);
        }
    }

    fn set_present(&self, tin: &Tin, present: bool) {
        // Others come and go at the same time, and the rate changes.
        let _alone = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        tin.present.store(present, Relaxed);
        let rate = self.rate.load(Relaxed);
        if rate > 0 {
            self.set_rate(rate);
        }
    }

    /// Gives out so much from now on, in bytes per second, to the classes with a path here. One at
    /// a time may do this.
    fn set_rate(&self, rate: u64) {
        self.rate.store(rate, Relaxed);
        let mut left = rate;
        let least = (rate / LEAST_PART).max(1);
        let is = |tin: &Tin, present| tin.present.load(Relaxed) == present;
        let those = |present| self.tins.values().filter(move |tin| is(tin, present));
        those(false).for_each(|tin| tin.guaranteed.store(least, Relaxed));
        for tin in those(true) {
            let Some(share) = tin.share else { continue };
            let wanted = match share {
                Share::Percent(part) => (u128::from(rate) * u128::from(part) / 100) as u64,
                Share::Rate(rate) => rate.as_bytes_per_second(),
            };
            let guaranteed = wanted.min(left);
            left -= guaranteed;
            tin.guaranteed.store(guaranteed.max(least), Relaxed);
        }
        let others = || those(true).filter(|tin| tin.share.is_none());
        let part = left / others().count().max(1) as u64;
        for tin in others() {
            tin.guaranteed.store(part.max(least), Relaxed);
        }
    }

    /// What a class may send now, of what it looks for, on a host with so much `slack`.
    pub(super) fn grant(&self, class: ClassId, look: Look, slack: u64, now: Instant) -> Grant {
        let rate = self.rate.load(Relaxed);
        let Some(tin) = self.tins.get(&class).filter(|_| rate > 0) else {
            return Grant::ALL;
        };
        let at = self.clock.at(now);
        let guaranteed = tin.guaranteed.load(Relaxed);
        tin.least.store(look.least, Relaxed);
        let leeway = tin.leeway(slack);
        let (own_room, room) = self.room(tin, look, guaranteed, rate);
        let own = tin.own.credit(guaranteed, leeway, at).min(own_room);
        let lent = self.link.credit(rate, leeway, at).min(room);
        let lent = if lent < look.least || self.must_wait(class, tin, slack, at) {
            0
        } else {
            lent
        };
        let bytes = own.max(lent);
        if bytes >= look.wanted {
            tin.held.store(0, Relaxed);
            tin.waits.store(0, Relaxed);
            return Grant::ALL;
        }
        tin.held.store(at, Relaxed);
        tin.waits.store(at, Relaxed);
        tin.recent.held.store(at, Relaxed);
        let ready = self
            .link
            .ready_at(rate, look.least, at)
            .min(tin.own.ready_at(guaranteed, look.least, at));
        // Room comes with acknowledgements, and nobody knows when.
        let turn = TURN.as_nanos() as u64;
        let least = if own_room.max(room) < look.wanted {
            2 * turn
        } else {
            turn / 2
        };
        let again = ready.max(at + least);
        Grant {
            bytes: if bytes < look.least { 0 } else { bytes },
            again: Some(self.clock.instant(again)),
        }
    }

    /// What may still get under way, in bytes: of a class within its guarantee, and of all.
    fn room(&self, tin: &Tin, look: Look, guaranteed: u64, rate: u64) -> (u64, u64) {
        let window = self.window.load(Relaxed);
        if window == 0 {
            return (u64::MAX, u64::MAX);
        }
        let own = (u128::from(window) * u128::from(guaranteed) / u128::from(rate)) as u64;
        // A part of little may be less than a packet.
        let own = own.max(LEAST_BURST).max(look.least);
        let all = self.tins.values().map(|tin| tin.under_way.load(Relaxed));
        (
            own.saturating_sub(tin.under_way.load(Relaxed)),
            window.saturating_sub(all.sum()),
        )
    }

    /// A class that was told to wait has nothing to send any more.
    pub(super) fn release(&self, class: ClassId) {
        if let Some(tin) = self.tins.get(&class) {
            tin.waits.store(0, Relaxed);
        }
    }

    /// Bytes below which a class sends nothing.
    pub(super) fn least(&self, class: ClassId) -> u64 {
        let tin = self.tins.get(&class);
        tin.map_or(0, |tin| tin.least.load(Relaxed))
    }

    /// Whether another that waits for the link had less for its share.
    fn must_wait(&self, class: ClassId, tin: &Tin, slack: u64, at: u64) -> bool {
        let floor = self.turn.load(Relaxed);
        let rate = self.rate.load(Relaxed);
        let own_turn = time_for(turn(rate), tin.guaranteed.load(Relaxed));
        let served = tin.served.load(Relaxed).max(floor);
        self.tins.iter().any(|(&other, them)| {
            let waits = other != class && them.waits(slack, at);
            waits && them.served.load(Relaxed).max(floor) + own_turn < served
        })
    }

    /// A class has sent so many bytes.
    pub(super) fn spend(&self, class: ClassId, bytes: u64, slack: u64, now: Instant) {
        self.sent.fetch_add(bytes, Relaxed);
        let Some(tin) = self.tins.get(&class) else {
            return;
        };
        let at = self.clock.at(now);
        tin.recent.count(bytes, at);
        if self.cap.is_none() {
            tin.under_way.fetch_add(bytes, Relaxed);
        }
        let rate = self.rate.load(Relaxed);
        if rate == 0 {
            return;
        }
        let (leeway, punctual) = (tin.leeway(slack), tin.leeway(0));
        self.link.spend(rate, bytes, leeway, at);
        self.link.bound(at + busy(burst(rate, punctual)));
        let guaranteed = tin.guaranteed.load(Relaxed);
        tin.own.spend(guaranteed, bytes, leeway, at);
        // What it borrowed it need not give back.
        tin.own.bound(at + burst(guaranteed, punctual));
        let floor = self.turn.load(Relaxed);
        tin.served.fetch_max(floor, Relaxed);
        tin.served.fetch_add(time_for(bytes, guaranteed), Relaxed);
        self.turn
            .fetch_max(self.least_served(tin, slack, at), Relaxed);
    }

    /// Where the one stands that had least for its share, of those that wait for the link; if none
    /// does, who sends now. What goes at once within a guarantee is no measure for the others.
    fn least_served(&self, sender: &Tin, slack: u64, at: u64) -> u64 {
        let floor = self.turn.load(Relaxed);
        let stands = |tin: &Tin| tin.served.load(Relaxed).max(floor);
        let waiting = self.tins.values().filter(|tin| tin.waits(slack, at));
        let least = waiting.map(stands).min();
        least.unwrap_or_else(|| stands(sender))
    }

    /// Goes on where another was, so that what was sent counts on, and with what it found out.
    pub(super) fn inherit(&self, before: &Self) {
        if self.cap.is_none() && before.cap.is_none() {
            self.inherit_found(before);
        }
        let clocks = (before.clock, self.clock);
        let most = busy(punctual_burst(self.rate.load(Relaxed)));
        self.link.inherit(&before.link, most, clocks);
        self.turn.store(before.turn.load(Relaxed), Relaxed);
        for (class, tin) in &self.tins {
            if let Some(known) = before.tins.get(class) {
                let most = punctual_burst(tin.guaranteed.load(Relaxed));
                tin.own.inherit(&known.own, most, clocks);
                tin.served.store(known.served.load(Relaxed), Relaxed);
            }
        }
    }

    fn inherit_found(&self, before: &Self) {
        let found = before.found.lock().unwrap_or_else(PoisonError::into_inner);
        self.set_rate(before.rate.load(Relaxed));
        self.window.store(before.window.load(Relaxed), Relaxed);
        // It counts on from there.
        self.sent.store(before.sent.load(Relaxed), Relaxed);
        let removed = before
            .tins
            .iter()
            .filter(|(class, _)| !self.tins.contains_key(class));
        let lost: u64 = removed.map(|(_, tin)| tin.in_flight.load(Relaxed)).sum();
        let gone = before.gone.load(Relaxed) + lost;
        self.gone.store(gone, Relaxed);
        let due = before.clock.instant(before.due.load(Relaxed));
        self.due.store(self.clock.at(due), Relaxed);
        for (class, tin) in &self.tins {
            if let Some(known) = before.tins.get(class) {
                let pairs = [
                    (&tin.in_flight, &known.in_flight),
                    (&tin.under_way, &known.under_way),
                    (&tin.rtt, &known.rtt),
                    (&tin.back, &known.back),
                ];
                for (ours, theirs) in pairs {
                    ours.store(theirs.load(Relaxed), Relaxed);
                }
            }
        }
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = found.clone();
    }

    /// The path of a class on this link has sent so much, and heard this of its round trips since
    /// the last time.
    pub(crate) fn note_path(
        &self,
        class: ClassId,
        load: Load,
        round_trips: RoundTrips,
        slack: u64,
        now: Instant,
    ) {
        if self.cap.is_some() {
            return;
        }
        let Some(tin) = self.tins.get(&class) else {
            return;
        };
        tin.in_flight.store(load.in_flight, Relaxed);
        tin.under_way.store(load.under_way, Relaxed);
        tin.rtt.store(round_trips.least.as_nanos() as u64, Relaxed);
        tin.back.store(round_trips.back.as_nanos() as u64, Relaxed);
        if let Some(delay) = round_trips.delay {
            let delay = delay.as_nanos() as u64;
            if tin.heard.fetch_add(1, Relaxed) == 0 {
                tin.delay.store(delay, Relaxed);
            } else {
                tin.delay.fetch_min(delay, Relaxed);
            }
        }
        let at = self.clock.at(now);
        if at >= self.due.load(Relaxed)
            && let Ok(mut found) = self.found.try_lock()
            // Another may have looked meanwhile.
            && at >= self.due.load(Relaxed)
        {
            self.find_rate(&mut found, slack, at, now);
        }
    }

    /// The path of a class on this link is gone, and what it had under way with it.
    pub(crate) fn leave(&self, class: ClassId) {
        if let Some(tin) = self.tins.get(&class) {
            self.gone.fetch_add(tin.in_flight.swap(0, Relaxed), Relaxed);
            tin.under_way.store(0, Relaxed);
            self.set_present(tin, false);
        }
    }

    /// Whether what is given out was found here.
    pub(crate) fn is_found(&self) -> bool {
        self.cap.is_none() && self.rate.load(Relaxed) > 0
    }

    /// Looks at what the classes saw since the last time.
    fn find_rate(&self, found: &mut Found, slack: u64, at: u64, now: Instant) {
        let mut seen = Seen {
            sent: self.sent.load(Relaxed),
            gone: self.gone.load(Relaxed),
            in_flight: 0,
            delay: None,
            rtt: Duration::MAX,
            held: false,
            back: Duration::ZERO,
            slack: Duration::from_nanos(slack),
        };
        let recently = at.saturating_sub(found.span().as_nanos() as u64).max(1);
        let mut back = 0;
        for tin in self.tins.values() {
            let in_flight = tin.in_flight.load(Relaxed);
            seen.in_flight += in_flight;
            back += u128::from(in_flight) * u128::from(tin.back.load(Relaxed));
            seen.held |= tin.held.load(Relaxed) >= recently;
            if tin.heard.swap(0, Relaxed) > 0 {
                let delay = Duration::from_nanos(tin.delay.load(Relaxed));
                seen.delay = Some(seen.delay.map_or(delay, |least| least.min(delay)));
                seen.rtt = seen.rtt.min(Duration::from_nanos(tin.rtt.load(Relaxed)));
            }
        }
        // What arrived is what all sent less what they have in flight.
        let back = back / u128::from(seen.in_flight.max(1));
        seen.back = Duration::from_nanos(back as u64);
        let rate = found.update(&seen, now);
        if seen.delay.is_some() {
            self.window.store(found.window(seen.rtt), Relaxed);
        }
        if rate != self.rate.load(Relaxed) {
            self.set_rate(rate);
        }
        self.due.store(at + found.span().as_nanos() as u64, Relaxed);
    }

    /// How a class fares here, and what the others sent of late.
    pub(crate) fn describe(&self, class: ClassId, now: Option<Instant>) -> (PathShare, Others) {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let latest = self.tins.values().map(|tin| tin.recent.since.load(Relaxed));
        let at = now
            .map(|now| self.clock.at(now))
            .or(latest.max())
            .unwrap_or(0);
        let tin = self.tins.get(&class);
        let others = self.tins.iter().filter(|&(&other, _)| other != class);
        let others = others.filter_map(|(other, tin)| {
            let rate = tin.recent.rate(at);
            (rate > 0).then_some((*other, Bitrate::bytes_per_second(rate)))
        });
        let rate = Bitrate::bytes_per_second;
        let share = PathShare {
            link_rate: rate(self.rate.load(Relaxed)),
            configured: self.cap.is_some(),
            cause: found.cause(),
            link_queue: found.queue(),
            guaranteed: rate(tin.map_or(0, |tin| tin.guaranteed.load(Relaxed))),
            rate: rate(tin.map_or(0, |tin| tin.recent.rate(at))),
            held: tin.is_some_and(|tin| tin.recent.was_held(at)),
            others: Vec::new(),
        };
        (share, others.collect())
    }
}

/// For how long a link with such a burst is busy at most, in nanoseconds.
fn busy(burst: u64) -> u64 {
    burst.max(MOST_BUSY.as_nanos() as u64)
}
