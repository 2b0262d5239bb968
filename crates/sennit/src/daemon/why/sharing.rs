//! How a class fares on a link that classes share, in plain words and for programs.

use std::time::Duration;

use sennit_engine::facts::{Cause, PathShare};

use crate::status::{SharedStatus, rate};

/// What a class has to do with the others on a link, if it has to wait for them.
pub(super) fn held(class: &str, link: &str, share: &PathShare, stood: Duration) -> Option<String> {
    let whole = share.link_rate as f64;
    if !share.held || share.link_rate == 0 {
        return None;
    }
    let own = rate(share.rate as f64);
    let carries = match share.cause {
        _ if share.configured => format!("the {} that the config gives out there", rate(whole)),
        Cause::Queue => format!(
            "the {} that are given out there while a queue in it drains",
            rate(whole)
        ),
        Cause::Unknown | Cause::Clear | Cause::Rises | Cause::Stalled => {
            format!("the {} that it was found to carry", rate(whole))
        }
    };
    let wait = format!("its packets wait {:.1} ms here", stood.as_secs_f64() * 1e3);
    let used = used(share);
    if used == 0 {
        return Some(format!(
            "; {class} is held to {own} on {link}, of {carries}; {wait}"
        ));
    }
    let names: Vec<&str> = share.others.iter().map(|(name, _)| name.as_str()).collect();
    let verb = if names.len() == 1 { "uses" } else { "use" };
    Some(format!(
        "; {class} is held to {own} on {link}: {} {verb} {} of {carries}; {wait}",
        list(&names),
        rate(used as f64)
    ))
}

/// What the others sent of late, in bytes per second.
fn used(share: &PathShare) -> u64 {
    share.others.iter().map(|(_, rate)| rate).sum()
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
    SharedStatus {
        link_bytes_per_second: (share.link_rate > 0).then_some(share.link_rate as f64),
        link_cause: cause.into(),
        link_queue_seconds: share.link_queue.map(|queue| queue.as_secs_f64()),
        guaranteed_bytes_per_second: (share.guaranteed > 0).then_some(share.guaranteed as f64),
        given_bytes_per_second: (share.link_rate > 0).then_some(given as f64),
        sent_bytes_per_second: share.rate as f64,
        held: share.held,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_told_for_whom() {
        let mbit = |n: u64| n * 125_000;
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
        let stood = Duration::from_millis(12);
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
        let told = shared(&share);
        assert_eq!(told.link_cause, "clear");
        assert_eq!(told.link_queue_seconds, Some(0.0012));
        assert_eq!(told.given_bytes_per_second, Some(mbit(32) as f64));
    }
}
