//! The names of our own devices.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::Error;

/// A name that a TUN device, an nftables table and a file can carry alike.
///
/// 1 to 15 bytes (`IFNAMSIZ`) of letters, digits, `-`, `_` and `.`, starting with a letter, digit
/// or `_`. The kernel allows more; we never make such devices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceName(String);

impl DeviceName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DeviceName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let valid = (1..libc::IFNAMSIZ).contains(&name.len())
            && !name.starts_with(['-', '.'])
            && !matches!(name, "all" | "default")
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        if valid {
            Ok(Self(name.to_owned()))
        } else {
            Err(Error::BadDeviceName(name.to_owned()))
        }
    }
}

impl TryFrom<String> for DeviceName {
    type Error = Error;

    fn try_from(name: String) -> Result<Self, Error> {
        name.parse()
    }
}

impl From<DeviceName> for String {
    fn from(name: DeviceName) -> Self {
        name.0
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_every_place_can_carry() {
        for name in ["sennit0", "bulk-0", "a", "fifteen-bytes.0", "_x"] {
            assert!(name.parse::<DeviceName>().is_ok(), "{name}");
        }
    }

    #[test]
    fn refuses_what_would_break_a_path_a_rule_or_the_kernel() {
        for name in [
            "",
            "sixteen-bytes-00",
            "..",
            ".x",
            "-x",
            "a b",
            "a/b",
            "a\"b",
            "all",
        ] {
            assert!(name.parse::<DeviceName>().is_err(), "{name}");
        }
    }
}
