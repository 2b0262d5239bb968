//! What identifies people and places becomes numbered words.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::config::Config;
use crate::remote::Remote;

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
    /// Hides the host's own name and those in a config.
    pub(super) fn hide_names(&mut self, config: Option<&Config>) {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        self.hide(host.trim(), "host");
        if let Some(Config::Edge(edge)) = config {
            for remote in &edge.hub {
                if let Remote::Name { host, .. } = remote {
                    self.hide(host, "name");
                }
            }
        }
    }

    /// Hides a name wherever it is a word of its own.
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
        let mut out = String::with_capacity(text.len());
        let is_part = |c: char| c.is_ascii_alphanumeric() || ".:-_".contains(c);
        let mut rest = text;
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
        if self.names.iter().any(|name| name == core) {
            return self.word(core, "name") + tail;
        }
        if let Some((name, port)) = core.rsplit_once(':')
            && self.names.iter().any(|known| known == name)
        {
            return format!("{}:{port}{tail}", self.word(name, "name"));
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
            return self.word(core, "hardware") + tail;
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
    let schemes = ["https://", "http://"];
    let scheme = schemes.iter().find(|scheme| text.starts_with(**scheme))?;
    let ends = |c: char| c.is_whitespace() || "\"'<>,".contains(c);
    let end = text.find(ends).unwrap_or(text.len());
    (end > scheme.len()).then_some(end)
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
            // Those of a link are made of hardware addresses.
            !(it.is_unspecified() || it.is_loopback() || it.is_unique_local() || it.is_multicast())
        }
    }
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
    }

    #[test]
    fn a_url_says_whom_somebody_tells_and_with_which_secret() {
        let mut redaction = Redaction::default();
        let text = "url = \"https://hooks.example.net/T0/B0/sEcReT\" # as\nhttps://me:pw@ntfy.sh/a";
        let shown = redaction.apply(text);
        assert_eq!(shown, "url = \"<url-1>\" # as\n<url-2>");
    }
}
