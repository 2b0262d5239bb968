//! The commands that README and book show are commands of this program, all of them have their
//! place in the book, and so has all that the doctor finds.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _, Parser as _};

use super::Cli;
use crate::daemon::edge::doctor::Code;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn chapters() -> Vec<PathBuf> {
    let book = fs::read_dir(root().join("docs/src")).unwrap();
    let mut chapters: Vec<PathBuf> = book.map(|entry| entry.unwrap().path()).collect();
    chapters.retain(|page| page.extension().is_some_and(|kind| kind == "md"));
    chapters
}

/// The words of each command line of this program that a page shows after a prompt.
fn commands(page: &str) -> Vec<Vec<String>> {
    let after_prompt = page.lines().filter_map(|line| {
        let (prompt, command) = line.split_once(['$', '#'])?;
        let is_prompt = ["", "hub", "edge"].contains(&prompt);
        command.strip_prefix(" sennit ").filter(|_| is_prompt)
    });
    let words = after_prompt.map(|command| {
        let command = command.split(" #").next().unwrap_or(command);
        let mut words = words(command);
        words.insert(0, "sennit".to_owned());
        words
    });
    words.collect()
}

/// The words of a command line as a shell takes them: quotes keep together.
fn words(command: &str) -> Vec<String> {
    let mut quote = None;
    let mut words = vec![String::new()];
    for sign in command.chars() {
        match (sign, quote) {
            ('"' | '\'', None) => quote = Some(sign),
            (_, Some(open)) if sign == open => quote = None,
            (' ', None) => words.push(String::new()),
            _ => words.last_mut().unwrap().push(sign),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn every_command_shown_is_understood() {
    let mut shown = 0;
    for page in chapters().into_iter().chain([root().join("README.md")]) {
        let text = fs::read_to_string(&page).unwrap();
        for words in commands(&text) {
            if let Err(error) = Cli::try_parse_from(&words) {
                panic!("{}: {}: {error}", page.display(), words.join(" "));
            }
            shown += 1;
        }
    }
    assert!(shown >= 20, "README and book show {shown}");
}

/// The words of a command and of all below it that people see.
fn all_of(command: &Command, before: &str) -> Vec<String> {
    let name = format!("{before}{}", command.get_name());
    let below = command.get_subcommands().filter(|it| !it.is_hide_set());
    let mut all: Vec<String> = below
        .flat_map(|it| all_of(it, &format!("{name} ")))
        .collect();
    all.push(name);
    all
}

#[test]
fn every_command_is_told_of_in_some_chapter() {
    let book: String = chapters()
        .iter()
        .map(|chapter| fs::read_to_string(chapter).unwrap())
        .collect();
    let told = |command: &String| {
        let mut places = book.split(command.as_str()).skip(1);
        places.any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-'))
    };

    let mut all = all_of(&Cli::command(), "");
    assert!(all.len() > 40, "{all:?}");
    all.retain(|command| !told(command));

    assert!(all.is_empty(), "no chapter tells of {}", all.join(", "));
}

#[test]
fn the_chapter_on_trouble_has_a_line_for_each_code_of_the_doctor() {
    let chapter = fs::read_to_string(root().join("docs/src/troubleshooting.md")).unwrap();
    let table = chapter
        .lines()
        .skip_while(|line| !line.starts_with("| code |"));
    let rows = table.skip(2).take_while(|line| line.starts_with('|'));
    let codes = rows.flat_map(|row| {
        let first = row.split('|').nth(1).unwrap_or_default();
        first.split('`').skip(1).step_by(2)
    });
    let told: BTreeSet<&str> = codes.collect();
    let known: BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();

    assert_eq!(told, known);
}
