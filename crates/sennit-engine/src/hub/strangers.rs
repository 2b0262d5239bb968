//! Those who have connected and are granted nothing yet: how many, from where, since when.
//!
//! A stranger costs the hub a connection's memory for up to [`STRANGER_FOR`], and then until its
//! connection has closed. So there are only so many places for them, and of these one network has
//! only a part. Whoever comes when more than a few are taken must first show that its address is
//! its own (RFC 9000 §8.1.2): forged sources never get further than that few.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv6Addr},
    time::{Duration, Instant},
};

use crate::ids::ConnId;

/// Whoever is not granted anything by then is sent away. On a link that is not slow an edge waits
/// for 4 s for the handshake, and for as long for the answer.
const STRANGER_FOR: Duration = Duration::from_secs(10);
/// Who answers, but takes seconds for that, has so long: a handshake at 9600 bit/s takes twelve. An
/// edge keeps such an attempt for up to a minute.
const SLOW_FOR: Duration = Duration::from_secs(40);
/// The part of the places that is for those whose address is not proven.
const UNPROVEN: usize = 16;
/// The part of the places that one network gets: a fleet may stand behind one address.
const ONE_NETWORK: usize = 8;
/// What one subscriber commonly has of IPv6.
const PREFIX: u32 = 56;

/// What to do with somebody who has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Accept,
    AskToRetry,
    Refuse,
}

/// Those who have connected and are granted nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StrangerCounts {
    /// How many there are now, with those whose connection still closes.
    pub now: usize,
    /// How many were asked to show that their address is their own.
    pub asked_to_retry: u64,
    /// How many were refused, as their network, or all together, had too many places.
    pub refused: u64,
    /// How many handshakes were completed.
    pub completed: u64,
    /// How many began and were not completed: their time was over, or either end gave up.
    pub failed: u64,
}

/// The place that somebody has.
#[derive(Clone, Copy, Debug)]
struct Place {
    network: IpAddr,
    /// When it arrived, or was last given more time: one that is a stranger again has another.
    since: Instant,
    first: Instant,
}

#[derive(Debug)]
pub(super) struct Strangers {
    most: usize,
    /// Of all that came; how many there are is counted when somebody asks.
    counted: StrangerCounts,
    /// In the order in which they came; some of them are not strangers any more.
    arrivals: VecDeque<(Instant, ConnId)>,
    networks: BTreeMap<ConnId, Place>,
    /// How many there are of each network.
    counts: BTreeMap<IpAddr, usize>,
}

impl Strangers {
    /// Nobody, with room for so many.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            counted: StrangerCounts::default(),
            arrivals: VecDeque::new(),
            networks: BTreeMap::new(),
            counts: BTreeMap::new(),
        }
    }

    /// What to do with somebody who has come from `address`, of which it is known whether it is its
    /// own.
    pub(super) fn receive(&mut self, address: IpAddr, is_proven: bool) -> Verdict {
        let verdict = self.judge(address, is_proven);
        match verdict {
            Verdict::Accept => {}
            Verdict::AskToRetry => self.counted.asked_to_retry += 1,
            Verdict::Refuse => self.counted.refused += 1,
        }
        verdict
    }

    /// How many there are, and what became of others.
    pub(super) fn counts(&self) -> StrangerCounts {
        StrangerCounts {
            now: self.networks.len(),
            ..self.counted
        }
    }

    /// The handshake of one that was let in is over.
    pub(super) fn note_handshake(&mut self, is_complete: bool) {
        match is_complete {
            true => self.counted.completed += 1,
            false => self.counted.failed += 1,
        }
    }

    fn judge(&self, address: IpAddr, is_proven: bool) -> Verdict {
        let all = self.networks.len();
        let here = self.counts.get(&network(address)).copied().unwrap_or(0);
        if all >= self.most {
            Verdict::Refuse
        } else if !is_proven && all >= part(self.most, UNPROVEN) {
            Verdict::AskToRetry
        } else if is_proven && here >= part(self.most, ONE_NETWORK) {
            Verdict::Refuse
        } else {
            Verdict::Accept
        }
    }

    /// Somebody from `address` has been let in.
    pub(super) fn add(&mut self, id: ConnId, address: IpAddr, now: Instant) {
        let network = network(address);
        self.arrivals.push_back((now, id));
        let place = Place {
            network,
            since: now,
            first: now,
        };
        self.networks.insert(id, place);
        *self.counts.entry(network).or_default() += 1;
    }

    /// Somebody has nothing left of what it was granted. Who was granted nothing since it came is
    /// here already, and has no more time for what it asked in vain.
    pub(super) fn take_back(&mut self, id: ConnId, address: IpAddr, now: Instant) {
        if !self.networks.contains_key(&id) {
            self.add(id, address, now);
        }
    }

    /// It is granted something, or nothing is kept of it any more.
    pub(super) fn remove(&mut self, id: ConnId) {
        let Some(Place { network, .. }) = self.networks.remove(&id) else {
            return;
        };
        if let Some(count) = self.counts.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&network);
            }
        }
        self.forget_arrivals();
    }

    /// Those at the front who are strangers no more.
    fn forget_arrivals(&mut self) {
        while let Some((at, first)) = self.arrivals.front()
            && self
                .networks
                .get(first)
                .is_none_or(|place| place.since != *at)
        {
            self.arrivals.pop_front();
        }
    }

    /// Somebody who has been a stranger for too long, for one that `is_slow` or not. It has its
    /// place until it is [removed](Self::remove).
    pub(super) fn poll_overdue(
        &mut self,
        is_slow: impl Fn(ConnId) -> bool,
        now: Instant,
    ) -> Option<ConnId> {
        let is_due = |at: Instant| now >= at + STRANGER_FOR;
        while let Some((_, id)) = self.arrivals.pop_front_if(|(at, _)| is_due(*at)) {
            let waits = is_slow(id) && self.has_more_time(id, now);
            self.forget_arrivals();
            if !waits {
                return Some(id);
            }
        }
        None
    }

    /// Gives somebody more time, unless it has had enough.
    fn has_more_time(&mut self, id: ConnId, now: Instant) -> bool {
        let place = self.networks.get_mut(&id);
        let Some(place) = place.filter(|place| now < place.first + SLOW_FOR) else {
            return false;
        };
        place.since = now;
        self.arrivals.push_back((now, id));
        true
    }

    /// When [`Self::poll_overdue`] may have somebody.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.arrivals.front().map(|(at, _)| *at + STRANGER_FOR)
    }
}

/// At least one place.
fn part(places: usize, divisor: usize) -> usize {
    (places / divisor).max(1)
}

/// What has the places of an address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let mask = u128::MAX << (128 - PREFIX);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 64;

    /// Nobody takes seconds for an answer.
    fn quick(_: ConnId) -> bool {
        false
    }

    fn at(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Strangers with so many from addresses that are each another network's.
    fn crowd(count: u64, now: Instant) -> Strangers {
        let mut strangers = Strangers::new(MOST);
        for id in 0..count {
            let address = IpAddr::from([192, 0, 2, id as u8]);
            strangers.add(ConnId(id), address, now);
        }
        strangers
    }

    #[test]
    fn beyond_a_few_an_address_must_be_proven() {
        let now = Instant::now();
        let few = crowd(3, now);
        assert_eq!(few.judge(at("198.51.100.1"), false), Verdict::Accept);

        let more = crowd(4, now);
        assert_eq!(more.judge(at("198.51.100.1"), false), Verdict::AskToRetry);
        assert_eq!(more.judge(at("198.51.100.1"), true), Verdict::Accept);
    }

    #[test]
    fn when_all_places_are_taken_nobody_is_let_in() {
        let full = crowd(MOST as u64, Instant::now());
        assert_eq!(full.judge(at("198.51.100.1"), true), Verdict::Refuse);
    }

    #[test]
    fn one_network_leaves_places_to_others() {
        let now = Instant::now();
        for (one, same, other) in [
            ("198.51.100.1", "::ffff:198.51.100.1", "198.51.100.2"),
            ("2001:db8::1", "2001:db8:0:ff::2", "2001:db8:0:100::1"),
        ] {
            let mut strangers = Strangers::new(MOST);
            for id in 0..8 {
                assert_eq!(strangers.judge(at(one), true), Verdict::Accept);
                strangers.add(ConnId(id), at(one), now);
            }
            assert_eq!(strangers.judge(at(same), true), Verdict::Refuse);
            assert_eq!(strangers.judge(at(other), true), Verdict::Accept);

            strangers.remove(ConnId(3));
            assert_eq!(strangers.judge(at(same), true), Verdict::Accept);
        }
    }

    #[test]
    fn who_is_a_stranger_again_has_all_the_time_again() {
        let start = Instant::now();
        let mut strangers = crowd(2, start);
        let again = start + STRANGER_FOR / 2;
        strangers.remove(ConnId(1));
        strangers.take_back(ConnId(1), at("192.0.2.1"), again);

        assert_eq!(
            strangers.poll_overdue(quick, start + STRANGER_FOR),
            Some(ConnId(0))
        );
        assert_eq!(strangers.poll_overdue(quick, start + STRANGER_FOR), None);
        assert_eq!(strangers.poll_timeout(), Some(again + STRANGER_FOR));
        assert_eq!(
            strangers.poll_overdue(quick, again + STRANGER_FOR),
            Some(ConnId(1))
        );
    }

    #[test]
    fn who_asks_in_vain_again_and_again_has_no_more_time_for_that() {
        let start = Instant::now();
        let mut strangers = crowd(1, start);
        for second in 1..10 {
            let now = start + Duration::from_secs(second);
            strangers.take_back(ConnId(0), at("192.0.2.0"), now);
        }

        let overdue = strangers.poll_overdue(quick, start + STRANGER_FOR);
        assert_eq!(overdue, Some(ConnId(0)));
        strangers.take_back(ConnId(0), at("192.0.2.0"), start + STRANGER_FOR);
        assert_eq!(strangers.poll_timeout(), None, "its connection closes");
    }

    #[test]
    fn who_is_granted_nothing_has_to_leave_in_time() {
        let start = Instant::now();
        let mut strangers = crowd(2, start);
        strangers.add(ConnId(9), at("198.51.100.1"), start + STRANGER_FOR / 2);
        strangers.remove(ConnId(0));

        assert_eq!(strangers.poll_timeout(), Some(start + STRANGER_FOR));
        assert_eq!(strangers.poll_overdue(quick, start), None);
        let later = start + STRANGER_FOR;
        assert_eq!(strangers.poll_overdue(quick, later), Some(ConnId(1)));
        assert_eq!(strangers.poll_overdue(quick, later), None);
        strangers.remove(ConnId(9));
        assert_eq!(strangers.poll_timeout(), None);
    }

    #[test]
    fn who_answers_slowly_has_more_time_and_not_for_good() {
        let start = Instant::now();
        let mut strangers = crowd(2, start);
        let slow = |id| id == ConnId(0);
        let mut left = Vec::new();
        for second in 0..60 {
            let now = start + Duration::from_secs(second);
            let id = strangers.poll_overdue(slow, now);
            left.extend(id.map(|id| (second, id.0)));
        }
        assert_eq!(left, [(10, 1), (40, 0)]);
    }

    #[test]
    fn who_has_to_leave_has_its_place_until_its_connection_is_gone() {
        let start = Instant::now();
        let mut strangers = crowd(MOST as u64, start);
        let now = start + STRANGER_FOR;
        while strangers.poll_overdue(quick, now).is_some() {}

        let one = at("198.51.100.1");
        assert_eq!(strangers.receive(one, true), Verdict::Refuse);
        strangers.remove(ConnId(5));
        assert_eq!(strangers.receive(one, true), Verdict::Accept);
        assert_eq!(strangers.receive(one, false), Verdict::AskToRetry);
        let counts = StrangerCounts {
            now: MOST - 1,
            asked_to_retry: 1,
            refused: 1,
            ..StrangerCounts::default()
        };
        assert_eq!(strangers.counts(), counts);
    }
}
