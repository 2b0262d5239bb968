//! Variables of the URI templates that MASQUE requests are made of (RFC 6570).

use std::fmt::Write;

/// The longest host name (RFC 1035 §2.3.4).
const MAX_HOST_NAME: usize = 253;

/// Why a variable cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// A percent sign is not followed by two hex digits.
    Percent,
    /// It is not UTF-8.
    Text,
}

/// Escapes all but the unreserved characters of RFC 3986 §2.3, as template expansion does.
pub(crate) fn encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("a string takes all that is written");
        }
        out
    })
}

/// Undoes [`encode`].
pub(crate) fn decode(text: &str) -> Result<String, Broken> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        out.push(if byte == b'%' {
            hex(bytes.next())? << 4 | hex(bytes.next())?
        } else {
            byte
        });
    }
    String::from_utf8(out).map_err(|_| Broken::Text)
}

/// The two variables of a path that begins with `well_known`; the slash at its end may be missing.
pub(crate) fn two_variables<'a>(path: &'a str, well_known: &str) -> Option<(&'a str, &'a str)> {
    let variables = path.strip_prefix(well_known)?;
    let variables = variables.strip_suffix('/').unwrap_or(variables);
    variables
        .split_once('/')
        .filter(|(_, second)| !second.contains('/'))
}

/// Letters, digits, hyphens and underscores in labels of 1 to 63, which is less than the reg-name
/// of RFC 3986 and all that DNS names in use need. All digits and dots is a broken address.
pub(crate) fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    name.len() <= MAX_HOST_NAME
        && name.split('.').all(is_label)
        && name.bytes().any(|byte| byte.is_ascii_alphabetic())
}

fn hex(digit: Option<u8>) -> Result<u8, Broken> {
    digit
        .and_then(|digit| char::from(digit).to_digit(16))
        .map(|digit| digit as u8)
        .ok_or(Broken::Percent)
}
