//! Lets links help while those before them are full.
//!
//! A link with `overflow` is in reserve behind those of a lower tier or cost. Once packets of a
//! class that spreads over links have stood in a queue for `FULL_FOR` looks in a row, at either
//! end, it is used beside them. It goes back when less than `SPARE` of what they carried while they
//! were full has been wanted for `SPARE_FOR` looks. If there are several, each in its turn.
//!
//! A thread of its own looks each second; packets wait for none of it.

use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

use super::{
    answer::{Answer, Report},
    letter::Letter,
    report::Front,
};
use crate::{
    config::{EdgeConfig, Link},
    control::Request,
    daemon::mailbox::{self, Slot},
    policy::Policy,
    status::{LinkState, LinkStatus, QueueStatus},
};

const EVERY: Duration = Duration::from_secs(1);
/// Looks in a row that find links full before another helps.
const FULL_FOR: u32 = 2;
/// Looks in a row that find room without a link before it goes back.
const SPARE_FOR: u32 = 10;
/// Part of what links carried while they were full: with less they have room.
const SPARE: f64 = 0.8;
/// Packets that stand for so long wait for a link, and not for a turn of a worker.
const STANDS: Duration = Duration::from_millis(5);
/// What a hub told longer ago says nothing of now.
const TOLD_LATELY: Duration = Duration::from_secs(3);

/// Starts the thread, which ends with the front.
pub(super) fn start(front: Weak<Front>, letters: Arc<[Slot<Letter>]>) -> io::Result<()> {
    let watch = move || {
        sennit_linux::confine::keep_files_only();
        let mut watch = Watch::new();
        while let Some(front) = front.upgrade() {
            watch.look(&front, &letters, Instant::now());
            drop(front);
            thread::sleep(EVERY);
        }
    };
    thread::Builder::new()
        .name("overflow".into())
        .spawn(watch)?;
    Ok(())
}

/// Who helps, and what that is judged by.
struct Watch {
    helpers: BTreeSet<String>,
    fill: Fill,
    /// Tier and cost of those that work without help.
    base: Option<(u8, u8)>,
    /// Bytes that went over all links, up and down, and when that was.
    carried: ([u64; 2], Instant),
}

impl Watch {
    fn new() -> Self {
        Self {
            helpers: BTreeSet::new(),
            fill: Fill::default(),
            base: None,
            carried: ([0; 2], Instant::now()),
        }
    }

    fn look(&mut self, front: &Front, letters: &[Slot<Letter>], now: Instant) {
        let running = front.reloader.running();
        let config = &running.config;
        let helpers = if config.links.iter().any(|link| link.overflow) {
            let Ok(answers) = mailbox::ask_all(&front.workers, &Request::Usage) else {
                return;
            };
            let reports: Vec<Report> = answers.into_iter().map(Answer::tell).collect();
            self.judge(config, &reports, now)
        } else {
            BTreeSet::new()
        };
        if helpers == self.helpers {
            return;
        }
        tracing::info!(links = ?helpers, "links that help those before them");
        self.helpers = helpers;
        let helpers = Arc::new(self.helpers.clone());
        for slot in letters {
            slot.post(Letter::Helpers(Arc::clone(&helpers)));
        }
    }

    /// Who is to help from now on.
    fn judge(&mut self, config: &EdgeConfig, reports: &[Report], now: Instant) -> BTreeSet<String> {
        let up = |link: &&Link| {
            let of_all = reports.iter().flat_map(|report| &report.links);
            let is_up = |it: &LinkStatus| it.name == link.name && it.state == LinkState::Up;
            of_all.into_iter().any(is_up)
        };
        let place = |link: &Link| (link.tier, link.cost);
        let working = || config.links.iter().filter(up);
        let base = working()
            .filter(|link| !self.helpers.contains(&link.name))
            .map(place)
            .min();
        let mut reserve: Vec<&Link> = working()
            .filter(|link| link.overflow && Some(place(link)) > base)
            .collect();
        reserve.sort_by_key(|link| place(link));
        if std::mem::replace(&mut self.base, base) != base {
            self.fill = Fill::default();
        }
        let look = Look {
            waits: waits(config, reports),
            rates: self.rates(reports, now),
        };
        let helping = self.fill.look(look, reserve.len());
        let helpers = reserve.into_iter().take(helping);
        helpers.map(|link| link.name.clone()).collect()
    }

    /// Bytes in a second over all links since the last look, up and down.
    fn rates(&mut self, reports: &[Report], now: Instant) -> [f64; 2] {
        let links = || reports.iter().flat_map(|report| &report.traffic);
        let carried = [
            links().map(|link| link.sent_bytes).sum(),
            links().map(|link| link.received_bytes).sum(),
        ];
        let (before, at) = std::mem::replace(&mut self.carried, (carried, now));
        let passed = now.saturating_duration_since(at).as_secs_f64().max(0.1);
        [0, 1].map(|way| carried[way].saturating_sub(before[way]) as f64 / passed)
    }
}

/// Whether packets stand, up and down, which more links would carry.
fn waits(config: &EdgeConfig, reports: &[Report]) -> [bool; 2] {
    let spreads = |name: &str| {
        let mut classes = config.classes.iter();
        // What a limit holds up waits for no link.
        classes.any(|class| {
            let policy = matches!(class.policy, Policy::Bond | Policy::Balanced);
            class.name == name && policy && class.limit.is_none()
        })
    };
    let stands = |queue: &QueueStatus| {
        queue.waiting_bytes > 0 && queue.delay_seconds >= STANDS.as_secs_f64()
    };
    let tunnels = || reports.iter().flat_map(|report| &report.tunnels);
    let tunnels = || tunnels().filter(|tunnel| spreads(&tunnel.class));
    let far = || tunnels().filter_map(|tunnel| tunnel.queue_down.as_ref());
    let lately = TOLD_LATELY.as_secs_f64();
    [
        tunnels().any(|tunnel| stands(&tunnel.queue)),
        far().any(|far| far.told_seconds < lately && stands(&far.queue)),
    ]
}

/// What is seen once a second, up and down.
#[derive(Clone, Copy, Debug)]
struct Look {
    waits: [bool; 2],
    /// Bytes in a second over all links.
    rates: [f64; 2],
}

/// How many links help.
#[derive(Debug, Default)]
struct Fill {
    /// For each that does, what went over all when those before it were full; up and down, where
    /// they were.
    before: Vec<[Option<f64>; 2]>,
    /// Looks in a row that found them full, or with room.
    full: u32,
    spare: u32,
}

impl Fill {
    /// How many help from now on, of `reserve` that could.
    fn look(&mut self, look: Look, reserve: usize) -> usize {
        self.before.truncate(reserve);
        let is_full = look.waits.contains(&true);
        let has_room = !is_full && self.before.last().is_some_and(|before| fits(look, before));
        self.full = if is_full { self.full + 1 } else { 0 };
        self.spare = if has_room { self.spare + 1 } else { 0 };
        if self.full >= FULL_FOR && self.before.len() < reserve {
            let carried = |way: usize| look.waits[way].then_some(look.rates[way]);
            self.before.push([carried(0), carried(1)]);
            self.full = 0;
        } else if self.spare >= SPARE_FOR {
            self.before.pop();
            self.spare = 0;
        }
        self.before.len()
    }
}

/// Whether what passes now would have had room in what was full before.
fn fits(look: Look, before: &[Option<f64>; 2]) -> bool {
    let fits = |(rate, before): (f64, &Option<f64>)| before.is_none_or(|it| rate < SPARE * it);
    look.rates.into_iter().zip(before).all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks in a row, downward; how many help after the last.
    fn look(fill: &mut Fill, looks: u32, waits: bool, rate: f64, reserve: usize) -> usize {
        let look = Look {
            waits: [false, waits],
            rates: [1.0, rate],
        };
        (0..looks).fold(0, |_, _| fill.look(look, reserve))
    }

    #[test]
    fn a_link_helps_while_those_before_it_are_full_and_goes_back_when_they_have_room() {
        let mut fill = Fill::default();
        assert_eq!(
            look(&mut fill, 1, true, 100.0, 2),
            0,
            "a moment is not enough"
        );
        assert_eq!(look(&mut fill, 1, false, 90.0, 2), 0);
        assert_eq!(look(&mut fill, FULL_FOR, true, 100.0, 2), 1);
        assert_eq!(look(&mut fill, 60, false, 90.0, 2), 1, "they would be full");
        assert_eq!(look(&mut fill, SPARE_FOR - 1, false, 70.0, 2), 1);
        assert_eq!(look(&mut fill, 1, false, 90.0, 2), 1, "it begins anew");
        assert_eq!(look(&mut fill, SPARE_FOR, false, 70.0, 2), 0);
    }

    #[test]
    fn further_links_help_in_their_turn_and_go_back_in_the_other_order() {
        let mut fill = Fill::default();
        assert_eq!(look(&mut fill, FULL_FOR, true, 100.0, 2), 1);
        assert_eq!(look(&mut fill, FULL_FOR, true, 150.0, 2), 2);
        assert_eq!(look(&mut fill, 60, true, 180.0, 2), 2, "there are no more");
        assert_eq!(look(&mut fill, SPARE_FOR, false, 110.0, 2), 1);
        assert_eq!(look(&mut fill, 60, false, 110.0, 2), 1);
        assert_eq!(look(&mut fill, SPARE_FOR, false, 10.0, 2), 0);
    }

    #[test]
    fn a_link_that_is_gone_helps_nobody() {
        let mut fill = Fill::default();
        assert_eq!(look(&mut fill, FULL_FOR, true, 100.0, 1), 1);
        assert_eq!(look(&mut fill, 1, true, 100.0, 0), 0);
    }
}
