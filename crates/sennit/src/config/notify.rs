//! `[[notify]]`.

use std::fmt;
use std::path::PathBuf;

use toml::Spanned;

use super::finding::Finding;
use super::limits::MOST_NOTIFIED;
use super::section::Section;
use super::tables;
use super::values::{self, Wrong};
use crate::event::Event;

/// The kinds of events that somebody is told of unless `events` says otherwise.
pub const DEFAULT_EVENTS: [&str; 7] = [
    "link_down",
    "link_up",
    "failover",
    "tunnel_down",
    "tunnel_up",
    "hub_degraded",
    "hub_recovered",
];

/// Whom to tell of events.
#[derive(Clone, PartialEq, Eq)]
pub struct Notify {
    pub name: String,
    pub kind: NotifyKind,
    pub url: String,
    /// File with the key that webhooks are signed by, or the token that is sent.
    pub secret: Option<PathBuf>,
    /// Kinds of events.
    pub events: Vec<String>,
}

/// Without the URL, which often has a secret in it.
impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notify")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("secret", &self.secret)
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}

/// How somebody is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotifyKind {
    /// Standard Webhooks 1.0.
    Webhook,
    /// A topic of ntfy.
    Ntfy,
    /// The API of a Prometheus Alertmanager.
    Alertmanager,
}

pub(super) fn read(
    file: &mut Section<'_, '_>,
    text: &str,
    findings: &mut Vec<Finding>,
) -> Vec<Notify> {
    let values = tables(file, "notify", MOST_NOTIFIED, findings);
    let sections = values
        .into_iter()
        .filter_map(|value| Section::open("[[notify]]", value, text, findings));
    let sections: Vec<_> = sections.collect();
    let mut all: Vec<Notify> = Vec::new();
    for section in sections {
        let header = section.header();
        let Some(notify) = read_one(section, findings) else {
            continue;
        };
        if all.iter().any(|other| other.name == notify.name) {
            let message = format!("two [[notify]] are named `{}`", notify.name);
            findings.push(Finding::error(header, message));
        }
        all.push(notify);
    }
    all
}

fn read_one(mut notify: Section<'_, '_>, findings: &mut Vec<Finding>) -> Option<Notify> {
    notify.require("name", "\"ops\"", findings);
    let name = notify.string("name", values::name, findings);
    notify.require("url", "\"https://ntfy.sh/my-topic\"", findings);
    let url = notify.string("url", url, findings);
    let kind = notify.string("kind", kind, findings);
    let secret = notify.string("secret", values::secret_file, findings);
    let events = notify.strings("events", event, findings);
    notify.require_some("events", "name some, or leave the key out", findings);
    let kind_read = kind
        .as_ref()
        .map_or(NotifyKind::Webhook, |kind| *kind.get_ref());
    if kind_read == NotifyKind::Webhook {
        notify.require("secret", "\"file:/etc/sennit/webhook-key\"", findings);
    }
    notify.finish(findings);
    let default = || DEFAULT_EVENTS.map(String::from).into();
    let events = events.map(|all| all.into_iter().map(Spanned::into_inner).collect());
    Some(Notify {
        name: name?.into_inner(),
        kind: kind_read,
        url: url?.into_inner(),
        secret: secret.map(Spanned::into_inner),
        events: events.unwrap_or_else(default),
    })
}

fn kind(typed: &str) -> Result<NotifyKind, Wrong> {
    values::choice(
        typed,
        "way to tell somebody",
        &[
            ("webhook", NotifyKind::Webhook),
            ("ntfy", NotifyKind::Ntfy),
            ("alertmanager", NotifyKind::Alertmanager),
        ],
    )
}

fn event(typed: &str) -> Result<String, Wrong> {
    let choices = Event::KINDS.map(|kind| (kind, kind));
    values::choice(typed, "kind of event", &choices).map(Into::into)
}

/// An `http` or `https` URL with a host.
fn url(typed: &str) -> Result<String, Wrong> {
    // It may have a secret in it, so it is not quoted.
    let wrong = || {
        Wrong::new("this is no URL, or one with a user in it")
            .help("write it whole, like https://hooks.example.org/sennit")
    };
    let uri: axum::http::Uri = typed.parse().map_err(|_| wrong())?;
    let known = matches!(uri.scheme_str(), Some("http" | "https"));
    let user = uri.authority().is_some_and(|it| it.as_str().contains('@'));
    if !known || uri.host().is_none_or(str::is_empty) || user {
        return Err(wrong());
    }
    Ok(typed.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_somebody_tells_is_in_no_debug_text() {
        let notify = Notify {
            name: "ops".into(),
            kind: NotifyKind::Webhook,
            url: "https://hooks.example.org/hush".into(),
            secret: None,
            events: Vec::new(),
        };
        let text = format!("{notify:?}");
        assert!(text.contains("ops") && !text.contains("hush"), "{text}");
    }
}
