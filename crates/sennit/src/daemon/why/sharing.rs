//! How a class fares on a link that classes share, in plain words and for programs.

use std::time::{Duration, Instant};

use sennit_engine::facts::{Cause, PathShare, Queue, Told, TunnelStatus};
use sennit_packet::Bitrate;

use crate::status::{FarQueueStatus, QueueStatus, SharedStatus, rate};

/// What a hub told last is old after this: it tells each second while packets flow.
const OLD: Duration = Duration::from_secs(4);

/// A direction of a link, as this side knows it.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// The one that it sends itself.
    Ours,
    /// The other one, as the hub tells it.
    Hubs,
}

impl Way {
    /// What is said after rates, and after reasons, and where packets wait.
    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Ours => ("", "", "here"),
            Self::Hubs => (" down", ", says the hub", "there"),
        }
    }
}

/// What a class has to do with the others on a link, if it has to wait for them.
pub(super) fn held(
    class: &str,
    link: &str,
    share: &PathShare,
    (way, stood): (Way, Duration),
) -> Option<String> {
    if !share.held || share.link_rate.is_zero() {
        return None;
    }
    let [whole, own] = [share.link_rate, share.rate].map(words);
    let carries = match share.cause {
        _ if share.configured => format!("the {whole} that the config gives out there"),
        Cause::Queue => {
            format!("the {whole} that are given out there while a queue in it drains")
        }
        Cause::Rises => {
            format!("the {whole} that are given out there, with more tried from time to time")
        }
        Cause::Stalled => {
            format!("the {whole} that it was found to carry before nothing arrived any more")
        }
        Cause::Unknown | Cause::Clear => format!("the {whole} that it was found to carry"),
    };
    let (down, says, place) = way.words();
    let wait = format!(
        "{says}; its packets wait {:.1} ms {place}",
        stood.as_secs_f64() * 1e3
    );
    let used = used(share);
    if used.is_zero() {
        return Some(format!(
            "; {class} is held to {own}{down} on {link}, of {carries}{wait}"
        ));
    }
    let names: Vec<&str> = share.others.iter().map(|(name, _)| name.as_str()).collect();
    let verb = if names.len() == 1 { "uses" } else { "use" };
    Some(format!(
        "; {class} is held to {own}{down} on {link}: {} {verb} {} of {carries}{wait}",
        list(&names),
        words(used)
    ))
}

/// What a class has to do with the others in the direction that the hub sends, as it told.
pub(super) fn held_there(
    tunnel: &TunnelStatus,
    link: &str,
    told: &Told,
    now: Instant,
) -> Option<String> {
    let stood = tunnel
        .queue_down
        .map_or(Duration::ZERO, |(queue, _)| queue.stood);
    let way = (Way::Hubs, stood);
    held(&tunnel.class, link, &current(told, now), way)
}

/// What was told, as it is now. A hub falls silent when nothing flows.
fn current(told: &Told, now: Instant) -> PathShare {
    let share = told.share.clone();
    if now.saturating_duration_since(told.at) < OLD {
        return share;
    }
    PathShare {
        rate: Bitrate::ZERO,
        held: false,
        others: Vec::new(),
        ..share
    }
}

/// What the others sent of late.
fn used(share: &PathShare) -> Bitrate {
    share.others.iter().map(|&(_, rate)| rate).sum()
}

fn words(of: Bitrate) -> String {
    rate(of.as_bytes_per_second_f64())
}

fn list(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// What a class has of a link, for programs.
pub(in crate::daemon) fn shared(share: &PathShare) -> SharedStatus {
    let cause = match share.cause {
        _ if share.configured => "configured",
        Cause::Unknown => "unknown",
        Cause::Queue => "queue",
        Cause::Clear => "clear",
        Cause::Rises => "rises",
        Cause::Stalled => "stalled",
    };
    let left = share.link_rate.saturating_sub(used(share));
    let given = share.guaranteed.max(left);
    let known = |rate: Bitrate| (!rate.is_zero()).then(|| rate.as_bytes_per_second_f64());
    SharedStatus {
        link_bytes_per_second: known(share.link_rate),
        link_cause: cause.into(),
        link_queue_seconds: share.link_queue.map(|queue| queue.as_secs_f64()),
        guaranteed_bytes_per_second: known(share.guaranteed),
        given_bytes_per_second: known(share.link_rate).map(|_| given.as_bytes_per_second_f64()),
        sent_bytes_per_second: share.rate.as_bytes_per_second_f64(),
        held: share.held,
        loss_ratio: None,
        told_seconds: None,
    }
}

/// What a hub told of a class and a link, for programs.
pub(in crate::daemon) fn shared_down(told: &Told, now: Instant) -> SharedStatus {
    SharedStatus {
        loss_ratio: Some(told.loss),
        told_seconds: Some(now.saturating_duration_since(told.at).as_secs_f64()),
        ..shared(&current(told, now))
    }
}

/// What a hub told of the queue of a class, for programs.
pub(in crate::daemon) fn queue_down((queue, at): (Queue, Instant), now: Instant) -> FarQueueStatus {
    let age = now.saturating_duration_since(at);
    let stands = age < OLD;
    FarQueueStatus {
        queue: QueueStatus {
            waiting_bytes: if stands { queue.waiting.into() } else { 0 },
            delay_seconds: if stands {
                queue.stood.as_secs_f64()
            } else {
                0.0
            },
            dropped_packets: queue.dropped,
            marked_packets: queue.marked,
            overflowed_packets: queue.overflowed,
        },
        told_seconds: age.as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_told_for_whom() {
        let mbit = Bitrate::mbit;
        let share = PathShare {
            link_rate: mbit(50),
            configured: false,
            cause: Cause::Clear,
            link_queue: Some(Duration::from_micros(1200)),
            guaranteed: mbit(10),
            rate: mbit(32),
            held: true,
            others: vec![("critical".into(), mbit(3)), ("default".into(), mbit(15))],
        };
        let stood = (Way::Ours, Duration::from_millis(12));
        assert_eq!(
            held("bulk", "starlink", &share, stood).unwrap(),
            "; bulk is held to 32.0 Mb/s on starlink: critical and default use 18.0 Mb/s of the 50.0 \
             Mb/s that it was found to carry; its packets wait 12.0 ms here"
        );
        let free = PathShare {
            held: false,
            ..share.clone()
        };
        assert_eq!(held("bulk", "starlink", &free, stood), None);
        for (cause, words) in [
            (Cause::Queue, "while a queue in it drains; its packets"),
            (
                Cause::Rises,
                "with more tried from time to time; its packets",
            ),
            (
                Cause::Stalled,
                "before nothing arrived any more; its packets",
            ),
        ] {
            let share = PathShare {
                cause,
                ..share.clone()
            };
            let told = held("bulk", "starlink", &share, stood).unwrap();
            assert!(told.contains(words), "{told}");
        }
        let told = shared(&share);
        assert_eq!(told.link_cause, "clear");
        assert_eq!(told.link_queue_seconds, Some(0.0012));
        assert_eq!(told.given_bytes_per_second, Some(4e6));
        assert_eq!(
            held(
                "bulk",
                "starlink",
                &share,
                (Way::Hubs, Duration::from_millis(3))
            )
            .unwrap(),
            "; bulk is held to 32.0 Mb/s down on starlink: critical and default use 18.0 Mb/s of the \
             50.0 Mb/s that it was found to carry, says the hub; its packets wait 3.0 ms there"
        );
    }

    #[test]
    fn what_a_hub_told_long_ago_is_not_taken_for_what_flows_now() {
        let at = Instant::now();
        let told = Told {
            share: PathShare {
                link_rate: Bitrate::mbit(50),
                rate: Bitrate::mbit(32),
                held: true,
                others: vec![("critical".into(), Bitrate::mbit(1))],
                ..PathShare::default()
            },
            loss: 0.01,
            at,
        };
        let soon = shared_down(&told, at + Duration::from_secs(1));
        assert_eq!((soon.sent_bytes_per_second, soon.held), (4e6, true));
        assert_eq!(
            (soon.loss_ratio, soon.told_seconds),
            (Some(0.01), Some(1.0))
        );
        let later = shared_down(&told, at + Duration::from_secs(60));
        assert_eq!((later.sent_bytes_per_second, later.held), (0.0, false));
        assert_eq!(later.link_bytes_per_second, Some(6.25e6));
        assert_eq!(later.told_seconds, Some(60.0));
    }
}
