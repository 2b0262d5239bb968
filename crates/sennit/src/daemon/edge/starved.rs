//! Classes that others have wait on a link for a while, as an event when that begins and ends.
//!
//! That a class waits for a moment is what sharing is for. What is told is what the status of each
//! second says, of both directions: the hub tells how the way down fares.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    journal::{Direction, Event},
    status::TunnelStatus,
};

/// A class that has waited for so long is starved: longer than a transfer takes to settle.
const STARVED_AFTER: Duration = Duration::from_secs(10);
/// One that was starved is served when it has not waited for so long, so that one which comes and
/// goes is told of twice a minute at most.
const SERVED_AFTER: Duration = Duration::from_secs(30);
/// A look each second may miss one.
const GAP: Duration = Duration::from_secs(3);

/// A class, a link and a direction.
type Place = (String, String, Direction);

/// Who waits, and since when.
#[derive(Debug, Default)]
pub(super) struct Starved(Mutex<BTreeMap<Place, Wait>>);

#[derive(Debug)]
struct Wait {
    since: Instant,
    last: Instant,
    is_told: bool,
}

impl Starved {
    /// What there is to tell after another look.
    pub(super) fn look(&self, tunnels: &[TunnelStatus], now: Instant) -> Vec<Event> {
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for place in held(tunnels) {
            let first = Wait {
                since: now,
                last: now,
                is_told: false,
            };
            waits.entry(place).or_insert(first).last = now;
        }
        let mut events = Vec::new();
        waits.retain(|place, wait| {
            let (class, link, direction) = place.clone();
            let seconds = wait
                .last
                .saturating_duration_since(wait.since)
                .as_secs_f64();
            let quiet = now.saturating_duration_since(wait.last);
            if !wait.is_told {
                wait.is_told = wait.last >= wait.since + STARVED_AFTER;
                events.extend(wait.is_told.then_some(Event::ClassStarved {
                    class,
                    link,
                    direction,
                    seconds,
                }));
                return quiet < GAP;
            }
            let is_over = quiet >= SERVED_AFTER;
            events.extend(is_over.then_some(Event::ClassServed {
                class,
                link,
                direction,
                seconds,
            }));
            !is_over
        });
        events
    }
}

/// Who has to wait now, and where.
fn held(tunnels: &[TunnelStatus]) -> impl Iterator<Item = Place> {
    tunnels.iter().flat_map(|tunnel| {
        let paths = tunnel.paths.iter();
        paths.flat_map(move |path| {
            let ways = [
                (Direction::Up, &path.shared),
                (Direction::Down, &path.shared_down),
            ];
            let held = ways
                .into_iter()
                .filter(|(_, shared)| shared.as_ref().is_some_and(|it| it.held));
            held.filter_map(move |(way, _)| Some((tunnel.class.clone(), path.link.clone()?, way)))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        daemon::tests::{path, tunnel},
        status::SharedStatus,
    };

    /// A class that has to wait on a link, down, or not.
    fn bulk(held: bool) -> TunnelStatus {
        let (mut bulk, mut lte) = (tunnel("van", "bulk"), path("lte"));
        lte.shared_down = Some(SharedStatus {
            link_bytes_per_second: None,
            link_cause: "unknown".into(),
            link_queue_seconds: None,
            guaranteed_bytes_per_second: None,
            given_bytes_per_second: None,
            sent_bytes_per_second: 0.0,
            held,
            loss_ratio: None,
            told_seconds: None,
        });
        bulk.paths = vec![lte];
        bulk
    }

    /// What was told of seconds in which the class waits or not.
    fn told(seconds: &[(u64, bool)]) -> Vec<String> {
        let (starved, start) = (Starved::default(), Instant::now());
        let flags = seconds
            .iter()
            .flat_map(|&(count, held)| std::iter::repeat_n(held, count as usize));
        let told = (0..).zip(flags).flat_map(|(second, held)| {
            let now = start + Duration::from_secs(second);
            starved.look(&[bulk(held)], now)
        });
        told.map(|event| event.to_string()).collect()
    }

    #[test]
    fn a_class_that_waits_for_long_is_told_of_once_and_again_when_it_is_over() {
        assert_eq!(
            told(&[(9, true), (5, false), (9, true), (60, false)]),
            [""; 0]
        );
        let begins = "class bulk has waited for others on link lte, down, for 10 s";
        let over = "class bulk waits for others on link lte, down, no more, after 45 s";

        // It waits no more for a while, and then again.
        let seconds = [(20, true), (25, false), (1, true), (29, false)];
        assert_eq!(told(&seconds), [begins]);
        let all = [&seconds[..], &[(5, false)]].concat();
        assert_eq!(told(&all), [begins, over]);
    }
}
