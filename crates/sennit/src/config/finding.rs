//! What is wrong with a config file, and how that is shown.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use schemars::JsonSchema;
use serde::Serialize;

use super::private;

/// Findings of one file that are shown: more is nobody's slip, and each is some lines of text.
pub(super) const MOST_FINDINGS: usize = 100;

/// Of lines longer than this, in bytes, no part is shown: nobody finds a caret in one.
const LONGEST_LINE: usize = 1000;
/// Bytes of a message that are shown: it may have in it what somebody typed.
const LONGEST_MESSAGE: usize = 500;

/// Whether a finding forbids the config.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Error,
    Warning,
}

/// One thing that is wrong or odd, at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    severity: Severity,
    span: Range<usize>,
    message: String,
    label: String,
    help: Option<String>,
    absence: bool,
}

impl Finding {
    pub(super) fn error(span: Range<usize>, message: impl Into<String>) -> Self {
        let (message, label) = (message.into(), String::new());
        Self {
            severity: Severity::Error,
            span,
            message,
            label,
            help: None,
            absence: false,
        }
    }

    pub(super) fn warning(span: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(span, message)
        }
    }

    /// Something that ought to be there is not.
    pub(super) fn missing(span: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            absence: true,
            ..Self::error(span, message)
        }
    }

    pub(super) fn syntax(text: &str, error: &toml::de::Error) -> Self {
        let span = error.span().unwrap_or(text.len()..text.len());
        Self::error(span, format!("not TOML: {}", error.message()))
    }

    /// A few words beside the caret.
    pub(super) fn label(self, label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            ..self
        }
    }

    /// What to write instead.
    pub(super) fn help(self, help: impl Into<String>) -> Self {
        Self {
            help: Some(help.into()),
            ..self
        }
    }

    pub(super) fn is_absence(&self) -> bool {
        self.absence
    }

    /// Bytes of the file.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    pub fn severity(&self) -> Severity {
        self.severity
    }

    pub fn message(&self) -> &str {
        &self.message
    }
}

/// All findings of one file, in its order.
#[derive(Clone, Debug)]
pub struct Report {
    file: Arc<str>,
    text: Arc<str>,
    findings: Vec<Finding>,
    /// What is not quoted: a log is read by more people than a config.
    private: Vec<Range<usize>>,
}

/// A finding as `check --json` prints it; lines and columns count from 1, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Located<'a> {
    pub severity: Severity,
    pub file: &'a str,
    pub line: usize,
    pub column: usize,
    pub message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub label: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<&'a str>,
}

impl Report {
    pub(super) fn new(file: &str, text: &str, mut findings: Vec<Finding>) -> Self {
        for finding in &mut findings {
            finding.span = within(text, &finding.span);
            shorten(&mut finding.message);
        }
        findings.sort_by_key(|finding| (finding.span.start, finding.severity));
        findings.dedup();
        leave_out(&mut findings);
        Self {
            file: file.into(),
            text: text.into(),
            findings,
            private: private::places(text),
        }
    }

    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    pub fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    pub fn has_errors(&self) -> bool {
        self.errors() > 0
    }

    /// Number of findings that forbid the config.
    pub fn errors(&self) -> usize {
        self.findings
            .iter()
            .filter(|f| f.severity == Severity::Error)
            .count()
    }

    /// The findings with their lines and columns.
    pub fn located(&self) -> impl Iterator<Item = Located<'_>> {
        self.findings.iter().map(|finding| {
            let (line, column) = self.position(finding.span.start);
            Located {
                severity: finding.severity,
                file: &self.file,
                line,
                column,
                message: &finding.message,
                label: &finding.label,
                help: finding.help.as_deref(),
            }
        })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The line and the column of a byte, as in [`Located`].
    pub(super) fn position(&self, at: usize) -> (usize, usize) {
        let line = line_around(&self.text, at);
        (line.number, self.text[line.start..at].chars().count() + 1)
    }

    pub(super) fn render(&self, finding: &Finding) -> String {
        let line = line_around(&self.text, finding.span.start);
        let end = line.start + line.text.len();
        let is_private = |place: &Range<usize>| place.start < end && line.start < place.end;
        if line.text.len() > LONGEST_LINE || self.private.iter().any(is_private) {
            return self.render_alone(finding, &line);
        }
        let start = (finding.span.start - line.start).min(line.text.len());
        let end = (finding.span.end - line.start).clamp(start, line.text.len());
        let mut caret = AnnotationKind::Primary.span(start..end);
        if !finding.label.is_empty() {
            caret = caret.label(finding.label.as_str());
        }
        let level = match finding.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let snippet = Snippet::source(line.text)
            .line_start(line.number)
            .path(&*self.file);
        let mut group = level
            .primary_title(finding.message.as_str())
            .element(snippet.annotation(caret));
        if let Some(help) = &finding.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        Renderer::plain().render(&[group])
    }

    /// Without what is in the line.
    fn render_alone(&self, finding: &Finding, line: &Line<'_>) -> String {
        let severity = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let (_, column) = self.position(finding.span.start);
        let place = format!("{}:{}:{column}", self.file, line.number);
        let mut text = format!("{severity}: {}\n --> {place}", finding.message);
        if !finding.label.is_empty() {
            text += &format!("\n  = note: {}", finding.label);
        }
        if let Some(help) = &finding.help {
            text += &format!("\n  = help: {help}");
        }
        text
    }
}

/// Every finding with its line and a caret under its place, an empty line between them.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, finding) in self.findings.iter().enumerate() {
            if n > 0 {
                f.write_str("\n\n")?;
            }
            f.write_str(&self.render(finding))?;
        }
        Ok(())
    }
}

/// Syntax errors, and those findings which are not merely their echo: a broken line loses its key,
/// and a broken header moves all keys below it.
pub(super) fn with_syntax(
    text: &str,
    syntax: &[toml::de::Error],
    findings: Vec<Finding>,
) -> Vec<Finding> {
    let starts: Vec<usize> = std::iter::once(0)
        .chain(text.match_indices('\n').map(|(at, _)| at + 1))
        .collect();
    let line_of =
        |finding: &Finding| starts.partition_point(|start| *start <= finding.span().start);
    let mut all: Vec<Finding> = syntax
        .iter()
        .map(|error| Finding::syntax(text, error))
        .collect();
    all.sort_by_key(|finding| finding.span().start);
    all.dedup_by_key(|finding| line_of(finding));
    // What is never closed makes nonsense of all that follows.
    if syntax
        .iter()
        .any(|error| error.message().starts_with("unclosed"))
    {
        all.truncate(1);
        return all;
    }
    let lines: Vec<usize> = all.iter().map(line_of).collect();
    let is_header = |line: &usize| {
        let line = text[starts[line - 1]..].lines().next();
        line.is_some_and(|line| line.trim().starts_with('['))
    };
    if !lines.iter().any(is_header) {
        let is_echo = |finding: &Finding| lines.binary_search(&line_of(finding)).is_ok();
        all.extend(
            findings
                .into_iter()
                .filter(|f| !f.is_absence() && !is_echo(f)),
        );
    }
    all
}

/// Cuts a message that is too long.
fn shorten(message: &mut String) {
    if message.len() > LONGEST_MESSAGE {
        message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
        message.push('…');
    }
}

/// Leaves so many findings that somebody can read them, errors rather than warnings, and says how
/// many there are beside.
fn leave_out(findings: &mut Vec<Finding>) {
    let more = findings.len().saturating_sub(MOST_FINDINGS);
    if more == 0 {
        return;
    }
    findings.sort_by_key(|finding| finding.severity);
    findings.truncate(MOST_FINDINGS);
    findings.sort_by_key(|finding| (finding.span.start, finding.severity));
    if let Some(last) = findings.last_mut() {
        last.message += &format!("; {more} more findings are not shown");
    }
}

struct Line<'a> {
    number: usize,
    start: usize,
    text: &'a str,
}

/// The line that holds byte `at`, without its line end.
fn line_around(text: &str, at: usize) -> Line<'_> {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let end = text[at..]
        .find('\n')
        .map_or(text.len(), |newline| at + newline);
    let number = text[..start].matches('\n').count() + 1;
    Line {
        number,
        start,
        text: text[start..end].trim_end_matches('\r'),
    }
}

/// `span` cut to `text` and to whole characters.
fn within(text: &str, span: &Range<usize>) -> Range<usize> {
    let start = text.floor_char_boundary(span.start.min(text.len()));
    let end = text.ceil_char_boundary(span.end.clamp(start, text.len()));
    start..end
}
