//! The book in `docs/`, the decisions, and the pages at the root: links lead somewhere, Rust files
//! that they name are there, chapters are short, each is in the table of contents, and each
//! decision is cited where its choice stands.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path};

use crate::Finding;
use crate::tree::{self, markdown};

/// Lines of a chapter: what one question needs.
const CHAPTER: usize = 250;
/// Lines of what is written by a program, and looked up rather than read: the config reference,
/// made of the keys, and the table of results.
const REFERENCE: usize = 350;
/// Lines of a decision: question, decision, evidence, what was tried and left.
const DECISION: usize = 40;
/// Lines of `ARCHITECTURE.md`: what a newcomer reads in ten minutes.
const MAP: usize = 200;

const SUMMARY: &str = "docs/src/SUMMARY.md";
const DECISIONS: &str = "docs/decisions";
const WRITTEN: [&str; 2] = ["docs/src/config.md", "docs/src/results.md"];
/// What a decision says of which another took the place.
const REPLACED: &str = "Replaced by [";

/// What is wrong with the pages of the workspace at `root`; nothing where there are none.
pub(crate) fn check(root: &Path) -> Vec<Finding> {
    let mut pages = Vec::new();
    for folder in ["", "docs/src", DECISIONS, "lab", "fuzz"] {
        pages.extend(markdown(&root.join(folder)));
    }
    let known = rust_files(&root.join("crates"));
    let mut findings = Vec::new();
    for page in &pages {
        let Ok(text) = fs::read_to_string(page) else {
            continue;
        };
        let mut add = |line, message| {
            let file = page.clone();
            findings.push(Finding {
                file,
                line,
                message,
            });
        };
        let (most, lines) = (most_lines(root, page), text.lines().count());
        if lines > most {
            add(0, format!("it has {lines} lines, and {most} are the most"));
        }
        for (line, file) in lost_files(&text, &known) {
            add(line, format!("no crate has a file `{file}`"));
        }
        for (line, target) in links(&text) {
            if let Some(why) = broken(page, &text, target) {
                add(line, format!("the link to `{target}` leads nowhere: {why}"));
            }
        }
    }
    findings.extend(contents(root));
    findings.extend(uncited(root));
    findings
}

/// What code says of decisions: each number that it names is there.
pub(crate) fn citations(root: &Path, source: &str) -> Vec<(usize, String)> {
    let mut wrong = Vec::new();
    for (index, line) in source.lines().enumerate() {
        for number in cited(line) {
            if !is_decided(root, &number) {
                wrong.push((index + 1, format!("there is no decision {number}")));
            }
        }
    }
    wrong
}

/// Decisions that neither code nor a chapter cites, so that nobody who changes what was decided
/// comes by them. What was replaced by another needs no citation.
fn uncited(root: &Path) -> Vec<Finding> {
    let sources = tree::rust_files(&root.join("crates")).into_iter();
    let files = sources.chain(markdown(&root.join("docs/src")));
    let texts = files.filter_map(|file| fs::read_to_string(file).ok());
    let cited: BTreeSet<String> = texts.flat_map(|text| cited(&text)).collect();
    let decisions = markdown(&root.join(DECISIONS)).into_iter();
    let stale = decisions.filter(|page| {
        let name = page.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.get(..4));
        let stands = |number: &str| number.chars().all(|c| c.is_ascii_digit());
        let is_lost = number.is_some_and(|number| stands(number) && !cited.contains(number));
        is_lost
            && !fs::read_to_string(page)
                .unwrap_or_default()
                .contains(REPLACED)
    });
    let finding = |file| Finding {
        file,
        line: 0,
        message: "no code and no chapter cites it: name it where its choice stands".into(),
    };
    stale.map(finding).collect()
}

/// The numbers of decisions that a text names.
fn cited(text: &str) -> Vec<String> {
    let after = text.split("decisions/").skip(1);
    let digits = |after: &str| -> String {
        let digits = after.chars().take_while(char::is_ascii_digit);
        digits.collect()
    };
    let numbers = after.map(digits);
    numbers.filter(|number| number.len() == 4).collect()
}

fn is_decided(root: &Path, number: &str) -> bool {
    let decisions = markdown(&root.join(DECISIONS));
    let mut names = decisions
        .iter()
        .filter_map(|page| page.file_name()?.to_str());
    names.any(|name| name.starts_with(number))
}

fn most_lines(root: &Path, page: &Path) -> usize {
    let page = page.strip_prefix(root).unwrap_or(page);
    if page == Path::new("ARCHITECTURE.md") {
        MAP
    } else if WRITTEN.iter().any(|written| page == Path::new(written)) {
        REFERENCE
    } else if page.starts_with(DECISIONS) && !page.ends_with("README.md") {
        DECISION
    } else {
        CHAPTER
    }
}

/// The targets of links, with the lines on which they stand; code is no link.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    let mut is_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        let prose = line.split('`').step_by(2);
        for after in prose.flat_map(|piece| piece.split("](").skip(1)) {
            links.extend(after.split(')').next().map(|target| (index + 1, target)));
        }
    }
    links
}

/// Why a link of `page` leads nowhere.
fn broken(page: &Path, text: &str, target: &str) -> Option<String> {
    if target.contains("://") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = page.parent().unwrap_or(Path::new("")).join(file);
    if !file.is_empty() && !path.exists() {
        return Some("there is no such file".into());
    }
    let other = (!file.is_empty()).then(|| fs::read_to_string(&path).unwrap_or_default());
    let text = other.as_deref().unwrap_or(text);
    (!anchor.is_empty() && !anchors(text).contains(anchor))
        .then(|| "there is no such heading".into())
}

/// Rust files that a page names in code, such as `core/schedule.rs`, and that are nowhere.
fn lost_files<'a>(text: &'a str, known: &BTreeSet<String>) -> Vec<(usize, &'a str)> {
    let mut lost = Vec::new();
    let mut is_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        let spans = line.split('`').skip(1).step_by(2);
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/' | '.');
        let files = spans.filter(|name| name.ends_with(".rs") && name.chars().all(legal));
        let files = files.filter(|name| !is_code && !known.contains(*name));
        lost.extend(files.map(|name| (index + 1, name)));
    }
    lost
}

/// What pages may call the Rust files below `crates`: `sennit-core/src/queue/tests.rs`,
/// `core/queue/tests.rs`, `queue/tests.rs` and `tests.rs` are one.
fn rust_files(crates: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in tree::rust_files(crates) {
        let path = file.strip_prefix(crates).unwrap_or(&file);
        let parts: Vec<_> = path.iter().filter_map(|part| part.to_str()).collect();
        let [package, _, inside @ ..] = parts.as_slice() else {
            continue;
        };
        let short = package.strip_prefix("sennit-").unwrap_or(package);
        names.insert(parts.join("/"));
        names.insert(format!("crates/{}", parts.join("/")));
        names.insert([&[short][..], inside].concat().join("/"));
        names.extend((0..inside.len()).map(|from| inside[from..].join("/")));
    }
    names
}

/// What headings are called in links, as GitHub and mdBook make it.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        words
            .chars()
            .filter(kept)
            .collect::<String>()
            .replace(' ', "-")
    };
    headings.map(anchor).collect()
}

/// Chapters that the table of contents does not name.
fn contents(root: &Path) -> Vec<Finding> {
    let summary = root.join(SUMMARY);
    let Ok(text) = fs::read_to_string(&summary) else {
        return Vec::new();
    };
    let named: BTreeSet<&str> = links(&text).into_iter().map(|(_, target)| target).collect();
    let chapters = markdown(&root.join("docs/src")).into_iter();
    let names = chapters.filter_map(|page| {
        let Component::Normal(name) = page.components().next_back()? else {
            return None;
        };
        Some(name.to_str()?.to_owned())
    });
    let missing = names.filter(|name| name != "SUMMARY.md" && !named.contains(name.as_str()));
    let finding = |name| Finding {
        file: summary.clone(),
        line: 0,
        message: format!("it does not name `{name}`"),
    };
    missing.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_where_they_are_prose() {
        let text = "See [a](a.md) and [b](b.md#c).\n```\n[x](x.md)\n```\n`[y](y.md)` [d](#e)\n";
        assert_eq!(links(text), [(1, "a.md"), (1, "b.md#c"), (5, "#e")]);
    }

    #[test]
    fn a_file_that_moved_is_found_and_one_that_is_there_may_be_named_in_short() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let known = rust_files(&crates.canonicalize().expect("it is there"));
        for name in ["sennit-lint/src/book.rs", "lint/book.rs", "book.rs"] {
            assert!(known.contains(name), "{name}");
        }
        let text = "See `lint/book.rs` and `lint/gone.rs`.\n```\n`x.rs`\n```\n`*.rs`\n";
        assert_eq!(lost_files(text, &known), [(1, "lint/gone.rs")]);
    }

    #[test]
    fn headings_have_the_names_that_browsers_know() {
        let text = "# Life of a packet\n\ntext\n## Rules of `match`\n### [[link]] & more\n";
        let known = ["life-of-a-packet", "rules-of-match", "link--more"];
        assert_eq!(anchors(text), known.map(String::from).into());
    }
}
