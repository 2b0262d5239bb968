//! The request that opens an IP tunnel, RFC 9484 §4.4 to §4.6.

use crate::message::{Fields, RequestHead};
use crate::prefix::{IpPrefix, PrefixError};
use crate::template::{self, Broken};

/// The upgrade token (RFC 9484 §12.1).
pub const PROTOCOL: &str = "connect-ip";

/// The default template is this, then `{target}/{ipproto}/` (RFC 9484 §3).
pub const WELL_KNOWN: &str = "/.well-known/masque/ip/";

/// What a tunnel is for (RFC 9484 §4.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    pub target: Target,
    /// The one IP protocol; `None` means all.
    pub protocol: Option<u8>,
}

/// Whom packets may be sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Any,
    Host(String),
    Prefix(IpPrefix),
}

/// Why a path names no scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    #[error("the path is not {WELL_KNOWN}{{target}}/{{ipproto}}/")]
    Path,
    #[error("a percent sign is not followed by two hex digits")]
    Percent,
    #[error("the target is neither *, an IP prefix nor a host name")]
    Target,
    #[error("the target: {0}")]
    Prefix(#[from] PrefixError),
    #[error("the IP protocol is neither * nor 0 to 255")]
    Protocol,
}

impl From<Broken> for ScopeError {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Percent => Self::Percent,
            Broken::Text => Self::Target,
        }
    }
}

/// Why a request is not for an IP tunnel, and how to answer it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the method is not CONNECT")]
    Method,
    #[error("the protocol is not connect-ip")]
    Protocol,
    #[error("the scheme is not https")]
    Scheme,
    #[error(transparent)]
    Scope(#[from] ScopeError),
}

impl Refusal {
    /// The status to respond with.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::Method => 405,
            // RFC 9220 §3
            Self::Protocol => 501,
            Self::Scope(ScopeError::Path) => 404,
            Self::Scheme | Self::Scope(_) => 400,
        }
    }
}

/// The head of a request for a tunnel (RFC 9484 §4.4). The path is that of [`Scope::path`], or what
/// another proxy's template says.
#[must_use]
pub fn request(authority: &str, path: &str) -> RequestHead {
    RequestHead {
        protocol: Some(PROTOCOL.to_owned()),
        fields: response_fields(),
        ..RequestHead::new("CONNECT", authority, path)
    }
}

/// The fields of a response that grants a tunnel (RFC 9484 §4.5), and also of the request.
#[must_use]
pub fn response_fields() -> Fields {
    Fields::default().with("capsule-protocol", "?1")
}

/// Whether a request is for a tunnel, well-formed or not.
#[must_use]
pub fn is_meant(head: &RequestHead) -> bool {
    head.is_connect() && head.protocol.as_deref() == Some(PROTOCOL)
}

/// Whether a message says that it uses capsules (RFC 9297 §3.4). Its parameters mean nothing yet,
/// and anything but a single true is the same as nothing.
#[must_use]
pub fn speaks_capsules(fields: &Fields) -> bool {
    let item = fields
        .text("capsule-protocol")
        .unwrap_or_default()
        .trim_matches(' ');
    item.strip_prefix("?1")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(';'))
}

/// Checks a request and reads its scope from the default template.
pub fn accept(head: &RequestHead) -> Result<Scope, Refusal> {
    if !head.is_connect() {
        return Err(Refusal::Method);
    }
    if head.protocol.as_deref() != Some(PROTOCOL) {
        return Err(Refusal::Protocol);
    }
    if head
        .scheme
        .as_deref()
        .is_none_or(|scheme| !scheme.eq_ignore_ascii_case("https"))
    {
        return Err(Refusal::Scheme);
    }
    Ok(Scope::from_path(head.path.as_deref().unwrap_or_default())?)
}

impl Scope {
    /// All hosts and protocols.
    pub const ANY: Self = Self {
        target: Target::Any,
        protocol: None,
    };

    /// The path that the default template gives for this scope.
    #[must_use]
    pub fn path(&self) -> String {
        let target = match &self.target {
            Target::Any => "*".to_owned(),
            Target::Host(name) => template::encode(name),
            Target::Prefix(prefix) => template::encode(&prefix.to_string()),
        };
        let protocol = self
            .protocol
            .map_or("*".to_owned(), |protocol| protocol.to_string());
        format!("{WELL_KNOWN}{target}/{protocol}/")
    }

    /// Reads a path of the default template; the slash at its end may be missing.
    pub fn from_path(path: &str) -> Result<Self, ScopeError> {
        let variables = template::two_variables(path, WELL_KNOWN);
        let (target, protocol) = variables.ok_or(ScopeError::Path)?;
        Ok(Self {
            target: Target::parse(&template::decode(target)?)?,
            protocol: parse_protocol(&template::decode(protocol)?)?,
        })
    }
}

impl Target {
    fn parse(text: &str) -> Result<Self, ScopeError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        match text.parse() {
            Ok(prefix) => Ok(Self::Prefix(prefix)),
            Err(PrefixError::Syntax) if template::is_host_name(text) => {
                Ok(Self::Host(text.to_owned()))
            }
            Err(PrefixError::Syntax) => Err(ScopeError::Target),
            Err(error) => Err(error.into()),
        }
    }
}

fn parse_protocol(text: &str) -> Result<Option<u8>, ScopeError> {
    if text == "*" {
        return Ok(None);
    }
    let digits = (1..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let protocol = text
        .parse()
        .ok()
        .filter(|_| digits)
        .ok_or(ScopeError::Protocol)?;
    Ok(Some(protocol))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scope(variables: &str) -> Result<Scope, ScopeError> {
        Scope::from_path(&format!("{WELL_KNOWN}{variables}"))
    }

    fn prefix(text: &str) -> Target {
        Target::Prefix(text.parse().expect("a prefix"))
    }

    #[test]
    fn the_scopes_of_rfc_9484_8_parse() {
        assert_eq!(scope("*/*/"), Ok(Scope::ANY));
        assert_eq!(scope("%2A/%2a/"), Ok(Scope::ANY));
        let sctp = Scope {
            target: Target::Host("target.example.com".into()),
            protocol: Some(132),
        };
        assert_eq!(scope("target.example.com/132/"), Ok(sctp));
        let v6 = Scope {
            target: prefix("2001:db8::42/128"),
            protocol: None,
        };
        assert_eq!(scope("2001%3Adb8%3A%3A42/*/"), Ok(v6));
        let v4 = Scope {
            target: prefix("192.0.2.0/24"),
            protocol: Some(17),
        };
        assert_eq!(scope("192.0.2.0%2F24/17/"), Ok(v4));
    }

    #[test]
    fn a_scope_that_breaks_a_rule_says_which() {
        for (variables, error) in [
            ("", ScopeError::Path),
            ("*", ScopeError::Path),
            ("192.0.2.0/24/17/", ScopeError::Path),
            ("%2/*/", ScopeError::Percent),
            ("%zz/*/", ScopeError::Percent),
            ("%ff/*/", ScopeError::Target),
            ("/*/", ScopeError::Target),
            ("a b/*/", ScopeError::Target),
            ("192.0.2/*/", ScopeError::Target),
            ("fe80%3A%3A1%25eth0/*/", ScopeError::Target),
            ("192.0.2.0%2F33/*/", ScopeError::Prefix(PrefixError::Length)),
            (
                "192.0.2.1%2F24/*/",
                ScopeError::Prefix(PrefixError::HostBits),
            ),
            ("*/256/", ScopeError::Protocol),
            ("*/-1/", ScopeError::Protocol),
            ("*//", ScopeError::Protocol),
        ] {
            assert_eq!(scope(variables), Err(error), "{variables}");
        }
        assert_eq!(Scope::from_path("/vpn"), Err(ScopeError::Path));
    }

    #[test]
    fn a_host_name_is_as_long_as_dns_allows() {
        let long = [
            "a".repeat(63),
            "b".repeat(63),
            "c".repeat(63),
            "d".repeat(61),
        ]
        .join(".");
        assert!(scope(&format!("{long}/*/")).is_ok());
        assert_eq!(scope(&format!("{long}d/*/")), Err(ScopeError::Target));
        assert_eq!(
            scope(&format!("{}/*/", "a".repeat(64))),
            Err(ScopeError::Target)
        );
        assert_eq!(scope("a..b/*/"), Err(ScopeError::Target));
    }

    #[test]
    fn a_request_for_a_tunnel_is_accepted_and_others_get_their_status() {
        let path = Scope::ANY.path();
        let tunnel = request("hub.example:443", &path);
        assert_eq!(RequestHead::parse(tunnel.to_lines()), Ok(tunnel.clone()));
        assert!(speaks_capsules(&tunnel.fields));
        assert_eq!(accept(&tunnel), Ok(Scope::ANY));
        let refused = |head: &RequestHead| accept(head).expect_err("must be refused").status();
        assert_eq!(
            refused(&RequestHead::new("POST", "hub.example", "/join")),
            405
        );
        let udp = RequestHead {
            protocol: Some("connect-udp".into()),
            ..tunnel.clone()
        };
        assert_eq!(refused(&udp), 501);
        let http = RequestHead {
            scheme: Some("http".into()),
            ..tunnel.clone()
        };
        assert_eq!(refused(&http), 400);
        assert_eq!(refused(&request("hub.example", "/elsewhere")), 404);
        assert_eq!(
            refused(&request("hub.example", &path.replace("/*/*/", "/*/x/"))),
            400
        );
    }

    #[test]
    fn capsule_protocol_is_a_single_true() {
        for value in ["?1", "?1;a=b", " ?1 "] {
            assert!(
                speaks_capsules(&Fields::default().with("capsule-protocol", value)),
                "{value}"
            );
        }
        for value in ["?0", "1", "?1, ?1", "?10", ""] {
            assert!(
                !speaks_capsules(&Fields::default().with("capsule-protocol", value)),
                "{value}"
            );
        }
        let twice = response_fields().with("capsule-protocol", "?1");
        assert!(!speaks_capsules(&twice));
    }

    proptest! {
        #![proptest_config(crate::seeded())]

        #[test]
        fn every_scope_survives_its_path(
            target in prop_oneof![
                Just(Target::Any),
                "[a-z][a-z0-9-]{0,9}(\\.[a-z]{2,5}){0,3}".prop_map(Target::Host),
                any::<std::net::IpAddr>().prop_map(|addr| Target::Prefix(IpPrefix::host(addr))),
            ],
            protocol: Option<u8>,
        ) {
            let scope = Scope { target, protocol };
            prop_assert_eq!(Scope::from_path(&scope.path()), Ok(scope));
        }

        #[test]
        fn any_path_is_a_scope_or_an_error(path in "/.well-known/masque/ip/[%0-9a-f*:./ü]{0,20}") {
            if let Ok(scope) = Scope::from_path(&path) {
                prop_assert_eq!(Scope::from_path(&scope.path()), Ok(scope));
            }
        }
    }
}
