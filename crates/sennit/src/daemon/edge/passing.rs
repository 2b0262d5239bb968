//! What passes over links now, as whoever keeps the history counts it.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{control::LinkRates, status::LinkStatus};

/// Rates are told each second; older ones than this say nothing of now.
const LATELY: Duration = Duration::from_secs(3);

/// The rates that were told last, and when.
#[derive(Debug, Default)]
pub(super) struct Passing(Mutex<Option<(LinkRates, Instant)>>);

impl Passing {
    pub(super) fn note(&self, rates: LinkRates, now: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((rates, now));
    }

    /// Says of links what passes there, if that is known.
    pub(super) fn describe(&self, links: &mut [LinkStatus], now: Instant) {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((rates, at)) = &*told else {
            return;
        };
        if now.saturating_duration_since(*at) > LATELY {
            return;
        }
        for link in links {
            if let Some([sent, received]) = rates.get(&link.name) {
                link.sent_bytes_per_second = Some(*sent);
                link.received_bytes_per_second = Some(*received);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::tests::link;

    #[test]
    fn what_passed_a_while_ago_is_not_told_as_if_it_were_now() {
        let start = Instant::now();
        let passing = Passing::default();
        let told = |now| {
            let mut links = [link("lte"), link("dsl")];
            passing.describe(&mut links, now);
            links.map(|it| (it.sent_bytes_per_second, it.received_bytes_per_second))
        };
        assert_eq!(told(start), [(None, None); 2]);

        passing.note(LinkRates::from([("lte".into(), [5.0, 7.0])]), start);

        assert_eq!(told(start + LATELY)[0], (Some(5.0), Some(7.0)));
        assert_eq!(told(start + LATELY)[1], (None, None), "nobody knows");
        let later = start + LATELY + Duration::from_secs(1);
        assert_eq!(told(later), [(None, None); 2]);
    }
}
