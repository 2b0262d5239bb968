//! The window of CUBIC (RFC 9438), in bytes.

use std::time::{Duration, Instant};

use super::LEN;

const PACKET: f64 = LEN as f64;
/// RFC 9002 §7.2.
const INITIAL: f64 = 10.0 * PACKET;
const LEAST: f64 = 2.0 * PACKET;
/// RFC 9438 §4.1 and §4.6.
const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// Makes up for [`BETA`], which is Reno's 0.5 otherwise (RFC 9438 §4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

#[derive(Debug)]
pub(super) struct Cubic {
    window: f64,
    threshold: f64,
    /// The window before the last reduction.
    most: f64,
    /// What Reno would have.
    reno: f64,
    /// When the last reduction was.
    reduced: Option<Instant>,
}

impl Default for Cubic {
    fn default() -> Self {
        Self {
            window: INITIAL,
            threshold: f64::INFINITY,
            most: 0.0,
            reno: 0.0,
            reduced: None,
        }
    }
}

impl Cubic {
    pub(super) fn window(&self) -> usize {
        self.window as usize
    }

    /// A packet that was sent at `sent` has arrived.
    pub(super) fn handle_ack(&mut self, sent: Instant, srtt: Duration, now: Instant) {
        if self.is_recovering(sent) {
            return;
        }
        let Some(reduced) = self.reduced.filter(|_| self.window >= self.threshold) else {
            self.window += PACKET;
            return;
        };
        let alpha = if self.reno < self.most { ALPHA } else { 1.0 };
        self.reno += alpha * PACKET * PACKET / self.window;
        let ahead = (now - reduced + srtt).as_secs_f64();
        let plateau = (self.most * (1.0 - BETA) / (C * PACKET)).cbrt();
        let cubic = self.most + C * PACKET * (ahead - plateau).powi(3);
        let target = cubic.clamp(self.window, 1.5 * self.window);
        self.window += (target - self.window) * PACKET / self.window;
        self.window = self.window.max(self.reno);
    }

    /// A packet that was sent at `sent` is lost.
    pub(super) fn handle_loss(&mut self, sent: Instant, now: Instant) {
        if self.is_recovering(sent) {
            return;
        }
        self.most = if self.window < self.most {
            self.window * (1.0 + BETA) / 2.0
        } else {
            self.window
        };
        self.window = (self.window * BETA).max(LEAST);
        self.threshold = self.window;
        self.reno = self.window;
        self.reduced = Some(now);
    }

    /// Everything was lost for long (RFC 9002 §7.6.2).
    pub(super) fn collapse(&mut self) {
        self.window = LEAST;
    }

    /// Whether the last reduction came after such a packet was sent, so that it counts for it too.
    fn is_recovering(&self, sent: Instant) -> bool {
        self.reduced.is_some_and(|reduced| sent <= reduced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(50);

    #[test]
    fn the_window_doubles_per_round_trip_until_the_first_loss() {
        let mut cubic = Cubic::default();
        let now = Instant::now();
        for _ in 0..10 {
            cubic.handle_ack(now, RTT, now + RTT);
        }
        assert_eq!(cubic.window(), 20 * LEN);
    }

    #[test]
    fn losses_of_one_round_trip_reduce_it_once() {
        let mut cubic = Cubic::default();
        let now = Instant::now();
        for _ in 0..5 {
            cubic.handle_loss(now, now + RTT);
        }
        assert_eq!(cubic.window(), 7 * LEN);
        cubic.handle_loss(now + RTT * 2, now + RTT * 3);
        assert_eq!(cubic.window(), (4.9 * PACKET) as usize);
    }

    #[test]
    fn it_returns_to_where_the_loss_was_after_the_time_that_rfc_9438_gives() {
        let mut cubic = Cubic {
            window: 100.0 * PACKET,
            ..Cubic::default()
        };
        let start = Instant::now();
        cubic.handle_loss(start, start);
        // A hundred acknowledgements per round trip of 200 ms, from one time to another in ms.
        let mut window_after = |from: u64, to: u64| {
            let rtt = Duration::from_millis(200);
            for millis in (from..to).step_by(2) {
                let now = start + Duration::from_millis(millis + 2);
                cubic.handle_ack(now, rtt, now);
            }
            cubic.window / PACKET
        };
        // RFC 9438 §4.2: the cube root of 100 * 0.3 / 0.4 is 4.2 s.
        assert!((96.0..98.0).contains(&window_after(0, 2100)));
        assert!((99.0..101.0).contains(&window_after(2100, 4200)));
        assert!(window_after(4200, 8400) > 120.0);
    }
}
