//! Pings in several flows, and what became of them.

use std::{
    io,
    sync::mpsc::{self, Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use sennit_linux::echo::Echo;

/// Between two pings of a flow.
const EVERY: Duration = Duration::from_millis(10);
const FLOWS: u16 = 4;
/// Nobody waits longer for the last answers.
const LAST: Duration = Duration::from_secs(1);

/// An answered ping.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    flow: u16,
    sent: Instant,
    arrived: Instant,
}

/// What became of all pings.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) start: Instant,
    pub(super) end: Instant,
    pub(super) sent: u64,
    /// In order of arrival.
    pub(super) answers: Vec<Answered>,
}

impl Record {
    /// The longest time that a flow waited for an answer that came, or should have come, between
    /// these.
    pub(super) fn longest_gap(&self, from: Instant, to: Instant) -> Duration {
        let gaps = (0..FLOWS).map(|flow| {
            let arrivals = self.answers.iter().filter(|it| it.flow == flow);
            let mut last = self.start;
            let mut longest = Duration::ZERO;
            for arrived in arrivals.map(|it| it.arrived) {
                if arrived > from && last < to {
                    longest = longest.max(arrived.duration_since(last));
                }
                last = arrived;
            }
            if last < to {
                longest = longest.max(to.duration_since(last));
            }
            longest
        });
        gaps.max().unwrap_or_default()
    }

    /// Pings that were sent and answered between these.
    pub(super) fn between(&self, from: Instant, to: Instant) -> impl Iterator<Item = Duration> {
        let inside = self.answers.iter();
        let inside = inside.filter(move |it| it.sent >= from && it.arrived <= to);
        inside.map(|it| it.arrived.duration_since(it.sent))
    }

    /// Whether each flow had an answer to something that it sent between these.
    pub(super) fn survived(&self, from: Instant, to: Instant) -> bool {
        (0..FLOWS).all(|flow| {
            let mut own = self.answers.iter().filter(|it| it.flow == flow);
            own.any(|it| it.sent >= from && it.arrived <= to)
        })
    }
}

pub(super) fn median(times: impl Iterator<Item = Duration>) -> Option<f64> {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    times.get(times.len() / 2).map(Duration::as_secs_f64)
}

/// Pings in the background.
pub(super) struct Pings {
    stop: Sender<()>,
    answered: mpsc::Receiver<()>,
    thread: JoinHandle<io::Result<Record>>,
}

impl Pings {
    pub(super) fn start(echo: Echo) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let (first, answered) = mpsc::channel();
        let thread = thread::Builder::new().name("pings".into());
        let thread = thread.spawn(move || ping(&echo, &stopped, &first))?;
        Ok(Self {
            stop,
            answered,
            thread,
        })
    }

    pub(super) fn is_answered(&self) -> bool {
        self.answered.try_recv().is_ok()
    }

    pub(super) fn finish(self) -> io::Result<Record> {
        drop(self.stop);
        let panicked = |_| Err(io::Error::other("the thread that pings has panicked"));
        self.thread.join().unwrap_or_else(panicked)
    }
}

/// Pings until told to stop, and hears the last answers.
fn ping(echo: &Echo, stopped: &mpsc::Receiver<()>, first: &Sender<()>) -> io::Result<Record> {
    // So that two programs at once do not take each other's answers for theirs.
    let base = (std::process::id() as u16).wrapping_mul(FLOWS);
    let start = Instant::now();
    let (mut sent, mut answers) = (Vec::new(), Vec::new());
    let mut end = None;
    loop {
        let now = Instant::now();
        if end.is_none() && stopped.try_recv() == Err(mpsc::TryRecvError::Disconnected) {
            end = Some(now);
        }
        let due = start + EVERY / u32::from(FLOWS) * sent.len() as u32;
        if end.is_none() && due <= now {
            let (flow, number) = (sent.len() as u16 % FLOWS, sent.len() / usize::from(FLOWS));
            // What cannot leave is lost, as on any network.
            let _ = echo.send(base.wrapping_add(flow), number as u16);
            sent.push(now);
            continue;
        }
        let wait = end.map_or(due, |end| end + LAST);
        let missing = answers.len() < sent.len();
        if end.is_some_and(|end| now >= end + LAST || !missing) {
            break;
        }
        let Some(answer) = echo.receive(wait)? else {
            continue;
        };
        let flow = answer.flow.wrapping_sub(base);
        let index = usize::from(answer.number) * usize::from(FLOWS) + usize::from(flow);
        if flow < FLOWS
            && let Some(&at) = sent.get(index)
        {
            let arrived = Instant::now();
            answers.push(Answered {
                flow,
                sent: at,
                arrived,
            });
            let _ = first.send(());
        }
    }
    Ok(Record {
        start,
        end: end.unwrap_or(start),
        sent: sent.len() as u64,
        answers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Pings of all flows every 10 ms for three seconds, each answered after 20 ms, but for those
    /// that were sent between these milliseconds.
    fn record(start: Instant, lost: std::ops::Range<u32>) -> Record {
        let times = (0..300).map(|number| number * 10);
        let kept = times.filter(|at| !lost.contains(at));
        let answers = kept.flat_map(|at| {
            (0..FLOWS).map(move |flow| Answered {
                flow,
                sent: start + MS * at,
                arrived: start + MS * (at + 20),
            })
        });
        Record {
            start,
            end: start + MS * 3000,
            sent: 300 * u64::from(FLOWS),
            answers: answers.collect(),
        }
    }

    #[test]
    fn the_gap_is_the_longest_time_without_an_answer_since_the_link_was_lost() {
        let start = Instant::now();
        let (cut, restored) = (start + MS * 1000, start + MS * 2000);

        let record = record(start, 990..1190);

        assert_eq!(record.longest_gap(cut, record.end), MS * 210);
        assert_eq!(record.longest_gap(start + MS * 2000, record.end), MS * 10);
        assert!(record.survived(cut, restored));
    }

    #[test]
    fn a_tunnel_that_only_comes_back_with_the_link_has_not_survived() {
        let start = Instant::now();
        let (cut, restored) = (start + MS * 1000, start + MS * 2000);

        let record = record(start, 1000..2100);

        assert!(!record.survived(cut, restored));
        assert_eq!(record.longest_gap(cut, record.end), MS * 1110);
    }
}
