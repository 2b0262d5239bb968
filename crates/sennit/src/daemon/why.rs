//! Why a path carries what it carries, in plain words.

#[cfg(test)]
mod book;
mod flow;
mod reserve;
mod sharing;

use std::time::{Duration, Instant};

use sennit_core::{PathState, Policy, Worth, health::Reason};
use sennit_engine::facts::{Choice, ChoiceReason, FecReason, PathStatus, SizeSource, TunnelStatus};
use sennit_packet::Bitrate;

pub(super) use self::flow::place;
pub(super) use self::reserve::{Standing, Standings};
pub(super) use self::sharing::{queue_down, shared, shared_down};
use crate::status::duration;

/// A share below this is probes and acknowledgements.
const IDLE: f64 = 0.01;

/// The reason for path `index` of a tunnel. `share` is what it carried of all that the tunnel sent
/// of late, if it sent anything.
pub(super) fn why(
    tunnel: &TunnelStatus,
    index: usize,
    share: Option<f64>,
    standings: &Standings,
    now: Instant,
) -> String {
    let mut text = use_of(tunnel, index, share, standings, now);
    text += &size(&tunnel.paths[index]);
    if let Some(choice) = tunnel.paths[index].congestion {
        text += &switched(choice).unwrap_or_default();
    }
    text += &fallen_back(tunnel, index).unwrap_or_default();
    let path = &tunnel.paths[index];
    if let Some(share) = &path.shared {
        let way = (sharing::Way::Ours, tunnel.queue.stood);
        text += &sharing::held(&tunnel.class, &path.link.name, share, way).unwrap_or_default();
    }
    if let Some(told) = &path.shared_down {
        text += &sharing::held_there(tunnel, &path.link.name, told, now).unwrap_or_default();
    }
    text += &protected(tunnel).unwrap_or_default();
    if let Some(why) = &tunnel.moving {
        text += &format!("; {why}");
    }
    text
}

/// Whether packets are protected, why, and what came of it; nothing if nobody asked for it.
fn protected(tunnel: &TunnelStatus) -> Option<String> {
    // What the far end takes is known once the tunnel is up.
    let fec = Some(&tunnel.fec).filter(|_| tunnel.up)?;
    match (fec.code, fec.reason) {
        (None, FecReason::Off) => None,
        (Some(code), reason) => Some(format!(
            "; packets are protected by {code} ({reason}): {} repairs for {} of them, {} came back at \
             the far end",
            fec.symbols.repairs_sent, fec.symbols.sources_sent, fec.told.recovered
        )),
        (None, reason) => Some(format!("; packets are not protected: {reason}")),
    }
}

/// That the handshake, which was on the first path, went without post-quantum key exchange.
fn fallen_back(tunnel: &TunnelStatus, index: usize) -> Option<String> {
    let group = tunnel.group.filter(|_| tunnel.fell_back)?;
    (tunnel.paths[index].id == 0).then(|| {
        format!(
            "; key exchange is classic ({group:?}): post-quantum handshakes went unanswered here"
        )
    })
}

/// How large packets fit, how that is known, and what becomes of larger ones of the tunnel's.
fn size(path: &PathStatus) -> String {
    let known = match path.mtu_source {
        SizeSource::Assumed if path.small => "larger ones do not arrive",
        SizeSource::Assumed => "every path carries those, and nothing larger has arrived yet",
        SizeSource::Probed => "found by probes",
        SizeSource::Interface => "the MTU of its interface",
        SizeSource::BlackHole => "larger ones arrived before and do not any more",
    };
    let is_halving = path.small && !path.too_small && path.state == PathState::Up;
    let halves = if is_halving {
        "full packets go in two halves: "
    } else {
        ""
    };
    let mtu = path.mtu;
    format!("; {halves}it carries UDP packets of {mtu} bytes ({known})")
}

/// That congestion control is not the one that `auto` starts with.
fn switched(choice: Choice) -> Option<String> {
    match choice.reason {
        ChoiceReason::Crowded | ChoiceReason::Lossy | ChoiceReason::Moving => Some(format!(
            "; congestion control is {} for now: {}",
            choice.controller, choice.reason
        )),
        ChoiceReason::Configured | ChoiceReason::Usual => None,
    }
}

fn use_of(
    tunnel: &TunnelStatus,
    index: usize,
    share: Option<f64>,
    standings: &Standings,
    now: Instant,
) -> String {
    let path = &tunnel.paths[index];
    if path.too_small {
        return "unused: it does not carry packets as large as the tunnel's".into();
    }
    let seconds = now.saturating_duration_since(path.since).as_secs_f64();
    let since = duration(seconds);
    if path.one_way {
        return format!(
            "carries what is sent from here, for {since}: no link works both ways, and the peer hears \
             us on this one"
        );
    }
    if path.reason == Reason::Relapsed {
        let (falls, steady) = path.falls;
        let steady = duration(steady.as_secs_f64());
        return format!(
            "copies only, for {since}: it fell {falls} times of late, and is trusted again once it has \
             been steady under copies for {steady}"
        );
    }
    if path.state != PathState::Up {
        return format!("unused for {since}: {}", path.reason);
    }
    let best_tier = usable(tunnel).map(|other| other.link.tier).min();
    let in_reserve = best_tier.is_some_and(|tier| path.link.tier > tier);
    match tunnel.treatment.policy {
        Policy::Single => one_of_many(tunnel, path, "policy single uses one link"),
        Policy::Failover if in_reserve => reserve(tunnel, path, standings),
        Policy::Failover => one_of_many(tunnel, path, first(tunnel, path, standings)),
        Policy::Balanced | Policy::Bond if in_reserve => reserve(tunnel, path, standings),
        Policy::Balanced => balanced(tunnel, path),
        Policy::Bond => bond(tunnel, path, share),
        Policy::Redundant => redundant(tunnel, path),
    }
}

fn usable(tunnel: &TunnelStatus) -> impl Iterator<Item = &PathStatus> {
    let paths = tunnel.paths.iter();
    paths.filter(|path| path.state == PathState::Up && !path.too_small)
}

fn delay(path: &PathStatus) -> Duration {
    path.rtt.unwrap_or(Duration::MAX)
}

fn reserve(tunnel: &TunnelStatus, path: &PathStatus, standings: &Standings) -> String {
    let others = usable(tunnel).filter_map(|other| standing(other, standings));
    reserve::reserve(standing(path, standings), others.min())
}

fn standing(path: &PathStatus, standings: &Standings) -> Option<Standing> {
    standings.get(&path.link.name).copied()
}

fn first(tunnel: &TunnelStatus, path: &PathStatus, standings: &Standings) -> &'static str {
    let others = usable(tunnel).filter(|other| other.id != path.id);
    match others.map(|other| standing(other, standings)).min() {
        None => "no other works",
        Some(next) => reserve::first(standing(path, standings), next),
    }
}

fn one_of_many(tunnel: &TunnelStatus, path: &PathStatus, because: &str) -> String {
    let first = usable(tunnel).min_by_key(|other| (other.link.tier, other.id));
    match first {
        Some(first) if first.id != path.id => {
            format!("in reserve: {} carries everything", first.link.name)
        }
        _ => format!("carries everything: {because}"),
    }
}

fn balanced(tunnel: &TunnelStatus, path: &PathStatus) -> String {
    let weight = |path: &PathStatus| u32::from(path.link.weight.max(1));
    let total: u32 = usable(tunnel)
        .filter(|other| other.link.tier == path.link.tier)
        .map(weight)
        .sum();
    format!(
        "carries whole flows: its weight is {} of {total}",
        weight(path)
    )
}

fn redundant(tunnel: &TunnelStatus, path: &PathStatus) -> String {
    let rank = |path: &PathStatus| (path.link.tier, path.rtt, path.id);
    let before = usable(tunnel)
        .filter(|other| rank(other) < rank(path))
        .count();
    let copies = usize::from(tunnel.treatment.copies);
    if before < copies {
        format!(
            "carries a copy of everything: it is one of the first {copies} by tier, cost and delay"
        )
    } else {
        format!("in reserve: {copies} others come first by tier, cost and delay")
    }
}

fn bond(tunnel: &TunnelStatus, path: &PathStatus, share: Option<f64>) -> String {
    let peers = || usable(tunnel).filter(|other| other.link.tier == path.link.tier);
    let rank = |other: &&PathStatus| (other.worth != Worth::Full, delay(other), other.id);
    let Some(fastest) = peers().min_by_key(rank) else {
        return String::new();
    };
    let carries = share.is_some_and(|share| share >= IDLE);
    let rates: Bitrate = peers().map(|other| other.rate).sum();
    let bytes = |rate: Bitrate| rate.as_bytes_per_second() as f64;
    let more = 100.0 * bytes(path.rate) / bytes(rates.saturating_sub(path.rate)).max(1.0);
    match path.worth {
        Worth::Slight => {
            return format!(
                "small packets only: it would add {more:.0} % more rate and may hold up the rest; tried now and then"
            );
        }
        Worth::Unknown if peers().any(|other| other.worth == Worth::Full) => {
            return "copies only, until enough of what is sent from here has arrived to know what it \
                    carries that way"
                .into();
        }
        Worth::Unknown | Worth::Full => {}
    }
    if fastest.id == path.id {
        return if carries {
            "first choice: it has the least delay".into()
        } else {
            "first choice, but nothing to carry".into()
        };
    }
    let later = delay(path).saturating_sub(delay(fastest)).as_secs_f64() / 2.0 * 1e3;
    if carries {
        format!(
            "in use: the faster links are full, and it adds {more:.0} % more rate for {later:.0} ms more delay"
        )
    } else {
        format!(
            "idle: {} has room for all there is, and this link is {later:.0} ms later",
            fastest.link.name
        )
    }
}

#[cfg(test)]
mod tests {
    use sennit_core::{Congestion, RecentLosses, health::Reason, recent::Recent};
    use sennit_engine::{Fec, LinkLabel, SocketId, Treatment, TunnelStats};

    use super::*;

    pub(super) fn path(id: u32, name: &str, tier: u8, rtt_ms: u64, rate: u64) -> PathStatus {
        PathStatus {
            id,
            link: LinkLabel {
                name: name.into(),
                tier,
                weight: 1,
            },
            socket: SocketId(id),
            remote: "203.0.113.1:443".parse().unwrap(),
            observed: None,
            state: PathState::Up,
            reason: Reason::Heard,
            falls: (0, Duration::ZERO),
            since: Instant::now(),
            heard: Instant::now(),
            one_way: false,
            carried: Recent::new(Instant::now()),
            too_small: false,
            worth: Worth::Full,
            rtt: Some(Duration::from_millis(rtt_ms)),
            rtt_min: None,
            sent_packets: 0,
            lost_packets: 0,
            losses: RecentLosses::default(),
            sent_bytes: 0,
            received_bytes: 0,
            rate: Bitrate::bytes_per_second(rate),
            cwnd: 0,
            congestion: None,
            in_flight: 0,
            mtu: 1450,
            mtu_source: SizeSource::Probed,
            small: false,
            shared: None,
            shared_down: None,
            symbols: Default::default(),
        }
    }

    pub(super) fn tunnel(policy: Policy, paths: Vec<PathStatus>) -> TunnelStatus {
        TunnelStatus {
            class: "default".into(),
            site: None,
            treatment: Treatment {
                policy,
                ..Treatment::default()
            },
            up: true,
            reason: String::new(),
            since: Instant::now(),
            backlog: 0,
            queue_down: None,
            queue: Default::default(),
            stats: TunnelStats::default(),
            fec: Default::default(),
            numbered: true,
            group: None,
            resumed: false,
            early: false,
            key_updates: 0,
            fell_back: false,
            moving: None,
            striping: Default::default(),
            paths,
            flows: Vec::new(),
            unanswered: Vec::new(),
            flow_count: 0,
        }
    }

    /// What every path of these tests says of its size.
    const SIZE: &str = "; it carries UDP packets of 1450 bytes (found by probes)";

    fn why(tunnel: &TunnelStatus, index: usize, share: Option<f64>) -> String {
        why_at(tunnel, index, share, &standings(tunnel), Instant::now())
    }

    /// All that is said but the size.
    fn why_at(
        tunnel: &TunnelStatus,
        index: usize,
        share: Option<f64>,
        standings: &Standings,
        now: Instant,
    ) -> String {
        let said = super::why(tunnel, index, share, standings, now);
        assert!(said.contains(SIZE), "{said}");
        said.replace(SIZE, "")
    }

    /// Of links that have a tier and nothing else.
    fn standings(tunnel: &TunnelStatus) -> Standings {
        let standing = |path: &PathStatus| Standing {
            over: false,
            tier: path.link.tier,
            cost: 0,
        };
        let paths = tunnel.paths.iter();
        paths
            .map(|path| (path.link.name.clone(), standing(path)))
            .collect()
    }

    #[test]
    fn each_path_says_how_large_packets_fit_and_how_that_is_known() {
        let mut fibre = path(0, "fibre", 1, 20, 300);
        let said = |path: &PathStatus| {
            let tunnel = tunnel(Policy::Bond, vec![path.clone()]);
            super::why(&tunnel, 0, None, &standings(&tunnel), Instant::now())
        };
        assert!(said(&fibre).ends_with(SIZE));
        (fibre.mtu, fibre.mtu_source) = (1200, SizeSource::Assumed);
        assert!(said(&fibre).contains("of 1200 bytes (every path carries those"));
        (fibre.mtu, fibre.mtu_source, fibre.small) = (1252, SizeSource::BlackHole, true);
        let halves = "; full packets go in two halves: it carries UDP packets of 1252 bytes \
                      (larger ones arrived before and do not any more)";
        assert!(said(&fibre).ends_with(halves), "{}", said(&fibre));
    }

    #[test]
    fn the_path_of_a_classic_handshake_says_why_it_was_one() {
        let paths = vec![path(0, "fibre", 1, 20, 300), path(1, "lte", 1, 60, 75)];
        let mut tunnel = tunnel(Policy::Bond, paths);
        tunnel.group = Some(rustls::NamedGroup::X25519);
        assert!(!why(&tunnel, 0, None).contains("classic"));

        tunnel.fell_back = true;

        let told =
            "; key exchange is classic (X25519): post-quantum handshakes went unanswered here";
        assert!(why(&tunnel, 0, None).ends_with(told));
        assert!(!why(&tunnel, 1, None).contains("classic"));
    }

    #[test]
    fn a_bond_says_what_a_slower_link_would_cost_and_bring() {
        let paths = vec![path(0, "fibre", 1, 20, 300), path(1, "lte", 1, 60, 75)];
        let bond = tunnel(Policy::Bond, paths);
        assert_eq!(
            why(&bond, 1, Some(0.0)),
            "idle: fibre has room for all there is, and this link is 20 ms later"
        );
        assert_eq!(
            why(&bond, 1, Some(0.2)),
            "in use: the faster links are full, and it adds 25 % more rate for 20 ms more delay"
        );
        assert_eq!(
            why(&bond, 0, Some(0.8)),
            "first choice: it has the least delay"
        );
    }

    #[test]
    fn a_bond_says_why_a_link_takes_no_part() {
        let mut paths = vec![path(0, "fibre", 1, 20, 300), path(1, "sat", 1, 600, 6)];
        paths[1].worth = Worth::Slight;
        let slight = why(&tunnel(Policy::Bond, paths.clone()), 1, Some(0.0));
        assert!(slight.contains("it would add 2 % more rate"), "{slight}");
        paths[1].worth = Worth::Unknown;
        let unknown = why(&tunnel(Policy::Bond, paths), 1, Some(0.5));
        assert!(unknown.starts_with("copies only"), "{unknown}");
    }

    #[test]
    fn another_congestion_controller_than_usual_is_named_with_its_reason() {
        let mut paths = vec![path(0, "fibre", 1, 20, 300)];
        let runs = |controller, reason| Some(Choice { controller, reason });
        paths[0].congestion = runs(Congestion::Bbr3, ChoiceReason::Usual);
        let bond = tunnel(Policy::Bond, paths.clone());
        assert_eq!(
            why(&bond, 0, Some(1.0)),
            "first choice: it has the least delay"
        );
        paths[0].congestion = runs(Congestion::Cubic, ChoiceReason::Crowded);
        let bond = tunnel(Policy::Bond, paths);
        assert_eq!(
            why(&bond, 0, Some(1.0)),
            "first choice: it has the least delay; congestion control is cubic for now: \
             other flows fill the link's queue and left it less than half its rate"
        );
    }

    #[test]
    fn every_reason_to_protect_packets_or_not_is_one_of_those_that_the_book_explains() {
        let book = include_str!("../../../../docs/src/repair.md");
        let mut bond = tunnel(Policy::Bond, vec![path(0, "fibre", 1, 20, 300)]);
        let Ok(Fec::Fixed(code)) = "rlc:1/8".parse() else {
            panic!("it is a code");
        };
        let code = Some(code);
        let mut told = |code, reason| {
            (bond.fec.code, bond.fec.reason) = (code, reason);
            why(&bond, 0, None)
        };
        let off = told(None, FecReason::Off);
        assert_eq!(
            off, "first choice, but nothing to carry",
            "nobody asked for it"
        );
        let configured = told(code, FecReason::Configured);
        assert!(configured.contains("; packets are protected by rlc:1/8 (configured): 0 repairs"));

        for (code, reason) in [
            (None, FecReason::Peer),
            (None, FecReason::FewLosses),
            (None, FecReason::SentAgain),
            (None, FecReason::Copies),
            (None, FecReason::NoHelp),
            (code, FecReason::TooFar),
            (code, FecReason::TooFarForCalls),
            (code, FecReason::NotSentAgain),
        ] {
            let why = told(code, reason);
            let words = match code {
                None => format!("; packets are not protected: {reason}"),
                Some(_) => format!("; packets are protected by rlc:1/8 ({reason}): "),
            };
            assert!(why.contains(&words), "{why}");
            assert!(
                book.contains(&format!("| {reason} |")),
                "the book: {reason}"
            );
        }
    }

    #[test]
    fn what_rests_says_for_whom() {
        let mut paths = vec![path(0, "fibre", 1, 20, 300), path(1, "lte", 2, 60, 75)];
        let failover = tunnel(Policy::Failover, paths.clone());
        assert!(why(&failover, 0, None).starts_with("carries everything"));
        assert!(why(&failover, 1, None).contains("its tier is 2"));
        paths[0].state = PathState::Suspect;
        paths[0].reason = Reason::Silent;
        let failover = tunnel(Policy::Failover, paths);
        let later = failover.paths[0].since + Duration::from_secs(42);
        assert_eq!(
            why_at(&failover, 0, None, &standings(&failover), later),
            "unused for 42 s: nothing arrives from the peer"
        );
        assert!(why(&failover, 1, None).starts_with("carries everything"));
    }

    #[test]
    fn a_link_without_a_tier_rests_for_its_cost() {
        // The second rank is what the edge makes of the cost.
        let paths = vec![path(0, "fibre", 1, 20, 300), path(1, "lte", 2, 60, 75)];
        let bond = tunnel(Policy::Bond, paths);
        let mut standings = standings(&bond);
        standings.insert(
            "lte".into(),
            Standing {
                over: false,
                tier: 1,
                cost: 5,
            },
        );

        let why = why_at(&bond, 1, None, &standings, Instant::now());

        assert_eq!(why, "in reserve: cheaper links work");
    }

    #[test]
    fn what_is_held_out_says_why_and_for_how_long() {
        let mut paths = vec![path(0, "fibre", 1, 20, 300), path(1, "lte", 1, 60, 75)];
        (paths[1].state, paths[1].reason) = (PathState::Probation, Reason::Relapsed);
        paths[1].falls = (5, Duration::from_secs(2));
        let bond = tunnel(Policy::Bond, paths);
        let later = bond.paths[1].since + Duration::from_secs(1);
        assert_eq!(
            why_at(&bond, 1, None, &standings(&bond), later),
            "copies only, for 1 s: it fell 5 times of late, and is trusted again once it has been steady under \
             copies for 2 s"
        );
    }

    #[test]
    fn the_third_fastest_is_in_reserve_under_redundant() {
        let paths = vec![
            path(0, "a", 1, 60, 1),
            path(1, "b", 1, 20, 1),
            path(2, "c", 1, 30, 1),
        ];
        let redundant = tunnel(Policy::Redundant, paths);
        let reserve = |index| why(&redundant, index, None).starts_with("in reserve");
        assert_eq!([reserve(0), reserve(1), reserve(2)], [true, false, false]);
    }
}
