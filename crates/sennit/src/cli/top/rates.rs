//! What passes now: the difference of two looks at a daemon.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;

use crate::status::{
    LinkState, PathState, PathStatus, Role, SiteStatus, State, Status, TunnelStatus,
};

/// A look at a daemon.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) status: Status,
    pub(super) at: Instant,
}

/// What `top --json` prints.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Now {
    pub(super) schema: &'static str,
    pub(super) role: Role,
    pub(super) state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    pub(super) device: String,
    pub(super) uptime_seconds: f64,
    /// Of an edge.
    pub(super) links: Vec<Row>,
    /// Of an edge its classes, of a hub its sites, those first that need a look.
    pub(super) tunnels: Vec<Row>,
}

/// A link, a class or a site.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) up: bool,
    pub(super) paths: usize,
    pub(super) paths_up: usize,
    pub(super) sent_bytes_per_second: f64,
    pub(super) received_bytes_per_second: f64,
    /// The least of its paths that are up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rtt_seconds: Option<f64>,
    /// The greatest of its paths that are up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) loss_ratio: Option<f64>,
    /// Why it is not up, or of a link why it carries what it carries.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) why: String,
}

/// Bytes sent and received.
type Carried = (u64, u64);

impl Seen {
    pub(super) fn new(status: Status, at: Instant) -> Self {
        Self { status, at }
    }

    pub(super) fn paths<'s>(&'s self, link: &'s str) -> impl Iterator<Item = &'s PathStatus> {
        let paths = self.status.tunnels.iter().flat_map(|it| &it.paths);
        paths.filter(move |path| path.link.as_deref() == Some(link))
    }

    fn carried_by_link(&self, link: &str) -> Carried {
        let carried = self
            .paths(link)
            .map(|it| (it.sent_bytes, it.received_bytes));
        carried.fold((0, 0), add)
    }

    /// Packets that were sent over a link, and those of them that were lost.
    fn packets_by_link(&self, link: &str) -> (u64, u64) {
        let packets = self
            .paths(link)
            .map(|it| (it.sent_packets, it.lost_packets));
        packets.fold((0, 0), add)
    }

    /// Packets that queues have dropped since the tunnels began.
    pub(super) fn dropped_packets(&self) -> u64 {
        let queues = self.status.tunnels.iter().map(|tunnel| &tunnel.queue);
        let dropped = queues.map(|queue| queue.dropped_packets + queue.overflowed_packets);
        dropped.sum()
    }

    /// By class, or at a hub by site.
    fn tunnels(&self) -> BTreeMap<String, Vec<&TunnelStatus>> {
        let mut groups: BTreeMap<String, Vec<&TunnelStatus>> = BTreeMap::new();
        for tunnel in &self.status.tunnels {
            let name = match self.status.role {
                Role::Edge => tunnel.class.clone(),
                Role::Hub => tunnel.site.to_string(),
            };
            groups.entry(name).or_default().push(tunnel);
        }
        groups
    }
}

impl Now {
    pub(super) fn between(before: &Seen, seen: &Seen) -> Self {
        let span = seen.at.duration_since(before.at).as_secs_f64();
        let status = &seen.status;
        let links = status.links.iter().map(|link| {
            let paths: Vec<&PathStatus> = seen.paths(&link.name).collect();
            let carried = [before, seen].map(|it| it.carried_by_link(&link.name));
            let why = paths.iter().map(|path| path.why.clone()).next();
            Row {
                name: link.name.clone(),
                up: link.state == LinkState::Up,
                why: link.reason.clone().or(why).unwrap_or_default(),
                ..Row::new(&paths, carried, span)
            }
        });
        let earlier = before.tunnels();
        let tunnels = seen.tunnels().into_iter().map(|(name, tunnels)| {
            let old = earlier.get(&name).map_or(&[][..], |old| old);
            let paths: Vec<&PathStatus> = tunnels.iter().flat_map(|it| &it.paths).collect();
            let carried = [old, &tunnels].map(carried_by_tunnels);
            let why = tunnels.iter().find_map(|it| it.reason.clone());
            let why = why.or_else(|| paths.iter().find_map(|path| path_trouble(path)));
            Row {
                name,
                up: tunnels.iter().all(|tunnel| tunnel.state == State::Up),
                why: why.unwrap_or_default(),
                ..Row::new(&paths, carried, span)
            }
        });
        let mut tunnels: Vec<Row> = tunnels.collect();
        if status.role == Role::Hub {
            let away = status.sites.iter().filter(|site| site.is_away());
            tunnels.extend(away.map(Row::away));
            tunnels.sort_by_key(Row::need);
        }
        Self {
            schema: "sennit.top/1",
            role: status.role,
            state: status.state,
            reason: status.reason.clone(),
            device: status.device.clone(),
            uptime_seconds: status.uptime_seconds,
            links: links.collect(),
            tunnels,
        }
    }

    /// Rows of both lists.
    pub(super) fn rows(&self) -> usize {
        self.links.len() + self.tunnels.len()
    }
}

/// Of the packets that were sent over a link between two looks, 0 to 1.
pub(super) fn loss_between(before: &Seen, seen: &Seen, link: &str) -> Option<f64> {
    let [then, now] = [before, seen].map(|it| it.packets_by_link(link));
    let sent = now.0.checked_sub(then.0).filter(|sent| *sent > 0)?;
    let lost = now.1.saturating_sub(then.1).min(sent);
    Some(lost as f64 / sent as f64)
}

/// How much a site needs a look; the least needs it most.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Need {
    up: bool,
    paths_missing: Reverse<usize>,
    lost_permille: Reverse<u32>,
}

/// What is wrong with a path, by the name of its link.
fn path_trouble(path: &PathStatus) -> Option<String> {
    let reason = path.reason.as_ref()?;
    Some(match &path.link {
        Some(link) if path.state != PathState::Up => format!("{link}: {reason}"),
        _ => return None,
    })
}

impl Row {
    fn need(&self) -> Need {
        Need {
            up: self.up,
            paths_missing: Reverse(self.paths - self.paths_up),
            lost_permille: Reverse((self.loss_ratio.unwrap_or(0.0) * 1e3) as u32),
        }
    }

    fn away(site: &SiteStatus) -> Self {
        let seen = site.last_seen.as_deref();
        Self {
            name: site.name.to_string(),
            why: seen.map_or("away".into(), |seen| format!("away, last here {seen}")),
            ..Self::default()
        }
    }

    fn new(paths: &[&PathStatus], [before, now]: [Carried; 2], span: f64) -> Self {
        // What was counted by a path that is gone since is not to be had any more.
        let rate = |before: u64, now: u64| {
            if span > 0.0 {
                now.saturating_sub(before) as f64 / span
            } else {
                0.0
            }
        };
        let up = || paths.iter().filter(|path| path.state == PathState::Up);
        let rtts = up().filter_map(|path| path.rtt_seconds);
        let losses = up().filter_map(|path| path.loss_ratio);
        Self {
            paths: paths.len(),
            paths_up: up().count(),
            sent_bytes_per_second: rate(before.0, now.0),
            received_bytes_per_second: rate(before.1, now.1),
            rtt_seconds: rtts.reduce(f64::min),
            loss_ratio: losses.reduce(f64::max),
            ..Self::default()
        }
    }
}

fn carried_by_tunnels(tunnels: &[&TunnelStatus]) -> Carried {
    let carried = tunnels.iter().map(|it| (it.sent_bytes, it.received_bytes));
    carried.fold((0, 0), add)
}

fn add(one: Carried, other: Carried) -> Carried {
    (one.0 + other.0, one.1 + other.1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_passes_is_counted_from_one_look_to_the_next() {
        let full = include_str!("../../../tests/parts/schema/full.json");
        let mut status: Status = serde_json::from_str(full).unwrap();
        let link = status.links[0].name.clone();
        let path = &mut status.tunnels[0].paths[0];
        path.link = Some(link.clone());
        let before = Seen::new(status.clone(), Instant::now());
        status.tunnels[0].paths[0].sent_bytes += 3_000;
        status.tunnels[0].received_bytes += 500;
        // Its counters began anew meanwhile.
        status.tunnels[0].sent_bytes = 0;
        let after = Seen::new(status, before.at + Duration::from_secs(2));

        let now = Now::between(&before, &after);

        let row = |rows: &[Row], name: &str| rows.iter().find(|row| row.name == name).cloned();
        let of_link = row(&now.links, &link).unwrap();
        assert_eq!(of_link.sent_bytes_per_second, 1_500.0);
        let class = after.status.tunnels[0].class.as_str();
        let of_class = row(&now.tunnels, class).unwrap();
        assert_eq!(of_class.received_bytes_per_second, 250.0);
        assert_eq!(of_class.sent_bytes_per_second, 0.0);
    }

    #[test]
    fn a_hub_lists_the_sites_first_that_need_a_look() {
        let mut status: Status =
            serde_json::from_str(include_str!("../../../tests/parts/schema/full.json")).unwrap();
        status.role = Role::Hub;
        let mut tunnel = status.tunnels.swap_remove(0);
        tunnel.state = State::Up;
        tunnel.reason = None;
        tunnel.paths.truncate(1);
        let path = &mut tunnel.paths[0];
        (path.state, path.loss_ratio) = (PathState::Up, Some(0.0));
        let site = |name: &str, change: &dyn Fn(&mut TunnelStatus)| {
            let mut tunnel = tunnel.clone();
            tunnel.site = name.parse().unwrap();
            change(&mut tunnel);
            tunnel
        };
        status.tunnels = vec![
            site("all-well", &|_| {}),
            site("down", &|it| it.state = State::Down),
            site("half", &|it| {
                let path = &mut it.paths[0];
                (path.link, path.state) = (Some("lte".into()), PathState::Down);
                path.reason = Some("nothing is heard".into());
            }),
            site("lossy", &|it| it.paths[0].loss_ratio = Some(0.2)),
        ];
        let away = &mut status.sites[0];
        away.name = "away".parse().unwrap();
        away.classes.clear();
        away.last_seen = Some("2026-11-26T21:30:00Z".into());
        let now = Instant::now();

        let seen = Now::between(&Seen::new(status.clone(), now), &Seen::new(status, now));

        let names: Vec<&str> = seen.tunnels.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["down", "away", "half", "lossy", "all-well"]);
        assert_eq!(seen.tunnels[1].why, "away, last here 2026-11-26T21:30:00Z");
        assert_eq!(seen.tunnels[2].why, "lte: nothing is heard");
    }
}
