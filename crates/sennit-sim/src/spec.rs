//! Links as short texts: `rate/delay[±jitter[r]][/loss%]` in Mbit/s and ms one way.
//!
//! `30/10` is 30 Mbit/s at 10 ms, `12/40±8/0.5%` varies by up to 8 ms and loses one packet of 200, and
//! with `±8r` packets overtake each other.

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
        write!(f, "`{}` is not rate/delay[±jitter[r]][/loss%]", self.0)
    }
}

impl std::error::Error for BadSpec {}

impl FromStr for LinkSpec {
    type Err = BadSpec;

    fn from_str(text: &str) -> Result<Self, BadSpec> {
        parse(text)
            .map(Self::symmetric)
            .ok_or_else(|| BadSpec(text.into()))
    }
}

fn parse(text: &str) -> Option<Config> {
    let mut parts = text.split('/');
    let rate = number(parts.next()?)?;
    let delay = parts.next()?;
    let (delay, jitter) = delay.split_once('±').unwrap_or((delay, "0"));
    let loss = parts.next().unwrap_or("0");
    let config = Config {
        rate: Some(Bitrate::bps((rate * 1e6) as u64)),
        delay: millis(delay)?,
        jitter: Jitter {
            spread: millis(jitter.trim_end_matches('r'))?,
            reorder: jitter.ends_with('r'),
            ..Jitter::NONE
        },
        loss: Loss::Random(number(loss.trim_end_matches('%'))? / 100.0),
        ..Config::default()
    };
    parts.next().is_none().then_some(config)
}

fn number(text: &str) -> Option<f64> {
    text.parse()
        .ok()
        .filter(|n: &f64| n.is_finite() && *n >= 0.0)
}

fn millis(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(number(text)? / 1000.0).ok()
}

/// The way from the edge to the hub, in the form that is read.
impl Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.up;
        let rate = config
            .rate
            .map_or(f64::INFINITY, |rate| rate.as_bps() as f64 / 1e6);
        write!(f, "{rate}/{}", config.delay.as_secs_f64() * 1000.0)?;
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
        for text in ["30/10", "5.5/40±8", "12/40±8r", "12/40±8/0.5%", "80/0/2%"] {
            let link: LinkSpec = text.parse().expect(text);
            assert_eq!(link.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_link_is_refused() {
        for text in ["", "30", "30/x", "-3/10", "30/10±", "30/10/1%/2", "inf/1"] {
            assert_eq!(text.parse::<LinkSpec>().err(), Some(BadSpec(text.into())));
        }
    }
}
