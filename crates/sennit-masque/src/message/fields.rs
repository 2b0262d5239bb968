//! Header fields, RFC 9114 §4.2 and RFC 9110 §5.

use crate::error::Malformed;
use crate::qpack::Field;
use bytes::Bytes;

/// The fields of a message without its pseudo-header fields, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fields(Vec<Field>);

impl Fields {
    /// Appends a field. The name is lowercase, as HTTP/3 wants it; a field that is not legal is
    /// refused when the message is sent.
    pub fn push(&mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.0.push(Field::new(name, value));
    }

    /// These fields and one more, for building a head in one expression.
    #[must_use]
    pub fn with(mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        self.push(name, value);
        self
    }

    pub fn iter(&self) -> impl Iterator<Item = &Field> {
        self.0.iter()
    }

    /// All values of a field.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.iter()
            .filter(move |field| field.name == name)
            .map(|field| &field.value[..])
    }

    /// The value of a field that is there exactly once.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let mut values = self.all(name);
        values.next().filter(|_| values.next().is_none())
    }

    /// The value of a field that occurs once, if it is text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|value| str::from_utf8(value).ok())
    }

    /// Sorts field lines into pseudo-header fields, which go to `pseudo`, and the others.
    pub(super) fn parse(
        lines: Vec<Field>,
        mut pseudo: impl FnMut(&[u8], Bytes) -> Result<(), Malformed>,
    ) -> Result<Self, Malformed> {
        let mut fields = Vec::new();
        for Field { name, value } in lines {
            check_value(&value)?;
            if !name.starts_with(b":") {
                check_field(&name, &value)?;
                fields.push(Field { name, value });
            } else if fields.is_empty() {
                pseudo(&name, value)?;
            } else {
                // RFC 9114 §4.3
                return Err(Malformed("a pseudo-header field after other fields"));
            }
        }
        Ok(Self(fields))
    }

    /// RFC 9110 §8.6: digits; repeated only with the same value.
    pub(super) fn content_length(&self) -> Result<Option<u64>, Malformed> {
        let mut values = self.all("content-length");
        let Some(first) = values.next() else {
            return Ok(None);
        };
        let digits = !first.is_empty() && first.iter().all(u8::is_ascii_digit);
        let length = str::from_utf8(first)
            .ok()
            .and_then(|text| text.parse().ok());
        match length {
            Some(length) if digits && values.all(|value| value == first) => Ok(Some(length)),
            _ => Err(Malformed("a bad content-length")),
        }
    }

    /// Whether a field speaks of content (RFC 9297 §3.2).
    pub(super) fn describe_content(&self) -> bool {
        self.iter()
            .any(|field| matches!(&field.name[..], b"content-length" | b"content-type"))
    }
}

fn check_field(name: &[u8], value: &[u8]) -> Result<(), Malformed> {
    if !is_token(name) || name.iter().any(u8::is_ascii_uppercase) {
        return Err(Malformed("a field name that is not a lowercase token"));
    }
    // RFC 9114 §4.2: fields of one HTTP/1.1 connection
    match name {
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
            Err(Malformed("a connection-specific field"))
        }
        b"te" if value != b"trailers" => Err(Malformed("a te field other than trailers")),
        _ => Ok(()),
    }
}

/// RFC 9110 §5.5: visible characters, spaces and tabs, and bytes that are not ASCII.
fn check_value(value: &[u8]) -> Result<(), Malformed> {
    if value
        .iter()
        .any(|&byte| byte.is_ascii_control() && byte != b'\t')
    {
        return Err(Malformed("a control character in a field value"));
    }
    Ok(())
}

/// RFC 9110 §5.6.2
pub(super) fn is_token(text: &[u8]) -> bool {
    let is_tchar = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !text.is_empty() && text.iter().all(is_tchar)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &[(&'static str, &'static str)]) -> Result<Fields, Malformed> {
        let lines = lines
            .iter()
            .map(|&(name, value)| Field::new(name, value))
            .collect();
        Fields::parse(lines, |_, _| Ok(()))
    }

    #[test]
    fn names_are_lowercase_tokens() {
        assert!(parse(&[("x-name", "a")]).is_ok());
        for name in ["", "Name", "na me", "n:ame", "näme", "na\0me"] {
            assert!(parse(&[(name, "a")]).is_err(), "{name}");
        }
    }

    #[test]
    fn values_have_no_control_characters_but_may_be_any_text() {
        for value in ["", "a b\tc", "ü"] {
            assert!(parse(&[("name", value)]).is_ok(), "{value}");
        }
        for value in ["a\r\nb: c", "\0", "\x7f"] {
            assert!(parse(&[("name", value)]).is_err(), "{value:?}");
            assert!(parse(&[(":path", value)]).is_err(), "{value:?}");
        }
    }

    #[test]
    fn fields_of_an_http_1_connection_are_malformed() {
        for name in [
            "connection",
            "keep-alive",
            "proxy-connection",
            "transfer-encoding",
            "upgrade",
        ] {
            assert!(parse(&[(name, "x")]).is_err(), "{name}");
        }
        assert!(parse(&[("te", "trailers")]).is_ok());
        assert!(parse(&[("te", "gzip")]).is_err());
    }

    #[test]
    fn pseudo_header_fields_come_first() {
        assert!(parse(&[(":path", "/"), ("a", "b")]).is_ok());
        assert!(parse(&[("a", "b"), (":path", "/")]).is_err());
    }

    #[test]
    fn a_content_length_is_one_number() {
        let length = |lines: &[(&'static str, &'static str)]| {
            parse(lines).and_then(|fields| fields.content_length())
        };
        assert_eq!(length(&[]), Ok(None));
        assert_eq!(length(&[("content-length", "12")]), Ok(Some(12)));
        assert_eq!(
            length(&[("content-length", "12"), ("content-length", "12")]),
            Ok(Some(12))
        );
        for bad in ["", "-1", "+1", "0x1", "1, 1", "99999999999999999999999"] {
            assert!(length(&[("content-length", bad)]).is_err(), "{bad}");
        }
        assert!(length(&[("content-length", "1"), ("content-length", "2")]).is_err());
    }

    #[test]
    fn a_field_that_comes_twice_has_no_single_value() {
        let fields = Fields::default()
            .with("a", "1")
            .with("b", "2")
            .with("a", "3");
        assert_eq!(fields.text("b"), Some("2"));
        assert_eq!(fields.get("a"), None);
        assert_eq!(fields.all("a").count(), 2);
    }
}
