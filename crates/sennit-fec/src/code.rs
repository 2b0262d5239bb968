//! Which code, its words, and its coefficients.

use std::{fmt, ops::Range, str::FromStr};

use crate::{MOST_COVERED, field};

/// How a class wants its packets protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fec {
    /// Not at all.
    Off,
    /// As far as it helps.
    #[default]
    Auto,
    /// By this code, whatever links are like.
    Fixed(Code),
}

/// How repairs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// One repair of `sources`, their sum: one lost of them comes back.
    Xor {
        /// Packets in a group.
        sources: u8,
    },
    /// So many `repairs` of `sources`, and as many lost of them come back.
    Rs {
        /// Packets in a group.
        sources: u8,
        /// Repairs of a group.
        repairs: u8,
    },
    /// One repair after each so many sources, of the newest ones: [`Code::WINDOW`], or those that
    /// are not older than a window's time.
    Rlc {
        /// Sources between two repairs.
        every: u8,
    },
}

/// Why a text is no code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCode {
    /// It is not of the form.
    #[error("is `off`, `auto`, `xor:10+1`, `rs:10+2` or `rlc:1/8`, with other numbers as needed")]
    Form,
    /// No sources, or too many.
    #[error("protects 1 to {most} packets at a time, and not {0}", most = MOST_COVERED)]
    Sources(u32),
    /// No repairs, or too many.
    #[error("sends 1 to {most} repairs for {sources} packets, and not {repairs}", most = most_repairs(*.sources))]
    Repairs {
        /// Packets in a group.
        sources: u32,
        /// Repairs of a group.
        repairs: u32,
    },
    /// A sum has one repair.
    #[error(
        "is one repair for all packets of a group, so `+1`; `rs:{sources}+{repairs}` makes {repairs}"
    )]
    OneRepair {
        /// Packets in a group.
        sources: u32,
        /// Repairs that were asked for.
        repairs: u32,
    },
    /// More repairs than sources, or none.
    #[error("sends one repair for {least} to {most} packets, as in `rlc:1/8`", least = Code::LEAST_EVERY, most = Code::MOST_EVERY)]
    Rate,
}

fn most_repairs(sources: u32) -> u32 {
    // Rows and columns of a Cauchy matrix are different elements of the field.
    sources
        .min(Code::MOST_REPAIRS.into())
        .min(256_u32.saturating_sub(sources))
}

impl Code {
    /// Sources that a repair of [`Code::Rlc`] covers at most.
    pub const WINDOW: usize = 128;
    /// Repairs that a group has at most.
    pub const MOST_REPAIRS: u8 = 32;
    /// A repair for each source is a second copy.
    pub const LEAST_EVERY: u8 = 2;
    /// More sources between two repairs than this protect nothing.
    pub const MOST_EVERY: u8 = 64;

    /// Repairs for each source.
    pub fn overhead(self) -> f64 {
        match self {
            Self::Xor { sources } => 1.0 / f64::from(sources),
            Self::Rs { sources, repairs } => f64::from(repairs) / f64::from(sources),
            Self::Rlc { every } => 1.0 / f64::from(every),
        }
    }

    /// Sources after which a repair is due.
    pub(crate) fn sources(self) -> usize {
        match self {
            Self::Xor { sources } | Self::Rs { sources, .. } => sources.into(),
            Self::Rlc { every } => every.into(),
        }
    }

    /// Repairs that are due then.
    pub(crate) fn repairs(self) -> u16 {
        match self {
            Self::Xor { .. } | Self::Rlc { .. } => 1,
            Self::Rs { repairs, .. } => repairs.into(),
        }
    }

    fn check(self) -> Result<Self, BadCode> {
        match self {
            Self::Xor { sources: 0 } | Self::Rs { sources: 0, .. } => Err(BadCode::Sources(0)),
            Self::Rs { sources, repairs }
                if repairs == 0 || u32::from(repairs) > most_repairs(sources.into()) =>
            {
                Err(BadCode::Repairs {
                    sources: sources.into(),
                    repairs: repairs.into(),
                })
            }
            Self::Rlc { every } if !(Self::LEAST_EVERY..=Self::MOST_EVERY).contains(&every) => {
                Err(BadCode::Rate)
            }
            fine => Ok(fine),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xor { sources } => write!(f, "xor:{sources}+1"),
            Self::Rs { sources, repairs } => write!(f, "rs:{sources}+{repairs}"),
            Self::Rlc { every } => write!(f, "rlc:1/{every}"),
        }
    }
}

impl FromStr for Code {
    type Err = BadCode;

    fn from_str(text: &str) -> Result<Self, BadCode> {
        let (word, numbers) = text.split_once(':').ok_or(BadCode::Form)?;
        let split = if word == "rlc" { '/' } else { '+' };
        let (first, second) = numbers.split_once(split).ok_or(BadCode::Form)?;
        let number = |text: &str| text.parse::<u32>().map_err(|_| BadCode::Form);
        let (first, second) = (number(first)?, number(second)?);
        let sources = || match u8::try_from(first) {
            Ok(sources @ 1..) => Ok(sources),
            Ok(0) | Err(_) => Err(BadCode::Sources(first)),
        };
        let code = match word {
            "xor" if second != 1 => {
                sources()?;
                return Err(BadCode::OneRepair {
                    sources: first,
                    repairs: second,
                });
            }
            "xor" => Self::Xor {
                sources: sources()?,
            },
            "rs" => Self::Rs {
                sources: sources()?,
                repairs: u8::try_from(second).map_err(|_| BadCode::Repairs {
                    sources: first,
                    repairs: second,
                })?,
            },
            "rlc" if first != 1 => return Err(BadCode::Rate),
            "rlc" => Self::Rlc {
                every: u8::try_from(second).map_err(|_| BadCode::Rate)?,
            },
            _ => return Err(BadCode::Form),
        };
        code.check()
    }
}

impl fmt::Display for Fec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Auto => f.write_str("auto"),
            Self::Fixed(code) => code.fmt(f),
        }
    }
}

impl FromStr for Fec {
    type Err = BadCode;

    fn from_str(text: &str) -> Result<Self, BadCode> {
        match text {
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            code => code.parse().map(Self::Fixed),
        }
    }
}

/// Where the coefficients of a repair come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// All are one.
    Sum,
    /// A row of a Cauchy matrix: any square part of it can be inverted.
    Cauchy(u8),
    /// Drawn, with the number of the last source as the seed.
    Random(u16),
}

impl Key {
    const SUM: u8 = 0;
    /// Rows of Cauchy's matrix are counted from here.
    const FIRST_ROW: u8 = 0x40;
    const RANDOM: u8 = 0x80;

    /// As it stands in a repair, whose last source is the seed.
    pub(crate) fn encode(self) -> u8 {
        match self {
            Self::Sum => Self::SUM,
            Self::Cauchy(row) => Self::FIRST_ROW + row,
            Self::Random(_) => Self::RANDOM,
        }
    }

    /// `None` if there is no such code.
    pub(crate) fn decode(kind: u8, last: u16) -> Option<Self> {
        const ROWS: Range<u8> = Key::FIRST_ROW..Key::FIRST_ROW + Code::MOST_REPAIRS;
        match kind {
            Self::SUM => Some(Self::Sum),
            Self::RANDOM => Some(Self::Random(last)),
            row if ROWS.contains(&row) => Some(Self::Cauchy(row - Self::FIRST_ROW)),
            _ => None,
        }
    }

    /// How many sources a repair of this kind may cover: the rows and columns of a Cauchy matrix
    /// are different elements of the field.
    pub(crate) fn most_covered(self) -> usize {
        match self {
            Self::Sum | Self::Random(_) => MOST_COVERED,
            Self::Cauchy(row) => 255 - usize::from(row),
        }
    }

    /// The factor of the source at this place, never zero.
    pub(crate) fn factor(self, place: u8) -> u8 {
        match self {
            Self::Sum => 1,
            Self::Cauchy(row) => field::inverse((255 - row) ^ place),
            Self::Random(seed) => drawn(seed, place),
        }
    }
}

/// One of 255 factors that looks random: the finaliser of MurmurHash3 over seed and place.
fn drawn(seed: u16, place: u8) -> u8 {
    let mut hash = (u32::from(seed) << 8 | u32::from(place)).wrapping_mul(0x9e37_79b1);
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^= hash >> 16;
    (1 + ((u64::from(hash) * 255) >> 32)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_written_as_it_is_read() {
        for text in ["off", "auto", "xor:10+1", "rs:10+2", "rs:200+20", "rlc:1/8"] {
            assert_eq!(text.parse::<Fec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_cannot_be_says_why() {
        let why = |text: &str| text.parse::<Fec>().unwrap_err();
        assert_eq!(why("rs:0+2"), BadCode::Sources(0));
        assert_eq!(why("xor:300+1"), BadCode::Sources(300));
        assert_eq!(why("rlc:2/1"), BadCode::Rate);
        assert_eq!(why("rlc:1/1"), BadCode::Rate);
        assert_eq!(
            why("rs:10+0"),
            BadCode::Repairs {
                sources: 10,
                repairs: 0
            }
        );
        assert_eq!(
            why("rs:10+11"),
            BadCode::Repairs {
                sources: 10,
                repairs: 11
            }
        );
        assert_eq!(
            why("rs:10+999"),
            BadCode::Repairs {
                sources: 10,
                repairs: 999
            }
        );
        assert_eq!(
            why("xor:10+2"),
            BadCode::OneRepair {
                sources: 10,
                repairs: 2
            }
        );
        for text in [
            "",
            "on",
            "xor",
            "xor:10",
            "rs:10/2",
            "rs:+2",
            "rlc:1+8",
            "raptor:10+2",
        ] {
            assert_eq!(why(text), BadCode::Form, "{text}");
        }
    }

    #[test]
    fn no_factor_is_zero_and_drawn_ones_use_the_whole_field() {
        let mut seen = [false; 256];
        for seed in 0..64 {
            for place in 0..255 {
                let factor = Key::Random(seed).factor(place);
                assert_ne!(factor, 0);
                seen[usize::from(factor)] = true;
            }
        }
        assert_eq!(seen.iter().filter(|seen| **seen).count(), 255);
        for row in 0..Code::MOST_REPAIRS {
            let key = Key::Cauchy(row);
            for place in 0..key.most_covered() {
                assert_ne!(key.factor(place as u8), 0, "{row} {place}");
            }
        }
    }
}
