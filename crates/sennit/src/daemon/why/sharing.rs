//! How a class fares on a link that classes share, in plain words and for programs.

use sennit_engine::facts::{Cause, PathShare};

use crate::status::{SharedStatus, rate};

/// What a class has to do with the others on a link, if it has to wait for them.
pub(super) fn held(class: &str, link: &str, share: &PathShare) -> Option<String> {
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
    let used: u64 = share.others.iter().map(|(_, rate)| rate).sum();
    if used == 0 {
        return Some(format!(
            "; {class} is held to {own} on {link}, of {carries}"
        ));
    }
    let names: Vec<&str> = share.others.iter().map(|(name, _)| name.as_str()).collect();
    let verb = if names.len() == 1 { "uses" } else { "use" };
    Some(format!(
        "; {class} is held to {own} on {link}: {} {verb} {} of {carries}",
        list(&names),
        rate(used as f64)
    ))
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
    SharedStatus {
        link_bytes_per_second: (share.link_rate > 0).then_some(share.link_rate as f64),
        link_cause: cause.into(),
        guaranteed_bytes_per_second: (share.guaranteed > 0).then_some(share.guaranteed as f64),
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
            guaranteed: mbit(10),
            rate: mbit(32),
            held: true,
            others: vec![("critical".into(), mbit(3)), ("default".into(), mbit(15))],
        };
        assert_eq!(
            held("bulk", "starlink", &share).unwrap(),
            "; bulk is held to 32.0 Mb/s on starlink: critical and default use 18.0 Mb/s of the 50.0 \
             Mb/s that it was found to carry"
        );
        let free = PathShare {
            held: false,
            ..share.clone()
        };
        assert_eq!(held("bulk", "starlink", &free), None);
        assert_eq!(shared(&share).link_cause, "clear");
    }
}
