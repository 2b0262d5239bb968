//! Links as short texts: `rate[:rate down]/delay[±jitter[r]][/loss%]` in Mbit/s and ms one way.
//!
//! `30/10` is 30 Mbit/s at 10 ms, `3:30/10` that only from the hub to the edge, `12/40±8/0.5%` varies by up
//! to 8 ms and loses one packet of 200, and with `±8r` packets overtake each other.

use std::{
    fmt::{self, Display},
    str::FromStr,
    time::Duration,
};

use sennit_netem::{Bitrate, Config, Jitter, Loss};

use crate::LinkSpec;

/// A text that describes no link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSpec(String);

impl Display for BadSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = "rate[:rate down]/delay[±jitter[r]][/loss%]";
        write!(f, "`{}` is not {form}", self.0)
    }
}

impl std::error::Error for BadSpec {}

impl FromStr for LinkSpec {
    type Err = BadSpec;

    fn from_str(text: &str) -> Result<Self, BadSpec> {
        parse(text).ok_or_else(|| BadSpec(text.into()))
    }
}

fn parse(text: &str) -> Option<LinkSpec> {
    let mut parts = text.split('/');
    let rates = parts.next()?;
    let (up, down) = rates.split_once(':').unwrap_or((rates, rates));
    let delay = parts.next()?;
    let (delay, jitter) = delay.split_once('±').unwrap_or((delay, "0"));
    let loss = parts.next().unwrap_or("0");
    let config = Config {
        rate: Some(bitrate(up)?),
        delay: millis(delay)?,
        jitter: Jitter {
            spread: millis(jitter.trim_end_matches('r'))?,
            reorder: jitter.ends_with('r'),
            ..Jitter::NONE
        },
        loss: Loss::Random(number(loss.trim_end_matches('%'))? / 100.0),
        ..Config::default()
    };
    let mut link = LinkSpec::symmetric(config);
    link.down.rate = Some(bitrate(down)?);
    parts.next().is_none().then_some(link)
}

fn bitrate(text: &str) -> Option<Bitrate> {
    Some(Bitrate::bps((number(text)? * 1e6) as u64))
}

fn number(text: &str) -> Option<f64> {
    text.parse()
        .ok()
        .filter(|n: &f64| n.is_finite() && *n >= 0.0)
}

fn millis(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(number(text)? / 1000.0).ok()
}

/// In the form that is read: the way from the edge to the hub, and the rate of the other.
impl Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.up;
        let megabits =
            |rate: Option<Bitrate>| rate.map_or(f64::INFINITY, |rate| rate.as_bps() as f64 / 1e6);
        write!(f, "{}", megabits(config.rate))?;
        if self.down.rate != config.rate {
            write!(f, ":{}", megabits(self.down.rate))?;
        }
        write!(f, "/{}", config.delay.as_secs_f64() * 1000.0)?;
        if !config.jitter.spread.is_zero() {
            let reorder = if config.jitter.reorder { "r" } else { "" };
            write!(
                f,
                "±{}{reorder}",
                config.jitter.spread.as_secs_f64() * 1000.0
            )?;
        }
        match config.loss.ratio() {
            Some(0.0) => Ok(()),
            Some(ratio) => write!(f, "/{}%", ratio * 100.0),
            None => write!(f, "/?%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_was_read() {
        for text in [
            "30/10",
            "2.5:30/10",
            "5.5/40±8",
            "12/40±8r",
            "12/40±8/0.5%",
            "80/0/2%",
        ] {
            let link: LinkSpec = text.parse().expect(text);
            assert_eq!(link.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_link_is_refused() {
        for text in [
            "",
            "30",
            ":30/1",
            "1:2:3/1",
            "30/x",
            "-3/10",
            "30/10±",
            "30/10/1%/2",
            "inf/1",
        ] {
            assert_eq!(text.parse::<LinkSpec>().err(), Some(BadSpec(text.into())));
        }
    }
}
