//! The rules, applied to the workspace that this crate is part of, and to one that breaks them.

use std::fs;
use std::path::Path;

use cargo_metadata::MetadataCommand;

#[test]
fn this_workspace_keeps_its_rules() {
    let metadata = MetadataCommand::new()
        .exec()
        .expect("cargo can read the workspace");

    let findings = sennit_lint::check(&metadata);

    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(lines, Vec::<String>::new());
    assert!(metadata.workspace_packages().len() >= 9);
}

/// A crate that bears the name of a pure one and breaks a rule in every file.
const BROKEN: &[(&str, &str)] = &[
    ("Cargo.toml", "[package]\nname = \"sennit-core\"\n[lib]\n"),
    ("src/lib.rs", "mod a;\nmod c;\n#[cfg(test)]\nmod tests;\n"),
    ("src/c.rs", "use crate::a::b::B;\n"),
    ("src/a.rs", "mod b;\n#[expect(unsafe_code)]\nfn f() {}\n"),
    (
        "src/a/b.rs",
        "mod gone;\nuse std::thread;\nuse crate::c::C;\n",
    ),
    ("src/tests.rs", "use std::thread;\n"),
    ("tests/c.rs", "/// and more than that.\nfn f() {}\n"),
    ("docs/src/SUMMARY.md", "[a](a.md), [b](b.md)\n"),
    ("docs/src/a.md", "[c](a.md#c), `core/gone.rs`\n"),
    ("docs/decisions/0001-a.md", "Replaced by [b](0002-b.md).\n"),
    ("docs/decisions/0002-b.md", "\n"),
];

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("there is room");
        fs::write(path, text).expect("there is room");
    }
}

#[test]
fn every_broken_rule_is_found_in_the_file_that_breaks_it() {
    let folder = tempfile::tempdir().expect("there is room");
    write(folder.path(), BROKEN);
    let metadata = MetadataCommand::new()
        .current_dir(folder.path())
        .no_deps()
        .exec()
        .expect("cargo can read it");

    let findings = sennit_lint::check(&metadata);

    let found = findings
        .iter()
        .map(|finding| (finding.file.to_str(), finding.line));
    let expected = [
        (Some("Cargo.toml"), 0),               // no licence
        (Some("Cargo.toml"), 0),               // no [lints]
        (Some("docs/decisions/0002-b.md"), 0), // cited nowhere
        (Some("docs/src/SUMMARY.md"), 1),      // no b.md
        (Some("docs/src/a.md"), 1),            // no such file
        (Some("docs/src/a.md"), 1),            // no such heading
        (Some("src/a/b/gone.rs"), 0),
        (Some("src/a/b.rs"), 0), // in a circle with c.rs
        (Some("src/a/b.rs"), 2),
        (Some("src/a.rs"), 2),
        (Some("tests/c.rs"), 1),
    ];
    assert_eq!(found.collect::<Vec<_>>(), expected);
}
