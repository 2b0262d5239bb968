//! What a site may reach through its hub.
//!
//! A list of words and prefixes, in the hub's config for all sites and in its store for one. The
//! hub's nftables table enforces it on the way to other networks and on the way into the hub.

use std::{collections::BTreeSet, fmt, str::FromStr};

use ipnet::IpNet;
/// One word of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Whatever the hub itself can reach, and the hub.
    Everything,
    /// Public addresses, but for those behind other sites.
    Internet,
    /// Other sites and the LANs behind them.
    Sites,
    /// The hub's own services.
    Hub,
    /// Whatever has an address in this prefix.
    Prefix(IpNet),
}

/// All that one may reach; an empty list is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach(BTreeSet<Place>);

/// Why a word is not a place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no place: everything, internet, sites, hub or a prefix like 10.9.0.0/16", .0.escape_debug())]
pub struct NoPlace(String);

impl Reach {
    /// Of a site, unless the hub says otherwise.
    pub fn everything() -> Self {
        Self([Place::Everything].into())
    }

    /// Of a client with a bearer token, unless the hub says otherwise.
    pub fn internet() -> Self {
        Self([Place::Internet].into())
    }

    pub fn is_everything(&self) -> bool {
        self.0.contains(&Place::Everything)
    }

    pub fn has(&self, place: Place) -> bool {
        self.0.contains(&place)
    }

    pub fn prefixes(&self) -> impl Iterator<Item = IpNet> + '_ {
        self.0.iter().filter_map(|place| match place {
            Place::Prefix(prefix) => Some(*prefix),
            Place::Everything | Place::Internet | Place::Sites | Place::Hub => None,
        })
    }

    /// Each word by itself.
    pub fn words(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }
}

impl FromIterator<Place> for Reach {
    fn from_iter<I: IntoIterator<Item = Place>>(places: I) -> Self {
        Self(places.into_iter().collect())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("everything"),
            Self::Internet => f.write_str("internet"),
            Self::Sites => f.write_str("sites"),
            Self::Hub => f.write_str("hub"),
            Self::Prefix(prefix) => write!(f, "{prefix}"),
        }
    }
}

impl FromStr for Place {
    type Err = NoPlace;

    fn from_str(word: &str) -> Result<Self, NoPlace> {
        Ok(match word {
            "everything" => Self::Everything,
            "internet" => Self::Internet,
            "sites" => Self::Sites,
            "hub" => Self::Hub,
            _ => {
                let prefix: IpNet = word.parse().map_err(|_| NoPlace(word.to_owned()))?;
                if prefix.trunc() != prefix {
                    return Err(NoPlace(word.to_owned()));
                }
                Self::Prefix(prefix)
            }
        })
    }
}

/// Words with spaces between; none for nothing.
impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().join(" "))
    }
}

impl FromStr for Reach {
    type Err = NoPlace;

    fn from_str(words: &str) -> Result<Self, NoPlace> {
        words.split_whitespace().map(str::parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reach_survives_its_words() {
        for words in ["", "everything", "internet sites hub 10.9.0.0/16 fd09::/48"] {
            let reach: Reach = words.parse().unwrap();
            assert_eq!(reach.to_string(), words);
        }
        assert_eq!(Reach::internet(), "internet internet".parse().unwrap());
        assert!("internet 10.9.0.0/16 moon".parse::<Reach>().is_err());
        assert!("10.9.0.1/16".parse::<Reach>().is_err(), "host bits");
    }
}
