//! What a comment must be: short lines, and docs that stand by themselves.
//!
//! A doc comment is read on hover, without the item above it. So it begins like a sentence and ends
//! where it ends: it neither continues the one before nor needs the next.

/// Columns of a comment line, as many as rustfmt gives to code.
const COLUMNS: usize = 100;

/// Names that are written small also where a sentence begins.
const NAMES: [&str; 12] = [
    "connect-ip-go",
    "iperf3",
    "mahimahi",
    "nftables",
    "noq",
    "ping",
    "quic-go",
    "quinn",
    "rustls",
    "smoltcp",
    "systemd",
    "wireguard-go",
];

/// Words that only go on with what was said before.
const JOINING: [&str; 4] = ["And", "Or", "But", "Nor"];

/// What follows "The same" where nothing names what is meant.
const BARE: [&str; 12] = [
    "as", "at", "but", "for", "from", "in", "of", "over", "while", "with", "where", "both",
];

/// What is wrong with the comments of a file, by line.
pub(crate) fn objections(text: &str) -> Vec<(usize, String)> {
    let mut objections = Vec::new();
    let mut docs: Vec<&str> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let comment = line.trim_start();
        if comment.starts_with("//") && line.chars().count() > COLUMNS {
            objections.push((
                index + 1,
                format!("a comment line has over {COLUMNS} columns"),
            ));
        }
        if let Some(doc) = doc(comment) {
            docs.push(doc);
            continue;
        }
        if let Some(what) = dependence(&docs) {
            objections.push((index + 1 - docs.len(), what));
        }
        docs.clear();
    }
    objections
}

/// The words of a line of an outer doc comment.
fn doc(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("///")?;
    (!rest.starts_with('/')).then(|| rest.trim())
}

/// Why a doc comment needs another one to be understood.
fn dependence(docs: &[&str]) -> Option<String> {
    let (first, last) = (docs.first()?, docs.last()?);
    let mut words = first.split_whitespace();
    let word = words.next()?;
    let next = words.next().unwrap_or_default();
    let name = word.split(['\'', ',', ':']).next().unwrap_or(word);
    let is_small = word.starts_with(|c: char| c.is_ascii_lowercase());
    if is_small && !NAMES.contains(&name) {
        return Some(format!(
            "a doc comment begins with `{word}`: begin a sentence"
        ));
    }
    if JOINING.contains(&word) {
        return Some(format!(
            "a doc comment begins with `{word}`: say it without the one before"
        ));
    }
    let third = words.next().unwrap_or_default();
    let is_bare = third.is_empty() || BARE.contains(&third);
    if word == "The" && (next == "same" && is_bare || ["same,", "same;", "same."].contains(&next)) {
        return Some("a doc comment begins with `The same`: say what".into());
    }
    if last.ends_with([',', ';', ':']) {
        return Some("a doc comment ends in the middle of a sentence".into());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let found = objections(text).into_iter();
        found.map(|(line, _)| line).collect()
    }

    #[test]
    fn long_comment_lines_are_found_and_long_strings_are_not() {
        let long = "x".repeat(99);
        assert_eq!(lines(&format!("// {long}\nlet a = \"// {long}\";\n")), [1]);
        assert_eq!(
            lines(&format!("    /// {}.\nfn f() {{}}", "X".repeat(91))),
            [0; 0]
        );
        assert_eq!(lines(&format!("//! {}", "µ".repeat(96))), [0; 0]);
    }

    #[test]
    fn a_doc_that_goes_on_with_another_is_found() {
        let two = [
            "/// It is so many times the least,",
            "const A: u8 = 1;",
            "/// and longer by this.",
            "const B: u8 = 2;",
        ];
        assert_eq!(lines(&two.join("\n")), [1, 3]);
        for text in [
            "/// But no more than this.",
            "/// Nor longer\n/// than this.",
            "/// The same, in bytes.",
            "/// The same for paths that are far behind.",
            "/// The same.",
            "/// if it waits.",
            "/// One of these:",
        ] {
            assert_eq!(lines(&format!("\n{text}\nfn f() {{}}\n")), [2], "{text}");
        }
    }

    #[test]
    fn a_doc_that_stands_alone_is_left_alone() {
        for text in [
            "/// Windowed minimum over `span`.",
            "/// noq's first round trip is a guess.",
            "/// noq has made up its mind.",
            "/// `rate` bytes per second.",
            "/// The same packets come in every run.",
            "/// These are:\n///\n/// - one\n/// - two",
            "// and this is no doc comment,",
            "//// nor is this,",
            "/// Android's way.",
        ] {
            assert_eq!(lines(&format!("{text}\nfn f() {{}}\n")), [0; 0], "{text}");
        }
    }
}
