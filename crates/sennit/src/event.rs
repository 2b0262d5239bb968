//! What can happen.

use std::{fmt, net::IpAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::status::{self, Cause, LinkCause};

/// One thing that happened. What a daemon of another version wrote and this one does not know is
/// [`Event::Other`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The daemon started.
    Started { version: String },
    /// The daemon stopped in order. Without one before the next `started` it was killed.
    Stopped,
    /// A link's interface can be used.
    LinkUp { link: String },
    /// A link's interface cannot be used.
    LinkDown {
        link: String,
        cause: LinkCause,
        reason: String,
    },
    /// An operator wants a link to carry nothing.
    LinkPaused { link: String },
    /// A link that was paused may carry again.
    LinkResumed { link: String },
    /// A class has a tunnel.
    TunnelUp {
        /// At a hub.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        site: Option<String>,
        class: String,
    },
    /// A class has no tunnel any more.
    TunnelDown {
        /// At a hub.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        site: Option<String>,
        class: String,
        reason: String,
    },
    /// A path is trusted with packets.
    PathUp {
        /// At a hub.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        site: Option<String>,
        class: String,
        link: String,
    },
    /// A path is not trusted any more.
    PathDown {
        /// At a hub.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        site: Option<String>,
        class: String,
        link: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<Cause>,
        reason: String,
        /// For how long nothing had been heard on it.
        silent_seconds: f64,
    },
    /// What a class sent over a link leaves over others from now on.
    Failover {
        class: String,
        from: String,
        to: Vec<String>,
        /// For how long nothing had been heard on the link: what was sent there meanwhile was late
        /// or had to be sent again.
        gap_seconds: f64,
    },
    /// The hub, or something before it, does not let a class in.
    Refused { class: String, reason: String },
    /// A part of a site's LAN is not routed to it.
    LanRefused {
        /// At a hub.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        site: Option<String>,
        prefix: String,
        reason: String,
    },
    /// The hub has assigned addresses.
    AddressesAssigned { addresses: Vec<IpAddr> },
    /// This edge got a certificate.
    CertificateReceived { site: String },
    /// At a hub: a site got a certificate.
    CertificateIssued { site: String },
    /// At a hub: what let a site in is not good any more.
    Expelled { site: String, reason: String },
    /// A link's cap is nearly used up, used up, or will be before its cycle ends.
    Cap {
        link: String,
        state: CapState,
        used_bytes: u64,
        cap_bytes: u64,
        /// The day on which the next cycle begins.
        until: String,
    },
    /// An operator has bounded what a link carries, or lifted that.
    LinkLimited {
        link: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        up_bytes_per_second: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        down_bytes_per_second: Option<u64>,
    },
    /// Another config applies.
    Reloaded { changed: Vec<String> },
    /// A reload that nobody confirmed was taken back.
    ReloadReverted,
    /// The journal's file could not be read, and was set aside.
    JournalSetAside { file: String, reason: String },
    /// So many events came faster than they could be kept.
    EventsLost { count: u64 },
    /// Of another version.
    #[serde(other)]
    Other,
}

/// How much is left of a cap.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CapState {
    /// It will not last for the cycle if it goes on like this.
    Forecast,
    /// Four fifths are used.
    Nearly,
    /// Nothing is left.
    Over,
}

impl fmt::Display for CapState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forecast => "will not last for the cycle if it goes on like this",
            Self::Nearly => "is nearly used up",
            Self::Over => "is used up: the link is in reserve behind all others",
        })
    }
}

impl Event {
    /// The words in the field `event`, but for `other`.
    pub const KINDS: [&str; 23] = [
        "started",
        "stopped",
        "link_up",
        "link_down",
        "link_paused",
        "link_resumed",
        "tunnel_up",
        "tunnel_down",
        "path_up",
        "path_down",
        "failover",
        "refused",
        "lan_refused",
        "addresses_assigned",
        "certificate_received",
        "certificate_issued",
        "expelled",
        "cap",
        "link_limited",
        "reloaded",
        "reload_reverted",
        "journal_set_aside",
        "events_lost",
    ];

    /// The word in its field `event`.
    pub fn kind(&self) -> String {
        let json = serde_json::to_value(self).unwrap_or_default();
        json["event"].as_str().unwrap_or("other").to_owned()
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started { version } => write!(f, "started, version {version}"),
            Self::Stopped => f.write_str("stopped"),
            Self::LinkUp { link } => write!(f, "link {link} is up"),
            Self::LinkDown { link, reason, .. } => write!(f, "link {link} is down: {reason}"),
            Self::LinkPaused { link } => write!(f, "an operator has paused link {link}"),
            Self::LinkResumed { link } => write!(f, "an operator has link {link} carry again"),
            Self::TunnelUp { site, class } => write!(f, "class {class}{} has a tunnel", of(site)),
            Self::TunnelDown {
                site,
                class,
                reason,
            } => write!(f, "class {class}{} has no tunnel: {reason}", of(site)),
            Self::PathUp { site, class, link } => f.write_str(&path_up(site, class, link)),
            Self::PathDown {
                site,
                class,
                link,
                reason,
                silent_seconds,
                ..
            } => f.write_str(&path_down((site, class, link), reason, *silent_seconds)),
            Self::Failover {
                class,
                from,
                to,
                gap_seconds,
            } => f.write_str(&failover(class, (from, to), *gap_seconds)),
            Self::Refused { class, reason } => write!(f, "class {class} is refused: {reason}"),
            Self::LanRefused {
                site,
                prefix,
                reason,
            } => write!(f, "the hub does not route {prefix}{}: {reason}", to(site)),
            Self::AddressesAssigned { addresses } => f.write_str(&assigned(addresses)),
            Self::CertificateReceived { site } => {
                write!(f, "received a certificate as site {site}")
            }
            Self::CertificateIssued { site } => write!(f, "site {site} got a certificate"),
            Self::Expelled { site, reason } => write!(f, "site {site} is shut out: {reason}"),
            Self::Cap {
                link,
                state,
                cap_bytes,
                ..
            } => f.write_str(&capped(link, state, *cap_bytes)),
            Self::LinkLimited {
                link,
                up_bytes_per_second,
                down_bytes_per_second,
            } => f.write_str(&limited(link, up_bytes_per_second, down_bytes_per_second)),
            Self::Reloaded { changed } => f.write_str(&reloaded(changed)),
            Self::ReloadReverted => f.write_str(REVERTED),
            Self::JournalSetAside { file, reason } => f.write_str(&set_aside(file, reason)),
            Self::EventsLost { count } => write!(f, "{count} events came too fast to be kept"),
            Self::Other => f.write_str("an event of another version of Sennit"),
        }
    }
}

const REVERTED: &str = "nobody confirmed the reload: the config before it applies again";

fn of(site: &Option<String>) -> String {
    let of = |site| format!(" of site {site}");
    site.as_ref().map(of).unwrap_or_default()
}

fn to(site: &Option<String>) -> String {
    let to = |site| format!(" to site {site}");
    site.as_ref().map(to).unwrap_or_default()
}

/// For how long nothing had been heard, if that was a time at all.
fn silence(seconds: f64, word: &str) -> String {
    match seconds > 0.0 {
        true => format!("{word} {seconds:.3} s"),
        false => String::new(),
    }
}

fn path_up(site: &Option<String>, class: &str, link: &str) -> String {
    format!("class {class}{} uses link {link}", of(site))
}

fn path_down(
    (site, class, link): (&Option<String>, &str, &str),
    reason: &str,
    silent_seconds: f64,
) -> String {
    let (of, since) = (of(site), silence(silent_seconds, ", for"));
    format!("class {class}{of} does not use link {link}: {reason}{since}")
}

fn failover(class: &str, (from, to): (&str, &[String]), gap_seconds: f64) -> String {
    let (to, gap) = (to.join(" and "), silence(gap_seconds, " after"));
    format!("class {class} moved from link {from} to {to}{gap}")
}

fn assigned(addresses: &[IpAddr]) -> String {
    let words: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    format!("the hub assigned {}", words.join(" and "))
}

fn capped(link: &str, state: &impl fmt::Display, cap_bytes: u64) -> String {
    format!(
        "the cap of link {link} ({}) {state}",
        status::bytes(cap_bytes)
    )
}

fn limited(link: &str, up: &Option<u64>, down: &Option<u64>) -> String {
    match status::bounds([up, down].map(|rate| rate.map(|rate| rate as f64))) {
        Some(bounds) => format!("link {link} carries {bounds}, as an operator wants"),
        None => format!("link {link} carries what the config allows"),
    }
}

fn set_aside(file: &str, reason: &str) -> String {
    format!("the journal could not be read ({reason}) and is now {file}")
}

fn reloaded(changed: &[String]) -> String {
    if changed.is_empty() {
        return "the config was read again, and says the same".into();
    }
    format!("another config: {}", changed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_are_listed() {
        let schema = serde_json::to_value(schemars::schema_for!(Event)).unwrap();
        let variants = schema["oneOf"].as_array().expect("an enum");
        let kinds = variants.iter().map(|variant| {
            let kind = &variant["properties"]["event"]["const"];
            kind.as_str().expect("a word").to_owned()
        });
        let mut kinds: Vec<String> = kinds.filter(|kind| kind != "other").collect();
        let mut listed = Event::KINDS.to_vec();
        kinds.sort();
        listed.sort_unstable();
        assert_eq!(kinds, listed);
    }
}
