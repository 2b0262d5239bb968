//! `sennit links limit`.

use clap::Args;
use sennit_packet::Bitrate;

use super::{LinksArgs, is_up, ordered, status};
use crate::cli::{Exit, Failure, output};
use crate::config;
use crate::control::{Client, LinkBounds, Request};
use crate::status::{LinkStatus, limits};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit links limit lte up=2Mbit down=10Mbit
  sennit links limit lte down=off    # the config's `down` holds again
  sennit links limit lte off         # both

It takes effect at once, for all classes of the link together, and holds until the edge is started
again. `up` and `down` of the link in the config hold for good.")]
pub(super) struct LimitArgs {
    /// Name of the link
    #[arg(value_name = "LINK")]
    link: String,
    /// What it carries at most: up=RATE, down=RATE, or `off` in place of a rate or of both
    #[arg(value_name = "up=RATE|down=RATE|off", required = true, num_args = 1..=2, value_parser = bound)]
    bounds: Vec<Bound>,
}

/// One direction, or both, and its rate; zero is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Up(Bitrate),
    Down(Bitrate),
    Off,
}

fn bound(text: &str) -> Result<Bound, String> {
    let rate = |text: &str| match text {
        "off" => Ok(Bitrate::ZERO),
        text => config::rate(text),
    };
    match text.split_once('=') {
        Some(("up", text)) => rate(text).map(Bound::Up),
        Some(("down", text)) => rate(text).map(Bound::Down),
        None if text == "off" => Ok(Bound::Off),
        Some(_) | None => Err("write up=10Mbit, down=10Mbit or off".into()),
    }
}

fn wanted(bounds: &[Bound]) -> Result<LinkBounds, Failure> {
    let mut wanted = LinkBounds::default();
    for bound in bounds {
        let places = match bound {
            Bound::Up(rate) => vec![(&mut wanted.up_bytes_per_second, *rate)],
            Bound::Down(rate) => vec![(&mut wanted.down_bytes_per_second, *rate)],
            Bound::Off => vec![
                (&mut wanted.up_bytes_per_second, Bitrate::ZERO),
                (&mut wanted.down_bytes_per_second, Bitrate::ZERO),
            ],
        };
        for (place, rate) in places {
            if place.replace(rate.as_bytes_per_second()).is_some() {
                return Err(Failure::usage("each direction is said once"));
            }
        }
    }
    Ok(wanted)
}

pub(super) fn run(
    args: &LinksArgs,
    limit: &LimitArgs,
    client: &mut Client,
) -> Result<Exit, Failure> {
    let request = Request::Limit {
        link: limit.link.clone(),
        bounds: wanted(&limit.bounds)?,
    };
    let answer = ordered(client, &request)?;
    if args.json {
        return output::print_json(&answer);
    }
    output::say!("{}", said(&answer.link));
    if !status(client)?.links.iter().any(is_up) {
        output::say!("No link is up now.");
    }
    Ok(Exit::Ok)
}

fn said(link: &LinkStatus) -> String {
    let name = &link.name;
    match limits(link) {
        Some(limits) if link.limited_by_operator => format!(
            "Link `{name}` carries {limits}. What an operator wants holds until `sennit links limit \
             {name} off`, or until the edge is started again."
        ),
        Some(limits) => format!("Link `{name}` carries {limits}."),
        None => format!("Link `{name}` is not limited."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_rates_with_units_and_each_direction_is_said_once() {
        assert_eq!(bound("up=8Mbit"), Ok(Bound::Up(Bitrate::mbit(8))));
        assert_eq!(bound("down=off"), Ok(Bound::Down(Bitrate::ZERO)));
        for bad in ["", "8Mbit", "up=8", "up=1kbit", "left=8Mbit", "up="] {
            assert!(bound(bad).is_err(), "{bad}");
        }
        let both = wanted(&[Bound::Off]).unwrap();
        assert_eq!(
            (both.up_bytes_per_second, both.down_bytes_per_second),
            (Some(0), Some(0))
        );
        assert!(wanted(&[Bound::Up(Bitrate::mbit(1)), Bound::Off]).is_err());
    }
}
