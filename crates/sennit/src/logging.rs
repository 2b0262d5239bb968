//! Logs: plain lines on stderr.

use std::io;

use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Starts logging what `asked` says, or else the environment's `SENNIT_LOG`, or else `default`.
///
/// # Errors
/// What is wrong with the level.
pub(crate) fn start(asked: Option<&str>, default: &str) -> Result<(), String> {
    let environment = std::env::var("SENNIT_LOG")
        .ok()
        .filter(|level| !level.is_empty());
    let (source, levels) = match (asked, &environment) {
        (Some(asked), _) => ("--log", asked),
        (None, Some(environment)) => ("SENNIT_LOG", environment.as_str()),
        (None, None) => ("default", default),
    };
    let targets = targets(levels).ok_or_else(|| {
        format!("{source}: `{levels}` is no level: write off, error, warn, info, debug, trace, or TARGET=LEVEL")
    })?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(false);
    // Fails only where a test has started logging before.
    let _ = tracing_subscriber::registry()
        .with(lines.with_filter(targets))
        .try_init();
    Ok(())
}

/// `Targets` alone would take a misspelt level for a target.
fn targets(levels: &str) -> Option<Targets> {
    let known = |item: &str| {
        let level = item.rsplit('=').next().unwrap_or_default().trim();
        !level.is_empty() && level.parse::<LevelFilter>().is_ok()
    };
    if !levels.split(',').all(known) {
        return None;
    }
    levels.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_levels_are_told_from_targets() {
        for good in ["info", "OFF", "warn,sennit_engine=trace", "sennit=debug"] {
            assert!(targets(good).is_some(), "{good}");
        }
        for bad in ["", "inof", "info,", "sennit=", "sennit=lots"] {
            assert!(targets(bad).is_none(), "{bad}");
        }
    }
}
