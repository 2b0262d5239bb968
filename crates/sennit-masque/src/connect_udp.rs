//! The request that has UDP proxied to one target, RFC 9298 §3.
//!
//! Its HTTP datagrams carry UDP payloads in context zero, its response has the fields of
//! [`connect_ip::response_fields`](crate::connect_ip::response_fields), and no capsule but DATAGRAM
//! means anything on its stream.

use crate::connect_ip::response_fields;
use crate::message::RequestHead;
use crate::template::{self, Broken};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// The upgrade token (RFC 9298 §8.1).
pub const PROTOCOL: &str = "connect-udp";

/// The default template is this, then `{target_host}/{target_port}/` (RFC 9298 §3).
pub const WELL_KNOWN: &str = "/.well-known/masque/udp/";

/// The context of UDP payloads (RFC 9298 §4).
pub const CONTEXT_UDP: u64 = 0;

/// The longest UDP payload (RFC 9298 §5).
pub const MAX_PAYLOAD: usize = 65_527;

/// Whom UDP packets go to and come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub host: Host,
    /// 1 to 65535.
    pub port: u16,
}

/// Where a target is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    Address(IpAddr),
    /// A name, which the proxy looks up.
    Name(String),
}

/// Why a request has no target, and how to answer it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the scheme is not https")]
    Scheme,
    #[error("the path is not {WELL_KNOWN}{{target_host}}/{{target_port}}/")]
    Path,
    #[error("a percent sign is not followed by two hex digits")]
    Percent,
    #[error("the target is neither an IP address without a zone nor a host name")]
    Host,
    #[error("the port is not 1 to 65535")]
    Port,
}

impl Refusal {
    /// The status to respond with.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::Path => 404,
            Self::Scheme | Self::Percent | Self::Host | Self::Port => 400,
        }
    }
}

impl From<Broken> for Refusal {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Percent => Self::Percent,
            Broken::Text => Self::Host,
        }
    }
}

/// Whether a request is for UDP; then [`accept`] reads it.
#[must_use]
pub fn is_meant(head: &RequestHead) -> bool {
    head.is_connect() && head.protocol.as_deref() == Some(PROTOCOL)
}

/// The head of a request (RFC 9298 §3.4).
#[must_use]
pub fn request(authority: &str, target: &Target) -> RequestHead {
    RequestHead {
        protocol: Some(PROTOCOL.to_owned()),
        fields: response_fields(),
        ..RequestHead::new("CONNECT", authority, &target.path())
    }
}

/// Reads the target of a request from the default template.
pub fn accept(head: &RequestHead) -> Result<Target, Refusal> {
    let scheme = head.scheme.as_deref().unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("https") {
        return Err(Refusal::Scheme);
    }
    Target::from_path(head.path.as_deref().unwrap_or_default())
}

impl Target {
    /// The path that the default template gives for this target.
    #[must_use]
    pub fn path(&self) -> String {
        let host = template::encode(&self.host.to_string());
        format!("{WELL_KNOWN}{host}/{}/", self.port)
    }

    /// Reads a path of the default template; the slash at its end may be missing.
    pub fn from_path(path: &str) -> Result<Self, Refusal> {
        let variables = template::two_variables(path, WELL_KNOWN);
        let (host, port) = variables.ok_or(Refusal::Path)?;
        Ok(Self {
            host: Host::parse(&template::decode(host)?)?,
            port: parse_port(&template::decode(port)?)?,
        })
    }
}

impl Host {
    fn parse(text: &str) -> Result<Self, Refusal> {
        match text.parse() {
            Ok(address) => Ok(Self::Address(address)),
            Err(_) if template::is_host_name(text) => Ok(Self::Name(text.to_owned())),
            // Some clients write IPv6 addresses as URIs have them.
            Err(_) => bracketed(text).map(Self::Address).ok_or(Refusal::Host),
        }
    }
}

fn bracketed(text: &str) -> Option<IpAddr> {
    let inside = text.strip_prefix('[')?.strip_suffix(']')?;
    inside.parse().ok().map(|it: Ipv6Addr| it.into())
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

fn parse_port(text: &str) -> Result<u16, Refusal> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|&port| digits && port != 0);
    port.ok_or(Refusal::Port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect_ip::speaks_capsules;
    use proptest::prelude::*;

    fn target(variables: &str) -> Result<Target, Refusal> {
        Target::from_path(&format!("{WELL_KNOWN}{variables}"))
    }

    fn at(host: &str, port: u16) -> Target {
        let host = host
            .parse()
            .map_or_else(|_| Host::Name(host.into()), Host::Address);
        Target { host, port }
    }

    #[test]
    fn the_targets_of_rfc_9298_parse() {
        assert_eq!(target("192.0.2.6/443/"), Ok(at("192.0.2.6", 443)));
        assert_eq!(target("2001%3Adb8%3A%3A42/53"), Ok(at("2001:db8::42", 53)));
        assert_eq!(
            target("%5B2001%3Adb8%3A%3A42%5D/53/"),
            Ok(at("2001:db8::42", 53))
        );
        let name = at("target.example.com", 65_535);
        assert_eq!(target("target.example.com/65535/"), Ok(name));
    }

    #[test]
    fn a_target_that_breaks_a_rule_says_which() {
        for (variables, refusal) in [
            ("", Refusal::Path),
            ("192.0.2.6", Refusal::Path),
            ("192.0.2.6/443/x/", Refusal::Path),
            ("%2/443/", Refusal::Percent),
            ("%ff/443/", Refusal::Host),
            ("/443/", Refusal::Host),
            ("*/443/", Refusal::Host),
            ("a b/443/", Refusal::Host),
            ("192.0.2.0%2F24/443/", Refusal::Host),
            ("192.0.2/443/", Refusal::Host),
            ("fe80%3A%3A1%25eth0/443/", Refusal::Host),
            ("%5B192.0.2.6%5D/443/", Refusal::Host),
            ("192.0.2.6/0/", Refusal::Port),
            ("192.0.2.6//", Refusal::Port),
            ("192.0.2.6/65536/", Refusal::Port),
            ("192.0.2.6/+53/", Refusal::Port),
            ("192.0.2.6/dns/", Refusal::Port),
            ("192.0.2.6/*/", Refusal::Port),
        ] {
            assert_eq!(target(variables), Err(refusal), "{variables}");
        }
        assert_eq!(
            Target::from_path("/proxy").map_err(|it| it.status()),
            Err(404)
        );
        assert_eq!(target("a/0").map_err(|it| it.status()), Err(400));
    }

    #[test]
    fn a_request_is_well_formed_and_is_accepted() {
        let head = request("hub.example:443", &at("2001:db8::42", 53));
        assert_eq!(RequestHead::parse(head.to_lines()), Ok(head.clone()));
        assert!(is_meant(&head) && speaks_capsules(&head.fields));
        assert_eq!(accept(&head), Ok(at("2001:db8::42", 53)));
        let http = RequestHead {
            scheme: Some("http".into()),
            ..head
        };
        assert_eq!(accept(&http), Err(Refusal::Scheme));
    }

    proptest! {
        #![proptest_config(crate::seeded())]

        #[test]
        fn what_parses_is_written_back_to_the_same(path in "/\\.well-known/masque/udp/\\PC{0,40}") {
            if let Ok(target) = Target::from_path(&path) {
                prop_assert_eq!(Target::from_path(&target.path()), Ok(target));
            }
        }
    }
}
