//! Values of a config that are not for everybody: secrets that stand in the file itself, URLs,
//! names.
//!
//! They are found in the file's TOML, and in lines that are no TOML: those with a slip in them, and
//! those of a log that quotes a config.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What the key of a secret has in its name, also where somebody made the name up.
const WORDS: [&str; 3] = ["secret", "token", "password"];
/// Keys that are known for what they are also with this many letters wrong.
const SECRETS: [&str; 2] = ["bearer", "secret"];
const SLIPS: usize = 2;
/// Whom somebody tells, and often a secret too.
const URL: &str = "url";
/// So begins what says where a secret is.
const ELSEWHERE: &str = "file:";
/// Keys with the names of hosts.
const HOSTS: [&str; 3] = ["hub", "hosts", "proxy_name"];
/// Tables of a config are not deeper in each other.
const DEEPEST: usize = 4;

/// Where secrets and URLs stand in a text.
pub(super) fn places(text: &str) -> Vec<Range<usize>> {
    let mut places = values_of(text, &|key| is_secret(key) || key == URL);
    places.retain(|place| !unquoted(&text[place.clone()]).starts_with(ELSEWHERE));
    places
}

/// A config, or a text that quotes one, without what is secret in it. Whole URLs are left.
pub(crate) fn without_secrets(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut end = 0;
    let is_url = |value: &str| {
        ["http://", "https://"]
            .iter()
            .any(|it| value.starts_with(it))
    };
    let places = places(text).into_iter();
    for place in places.filter(|place| !is_url(unquoted(&text[place.clone()]))) {
        if place.start >= end {
            out += &text[end..place.start];
            out += "<secret>";
        }
        end = end.max(place.end);
    }
    out + &text[end..]
}

/// The names of hosts in a config, valid or not.
pub(crate) fn hosts(text: &str) -> Vec<String> {
    let values = values_of(text, &|key| HOSTS.contains(&key)).into_iter();
    values.flat_map(|place| hosts_in(&text[place])).collect()
}

fn hosts_in(value: &str) -> Vec<String> {
    // On a line that is no TOML there may be a comment behind it, and in a list that is not closed
    // there is whatever follows: only a string alone may be any word.
    let is_alone = value.matches(['"', '\'']).count() == 2 && value.starts_with(['"', '\'']);
    let value = value.split('#').next().unwrap_or_default();
    let words = value.split([' ', '\t', '\n', '"', '\'', ',', '[', ']']);
    let names = words.filter_map(|word| {
        let (host, port) = word.rsplit_once(':').unwrap_or((word, ""));
        let is_host = !port.is_empty() || host.contains('.') || is_alone;
        let is_name = !host.contains([':', '/']) && host.contains(|c: char| c.is_alphabetic());
        (is_host && is_name).then(|| host.to_owned())
    });
    names.collect()
}

/// The string of a key in a config, valid or not.
pub(super) fn written(text: &str, key: &str) -> Option<String> {
    let place = values_of(text, &|it| it == key).into_iter().next()?;
    let value = unquoted(&text[place]);
    Some(value.split(['"', '\'']).next().unwrap_or(value).to_owned())
}

/// Where the values of a key stand in a config that is valid, with those in its lists.
pub(super) fn values(text: &str, key: &str) -> Vec<Range<usize>> {
    let (root, _) = DeTable::parse_recoverable(text);
    let mut found = Vec::new();
    in_table(root.get_ref(), &|it| it == key, DEEPEST, &mut found);
    found.sort_by_key(|place| place.start);
    found
}

fn unquoted(value: &str) -> &str {
    value.trim_start_matches(['"', '\''])
}

fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let is_near = |word: &&str| {
        let same_length = key.len().abs_diff(word.len()) <= SLIPS;
        same_length && strsim::damerau_levenshtein(&key, word) <= SLIPS
    };
    WORDS.iter().any(|word| key.contains(word)) || SECRETS.iter().any(is_near)
}

/// Where the values of such keys stand, in the order of the text.
fn values_of(text: &str, is_wanted: &dyn Fn(&str) -> bool) -> Vec<Range<usize>> {
    let mut found = in_lines(text, is_wanted);
    let (root, _) = DeTable::parse_recoverable(text);
    in_table(root.get_ref(), is_wanted, DEEPEST, &mut found);
    found.retain(|place| {
        text.get(place.clone())
            .is_some_and(|value| !value.is_empty())
    });
    found.sort_by_key(|place| (place.start, place.end));
    found.dedup();
    found
}

fn in_table(
    table: &DeTable<'_>,
    is_wanted: &dyn Fn(&str) -> bool,
    deepest: usize,
    found: &mut Vec<Range<usize>>,
) {
    for (key, value) in table {
        in_value(value, is_wanted(key.get_ref()), is_wanted, deepest, found);
    }
}

fn in_value(
    value: &Spanned<DeValue<'_>>,
    wanted: bool,
    is_wanted: &dyn Fn(&str) -> bool,
    deepest: usize,
    found: &mut Vec<Range<usize>>,
) {
    let Some(deepest) = deepest.checked_sub(1) else {
        return;
    };
    match value.get_ref() {
        DeValue::Table(table) => in_table(table, is_wanted, deepest, found),
        DeValue::Array(items) => {
            for item in items {
                in_value(item, wanted, is_wanted, deepest, found);
            }
        }
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_) => found.extend(wanted.then(|| value.span())),
    }
}

/// What stands behind such a key to the end of the line: behind a `=`, a `:` in its place, or
/// nothing at all where the key is the first word.
fn in_lines(text: &str, is_wanted: &dyn Fn(&str) -> bool) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let from = after_sign(line, is_wanted).or_else(|| after_first_word(line, is_wanted));
        if let Some(from) = from {
            let rest = &line[from..];
            let from = start + from + rest.len() - rest.trim_start().len();
            found.push(from..from + rest.trim().len());
        }
        start += line.len();
    }
    found
}

fn is_part_of_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn after_sign(line: &str, is_wanted: &dyn Fn(&str) -> bool) -> Option<usize> {
    let mut signs = line.match_indices(['=', ':']);
    let is_behind_key = |&(at, _): &(usize, &str)| {
        let key = line[..at].trim_end().trim_end_matches(['"', '\'']);
        let key = key.rsplit(|c| !is_part_of_key(c)).next();
        key.is_some_and(is_wanted)
    };
    signs.find(is_behind_key).map(|(at, sign)| at + sign.len())
}

fn after_first_word(line: &str, is_wanted: &dyn Fn(&str) -> bool) -> Option<usize> {
    let from = line.find(is_part_of_key)?;
    let rest = &line[from..];
    let end = rest.find(|c| !is_part_of_key(c)).unwrap_or(rest.len());
    let (key, value) = rest.split_at(end);
    let begins = line[..from]
        .trim_matches(['#', ' ', '\t', '"', '\''])
        .is_empty();
    let ends = value.starts_with([' ', '\t', '"', '\'']) && value.contains(is_part_of_key);
    (begins && ends && is_wanted(key)).then_some(from + end)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_secret_is_left_out_of_a_config_and_of_what_quotes_one() {
        let text = "[edge]\n\
                    hub = [\"a.example:443\"]   # secret\n\
                    bearer = \"sesame\" # mine\n\
                    [api]\n\
                    read_token = 'file:/etc/sennit/read-token'\n\
                    admin_token = [\n  'one', 'file:/two',\n]\n\
                    [[notify]]\n\
                    url = \"https://example.org/x\"\n\
                    secret = tk_abc\n\
                    # secrt = \"old\"\n\
                    [[notify]]\n\
                    url = \"example.org/x\"\n\
                    secret = '''\nline\n'''\n";

        let shown = without_secrets(text);

        let expected = "[edge]\n\
                        hub = [\"a.example:443\"]   # secret\n\
                        bearer = <secret>\n\
                        [api]\n\
                        read_token = 'file:/etc/sennit/read-token'\n\
                        admin_token = <secret>\n  <secret>, 'file:/two',\n]\n\
                        [[notify]]\n\
                        url = \"https://example.org/x\"\n\
                        secret = <secret>\n\
                        # secrt = <secret>\n\
                        [[notify]]\n\
                        url = <secret>\n\
                        secret = <secret>\n";
        assert_eq!(shown, expected);
        let log = "Nov 30 sennit[7]: 14 | bearer = \"sesame\"\nbearer_reach = [\"hub\"]\n";
        let shown = without_secrets(log);
        assert!(shown.starts_with("Nov 30 sennit[7]: 14 | bearer = <secret>\n"));
        assert!(shown.ends_with("bearer_reach = [\"hub\"]\n"));
    }

    #[test]
    fn a_secret_is_one_also_where_the_slip_is_the_sign_before_it() {
        for line in [
            "bearer: \"sesame\"",
            "bearer \"sesame\"",
            "bearer\"sesame\"",
            "# bearer 'sesame'",
            "bearer = = sesame",
            "secret - sesame",
            "{\"admin_token\": \"sesame\"}",
        ] {
            let shown = without_secrets(line);
            assert!(
                !shown.contains("sesame") && shown.contains("<secret>"),
                "{shown}"
            );
        }
        for line in [
            "token",
            "listen = ['[::]:443']",
            "  'secret-a',",
            "a token of the hub",
        ] {
            assert_eq!(without_secrets(line), line);
        }
    }

    #[test]
    fn names_are_found_also_in_a_config_that_is_not_valid() {
        let text = "[edge]\nhub = [\"vpn.example.org:443\", \"[2001:db8::1]:443\", \"203.0.113.1:443\"\n\
                    state = \"/srv/a\" # here\nmtu = 5\n[api]\nhosts = [\n  'router.lan',\n]\n";

        let names: BTreeSet<String> = hosts(text).into_iter().collect();
        assert_eq!(
            names.into_iter().collect::<Vec<_>>(),
            ["router.lan", "vpn.example.org"]
        );
        assert_eq!(written(text, "state").as_deref(), Some("/srv/a"));
        assert_eq!(written(text, "control"), None);
        let valid = "[hub]\nlisten = ['x']\n[api]\nhosts = [\n  'router.lan', 'box',\n]\n";
        assert_eq!(hosts(valid), ["router.lan", "box"]);
    }
}
