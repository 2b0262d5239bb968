//! How the program ends, and what it says then to people and to programs.

use std::process::Command;

use serde_json::Value;

/// The exit code, and what stands on standard error.
fn ended(line: &str) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sennit-lab"));
    let output = command.args(line.split(' ')).output();
    let output = output.expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

#[test]
fn wrong_arguments_end_with_2_and_files_that_are_not_there_with_3() {
    let matrix = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/matrix.toml");
    let only = format!("sim matrix {matrix} --only 999999");
    for (line, code) in [
        ("sim chaos --hours 99999999999", 2),
        (only.as_str(), 2),
        ("demo --only nope", 2),
        ("demo --nonsense", 2),
        ("run nope.toml", 3),
    ] {
        let (ended, said) = ended(line);
        assert_eq!(ended, Some(code), "{line}: {said}");
        assert!(said.starts_with("error: "), "{line}: {said}");
    }
}

#[test]
fn with_json_an_error_is_a_document_of_one_line() {
    for (line, word, code) in [
        ("run nope.toml --json", "not_found", 3),
        ("demo --only nope --json", "usage", 2),
        ("sim chaos --hours 99999999999 --json", "usage", 2),
        ("demo --json --nonsense", "usage", 2),
    ] {
        let (ended, said) = ended(line);
        let told: Value = serde_json::from_str(&said).expect(&said);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert_eq!(told["schema"], "sennit.error/1");
        assert_eq!((&told["code"], ended), (&word.into(), Some(code)), "{said}");
        assert_eq!(told["exit_code"], code);
    }
}
