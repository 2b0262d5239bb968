//! Where a hub is: an address or a name, with a port.

use std::{fmt, net::SocketAddr, str::FromStr};

use serde::{Deserialize, Serialize};

/// Somewhere to send to, like `203.0.113.10:443`, `[2001:db8::1]:443` or `vpn.example.org:443`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Remote {
    Address(SocketAddr),
    /// To be looked up.
    Name {
        host: String,
        port: u16,
    },
}

/// Why a text is no [`Remote`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    #[error(
        "the port is missing: write it like 203.0.113.10:443, [2001:db8::1]:443 or vpn.example.org:443"
    )]
    NoPort,
    #[error("it is neither an IP address nor a name")]
    NoHost,
    #[error("nobody can be reached there")]
    Unreachable,
}

/// RFC 1035 §2.3.4, as text without the root's dot.
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

impl Remote {
    pub fn port(&self) -> u16 {
        match self {
            Self::Address(address) => address.port(),
            Self::Name { port, .. } => *port,
        }
    }

    /// The address or the name, without the port.
    pub fn host(&self) -> String {
        match self {
            Self::Address(address) => address.ip().to_string(),
            Self::Name { host, .. } => host.clone(),
        }
    }

    /// The address, unless it has to be looked up.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Address(address) => Some(*address),
            Self::Name { .. } => None,
        }
    }
}

impl From<SocketAddr> for Remote {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}

impl FromStr for Remote {
    type Err = RemoteError;

    fn from_str(text: &str) -> Result<Self, RemoteError> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            let nowhere = address.ip().is_unspecified() || address.ip().is_multicast();
            if nowhere || address.port() == 0 {
                return Err(RemoteError::Unreachable);
            }
            return Ok(Self::Address(address));
        }
        let (host, port) = text.rsplit_once(':').ok_or(RemoteError::NoPort)?;
        let port: u16 = port.parse().map_err(|_| RemoteError::NoPort)?;
        let host = host.strip_suffix('.').unwrap_or(host);
        if !is_name(host) {
            return Err(RemoteError::NoHost);
        }
        if port == 0 {
            return Err(RemoteError::Unreachable);
        }
        Ok(Self::Name {
            host: host.to_ascii_lowercase(),
            port,
        })
    }
}

impl TryFrom<String> for Remote {
    type Error = RemoteError;

    fn try_from(text: String) -> Result<Self, RemoteError> {
        text.parse()
    }
}

impl From<Remote> for String {
    fn from(remote: Remote) -> Self {
        remote.to_string()
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// Whether it is a host's name (RFC 1123 §2.1): its last label is no number, so that no address
/// that was mistyped is one.
fn is_name(host: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let is_label = |label: &str| {
        let inner = !label.starts_with('-') && !label.ends_with('-');
        (1..=LONGEST_LABEL).contains(&label.len()) && inner && label.chars().all(legal)
    };
    let last = host.rsplit('.').next().unwrap_or_default();
    let numeric = last.chars().all(|c| c.is_ascii_digit());
    host.len() <= LONGEST_NAME && !numeric && host.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_told_apart_and_come_back_as_they_were() {
        for text in ["203.0.113.10:443", "[2001:db8::1]:443"] {
            let remote: Remote = text.parse().unwrap();
            assert!(remote.address().is_some(), "{text}");
            assert_eq!(remote.to_string(), text);
        }
        for text in ["vpn.example.org:443", "hub:8443", "a_b.x1:1"] {
            let remote: Remote = text.parse().unwrap();
            assert_eq!(remote.address(), None, "{text}");
            assert_eq!(remote.to_string(), text);
        }
        assert_eq!(
            "VPN.Example.org.:443".parse::<Remote>(),
            "vpn.example.org:443".parse()
        );
    }

    #[test]
    fn what_nobody_can_be_reached_at_is_refused() {
        for (text, error) in [
            ("", RemoteError::NoPort),
            ("vpn.example.org", RemoteError::NoPort),
            ("2001:db8::1:http", RemoteError::NoPort),
            ("203.0.113:443", RemoteError::NoHost),
            ("203.0.113.999:443", RemoteError::NoHost),
            ("2001:db8::1:443x:1", RemoteError::NoHost),
            ("-a.org:443", RemoteError::NoHost),
            ("a..org:443", RemoteError::NoHost),
            ("vpn.exämple.org:443", RemoteError::NoHost),
            (":443", RemoteError::NoHost),
            ("0.0.0.0:443", RemoteError::Unreachable),
            ("vpn.example.org:0", RemoteError::Unreachable),
        ] {
            assert_eq!(text.parse::<Remote>(), Err(error), "{text}");
        }
    }
}
