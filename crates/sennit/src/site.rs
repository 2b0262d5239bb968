//! The name of a site.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an edge is called: 1 to 63 of `a-z`, `0-9` and `-`, with no `-` at either end (RFC 1123
/// §2.1).
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
pub struct SiteName(String);

/// Not a site name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no site name: 1 to 63 of a-z, 0-9 and `-`, without `-` at either end", .0.escape_debug())]
pub struct BadSiteName(String);

impl SiteName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SiteName {
    type Err = BadSiteName;

    fn from_str(name: &str) -> Result<Self, BadSiteName> {
        let legal = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        let hyphen_at_end = name.starts_with('-') || name.ends_with('-');
        if name.is_empty() || name.len() > 63 || hyphen_at_end || !name.bytes().all(legal) {
            return Err(BadSiteName(name.chars().take(80).collect()));
        }
        Ok(Self(name.into()))
    }
}

impl TryFrom<String> for SiteName {
    type Error = BadSiteName;

    fn try_from(name: String) -> Result<Self, BadSiteName> {
        name.parse()
    }
}

impl From<SiteName> for String {
    fn from(name: SiteName) -> Self {
        name.0
    }
}

impl fmt::Display for SiteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_host_name_labels_are_site_names() {
        for good in ["a", "van-07", "0", &"x".repeat(63)] {
            assert_eq!(good.parse::<SiteName>().unwrap().as_str(), good);
        }
        for bad in [
            "",
            "-a",
            "a-",
            "Van",
            "a.b",
            "a b",
            "ä",
            "a\n",
            "../x",
            &"x".repeat(64),
        ] {
            assert!(bad.parse::<SiteName>().is_err(), "{bad:?}");
        }
    }
}
