//! When to ask for a certificate in place of the one there is.
//!
//! Whether one is old is told by the host's clock, and that may be wrong by years. So one that was
//! just received is used, however old it seems to be; from then on its age is what has passed
//! since.

use std::time::{Duration, Instant};

use crate::identity::RENEW_AFTER;

/// A certificate is renewed at most this often, and so often it is looked whether it is old. To a
/// hub, a request each hour from an edge that it refuses is nothing; and months of trying remain.
const PAUSE: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(super) struct Renewal {
    /// The engines are there to get a fresh certificate, and not for traffic.
    renewing: bool,
    /// The next ones will be.
    wanted: bool,
    /// Not before then.
    at: Instant,
}

impl Renewal {
    /// At the start of an edge, whose certificate is `due` to be renewed or not.
    pub(super) fn new(due: bool, now: Instant) -> Self {
        Self {
            renewing: due,
            wanted: false,
            at: now + PAUSE,
        }
    }

    /// A certificate was received.
    pub(super) fn received(&mut self, now: Instant) {
        self.at = now + RENEW_AFTER;
        self.wanted = false;
    }

    /// There is no fresh one to be had now; true if there were engines only for that.
    pub(super) fn put_off(&mut self, now: Instant) -> bool {
        self.at = now + PAUSE;
        self.renewing
    }

    /// Whether it is time to start over for a fresh one.
    pub(super) fn is_due(&mut self, due: impl FnOnce() -> bool, now: Instant) -> bool {
        if now < self.at {
            return false;
        }
        self.at = now + PAUSE;
        self.wanted = !self.renewing && due();
        self.wanted
    }

    /// New engines are made: whether for a fresh certificate.
    pub(super) fn start_over(&mut self) -> bool {
        self.renewing = std::mem::take(&mut self.wanted);
        self.renewing
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often an edge starts over for a certificate within `time`, each of which seems to be
    /// old.
    fn renewals(mut renewal: Renewal, start: Instant, time: Duration) -> usize {
        let (mut now, mut count) = (start, 0);
        while now <= start + time {
            if renewal.is_due(|| true, now) {
                assert!(renewal.start_over());
                count += 1;
                renewal.received(now);
                assert!(!renewal.start_over(), "what was received is used");
            }
            now = renewal.poll_timeout();
        }
        count
    }

    #[test]
    fn a_clock_that_is_far_ahead_makes_no_loop() {
        let start = Instant::now();
        let mut renewal = Renewal::new(true, start);
        renewal.received(start);
        assert!(!renewal.start_over());

        assert_eq!(renewals(renewal, start, Duration::from_secs(86_400)), 0);
    }

    #[test]
    fn a_certificate_that_becomes_old_while_the_edge_runs_is_renewed() {
        let start = Instant::now();
        let renewal = Renewal::new(false, start);

        assert_eq!(renewals(renewal, start, Duration::from_secs(86_400)), 1);
    }

    #[test]
    fn a_refused_renewal_is_repeated_after_an_hour_and_the_old_certificate_used_meanwhile() {
        let start = Instant::now();
        let mut renewal = Renewal::new(true, start);

        assert!(renewal.put_off(start));
        assert!(!renewal.start_over());

        assert!(!renewal.is_due(|| true, start + PAUSE / 2));
        assert!(renewal.is_due(|| true, start + PAUSE));
        assert!(renewal.start_over());
    }
}
