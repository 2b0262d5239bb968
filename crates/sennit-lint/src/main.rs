//! Checks the workspace it is run in; the last part of `make lint`.

use std::process::ExitCode;

use cargo_metadata::MetadataCommand;

fn main() -> ExitCode {
    let metadata = match MetadataCommand::new().exec() {
        Ok(metadata) => metadata,
        Err(error) => {
            eprintln!("cannot read the workspace: {error}");
            return ExitCode::FAILURE;
        }
    };
    let findings = sennit_lint::check(&metadata);
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!(
            "layers, circles, purity, sizes, licences, comments, links, decisions: {} packages keep the rules",
            metadata.packages.len()
        );
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
