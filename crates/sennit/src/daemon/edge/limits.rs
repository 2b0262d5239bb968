//! What an operator lets links carry at most, in place of what the config says, while the edge
//! runs.

use std::{collections::BTreeMap, ops::RangeInclusive};

use sennit_packet::Bitrate;

use crate::{
    config,
    control::{LinkBounds, Refused},
    journal::Event,
    status::LinkStatus,
};

/// As rates in the config.
const RATE: RangeInclusive<Bitrate> = Bitrate::bps(100_000)..=Bitrate::mbit(1_000_000);

/// By the names of links.
pub(super) type Limits = BTreeMap<String, Limit>;

/// Where there is none, what the config says holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limit {
    up: Option<Bitrate>,
    down: Option<Bitrate>,
}

/// Takes what is wanted of a link into account.
pub(super) fn set(limits: &mut Limits, link: &str, wanted: LinkBounds) -> Result<(), Refused> {
    let given = [wanted.up_bytes_per_second, wanted.down_bytes_per_second];
    let wrong = |&&rate: &&u64| rate != 0 && !RATE.contains(&Bitrate::bytes_per_second(rate));
    if let Some(rate) = given.iter().flatten().find(wrong) {
        let [least, most] = [RATE.start(), RATE.end()].map(|it| it.as_bytes_per_second());
        let message = format!("{rate} B/s is out of bounds: {least} to {most}, or 0 for none");
        return Err(Refused::new("bad_rate", message));
    }
    let limit = limits.entry(link.to_owned()).or_default();
    for (place, given) in [&mut limit.up, &mut limit.down].into_iter().zip(given) {
        match given {
            None => {}
            Some(0) => *place = None,
            Some(rate) => *place = Some(Bitrate::bytes_per_second(rate)),
        }
    }
    limits.retain(|_, limit| *limit != Limit::default());
    Ok(())
}

/// The links as they are to be used.
pub(super) fn apply(links: &[config::Link], limits: &Limits) -> Vec<config::Link> {
    let limited = |link: &config::Link| {
        let limit = limits.get(&link.name).copied().unwrap_or_default();
        config::Link {
            up: limit.up.or(link.up),
            down: limit.down.or(link.down),
            ..link.clone()
        }
    };
    links.iter().map(limited).collect()
}

/// Says of a link what bounds it.
pub(super) fn describe(link: &mut LinkStatus, used: &config::Link, limits: &Limits) {
    let bytes = |rate: Option<Bitrate>| rate.map(Bitrate::as_bytes_per_second_f64);
    link.up_limit_bytes_per_second = bytes(used.up);
    link.down_limit_bytes_per_second = bytes(used.down);
    let wanted = limits.get(&link.name).copied().unwrap_or_default();
    link.up_limited_by_operator = wanted.up.is_some();
    link.down_limited_by_operator = wanted.down.is_some();
    link.limited_by_operator = wanted != Limit::default();
}

/// What the journal hears.
pub(super) fn event(name: &str, limits: &Limits) -> Event {
    let limit = limits.get(name).copied().unwrap_or_default();
    Event::LinkLimited {
        link: name.to_owned(),
        up_bytes_per_second: limit.up.map(Bitrate::as_bytes_per_second),
        down_bytes_per_second: limit.down.map(Bitrate::as_bytes_per_second),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::edge::tests::config;

    fn bounds(up: Option<u64>, down: Option<u64>) -> LinkBounds {
        LinkBounds {
            up_bytes_per_second: up,
            down_bytes_per_second: down,
        }
    }

    #[test]
    fn a_direction_that_is_not_named_stays_and_zero_gives_it_back_to_the_config() {
        let mut links = config("", &["all"]).links;
        links[0].down = Some(Bitrate::mbit(8));
        let mut limits = Limits::new();
        let mbit = |rate: u64| Some(Bitrate::mbit(rate));
        let rates = |limits: &Limits| {
            let link = apply(&links, limits).remove(0);
            (link.up, link.down)
        };

        set(&mut limits, "lte", bounds(Some(250_000), None)).unwrap();
        assert_eq!(rates(&limits), (mbit(2), mbit(8)));
        set(&mut limits, "lte", bounds(None, Some(500_000))).unwrap();
        assert_eq!(rates(&limits), (mbit(2), mbit(4)));
        set(&mut limits, "lte", bounds(Some(0), Some(0))).unwrap();
        assert_eq!(rates(&limits), (None, mbit(8)));
        assert!(limits.is_empty());
    }

    #[test]
    fn of_each_direction_it_is_said_whose_bound_it_is() {
        let mut links = config("", &["all"]).links;
        links[0].down = Some(Bitrate::mbit(8));
        let mut limits = Limits::new();
        set(&mut limits, "lte", bounds(Some(250_000), None)).unwrap();
        let mut link = crate::daemon::tests::link("lte");

        describe(&mut link, &apply(&links, &limits)[0], &limits);

        let whose = (link.up_limited_by_operator, link.down_limited_by_operator);
        assert_eq!((whose, link.limited_by_operator), ((true, false), true));
        let said = "at most 2.0 Mb/s up, as an operator wants; at most 8.0 Mb/s down, as the \
                    config says";
        assert_eq!(crate::status::limits(&link).as_deref(), Some(said));
    }

    #[test]
    fn rates_that_no_link_has_are_refused_and_change_nothing() {
        let mut limits = Limits::new();
        for rate in [1, 12_499, u64::MAX] {
            let refused = set(&mut limits, "lte", bounds(None, Some(rate))).unwrap_err();
            assert_eq!(refused.code, "bad_rate");
        }
        assert!(limits.is_empty());
    }
}
