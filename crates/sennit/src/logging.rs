//! Logs: plain lines on stderr, of which others can cause so many and no more.

mod lines;

use std::fmt;
use std::io;
use std::panic;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::{DefaultFields, Format, Writer};
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use lines::{Fate, Lines};

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
        .event_format(Bounded::default())
        .with_writer(io::stderr)
        .with_ansi(false);
    // Fails only where a test has started logging before.
    let _ = tracing_subscriber::registry()
        .with(lines.with_filter(targets))
        .try_init();
    bound_panics();
    Ok(())
}

/// Has panics told of as usual, but so many of each place: a peer may bring about some that end its
/// connection and nothing else.
fn bound_panics() {
    let (usual, lines) = (panic::take_hook(), Mutex::new(Lines::default()));
    panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(ToString::to_string);
        let place = place.unwrap_or_default();
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        let fate = lines.admit(&place, Instant::now());
        drop(lines);
        match fate {
            Fate::Written => usual(panic),
            Fate::LeftOutFirst => tracing::error!(place, "more panics there are left out"),
            Fate::LeftOut => {}
        }
    }));
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

/// Leaves out what there is too much of. Who asks for DEBUG or TRACE gets all of that.
#[derive(Default)]
struct Bounded {
    format: Format,
    lines: Mutex<Lines>,
}

impl<S> FormatEvent<S, DefaultFields> for Bounded
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, DefaultFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if *event.metadata().level() <= Level::INFO {
            let subject = subject(event);
            let now = Instant::now();
            let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            for (about, count) in lines.take_untold(now) {
                note(
                    &mut writer,
                    format_args!("lines were left out {about} count={count}"),
                )?;
            }
            match lines.admit(&subject, now) {
                Fate::Written => {}
                Fate::LeftOutFirst => {
                    let note_of = format_args!("more lines within a minute are left out {subject}");
                    return note(&mut writer, note_of);
                }
                Fate::LeftOut => return Ok(()),
            }
        }
        self.format.format_event(context, writer, event)
    }
}

/// Writes a line about lines.
fn note(writer: &mut Writer<'_>, what: fmt::Arguments<'_>) -> fmt::Result {
    SystemTime.format_time(writer)?;
    writeln!(writer, "  WARN {}: {what}", module_path!())
}

/// What a line is about: a site, or else what the place that it comes from always says.
fn subject(event: &Event<'_>) -> String {
    struct Site(Option<String>);
    impl Visit for Site {
        fn record_str(&mut self, field: &Field, value: &str) {
            self.record_debug(field, &format_args!("{value}"));
        }

        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            if field.name() == "site" {
                self.0 = Some(format!("site={value:?}"));
            }
        }
    }
    let mut site = Site(None);
    event.record(&mut site);
    let place = event.metadata();
    let line = place.line().unwrap_or_default();
    site.0
        .unwrap_or_else(|| format!("place={}:{line}", place.target()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// What is written of what `say` says.
    fn written(say: impl FnOnce()) -> String {
        let into = tempfile::NamedTempFile::new().expect("there is room");
        let lines = tracing_subscriber::fmt::layer()
            .event_format(Bounded::default())
            .with_writer(Arc::new(into.reopen().expect("it is there")))
            .with_ansi(false);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), say);
        std::fs::read_to_string(into.path()).expect("lines are text")
    }

    #[test]
    fn who_makes_an_engine_change_its_mind_all_the_time_does_not_fill_the_log() {
        let log = written(|| {
            for _ in 0..10_000 {
                tracing::info!(reason = "crowded", "congestion controller changes");
                tracing::warn!(target: "noq_proto::connection", "illegal packet");
            }
            tracing::info!("something else");
        });
        assert_eq!(log.matches("congestion controller changes").count(), 60);
        assert_eq!(log.matches("illegal packet").count(), 60);
        assert_eq!(
            log.matches("more lines within a minute are left out")
                .count(),
            2
        );
        assert!(log.contains("place=noq_proto::connection:"), "{log}");
        assert!(log.contains("something else"));
    }

    #[test]
    fn a_site_has_lines_of_its_own_and_who_asks_for_all_gets_all() {
        let log = written(|| {
            for _ in 0..1000 {
                tracing::info!(site = "mallory", "tunnel is up");
                tracing::info!(site = "mallory", "tunnel is down");
                tracing::debug!("a packet");
            }
            tracing::info!(site = "van", "tunnel is up");
        });
        assert_eq!(log.matches("site=\"mallory\"").count(), 60);
        assert_eq!(log.matches("are left out site=mallory").count(), 1);
        assert_eq!(log.matches("a packet").count(), 1000);
        assert!(log.contains("site=\"van\""), "{log}");
    }

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
