//! The `sennit` program; all of it is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    sennit::cli::main(std::env::args_os())
}
