//! What is found of a link that is given all it takes.

use super::*;

const MS: Duration = Duration::from_millis(1);
const RTT: Duration = Duration::from_millis(26);

/// A link of so many bytes per second, that is given all it takes.
struct Link {
    now: Instant,
    found: Found,
    sent: f64,
    arrived: f64,
    queue: f64,
    /// What had arrived a window ago, and how late it was: that is acknowledged now.
    acked: Option<(f64, Duration)>,
    /// The path is longer than it was.
    longer: Duration,
    /// By up to so much it is longer now and then.
    jitter: Duration,
    /// How late acknowledgements are said to come.
    back: Duration,
    /// What another class has under way, and had when its path went.
    beside: u64,
    gone: u64,
}

impl Link {
    fn new() -> Self {
        Self {
            now: Instant::now(),
            found: Found::default(),
            sent: 0.0,
            arrived: 0.0,
            queue: 0.0,
            acked: None,
            longer: Duration::ZERO,
            jitter: Duration::ZERO,
            back: Duration::ZERO,
            beside: 0,
            gone: 0,
        }
    }

    /// Runs for so many windows at a rate; returns the longest delay.
    fn run(&mut self, carries: f64, windows: u32) -> Duration {
        let mut longest = Duration::ZERO;
        for window in 0..windows {
            let span = self.found.span().max(RTT);
            let seconds = span.as_secs_f64();
            let offered = if self.found.given > 0.0 {
                self.found.given * seconds
            } else {
                2.0 * carries * seconds
            };
            let through = (self.queue + offered).min(carries * seconds);
            self.queue = (self.queue + offered - through).max(0.0);
            (self.sent, self.arrived) = (self.sent + offered, self.arrived + through);
            self.now += span;
            // Golden steps: evenly spread, in no order.
            let now_and_then = self.jitter.mul_f64(0.618 * f64::from(window) % 1.0);
            let queue = Duration::from_secs_f64(self.queue / carries);
            let delay = queue + self.longer + now_and_then;
            longest = longest.max(delay);
            let (acked, known) = self
                .acked
                .replace((self.arrived, delay))
                .unwrap_or_default();
            let seen = Seen {
                sent: self.sent as u64 + self.beside + self.gone,
                in_flight: (self.sent - acked) as u64 + self.beside,
                gone: self.gone,
                delay: Some(known),
                rtt: RTT,
                held: self.found.given > 0.0,
                back: self.back,
                slack: Duration::ZERO,
            };
            self.found.update(&seen, self.now);
        }
        longest
    }
}

const MBIT: f64 = 125_000.0;

#[test]
fn a_steady_link_is_found_and_stays_without_a_queue() {
    let mut link = Link::new();
    link.run(50.0 * MBIT, 60);
    let longest = link.run(50.0 * MBIT, 400);
    assert!(longest < 8 * MS, "{longest:?}");
    let part = link.found.given / (50.0 * MBIT);
    assert!((0.85..=1.04).contains(&part), "{part}");
}

#[test]
fn a_link_that_carries_less_is_followed_at_once_and_one_that_carries_more_soon() {
    let mut link = Link::new();
    link.run(50.0 * MBIT, 60);
    link.run(20.0 * MBIT, 3);
    assert!(
        link.found.given < 20.0 * MBIT,
        "{}",
        link.found.given / MBIT
    );
    link.run(20.0 * MBIT, 20);
    link.run(60.0 * MBIT, 100);
    assert!(
        link.found.given > 50.0 * MBIT,
        "{}",
        link.found.given / MBIT
    );
}

#[test]
fn delay_that_comes_and_goes_is_not_a_queue_and_hides_none() {
    let mut link = Link::new();
    link.jitter = 12 * MS;
    link.run(15.0 * MBIT, 60);
    link.run(50.0 * MBIT, 300);
    let parts = (0..10).map(|_| {
        let longest = link.run(50.0 * MBIT, 40);
        assert!(longest < 30 * MS, "{longest:?}");
        link.found.given / (50.0 * MBIT)
    });
    let part = parts.sum::<f64>() / 10.0;
    assert!(part > 0.8, "{part}");
    link.run(20.0 * MBIT, 20);
    let given = link.found.given / MBIT;
    assert!(given < 21.0, "{given}");
}

/// They seemed to have arrived within a moment, or over a long while.
#[test]
fn acknowledgements_that_take_another_way_say_nothing_of_the_rate() {
    const STEPS: [u32; 7] = [80, 0, 30, 200, 10, 5000, 0];
    let mut link = Link::new();
    link.run(50.0 * MBIT, 60);
    for late in STEPS {
        link.back = MS * late;
        link.run(50.0 * MBIT, 3);
        let part = link.found.carries / (50.0 * MBIT);
        assert!((0.85..=1.1).contains(&part), "{late} ms: {part}");
        assert!(link.found.steady, "{late} ms");
    }
    // Of a link whose rate moves more is believed.
    link.run(20.0 * MBIT, 20);
    link.run(60.0 * MBIT, 20);
    assert!(link.found.moves());
    for late in STEPS {
        link.back = MS * late;
        link.run(60.0 * MBIT, 3);
        let part = link.found.carries / (60.0 * MBIT);
        assert!((0.6..=1.2).contains(&part), "{late} ms: {part}");
    }
}

#[test]
fn what_was_under_way_with_a_path_that_goes_has_not_arrived() {
    let mut link = Link::new();
    link.beside = 300_000;
    link.run(50.0 * MBIT, 60);
    let before = link.found.carries;
    (link.beside, link.gone) = (0, 300_000);
    link.run(50.0 * MBIT, 3);
    let part = link.found.carries / before;
    assert!((0.9..=1.1).contains(&part), "{part}");
    assert!(!link.found.moves());
}

#[test]
fn a_stall_is_not_a_queue() {
    let mut link = Link::new();
    link.run(50.0 * MBIT, 60);
    let before = link.found.given;
    for _ in 0..10 {
        link.now += RTT;
        let seen = Seen {
            sent: link.sent as u64,
            in_flight: 100_000,
            gone: 0,
            delay: None,
            rtt: RTT,
            held: true,
            back: Duration::ZERO,
            slack: Duration::ZERO,
        };
        link.found.update(&seen, link.now);
    }
    assert_eq!(link.found.cause(), Cause::Stalled);
    let late = Seen {
        sent: link.sent as u64,
        in_flight: 0,
        gone: 0,
        delay: Some(10 * RTT),
        rtt: RTT,
        held: true,
        back: Duration::ZERO,
        slack: Duration::ZERO,
    };
    link.now += RTT;
    link.found.update(&late, link.now);
    assert_eq!(link.found.given, before);
}

/// A lone packet is acknowledged late, since its receiver waits for another.
#[test]
fn lone_packets_that_are_acknowledged_late_are_no_queue() {
    let mut found = Found::default();
    let mut now = Instant::now();
    let mut see = |delay, sent, in_flight| {
        now += RTT;
        let seen = Seen {
            sent,
            in_flight,
            gone: 0,
            delay: Some(delay),
            rtt: RTT,
            held: false,
            back: Duration::ZERO,
            slack: Duration::ZERO,
        };
        found.update(&seen, now)
    };
    assert_eq!(see(Duration::ZERO, 0, 0), 0);
    for packets in 1..=10 {
        assert_eq!(see(5 * MS, 300 * packets, 300), 0);
    }

    let burst = see(5 * MS, 43_000, 40_000);

    assert_eq!(burst, 0, "what has just been sent stood in no queue yet");
}

#[test]
fn a_path_that_becomes_longer_is_not_starved() {
    let mut link = Link::new();
    link.run(50.0 * MBIT, 60);
    link.longer = 30 * MS;
    link.run(50.0 * MBIT, 60);
    let part = link.found.given / (50.0 * MBIT);
    assert!(part > 0.85, "{part}");
}

#[test]
fn a_link_whose_rate_moves_keeps_a_short_queue_and_is_followed_upward_soon() {
    let mut link = Link::new();
    link.run(50.0 * MBIT, 60);
    for _ in 0..3 {
        link.run(8.0 * MBIT, 40);
        let longest = link.run(8.0 * MBIT, 10);
        assert!(longest < 25 * MS, "{longest:?}");
        link.run(50.0 * MBIT, 20);
        let part = link.found.given / (50.0 * MBIT);
        assert!(part > 0.9, "{part}");
    }
}
