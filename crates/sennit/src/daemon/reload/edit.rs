//! The config as somebody edits it from afar: shown, checked, tried, kept or taken back.
//!
//! A text on trial runs and is not in the file. It gets there when it is kept. So a daemon that
//! ends meanwhile starts with what was before, and taking a trial back touches no file.

use std::{io, ops::RangeInclusive, sync::Arc, time::Duration};

use aws_lc_rs::digest;
use similar::TextDiff;

use super::{
    Planned, Reloader, Runs, State,
    answer::has_to_wait,
    excuse,
    file::{self, Draft},
};
use crate::{
    config::{self, HostFinding, Located, Report},
    control::{
        ConfigCheck, ConfigFinding, ConfigOrder, ConfigText, Refused, ReloadAnswer, Response,
    },
};

/// For how many seconds a text may be tried: a page has to come back in that time, and somebody has
/// to remember it.
const TRIAL: RangeInclusive<u32> = 5..=3600;

/// A text that runs until it is kept or taken back.
pub(super) struct Trial {
    text: String,
    /// Of the file when it began.
    version: String,
}

impl<R: Runs> Reloader<R> {
    /// Does what somebody wants of the config.
    pub(in crate::daemon) fn handle_config(self: &Arc<Self>, order: &ConfigOrder) -> Response {
        match order {
            ConfigOrder::Show => Response::result(self.show()),
            ConfigOrder::Check { text } => Response::result(self.check(text)),
            ConfigOrder::Apply {
                text,
                version,
                confirm_seconds,
            } => Response::result(self.apply_text(text, version, *confirm_seconds)),
            ConfigOrder::Revert => self.revert_now(),
        }
    }

    fn show(&self) -> Result<ConfigText, Refused> {
        let source = self.presentable()?;
        let file = self.file.display().to_string();
        let state = self.lock();
        Ok(ConfigText {
            schema: ConfigText::SCHEMA.into(),
            file,
            version: version(&source),
            text: String::from_utf8_lossy(&source).into_owned(),
            trial: state.trial.as_ref().map(|trial| trial.text.clone()),
            reverts_in_seconds: state.left().map(|left| left.as_secs_f64()),
        })
    }

    fn check(&self, text: &str) -> Result<ConfigCheck, Refused> {
        // The answer says how the text differs from it.
        let source = self.presentable()?;
        let before = String::from_utf8_lossy(&source);
        let diff = TextDiff::from_lines(&*before, text);
        let mut check = ConfigCheck {
            schema: ConfigCheck::SCHEMA,
            valid: false,
            findings: Vec::new(),
            host: Vec::new(),
            changes: Vec::new(),
            needs_restart: Vec::new(),
            diff: diff.unified_diff().header("file", "edited").to_string(),
        };
        match R::parse(&self.file.display().to_string(), text.as_bytes()) {
            Err(report) => check.findings = findings(&report),
            Ok(loaded) => {
                check.findings = findings(&loaded.warnings);
                check.host = R::look_at_host(&loaded.config);
                excuse(&mut check.host, &*self.running());
                check.valid = !check.host.iter().any(HostFinding::is_error);
                let entries = config::effective(text);
                let planned = self.lock().running.plan(&loaded.config, &entries);
                Planned {
                    changes: check.changes,
                    needs_restart: check.needs_restart,
                    ..
                } = planned;
            }
        }
        Ok(check)
    }

    pub(super) fn apply_text(
        self: &Arc<Self>,
        text: &str,
        version: &str,
        confirm_seconds: Option<u32>,
    ) -> Result<ReloadAnswer, Refused> {
        if let Some(seconds) = confirm_seconds.filter(|it| !TRIAL.contains(it)) {
            let (least, most) = (TRIAL.start(), TRIAL.end());
            let what = format!("{seconds} s are no time to confirm: {least} to {most} are");
            return Err(Refused::new("bad_request", what));
        }
        let parsed = match self.parse(text.as_bytes(), &self.running()) {
            Ok(parsed) => parsed,
            Err(answer) => return Ok(*answer),
        };
        let mut state = self.lock();
        if let Some(left) = state.left().filter(|_| confirm_seconds.is_none()) {
            let instead = "try this one in its place, with a time to confirm it";
            return Err(has_to_wait(left, instead));
        }
        self.must_be(version)?;
        // A text that could not be kept is not tried.
        let draft = self.draft(text)?;
        let confirm = confirm_seconds.map(|seconds| Duration::from_secs(seconds.into()));
        let answer = self.go_over(&mut state, parsed, confirm);
        if !answer.applied {
            return Ok(answer);
        }
        if confirm.is_some() {
            state.trial = Some(Trial {
                text: text.into(),
                version: version.into(),
            });
            return Ok(answer);
        }
        if let Err(error) = draft.publish() {
            self.go_back(&mut state);
            return Err(self.unwritable(&error));
        }
        state.confirmed = Arc::clone(&state.running);
        Ok(answer)
    }

    /// Writes what is on trial into the file.
    pub(super) fn save_trial(&self, state: &mut State<R>) -> Result<(), Refused> {
        let Some(trial) = &state.trial else {
            return Ok(());
        };
        self.must_be(&trial.version)?;
        let draft = self.draft(&trial.text)?;
        draft.publish().map_err(|error| self.unwritable(&error))?;
        state.trial = None;
        Ok(())
    }

    fn revert_now(&self) -> Response {
        let mut state = self.lock();
        if !state.pending {
            return Response::refused("nothing_to_revert", "no reload waits to be confirmed");
        }
        self.take_back(&mut state);
        Response::done()
    }

    /// What is in the file, if that may be shown.
    fn presentable(&self) -> Result<Vec<u8>, Refused> {
        let source = self.source()?;
        if let Err(report) = R::parse(&self.file.display().to_string(), &source) {
            refuse_secrets(&report)?;
        }
        Ok(source)
    }

    fn source(&self) -> Result<Vec<u8>, Refused> {
        file::read(&self.file).map_err(|error| {
            let file = self.file.display();
            Refused::new("cannot_read", format!("cannot read {file}: {error}"))
        })
    }

    /// Refuses if somebody else has written the file since it was shown.
    fn must_be(&self, known: &str) -> Result<(), Refused> {
        if version(&self.source()?) == known {
            return Ok(());
        }
        let file = self.file.display();
        let what = format!("{file} was changed meanwhile: look at it again");
        Err(Refused::new("changed_meanwhile", what))
    }

    fn draft(&self, text: &str) -> Result<Draft, Refused> {
        Draft::of(&self.file, text).map_err(|error| self.unwritable(&error))
    }

    fn unwritable(&self, error: &io::Error) -> Refused {
        let file = self.file.display();
        Refused::new("cannot_write", format!("cannot write {file}: {error}"))
    }
}

/// What tells one text of a file from another.
pub(super) fn version(source: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, source);
    let hex = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
    hex.collect()
}

/// A secret in the file would be shown on the page. A config with one does not run either.
fn refuse_secrets(report: &Report) -> Result<(), Refused> {
    let is_secret = |found: &Located<'_>| found.message.ends_with(config::SECRET_IN_CONFIG);
    let Some(found) = report.located().find(is_secret) else {
        return Ok(());
    };
    Err(Refused::new(
        "holds_secret",
        format!(
            "line {} of {} holds a secret, so it is not shown: put it into a file of its own, and \
             write file:PATH",
            found.line, found.file
        ),
    ))
}

fn findings(report: &Report) -> Vec<ConfigFinding> {
    let found = report.located().map(|found| ConfigFinding {
        severity: found.severity,
        line: found.line,
        column: found.column,
        message: found.message.into(),
        label: found.label.into(),
        help: found.help.map(str::to_owned),
    });
    found.collect()
}
