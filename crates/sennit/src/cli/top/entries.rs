//! The rows of the tables: links and classes of an edge, or the sites of a hub.

use std::collections::BTreeMap;

use super::rates::{Now, Row, Seen};
use super::trace::Trace;
use crate::policy::Policy;
use crate::status::{
    LinkCause, LinkState, LinkStatus, PathStatus, Role, SiteStatus, State, Status,
};

/// A row, which can be selected.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) row: Row,
    pub(super) state: &'static str,
    pub(super) mood: Mood,
    pub(super) more: More,
}

/// What a row is about, however rows are sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) kind: Kind,
    pub(super) name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Link,
    Class,
    Site,
}

/// How good or bad a state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Good,
    Uneasy,
    Bad,
}

/// What only some kinds of rows have.
#[derive(Clone, Debug)]
pub(super) enum More {
    Link(OfLink),
    Class {
        policy: Option<Policy>,
        /// How long packets stand in the queue of this side.
        queue_seconds: f64,
    },
    Site {
        /// When it was last here, if it is away.
        last_seen: Option<String>,
    },
}

/// All classes on a link together.
#[derive(Clone, Debug, Default)]
pub(super) struct OfLink {
    /// Of what all links send now, 0 to 1.
    pub(super) share: Option<f64>,
    pub(super) rtt_min: Option<f64>,
    /// Of the samples that plots show.
    pub(super) rtt_high: Option<f64>,
    pub(super) cwnd_bytes: u64,
    pub(super) in_flight_bytes: u64,
    /// The greatest of its paths: what one class can carry there.
    pub(super) rate: Option<f64>,
    pub(super) up_limit: Option<f64>,
}

/// In which order rows stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// As in the config; sites first that need a look.
    #[default]
    Usual,
    Rate,
    Rtt,
    Loss,
    Name,
}

impl Order {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Usual => Self::Rate,
            Self::Rate => Self::Rtt,
            Self::Rtt => Self::Loss,
            Self::Loss => Self::Name,
            Self::Name => Self::Usual,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Usual => "as usual",
            Self::Rate => "by rate",
            Self::Rtt => "by round trip",
            Self::Loss => "by loss",
            Self::Name => "by name",
        }
    }

    pub(super) fn sort(self, entries: &mut [&Entry]) {
        // The greatest first, and what is not known last.
        let greatest = |of: fn(&Row) -> f64| {
            move |one: &&Entry, other: &&Entry| of(&other.row).total_cmp(&of(&one.row))
        };
        match self {
            Self::Usual => {}
            Self::Rate => entries.sort_by(greatest(|row| {
                row.sent_bytes_per_second + row.received_bytes_per_second
            })),
            Self::Rtt => entries.sort_by(greatest(|row| row.rtt_seconds.unwrap_or(-1.0))),
            Self::Loss => entries.sort_by(greatest(|row| row.loss_ratio.unwrap_or(-1.0))),
            Self::Name => entries.sort_by(|one, other| one.row.name.cmp(&other.row.name)),
        }
    }
}

impl Key {
    /// Its name in the history and the plots.
    pub(super) fn series(&self) -> String {
        let kind = match self.kind {
            Kind::Link => "link",
            Kind::Class => "class",
            Kind::Site => "site",
        };
        format!("{kind}/{}", self.name)
    }
}

/// All rows, links first.
pub(super) fn entries(now: &Now, seen: &Seen, trace: &Trace) -> Vec<Entry> {
    let sent: f64 = now.links.iter().map(|row| row.sent_bytes_per_second).sum();
    let links = now.links.iter().zip(&seen.status.links).map(|(row, link)| {
        let paths: Vec<&PathStatus> = seen.paths(&link.name).collect();
        let (state, mood) = link_state(link);
        let share = (sent > 0.0).then(|| row.sent_bytes_per_second / sent);
        let key = key(Kind::Link, row);
        let rtt_high = trace.high_rtt(&key.series());
        let more = OfLink {
            share,
            rtt_high,
            ..of_link(link, &paths)
        };
        Entry {
            key,
            row: row.clone(),
            state,
            mood,
            more: More::Link(more),
        }
    });
    let sites = seen.status.sites.iter();
    let sites: BTreeMap<&str, &SiteStatus> = sites.map(|site| (site.name.as_str(), site)).collect();
    let tunnels = now.tunnels.iter().map(|row| match now.role {
        Role::Edge => class(row, &seen.status),
        Role::Hub => site(row, sites.get(row.name.as_str()).copied()),
    });
    links.chain(tunnels).collect()
}

fn key(kind: Kind, row: &Row) -> Key {
    let name = row.name.clone();
    Key { kind, name }
}

fn link_state(link: &LinkStatus) -> (&'static str, Mood) {
    match (link.state, link.cause) {
        (LinkState::Up, _) if link.standby => ("standby", Mood::Good),
        (LinkState::Up, _) => ("up", Mood::Good),
        (LinkState::Down, Some(LinkCause::Paused)) => ("paused", Mood::Uneasy),
        (LinkState::Down, Some(LinkCause::NoPath)) => ("no path", Mood::Bad),
        (LinkState::Down, _) => ("down", Mood::Bad),
    }
}

fn of_link(link: &LinkStatus, paths: &[&PathStatus]) -> OfLink {
    let least = paths.iter().filter_map(|path| path.rtt_min_seconds);
    let rates = paths.iter().filter_map(|path| path.rate_bytes_per_second);
    OfLink {
        share: None,
        rtt_min: least.reduce(f64::min),
        rtt_high: None,
        cwnd_bytes: paths.iter().map(|path| path.cwnd_bytes).sum(),
        in_flight_bytes: paths.iter().map(|path| path.in_flight_bytes).sum(),
        rate: rates.reduce(f64::max),
        up_limit: link.up_limit_bytes_per_second,
    }
}

fn class(row: &Row, status: &Status) -> Entry {
    let mut tunnels = status.tunnels.iter();
    let tunnel = tunnels.find(|tunnel| tunnel.class == row.name);
    let (state, mood) = word(tunnel.map_or(State::Down, |tunnel| tunnel.state));
    Entry {
        key: key(Kind::Class, row),
        row: row.clone(),
        state,
        mood,
        more: More::Class {
            policy: tunnel.map(|tunnel| tunnel.policy),
            queue_seconds: tunnel.map_or(0.0, |tunnel| tunnel.queue.delay_seconds),
        },
    }
}

fn site(row: &Row, known: Option<&SiteStatus>) -> Entry {
    let away = known.filter(|site| site.is_away());
    let (state, mood) = match away {
        Some(_) => ("away", Mood::Bad),
        None if row.up => word(State::Up),
        None if row.paths_up > 0 => word(State::Degraded),
        None => word(State::Down),
    };
    Entry {
        key: key(Kind::Site, row),
        row: row.clone(),
        state,
        mood,
        more: More::Site {
            last_seen: away.and_then(|site| site.last_seen.clone()),
        },
    }
}

/// A state in a word.
pub(super) fn word(state: State) -> (&'static str, Mood) {
    match state {
        State::Up => ("up", Mood::Good),
        State::Connecting => ("connecting", Mood::Uneasy),
        State::Degraded => ("degraded", Mood::Uneasy),
        State::Down => ("down", Mood::Bad),
    }
}
