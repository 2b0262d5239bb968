//! The lab as a program of its own, which `sennit lab` starts: a router's daemon does not carry it.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Exit codes that are not an [`Error`](sennit_lab::Error)'s.
const FAILED: u8 = 1;
const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    let given: Vec<OsString> = std::env::args_os().collect();
    let json = asks_for_json(&given);
    let args = match sennit_lab::Args::try_parse_from(given) {
        Ok(args) => args,
        Err(error) if json && error.use_stderr() => {
            let message = error.to_string();
            return fail(
                json,
                WRONG_USAGE,
                message.trim_start_matches("error: ").trim_end(),
            );
        }
        Err(error) => error.exit(),
    };
    let targets = match targets() {
        Ok(targets) => targets,
        Err(error) => return fail(json, WRONG_USAGE, &error),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false);
    tracing_subscriber::registry()
        .with(lines.with_filter(targets))
        .init();
    match sennit_lab::run(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => fail(json, FAILED, "not all is as it should be, see above"),
        Err(error) => fail(json, error.exit_code(), &error.to_string()),
    }
}

/// Says what went wrong, to a program or to people, as `sennit` does.
fn fail(json: bool, exit_code: u8, message: &str) -> ExitCode {
    match json {
        true => eprintln!("{}", sennit_lab::error_json(exit_code, message)),
        false => eprintln!("error: {message}"),
    }
    ExitCode::from(exit_code)
}

/// Whether a program reads what is printed, which is known also where the rest makes no sense.
fn asks_for_json(args: &[OsString]) -> bool {
    let options = args.iter().take_while(|arg| *arg != "--");
    options.into_iter().any(|arg| arg == "--json")
}

/// What to log, by `SENNIT_LOG`.
fn targets() -> Result<Targets, String> {
    let asked = std::env::var("SENNIT_LOG")
        .ok()
        .filter(|asked| !asked.is_empty());
    let asked = asked.unwrap_or_else(|| "warn".into());
    // `Targets` alone would take a misspelt level for a target.
    let is_known = asked.contains('=') || asked.parse::<LevelFilter>().is_ok();
    let targets = asked.parse().ok().filter(|_| is_known);
    targets.ok_or_else(|| {
        format!(
            "SENNIT_LOG: `{asked}` is no level: write off, error, warn, info, debug, trace, or \
             TARGET=LEVEL"
        )
    })
}
