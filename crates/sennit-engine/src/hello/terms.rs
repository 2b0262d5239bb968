//! How an edge tells its hub what its classes may have of the links.
//!
//! Parameters of the `sennit` header, of which a hub that does not share links ignores all:
//!
//! ```text
//! share=20              percent of each link for this class
//! share-rate=250000     or so many bytes per second
//! limit=1250000         bytes per second on all links together
//! dscp=46               the code point of outer packets
//! down=dsl:2500000      what the hub sends on a link at most, in bytes per second
//! ```
//!
//! A hub that does it answers with `shares=kept`, and with `terms=change` if it takes other terms
//! while the tunnel is up, in a capsule of the same parameters; with `treatment=change` such a
//! capsule may hold the whole `sennit` field of another request. Links that share by no rule say
//! nothing.

use std::collections::BTreeMap;

use sennit_core::ClassId;
use sennit_packet::Bitrate;

use crate::sharing::{Plan, Share, Terms};

/// What a hub that shares links by these rules says.
pub(crate) const KEPT: (&str, &str) = ("shares", "kept");
/// What a hub says that takes other terms of a tunnel that is up.
pub(crate) const CHANGE: (&str, &str) = ("terms", "change");
/// What a hub says that takes all of another request for a tunnel that is up.
pub(crate) const TREATMENT: (&str, &str) = ("treatment", "change");
/// Links of which an edge says what they carry.
const MOST_LINKS: usize = crate::transport::MOST_LINKS;
/// Less than this is taken for this: who asks for nothing would get nothing.
const LEAST: Bitrate = Bitrate::bps(100_000);
/// Of what a site asks for, more than this is taken for this.
const MOST: Bitrate = Bitrate::mbit(1_000_000);

/// What an edge says of one class, and of its links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    pub(crate) terms: Terms,
    pub(crate) down: BTreeMap<String, Bitrate>,
    /// The code point of outer packets (RFC 2474).
    pub(crate) dscp: u8,
    /// It shares its links by rules, though it may have none for this class.
    pub(crate) shares: bool,
}

impl Wishes {
    /// What a plan says of a class; nothing without a plan.
    pub(crate) fn of(plan: Option<&Plan>, class: ClassId, dscp: u8) -> Self {
        let Some(plan) = plan else {
            return Self {
                dscp,
                ..Self::default()
            };
        };
        Self {
            dscp,
            terms: plan.classes.get(&class).copied().unwrap_or_default(),
            down: plan.down.clone(),
            shares: true,
        }
    }

    /// As parameters, each with a semicolon in front.
    pub(crate) fn encode(&self) -> String {
        let bytes = Bitrate::as_bytes_per_second;
        let mut text = String::new();
        if self.dscp > 0 {
            text += &format!(";dscp={}", self.dscp);
        }
        if !self.shares {
            return text;
        }
        text += &format!(";{}={}", KEPT.0, KEPT.1);
        match self.terms.share {
            Some(Share::Percent(part)) => text += &format!(";share={part}"),
            Some(Share::Rate(rate)) => text += &format!(";share-rate={}", bytes(rate)),
            None => {}
        }
        if let Some(limit) = self.terms.limit {
            text += &format!(";limit={}", bytes(limit));
        }
        if !self.down.is_empty() {
            let down = self.down.iter().take(MOST_LINKS);
            let down = down.map(|(name, rate)| format!("{name}:{}", bytes(*rate)));
            let down: Vec<String> = down.collect();
            text += &format!(";down={}", down.join(","));
        }
        text
    }

    /// What was encoded.
    pub(crate) fn decode(text: &str) -> Self {
        let mut wishes = Self::default();
        let parts = text.split(';').filter_map(|part| part.split_once('='));
        parts.for_each(|parameter| wishes.learn(parameter));
        wishes
    }

    /// Takes one parameter; what is nonsense changes nothing.
    pub(crate) fn learn(&mut self, parameter: (&str, &str)) {
        let rate = |text: &str| {
            let rate = Bitrate::bytes_per_second(text.parse().ok()?);
            Some(rate.clamp(LEAST, MOST))
        };
        match parameter {
            KEPT => self.shares = true,
            ("share", part) => {
                let part = part.parse().ok().filter(|part| (1..=100).contains(part));
                self.terms.share = part.map(Share::Percent).or(self.terms.share);
            }
            ("share-rate", text) => {
                self.terms.share = rate(text).map(Share::Rate).or(self.terms.share);
            }
            ("dscp", point) => {
                let point = point.parse().ok().filter(|point| *point < 64);
                self.dscp = point.unwrap_or(self.dscp);
            }
            ("limit", text) => self.terms.limit = rate(text),
            ("down", list) => {
                let links = list.split(',').take(MOST_LINKS);
                let said = links.filter_map(|link| {
                    let (name, text) = link.rsplit_once(':')?;
                    Some((name.to_owned(), rate(text)?))
                });
                self.down = said.collect();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(text: &str) -> Wishes {
        let mut wishes = Wishes::default();
        for part in text.split(';').filter_map(|part| part.split_once('=')) {
            wishes.learn(part);
        }
        wishes
    }

    #[test]
    fn what_is_wished_is_understood() {
        let wishes = Wishes {
            terms: Terms {
                share: Some(Share::Percent(20)),
                limit: Some(Bitrate::mbit(10)),
            },
            down: [
                ("dsl.1".to_owned(), Bitrate::mbit(20)),
                ("lte".to_owned(), Bitrate::bytes_per_second(600_000)),
            ]
            .into(),
            dscp: 46,
            shares: true,
        };
        assert_eq!(learned(&wishes.encode()), wishes);
        let rate = Wishes {
            terms: Terms {
                share: Some(Share::Rate(Bitrate::mbit(2))),
                limit: None,
            },
            shares: true,
            ..Wishes::default()
        };
        assert_eq!(learned(&rate.encode()), rate);
        assert_eq!(Wishes::default().encode(), "");
    }

    #[test]
    fn nonsense_is_not_taken() {
        let nonsense = learned(";share=0;share=200;share=x;dscp=64;limit=-1;down=a,b:,:5x");
        assert_eq!(nonsense, Wishes::default());
        assert_eq!(learned(";limit=1").terms.limit, Some(LEAST));
        let many: Vec<String> = (0..999).map(|n| format!("l{n}:99999")).collect();
        let many = learned(&format!(";down={}", many.join(",")));
        assert_eq!(many.down.len(), MOST_LINKS);
    }
}
