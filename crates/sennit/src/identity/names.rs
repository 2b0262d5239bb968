//! The names in a certificate that this hub has made (RFC 5280 §4.2.1.6).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustls::pki_types::CertificateDer;

/// The object identifier 2.5.29.17, as DER has it.
const SUBJECT_ALT_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x1d, 0x11];
const OCTET_STRING: u8 = 0x04;
const SEQUENCE: u8 = 0x30;
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;

/// DNS names and addresses, in their order; other kinds of names are left out.
pub(super) fn of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let length = SUBJECT_ALT_NAME.len();
    let at = certificate
        .windows(length)
        .position(|bytes| bytes == SUBJECT_ALT_NAME);
    let extension = at.map_or(&[][..], |at| &certificate[at + length..]);
    let list = value(extension, OCTET_STRING).and_then(|list| value(list, SEQUENCE));
    let mut rest = list.unwrap_or_default();
    let mut names = Vec::new();
    while let Some((tag, value, after)) = element(rest) {
        rest = after;
        names.extend(name(tag, value));
    }
    names
}

fn name(tag: u8, value: &[u8]) -> Option<String> {
    match tag {
        DNS_NAME => String::from_utf8(value.to_vec()).ok(),
        IP_ADDRESS => {
            let v4 = <[u8; 4]>::try_from(value).map(|it| IpAddr::from(Ipv4Addr::from(it)));
            let v6 = <[u8; 16]>::try_from(value).map(|it| IpAddr::from(Ipv6Addr::from(it)));
            v4.or(v6).ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

fn value(bytes: &[u8], wanted: u8) -> Option<&[u8]> {
    let (tag, value, _) = element(bytes)?;
    (tag == wanted).then_some(value)
}

/// The tag and the value that come first, and what follows them.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 | 0x82 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            let length = digits.iter().fold(0, |sum, &it| sum << 8 | usize::from(it));
            (length, rest)
        }
        _ => return None,
    };
    let (value, after) = rest.split_at_checked(length)?;
    Some((tag, value, after))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn the_names_of_a_certificate_are_those_that_it_was_made_for() {
        let long = format!("{}.example.org", "a".repeat(60));
        let all = ["hub.sennit", "203.0.113.10", "2001:db8::1", &long].map(str::to_owned);
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(all.clone()).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        assert_eq!(of(certificate.der()), all);

        let bare = CertificateParams::new(Vec::new()).unwrap();
        let bare = bare.self_signed(&key).unwrap();
        assert_eq!(of(bare.der()), [""; 0]);
    }
}
