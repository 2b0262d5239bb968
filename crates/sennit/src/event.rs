//! What can happen.

mod words;

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use schemars::JsonSchema;
use sennit_linux::Lost;
use serde::{Deserialize, Serialize};

pub use self::words::{CapState, Direction, Trouble};
use crate::status::{self, Cause, LinkCause};

/// One thing that happened. What a daemon of another version wrote and this one does not know is
/// [`Event::Other`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The daemon started.
    Started { version: String },
    /// The daemon started without something that its config wants.
    StartedWithout { reason: String },
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
    /// A link loses all its packets on purpose, as an operator wants to see what happens.
    DrillStarted { link: String },
    /// A link that was lost on purpose carries again.
    DrillEnded { link: String },
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
    /// The tunnel of a class runs to another address of the hub, as the config has it.
    TunnelMoved {
        class: String,
        from: SocketAddr,
        to: SocketAddr,
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
        /// For how long nothing had been heard on it while packets flowed; 0 if none did.
        silent_seconds: f64,
    },
    /// What a class sent over a link leaves over others from now on.
    Failover {
        class: String,
        from: String,
        to: Vec<String>,
        /// For how long nothing had been heard on the link while packets flowed: what was sent
        /// there meanwhile was late or had to be sent again. It is 0 if none did.
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
    /// So many addresses, routes and routing rules that this daemon had added to its host were
    /// missing there, as another program had taken them, and are put back.
    HostRestored {
        addresses: u64,
        routes: u64,
        rules: u64,
    },
    /// This edge got a certificate.
    CertificateReceived { site: String },
    /// At a hub: a site got a certificate.
    CertificateIssued { site: String },
    /// At a hub: what let a site in is not good any more.
    Expelled { site: String, reason: String },
    /// At a hub: another authority takes the place of the one there was, and both are good.
    AuthorityRotated {
        /// Fingerprint of the other one.
        authority: String,
    },
    /// At a hub: the former authority is not good any more.
    AuthorityFinished {
        /// Fingerprint of the present one.
        authority: String,
        /// Sites that knew only the former one, so it was dropped by force; 100 of them are named.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        locked_out: Vec<String>,
        #[serde(default, skip_serializing_if = "is_zero")]
        more_locked_out: u64,
    },
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
    /// At an edge: others have had a class wait on a link for a while.
    ClassStarved {
        class: String,
        link: String,
        direction: Direction,
        seconds: f64,
    },
    /// A class that was starved on a link is not any more.
    ClassServed {
        class: String,
        link: String,
        direction: Direction,
        /// For how long it was.
        seconds: f64,
    },
    /// At a hub: something keeps it from all that it should do.
    HubDegraded { trouble: Trouble, reason: String },
    /// At a hub: that is over.
    HubRecovered { trouble: Trouble },
    /// Another config applies, or files that it names were read anew.
    Reloaded { changed: Vec<String> },
    /// A reload that nobody confirmed was taken back.
    ReloadReverted,
    /// A reload that SIGHUP has asked for changed nothing.
    ReloadRefused { reason: String },
    /// The journal's file could not be read, and was set aside.
    JournalSetAside { file: String, reason: String },
    /// So many events came faster than they could be kept.
    EventsLost { count: u64 },
    /// Of another version.
    #[serde(other)]
    Other,
}

impl From<Lost> for Event {
    fn from(lost: Lost) -> Self {
        let Lost {
            addresses,
            routes,
            rules,
        } = lost;
        Self::HostRestored {
            addresses,
            routes,
            rules,
        }
    }
}

impl Event {
    /// The words in the field `event`, but for `other`.
    pub const KINDS: [&str; 35] = [
        "started",
        "started_without",
        "stopped",
        "link_up",
        "link_down",
        "link_paused",
        "link_resumed",
        "drill_started",
        "drill_ended",
        "tunnel_up",
        "tunnel_down",
        "tunnel_moved",
        "path_up",
        "path_down",
        "failover",
        "refused",
        "lan_refused",
        "addresses_assigned",
        "host_restored",
        "certificate_received",
        "certificate_issued",
        "expelled",
        "authority_rotated",
        "authority_finished",
        "cap",
        "link_limited",
        "class_starved",
        "class_served",
        "hub_degraded",
        "hub_recovered",
        "reloaded",
        "reload_reverted",
        "reload_refused",
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
            Self::StartedWithout { reason } => write!(f, "started, but {reason}"),
            Self::Stopped => f.write_str("stopped"),
            Self::LinkUp { link } => write!(f, "link {link} is up"),
            Self::LinkDown { link, reason, .. } => write!(f, "link {link} is down: {reason}"),
            Self::LinkPaused { .. }
            | Self::LinkResumed { .. }
            | Self::DrillStarted { .. }
            | Self::DrillEnded { .. }
            | Self::LinkLimited { .. } => self.fmt_of_operator(f),
            Self::TunnelUp { site, class } => write!(f, "class {class}{} has a tunnel", of(site)),
            Self::TunnelDown {
                site,
                class,
                reason,
            } => write!(f, "class {class}{} has no tunnel: {reason}", of(site)),
            Self::TunnelMoved { class, from, to } => f.write_str(&moved(class, [from, to])),
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
            Self::AddressesAssigned { .. }
            | Self::HostRestored { .. }
            | Self::CertificateReceived { .. }
            | Self::CertificateIssued { .. }
            | Self::Expelled { .. }
            | Self::AuthorityRotated { .. }
            | Self::AuthorityFinished { .. } => self.fmt_of_host_or_identity(f),
            Self::Cap { .. }
            | Self::ClassStarved { .. }
            | Self::ClassServed { .. }
            | Self::HubDegraded { .. }
            | Self::HubRecovered { .. } => self.fmt_of_trouble(f),
            Self::Reloaded { changed } => f.write_str(&reloaded(changed)),
            Self::ReloadReverted => f.write_str(REVERTED),
            Self::ReloadRefused { reason } => write!(f, "{REFUSED}: {reason}"),
            Self::JournalSetAside { file, reason } => f.write_str(&set_aside(file, reason)),
            Self::EventsLost { count } => write!(f, "{count} events came too fast to be kept"),
            Self::Other => f.write_str("an event of another version of Sennit"),
        }
    }
}

fn moved(class: &str, [from, to]: [&SocketAddr; 2]) -> String {
    format!("the tunnel of class {class} runs to {to} instead of {from}")
}

impl Event {
    /// What an operator wants of a link.
    fn fmt_of_operator(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkPaused { link } => write!(f, "an operator has paused link {link}"),
            Self::LinkResumed { link } => write!(f, "an operator has link {link} carry again"),
            Self::DrillStarted { link } => {
                write!(f, "link {link} is lost on purpose, by a drill")
            }
            Self::DrillEnded { link } => write!(f, "the drill of link {link} is over"),
            Self::LinkLimited {
                link,
                up_bytes_per_second,
                down_bytes_per_second,
            } => f.write_str(&limited(link, up_bytes_per_second, down_bytes_per_second)),
            _ => Ok(()),
        }
    }

    /// What does not go as it should though all is up, and what does again.
    fn fmt_of_trouble(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClassStarved {
                class,
                link,
                direction,
                seconds,
            } => write!(
                f,
                "class {class} has waited for others on link {link}, {direction}, for {seconds:.0} s"
            ),
            Self::ClassServed {
                class,
                link,
                direction,
                seconds,
            } => write!(
                f,
                "class {class} waits for others on link {link}, {direction}, no more, after {seconds:.0} s"
            ),
            Self::HubDegraded { reason, .. } => {
                write!(f, "the hub does not do all that it should: {reason}")
            }
            Self::HubRecovered { trouble } => write!(f, "of the hub: {trouble}"),
            Self::Cap {
                link,
                state,
                cap_bytes,
                ..
            } => f.write_str(&capped(link, state, *cap_bytes)),
            _ => Ok(()),
        }
    }

    /// What an end has been given, what it gave, and what it does not take any more.
    fn fmt_of_host_or_identity(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddressesAssigned { addresses } => f.write_str(&assigned(addresses)),
            Self::HostRestored {
                addresses,
                routes,
                rules,
            } => f.write_str(&restored(*addresses, *routes, *rules)),
            Self::CertificateReceived { site } => {
                write!(f, "received a certificate as site {site}")
            }
            Self::CertificateIssued { site } => write!(f, "site {site} got a certificate"),
            Self::Expelled { site, reason } => write!(f, "site {site} is shut out: {reason}"),
            Self::AuthorityRotated { authority } => write!(f, "{ROTATED} {authority}"),
            Self::AuthorityFinished {
                locked_out,
                more_locked_out,
                ..
            } => f.write_str(&finished(locked_out, *more_locked_out)),
            _ => Ok(()),
        }
    }
}

const REVERTED: &str = "nobody confirmed the reload: the config before it applies again";

const REFUSED: &str = "the reload was refused, and nothing has changed";

const ROTATED: &str = "the authority is being rotated: sites move to";

fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn finished(locked_out: &[String], more: u64) -> String {
    let dropped = "the former authority is dropped";
    if locked_out.is_empty() {
        return dropped.into();
    }
    let sites = locked_out.join(", ");
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{dropped} by force: these sites need a new invitation: {sites}{more}")
}

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

fn restored(addresses: u64, routes: u64, rules: u64) -> String {
    let counted = |count: u64, one: &str, more: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        count => Some(format!("{count} {more}")),
    };
    let all = [
        counted(addresses, "address", "addresses"),
        counted(routes, "route", "routes"),
        counted(rules, "rule", "rules"),
    ];
    let all: Vec<String> = all.into_iter().flatten().collect();
    format!(
        "put back on this host, where it was missing: {}",
        all.join(", ")
    )
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
    fn who_is_locked_out_by_force_is_named() {
        let finished = |locked_out: &[&str], more_locked_out| Event::AuthorityFinished {
            authority: "ab".into(),
            locked_out: locked_out.iter().map(ToString::to_string).collect(),
            more_locked_out,
        };
        let all = finished(&[], 0);
        assert_eq!(all.to_string(), "the former authority is dropped");
        let some = finished(&["bus", "van"], 7).to_string();
        assert!(some.ends_with("invitation: bus, van and 7 more"), "{some}");
    }

    #[test]
    fn what_was_put_back_is_counted_without_what_was_there() {
        let restored = Event::HostRestored {
            addresses: 0,
            routes: 1,
            rules: 12,
        };
        let text = restored.to_string();
        assert!(text.ends_with("missing: 1 route, 12 rules"), "{text}");
    }

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
