//! Why each link carries what it carries, and why a flow goes where it goes: the answers of
//! `sennit why`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FlowStatus, PathState, Role, SharedStatus, State, Status, TunnelStatus, table};

/// One path of one tunnel.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Reason {
    /// At a hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    pub class: String,
    pub link: String,
    pub state: PathState,
    /// Of what the tunnel sent lately, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_ratio: Option<f64>,
    pub why: String,
}

/// Where a packet would go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PacketReason {
    /// Absent at a hub if no rule matches: each site has a class of its own for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The rule by which it goes there, as the config could have it; absent if no rule matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Where it would go instead, if what the description leaves open is so; the first counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unless: Vec<PacketException>,
    pub why: String,
}

/// A class that a packet would take before the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketException {
    pub class: String,
    pub rule: String,
    /// What must be so, like `it came in by eth1.20`.
    pub condition: String,
}

/// One flow of one tunnel.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FlowReason {
    /// At a hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    pub class: String,
    pub direction: Direction,
    #[serde(flatten)]
    pub flow: FlowStatus,
}

/// Each end decides for what it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    EdgeToHub,
    HubToEdge,
}

/// The reasons for all paths, or for those on one link.
pub fn reasons(status: &Status, link: Option<&str>) -> Vec<Reason> {
    let mut all = Vec::new();
    for tunnel in &status.tunnels {
        let site = site(status, tunnel);
        all.extend(tunnel.paths.iter().map(|path| Reason {
            site: site.clone(),
            class: tunnel.class.clone(),
            link: path.name(),
            state: path.state,
            share_ratio: path.share_ratio,
            why: path.why.clone(),
        }));
        all.extend(absent(status, tunnel));
    }
    all.retain(|reason| link.is_none_or(|link| reason.link == link));
    all
}

/// An edge's links on which a tunnel has no path.
fn absent<'a>(status: &'a Status, tunnel: &'a TunnelStatus) -> impl Iterator<Item = Reason> + 'a {
    let links = status.links.iter().filter(|link| {
        let mut paths = tunnel.paths.iter();
        !paths.any(|path| path.link.as_ref() == Some(&link.name))
    });
    links.map(|link| {
        let may_use = tunnel.links.as_ref();
        let is_left = may_use.is_some_and(|links| !links.contains(&link.name));
        let is_asked = tunnel.unanswered.iter().any(|it| it.link == link.name);
        let known = link.reason.as_ref().or(link.hub.as_ref());
        // One that is up says of its paths why it is where it is.
        let down = tunnel.reason.as_ref();
        let down = down.filter(|_| tunnel.state != State::Up);
        let known = known.or(down).map(String::as_str);
        let why = match known {
            _ if is_left => "the class keeps to other links",
            Some(why) => why,
            None if is_asked => "the hub was asked for one just now",
            None => "none is tried at the moment",
        };
        Reason {
            site: None,
            class: tunnel.class.clone(),
            link: link.name.clone(),
            state: PathState::Down,
            share_ratio: None,
            why: format!("no path: {why}"),
        }
    })
}

/// The reasons for the flows that the status tells of.
pub fn flow_reasons(status: &Status) -> Vec<FlowReason> {
    let reasons = status.tunnels.iter().flat_map(|tunnel| {
        tunnel.flows.iter().map(|flow| FlowReason {
            site: site(status, tunnel),
            class: tunnel.class.clone(),
            direction: direction(status),
            flow: flow.clone(),
        })
    });
    reasons.collect()
}

fn site(status: &Status, tunnel: &TunnelStatus) -> Option<String> {
    (status.role == Role::Hub).then(|| tunnel.site.to_string())
}

fn direction(status: &Status) -> Direction {
    match status.role {
        Role::Edge => Direction::EdgeToHub,
        Role::Hub => Direction::HubToEdge,
    }
}

/// One line each, under a heading for each tunnel.
pub fn render_reasons(reasons: &[Reason]) -> String {
    let width = reasons
        .iter()
        .map(|reason| reason.link.chars().count())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    let mut heading = None;
    for reason in reasons {
        let tunnel = match &reason.site {
            Some(site) => format!("site {site}, class {}", reason.class),
            None => format!("class {}", reason.class),
        };
        if heading.as_ref() != Some(&tunnel) {
            text += &format!("{tunnel}\n");
            heading = Some(tunnel);
        }
        let share = reason
            .share_ratio
            .map_or("-".into(), |share| format!("{:.0} %", 100.0 * share));
        text += &format!("  {:width$}  {share:>5}  {}\n", reason.link, reason.why);
    }
    printable(&text)
}

/// A line for each direction of each link that classes share: what is given out there, and why so
/// much. Nothing if they share none, or not this one.
pub fn render_shared(status: &Status, link: Option<&str>) -> String {
    let ours = match status.role {
        Role::Edge => "up",
        Role::Hub => "down",
    };
    let mut known: BTreeMap<(String, &str), &SharedStatus> = BTreeMap::new();
    for tunnel in &status.tunnels {
        let site = site(status, tunnel).map(|site| format!(" of site {site}"));
        let paths = tunnel.paths.iter();
        for path in paths.filter(|path| link.is_none_or(|link| path.name() == link)) {
            let name = path.name() + site.as_deref().unwrap_or_default();
            for (way, shared) in [(ours, &path.shared), ("down", &path.shared_down)] {
                let Some(shared) = shared else { continue };
                // Each class is told of it at another time.
                let latest = known.entry((name.clone(), way)).or_insert(shared);
                if shared.told_seconds < latest.told_seconds {
                    *latest = shared;
                }
            }
        }
    }
    let lines = known.iter().map(|((name, way), shared)| {
        let far = shared.told_seconds.map_or("", |_| ", says the hub");
        format!("  {name} {way}: {}{far}\n", estimate(shared))
    });
    let lines: String = lines.collect();
    match lines.is_empty() {
        true => lines,
        false => printable(&format!("links that classes share\n{lines}")),
    }
}

/// What a link is taken to carry, and why.
fn estimate(shared: &SharedStatus) -> String {
    let why = match shared.link_cause.as_str() {
        "configured" => "by what the config says",
        "queue" => "less than it carries, while a queue in it drains",
        "clear" => "no queue stands in it, and not all of it is used",
        "rises" => "all of it is used and no queue shows, so more is tried",
        "stalled" => "nothing arrives, so what was found before holds",
        _ => return "no queue has shown yet, so nobody is held back".into(),
    };
    match shared.link_bytes_per_second {
        Some(given) => format!("{} are given out: {why}", table::rate(given)),
        None => why.into(),
    }
}

/// A line for each flow that the status tells of, under a heading for each tunnel.
pub fn render_busiest(status: &Status) -> String {
    let mut text = String::new();
    for tunnel in &status.tunnels {
        let told = match tunnel.flow_count {
            0 => "no flow within a minute".into(),
            count if count > tunnel.flows.len() as u64 => {
                format!("the busiest {} of {count} flows", tunnel.flows.len())
            }
            1 => "1 flow".into(),
            count => format!("{count} flows"),
        };
        text += &format!("{}: {told}\n", heading(status, tunnel));
        for flow in &tunnel.flows {
            let rate = table::rate(flow.rate_bytes_per_second);
            text += &format!("  {rate:>9}  {}  ({})\n", flow.flow, links(flow));
        }
    }
    printable(&text)
}

/// All that is known of the flows that the status tells of, under a heading for each tunnel.
pub fn render_flows(status: &Status) -> String {
    let mut text = String::new();
    for tunnel in status.tunnels.iter().filter(|it| !it.flows.is_empty()) {
        text += &format!("{}\n", heading(status, tunnel));
        for flow in &tunnel.flows {
            text += &format!(
                "  {}\n    {}, {} in {}; {}\n",
                flow.flow,
                table::rate(flow.rate_bytes_per_second),
                table::bytes(flow.sent_bytes),
                table::duration(flow.age_seconds),
                links(flow),
            );
            for why in &flow.why {
                text += &table::wrap("    - ", why, table::WIDTH);
            }
        }
        let more = tunnel.flow_count.saturating_sub(tunnel.flows.len() as u64);
        if more > 0 {
            text += &format!("  and {more} more\n");
        }
    }
    text += match status.role {
        Role::Edge => "What comes back is sent by the hub, which decides by itself: ask there.\n",
        Role::Hub => "What comes back is sent by the edge, which decides by itself: ask there.\n",
    };
    printable(&text)
}

fn heading(status: &Status, tunnel: &TunnelStatus) -> String {
    let class = &tunnel.class;
    match status.role {
        Role::Edge => format!("class {class}, from here to the hub"),
        Role::Hub => format!("class {class}, from here to site {}", tunnel.site),
    }
}

fn links(flow: &FlowStatus) -> String {
    let share = |ratio| format!("{:.0} %", 100.0 * ratio);
    let links = flow.links.iter();
    let shares: Vec<String> = links
        .map(|it| format!("{} {}", it.link, share(it.share_ratio)))
        .collect();
    if shares.is_empty() {
        return "silent".into();
    }
    shares.join(", ")
}

/// Names from the wire cannot steer the terminal.
pub(crate) fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() && c != '\n' { '?' } else { c };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shared_link_carries_is_told_with_its_reason_though_nobody_is_held() {
        let full = include_str!("../../tests/parts/schema/full.json");
        let mut status: Status = serde_json::from_str(full).unwrap();
        let told = render_shared(&status, Some("lte"));
        let expected = "links that classes share\n  lte down: 96.0 Mb/s are given out: by what the \
                        config says, says the hub\n  lte up: 48.0 Mb/s are given out: no queue \
                        stands in it, and not all of it is used\n";
        assert_eq!(told, expected);
        assert_eq!(render_shared(&status, Some("dsl")), "");

        let words = ["unknown", "queue", "clear", "rises", "stalled"].map(|cause| {
            let shared = status.tunnels[0].paths[0].shared.as_mut().unwrap();
            shared.link_cause = cause.into();
            render_shared(&status, None)
        });
        let unlike = words.iter().collect::<std::collections::BTreeSet<_>>();
        assert_eq!(unlike.len(), words.len(), "each has words of its own");
    }
}
