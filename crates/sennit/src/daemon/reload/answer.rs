//! What is said of a reload that changes nothing.

use std::time::Duration;

use super::Planned;
use crate::{
    config::Report,
    control::{Refused, ReloadAnswer},
};

/// What is said of a reload while a change waits to be confirmed for so long: of one that says the
/// same that this goes on, and of another that it has to wait too.
pub(super) fn go_on_waiting<R>(
    planned: Planned<R>,
    report: String,
    left: Duration,
) -> Result<ReloadAnswer, Refused> {
    let seconds = left.as_secs_f64().ceil();
    if !planned.changes.is_empty() {
        let instead = "put this one in its place by `sennit reload --confirm`";
        return Err(has_to_wait(left, instead));
    }
    let note = "a change waits to be kept";
    tracing::warn!("{note}: sennit reload --keep; it is taken back in {seconds} s");
    Ok(ReloadAnswer {
        schema: ReloadAnswer::SCHEMA.into(),
        applied: true,
        needs_restart: planned.needs_restart,
        reverts_in_seconds: Some(seconds),
        report,
        notes: vec![note.into()],
        ..ReloadAnswer::default()
    })
}

/// Another change waits to be confirmed for so long; what to do instead of waiting.
pub(super) fn has_to_wait(left: Duration, instead: &str) -> Refused {
    let seconds = left.as_secs_f64().ceil();
    let what = format!(
        "another change waits to be kept: say `sennit reload --keep` first, or wait {seconds} s \
         until it is taken back, or {instead}"
    );
    Refused::new("waits_to_be_kept", what)
}

/// Nothing was changed, for this reason.
pub(super) fn refusal(report: String) -> Box<ReloadAnswer> {
    Box::new(ReloadAnswer {
        schema: ReloadAnswer::SCHEMA.into(),
        report,
        ..ReloadAnswer::default()
    })
}

/// Nothing was changed, for the errors of the file.
pub(super) fn refused(report: &Report) -> Box<ReloadAnswer> {
    let located = report.located().map(serde_json::to_value);
    let mut refusal = refusal(report.to_string());
    refusal.findings = located.filter_map(Result::ok).collect();
    refusal
}
