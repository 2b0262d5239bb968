//! How far a command is that takes long.

use std::io::IsTerminal as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Signs of the bar.
const BAR: usize = 30;
/// How often who does not look at a terminal is told.
const TOLD_EVERY: Duration = Duration::from_secs(30);

/// A bar on a terminal, and a line now and then elsewhere.
pub(crate) struct Progress {
    total: usize,
    left: usize,
    start: Instant,
    terminal: bool,
    told: Mutex<Instant>,
}

impl Progress {
    /// So many of `total` are left to do.
    pub(crate) fn new(total: usize, left: usize) -> Self {
        let start = Instant::now();
        Self {
            total,
            left,
            start,
            terminal: std::io::stderr().is_terminal(),
            told: Mutex::new(start),
        }
    }

    /// So many of those that were left are done.
    pub(crate) fn tell(&self, done: usize) {
        let line = line(self.total, self.left, done, self.start.elapsed());
        if self.terminal {
            eprint!("\r{line} ");
            return;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.elapsed() >= TOLD_EVERY {
            *told = Instant::now();
            eprintln!("{line}");
        }
    }

    /// All is done.
    pub(crate) fn end(&self) {
        if self.terminal {
            eprintln!();
        }
    }
}

fn line(total: usize, left: usize, done: usize, elapsed: Duration) -> String {
    let all = total - left + done;
    let filled = all * BAR / total.max(1);
    let each = elapsed.as_secs_f64() / done.max(1) as f64;
    let seconds = (each * (left - done) as f64).ceil() as u64;
    let (bar, rest) = ("#".repeat(filled), ".".repeat(BAR - filled));
    format!(
        "[{bar}{rest}] {all}/{total}, {}:{:02} left",
        seconds / 60,
        seconds % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_counts_what_was_done_before() {
        let text = line(100, 50, 25, Duration::from_secs(50));
        assert_eq!(text, "[######################........] 75/100, 0:50 left");
    }
}
