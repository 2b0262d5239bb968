//! The lab as a program of its own, which `sennit lab` starts: a router's daemon does not carry it.

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

fn main() -> ExitCode {
    let args = sennit_lab::Args::parse();
    let targets = match targets() {
        Ok(targets) => targets,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false);
    tracing_subscriber::registry()
        .with(lines.with_filter(targets))
        .init();
    match sennit_lab::run(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("error: not all is as it should be, see above");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
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
