//! What a peer gives as its reason, as it may stand in a log and on a terminal.

/// Bytes of why a connection ended. TLS names what it expected and what it found, with the names
/// in a certificate.
pub(crate) const LONGEST: usize = 400;

/// The text without control characters, cut after so many bytes.
pub(crate) fn plain(text: &str, longest: usize) -> String {
    let mut plain = String::new();
    for letter in text.chars().filter(|letter| !letter.is_control()) {
        if plain.len() + letter.len_utf8() > longest {
            break;
        }
        plain.push(letter);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_a_short_line_whatever_a_peer_says() {
        assert_eq!(plain("no\r\n\x1b[2Jsuch\u{85} site", 400), "no[2Jsuch site");
        assert_eq!(plain("äöü", 5), "äö");
        assert_eq!(plain(&"a".repeat(70_000), LONGEST).len(), LONGEST);
    }
}
