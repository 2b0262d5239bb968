//! What holds: each key of a file with its value, or with what holds without it.
//!
//! Made from the file's TOML and from [`reference`](super::reference), so that a key which is read
//! is here too, and two files can be compared key by key.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::de::{DeTable, DeValue};

use super::Class;
use super::reference::{self, Key, Without};

/// A key that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// As the file writes it, `[edge]` or `[[link]]`.
    pub section: &'static str,
    /// Of a link or a class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub key: &'static str,
    /// In TOML; absent if no value says what holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The file does not have it.
    pub is_default: bool,
    /// What holds, where no value says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without: Option<&'static str>,
}

/// A key that one of two files has otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Like `edge.mtu`, `link lte: tier` or `class calls`.
    pub what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The section, the table's name and the key that it is about; a whole table if there is no
    /// key.
    #[serde(skip)]
    pub(crate) place: (&'static str, Option<String>, Option<&'static str>),
}

/// Of a table, in place of a value; none of TOML looks so.
const THERE: &str = "there";
const CLASS: &str = "[[class]]";
/// What a class of a hub's file has.
const HUB_CLASS: [&str; 2] = ["name", "match"];

/// All keys of a file that is valid TOML, in the order of the reference, table by table.
pub fn effective(source: &str) -> Vec<Entry> {
    let (root, _) = DeTable::parse_recoverable(source);
    let keys = reference::keys();
    let is_hub = root.get_ref().contains_key("hub");
    // A hub's classes are rules alone.
    let is_known = |key: &Key| !is_hub || key.section != CLASS || HUB_CLASS.contains(&key.name);
    let mut entries = Vec::new();
    for section in reference::sections() {
        let keys = keys.iter().filter(|key| key.section == section);
        let keys: Vec<&Key> = keys.filter(|key| is_known(key)).collect();
        let Some(value) = root.get_ref().get(section.trim_matches(['[', ']'])) else {
            continue;
        };
        let tables: Vec<&DeTable<'_>> = match value.get_ref() {
            DeValue::Table(table) => vec![table],
            DeValue::Array(items) => items
                .iter()
                .filter_map(|it| it.get_ref().as_table())
                .collect(),
            _ => Vec::new(),
        };
        for table in tables {
            let name = table.get("name").and_then(|name| name.get_ref().as_str());
            let name = name.filter(|_| section.starts_with("[["));
            entries.extend(keys.iter().map(|key| entry(key, name, table)));
        }
    }
    entries
}

/// The keys of classes that an edge has although its file, which has these entries, does not.
pub fn implied(entries: &[Entry], classes: &[Class]) -> Vec<Entry> {
    let has = |name: &str| {
        let mut written = entries.iter().filter(|entry| entry.section == CLASS);
        written.any(|entry| entry.name.as_deref() == Some(name))
    };
    let silent = classes.iter().filter(|class| !has(&class.name));
    let keys = reference::keys();
    let of = |class: &Class| {
        let keys = keys.iter().filter(|key| key.section == CLASS);
        let entries = keys.map(|key| entry(key, Some(&class.name), &DeTable::new()));
        let named = entries.map(|entry| Entry {
            value: match entry.key {
                "name" => Some(quoted(&class.name)),
                _ => entry.value,
            },
            ..entry
        });
        named.collect::<Vec<_>>()
    };
    silent.flat_map(of).collect()
}

fn entry(key: &Key, name: Option<&str>, table: &DeTable<'_>) -> Entry {
    let set = table.get(key.name).map(|value| toml(value.get_ref()));
    let (default, without) = match &key.without {
        Without::Needed => (None, None),
        Without::Value(value) => (Some(value.clone()), None),
        Without::Is(words) => (None, Some(*words)),
    };
    Entry {
        section: key.section,
        name: name.map(str::to_owned),
        key: key.name,
        is_default: set.is_none(),
        without: without.filter(|_| set.is_none()),
        value: set.or(default),
    }
}

/// A value in one way of writing it.
fn toml(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => quoted(text),
        DeValue::Integer(number) => number.as_str().into(),
        DeValue::Float(number) => number.as_str().into(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| toml(item.get_ref())).collect();
            format!("[{}]", items.join(", "))
        }
        DeValue::Table(table) => {
            let pairs = table.iter();
            let pairs =
                pairs.map(|(key, it)| format!("{} = {}", key.get_ref(), toml(it.get_ref())));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The entries as a file.
pub fn render(entries: &[Entry]) -> String {
    let mut text = String::new();
    let mut table = None;
    for entry in entries {
        let own = (entry.section, entry.name.as_deref());
        if table != Some(own) {
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{gap}{}", entry.section);
            table = Some(own);
        }
        let Entry { key, .. } = entry;
        let _ = match (&entry.value, entry.without) {
            (Some(value), _) if entry.is_default => writeln!(text, "{key} = {value}  # default"),
            (Some(value), _) => writeln!(text, "{key} = {value}"),
            (None, words) => writeln!(text, "# without `{key}`: {}", words.unwrap_or("nothing")),
        };
    }
    text
}

/// What is different in the second of two files. Tables come and go as a whole.
pub fn changes(before: &[Entry], after: &[Entry]) -> Vec<Change> {
    let mut changes = Vec::new();
    for (one, other, came) in [(before, after, false), (after, before, true)] {
        let mut last = None;
        for entry in one {
            let is_first = last.replace(entry).is_none_or(|last| !last.is_of(entry));
            if is_first && !other.iter().any(|it| it.is_of(entry)) {
                changes.push(Change::table(entry, came));
            }
        }
    }
    for new in after {
        let mut old = before.iter().filter(|old| old.is_of(new));
        if let Some(old) = old.find(|old| old.key == new.key)
            && old.value != new.value
        {
            changes.push(Change::key(old, new));
        }
    }
    changes
}

impl Entry {
    /// Whether both are of the same table.
    fn is_of(&self, other: &Self) -> bool {
        (self.section, &self.name) == (other.section, &other.name)
    }

    fn kind(&self) -> &'static str {
        self.section.trim_matches(['[', ']'])
    }
}

impl Change {
    /// Whether a whole table came or went.
    pub fn is_table(&self) -> bool {
        self.before.is_none() != self.after.is_none()
            && [&self.before, &self.after]
                .into_iter()
                .flatten()
                .any(|word| word == THERE)
    }

    fn table(entry: &Entry, came: bool) -> Self {
        let what = match &entry.name {
            Some(name) => format!("{} {name}", entry.kind()),
            None => entry.kind().to_owned(),
        };
        let word = |there: bool| there.then(|| THERE.to_owned());
        Self {
            what,
            before: word(!came),
            after: word(came),
            place: (entry.section, entry.name.clone(), None),
        }
    }

    fn key(old: &Entry, new: &Entry) -> Self {
        let what = match &new.name {
            Some(name) => format!("{} {name}: {}", new.kind(), new.key),
            None => format!("{}.{}", new.kind(), new.key),
        };
        Self {
            what,
            before: old.value.clone(),
            after: new.value.clone(),
            place: (new.section, new.name.clone(), Some(new.key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EdgeConfig;

    const BEFORE: &str = "[edge]\nhub = ['203.0.113.10:443']\nmtu = 1400\n\
        [[link]]\nname = 'lte'\ninterface = 'wwan0'\n\
        [[link]]\nname = 'dsl'\ninterface = 'eth1'\n";

    fn told(before: &str, after: &str) -> Vec<String> {
        let changes = changes(&effective(before), &effective(after));
        let text = |it: &Option<String>| it.clone().unwrap_or_else(|| "-".into());
        let lines = changes.iter();
        lines
            .map(|it| format!("{} {} {}", it.what, text(&it.before), text(&it.after)))
            .collect()
    }

    #[test]
    fn what_is_written_otherwise_and_means_the_same_is_no_change() {
        let after = "[edge]\nhub = [ \"203.0.113.10:443\", ] # the same\n\
            [[link]]\ninterface = \"wwan0\"\nname = \"lte\"\ntier = 1\n\
            [[link]]\nname = 'dsl'\ninterface = 'eth1'\n";
        assert_eq!(told(BEFORE, after), Vec::<String>::new());
    }

    #[test]
    fn keys_change_and_tables_come_and_go() {
        let after = "[edge]\nhub = ['203.0.113.10:443']\nmtu = 1300\n\
            [[link]]\nname = 'lte'\ninterface = 'wwan0'\ntier = 2\n\
            [[link]]\nname = 'sat'\ninterface = 'eth2'\n";
        assert_eq!(
            told(BEFORE, after),
            [
                "link dsl there -",
                "link sat - there",
                "edge.mtu 1400 1300",
                "link lte: tier 1 2"
            ]
        );
    }

    #[test]
    fn sections_come_and_go_and_classes_of_a_hub_are_rules_alone() {
        let before = "[hub]\nlisten = ['0.0.0.0:443']\npool = ['10.200.0.0/16']\n";
        let after = format!("{before}[connect_udp]\n[[class]]\nname = 'a'\nmatch = ['tcp']\n");
        assert_eq!(
            told(before, &after),
            ["connect_udp - there", "class a - there"]
        );
        assert_eq!(
            told(&after, before),
            ["connect_udp there -", "class a there -"]
        );
        let limited = after.replace("[connect_udp]", "[connect_udp]\nflows = 3");
        assert_eq!(told(&after, &limited), ["connect_udp.flows 64 3"]);
        let shown = render(&effective(&limited));
        assert!(crate::config::HubConfig::parse("hub.toml", shown.as_bytes()).is_ok());
    }

    #[test]
    fn what_is_shown_is_a_config_that_means_the_same() {
        let parse = |text: &str| {
            EdgeConfig::parse("edge.toml", text.as_bytes())
                .unwrap()
                .config
        };
        let some = format!("{BEFORE}[[class]]\nname = 'calls'\nmatch = ['udp']\n");
        let all = format!("{BEFORE}[[class]]\nname = 'all'\n");
        for (written, classes) in [(BEFORE, 1), (&some, 2), (&all, 1)] {
            let mut entries = effective(written);
            entries.extend(implied(&entries, &parse(written).classes));
            let shown = render(&entries);

            assert_eq!(parse(&shown), parse(written), "{shown}");
            assert_eq!(shown.matches("[[class]]").count(), classes, "{shown}");
            assert!(shown.contains("policy = \"bond\"  # default"), "{shown}");
            assert!(shown.contains("leak = \"block\"  # default"), "{shown}");
        }
    }
}
