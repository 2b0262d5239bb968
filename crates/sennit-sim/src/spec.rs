//! Links as short texts: `rate[:rate down]/delay[±jitter[r]][/loss%]` in Mbit/s and ms one way.
//!
//! `30/10` is 30 Mbit/s at 10 ms, `3:30/10` that only from the hub to the edge, `12/40±8/0.5%`
//! varies by up to 8 ms and loses one packet of 200, and with `±8r` packets overtake each other.
//!
//! A rate may be a [`Motion`]: `word[@seed][*factor]`. `lte@7/20` drives at 20 ms,
//! `starlink@3*2/25` is one of twice the usual rate, and `steps:20/15` moves only from the edge to
//! the hub.

use std::{
    fmt::{self, Display},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use sennit_netem::{Bitrate, Config, Jitter, Loss, Motion};

use crate::LinkSpec;

/// A text that describes no link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSpec(String);

impl Display for BadSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = "rate[:rate down]/delay[±jitter[r]][/loss%]";
        let words = Motion::ALL.map(Motion::name).join(", ");
        write!(
            f,
            "`{}` is not {form}, a rate in Mbit/s or word[@seed][*factor] of {words}",
            self.0
        )
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
        delay: millis(delay)?,
        jitter: Jitter {
            spread: millis(jitter.trim_end_matches('r'))?,
            reorder: jitter.ends_with('r'),
            ..Jitter::NONE
        },
        loss: Loss::Random(number(loss.trim_end_matches('%'))? / 100.0),
        ..Config::default()
    };
    let link = LinkSpec {
        down: at_rate(&config, down)?,
        ..LinkSpec::symmetric(at_rate(&config, up)?)
    };
    parts.next().is_none().then_some(link)
}

/// A link at a rate, or moving.
fn at_rate(config: &Config, text: &str) -> Option<Config> {
    let config = config.clone();
    if let Some(mbit) = number(text) {
        let rate = Some(Bitrate::bps((mbit * 1e6) as u64));
        return Some(Config { rate, ..config });
    }
    let (motion, trace) = sennit_netem::script(text).ok()?;
    let queue = motion.queue();
    Some(Config { queue, ..config }.moving(Arc::new(trace)))
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
        let rate = |config: &Config| match (&config.trace, config.rate) {
            (Some(trace), _) => trace.name().to_owned(),
            (None, Some(rate)) => (rate.as_bps() as f64 / 1e6).to_string(),
            (None, None) => "inf".into(),
        };
        let [up, down] = [config, &self.down].map(rate);
        f.write_str(&up)?;
        if down != up {
            write!(f, ":{down}")?;
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
            // As much as is written: 0.017 is 1.7 and not 1.7000000000000002.
            Some(ratio) => write!(f, "/{}%", (ratio * 1e8).round() / 1e6),
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
            "80/0/1.7%",
            "lte@7/20",
            "starlink@3*1.5/25±5/0.1%",
            "10:steps@1/15",
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
            "lte@/20",
            "lte@x/20",
            "lte*0/20",
            "walk/20",
        ] {
            assert_eq!(text.parse::<LinkSpec>().err(), Some(BadSpec(text.into())));
        }
    }
}
