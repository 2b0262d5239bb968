//! A test of a client, from its plan to its figures, and how long it may keep its place.

use std::{
    net::{IpAddr, Ipv6Addr},
    time::{Duration, Instant},
};

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
        }
    }

    /// A connection has joined.
    pub(super) fn note_joined(&mut self, now: Instant) {
        if let Stage::Gathers(last) = &mut self.stage {
            *last = now;
        }
    }

    /// The load begins, once.
    pub(super) fn start(&mut self) -> Result<(), String> {
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

    #[test]
    fn all_addresses_of_a_host_are_one_network() {
        let of = |text: &str| network_of(text.parse().expect("it is an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
