//! What identifies people and places becomes numbered words.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::config;

/// Tokens begin so.
const TOKEN: &str = "sennit_";

/// What was replaced so far, and by what.
#[derive(Debug, Default)]
pub(super) struct Redaction {
    words: BTreeMap<String, String>,
    counts: BTreeMap<&'static str, usize>,
    /// Names that are hidden wherever they are a word, longest first.
    names: Vec<String>,
}

impl Redaction {
    /// Hides a name wherever it is a word of its own, or begins one before a `.` or `:`.
    pub(super) fn hide(&mut self, name: &str, kind: &'static str) {
        // A shorter one is a word like any other.
        if name.len() >= 3 && !self.names.iter().any(|known| known == name) {
            self.word(name, kind);
            self.names.push(name.to_owned());
            self.names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        }
    }

    /// The text without what is nobody's business.
    pub(super) fn apply(&mut self, text: &str) -> String {
        let text = config::without_secrets(text);
        let mut out = String::with_capacity(text.len());
        let is_part = |c: char| c.is_ascii_alphanumeric() || ".:-_".contains(c);
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let start = rest.find(is_part).unwrap_or(rest.len());
            out += &rest[..start];
            rest = &rest[start..];
            if let Some(end) = end_of_url(rest) {
                out += &self.word(&rest[..end], "url");
                rest = &rest[end..];
                continue;
            }
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            out += &self.replace(&rest[..end]);
            rest = &rest[end..];
        }
        out
    }

    fn replace(&mut self, word: &str) -> String {
        let tail = word.len() - word.trim_end_matches([':', '.', '-', '_']).len();
        let (core, tail) = word.split_at(word.len() - tail);
        if core.starts_with(TOKEN) {
            return self.word(core, "token") + tail;
        }
        let begins = |name: &&String| {
            let rest = core.strip_prefix(name.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', ':']))
        };
        if let Some(name) = self.names.iter().find(begins).cloned() {
            return self.word(&name, "name") + &core[name.len()..] + tail;
        }
        if let Ok(address) = core.parse::<SocketAddr>() {
            return match is_public(address.ip()) {
                true => format!(
                    "{}:{}{tail}",
                    self.word(&address.ip().to_string(), "address"),
                    address.port()
                ),
                false => word.to_owned(),
            };
        }
        // `::` alone is what many programs write for nothing at all.
        for candidate in [core, word] {
            if let Ok(address) = candidate.parse::<IpAddr>() {
                return match is_public(address) {
                    true => self.word(&address.to_string(), "address") + &word[candidate.len()..],
                    false => word.to_owned(),
                };
            }
        }
        if is_hardware(core) {
            return self.word(&core.to_ascii_lowercase(), "hardware") + tail;
        }
        let (name, more) = core.split_at(core.find('.').unwrap_or(core.len()));
        if let Some((kind, address)) = hardware_in(name) {
            return kind.to_owned() + &self.word(&address, "hardware") + more + tail;
        }
        word.to_owned()
    }

    /// What stands for a word from now on.
    fn word(&mut self, word: &str, kind: &'static str) -> String {
        if let Some(known) = self.words.get(word) {
            return known.clone();
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        let made = format!("<{kind}-{count}>");
        self.words.insert(word.to_owned(), made.clone());
        made
    }
}

/// The length of the URL that a text begins with: whom somebody tells, and often a secret too.
fn end_of_url(text: &str) -> Option<usize> {
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
    let scheme = text.find(|c| !is_scheme(c)).filter(|&end| end > 0)?;
    let rest = text[scheme..].strip_prefix("://")?;
    let ends = |c: char| c.is_whitespace() || "\"'<>".contains(c);
    let end = rest.find(ends).unwrap_or(rest.len());
    // What a sentence goes on with is none of it.
    let url = rest[..end].trim_end_matches([',', '.', ';', ':', ')', ']']);
    (!url.is_empty()).then_some(scheme + "://".len() + url.len())
}

/// Whether an address says where somebody is.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(it) => {
            let [a, b, ..] = it.octets();
            let shared = a == 100 && (64..128).contains(&b);
            let local = it.is_private() || it.is_loopback() || it.is_link_local();
            // Of RFC 2544, for tests.
            let bench = a == 198 && (18..20).contains(&b);
            !(shared || local || bench || a == 0 || a >= 224)
        }
        IpAddr::V6(it) => {
            // Those of a link are made of hardware addresses, and so are many others (RFC 4291).
            let [.., a, b, _] = it.segments();
            let is_of_hardware = a & 0xff == 0xff && b >> 8 == 0xfe;
            let local = it.is_unique_local() && !is_of_hardware;
            !(it.is_unspecified() || it.is_loopback() || local || it.is_multicast())
        }
    }
}

/// The kind and the hardware address of an interface that systemd names after it, like `enx` or
/// `wwx`, and the address of a port's or switch's number, which is of no kind.
fn hardware_in(name: &str) -> Option<(&str, String)> {
    let (kind, digits) = name.split_at_checked(name.len().checked_sub(12)?)?;
    let is_known = match kind {
        // A counter is no address.
        "" => digits.contains(|c: char| c.is_ascii_alphabetic()),
        _ => kind.len() == 3 && kind.ends_with('x'),
    };
    let is_hex = digits.chars().all(|c| c.is_ascii_hexdigit());
    (is_known && is_hex).then(|| {
        let pairs: Vec<&str> = (0..12).step_by(2).map(|at| &digits[at..at + 2]).collect();
        (kind, pairs.join(":").to_ascii_lowercase())
    })
}

fn is_hardware(word: &str) -> bool {
    let parts: Vec<&str> = word.split(':').collect();
    let hex = |part: &&str| part.len() == 2 && part.chars().all(|c| c.is_ascii_hexdigit());
    parts.len() == 6
        && parts.iter().all(hex)
        && word != "00:00:00:00:00:00"
        && word != "ff:ff:ff:ff:ff:ff"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_identifies_is_replaced_by_the_same_word_everywhere() {
        let mut redaction = Redaction::default();
        redaction.hide("van-07", "site");
        redaction.hide("vpn.example.org", "name");
        let text = "hub = [\"203.0.113.10:443\", \"[2001:db8::1]:443\", \"vpn.example.org:443\"]\n\
                    site van-07, 203.0.113.10 by 192.168.8.2:5000 and fe80::1%eth1.\n\
                    link/ether 02:42:ac:11:00:02 brd ff:ff:ff:ff:ff:ff; sennit_AQAAAA-x; version 0.1.0";

        let shown = redaction.apply(text);

        assert_eq!(
            shown,
            "hub = [\"<address-1>:443\", \"[<address-2>]:443\", \"<name-1>:443\"]\n\
             site <site-1>, <address-1> by 192.168.8.2:5000 and <address-3>%eth1.\n\
             link/ether <hardware-1> brd ff:ff:ff:ff:ff:ff; <token-1>; version 0.1.0"
        );
        assert_eq!(redaction.apply("van-07 and van-08"), "<site-1> and van-08");
        assert_eq!(redaction.apply("van-07.toml"), "<site-1>.toml");
    }

    #[test]
    fn a_url_says_whom_somebody_tells_and_with_which_secret() {
        let mut redaction = Redaction::default();
        let text = "url = \"https://hooks.example.net/T0/B0/sEcReT\" # as\nhttps://me:pw@ntfy.sh/a";
        let shown = redaction.apply(text);
        assert_eq!(shown, "url = \"<url-1>\" # as\n<url-2>");
        let commas = redaction.apply("tells https://ntfy.sh/a,b?key=c,d, and wss://x.example/y.");
        assert_eq!(commas, "tells <url-3>, and <url-4>.");
    }

    #[test]
    fn a_hardware_address_is_hidden_in_whatever_is_made_of_it() {
        let mut redaction = Redaction::default();
        let text = "2: enx0c5b8f279a64: link/ether 0C:5B:8F:27:9A:64 portid 0c5b8f279a64\n\
                    enx0c5b8f279a64.20@enx0c5b8f279a64, fd00::e5b:8fff:fe27:9a64 fd00::1, 123456789012";
        assert_eq!(
            redaction.apply(text),
            "2: enx<hardware-1>: link/ether <hardware-1> portid <hardware-1>\n\
             enx<hardware-1>.20@enx<hardware-1>, <address-1> fd00::1, 123456789012"
        );
    }

    #[test]
    fn a_secret_in_a_config_or_in_a_log_that_quotes_it_is_hidden() {
        let mut redaction = Redaction::default();
        let text = "bearer = \"sesame\"\nNov 30 sennit: 8 | secret = \"tk_abc\"\n";
        let shown = redaction.apply(text);
        assert_eq!(
            shown,
            "bearer = <secret>\nNov 30 sennit: 8 | secret = <secret>\n"
        );
    }
}
