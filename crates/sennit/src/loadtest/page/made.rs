//! How a page was made, and how to make it again.

use std::env;

use sennit_load::Machine;

/// Options whose value nobody who reads a page is to know.
const SECRET: [&str; 1] = ["--token"];
/// What stands there instead.
const HIDDEN: &str = "***";

/// A page that says by what program and on which machine it was made, and how to make it again.
pub(crate) fn made(page: sennit_report::Report) -> sennit_report::Report {
    let words = env::args_os().map(|word| word.to_string_lossy().into_owned());
    let page = page
        .fact("command", sennit_report::shell_command(shown(words)))
        .fact("program", concat!("sennit ", env!("CARGO_PKG_VERSION")))
        .fact("machine", Machine::here().to_string());
    // Of a build by `make`.
    match option_env!("SENNIT_COMMIT") {
        Some(commit) if !commit.is_empty() => page.fact("commit", commit),
        Some(_) | None => page,
    }
}

/// The words of a command line without its secrets, which are words of their own or stand behind
/// `=`.
fn shown(words: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    let mut hides = false;
    words.map(move |word| {
        if std::mem::take(&mut hides) {
            return HIDDEN.to_owned();
        }
        hides = SECRET.contains(&&*word);
        match word.split_once('=') {
            Some((option, _)) if SECRET.contains(&option) => format!("{option}={HIDDEN}"),
            Some(_) | None => word,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_hidden_in_either_form_and_nothing_else_is() {
        let words = |text: &str| {
            let words = text.split(' ').map(str::to_owned);
            shown(words).collect::<Vec<_>>().join(" ")
        };

        for (given, expected) in [
            ("test --token a=b --json", "test --token *** --json"),
            ("test --token=a=b --json", "test --token=*** --json"),
            ("test --token --token x", "test --token *** x"),
            (
                "test --gate loss<1% --pin=ab",
                "test --gate loss<1% --pin=ab",
            ),
            ("test --token", "test --token"),
        ] {
            assert_eq!(words(given), expected);
        }
    }
}
