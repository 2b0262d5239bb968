//! `fec = "auto"`: whether packets are protected, and by how much.
//!
//! Sending again costs what is lost and no more, so it is enough while two attempts fit into the
//! time that the inside bears. Where they do not, a window of random combinations is added, because
//! it brings packets back soonest for what it costs (RFC 8681 and `docs/src/repair.md`): as much of
//! it as the most that was lost in the last ten seconds asks for, and what is lost all the same is
//! sent again. Where it is not, losses in bursts ask for more, and for a longer window. It ends
//! where little comes back: of a queue that overflows, or of bursts that are longer than what one
//! window makes up for.

use std::time::{Duration, Instant};

use sennit_core::frame::Tidings;
use sennit_fec::{Code, WINDOW_TIME};

use super::FecReason;
use crate::recovery::repair_time;

/// Less loss than this is not worth the data.
const FEW: f64 = 0.002;
/// While packets are protected it is less than this part of it, so that protection does not come
/// and go.
const STILL_FEW: f64 = 0.5;
/// How late a lost packet may be for a transfer, whose transport's timer is longer, and for
/// anything else: the jitter buffer of a call.
const TRANSFERS_BEAR: Duration = Duration::from_millis(150);
const CALLS_BEAR: Duration = Duration::from_millis(60);
/// Attempts that should fit into it.
const ATTEMPTS: u32 = 2;
/// Redundancy for each part that is lost by chance: a window of 128 then leaves less than 0.01 %
/// (`docs/src/repair.md`). What is more than one is a margin for windows that lose more than
/// others.
const PER_LOSS: f64 = 1.9;
/// Bursts so many times as long as by chance are no chance.
const BURSTY: f64 = 1.2;
/// A window of bursts is half as long again: most of the sources between two of them are in it.
const BURST_WINDOW: Duration = Duration::from_millis(150);
/// Sources for each repair, at least and at most.
const EVERY: [f64; 2] = [3.0, 20.0];
/// A class that sends fewer packets in a second is sparse: after most of its packets nothing leaves
/// by which their loss is noticed, so that it takes a probe and two round trips to mend, and to
/// protect each costs next to nothing.
const SPARSE: f64 = 25.0;
/// What a dense class sent counts for this much less after a second.
const STAYS_DENSE: f64 = 0.5;
/// Of what a sparse class sends this part may be lost with all its repairs, of which there are this
/// many at most.
const RESIDUAL: f64 = 0.002;
const MOST_REPAIRS: f64 = 4.0;
/// The most that was lost in this time counts.
const MOST_OF: Duration = Duration::from_secs(10);
/// Where what is lost is sent again, packets are protected once paths have lost some for so long:
/// what a startup overflows is no reason to send more.
const LASTS: Duration = Duration::from_secs(3);
/// How often paths are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// What came back is judged after so many losses, and after this time.
const JUDGED_LOSSES: u32 = 50;
const JUDGED_AFTER: Duration = Duration::from_secs(3);
/// Less than this part of the losses came back: it does not help.
const HELPS: f64 = 0.3;
/// It is tried again after this time.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// A round trip of so much more than the least is that of a crowded path.
const CROWDED: Duration = Duration::from_millis(15);

/// Whether so much stands before a path of this round trip that what it loses is likely to have
/// overflowed there: more packets do not mend that.
pub(crate) fn is_crowded(round_trip: Duration, least: Duration) -> bool {
    round_trip > least + (least / 2).max(CROWDED)
}

/// What the paths are like that packets leave on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlook {
    /// Part of the packets that they lose, 0 to 1.
    pub loss: f64,
    /// Part of them that was lost since they began to lose some, while `loss`, an average, does not
    /// know of it yet.
    pub loss_at_first: f64,
    /// How many times as long as by chance are the bursts in which they lose packets.
    pub burst: f64,
    /// Part of them that was lost within a minute, for a class that is sparse.
    pub loss_counted: f64,
    /// Packets that the class has sent, ever.
    pub sent: u64,
    /// Some of its packets wait.
    pub waits: bool,
    /// The least round trip of one.
    pub round_trip: Duration,
    /// Lost packets are sent again.
    pub repairs: bool,
    /// Every packet leaves more than once.
    pub copies: bool,
    /// The far end takes repairs.
    pub taken: bool,
}

/// Chooses whether packets are protected, and by how much: what it chose, and what from.
#[derive(Debug)]
pub struct Chooser {
    code: Option<Code>,
    reason: FecReason,
    leaves_transfers: bool,
    looked: Instant,
    /// Packets sent by then, and how many in a second, of late.
    sent: u64,
    rate: f64,
    /// The most that was lost in this and the last span of half of [`MOST_OF`].
    most: [f64; 2],
    span_began: Instant,
    /// What the last look saw of losses that had just begun, and of bursts.
    loss_at_first: f64,
    burst: f64,
    /// Since when each look has seen losses.
    lossy_since: Option<Instant>,
    /// Since when each look has seen counted ones.
    counted_since: Option<Instant>,
    /// When it began to be judged, and what had come back and been lost by then.
    judged_from: Option<(Instant, u32, u32)>,
    no_help_until: Option<Instant>,
}

impl Chooser {
    /// Nothing is protected until losses are seen.
    pub fn new(now: Instant) -> Self {
        Self {
            code: None,
            reason: FecReason::FewLosses,
            leaves_transfers: false,
            looked: now,
            sent: 0,
            rate: 0.0,
            most: [0.0; 2],
            span_began: now,
            loss_at_first: 0.0,
            burst: 1.0,
            lossy_since: None,
            counted_since: None,
            judged_from: None,
            no_help_until: None,
        }
    }

    /// The code that runs.
    pub fn code(&self) -> Option<Code> {
        self.code
    }

    /// Why.
    pub fn reason(&self) -> FecReason {
        self.reason
    }

    /// Whether what is lost of a transfer is sent again in time, so that only others are protected.
    pub(crate) fn leaves_transfers(&self) -> bool {
        self.leaves_transfers
    }

    /// Whether it is time to look at the paths again.
    pub fn is_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.looked) >= LOOK_EVERY
    }

    /// Chooses anew by what the paths are like, and by what the far end told of what came back.
    pub fn look(&mut self, outlook: &Outlook, told: Option<&Tidings>, now: Instant) {
        let passed = now.saturating_duration_since(self.looked);
        let sent = outlook.sent.saturating_sub(self.sent);
        let rate = sent as f64 / passed.max(LOOK_EVERY).as_secs_f64();
        (self.looked, self.sent) = (now, outlook.sent);
        // It has been sparse for a while, but is not from the first look at much on.
        let least = if outlook.waits { SPARSE } else { 0.0 };
        let before = self.rate * STAYS_DENSE.powf(passed.as_secs_f64());
        self.rate = rate.max(before).max(least);
        let loss = if self.is_sparse() {
            outlook.loss.max(outlook.loss_counted)
        } else {
            outlook.loss
        };
        if now.saturating_duration_since(self.span_began) >= MOST_OF / 2 {
            self.most = [0.0, self.most[0]];
            self.span_began = now;
        }
        self.most[0] = self.most[0].max(loss);
        // What is sent again needs no margin.
        (self.loss_at_first, self.burst) = if outlook.repairs {
            (0.0, 1.0)
        } else {
            (outlook.loss_at_first, outlook.burst)
        };
        let since = |loss: f64, known: Option<Instant>| (loss >= FEW).then(|| known.unwrap_or(now));
        self.lossy_since = since(outlook.loss, self.lossy_since);
        self.counted_since = since(outlook.loss_counted, self.counted_since);
        if let (Some(told), true) = (told, self.code.is_some()) {
            self.judge(told, now);
        }
        let before = (self.code, self.reason);
        (self.code, self.reason) = self.choose(outlook, now);
        if self.code.is_none() {
            self.judged_from = None;
        }
        if (self.code.is_some(), self.reason) != (before.0.is_some(), before.1) {
            let (code, burst) = (self.code, self.burst);
            tracing::info!(?code, reason = %self.reason, loss, burst, "protection changes");
        }
    }

    /// How old what a repair covers may be.
    pub fn window_time(&self) -> Duration {
        if self.burst > BURSTY {
            BURST_WINDOW
        } else {
            WINDOW_TIME
        }
    }

    /// Part of the packets that may be lost.
    fn loss(&self) -> f64 {
        self.most[0].max(self.most[1]).max(self.loss_at_first)
    }

    /// Redundancy for each part that is lost. The margin grows as the standard deviation of a
    /// window's losses does: that is the root of 2 *b* − 1 times what it is by chance where bursts
    /// are *b* times as long (of the two states of Gilbert 1960).
    fn per_loss(&self) -> f64 {
        if self.burst > BURSTY {
            1.0 + (PER_LOSS - 1.0) * (2.0 * self.burst - 1.0).sqrt()
        } else {
            PER_LOSS
        }
    }

    /// Repairs that a packet has at least before a pause.
    pub fn tail(&self) -> u8 {
        let loss = self.loss();
        if !self.is_sparse() || loss <= 0.0 || loss >= 1.0 {
            return 1;
        }
        let copies = (RESIDUAL.ln() / loss.ln()).ceil();
        (copies - 1.0).clamp(1.0, MOST_REPAIRS) as u8
    }

    fn is_sparse(&self) -> bool {
        self.rate < SPARSE
    }

    fn choose(&mut self, outlook: &Outlook, now: Instant) -> (Option<Code>, FecReason) {
        let loss = self.loss();
        let few = if self.code.is_some() {
            STILL_FEW * FEW
        } else {
            FEW
        };
        let attempts = ATTEMPTS * repair_time(outlook.round_trip, outlook.round_trip);
        let lossy_since = if self.is_sparse() {
            self.counted_since
        } else {
            self.lossy_since
        };
        let lasts = lossy_since.is_some_and(|since| now.saturating_duration_since(since) >= LASTS);
        let in_time = attempts <= TRANSFERS_BEAR && !self.is_sparse();
        self.leaves_transfers = outlook.repairs && in_time;
        let why_not = if !outlook.taken {
            Some(FecReason::Peer)
        } else if outlook.copies {
            Some(FecReason::Copies)
        } else if loss < few || outlook.repairs && !lasts {
            Some(FecReason::FewLosses)
        } else if outlook.repairs && attempts <= CALLS_BEAR {
            Some(FecReason::SentAgain)
        } else if self.no_help_until.is_some_and(|until| now < until) {
            Some(FecReason::NoHelp)
        } else {
            None
        };
        if let Some(reason) = why_not {
            return (None, reason);
        }
        let every = (1.0 / (self.per_loss() * loss)).clamp(EVERY[0], EVERY[1]) as u8;
        let reason = if self.leaves_transfers {
            FecReason::TooFarForCalls
        } else if outlook.repairs {
            FecReason::TooFar
        } else {
            FecReason::NotSentAgain
        };
        (Some(Code::Rlc { every }), reason)
    }

    /// Whether what is lost comes back.
    fn judge(&mut self, told: &Tidings, now: Instant) {
        let Some((since, recovered, lost)) = self.judged_from else {
            self.judged_from = Some((now, told.recovered, told.lost));
            return;
        };
        let [recovered, lost] = [(told.recovered, recovered), (told.lost, lost)].map(more);
        let enough = recovered + lost >= JUDGED_LOSSES
            && now.saturating_duration_since(since) >= JUDGED_AFTER;
        if !enough {
            return;
        }
        self.judged_from = Some((now, told.recovered, told.lost));
        if f64::from(recovered) < HELPS * f64::from(recovered + lost) {
            self.no_help_until = Some(now + RETRY_AFTER);
        }
    }
}

/// How much further a count is than `before`. Counts wrap, and older tidings may come after newer.
fn more((now, before): (u32, u32)) -> u32 {
    now.wrapping_sub(before)
        .cast_signed()
        .max(0)
        .cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: Outlook = Outlook {
        loss: 0.05,
        loss_at_first: 0.0,
        burst: 1.0,
        loss_counted: 0.0,
        sent: 1_000_000,
        waits: false,
        round_trip: Duration::from_millis(10),
        repairs: true,
        copies: false,
        taken: true,
    };

    fn choice(outlook: Outlook) -> (Option<Code>, FecReason) {
        let start = Instant::now();
        let mut chooser = Chooser::new(start);
        chooser.look(&outlook, None, start);
        let at_once = chooser.code();
        chooser.look(&outlook, None, start + LASTS);
        assert!(at_once.is_none() || !outlook.repairs);
        (chooser.code(), chooser.reason())
    }

    #[test]
    fn packets_are_protected_where_sending_again_is_not_enough() {
        let far = Outlook {
            round_trip: Duration::from_millis(200),
            ..NEAR
        };
        let datagrams = Outlook {
            repairs: false,
            ..NEAR
        };
        let every = |every| Some(Code::Rlc { every });
        assert_eq!(choice(NEAR), (None, FecReason::SentAgain));
        let not_so_far = Outlook {
            round_trip: Duration::from_millis(30),
            ..NEAR
        };
        assert_eq!(choice(not_so_far), (every(10), FecReason::TooFarForCalls));
        assert_eq!(choice(far), (every(10), FecReason::TooFar));
        assert_eq!(choice(datagrams), (every(10), FecReason::NotSentAgain));
        let lossy = Outlook { loss: 0.3, ..far };
        assert_eq!(choice(lossy).0, every(3));
        let clean = Outlook { loss: 0.001, ..far };
        assert_eq!(choice(clean), (None, FecReason::FewLosses));
        assert_eq!(
            choice(Outlook {
                copies: true,
                ..far
            })
            .1,
            FecReason::Copies
        );
        assert_eq!(
            choice(Outlook {
                taken: false,
                ..far
            })
            .1,
            FecReason::Peer
        );
    }

    #[test]
    fn bursts_are_made_up_for_by_more_repairs_of_a_longer_window() {
        let start = Instant::now();
        let mut chooser = Chooser::new(start);
        let mut look = |burst| {
            let outlook = Outlook {
                burst,
                repairs: false,
                ..NEAR
            };
            chooser.look(&outlook, None, start);
            (chooser.code(), chooser.window_time())
        };
        let every = |every| Some(Code::Rlc { every });
        assert_eq!(look(1.0), (every(10), WINDOW_TIME));
        assert_eq!(look(1.1), (every(10), WINDOW_TIME), "that is chance");
        assert_eq!(look(1.5), (every(8), BURST_WINDOW));
        assert_eq!(look(2.85), (every(6), BURST_WINDOW));
        assert_eq!(look(8.0), (every(4), BURST_WINDOW));
    }

    #[test]
    fn losses_that_just_began_are_believed_at_once_and_for_a_moment() {
        let start = Instant::now();
        let mut chooser = Chooser::new(start);
        let mut look = |loss_at_first, loss, millis| {
            let outlook = Outlook {
                loss,
                loss_at_first,
                repairs: false,
                ..NEAR
            };
            chooser.look(&outlook, None, start + Duration::from_millis(millis));
            chooser.code()
        };
        let every = |every| Some(Code::Rlc { every });
        assert_eq!(look(0.0, 0.001, 0), None);
        assert_eq!(look(0.08, 0.01, 250), every(6));
        assert_eq!(look(0.05, 0.03, 500), every(10));
        assert_eq!(look(0.0, 0.05, 1000), every(10));
    }

    #[test]
    fn a_sparse_class_is_protected_whole_and_by_what_was_counted() {
        let start = Instant::now();
        let mut chooser = Chooser::new(start);
        let mut look = |sent, seconds| {
            let outlook = Outlook {
                loss: 0.0,
                loss_counted: 0.05,
                sent,
                round_trip: Duration::from_millis(40),
                ..NEAR
            };
            chooser.look(&outlook, None, start + Duration::from_secs(seconds));
            (
                chooser.code().is_some(),
                chooser.leaves_transfers(),
                chooser.tail(),
            )
        };
        assert!(!look(3, 1).0, "not for a moment's losses");
        assert_eq!(look(12, 4), (true, false, 2));
        // A thousand packets in a second: the average decides, which knows of no loss.
        assert_eq!(look(1012, 5), (false, true, 1));
        // Soon after it is what it was.
        assert_eq!(look(1015, 12), (true, false, 2));
    }

    #[test]
    fn the_most_of_the_last_ten_seconds_counts() {
        let start = Instant::now();
        let mut chooser = Chooser::new(start);
        let mut look = |loss, millis| {
            let outlook = Outlook {
                loss,
                repairs: false,
                ..NEAR
            };
            chooser.look(&outlook, None, start + Duration::from_millis(millis));
            chooser.code()
        };
        assert_eq!(look(0.1, 0), Some(Code::Rlc { every: 5 }));
        assert_eq!(look(0.01, 4000), Some(Code::Rlc { every: 5 }));
        assert_eq!(look(0.01, 8000), Some(Code::Rlc { every: 5 }));
        assert_eq!(look(0.01, 13_000), Some(Code::Rlc { every: 20 }));
        assert_eq!(look(0.0, 18_000), Some(Code::Rlc { every: 20 }));
        assert_eq!(look(0.0, 24_000), None);
    }

    /// What the far end told at each second, and whether packets were protected then, and why.
    fn told(counts: &[(u32, u32, u64)]) -> Vec<(bool, FecReason)> {
        let start = Instant::now();
        let mut chooser = Chooser::new(start);
        let outlook = Outlook {
            repairs: false,
            ..NEAR
        };
        let look = |&(recovered, lost, seconds): &(u32, u32, u64)| {
            let told = Tidings {
                recovered,
                lost,
                ..Tidings::default()
            };
            chooser.look(&outlook, Some(&told), start + Duration::from_secs(seconds));
            (chooser.code().is_some(), chooser.reason())
        };
        counts.iter().map(look).collect()
    }

    #[test]
    fn what_does_not_help_ends() {
        let counts = [
            (0, 0, 0),
            (0, 0, 1),
            (100, 10, 5),
            (110, 100, 9),
            (110, 100, 40),
        ];
        let protected = told(&counts).into_iter().map(|(protected, _)| protected);
        let expected = [true, true, true, false, true];
        assert!(protected.eq(expected), "and it is tried again");
        assert_eq!(told(&counts[..4])[3].1, FecReason::NoHelp);
    }

    #[test]
    fn what_does_not_help_ends_where_counts_wrap_and_not_by_tidings_that_come_late() {
        let (few, many) = (u32::MAX - 5, u32::MAX - 50);
        let wraps = told(&[
            (few, many, 0),
            (few, many, 1),
            (few.wrapping_add(10), 40, 5),
        ]);
        assert_eq!(wraps[2], (false, FecReason::NoHelp));
        let late = told(&[(100, 900, 0), (100, 900, 1), (90, 800, 5)]);
        assert!(late[2].0, "{late:?}");
    }
}
