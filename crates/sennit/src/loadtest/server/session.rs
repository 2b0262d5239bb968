//! A test of a client, from its plan to its figures, and how long it may keep its place.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    time::{Duration, Instant},
};

use sennit_engine::ConnId;

use super::super::{load::Load, words::Plan};

/// A session may last so much longer than its load.
const AROUND: Duration = Duration::from_secs(60);
/// From the plan, and from each connection that joins, until the next or the start. A client shakes
/// hands three times before its load, and waits five seconds for each unless told otherwise.
const GATHERS: Duration = Duration::from_secs(30);
/// Whoever has its figures says goodbye within this time.
const LEAVES: Duration = Duration::from_secs(15);

/// A test of a client.
pub(super) struct Session {
    pub(super) name: String,
    pub(super) plan: Plan,
    pub(super) load: Load,
    /// Whose place it takes.
    pub(super) network: IpAddr,
    since: Instant,
    stage: Stage,
    /// The client knows that all bytes have arrived.
    pub(super) told_complete: bool,
    /// Other tests whose load ran while this one's did.
    pub(super) others: u64,
}

enum Stage {
    /// Connections join, the last one then.
    Gathers(Instant),
    Runs,
    /// The client has its figures since then.
    Over(Instant),
}

impl Session {
    pub(super) fn new(name: String, plan: Plan, network: IpAddr, now: Instant) -> Self {
        Self {
            name,
            load: Load::new(&plan),
            plan,
            network,
            since: now,
            stage: Stage::Gathers(now),
            told_complete: false,
            others: 0,
        }
    }

    /// A connection has joined.
    pub(super) fn note_joined(&mut self, now: Instant) {
        if let Stage::Gathers(last) = &mut self.stage {
            *last = now;
        }
    }

    /// The load begins, once.
    fn start(&mut self) -> Result<(), String> {
        let Stage::Gathers(_) = self.stage else {
            return Err("a test begins once".into());
        };
        self.stage = Stage::Runs;
        Ok(())
    }

    /// The load ends, once.
    pub(super) fn end(&mut self, now: Instant) -> Result<(), String> {
        let Stage::Runs = self.stage else {
            return Err("a test that runs ends once".into());
        };
        self.stage = Stage::Over(now);
        Ok(())
    }

    /// Why it has to go, if it has.
    pub(super) fn overstays(&self, now: Instant) -> Option<&'static str> {
        let passed = |since: Instant, most| now.saturating_duration_since(since) > most;
        let load = Duration::from_secs_f64(self.plan.seconds + self.plan.warmup_seconds);
        match self.stage {
            Stage::Gathers(last) if passed(last, GATHERS) => Some("the test was not begun"),
            Stage::Over(told) if passed(told, LEAVES) => Some("the test is over"),
            Stage::Gathers(_) | Stage::Runs | Stage::Over(_) => {
                passed(self.since, load + AROUND).then_some("the time for this test is up")
            }
        }
    }
}

/// The load of one of these begins, once. It and those that run are beside each other.
pub(super) fn start(
    sessions: &mut BTreeMap<ConnId, Session>,
    id: ConnId,
) -> Result<&mut Session, String> {
    sessions.get_mut(&id).ok_or("there is no plan")?.start()?;
    let mut beside = 0;
    for (_, other) in sessions.iter_mut().filter(|(of, _)| **of != id) {
        if let Stage::Runs = other.stage {
            other.others += 1;
            beside += 1;
        }
    }
    let session = sessions.get_mut(&id).ok_or("there is no plan")?;
    session.others = beside;
    Ok(session)
}

/// Addresses that one host has at will: of IPv6 a network of 64 bits, of IPv4 one.
pub(super) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn session(now: Instant) -> Session {
        let plan = Plan {
            connections: 2,
            seconds: 300.0,
            ..Plan::example()
        };
        Session::new("name".into(), plan, [192, 0, 2, 1].into(), now)
    }

    #[test]
    fn a_test_that_is_planned_and_not_begun_loses_its_place() {
        let now = Instant::now();
        let mut session = session(now);
        assert_eq!(session.overstays(now + GATHERS), None);
        assert!(session.overstays(now + GATHERS + SECOND).is_some());

        session.note_joined(now + GATHERS);
        assert_eq!(session.overstays(now + GATHERS * 2), None);

        session.start().expect("it was not begun before");
        assert_eq!(session.overstays(now + SECOND * 359), None);
        assert!(session.overstays(now + SECOND * 361).is_some());
    }

    #[test]
    fn a_test_begins_once_and_ends_once() {
        let now = Instant::now();
        let mut session = session(now);
        assert!(session.end(now).is_err(), "it does not run");
        assert_eq!(session.start(), Ok(()));
        assert!(session.start().is_err());
        assert_eq!(session.end(now), Ok(()));
        assert!(session.end(now).is_err() && session.start().is_err());
        assert!(session.overstays(now + LEAVES + SECOND).is_some());
    }

    /// One that is over is no neighbour, and one that only gathers is none yet.
    #[test]
    fn tests_know_how_many_others_ran_beside_them() {
        let now = Instant::now();
        let mut sessions: BTreeMap<_, _> = (1..=4).map(|id| (ConnId(id), session(now))).collect();
        let mut begins = |id| start(&mut sessions, ConnId(id)).map(|it| it.others);

        assert_eq!([begins(1), begins(2), begins(3)], [Ok(0), Ok(1), Ok(2)]);
        assert!(begins(1).is_err() && begins(9).is_err());

        let of = |sessions: &BTreeMap<_, Session>, id| sessions[&ConnId(id)].others;
        assert_eq!([1, 2, 3, 4].map(|id| of(&sessions, id)), [2, 2, 2, 0]);
        let over = sessions.get_mut(&ConnId(1)).expect("it is there");
        over.end(now).expect("it runs");
        assert_eq!(start(&mut sessions, ConnId(4)).map(|it| it.others), Ok(2));
        assert_eq!(of(&sessions, 1), 2);
    }

    #[test]
    fn all_addresses_of_a_host_are_one_network() {
        let of = |text: &str| network_of(text.parse().expect("it is an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
