//! `sennit lab`: the lab is a program of its own, so that a router's daemon does not carry it.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use super::exit::{Exit, Failure};

/// The lab's program: beside this one, or in the PATH.
const PROGRAM: &str = "sennit-lab";

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(super) struct LabArgs {
    /// What to measure; `sennit lab --help` tells
    #[arg(
        value_name = "ARGUMENTS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    arguments: Vec<OsString>,
}

/// Becomes the lab; it measures this program unless told otherwise.
pub(super) fn run(args: &LabArgs, log: Option<&str>) -> Result<Exit, Failure> {
    let ours = std::env::current_exe()
        .map_err(|error| Failure::runtime(format!("cannot find this program: {error}")))?;
    let beside = ours.with_file_name(PROGRAM);
    let program = match beside.is_file() {
        true => beside,
        false => PathBuf::from(PROGRAM),
    };
    let mut command = Command::new(&program);
    command.args(&args.arguments).env("SENNIT", &ours);
    if let Some(log) = log {
        command.env("SENNIT_LOG", log);
    }
    let error = command.exec();
    if error.kind() != io::ErrorKind::NotFound {
        let message = format!("cannot start {}: {error}", program.display());
        return Err(Failure::runtime(message));
    }
    let message = format!(
        "the lab is a program of its own, {PROGRAM}, which is neither beside {} nor in the PATH",
        ours.display()
    );
    let hint = format!("`make build` in Sennit's source makes both; packages leave {PROGRAM} out");
    Err(Failure::new(Exit::NotFound, message).hint(hint))
}
