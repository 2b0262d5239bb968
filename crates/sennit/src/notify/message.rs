//! What is sent to whom.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use aws_lc_rs::hmac;
use axum::http::{HeaderValue, Request, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use zeroize::Zeroizing;

use super::{NotifyError, read_secret};
use crate::{
    config::{Notify, NotifyKind, Print},
    date,
    journal::{CapState, Event, Record},
};

/// An Alertmanager ends what it is told of once after minutes, unless it is told when that ends: a
/// link that is down stays so until it is up.
const LASTING: Duration = Duration::from_secs(7 * 86_400);
/// What has happened and is over is shown for so long.
const MOMENT: Duration = Duration::from_secs(3_600);

/// Somebody who is told.
pub(super) struct Target {
    pub(super) name: String,
    kind: NotifyKind,
    url: Uri,
    /// Of a webhook.
    key: Option<hmac::Key>,
    /// Of the others.
    token: Option<Token>,
    /// Of the file with either.
    pub(super) print: Option<Print>,
}

impl Target {
    pub(super) fn load(config: &Notify) -> Result<Self, NotifyError> {
        let secret = config.secret.as_deref();
        let secret = secret.map(|path| Ok((path, read_secret(path)?)));
        let secret = secret.transpose()?;
        let print = secret.as_ref().map(|(_, (_, print))| print.clone());
        let (mut key, mut token) = (None, None);
        match (config.kind, secret) {
            (NotifyKind::Webhook, Some((path, (text, _)))) => {
                let bad = || NotifyError::BadKey { path: path.into() };
                key = Some(read_key(&text).ok_or_else(bad)?);
            }
            (_, Some((path, (text, _)))) => {
                let bad = || NotifyError::BadToken { path: path.into() };
                token = Some(Token::of(text).ok_or_else(bad)?);
            }
            (_, None) => {}
        }
        Ok(Self {
            name: config.name.clone(),
            kind: config.kind,
            url: config.url.parse().expect("the config was checked"),
            key,
            token,
            print,
        })
    }

    /// The request that tells of an event.
    pub(super) fn request(&self, record: &Record, now: SystemTime) -> Request<String> {
        let mut request = Request::post(self.url.clone());
        if let Some(token) = &self.token {
            request = request.header("authorization", token.header());
        }
        let request = match self.kind {
            NotifyKind::Webhook => {
                let body = webhook(record).to_string();
                let id = format!("evt_{}_{}", self.name, record.id);
                let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
                let timestamp = since.as_secs().to_string();
                if let Some(key) = &self.key {
                    let signature = sign(key, &id, &timestamp, &body);
                    request = request.header("webhook-signature", signature);
                }
                request
                    .header("webhook-id", id)
                    .header("webhook-timestamp", timestamp)
                    .header("content-type", "application/json")
                    .body(body)
            }
            NotifyKind::Ntfy => request
                .header("title", format!("Sennit: {}", record.event.kind()))
                .header(
                    "priority",
                    if is_bad(&record.event) {
                        "high"
                    } else {
                        "default"
                    },
                )
                .header("x-event-id", record.id.to_string())
                .body(record.text.clone()),
            NotifyKind::Alertmanager => request
                .header("content-type", "application/json")
                .body(json!([alert(record, now)]).to_string()),
        };
        request.expect("names and numbers are legal in headers")
    }
}

/// What is sent to show who tells. It is wiped from memory when it is dropped.
struct Token(Zeroizing<String>);

impl Token {
    /// One line of what a header may have.
    fn of(text: Zeroizing<String>) -> Option<Self> {
        let legal = !text.contains(|c: char| c.is_whitespace() || c.is_control());
        (legal && !text.is_empty()).then(|| Self(text))
    }

    /// A header that `Debug` does not show.
    fn header(&self) -> HeaderValue {
        let text = Zeroizing::new(format!("Bearer {}", *self.0));
        let mut value =
            HeaderValue::from_bytes(text.as_bytes()).expect("it has no control characters");
        value.set_sensitive(true);
        value
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// `whsec_` and the key in base64.
fn read_key(text: &str) -> Option<hmac::Key> {
    let key = Zeroizing::new(STANDARD.decode(text.strip_prefix("whsec_")?).ok()?);
    (24..=64)
        .contains(&key.len())
        .then(|| hmac::Key::new(hmac::HMAC_SHA256, &key))
}

fn sign(key: &hmac::Key, id: &str, timestamp: &str, body: &str) -> String {
    let tag = hmac::sign(key, format!("{id}.{timestamp}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(tag))
}

fn webhook(record: &Record) -> serde_json::Value {
    json!({
        "type": format!("sennit.{}", record.event.kind()),
        "timestamp": record.time,
        "data": record,
    })
}

/// An alert of what is bad, or the end of the one that it was.
fn alert(record: &Record, now: SystemTime) -> serde_json::Value {
    let data = serde_json::to_value(&record.event).unwrap_or_default();
    let text = |name: &str| data[name].as_str().unwrap_or_default().to_owned();
    let (name, severity, over) = match &record.event {
        Event::LinkUp { .. } => ("SennitLinkDown", "warning", true),
        Event::LinkDown { .. } => ("SennitLinkDown", "warning", false),
        Event::TunnelUp { .. } => ("SennitTunnelDown", "critical", true),
        Event::TunnelDown { .. } => ("SennitTunnelDown", "critical", false),
        Event::ClassServed { .. } => ("SennitClassStarved", "warning", true),
        Event::ClassStarved { .. } => ("SennitClassStarved", "warning", false),
        Event::HubRecovered { .. } => ("SennitHubDegraded", "critical", true),
        Event::HubDegraded { .. } => ("SennitHubDegraded", "critical", false),
        event if is_bad(event) => ("SennitEvent", "warning", false),
        _ => ("SennitEvent", "info", false),
    };
    let mut labels = json!({ "alertname": name, "severity": severity });
    for label in ["site", "class", "link", "direction", "trouble"] {
        if !text(label).is_empty() {
            labels[label] = text(label).into();
        }
    }
    if name == "SennitEvent" {
        labels["event"] = text("event").into();
    }
    let mut alert = json!({ "labels": labels, "annotations": { "summary": record.text } });
    if over {
        alert["endsAt"] = record.time.clone().into();
    } else {
        let lasts = if name == "SennitEvent" {
            MOMENT
        } else {
            LASTING
        };
        alert["startsAt"] = record.time.clone().into();
        alert["endsAt"] = date::seconds(now + lasts).into();
    }
    alert
}

fn is_bad(event: &Event) -> bool {
    matches!(
        event,
        Event::StartedWithout { .. }
            | Event::LinkDown { .. }
            | Event::TunnelDown { .. }
            | Event::Refused { .. }
            | Event::ClassStarved { .. }
            | Event::HubDegraded { .. }
            | Event::ReloadRefused { .. }
            | Event::Cap {
                state: CapState::Over,
                ..
            }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_standard_has_its_signature() {
        // Of the reference implementations of Standard Webhooks.
        let key = read_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let body = r#"{"test": 2432232314}"#;
        let signature = sign(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn an_alert_ends_with_the_labels_that_it_began_with() {
        let labels = |event: serde_json::Value| {
            let mut record = json!({ "id": 1, "time": "2026-11-26T21:30:00Z", "text": "" });
            let record = record.as_object_mut().unwrap();
            record.extend(event.as_object().unwrap().clone());
            let record: Record = serde_json::from_value(record.clone().into()).unwrap();
            let alert = alert(&record, UNIX_EPOCH);
            (alert["labels"].clone(), alert["startsAt"].is_null())
        };
        let trouble = json!({ "trouble": "pool", "reason": "it is full" });
        let place = json!({ "class": "bulk", "link": "lte", "direction": "down", "seconds": 10.0 });
        for (begins, ends, about, severity) in [
            ("hub_degraded", "hub_recovered", trouble, "critical"),
            ("class_starved", "class_served", place, "warning"),
        ] {
            let of = |kind: &str| {
                let mut event = about.clone();
                event["event"] = kind.into();
                labels(event)
            };
            let ((began, is_over), (ended, was_over)) = (of(begins), of(ends));
            assert_eq!(began, ended);
            assert_eq!(began["severity"], severity);
            assert_eq!((is_over, was_over), (false, true), "{begins}");
        }
    }

    #[test]
    fn a_key_that_is_too_short_or_no_key_is_refused() {
        for text in [
            "",
            "whsec_",
            "whsec_c2hvcnQ=",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        ] {
            assert!(read_key(text).is_none(), "{text}");
        }
    }

    /// A file of two lines ended the thread that tells.
    #[test]
    fn a_token_is_one_line_and_is_shown_in_no_debug_text() {
        let token = |text: &str| Token::of(Zeroizing::new(text.into()));
        for text in ["", "tk_one\ntk_two", "tk one", "tk\0", "tk\u{7f}"] {
            assert!(token(text).is_none(), "{text:?}");
        }

        let token = token("tk_hush").unwrap();

        let header = token.header();
        assert_eq!(header.as_bytes(), b"Bearer tk_hush");
        assert_eq!(format!("{header:?} {token:?}"), "Sensitive Token(…)");
    }
}
