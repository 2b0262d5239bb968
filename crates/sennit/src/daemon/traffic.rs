//! What all classes do on a link together, at an edge and for each site of a hub.

use std::collections::BTreeMap;

use sennit_engine::{SiteId, facts::LinkFacts};

use crate::status::{
    LinkState, LinkStatus, LinkTraffic, PathState, PathStatus, PublicStatus, Sighting,
    SiteLinkStatus, SiteStatus, State, TunnelStatus,
};

/// Adds to the links of an edge what went over them.
pub(super) fn add(links: &mut [LinkStatus], facts: &[LinkFacts], tunnels: &[TunnelStatus]) {
    for link in links {
        let own = facts.iter().filter(|facts| facts.name == link.name);
        let paths = paths_on(tunnels, &link.name);
        link.traffic = traffic(own, &paths);
        link.public = PublicStatus::of(&sightings(&paths));
    }
}

/// Where the hub sees the paths of a link that are up.
fn sightings(paths: &[&PathStatus]) -> Vec<Sighting> {
    let up = paths.iter().filter(|path| path.state == PathState::Up);
    let seen = up.filter_map(|path| {
        Some(Sighting {
            local: path.local?,
            hub: path.remote,
            seen: path.observed?,
        })
    });
    seen.collect()
}

/// The sites of a hub, by name. `tunnels` are sorted by site.
pub(super) fn sites(tunnels: &[TunnelStatus], facts: &[LinkFacts]) -> Vec<SiteStatus> {
    let mut by_site: BTreeMap<&str, Vec<&LinkFacts>> = BTreeMap::new();
    for link in facts {
        let site = link.site.as_ref().map_or("", SiteId::as_str);
        by_site.entry(site).or_default().push(link);
    }
    let sites = tunnels.chunk_by(|one, other| one.site == other.site);
    let told = sites.map(|tunnels| {
        let known = by_site.get(tunnels[0].site.as_str());
        site(tunnels, known.map_or(&[], Vec::as_slice))
    });
    told.collect()
}

fn site(tunnels: &[TunnelStatus], facts: &[&LinkFacts]) -> SiteStatus {
    let mut names: Vec<&str> = facts.iter().map(|link| link.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let links = names.into_iter().map(|name| {
        let paths = paths_on(tunnels, name);
        let own = facts.iter().filter(|facts| facts.name == name).copied();
        let up = paths.iter().any(|path| path.state == PathState::Up);
        SiteLinkStatus {
            name: name.into(),
            state: if up { LinkState::Up } else { LinkState::Down },
            traffic: traffic(own, &paths),
        }
    });
    SiteStatus {
        name: tunnels[0].site.clone(),
        state: state(tunnels),
        last_seen: None,
        classes: tunnels.iter().map(|it| it.class.clone()).collect(),
        sent_bytes: tunnels.iter().map(|it| it.sent_bytes).sum(),
        received_bytes: tunnels.iter().map(|it| it.received_bytes).sum(),
        links: links.collect(),
        refused_lan: Vec::new(),
    }
}

fn state(tunnels: &[TunnelStatus]) -> State {
    let up = tunnels.iter().filter(|it| it.state == State::Up).count();
    match up {
        0 => tunnels[0].state,
        _ if up < tunnels.len() => State::Degraded,
        _ => State::Up,
    }
}

fn paths_on<'a>(tunnels: &'a [TunnelStatus], link: &str) -> Vec<&'a PathStatus> {
    let paths = tunnels.iter().flat_map(|tunnel| &tunnel.paths);
    paths
        .filter(|path| path.link.as_deref() == Some(link))
        .collect()
}

fn traffic<'a>(facts: impl Iterator<Item = &'a LinkFacts>, paths: &[&PathStatus]) -> LinkTraffic {
    let mut traffic = LinkTraffic::default();
    for link in facts {
        traffic.sent_bytes += link.sent_bytes;
        traffic.received_bytes += link.received_bytes;
        traffic.delivered_bytes_per_second += link.delivers.as_bytes_per_second_f64();
    }
    let up = paths.iter().filter(|path| path.state == PathState::Up);
    traffic.rtt_seconds = up
        .filter_map(|path| path.rtt_seconds)
        .min_by(f64::total_cmp);
    let sent: u64 = paths.iter().map(|path| path.recent_packets).sum();
    let lost: u64 = paths.iter().map(|path| path.recent_lost_packets).sum();
    traffic.loss_ratio = (sent > 0).then(|| lost as f64 / sent as f64);
    traffic
}

#[cfg(test)]
mod tests {
    use sennit_core::ClassId;
    use sennit_engine::LinkId;
    use sennit_packet::Bitrate;

    use super::*;
    use crate::daemon::tests::{link, path, tunnel};

    #[test]
    fn a_link_is_seen_by_its_paths_that_are_up() {
        let from = |local: &str, seen: &str, state| {
            let mut it = path("lte");
            (it.local, it.observed) = (local.parse().ok(), seen.parse().ok());
            it.state = state;
            it
        };
        let mut van = tunnel("van", "default");
        let (now, before) = ("198.51.100.7:1024", "198.51.100.9:1024");
        van.paths = vec![
            from("192.168.8.2:40000", now, PathState::Up),
            from("192.168.8.2:40000", before, PathState::Down),
        ];
        let mut links = [link("lte"), link("sat")];

        add(&mut links, &[], &[van]);

        assert_eq!(links[0].public[0].seen, [now.parse().unwrap()]);
        assert!(links[0].public[0].translated);
        assert!(links[1].public.is_empty(), "it is not known");
    }

    fn facts(site: Option<&str>, name: &str, sent_bytes: u64) -> LinkFacts {
        LinkFacts {
            id: LinkId(1),
            name: name.into(),
            site: site.map(Into::into),
            classes: vec![ClassId(0)],
            delivers: Bitrate::bytes_per_second(1000),
            sent_bytes,
            received_bytes: 1,
        }
    }

    #[test]
    fn a_sites_links_are_those_of_all_its_classes() {
        let mut ship = tunnel("ship", "voice");
        ship.state = State::Connecting;
        let mut lossy = path("lte");
        (lossy.recent_packets, lossy.recent_lost_packets) = (60, 10);
        lossy.rtt_seconds = Some(0.2);
        let mut rest = tunnel("ship", "rest");
        (ship.paths, rest.paths) = (vec![path("lte")], vec![lossy, path("sat")]);
        let facts = [
            facts(Some("ship"), "sat", 10),
            facts(Some("van"), "lte", 1000),
            facts(Some("ship"), "lte", 5),
            facts(Some("ship"), "lte", 7),
        ];

        let sites = sites(&[ship, rest, tunnel("van", "rest")], &facts);

        assert_eq!(sites[0].state, State::Degraded);
        let links: Vec<&str> = sites[0].links.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(links, ["lte", "sat"]);
        let lte = sites[0].links[0].traffic;
        assert_eq!((lte.sent_bytes, lte.received_bytes), (12, 2));
        assert_eq!(lte.rtt_seconds, Some(0.04), "the least");
        assert_eq!(lte.loss_ratio, Some(0.1), "10 of 60 and 40");
        assert_eq!(sites[1].links[0].traffic.sent_bytes, 1000);
        assert_eq!(sites[1].state, State::Up);
    }
}
