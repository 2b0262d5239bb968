//! When a link gets another local port.
//!
//! A NAT or a firewall may hold a mapping that leads nowhere, for example since the line behind it
//! was dialled anew, and whatever is sent by that mapping keeps it alive. So retries from the same
//! port fail for ever. A link on which nothing passes is therefore tried from another port after a
//! while, and then ever more rarely, because most links that are silent are just dead. A new port
//! costs those that work nothing: there are none.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::ids::SocketId;

/// Time without anything passing after which another port is tried: three handshakes that nobody
/// answered. After an outage as long the hub has to validate the new one, which is one round trip
/// more.
const FIRST: Duration = Duration::from_secs(12);
/// The longest time between two new ports: a mapping that lives for ever is left within this time,
/// and the tables of a NAT are not filled.
const MOST: Duration = Duration::from_secs(300);

/// The links on which nothing passes.
#[derive(Debug, Default)]
pub(super) struct Ports {
    silent: BTreeMap<SocketId, Silent>,
}

#[derive(Clone, Copy, Debug)]
struct Silent {
    /// When it became silent, or last got another port.
    since: Instant,
    patience: Duration,
}

impl Ports {
    /// Takes down whether anything passes on a link, if that is known; true if it is time for
    /// another port.
    pub(super) fn look(&mut self, link: SocketId, passes: Option<bool>, now: Instant) -> bool {
        if passes != Some(false) {
            self.silent.remove(&link);
            return false;
        }
        let silent = self.silent.entry(link).or_insert(Silent {
            since: now,
            patience: FIRST,
        });
        if now.saturating_duration_since(silent.since) < silent.patience {
            return false;
        }
        silent.since = now;
        silent.patience = (2 * silent.patience).min(MOST);
        true
    }

    /// When a link is due for another port.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let due = self.silent.values().map(|it| it.since + it.patience);
        due.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds at which the link gets another port, if `passes` says what does.
    fn times(seconds: u64, passes: impl Fn(u64) -> Option<bool>) -> Vec<u64> {
        let (start, mut ports) = (Instant::now(), Ports::default());
        let due = |&second: &u64| {
            let now = start + Duration::from_secs(second);
            ports.look(SocketId(0), passes(second), now)
        };
        (0..seconds).filter(due).collect()
    }

    #[test]
    fn a_silent_link_gets_another_port_ever_more_rarely() {
        let found = times(1500, |_| Some(false));
        assert_eq!(found, [12, 36, 84, 180, 372, 672, 972, 1272]);
    }

    #[test]
    fn a_link_that_works_or_is_not_used_keeps_its_port() {
        assert_eq!(times(1000, |_| Some(true)), []);
        assert_eq!(times(1000, |_| None), []);
        // What passes once in a while is no sign of a dead mapping.
        assert_eq!(times(1000, |second| Some(second % 11 == 0)), []);
        assert_eq!(times(60, |second| Some(second < 20)), [32, 56]);
    }
}
