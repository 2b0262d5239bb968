//! What a round of sending starts from: the paths as the scheduler should see them, and how long
//! packets may stand in the queue.

use std::{
    iter::zip,
    time::{Duration, Instant},
};

use sennit_core::{
    PathView, Policy, Scheduler, Worth,
    queue::TARGET,
    schedule::{in_full_use, of_best_tier},
};

use super::{Tunnel, within};
use crate::{
    acks::ACK_DELAY,
    ids::LinkId,
    links::Seat,
    path::{Path, whole},
    pipe::Pipe,
    sharing::{Load, Look},
};

/// A flow whose window CUBIC cuts by three tenths has a full path all the same if this part of a
/// round trip stood here before (RFC 9438 §4.6). It delays that flow alone (docs/decisions/0011).
const SPARE_ROUNDS: f64 = 0.4;
/// On a long path a window takes many seconds to grow back, and the path may carry more before:
/// there a whole round trip may stand but for this.
const SHORT: Duration = Duration::from_millis(24);
/// Where acknowledgements come in heaps, so does what they let go, inside as well: this many heaps
/// may stand here.
const HEAPS: u32 = 2;
/// A sender hears of a drop after a round trip with what stands here, and sends less during the
/// next one.
const REACTION_ROUNDS: u32 = 3;
/// When a path is lost, what its bulk flows have under way stands here. While the path may return
/// it may stand for this long: a drop would silence its flow until all that has left, and the
/// window would be missed then (docs/decisions/0013).
const NARROW_TARGET: Duration = Duration::from_millis(250);
/// A path that was lost is taken for one that may return for this long.
const NARROW_FOR: Duration = Duration::from_secs(15);
/// While a path looks for what it carries, what waits for it is about to leave, and may stand for
/// this long (docs/decisions/0011).
const STARTING_TARGET: Duration = Duration::from_millis(100);
/// On a long path for so many round trips: flows that start together send a multiple of a path's
/// first window, and it doubles that once in each.
const STARTING_ROUNDS: f64 = 2.5;
/// When a path has found out what it carries, what senders had in flight beyond that stands here,
/// and may for this much longer: they have just seen the delay.
const STARTING_FOR: Duration = Duration::from_millis(250);
/// Where a link's rate moves, senders have in flight what it carries at its best, and while it
/// carries less that stands here, for this long at most. A drop would cost them what the link will
/// carry a moment later.
const MOVING_TARGET: Duration = Duration::from_millis(300);
/// While little is in flight on a path so that its round trip shows, its flows do not know and go
/// on: what they have under way stands here, for so many round trips with what stood before. A drop
/// would tell all of them at once that a path is full which is emptied (docs/decisions/0011).
const EMPTIED_ROUNDS: f64 = 1.5;
/// What stood then has left so many round trips later.
const DRAINED_ROUNDS: u32 = 2;

/// More loss than this is no reason for packets to stand for longer.
const MOST_LOSS: f64 = 0.3;
/// Paths lose as they are only if they have done so for this long: what a startup overflowed counts
/// among the losses for a while.
const LOSES_FOR: Duration = Duration::from_millis(500);
/// A path that has lost is taken for one that loses for this long: of a slender one, or one that is
/// used now and then, it is known only from time to time, and what stands would be dropped in
/// between.
const LOSES_STILL: Duration = Duration::from_secs(5);

/// The paths of a tunnel as far as it matters to the queue before them.
#[derive(Clone, Copy, Debug, Default)]
struct Outlook {
    /// The round trip by which transfers of the class are paced.
    round_trip: Duration,
    /// The quickest and the slowest path in full use.
    fastest: Duration,
    slowest: Duration,
    /// How long hosts hold up acknowledgements, on all paths.
    held_up: Duration,
    /// How long packets stand because they wait for a faster path.
    standing: Duration,
    /// How many times what the paths deliver now they did at best within seconds.
    best_to_now: f64,
    /// The round trip of the path that leads; zero if none does. Senders on it double their windows
    /// once in each, and so does its startup: what waits for it may stand for one.
    leader: Duration,
    /// A path is in its startup.
    starts: bool,
    /// A path is emptied on purpose.
    empties: bool,
    /// How many paths are usable.
    usable: usize,
    /// How long transfers are held up at the far end because packets are sent again.
    repairs: Duration,
}

/// The part of the packets that may be sent again more often than transfers are allowed for.
const REPEATED_MORE: f64 = 0.005;
/// A repair takes so much longer than a round trip: until a loss is noticed.
const NOTICED_AFTER: Duration = Duration::from_millis(8);

/// How long a transfer is held up at the far end where its packets are lost and sent again, as it
/// nearly always is on a path that loses one of a hundred. So much must wait here, or the path is
/// idle meanwhile.
fn held_up_by(loss: f64, round_trip: Duration) -> Duration {
    if loss < REPEATED_MORE {
        return Duration::ZERO;
    }
    let attempts = REPEATED_MORE.ln() / loss.min(MOST_LOSS).ln();
    (round_trip + NOTICED_AFTER).mul_f64(attempts)
}

/// What the queue is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Targets {
    /// How long packets may stand.
    target: Duration,
    /// How long it takes until a sender that is told so sends less.
    reaction: Duration,
    /// Paths were lost that may return, so the rate of now says little.
    narrow: bool,
}

/// How long packets may stand, by what happened to the paths of late.
#[derive(Debug, Default)]
pub(super) struct Patience {
    narrow: Narrow,
    /// When a path last was in its startup.
    started: Option<Instant>,
    /// When a path last was emptied.
    emptied: Option<Instant>,
    /// Since when packets have been sent again all the time.
    repairs_since: Option<Instant>,
    /// How long these took when they last counted, and when.
    counted: Option<(Duration, Instant)>,
}

impl Patience {
    fn update(&mut self, outlook: &Outlook, now: Instant) -> Targets {
        let spare = outlook.round_trip.mul_f64(SPARE_ROUNDS);
        let long = outlook.round_trip.saturating_sub(SHORT);
        let spare = spare.max(long).max(HEAPS * outlook.held_up);
        let moving = outlook.fastest.mul_f64(outlook.best_to_now - 1.0);
        let mut target = TARGET.max(spare) + moving.min(MOVING_TARGET) + outlook.standing;
        target += self.repairs(outlook.repairs, now);
        if outlook.starts {
            self.started = Some(now);
        }
        if within(self.started, STARTING_FOR, now) {
            let rounds = outlook.slowest.mul_f64(STARTING_ROUNDS);
            target = target.max(STARTING_TARGET.max(rounds)).max(outlook.leader);
        }
        if outlook.empties {
            self.emptied = Some(now);
        }
        if within(self.emptied, DRAINED_ROUNDS * outlook.slowest, now) {
            target += outlook.slowest.mul_f64(EMPTIED_ROUNDS);
        }
        self.narrow.update(outlook.usable, now);
        let narrow = self.narrow.lasts(now);
        if narrow {
            target = target.max(NARROW_TARGET);
        }
        Targets {
            target,
            reaction: REACTION_ROUNDS * (outlook.slowest + target),
            narrow,
        }
    }

    /// What of `repairs` counts, or did a moment ago.
    fn repairs(&mut self, repairs: Duration, now: Instant) -> Duration {
        if repairs.is_zero() {
            self.repairs_since = None;
        } else {
            let since = *self.repairs_since.get_or_insert(now);
            if now >= since + LOSES_FOR {
                self.counted = Some((repairs, now));
            }
        }
        let counted = self
            .counted
            .filter(|(_, at)| within(Some(*at), LOSES_STILL, now));
        counted.map_or(Duration::ZERO, |(repairs, _)| repairs)
    }
}

/// Whether paths were lost that may return.
#[derive(Clone, Copy, Debug, Default)]
struct Narrow {
    /// How many there are, and how many there were before.
    usable: usize,
    before: usize,
    since: Option<Instant>,
}

impl Narrow {
    /// Takes note of how many paths are usable now.
    fn update(&mut self, usable: usize, now: Instant) {
        if usable < self.usable {
            if !self.lasts(now) {
                self.before = self.usable;
            }
            self.since = Some(now);
        }
        if usable >= self.before {
            *self = Self::default();
        }
        self.usable = usable;
    }

    fn lasts(&self, now: Instant) -> bool {
        self.since
            .is_some_and(|since| now.saturating_duration_since(since) < NARROW_FOR)
    }
}

impl Tunnel {
    /// Looks at the paths anew, and tells the queue how long packets may stand.
    pub(super) fn refresh_views(&mut self, pipe: &mut Pipe, seat: &mut Seat<'_>, now: Instant) {
        (self.round.polled, self.round.goes_on) = (now, false);
        self.set_floors();
        self.view_paths(now);
        self.take_seat(pipe, seat, now);
        self.look_at_fares(pipe, seat, now);
        self.leave_out_small();
        self.find_leader(now);
        let outlook = Outlook {
            repairs: self.held_up_by_repairs(pipe, now),
            ..self.outlook()
        };
        let targets = self.patience.update(&outlook, now);
        if !targets.narrow {
            let sum = |rate: fn(&PathView) -> u64| of_best_tier(&self.round.views).map(rate).sum();
            pipe.queue
                .set_rates(sum(|view| view.delivers), sum(|view| view.rate));
        }
        pipe.queue.set_target(targets.target, targets.reaction);
        self.collect_lost(pipe, now);
        self.settle_reliable(pipe);
        self.look_at_protection(pipe, now);
    }

    /// The paths as they are, and what each is good for beside the others.
    fn view_paths(&mut self, now: Instant) {
        let none_up = !self.paths.iter().any(Path::is_trusted);
        let (packet, reports) = (self.packet_size, self.is_numbered());
        let is_full = |path: &Path| u64::from(path.gate.carries()) >= packet;
        let all_full = self.paths.iter().all(is_full);
        let is_sure = |path: &Path| path.worth == Worth::Full && path.health.is_proven();
        // Copies leave on all paths as what they are on the smallest.
        let copies =
            self.scheduler.policy() == Policy::Redundant || !self.paths.iter().all(is_sure);
        let views = &mut self.round.views;
        views.clear();
        views.extend(self.paths.iter_mut().map(|path| {
            let view = path.view(packet, copies && !all_full, none_up, now);
            // Reports show when noq sends there again. Without them only packets do.
            let usable = view.usable && !(reports && path.refuses());
            // Who does not number packets would take each copy for another packet.
            let worth = if reports { view.worth } else { Worth::Full };
            PathView {
                usable,
                alive: view.alive || !reports,
                worth,
                ..view
            }
        }));
        self.scheduler.assess(views);
        for (path, view) in zip(&mut self.paths, views) {
            path.worth = view.worth;
            if reports && path.is_tried_again(now) {
                view.worth = Worth::Unknown;
            }
        }
    }

    /// No path takes more than what its link grants the class now; the link learns what the path
    /// delivers.
    fn take_seat(&mut self, pipe: &Pipe, seat: &mut Seat<'_>, now: Instant) {
        let mut due = self.round.held.take().filter(|&due| due <= now);
        for index in 0..self.paths.len() {
            let path = &mut self.paths[index];
            (path.held, path.guided) = (false, false);
            let Some(link) = path.on else { continue };
            seat.note_rate(link, self.round.views[index].delivers);
            if !seat.is_shared(link) {
                continue;
            }
            if let Some(due) = due.take() {
                seat.note_lateness(link, due, now);
            }
            let round_trips = path.take_round_trips();
            seat.note_path(link, self.load_on(link), round_trips, now);
            let (path, view) = (&mut self.paths[index], &mut self.round.views[index]);
            path.guided = seat.is_guided(link);
            let waits = pipe.queue.backlog() as u64;
            if waits == 0 && pipe.held.is_none() {
                continue;
            }
            let look = Look {
                wanted: view.budget.min(waits.max(path.least)),
                least: path.least,
            };
            let grant = seat.grant(link, look, now);
            view.budget = whole(view.budget.min(grant.bytes), path.least);
            path.held = grant.again.is_some();
            self.round.held = [self.round.held, grant.again].into_iter().flatten().min();
        }
    }

    /// What all paths over a link have sent: a hub may have several addresses.
    fn load_on(&self, link: LinkId) -> Load {
        let paths = zip(&self.paths, &self.round.views);
        let paths = paths.filter(|(path, _)| path.on == Some(link));
        paths.fold(Load::default(), |load, (path, view)| Load {
            in_flight: load.in_flight + path.gate.in_flight(),
            // What a path that is down sent stands in no queue.
            under_way: load.under_way
                + if view.usable {
                    path.gate.under_way()
                } else {
                    0
                },
        })
    }

    /// Says how late each path is in order, and which of them transfers start on.
    fn find_leader(&mut self, now: Instant) {
        let views = &mut self.round.views;
        let fastest = in_full_use(views).map(|view| view.srtt).min();
        let repair = fastest.unwrap_or_default() + ACK_DELAY;
        for (path, view) in zip(&self.paths, &mut *views) {
            view.late = path.lateness(self.packet_size, repair, now);
            view.leads = path.leads;
        }
        self.scheduler.find_leader(views);
        for (path, view) in zip(&mut self.paths, views) {
            path.leads = view.leads;
        }
    }

    fn outlook(&self) -> Outlook {
        let views = &self.round.views;
        let in_use = || in_full_use(views);
        Outlook {
            round_trip: Scheduler::round_trip(views).unwrap_or_default(),
            fastest: in_use().map(|view| view.srtt).min().unwrap_or_default(),
            slowest: in_use().map(|view| view.srtt).max().unwrap_or_default(),
            // What hosts hold up they do on all paths.
            held_up: in_use().map(|view| view.held_up).min().unwrap_or_default(),
            standing: self.scheduler.standing(views),
            best_to_now: self.best_to_now(),
            leader: views
                .iter()
                .find(|view| view.leads)
                .map_or(Duration::ZERO, |view| view.srtt),
            starts: self.paths.iter().any(|path| path.gate.starts()),
            empties: self.paths.iter().any(|path| path.gate.empties()),
            usable: views.iter().filter(|view| view.usable).count(),
            repairs: Duration::ZERO,
        }
    }

    /// How long transfers are held up at the far end because packets are sent again.
    fn held_up_by_repairs(&self, pipe: &Pipe, now: Instant) -> Duration {
        if !self.waits_for_repairs(pipe) {
            return Duration::ZERO;
        }
        let used = zip(&self.paths, &self.round.views).filter(|(_, view)| view.usable);
        let held_up =
            |(path, view): (&Path, &PathView)| held_up_by(path.gate.ledger().loss(now), view.srtt);
        used.map(held_up).max().unwrap_or_default()
    }

    /// How many times what the paths deliver now they did at best within seconds.
    fn best_to_now(&self) -> f64 {
        let used = zip(&self.paths, &self.round.views).filter(|(_, view)| view.usable);
        let (best, now) = used.fold((0, 0), |(best, now), (path, view)| {
            (best + path.gate.best_rate(view.srtt), now + view.delivers)
        });
        (best as f64 / now.max(1) as f64).max(1.0)
    }

    /// A path that does not carry what others do is not used. If none carries full packets, inner
    /// ones must be smaller.
    fn leave_out_small(&mut self) {
        if self.codec.is_none() {
            return;
        }
        let inner = |path: &Path| self.inner_of(path);
        let usable = zip(&self.paths, &self.round.views).filter(|(_, view)| view.usable);
        let Some(most) = usable.map(|(path, _)| inner(path)).max() else {
            return;
        };
        let full = self.conn.datagrams().max_size().unwrap_or(0);
        let full = full.saturating_sub(self.around());
        self.longest = most;
        for index in 0..self.round.views.len() {
            let carries = self.inner_of(&self.paths[index]);
            self.round.views[index].usable &= carries >= most.min(full);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_narrow_until_all_paths_are_back_or_for_a_time() {
        let start = Instant::now();
        let mut narrow = Narrow::default();
        let mut is_narrow = |usable, seconds| {
            let now = start + Duration::from_secs(seconds);
            narrow.update(usable, now);
            narrow.lasts(now)
        };
        assert!(!is_narrow(3, 0));
        assert!(is_narrow(2, 1));
        assert!(is_narrow(1, 2));
        assert!(is_narrow(2, 3));
        assert!(!is_narrow(3, 4));
        assert!(is_narrow(2, 5));
        assert!(is_narrow(2, 19));
        assert!(!is_narrow(2, 20));
        // What never came back is not waited for.
        assert!(is_narrow(1, 30));
        assert!(!is_narrow(2, 31));
    }

    const HOME: Outlook = Outlook {
        round_trip: Duration::from_millis(40),
        fastest: Duration::from_millis(40),
        slowest: Duration::from_millis(40),
        held_up: Duration::ZERO,
        standing: Duration::ZERO,
        best_to_now: 1.0,
        leader: Duration::ZERO,
        starts: false,
        empties: false,
        usable: 2,
        repairs: Duration::ZERO,
    };

    fn target(outlook: Outlook) -> Duration {
        let mut patience = Patience::default();
        patience.update(&outlook, Instant::now()).target
    }

    #[test]
    fn packets_stand_for_what_a_sender_needs_to_go_on_and_no_longer() {
        let millis = Duration::from_millis;
        assert_eq!(target(Outlook::default()), TARGET);
        assert_eq!(target(HOME), millis(16));
        let long = Outlook {
            round_trip: millis(100),
            ..HOME
        };
        assert_eq!(target(long), millis(76));
        let late_hosts = Outlook {
            held_up: millis(20),
            ..HOME
        };
        assert_eq!(target(late_hosts), millis(40));
        let striped = Outlook {
            standing: millis(30),
            ..HOME
        };
        assert_eq!(target(striped), millis(46));
    }

    #[test]
    fn where_packets_are_sent_again_as_much_stands_as_leaves_meanwhile() {
        let held_up = |loss| held_up_by(loss, Duration::from_millis(12)).as_millis();
        assert_eq!(held_up(0.004), 0);
        assert_eq!(held_up(0.05), 35);
        assert_eq!(held_up(0.3), 88);
        assert_eq!(held_up(0.9), 88);
    }

    #[test]
    fn what_a_startup_lost_is_no_reason() {
        let repairs = Duration::from_millis(35);
        let (mut patience, start) = (Patience::default(), Instant::now());
        assert_eq!(patience.repairs(repairs, start), Duration::ZERO);
        assert_eq!(patience.repairs(repairs, start + LOSES_FOR), repairs);

        let over = start + LOSES_FOR + LOSES_STILL;
        assert_eq!(patience.repairs(Duration::ZERO, over), Duration::ZERO);
        assert_eq!(patience.repairs(repairs, over), Duration::ZERO);
    }

    #[test]
    fn a_path_that_loses_now_and_then_is_no_reason_to_drop_what_stands_meanwhile() {
        let repairs = Duration::from_millis(35);
        let (mut patience, start) = (Patience::default(), Instant::now());
        patience.repairs(repairs, start);
        patience.repairs(repairs, start + LOSES_FOR);

        let soon = start + LOSES_FOR + LOSES_STILL / 2;
        assert_eq!(patience.repairs(Duration::ZERO, soon), repairs);
    }

    #[test]
    fn where_the_rate_moves_a_window_of_its_best_may_stand() {
        let millis = Duration::from_millis;
        let moves = |best_to_now| Outlook {
            best_to_now,
            ..HOME
        };
        assert_eq!(target(moves(3.0)), millis(16 + 80));
        assert_eq!(target(moves(100.0)), millis(16) + MOVING_TARGET);
    }

    /// Each of four was told to slow down while 32 kB waited.
    #[test]
    fn flows_that_start_together_on_a_long_path_may_wait_until_its_window_has_grown() {
        let millis = Duration::from_millis;
        let long = Outlook {
            round_trip: millis(128),
            fastest: millis(128),
            slowest: millis(128),
            starts: true,
            ..HOME
        };
        assert_eq!(target(long), millis(320));
    }

    #[test]
    fn what_stands_while_a_path_is_emptied_is_no_sign_that_it_is_full() {
        let millis = Duration::from_millis;
        let start = Instant::now();
        let mut patience = Patience::default();
        let emptied = Outlook {
            empties: true,
            ..HOME
        };
        assert_eq!(patience.update(&emptied, start).target, millis(16 + 60));
        let soon = start + millis(79);
        assert_eq!(patience.update(&HOME, soon).target, millis(16 + 60));
        assert_eq!(
            patience.update(&HOME, start + millis(80)).target,
            millis(16)
        );
    }

    #[test]
    fn a_start_and_a_lost_path_are_waited_out() {
        let start = Instant::now();
        let mut patience = Patience::default();
        let starting = Outlook {
            starts: true,
            ..HOME
        };
        let lost = Outlook { usable: 1, ..HOME };
        assert_eq!(patience.update(&starting, start).target, STARTING_TARGET);
        let soon = start + STARTING_FOR;
        let settled = patience.update(&HOME, soon);
        assert_eq!(settled.target, Duration::from_millis(16));
        assert!(!settled.narrow);
        let narrow = patience.update(&lost, soon);
        assert_eq!(narrow.target, NARROW_TARGET);
        assert_eq!(narrow.reaction, 3 * Duration::from_millis(290));
        assert!(narrow.narrow);
        assert!(!patience.update(&lost, soon + NARROW_FOR).narrow);
    }
}
