//! Why a flow goes where it goes, in plain words.

use sennit_core::{Policy, numbering::THIN};
use sennit_engine::facts::{FlowStatus, PathStatus, TunnelStatus};

use super::{IDLE, delay, usable};
use crate::status::{self, Placement};

/// What a flow does with the links, in the direction that this end sends.
#[derive(Debug)]
pub(in crate::daemon) struct Placed {
    pub(in crate::daemon) placement: Placement,
    /// It sends too little to fill a link.
    pub(in crate::daemon) thin: bool,
    /// Links with their part of what it sent of late, 0 to 1, the greatest first.
    pub(in crate::daemon) links: Vec<(String, f64)>,
    /// Sentences, the most telling first.
    pub(in crate::daemon) why: Vec<String>,
}

/// Where a flow goes, and why.
pub(in crate::daemon) fn place(tunnel: &TunnelStatus, flow: &FlowStatus) -> Placed {
    let links = links(tunnel, flow);
    let thin = flow.account.rate < THIN;
    let used = links.iter().filter(|(_, share)| *share >= IDLE).count();
    let placement = match (used, tunnel.treatment.policy) {
        (0, _) => Placement::Silent,
        (1, _) => Placement::OneLink,
        (_, Policy::Redundant) => Placement::Copies,
        (_, Policy::Single | Policy::Failover | Policy::Balanced | Policy::Bond) => {
            Placement::Striped
        }
    };
    let mut why = vec![placed(tunnel, flow, placement, &names(&links))];
    if placement != Placement::Silent {
        why.extend(striping(tunnel, placement, thin));
        why.push(order(tunnel, flow, placement));
        why.push(queue(flow));
        why.extend(headers(tunnel));
    }
    match flow.account.neighbours {
        0 => {}
        1 => why.push("shares its queue with another flow, and waits for it too".into()),
        more => why.push(format!(
            "shares its queue with {more} other flows, and waits for them too"
        )),
    }
    Placed {
        placement,
        thin,
        links,
        why,
    }
}

/// What thin headers bring to the flow's class.
fn headers(tunnel: &TunnelStatus) -> Option<String> {
    let stats = &tunnel.stats;
    let each = stats.thin_saved.checked_div(stats.thin_sent)?;
    let part = 100 * stats.thin_sent / stats.packets_in.max(stats.thin_sent);
    Some(format!(
        "headers are thin: {part} % of its class's packets left {each} bytes shorter"
    ))
}

fn links(tunnel: &TunnelStatus, flow: &FlowStatus) -> Vec<(String, f64)> {
    let total: f64 = flow.paths.iter().map(|&(_, bytes)| f64::from(bytes)).sum();
    let name = |id| {
        let path = tunnel.paths.iter().find(|path| path.id == id);
        path.map_or_else(|| format!("path {id}"), |path| path.link.name.clone())
    };
    let mut links: Vec<(String, f64)> = flow
        .paths
        .iter()
        .filter(|&&(_, bytes)| bytes > 0)
        .map(|&(id, bytes)| (name(id), f64::from(bytes) / total))
        .collect();
    links.sort_by(|a, b| b.1.total_cmp(&a.1));
    links
}

/// `a`, `a and b` or `a, b and c`, without those that carried next to nothing.
fn names(links: &[(String, f64)]) -> String {
    let used = links.iter().filter(|(_, share)| *share >= IDLE);
    let mut names: Vec<&str> = used.map(|(name, _)| name.as_str()).collect();
    let last = names.pop().unwrap_or_default();
    if names.is_empty() {
        return last.into();
    }
    format!("{} and {last}", names.join(", "))
}

/// Why it is on these links.
fn placed(tunnel: &TunnelStatus, flow: &FlowStatus, placement: Placement, links: &str) -> String {
    let policy = tunnel.treatment.policy;
    match (placement, policy) {
        (Placement::Silent, _) => {
            let seconds = flow.account.silent.as_secs();
            format!("silent: its last packet left {seconds} s ago")
        }
        (Placement::Copies, _) => {
            format!("copied: each packet goes over {links}, and the copy that comes first counts")
        }
        (_, Policy::Redundant) => format!("on {links} alone: no other link can take a copy"),
        (_, Policy::Single | Policy::Failover) => {
            format!("on {links}: policy {policy} uses one link at a time for all of its class")
        }
        (Placement::Striped, Policy::Balanced) => {
            format!("on {links}: it moved, because the links that work are others now")
        }
        (Placement::OneLink, Policy::Balanced) => {
            format!("pinned to {links}: policy balanced keeps each flow on one link")
        }
        (Placement::Striped, Policy::Bond) => striped(tunnel, links),
        (Placement::OneLink, Policy::Bond) => on_one(tunnel, flow, links),
    }
}

/// The links that a bond uses now, the one with the least delay first.
fn peers(tunnel: &TunnelStatus) -> Vec<&PathStatus> {
    let tier = usable(tunnel).map(|path| path.link.tier).min();
    let mut peers: Vec<&PathStatus> = usable(tunnel)
        .filter(|path| Some(path.link.tier) == tier)
        .collect();
    peers.sort_by_key(|path| (delay(path), path.id));
    peers
}

fn striped(tunnel: &TunnelStatus, links: &str) -> String {
    match peers(tunnel).first() {
        Some(first) => {
            let first = &first.link.name;
            format!("striped over {links}: there is more to send than {first} carries")
        }
        None => format!("striped over {links}"),
    }
}

fn on_one(tunnel: &TunnelStatus, flow: &FlowStatus, link: &str) -> String {
    let peers = peers(tunnel);
    let Some(first) = peers.first().map(|path| &path.link.name) else {
        return format!("on {link}");
    };
    if first != link {
        return format!(
            "on {link}, although {first} has less delay: {first} is full, or late by what it loses"
        );
    }
    if peers.len() == 1 {
        format!("on {link}: no other link may be used now")
    } else if flow.account.rate < THIN {
        format!("thin: it needs little, and {link} has the least delay")
    } else {
        format!("on {link} alone: it has the least delay, and room for all of it")
    }
}

/// What decides how soon a slower link is used: one account for all flows of a class.
fn striping(tunnel: &TunnelStatus, placement: Placement, thin: bool) -> Option<String> {
    let peers = peers(tunnel);
    let first = &peers.first()?.link.name;
    let concerned = placement == Placement::Striped || !thin;
    if tunnel.treatment.policy != Policy::Bond || peers.len() < 2 || !concerned {
        return None;
    }
    let account = tunnel.striping;
    let wait = account.wait.as_millis();
    if account.gained == 0 {
        return Some(format!(
            "would wait up to {wait} ms for {first} before a slower link takes a packet"
        ));
    }
    let verdict = match account.pays() {
        Some(true) => "striping pays",
        Some(false) => "striping does not pay",
        None => "striping pays little",
    };
    let [gained, missed] = [account.gained, account.missed].map(status::bytes);
    Some(format!(
        "{verdict}: lately slower links carried {gained} of its class, and {first} could have \
         carried {missed} while nothing waited; so packets wait up to {wait} ms for {first}"
    ))
}

fn order(tunnel: &TunnelStatus, flow: &FlowStatus, placement: Placement) -> String {
    let words = if !tunnel.numbered {
        "not put in order: the other end is no Sennit"
    } else if !flow.account.ordered {
        "not put in order: what sends little, like a call or acknowledgements, wants it at once"
    } else if placement == Placement::OneLink {
        "put in order at the far end, which costs nothing over one link"
    } else {
        "put in order at the far end: a transfer takes what is overtaken for lost"
    };
    words.into()
}

/// How long its packets wait here, and what that cost.
fn queue(flow: &FlowStatus) -> String {
    let (now, before) = (flow.queue.stats, flow.account.before);
    let waits = flow.queue.stats.stood.as_secs_f64() * 1e3;
    let dropped = now.dropped - before.dropped;
    let marked = now.marked - before.marked;
    let overflowed = now.overflowed - before.overflowed;
    let mut words = format!("waits {waits:.1} ms here");
    if dropped + marked > 0 {
        words += &format!("; to slow it down, {dropped} packets were dropped and {marked} marked");
    } else {
        words += ", and nothing had to slow it down";
    }
    if overflowed > 0 {
        words += &format!("; {overflowed} were dropped because the queue was full");
    }
    words
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::{Duration, Instant};

    use sennit_core::{Flows, PathSet, schedule::Striping};
    use sennit_engine::Treatment;

    use super::super::tests::{path, tunnel};
    use super::*;

    /// A flow of 1000-byte packets, so many of them on each path within a second.
    pub(in crate::daemon::why) fn flow(packets: [u32; 2]) -> FlowStatus {
        let mut packet = vec![0; 1000];
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&1000_u16.to_be_bytes());
        packet[9] = 132;
        let now = Instant::now();
        let mut flows = Flows::default();
        for (path, count) in packets.into_iter().enumerate() {
            for _ in 0..count {
                let on = PathSet::default().with(path);
                flows.handle_sent(7, &packet, true, on, Default::default, now);
            }
        }
        let (accounts, _) = flows.busiest(None, 1, now);
        FlowStatus {
            account: accounts[0],
            paths: (0..2).zip(accounts[0].paths).collect(),
            queue: Default::default(),
        }
    }

    fn bond() -> TunnelStatus {
        let paths = vec![path(0, "fibre", 1, 20, 300), path(1, "lte", 1, 60, 75)];
        tunnel(Policy::Bond, paths)
    }

    #[test]
    fn a_striped_flow_says_whether_that_pays() {
        let mut tunnel = bond();
        tunnel.striping = Striping {
            wait: Duration::from_millis(5),
            gained: 2_000_000,
            missed: 0,
        };

        let placed = place(&tunnel, &flow([3000, 1000]));

        assert_eq!(placed.placement, Placement::Striped);
        assert_eq!(placed.links, [("fibre".into(), 0.75), ("lte".into(), 0.25)]);
        assert_eq!(
            placed.why[0],
            "striped over fibre and lte: there is more to send than fibre carries"
        );
        assert!(placed.why[1].starts_with("striping pays: lately slower links carried 1.9 MiB"));
        assert!(placed.why[2].starts_with("put in order at the far end: "));

        tunnel.striping.missed = 1_500_000;
        let placed = place(&tunnel, &flow([3000, 1000]));
        assert!(placed.why[1].starts_with("striping does not pay"));
    }

    #[test]
    fn what_is_on_one_link_says_why_it_is_not_on_more() {
        let mut tunnel = bond();
        let first = |tunnel: &TunnelStatus, packets| place(tunnel, &flow(packets)).why[0].clone();
        assert_eq!(
            first(&tunnel, [10, 0]),
            "thin: it needs little, and fibre has the least delay"
        );
        assert_eq!(
            first(&tunnel, [1000, 0]),
            "on fibre alone: it has the least delay, and room for all of it"
        );
        assert!(first(&tunnel, [0, 1000]).starts_with("on lte, although fibre has less delay"));

        tunnel.paths[0].state = sennit_core::PathState::Suspect;
        assert_eq!(
            first(&tunnel, [0, 10]),
            "on lte: no other link may be used now"
        );
    }

    #[test]
    fn every_policy_has_its_own_words() {
        let placed = |policy, packets| {
            let mut tunnel = bond();
            tunnel.treatment = Treatment {
                policy,
                ..Treatment::default()
            };
            let placed = place(&tunnel, &flow(packets));
            (placed.placement, placed.why[0].clone())
        };
        let (placement, why) = placed(Policy::Balanced, [0, 1000]);
        assert_eq!(placement, Placement::OneLink);
        assert!(why.starts_with("pinned to lte"), "{why}");
        let (placement, why) = placed(Policy::Redundant, [1000, 1000]);
        assert_eq!(placement, Placement::Copies);
        assert!(why.starts_with("copied"), "{why}");
        let (_, why) = placed(Policy::Single, [1000, 0]);
        assert!(why.contains("policy single uses one link"), "{why}");
    }

    #[test]
    fn drops_and_neighbours_are_told() {
        let mut flow = flow([1000, 0]);
        flow.account.before.dropped = 5;
        flow.queue.stats.dropped = 12;
        flow.queue.stats.stood = Duration::from_millis(8);
        flow.account.neighbours = 2;

        let why = place(&bond(), &flow).why.join("\n");

        assert!(why.contains("waits 8.0 ms here; to slow it down, 7 packets were dropped"));
        assert!(why.contains("shares its queue with 2 other flows"));
    }
}
