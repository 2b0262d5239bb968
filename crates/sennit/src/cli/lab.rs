//! `sennit lab`, and what else the lab does: it is a program of its own, so that a router's daemon
//! does not carry it.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::exit::{Exit, Failure};

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

/// Becomes the lab.
pub(super) fn run(args: &LabArgs, log: Option<&str>) -> Result<Exit, Failure> {
    become_lab(&args.arguments, log)
}

/// Becomes the lab with what this program was given from `command` on.
pub(super) fn instead(command: &str, log: Option<&str>) -> Result<Exit, Failure> {
    let mut given = std::env::args_os().skip_while(|argument| argument != command);
    let mut arguments = Vec::new();
    while let Some(argument) = given.next() {
        // The lab knows the level from its environment.
        if argument == "--log" {
            given.next();
        } else if !argument.to_string_lossy().starts_with("--log=") {
            arguments.push(argument);
        }
    }
    become_lab(&arguments, log)
}

/// The lab measures this program unless told otherwise.
fn become_lab(arguments: &[OsString], log: Option<&str>) -> Result<Exit, Failure> {
    let ours = std::env::current_exe()
        .map_err(|error| Failure::runtime(format!("cannot find this program: {error}")))?;
    let beside = ours.with_file_name(PROGRAM);
    let program = match beside.is_file() {
        true => beside,
        false => PathBuf::from(PROGRAM),
    };
    let mut command = Command::new(&program);
    command.args(arguments).env("SENNIT", &ours);
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
    let hint = "packages and `make install` leave it out; in Sennit's source, after `make build`: \
                target/release/sennit lab";
    Err(Failure::new(Exit::NotFound, message).hint(hint))
}
