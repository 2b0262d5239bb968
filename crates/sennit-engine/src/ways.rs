//! What the tunnels of a node know of the ways that they share.
//!
//! Classes are tunnels of their own, but their paths over a link leave by the same socket to the
//! same address of the hub, so they share the mapping of a NAT and the fate of the link. What one
//! hears counts for all, and while nothing flows one of them judges the way for the others: the one
//! with the most traffic, or else whoever came first. So an idle link costs one exchange of probes,
//! however many classes there are, and all of them say the same of it.
//!
//! Ways of different parties are never mixed: an address can be forged.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use noq_proto::FourTuple;
use sennit_core::{
    Health, Pace, PathState,
    health::{Company, Reason},
};

use crate::ids::ConnId;

/// A verdict that was not renewed for this long is nobody's any more. An idle judge renews it
/// whenever a probe is due.
const VERDICT_FOR: Duration = Duration::from_secs(180);
/// So many ways are kept whether or not a path takes them.
const FEW: usize = 64;

/// All ways.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    known: BTreeMap<Key, Way>,
    /// Ways that some path took when those that none took were last forgotten.
    used: usize,
}

/// Who is at the other end, and the addresses of both ends.
type Key = (Arc<str>, SocketAddr, Option<IpAddr>);

#[derive(Clone, Copy, Debug)]
struct Way {
    heard: Instant,
    probed: Instant,
    judge: Option<Judge>,
}

/// The connection that judges a way, and what it has found.
#[derive(Clone, Copy, Debug)]
struct Judge {
    conn: ConnId,
    pace: Pace,
    at: Instant,
    /// Why the way is not to be used, if so.
    verdict: Option<Reason>,
}

impl Judge {
    fn is_current(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < VERDICT_FOR
    }
}

fn key(party: &Arc<str>, network: FourTuple) -> Key {
    (Arc::clone(party), network.remote(), network.local_ip())
}

impl Ways {
    /// What others know of the way that a connection's path takes.
    pub(crate) fn company(
        &self,
        party: &Arc<str>,
        network: FourTuple,
        conn: ConnId,
        now: Instant,
    ) -> Option<Company> {
        let way = self.known.get(&key(party, network))?;
        let other = |judge: &Judge| judge.conn != conn && judge.is_current(now);
        Some(Company {
            heard: way.heard,
            probed: way.probed,
            verdict: way.judge.filter(other).map(|judge| judge.verdict),
        })
    }

    /// Takes down what a connection's path has heard and found; true if the others should hear of
    /// it at once.
    pub(crate) fn inform(
        &mut self,
        party: &Arc<str>,
        network: FourTuple,
        (conn, pace): (ConnId, Pace),
        health: &Health,
        now: Instant,
    ) -> bool {
        let way = self.known.entry(key(party, network)).or_insert(Way {
            heard: health.heard(),
            probed: health.probed(),
            judge: None,
        });
        way.heard = way.heard.max(health.heard());
        way.probed = way.probed.max(health.probed());
        let other =
            |judge: &Judge| judge.conn != conn && judge.is_current(now) && judge.pace >= pace;
        if way.judge.as_ref().is_some_and(other) {
            return false;
        }
        let (state, reason) = health.state();
        let verdict = (state != PathState::Up).then_some(reason);
        let before = way.judge.and_then(|judge| judge.verdict);
        way.judge = Some(Judge {
            conn,
            pace,
            at: now,
            verdict,
        });
        before != verdict
    }

    /// A connection is gone, and judges nothing any more.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        for way in self.known.values_mut() {
            way.judge = way.judge.filter(|judge| judge.conn != conn);
        }
    }

    /// Whether there are so many that no path can take the most of them: a path may come from
    /// another address with each packet.
    pub(crate) fn are_too_many(&self) -> bool {
        self.known.len() > FEW.max(2 * self.used)
    }

    /// Forgets all but those that paths take.
    pub(crate) fn keep_only(&mut self, used: impl Iterator<Item = (Arc<str>, FourTuple)>) {
        let used: BTreeSet<Key> = used.map(|(party, network)| key(&party, network)).collect();
        self.known.retain(|key, _| used.contains(key));
        self.used = self.known.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ConnId = ConnId(0);
    const B: ConnId = ConnId(1);

    fn network() -> FourTuple {
        FourTuple::from_remote("203.0.113.1:443".parse().unwrap())
    }

    /// A path that is silent since its start.
    fn silent(start: Instant, now: Instant) -> Health {
        let mut health = Health::new(start);
        health.set_pace(Pace::Active, Duration::ZERO, start);
        health.handle_timeout(now);
        health
    }

    #[test]
    fn who_has_traffic_judges_for_those_who_have_none() {
        let (mut ways, van): (_, Arc<str>) = (Ways::default(), "van".into());
        let start = Instant::now();
        let now = start + Duration::from_secs(1);
        let verdict = |ways: &Ways, conn| ways.company(&van, network(), conn, now)?.verdict;

        assert!(!ways.inform(&van, network(), (A, Pace::Idle), &Health::new(start), start));
        assert_eq!(verdict(&ways, B), Some(None));
        assert_eq!(verdict(&ways, A), None);

        let found = silent(start, now);
        assert!(ways.inform(&van, network(), (B, Pace::Active), &found, now));
        assert_eq!(verdict(&ways, A), Some(Some(Reason::Silent)));
        assert_eq!(verdict(&ways, B), None);
        assert!(!ways.inform(&van, network(), (A, Pace::Idle), &Health::new(now), now));
        assert_eq!(verdict(&ways, A), Some(Some(Reason::Silent)));

        ways.forget(B);
        assert_eq!(verdict(&ways, A), None);
    }

    #[test]
    fn parties_do_not_judge_for_each_other() {
        let mut ways = Ways::default();
        let (van, thief): (Arc<str>, Arc<str>) = ("van".into(), "thief".into());
        let start = Instant::now();
        let found = silent(start, start + Duration::from_secs(1));
        ways.inform(&thief, network(), (A, Pace::Busy), &found, start);
        assert_eq!(ways.company(&van, network(), B, start), None);
    }

    /// One path that comes from another port with each packet, and one that stays.
    #[test]
    fn ways_that_no_path_takes_any_more_are_forgotten() {
        let (mut ways, van): (_, Arc<str>) = (Ways::default(), "van".into());
        let start = Instant::now();
        let health = Health::new(start);
        ways.inform(&van, network(), (A, Pace::Idle), &health, start);
        for port in 1..10_000 {
            let moved = FourTuple::from_remote(([198, 51, 100, 1], port).into());
            ways.inform(&van, moved, (B, Pace::Idle), &health, start);
            if ways.are_too_many() {
                let used = [network(), moved].map(|network| (Arc::clone(&van), network));
                ways.keep_only(used.into_iter());
                assert!(ways.company(&van, moved, A, start).is_some());
            }
            assert!(ways.known.len() <= FEW, "{port}");
        }
        assert!(ways.company(&van, network(), B, start).is_some());
    }
}
