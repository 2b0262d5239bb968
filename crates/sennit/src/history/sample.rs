//! From what a daemon counts to what happened within a second.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use crate::status::{LinkState, PathState, Role, State, Status};

/// The series that there always is.
pub(super) const TOTAL: &str = "total";

/// Names of classes that one site brings; what goes over more of them is in the total only. A fleet
/// has the same few names at all its sites, and a site alone must not fill the file.
const MOST_OF_A_SITE: usize = 16;

/// What a daemon had counted at one moment, by series.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    at: Option<Instant>,
    series: BTreeMap<String, Count>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    sent: u64,
    received: u64,
    sent_packets: u64,
    lost_packets: u64,
    rtt: Option<f64>,
    up: bool,
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
        let mut series: BTreeMap<String, Count> = BTreeMap::new();
        for link in &status.links {
            let count = series.entry(format!("link/{}", link.name)).or_default();
            count.sent = link.traffic.sent_bytes;
            count.received = link.traffic.received_bytes;
            count.rtt = link.traffic.rtt_seconds;
            count.up = link.state == LinkState::Up;
        }
        let mut total = Count {
            up: matches!(status.state, State::Up | State::Degraded),
            ..Count::default()
        };
        let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for tunnel in &status.tunnels {
            let of_site = names.entry(tunnel.site.as_str()).or_default();
            let has_room = status.role == Role::Edge || of_site.len() < MOST_OF_A_SITE;
            let is_shown = of_site.contains(tunnel.class.as_str()) || has_room;
            let class = is_shown.then(|| {
                of_site.insert(&tunnel.class);
                let class = series.entry(format!("class/{}", tunnel.class));
                class.or_default()
            });
            for count in class.into_iter().chain([&mut total]) {
                count.sent += tunnel.sent_bytes;
                count.received += tunnel.received_bytes;
                count.up |= tunnel.state == State::Up;
            }
            for path in &tunnel.paths {
                let Some(link) = &path.link else { continue };
                if let Some(count) = series.get_mut(&format!("link/{link}")) {
                    count.sent_packets += path.sent_packets;
                    count.lost_packets += path.lost_packets;
                    count.up |= path.state == PathState::Up;
                }
            }
        }
        series.insert(TOTAL.into(), total);
        Self {
            at: Some(at),
            series,
        }
    }

    /// What happened since another moment, put down at `time`.
    pub(super) fn since(&self, before: &Self, time: u64) -> Vec<Row> {
        let (Some(at), Some(then)) = (self.at, before.at) else {
            return Vec::new();
        };
        let seconds = at.saturating_duration_since(then).as_secs_f64();
        if seconds <= 0.0 {
            return Vec::new();
        }
        let row = |(name, count): (&String, &Count)| {
            let old = before.series.get(name)?;
            // A counter that fell has begun anew.
            let grown = |new: u64, old: u64| {
                let grown = new.checked_sub(old).unwrap_or(new);
                grown as f64 / seconds
            };
            Some(Row {
                series: name.clone(),
                time,
                sent: grown(count.sent, old.sent),
                received: grown(count.received, old.received),
                sent_packets: grown(count.sent_packets, old.sent_packets),
                lost_packets: grown(count.lost_packets, old.lost_packets),
                rtt: count.rtt,
                up: f64::from(u8::from(count.up)),
            })
        };
        self.series.iter().filter_map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let counters = Counters::of(status, Instant::now());
            let of_site = |site| {
                let names = counters.series.keys();
                names.filter(|name| name.contains(site)).count()
            };
            let sent = counters.series[TOTAL].sent;
            (of_site("mallory"), of_site("van"), sent)
        };

        status.role = Role::Hub;
        assert_eq!(names(&status), (MOST_OF_A_SITE, 2, 66));
        status.role = Role::Edge;
        assert_eq!(names(&status), (64, 2, 66));
    }
}
