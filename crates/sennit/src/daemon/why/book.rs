//! The chapter on `why` has a row for all that is said, and none for what is not.

use std::{collections::BTreeSet, time::Duration};

use sennit_core::{Congestion, health::Reason, schedule::Striping};
use sennit_engine::facts::{Cause, PathShare, Told};

use super::*;
use super::{
    flow::tests::flow,
    tests::{path, tunnel},
};

const CHAPTER: &str = include_str!("../../../../../docs/src/why.md");
/// Stands for a name or a figure.
const ANY: char = '…';
const POLICIES: [Policy; 5] = [
    Policy::Single,
    Policy::Failover,
    Policy::Balanced,
    Policy::Bond,
    Policy::Redundant,
];

/// A text in pieces that have a meaning of their own.
fn pieces(text: &str) -> Vec<String> {
    let text = text
        .replace(", of the ", "; the ")
        .replace(" of the ", "; the ")
        .replace(", says the hub", "; says the hub");
    let pieces = text.split("; ").map(str::to_owned);
    pieces.filter(|piece| !piece.is_empty()).collect()
}

/// What the first column of the tables has.
fn rows() -> BTreeSet<String> {
    let rows = CHAPTER.lines().filter_map(|line| {
        let (said, _) = line.strip_prefix("| ")?.split_once(" |")?;
        (said != "it says" && said != "---").then_some(said)
    });
    rows.flat_map(pieces).collect()
}

/// Whether a row is of this piece. Names and figures have nothing that parts a sentence.
fn fits(row: &str, piece: &str) -> bool {
    let Some((before, after)) = row.split_once(ANY) else {
        return row == piece;
    };
    let Some(rest) = piece.strip_prefix(before) else {
        return false;
    };
    let parts = |text: &str| [", ", ": ", "(", ")"].iter().any(|it| text.contains(it));
    let ends = rest.char_indices().map(|(at, sign)| at + sign.len_utf8());
    ends.take_while(|&end| !parts(&rest[..end]))
        .any(|end| fits(after, &rest[end..]))
}

/// Two links of a class.
fn two(policy: Policy) -> TunnelStatus {
    let paths = vec![path(0, "fibre", 1, 20, 300), path(1, "lte", 1, 60, 75)];
    tunnel(policy, paths)
}

/// Each reason for the state of a path; a new one does not compile here.
fn reasons() -> Vec<Reason> {
    let next = |reason| match reason {
        Reason::Heard => Some(Reason::Returned),
        Reason::Returned => Some(Reason::Relapsed),
        Reason::Relapsed => Some(Reason::Silent),
        Reason::Silent => Some(Reason::PeerHearsNothing),
        Reason::PeerHearsNothing => Some(Reason::PeerLinkDown),
        Reason::PeerLinkDown => Some(Reason::PeerPaused),
        Reason::PeerPaused => Some(Reason::LinkDown),
        Reason::LinkDown => Some(Reason::NotValidated),
        Reason::NotValidated => None,
    };
    std::iter::successors(Some(Reason::Heard), |&it| next(it)).collect()
}

/// All that is said of both links, as one knows what puts them before each other.
fn both(tunnel: &TunnelStatus, standings: &Standings) -> Vec<String> {
    let shares = [None, Some(0.0), Some(0.5)];
    let said = shares
        .into_iter()
        .flat_map(|share| [0, 1].map(|index| why(tunnel, index, share, standings, Instant::now())));
    said.collect()
}

/// What links do, by policy, standing and state.
fn of_uses() -> Vec<String> {
    let mut said = Vec::new();
    let standing = |over, tier, cost| Standing { over, tier, cost };
    let known = [(false, 1, 0), (true, 1, 0), (false, 2, 0), (false, 1, 5)];
    for (policy, tier) in POLICIES.into_iter().flat_map(|it| [(it, 1), (it, 2)]) {
        let mut class = two(policy);
        class.treatment.copies = 1;
        class.paths[1].link.tier = tier;
        said.extend(both(&class, &Standings::new()));
        for (over, tier, cost) in known {
            let fibre = ("fibre".into(), standing(false, 1, 0));
            let lte = ("lte".into(), standing(over, tier, cost));
            said.extend(both(&class, &Standings::from([fibre, lte])));
        }
        for worth in [Worth::Slight, Worth::Unknown] {
            class.paths[1].worth = worth;
            said.extend(both(&class, &Standings::new()));
        }
        for reason in reasons() {
            (class.paths[1].state, class.paths[1].reason) = (PathState::Suspect, reason);
            said.extend(both(&class, &Standings::new()));
        }
        class.paths[1].one_way = true;
        class.paths[0].too_small = true;
        said.extend(both(&class, &Standings::new()));
    }
    said
}

/// Sizes, congestion control, key exchange, protection, moving.
fn of_the_rest() -> Vec<String> {
    let mut said = Vec::new();
    let mut class = two(Policy::Bond);
    for (source, small) in [
        SizeSource::Assumed,
        SizeSource::Probed,
        SizeSource::Interface,
        SizeSource::BlackHole,
    ]
    .into_iter()
    .flat_map(|it| [(it, false), (it, true)])
    {
        (class.paths[0].mtu_source, class.paths[0].small) = (source, small);
        said.extend(both(&class, &Standings::new()));
        (class.paths[0].state, class.paths[0].small) = (PathState::Down, small);
        said.extend(both(&class, &Standings::new()));
        class.paths[0].state = PathState::Up;
    }
    for reason in [
        ChoiceReason::Configured,
        ChoiceReason::Usual,
        ChoiceReason::Crowded,
        ChoiceReason::Lossy,
        ChoiceReason::Moving,
    ] {
        let controller = Congestion::Cubic;
        class.paths[0].congestion = Some(Choice { controller, reason });
        said.extend(both(&class, &Standings::new()));
    }
    (class.group, class.fell_back) = (Some(rustls::NamedGroup::X25519), true);
    class.moving = Some(
        "it runs to an address of the hub that is not in the config any more: the other addresses \
         are tried"
            .into(),
    );
    class.fec.reason = FecReason::FewLosses;
    said.extend(both(&class, &Standings::new()));
    let Ok(sennit_engine::Fec::Fixed(code)) = "rlc:1/8".parse() else {
        panic!("it is a code");
    };
    (class.fec.code, class.fec.reason) = (Some(code), FecReason::TooFar);
    said.extend(both(&class, &Standings::new()));
    said
}

/// Classes that are held back, here and by the hub.
fn of_shares() -> Vec<String> {
    let mut said = Vec::new();
    let mbit = Bitrate::mbit;
    let mut class = two(Policy::Bond);
    let causes = [
        Cause::Unknown,
        Cause::Queue,
        Cause::Clear,
        Cause::Rises,
        Cause::Stalled,
    ];
    let causes = causes.map(|cause| (cause, false)).into_iter();
    for (cause, configured) in causes.chain([(Cause::Clear, true)]) {
        for others in [vec![], vec![("a".into(), mbit(3)), ("b".into(), mbit(15))]] {
            let share = PathShare {
                link_rate: mbit(50),
                rate: mbit(32),
                held: true,
                cause,
                configured,
                others,
                ..PathShare::default()
            };
            class.paths[0].shared = Some(share.clone());
            let (loss, at) = (0.0, Instant::now());
            class.paths[0].shared_down = Some(Told { share, loss, at });
            said.extend(both(&class, &Standings::new()));
        }
    }
    said
}

/// Flows by policy, on one link, on both and on none, of links that work and that do not.
fn of_flows() -> Vec<String> {
    let mut said = Vec::new();
    let loads = [[3000, 1000], [1000, 0], [0, 1000], [10, 0], [0, 0]];
    let lessons = [
        (0, 0),
        (2_000_000, 0),
        (2_000_000, 1_500_000),
        (100, 30),
        (100, 60),
    ];
    for (policy, load) in POLICIES
        .into_iter()
        .flat_map(|it| loads.map(|load| (it, load)))
    {
        let mut class = two(policy);
        class.stats.packets_in = 10;
        (class.stats.thin_sent, class.stats.thin_saved) = (5, 100);
        let mut flow = flow(if load == [0, 0] { [1, 0] } else { load });
        if load == [0, 0] {
            flow.paths.clear();
        }
        for (gained, missed) in lessons {
            let wait = Duration::from_millis(5);
            class.striping = Striping {
                wait,
                gained,
                missed,
            };
            said.extend(place(&class, &flow).why);
        }
        for neighbours in [1, 2] {
            flow.account.neighbours = neighbours;
            flow.queue.stats.dropped = 12;
            flow.queue.stats.overflowed = 3;
            flow.account.ordered = neighbours == 1;
            said.extend(place(&class, &flow).why);
        }
        class.numbered = false;
        class.paths[0].state = PathState::Down;
        said.extend(place(&class, &flow).why);
        class.paths[1].state = PathState::Down;
        said.extend(place(&class, &flow).why);
    }
    said
}

#[test]
fn the_chapter_has_a_row_for_each_thing_that_why_says_and_no_other() {
    let said = [of_uses(), of_the_rest(), of_shares(), of_flows()].concat();
    let said: BTreeSet<String> = said.iter().flat_map(|text| pieces(text)).collect();
    let rows = rows();

    let lacks = said
        .iter()
        .filter(|it| !rows.iter().any(|row| fits(row, it)));
    let lacks: Vec<&String> = lacks.collect();
    assert!(lacks.is_empty(), "no row says: {lacks:#?}");

    let idle = rows
        .iter()
        .filter(|row| !said.iter().any(|it| fits(row, it)));
    let idle: Vec<&String> = idle.collect();
    assert!(idle.is_empty(), "`why` does not say: {idle:#?}");
}
