//! The lab as a program of its own; `--sennit PATH` names the tunnel to test.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match sennit_lab::run(sennit_lab::Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
