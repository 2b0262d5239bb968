//! The book is true of the program: its reference of the config, its configs, its commands.

use std::fs;
use std::path::PathBuf;

use sennit::config::reference::{self, Key, Kind, Without};
use sennit::config::{Config, Report};

use crate::{is_committed, workspace};

/// A config with the section, and what else it needs, but for the key `but` of that section.
fn smallest(section: &str, but: &str) -> String {
    let line = |key: &Key| match key.without {
        Without::Needed if !(key.section == section && key.name == but) => {
            format!("{} = {}\n", key.name, key.example())
        }
        _ => String::new(),
    };
    let sections: &[&str] = match section {
        "[hub]" => &["[hub]"],
        "[connect_udp]" => &["[hub]", "[connect_udp]"],
        "[[class]]" => &["[edge]", "[[link]]", "[[class]]"],
        "[api]" => &["[edge]", "[[link]]", "[api]"],
        "[[notify]]" => &["[edge]", "[[link]]", "[[notify]]"],
        _ => &["[edge]", "[[link]]"],
    };
    // The section in question is the last one, so that lines can be added to it.
    let others = sections.iter().filter(|other| **other != section);
    let text = others.chain([&section]).map(|section| {
        let keys = reference::keys();
        let lines = keys.iter().filter(|key| key.section == *section).map(line);
        // A webhook needs its key, and the others do not.
        let more = match (*section, but) {
            ("[[notify]]", "kind") => "secret = \"file:/etc/sennit/webhook-key\"\n",
            ("[[notify]]", _) => "kind = \"ntfy\"\n",
            _ => "",
        };
        format!("{section}\n{}{more}", lines.collect::<String>())
    });
    text.collect()
}

/// That config with one more line in the section.
fn with(key: &Key, value: &str) -> Result<Config, Report> {
    let mut text = smallest(key.section, key.name);
    // What goes with it, or it is not valid.
    text.push_str(match key.name {
        "proxy_name" | "bearer" => "proxy_ca = \"/etc/sennit/proxy.pem\"\n",
        "tls_certificate" => "tls_key = \"/etc/sennit/api.key\"\n",
        "tls_key" => "tls_certificate = \"/etc/sennit/api.pem\"\n",
        _ => "",
    });
    text.push_str(&format!("{} = {value}\n", key.name));
    Config::parse("book.toml", text.as_bytes()).map(|loaded| loaded.config)
}

#[test]
fn the_reference_has_exactly_the_keys_that_the_program_reads() {
    for section in [
        "[hub]",
        "[connect_udp]",
        "[edge]",
        "[[link]]",
        "[[class]]",
        "[api]",
        "[[notify]]",
    ] {
        let text = smallest(section, "") + "no_such_key = 1\n";
        let report = Config::parse("book.toml", text.as_bytes()).unwrap_err();

        let keys = reference::keys();
        let names = keys.iter().filter(|key| key.section == section);
        let mut names: Vec<&str> = names.map(|key| key.name).collect();
        let marker = format!("help: {section} has: ");
        let report = report.to_string();
        let (_, known) = report.split_once(&marker).expect("it lists what it knows");
        let mut known: Vec<&str> = known.lines().next().unwrap().split(", ").collect();
        names.sort_unstable();
        known.sort_unstable();
        assert_eq!(names, known, "{section}");
    }
}

#[test]
fn each_key_takes_its_example_and_is_missed_only_if_needed() {
    for key in reference::keys() {
        let name = (key.section, key.name);
        let set = with(&key, &key.example()).unwrap_or_else(|report| panic!("{name:?}: {report}"));
        let absent = Config::parse("book.toml", smallest(key.section, key.name).as_bytes());
        match &key.without {
            Without::Needed => assert!(absent.is_err(), "{name:?}"),
            Without::Is(_) => assert_ne!(absent.unwrap().config, set, "{name:?}"),
            Without::Value(value) => {
                let absent = absent.unwrap().config;
                assert_eq!(with(&key, value).unwrap(), absent, "{name:?} = {value}");
                let is_default = key.example() == *value;
                assert_eq!(set == absent, is_default, "{name:?} = {}", key.example());
            }
        }
    }
}

#[test]
fn ranges_and_words_are_those_of_the_program() {
    for key in reference::keys() {
        match &key.kind {
            Kind::Integer(range) => {
                for inside in [range.start(), range.end()] {
                    assert!(
                        with(&key, &inside.to_string()).is_ok(),
                        "{} = {inside}",
                        key.name
                    );
                }
                for outside in [range.start() - 1, range.end() + 1] {
                    assert!(
                        with(&key, &outside.to_string()).is_err(),
                        "{} = {outside}",
                        key.name
                    );
                }
            }
            Kind::Word(words) => {
                let report = with(&key, "\"nonsense\"").unwrap_err().to_string();
                let allowed = format!("help: allowed: {}", words.join(", "));
                let told = report.lines().any(|line| line.ends_with(&allowed));
                assert!(told, "{}: {report}", key.name);
            }
            Kind::Boolean => assert!(with(&key, "1").is_err(), "{}", key.name),
            Kind::Text(_) | Kind::List(_) => {}
        }
    }
}

#[test]
fn every_condition_of_a_rule_is_told() {
    let keys = reference::keys();
    let rules = keys.iter().find(|key| key.name == "match").unwrap();
    let report = with(rules, "[\"nonsense\"]").unwrap_err().to_string();
    let (_, known) = report.split_once("help: conditions: ").unwrap();
    let mut known: Vec<&str> = known.lines().next().unwrap().split(", ").collect();

    let told = reference::conditions().map(|rule| rule.split(' ').next().unwrap());
    let mut told: Vec<&str> = told.collect();
    told.sort_unstable();
    known.sort_unstable();
    assert_eq!(told, known);
    for rule in reference::conditions() {
        assert!(with(rules, &format!("[\"{rule}\"]")).is_ok(), "{rule}");
    }
}

#[test]
fn the_chapter_about_the_config_is_up_to_date() {
    is_committed("docs/src/config.md", &reference::chapter());
}

/// The Markdown files that show configs.
fn pages() -> Vec<PathBuf> {
    let book = fs::read_dir(workspace().join("docs/src")).expect("the book is there");
    let mut pages: Vec<PathBuf> = book
        .map(|entry| entry.expect("it is listed").path())
        .collect();
    pages.push(workspace().join("README.md"));
    pages.retain(|page| page.extension().is_some_and(|kind| kind == "md"));
    pages.sort();
    pages
}

/// The TOML blocks of a page, each with its first line's number.
fn configs(page: &str) -> Vec<(usize, String)> {
    let mut configs = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((n, line)) = lines.next() {
        if line.trim() == "```toml" {
            let block = lines.by_ref().map(|(_, line)| line);
            let block: Vec<&str> = block.take_while(|line| line.trim() != "```").collect();
            configs.push((n + 2, block.join("\n")));
        }
    }
    configs
}

/// A piece of a config becomes a whole one: of a hub's if it says so, else of an edge's.
fn completed(piece: &str) -> String {
    let whole = |section: &str| piece.lines().any(|line| line.trim() == section);
    if whole("[connect_udp]") && !whole("[hub]") {
        return smallest("[hub]", "") + piece;
    }
    let mut text = String::new();
    if !whole("[hub]") && !whole("[edge]") {
        text.push_str("[edge]\nhub = [\"203.0.113.10:443\"]\n");
    }
    text.push_str(piece);
    if !whole("[hub]") && !whole("[[link]]") {
        for (name, interface) in [("starlink", "eth1"), ("lte", "wwan0")] {
            text.push_str(&format!(
                "\n[[link]]\nname = \"{name}\"\ninterface = \"{interface}\"\n"
            ));
        }
    }
    text
}

#[test]
fn every_config_shown_is_good() {
    let mut shown = 0;
    for page in pages() {
        for (line, piece) in configs(&fs::read_to_string(&page).unwrap()) {
            let place = format!("{}:{line}", page.display());
            let loaded = Config::parse(&place, completed(&piece).as_bytes());
            let warnings = loaded.unwrap_or_else(|report| panic!("{report}")).warnings;
            assert!(warnings.is_empty(), "{place}: {warnings}");
            shown += 1;
        }
    }
    assert!(shown >= 1, "the README alone has some");
}
