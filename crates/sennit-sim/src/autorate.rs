//! A rate by the law of cake-autorate 3, to compare with what our own finder gives out.
//!
//! It sees a link from outside: how much longer the answers to its pings take than they did, and
//! what is sent. While several of the last answers are late the rate falls, and then rests; while
//! most of the rate is used it grows, the less the longer answers take; else it drifts to a usual
//! one. The least, the usual and the greatest rate are set by hand. Its thresholds and factors are
//! those of the script's `defaults.sh`.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use sennit_netem::Bitrate;

/// Answers that take longer than usual by less than this, in seconds, let the rate grow most.
const SHORT: f64 = 0.010;
/// Answers that take longer by more than this are late.
const LATE: f64 = 0.030;
/// When they take longer by this, the rate falls most.
const LONG: f64 = 0.060;
/// The rate falls if so many of the last answers were late.
const WINDOW: usize = 6;
const LATE_ONES: usize = 3;
/// The factors by which it falls and grows at least and at most.
const FALLS: [f64; 2] = [0.99, 0.75];
const GROWS: [f64; 2] = [1.0, 1.04];
/// It rests for so long after it fell.
const RESTS: Duration = Duration::from_millis(300);
/// More than this part of it is sent while it grows.
const USED: f64 = 0.75;
/// The factors by which it drifts to the usual one while less is sent, and how often.
const DRIFTS: [f64; 2] = [0.99, 1.01];
const DRIFTS_EVERY: Duration = Duration::from_secs(1);
/// Weight of an answer that took longer than usual in what is usual, and of one that took less.
const WEIGHTS: [f64; 2] = [0.001, 0.9];

/// The rate of one direction of a link, in bytes per second inside.
#[derive(Clone, Debug)]
pub struct Autorate {
    least: f64,
    usual: f64,
    most: f64,
    rate: f64,
    /// What an answer takes without a queue, in seconds.
    baseline: Option<f64>,
    /// By how much the last answers took longer.
    longer: VecDeque<f64>,
    fell: Option<Instant>,
    drifted: Option<Instant>,
}

impl Autorate {
    /// It begins with the usual rate.
    pub fn new(least: Bitrate, usual: Bitrate, most: Bitrate) -> Self {
        let [least, usual, most] = [least, usual, most].map(Bitrate::as_bytes_per_second_f64);
        Self {
            least,
            usual,
            most,
            rate: usual,
            baseline: None,
            longer: VecDeque::new(),
            fell: None,
            drifted: None,
        }
    }

    /// The rate.
    pub fn rate(&self) -> Bitrate {
        Bitrate::bytes_per_second(self.rate as u64)
    }

    /// The answer to a ping took so long, while so many bytes were sent in a second.
    pub fn handle_answer(&mut self, took: Duration, sent: f64, now: Instant) {
        let took = took.as_secs_f64();
        let baseline = self.baseline.get_or_insert(took);
        let weight = WEIGHTS[usize::from(took < *baseline)];
        *baseline += weight * (took - *baseline);
        if self.longer.len() == WINDOW {
            self.longer.pop_front();
        }
        self.longer.push_back(took - *baseline);
        self.rate = (self.rate * self.factor(sent, now)).clamp(self.least, self.most);
    }

    fn factor(&mut self, sent: f64, now: Instant) -> f64 {
        let has_passed = |since: Option<Instant>, span| {
            since.is_none_or(|at| now.saturating_duration_since(at) > span)
        };
        let rested = has_passed(self.fell, RESTS);
        let longer = self.longer.iter().sum::<f64>() / WINDOW as f64;
        let late = self.longer.iter().filter(|longer| **longer > LATE).count();
        if late >= LATE_ONES {
            if !rested {
                return 1.0;
            }
            self.fell = Some(now);
            return between(FALLS, (longer - LATE) / (LONG - LATE));
        }
        if sent > USED * self.rate {
            let grows = between(GROWS, (LATE - longer) / (LATE - SHORT));
            return if rested { grows } else { 1.0 };
        }
        if !has_passed(self.drifted, DRIFTS_EVERY) {
            return 1.0;
        }
        self.drifted = Some(now);
        let [down, up] = DRIFTS;
        let usual = self.usual / self.rate;
        if usual < 1.0 {
            usual.max(down)
        } else {
            usual.min(up)
        }
    }
}

/// The factor at this part of the way from the first to the second.
fn between([first, second]: [f64; 2], part: f64) -> f64 {
    first + (second - first) * part.clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate in Mbit/s after each of so many answers, 50 ms apart, that took so long, while this
    /// part of it was used.
    fn after(law: &mut Autorate, answers: u32, took_ms: u64, used: f64, now: &mut Instant) -> f64 {
        for _ in 0..answers {
            *now += Duration::from_millis(50);
            let sent = used * law.rate().as_bytes_per_second_f64();
            law.handle_answer(Duration::from_millis(took_ms), sent, *now);
        }
        law.rate().as_bps() as f64 / 1e6
    }

    #[test]
    fn the_rate_grows_while_it_is_used_and_falls_while_answers_are_late() {
        let mut law = Autorate::new(Bitrate::mbit(5), Bitrate::mbit(20), Bitrate::mbit(60));
        let now = &mut Instant::now();
        assert_eq!(after(&mut law, 10, 40, 0.1, now), 20.0, "nobody uses it");
        let grown = after(&mut law, 10, 40, 0.9, now);
        assert!((29.0..30.0).contains(&grown), "{grown}");
        assert_eq!(after(&mut law, 30, 40, 0.9, now), 60.0, "the most");
        // The second late answer does not count yet, and then it rests between two falls.
        assert_eq!(after(&mut law, 2, 200, 0.9, now), 60.0);
        let fallen = after(&mut law, 1, 200, 0.9, now);
        assert!((44.0..46.0).contains(&fallen), "{fallen}");
        assert_eq!(after(&mut law, 6, 200, 0.9, now), fallen);
        assert!(after(&mut law, 1, 200, 0.9, now) < fallen);
        assert_eq!(after(&mut law, 100, 200, 0.9, now), 5.0, "the least");
        let drifted = after(&mut law, 100, 40, 0.1, now);
        assert!((5.1..5.4).contains(&drifted), "{drifted}");
    }
}
