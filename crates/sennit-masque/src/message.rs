//! Requests and responses, RFC 9114 §4: from field lines to typed heads and back.
//!
//! Past [`RequestHead::parse`] and [`ResponseHead::parse`] only well-formed messages exist. What we
//! send goes through the same checks.

mod fields;

pub use fields::Fields;

use crate::error::Malformed;
use crate::qpack::Field;
use bytes::Bytes;

/// The head of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    pub method: String,
    /// Absent only in a plain CONNECT, as is `path`.
    pub scheme: Option<String>,
    pub authority: Option<String>,
    pub path: Option<String>,
    /// Present only in an extended CONNECT (RFC 9220).
    pub protocol: Option<String>,
    pub fields: Fields,
}

impl RequestHead {
    /// An `https` request without fields.
    #[must_use]
    pub fn new(method: &str, authority: &str, path: &str) -> Self {
        Self {
            method: method.to_owned(),
            scheme: Some("https".to_owned()),
            authority: Some(authority.to_owned()),
            path: Some(path.to_owned()),
            protocol: None,
            fields: Fields::default(),
        }
    }

    #[must_use]
    pub fn is_connect(&self) -> bool {
        self.method == "CONNECT"
    }

    /// Reads a decoded field section (RFC 9114 §4.3.1).
    pub fn parse(lines: Vec<Field>) -> Result<Self, Malformed> {
        let [
            mut method,
            mut scheme,
            mut authority,
            mut path,
            mut protocol,
        ] = [const { None }; 5];
        let fields = Fields::parse(lines, |name, value| {
            let slot = match name {
                b":method" => &mut method,
                b":scheme" => &mut scheme,
                b":authority" => &mut authority,
                b":path" => &mut path,
                b":protocol" => &mut protocol,
                _ => return Err(Malformed("an unknown pseudo-header field")),
            };
            set_once(slot, text(value)?)
        })?;
        let method = method.ok_or(Malformed("no :method"))?;
        let head = Self {
            method,
            scheme,
            authority,
            path,
            protocol,
            fields,
        };
        head.check()?;
        Ok(head)
    }

    /// How long the content says it is.
    pub(crate) fn content_length(&self) -> Option<u64> {
        self.fields.content_length().ok().flatten()
    }

    /// The rules that tie the parts together.
    fn check(&self) -> Result<(), Malformed> {
        if !fields::is_token(self.method.as_bytes()) {
            return Err(Malformed("a :method that is not a token"));
        }
        self.check_pseudo_set()?;
        self.check_authority()?;
        self.fields.content_length()?;
        if self.is_capsule_protocol() && self.fields.describe_content() {
            // RFC 9297 §3.2
            return Err(Malformed("content fields on a capsule stream"));
        }
        Ok(())
    }

    /// RFC 9114 §4.3.1, §4.4 and RFC 9220 §3 (RFC 8441 §4): which fields stand together.
    fn check_pseudo_set(&self) -> Result<(), Malformed> {
        let target = (self.scheme.as_deref(), self.path.as_deref());
        match (self.is_connect(), &self.protocol, target) {
            (false, Some(_), _) => Err(Malformed(":protocol without CONNECT")),
            (true, None, (None, None)) => Ok(()),
            (true, None, _) => Err(Malformed("CONNECT with :scheme or :path")),
            (_, _, (None | Some(""), _)) => Err(Malformed("no :scheme")),
            (_, _, (_, None)) => Err(Malformed("no :path")),
            (_, _, (Some(_), Some("*"))) if self.method == "OPTIONS" => Ok(()),
            (_, _, (Some(_), Some(path))) if path.starts_with('/') => Ok(()),
            _ => Err(Malformed("a :path that is not a path")),
        }
    }

    /// RFC 9114 §4.3.1: the authority is there, without user information, and the same in both
    /// places. A CONNECT needs the pseudo-header field (§4.4).
    fn check_authority(&self) -> Result<(), Malformed> {
        let authority = self.authority.as_ref().map(String::as_bytes);
        let host = self
            .fields
            .all("host")
            .next()
            .filter(|_| !self.is_connect());
        let authority = authority.or(host).unwrap_or_default();
        if authority.is_empty() {
            return Err(Malformed("no authority"));
        }
        if authority.contains(&b'@') {
            return Err(Malformed("an authority with user information"));
        }
        if self.fields.all("host").any(|host| host != authority) {
            return Err(Malformed("a host field that differs from the authority"));
        }
        Ok(())
    }

    /// Whether the stream carries capsules once the request is accepted.
    #[must_use]
    pub fn is_capsule_protocol(&self) -> bool {
        matches!(self.protocol.as_deref(), Some("connect-ip" | "connect-udp"))
    }

    /// The field lines, pseudo-header fields first.
    #[must_use]
    pub fn to_lines(&self) -> Vec<Field> {
        let pseudo = [
            (":method", Some(&self.method)),
            (":protocol", self.protocol.as_ref()),
            (":scheme", self.scheme.as_ref()),
            (":authority", self.authority.as_ref()),
            (":path", self.path.as_ref()),
        ];
        let pseudo = pseudo
            .into_iter()
            .filter_map(|(name, value)| Some(Field::new(name, value?.clone())));
        pseudo.chain(self.fields.iter().cloned()).collect()
    }
}

/// The head of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    /// 100 to 999.
    pub status: u16,
    pub fields: Fields,
}

impl ResponseHead {
    /// A response without fields.
    #[must_use]
    pub fn new(status: u16) -> Self {
        Self {
            status,
            fields: Fields::default(),
        }
    }

    /// Whether another head follows (RFC 9110 §15.2).
    #[must_use]
    pub const fn is_interim(&self) -> bool {
        self.status < 200
    }

    /// Whether it grants what was asked (RFC 9110 §15.3).
    #[must_use]
    pub const fn is_success(&self) -> bool {
        matches!(self.status, 200..=299)
    }

    /// Reads a decoded field section (RFC 9114 §4.3.2).
    pub fn parse(lines: Vec<Field>) -> Result<Self, Malformed> {
        let mut status = None;
        let fields = Fields::parse(lines, |name, value| match name {
            b":status" => set_once(&mut status, text(value)?),
            _ => Err(Malformed("an unknown pseudo-header field")),
        })?;
        let status = status.ok_or(Malformed("no :status"))?;
        let head = Self {
            status: parse_status(&status)?,
            fields,
        };
        head.check()?;
        Ok(head)
    }

    fn check(&self) -> Result<(), Malformed> {
        match self.status {
            // RFC 9114 §4.5: HTTP/3 does not switch protocols.
            101 => return Err(Malformed("the status 101")),
            100..=999 => {}
            _ => return Err(Malformed("a :status that is not three digits")),
        }
        self.fields.content_length().map(drop)
    }

    /// RFC 9297 §3.2: what a response that starts the capsule protocol must not be.
    pub(crate) fn check_capsule_protocol(&self) -> Result<(), Malformed> {
        if matches!(self.status, 204..=206) || self.fields.describe_content() {
            return Err(Malformed("content fields or status on a capsule stream"));
        }
        Ok(())
    }

    /// How long the content says it is, where it can have any (RFC 9110 §15.3.5, §15.4.5).
    pub(crate) fn content_length(&self) -> Option<u64> {
        let may_have_content = !matches!(self.status, 204 | 304);
        self.fields
            .content_length()
            .ok()
            .flatten()
            .filter(|_| may_have_content)
    }

    /// The field lines, the status first.
    #[must_use]
    pub fn to_lines(&self) -> Vec<Field> {
        let status = Field::new(":status", self.status.to_string());
        std::iter::once(status)
            .chain(self.fields.iter().cloned())
            .collect()
    }
}

/// Trailers have no pseudo-header fields (RFC 9114 §4.3), and that is all we want to know of them.
pub(crate) fn check_trailers(lines: Vec<Field>) -> Result<(), Malformed> {
    Fields::parse(lines, |_, _| {
        Err(Malformed("a pseudo-header field in trailers"))
    })
    .map(drop)
}

/// The size that SETTINGS_MAX_FIELD_SECTION_SIZE limits (RFC 9114 §4.2.2).
pub(crate) fn section_size(lines: &[Field]) -> u64 {
    lines.iter().map(|field| field.size() as u64).sum()
}

fn set_once(slot: &mut Option<String>, value: String) -> Result<(), Malformed> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Malformed("a pseudo-header field comes twice")),
    }
}

fn text(value: Bytes) -> Result<String, Malformed> {
    String::from_utf8(value.into()).map_err(|_| Malformed("a pseudo-header field is not text"))
}

fn parse_status(status: &str) -> Result<u16, Malformed> {
    let bad = Malformed("a :status that is not three digits");
    if status.len() != 3 || !status.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad);
    }
    status.parse().map_err(|_| bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pairs: &[(&'static str, &'static str)]) -> Vec<Field> {
        pairs
            .iter()
            .map(|&(name, value)| Field::new(name, value))
            .collect()
    }

    /// A legal request with some lines put in place of others of the same name, or added.
    fn request_with(changes: &[(&'static str, &'static str)]) -> Result<RequestHead, Malformed> {
        let mut head = lines(&[
            (":method", "CONNECT"),
            (":protocol", "connect-ip"),
            (":scheme", "https"),
            (":authority", "hub.example"),
            (":path", "/vpn"),
        ]);
        for &(name, value) in changes {
            head.retain(|field| field.name != name);
            head.push(Field::new(name, value));
        }
        RequestHead::parse(head)
    }

    fn malformed<T: std::fmt::Debug>(result: Result<T, Malformed>) -> &'static str {
        let Malformed(reason) = result.expect_err("must be refused");
        reason
    }

    #[test]
    fn the_request_of_rfc_9484_4_4_parses_and_is_written_back() {
        let head = request_with(&[("capsule-protocol", "?1")]).expect("legal");
        assert!(head.is_connect() && head.is_capsule_protocol());
        assert_eq!(head.fields.text("capsule-protocol"), Some("?1"));
        assert_eq!(RequestHead::parse(head.to_lines()), Ok(head));
    }

    #[test]
    fn a_plain_connect_has_an_authority_and_nothing_else() {
        let plain = lines(&[(":method", "CONNECT"), (":authority", "a:1")]);
        assert!(RequestHead::parse(plain).is_ok());
        let with_host = lines(&[(":method", "CONNECT"), ("host", "a:1")]);
        assert_eq!(malformed(RequestHead::parse(with_host)), "no authority");
        let with_path = lines(&[
            (":method", "CONNECT"),
            (":authority", "a:1"),
            (":path", "/"),
        ]);
        assert_eq!(
            malformed(RequestHead::parse(with_path)),
            "CONNECT with :scheme or :path"
        );
    }

    #[test]
    fn every_missing_part_of_an_extended_connect_is_noticed() {
        for (missing, reason) in [
            (":method", "no :method"),
            (":scheme", "no :scheme"),
            (":path", "no :path"),
            (":authority", "no authority"),
        ] {
            let mut head = request_with(&[]).expect("legal").to_lines();
            head.retain(|field| field.name != missing);
            assert_eq!(malformed(RequestHead::parse(head)), reason);
        }
    }

    #[test]
    fn bad_pseudo_header_fields_are_malformed() {
        assert_eq!(
            malformed(request_with(&[(":method", "GET")])),
            ":protocol without CONNECT"
        );
        assert_eq!(
            malformed(request_with(&[(":path", "vpn")])),
            "a :path that is not a path"
        );
        assert_eq!(malformed(request_with(&[(":scheme", "")])), "no :scheme");
        let reason = "an authority with user information";
        assert_eq!(malformed(request_with(&[(":authority", "me@hub")])), reason);
        assert_eq!(
            malformed(request_with(&[(":authority", "")])),
            "no authority"
        );
        assert_eq!(
            malformed(request_with(&[(":status", "200")])),
            "an unknown pseudo-header field"
        );
        let twice = [
            request_with(&[]).expect("legal").to_lines(),
            lines(&[(":path", "/a")]),
        ]
        .concat();
        assert_eq!(
            malformed(RequestHead::parse(twice)),
            "a pseudo-header field comes twice"
        );
    }

    #[test]
    fn the_host_field_stands_in_for_the_authority_or_agrees_with_it() {
        let get = [
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/"),
            ("host", "a"),
        ];
        assert!(RequestHead::parse(lines(&get)).is_ok());
        let two_hosts = [&lines(&get)[..], &lines(&[("host", "b")])].concat();
        assert!(RequestHead::parse(two_hosts).is_err());
        assert!(request_with(&[("host", "hub.example")]).is_ok());
        let reason = "a host field that differs from the authority";
        assert_eq!(
            malformed(request_with(&[("host", "other.example")])),
            reason
        );
    }

    #[test]
    fn a_capsule_stream_has_no_content_fields() {
        for name in ["content-length", "content-type"] {
            let reason = "content fields on a capsule stream";
            assert_eq!(malformed(request_with(&[(name, "0")])), reason);
        }
        let mut response = ResponseHead::new(200);
        assert_eq!(response.check_capsule_protocol(), Ok(()));
        response.fields.push("content-type", "text/plain");
        assert!(response.check_capsule_protocol().is_err());
        assert!(ResponseHead::new(204).check_capsule_protocol().is_err());
    }

    #[test]
    fn a_status_is_three_digits_and_not_101() {
        assert_eq!(
            ResponseHead::parse(lines(&[(":status", "200")])),
            Ok(ResponseHead::new(200))
        );
        for status in ["", "20", "+20", "2000", "2oo", "099", "101"] {
            assert!(
                ResponseHead::parse(lines(&[(":status", status)])).is_err(),
                "{status}"
            );
        }
        assert_eq!(malformed(ResponseHead::parse(vec![])), "no :status");
    }

    #[test]
    fn trailers_have_no_pseudo_header_fields() {
        assert_eq!(check_trailers(lines(&[("x-sum", "1")])), Ok(()));
        assert!(check_trailers(lines(&[(":status", "200")])).is_err());
    }
}
