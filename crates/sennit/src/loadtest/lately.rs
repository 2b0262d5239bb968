//! What ended in the last second, while a test runs: how much of it, and how long it took.

use std::{mem, time::Duration};

use sennit_load::Times;
use serde::{Deserialize, Serialize};

/// Requests, or handshakes, that ended within some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lately {
    /// Those that came to what they were for.
    pub done: u64,
    /// Those that failed.
    pub failed: u64,
    /// Half of those that are done took less.
    pub p50_seconds: Option<f64>,
    /// 95 % of them took less.
    pub p95_seconds: Option<f64>,
}

/// What has ended since somebody last asked.
#[derive(Debug, Default)]
pub(super) struct Recent {
    times: Times,
    failed: u64,
}

impl Recent {
    /// One is done.
    pub(super) fn note(&mut self, time: Duration) {
        self.times.note(time);
    }

    /// One has failed.
    pub(super) fn fail(&mut self) {
        self.failed += 1;
    }

    /// What there was, each once.
    pub(super) fn take(&mut self) -> Lately {
        let Self { times, failed } = mem::take(self);
        let times = times.figures();
        Lately {
            done: times.count,
            failed,
            p50_seconds: times.p50_seconds,
            p95_seconds: times.p95_seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_is_told_once() {
        let mut recent = Recent::default();
        recent.note(Duration::from_millis(20));
        recent.fail();

        let told = recent.take();

        assert_eq!((told.done, told.failed), (1, 1));
        assert!(
            told.p95_seconds
                .is_some_and(|time| (time - 0.020).abs() < 1e-4)
        );
        assert_eq!(recent.take(), Lately::default());
    }
}
