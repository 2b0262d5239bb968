//! `via` of traffic.

use serde::Deserialize;

/// Which way traffic takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Via {
    /// Through Sennit.
    #[default]
    Tunnel,
    /// Over one link without a tunnel.
    Link(String),
    /// Kernel MPTCP over all links, without a tunnel.
    Mptcp,
}

impl TryFrom<String> for Via {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "tunnel" => Ok(Self::Tunnel),
            "mptcp" => Ok(Self::Mptcp),
            other => match other.strip_prefix("link:") {
                Some(name) => Ok(Self::Link(name.into())),
                None => Err(format!(
                    "{text:?} is not \"tunnel\", \"mptcp\" or \"link:NAME\""
                )),
            },
        }
    }
}
