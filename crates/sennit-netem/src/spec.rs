//! Both directions of a link, and the short text that describes them.
//!
//! The text is `rate[:rate down]/delay[±jitter[r]][/loss%]`, rates in Mbit/s and times in ms one
//! way. `30/10` is 30 Mbit/s at 10 ms, `3:30/10` that only from the hub to the edge, `12/40±8/0.5%`
//! varies by up to 8 ms and loses one packet of 200, and with `±8r` packets overtake each other.
//! For `±` one may write `+-`.
//!
//! A rate may be a [`Motion`]: `word[@seed][*factor]`. `lte@7/20` drives at 20 ms,
//! `starlink@3*2/25` is one of twice the usual rate, and `steps:20/15` moves only from the edge to
//! the hub.
//!
//! For delay and loss may stand one of [`NETWORKS`]: `50/mobile`.

use std::{
    fmt::{self, Display},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use serde::Deserialize;

use crate::{Bitrate, Config, Direction, Jitter, Loss, Motion, script};

/// What a text must look like.
const FORM: &str = "rate[:rate down]/delay[±jitter[r]][/loss%]";

/// Networks that load testers of QUIC have used, and what stands for them behind a rate. These
/// testers give round trips of 20, 50, 250 and 100 ms, and no rate.
pub const NETWORKS: [(&str, &str); 4] = [
    ("production", "10/0.1%"),
    ("mobile", "25/5%"),
    ("satellite", "125/1%"),
    ("high-loss", "50/10%"),
];

/// Both directions of a link.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct LinkSpec {
    /// From the edge to the hub.
    pub up: Config,
    /// From the hub to the edge.
    pub down: Config,
}

/// A text that describes no link: what is wrong with it, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSpec {
    text: String,
    reason: String,
}

impl LinkSpec {
    /// A link that is alike both ways.
    #[must_use]
    pub fn symmetric(config: Config) -> Self {
        Self {
            up: config.clone(),
            down: config,
        }
    }

    /// One of the directions.
    #[must_use]
    pub fn way(&self, direction: Direction) -> &Config {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    /// One of the directions, to change it.
    pub fn way_mut(&mut self, direction: Direction) -> &mut Config {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }
}

impl Display for BadSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, reason } = self;
        write!(
            f,
            "link `{text}`: {reason}; a link is {FORM}, like 30/10, 3:30/40±8/0.5%, lte@7/20 or \
             50/mobile"
        )
    }
}

impl std::error::Error for BadSpec {}

impl FromStr for LinkSpec {
    type Err = BadSpec;

    fn from_str(text: &str) -> Result<Self, BadSpec> {
        parse(text).map_err(|reason| BadSpec {
            text: text.into(),
            reason,
        })
    }
}

impl TryFrom<String> for LinkSpec {
    type Error = BadSpec;

    fn try_from(text: String) -> Result<Self, BadSpec> {
        text.parse()
    }
}

fn parse(text: &str) -> Result<LinkSpec, String> {
    let (rates, rest) = text.split_once('/').ok_or("it has no delay")?;
    let known = NETWORKS.iter().find(|(name, _)| *name == rest);
    let mut parts = known.map_or(rest, |(_, rest)| rest).split('/');
    let delay = parts.next().unwrap_or_default();
    let loss = parts.next().unwrap_or("0");
    if parts.next().is_some() {
        return Err("it has more than rate, delay and loss".into());
    }
    let (delay, jitter) = ["±", "+-"]
        .into_iter()
        .find_map(|sign| delay.split_once(sign))
        .unwrap_or((delay, "0"));
    let config = Config {
        delay: millis("delay", delay)?,
        jitter: Jitter {
            spread: millis("jitter", jitter.trim_end_matches('r'))?,
            reorder: jitter.ends_with('r'),
            ..Jitter::NONE
        },
        loss: Loss::Random(ratio(loss)?),
        ..Config::default()
    };
    let (up, down) = rates.split_once(':').unwrap_or((rates, rates));
    Ok(LinkSpec {
        up: at_rate(&config, up)?,
        down: at_rate(&config, down)?,
    })
}

/// A link at a rate, or moving.
fn at_rate(config: &Config, text: &str) -> Result<Config, String> {
    let config = config.clone();
    if let Ok(mbit) = text.parse() {
        let rate = Bitrate::from_mbit(mbit).ok_or_else(|| {
            let [least, most] = Bitrate::RANGE_MBIT;
            format!("the rate `{text}` is not {least} to {most} Mbit/s")
        })?;
        let rate = Some(rate);
        return Ok(Config { rate, ..config });
    }
    let (motion, trace) = script(text).map_err(|bad| {
        let words = Motion::ALL.map(Motion::name).join(", ");
        format!(
            "the rate `{text}` is neither Mbit/s nor word[@seed][*factor] of {words} ({})",
            bad.0
        )
    })?;
    let queue = motion.queue();
    Ok(Config { queue, ..config }.moving(Arc::new(trace)))
}

fn millis(what: &str, text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(Config::delay_of_ms);
    let most = Config::DELAY_MAX.as_millis();
    time.ok_or_else(|| format!("the {what} `{text}` is not 0 to {most} ms"))
}

fn ratio(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').parse().ok();
    let ratio = percent.and_then(Loss::ratio_of_percent);
    ratio.ok_or_else(|| format!("the loss `{text}` is not 0 to less than 100 %"))
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
    fn a_network_stands_for_its_delay_and_loss() {
        for (name, meant) in NETWORKS {
            let link: LinkSpec = format!("3:30/{name}").parse().expect(name);
            assert_eq!(link.to_string(), format!("3:30/{meant}"));
        }
    }

    #[test]
    fn a_keyboard_without_the_sign_is_enough() {
        let [typed, written] = ["12/40+-8r/1%", "12/40±8r/1%"].map(LinkSpec::from_str);
        assert_eq!(typed, written);
        assert!(typed.is_ok());
    }

    #[test]
    fn what_is_no_link_is_refused_with_its_part_and_what_would_be_right() {
        for (text, part) in [
            ("", "no delay"),
            ("30", "no delay"),
            (":30/1", "the rate ``"),
            ("1:2:3/1", "the rate `2:3`"),
            ("30/x", "the delay `x`"),
            ("30/70000", "the delay `70000` is not 0 to 60000 ms"),
            ("-3/10", "the rate `-3` is not 0.001 to 100000 Mbit/s"),
            ("0/10", "the rate `0`"),
            ("30/10±", "the jitter ``"),
            ("30/10/100%", "the loss `100%` is not 0 to less than 100 %"),
            ("30/10/1%/2", "more than rate, delay and loss"),
            ("inf/1", "the rate `inf`"),
            ("lte@/20", "the seed is not a whole number"),
            ("lte@x/20", "the seed is not a whole number"),
            ("lte*0/20", "a factor is 0.001 to 1000"),
            (
                "walk/20",
                "of lte, starlink, geo, wifi, steps, swell, marginal",
            ),
        ] {
            let error = text.parse::<LinkSpec>().expect_err(text).to_string();
            assert!(error.contains(part), "{error}");
            assert!(
                error.contains(FORM) && error.contains("like 30/10"),
                "{error}"
            );
        }
    }
}
