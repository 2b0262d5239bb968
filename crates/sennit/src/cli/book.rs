//! The commands that README and book show are commands of this program.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;

use super::Cli;

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let book = fs::read_dir(root.join("docs/src")).unwrap();
    let mut pages: Vec<PathBuf> = book.map(|entry| entry.unwrap().path()).collect();
    pages.push(root.join("README.md"));
    pages.retain(|page| page.extension().is_some_and(|kind| kind == "md"));
    pages
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
    for page in pages() {
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
