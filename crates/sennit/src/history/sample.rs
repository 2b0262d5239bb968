//! From what a daemon counts to what happened within a second.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use crate::{
    control::LinkRates,
    status::{self, LinkState, LinkStatus, PathState, Role, Status, TunnelStatus},
};

/// The series that there always is.
pub(super) const TOTAL: &str = "total";
/// What the series of a link begin with; its name follows.
const LINK: &str = "link/";

/// Names of classes that one site brings; what goes over more of them is in the total only. A fleet
/// has the same few names at all its sites, and a site alone must not fill the file.
const MOST_OF_A_SITE: usize = 16;

/// What a daemon had counted at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    at: Option<Instant>,
    series: BTreeMap<String, State>,
    parts: BTreeMap<Source, Part>,
}

/// How a series is, of which nothing is counted.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    rtt: Option<f64>,
    up: bool,
}

/// Who counts. What comes of several is added up only once it is known what each has grown by: they
/// come and go, with all that they have counted in their lives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Link(String),
    /// Of a site and a class.
    Tunnel(String, String),
    /// Of a site and a class, with the number of a path.
    Path(String, String, u64),
}

#[derive(Clone, Debug, Default)]
struct Part {
    /// The series that it is part of.
    of: Vec<String>,
    counted: Counted,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    sent: u64,
    received: u64,
    sent_packets: u64,
    lost_packets: u64,
}

/// One series within one step; all but the round trip are a second's.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) series: String,
    /// Seconds since 1970.
    pub(super) time: u64,
    pub(super) sent: f64,
    pub(super) received: f64,
    pub(super) sent_packets: f64,
    pub(super) lost_packets: f64,
    pub(super) rtt: Option<f64>,
    /// 0 to 1.
    pub(super) up: f64,
}

impl Counters {
    pub(super) fn of(status: &Status, at: Instant) -> Self {
        let mut counters = Self {
            at: Some(at),
            ..Self::default()
        };
        for link in &status.links {
            counters.add_link(link);
        }
        let total = State {
            up: matches!(status.state, status::State::Up | status::State::Degraded),
            rtt: None,
        };
        counters.series.insert(TOTAL.into(), total);
        let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for tunnel in &status.tunnels {
            let of_site = names.entry(tunnel.site.as_str()).or_default();
            let has_room = status.role == Role::Edge || of_site.len() < MOST_OF_A_SITE;
            let is_shown = has_room || of_site.contains(tunnel.class.as_str());
            if is_shown {
                of_site.insert(&tunnel.class);
            }
            counters.add_tunnel(tunnel, is_shown);
        }
        counters
    }

    fn add_link(&mut self, link: &LinkStatus) {
        let series = format!("{LINK}{}", link.name);
        let state = State {
            rtt: link.traffic.rtt_seconds,
            up: link.state == LinkState::Up,
        };
        self.series.insert(series.clone(), state);
        let counted = Counted {
            sent: link.traffic.sent_bytes,
            received: link.traffic.received_bytes,
            ..Counted::default()
        };
        let of = vec![series];
        let source = Source::Link(link.name.clone());
        self.parts.insert(source, Part { of, counted });
    }

    fn add_tunnel(&mut self, tunnel: &TunnelStatus, is_shown: bool) {
        let mut of = vec![TOTAL.to_owned()];
        of.extend(is_shown.then(|| format!("class/{}", tunnel.class)));
        for series in &of {
            let state = self.series.entry(series.clone()).or_default();
            state.up |= tunnel.state == status::State::Up;
        }
        let counted = Counted {
            sent: tunnel.sent_bytes,
            received: tunnel.received_bytes,
            ..Counted::default()
        };
        let (site, class) = (tunnel.site.to_string(), tunnel.class.clone());
        for path in &tunnel.paths {
            let Some(link) = &path.link else { continue };
            let series = format!("{LINK}{link}");
            let Some(state) = self.series.get_mut(&series) else {
                continue;
            };
            state.up |= path.state == PathState::Up;
            let counted = Counted {
                sent_packets: path.sent_packets,
                lost_packets: path.lost_packets,
                ..Counted::default()
            };
            let of = vec![series];
            let source = Source::Path(site.clone(), class.clone(), path.id);
            self.parts.insert(source, Part { of, counted });
        }
        self.parts
            .insert(Source::Tunnel(site, class), Part { of, counted });
    }

    /// What happened since another moment, put down at `time`. Who was not there then has a part
    /// from the next moment on.
    pub(super) fn since(&self, before: &Self, time: u64) -> Vec<Row> {
        let (Some(at), Some(then)) = (self.at, before.at) else {
            return Vec::new();
        };
        let seconds = at.saturating_duration_since(then).as_secs_f64();
        if seconds <= 0.0 {
            return Vec::new();
        }
        let known = self.series.iter();
        let known = known.filter(|(name, _)| before.series.contains_key(*name));
        let rows = known.map(|(name, state)| (name.as_str(), state.row(name, time)));
        let mut rows: BTreeMap<&str, Row> = rows.collect();
        for (source, part) in &self.parts {
            let Some(old) = before.parts.get(source) else {
                continue;
            };
            for series in &part.of {
                if let Some(row) = rows.get_mut(series.as_str()) {
                    row.add(&part.counted, &old.counted, seconds);
                }
            }
        }
        rows.into_values().collect()
    }
}

/// What went over links in the second of these rows.
pub(super) fn link_rates(rows: &[Row]) -> LinkRates {
    let links = rows.iter().filter_map(|row| {
        let name = row.series.strip_prefix(LINK)?;
        Some((name.to_owned(), [row.sent, row.received]))
    });
    links.collect()
}

impl State {
    /// A step in which nothing was counted.
    fn row(self, name: &str, time: u64) -> Row {
        Row {
            series: name.to_owned(),
            time,
            sent: 0.0,
            received: 0.0,
            sent_packets: 0.0,
            lost_packets: 0.0,
            rtt: self.rtt,
            up: f64::from(u8::from(self.up)),
        }
    }
}

impl Row {
    fn add(&mut self, new: &Counted, old: &Counted, seconds: f64) {
        // A counter that fell has begun anew.
        let grown = |new: u64, old: u64| new.checked_sub(old).unwrap_or(new) as f64 / seconds;
        self.sent += grown(new.sent, old.sent);
        self.received += grown(new.received, old.received);
        self.sent_packets += grown(new.sent_packets, old.sent_packets);
        self.lost_packets += grown(new.lost_packets, old.lost_packets);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The lives of others are no traffic of the second in which they come back.
    #[test]
    fn a_tunnel_that_comes_or_goes_adds_nothing_of_what_it_had_counted() {
        let full = include_str!("../../tests/parts/schema/full.json");
        let mut both: Status = serde_json::from_str(full).unwrap();
        both.tunnels.truncate(1);
        let mut other = both.tunnels[0].clone();
        (both.tunnels[0].sent_bytes, other.sent_bytes) = (10_000, 1_000_000);
        other.site = "ship".parse().unwrap();
        let mut alone = both.clone();
        both.tunnels.push(other);
        let start = Instant::now();
        let mut sent = Vec::new();
        let mut before = Counters::of(&both, start);
        for (second, status) in (1..).zip([&mut alone, &mut both.clone(), &mut both]) {
            status.tunnels[0].sent_bytes += 5 * second;
            let now = Counters::of(status, start + Duration::from_secs(second));
            let rows = now.since(&before, second);
            let total = rows.iter().find(|row| row.series == TOTAL);
            sent.push(total.map(|row| row.sent));
            before = now;
        }
        assert_eq!(sent, [Some(5.0); 3]);
    }

    #[test]
    fn links_are_told_what_they_carried_in_a_second() {
        let full = include_str!("../../tests/parts/schema/full.json");
        let mut status: Status = serde_json::from_str(full).unwrap();
        let start = Instant::now();
        let before = Counters::of(&status, start);
        status.links[0].traffic.sent_bytes += 500;
        status.links[0].traffic.received_bytes += 3_000;
        let now = Counters::of(&status, start + Duration::from_secs(2));

        let rates = link_rates(&now.since(&before, 0));

        assert_eq!(rates, LinkRates::from([("lte".into(), [250.0, 1500.0])]));
    }

    #[test]
    fn a_site_at_a_hub_brings_a_few_names_and_all_that_it_sends_is_in_the_total() {
        let full = include_str!("../../tests/parts/schema/full.json");
        let mut status: Status = serde_json::from_str(full).unwrap();
        status.links.clear();
        let mut tunnel = status.tunnels.remove(0);
        (tunnel.sent_bytes, status.tunnels) = (1, Vec::new());
        for (site, classes) in [("mallory", 64), ("van", 2)] {
            for number in 0..classes {
                tunnel.site = site.parse().unwrap();
                tunnel.class = format!("{site}-{number}");
                status.tunnels.push(tunnel.clone());
            }
        }
        let names = |status: &Status| {
            let start = Instant::now();
            let before = Counters::of(status, start);
            let mut later = status.clone();
            for tunnel in &mut later.tunnels {
                tunnel.sent_bytes += 1;
            }
            let later = Counters::of(&later, start + Duration::from_secs(1));
            let rows = later.since(&before, 0);
            let of_site = |site| rows.iter().filter(|row| row.series.contains(site)).count();
            let total = rows.iter().find(|row| row.series == TOTAL);
            let sent = total.map_or(0.0, |row| row.sent);
            (of_site("mallory"), of_site("van"), sent)
        };

        status.role = Role::Hub;
        assert_eq!(names(&status), (MOST_OF_A_SITE, 2, 66.0));
        status.role = Role::Edge;
        assert_eq!(names(&status), (64, 2, 66.0));
    }
}
