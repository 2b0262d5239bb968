//! Of which source it was measured, and how a page was made.

use sennit_report::Report;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Machine;
use crate::programs;

/// A page that says when, where and of which source it was made, and how to make it again.
pub(crate) fn made(page: Report) -> Report {
    let now = OffsetDateTime::now_utc().format(&Rfc3339);
    let page = page
        .fact("made", now.unwrap_or_default())
        .fact("machine", Machine::here().to_string())
        .fact("program", concat!("sennit ", env!("CARGO_PKG_VERSION")))
        .fact("command", programs::command());
    match commit() {
        commit if commit.is_empty() => page,
        commit => page.fact("commit", commit),
    }
}

/// What git calls the source around here.
pub(super) fn commit() -> String {
    let described = std::process::Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .stderr(std::process::Stdio::null())
        .output();
    let described = described.ok().filter(|output| output.status.success());
    let name = described.and_then(|output| String::from_utf8(output.stdout).ok());
    name.map(|name| name.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_of_which_source_it_was_made_and_how_to_make_it_again() {
        let page = made(Report::new("A page"));
        let fact = |what: &str| page.facts.iter().find(|(name, _)| name == what);
        for what in ["made", "machine", "program", "command"] {
            assert!(
                fact(what).is_some_and(|(_, value)| !value.is_empty()),
                "{what}"
            );
        }
        let commit = commit();
        let told = fact("commit").map_or("", |(_, value)| value);
        assert_eq!(told, commit, "told where there is a repository");
    }
}
