//! A link is lost on purpose while pings pass.
//!
//! The cut is a lease: the edge ends it by itself when nobody renews it, so it ends with this
//! command, however that ends. Pings go in several flows, because a class may keep each flow on a
//! link of its own; what counts is the flow that waited longest.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sennit_linux::echo::Echo;
use serde::Serialize;

use super::{DrillArgs, order};
use crate::cli::test::stop_on_signals;
use crate::cli::{Exit, Failure, output};
use crate::control::{Client, LinkOrder};
use crate::status::LinkState;

/// Between two pings of a flow.
const EVERY: Duration = Duration::from_millis(10);
const FLOWS: u16 = 4;
/// Pings pass for so long before the link is lost, and after it is restored.
const AROUND: Duration = Duration::from_secs(1);
/// Nobody waits longer for the last answers.
const LAST: Duration = Duration::from_secs(1);
/// The edge restores a link whose drill was not heard of for this long.
const LEASE: Duration = Duration::from_millis(1500);
const RENEW: Duration = Duration::from_millis(300);

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    schema: &'static str,
    link: String,
    probe: IpAddr,
    /// How long the link was lost.
    cut_seconds: f64,
    /// The longest time between two answers that a flow of pings had to wait for the next from when
    /// the link was lost; an undisturbed one waits for 0.01 s.
    gap_seconds: f64,
    /// The same before the link was lost.
    gap_before_seconds: f64,
    /// Whether pings came through while the link was lost.
    survived: bool,
    /// Whether somebody ended it early, and had the link restored.
    interrupted: bool,
    sent_pings: u64,
    answered_pings: u64,
    /// Medians of before, and of while the link was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_before_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_meanwhile_seconds: Option<f64>,
}

pub(super) fn run(args: &DrillArgs, json: bool, client: &mut Client) -> Result<Exit, Failure> {
    let stop = stop_on_signals()?;
    let document = measure(args, client, &stop, &mut |line| {
        if !json {
            output::say!("{line}");
        }
    })?;
    if json {
        output::print_json(&document)?;
    } else {
        output::print(&document.text())?;
    }
    Ok(if document.interrupted {
        Exit::Interrupted
    } else if document.survived {
        Exit::Ok
    } else {
        Exit::Findings
    })
}

/// Loses the link while pings pass, restores it, and says what came of that.
pub(super) fn measure(
    args: &DrillArgs,
    client: &mut Client,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&str),
) -> Result<Document, Failure> {
    let answer = order(client, &args.link, LinkOrder::Describe)?;
    if answer.link.state != LinkState::Up {
        let reason = answer.link.reason.unwrap_or_default();
        return Err(
            Failure::runtime(format!("link `{}` is down: {reason}", args.link))
                .hint("there is nothing to lose; `sennit status` says more"),
        );
    }
    let probe = args.probe.or_else(|| answer.hub_inside.first().copied());
    let probe = probe.ok_or_else(|| {
        Failure::runtime("the hub has not said how it is called in the tunnel")
            .hint("name something behind the tunnel that answers pings: --probe ADDRESS")
    })?;
    let pings = Pings::start(probe)?;
    thread::sleep(AROUND);
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::new(
            Exit::Interrupted,
            "interrupted before the link was lost",
        ));
    }
    if !pings.is_answered() {
        return Err(Failure::runtime(format!("{probe} does not answer pings"))
            .hint("name something behind the tunnel that does: --probe ADDRESS"));
    }
    tell(&format!(
        "Pinging {probe} through the tunnel; `{}` is lost now.",
        args.link
    ));
    let (cut, restored) = lose(args, client, stop)?;
    let interrupted = stop.load(Ordering::Relaxed);
    if !interrupted {
        thread::sleep(AROUND);
    }
    let record = pings.finish()?;
    Ok(Document {
        interrupted,
        ..judge(args, probe, &record, (cut, restored))
    })
}

/// Cuts the link and restores it, after its time or when somebody wants to stop; when that was.
fn lose(
    args: &DrillArgs,
    client: &mut Client,
    stop: &AtomicBool,
) -> Result<(Instant, Instant), Failure> {
    let mut cut = |span: Duration| {
        let milliseconds = u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
        order(client, &args.link, LinkOrder::Cut { milliseconds })
    };
    let start = Instant::now();
    loop {
        let left = args.span.saturating_sub(start.elapsed());
        if left.is_zero() || stop.load(Ordering::Relaxed) {
            break;
        }
        cut(LEASE)?;
        thread::sleep(RENEW.min(left));
    }
    cut(Duration::ZERO)?;
    Ok((start, Instant::now()))
}

fn judge(
    args: &DrillArgs,
    probe: IpAddr,
    record: &Record,
    (cut, restored): (Instant, Instant),
) -> Document {
    let meanwhile = record.between(cut, restored);
    let before = record.between(record.start, cut);
    Document {
        schema: "sennit.drill/1",
        link: args.link.clone(),
        probe,
        cut_seconds: restored.duration_since(cut).as_secs_f64(),
        gap_seconds: record.longest_gap(cut, record.end).as_secs_f64(),
        gap_before_seconds: record.longest_gap(record.start, cut).as_secs_f64(),
        survived: record.survived(cut, restored),
        interrupted: false,
        sent_pings: record.sent,
        answered_pings: record.answers.len() as u64,
        rtt_before_seconds: median(before),
        rtt_meanwhile_seconds: median(meanwhile),
    }
}

impl Document {
    pub(super) fn text(&self) -> String {
        let ms = |seconds: f64| format!("{:.0} ms", seconds * 1e3);
        let known =
            |rtt: Option<f64>| rtt.map_or("none".into(), |rtt| format!("{:.1} ms", rtt * 1e3));
        let verdict = if self.survived {
            format!("nothing came through for {}", ms(self.gap_seconds))
        } else {
            "nothing came through until it was restored".into()
        };
        let early = match self.interrupted {
            true => "interrupted: the figures are of the time until then\n",
            false => "",
        };
        format!(
            "{} was lost for {:.1} s: {verdict} (before: {})\n\
             {} of {} pings answered; round trip {} before, {} meanwhile\n\
             {early}The link is restored.\n",
            self.link,
            self.cut_seconds,
            ms(self.gap_before_seconds),
            self.answered_pings,
            self.sent_pings,
            known(self.rtt_before_seconds),
            known(self.rtt_meanwhile_seconds),
        )
    }
}

/// An answered ping.
#[derive(Clone, Copy, Debug)]
struct Answered {
    flow: u16,
    sent: Instant,
    arrived: Instant,
}

/// What became of all pings.
#[derive(Debug)]
struct Record {
    start: Instant,
    end: Instant,
    sent: u64,
    /// In order of arrival.
    answers: Vec<Answered>,
}

impl Record {
    /// The longest time that a flow waited for an answer that came, or should have come, between
    /// these.
    fn longest_gap(&self, from: Instant, to: Instant) -> Duration {
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
    fn between(&self, from: Instant, to: Instant) -> impl Iterator<Item = Duration> {
        let inside = self.answers.iter();
        let inside = inside.filter(move |it| it.sent >= from && it.arrived <= to);
        inside.map(|it| it.arrived.duration_since(it.sent))
    }

    /// Whether each flow had an answer to something that it sent between these.
    fn survived(&self, from: Instant, to: Instant) -> bool {
        (0..FLOWS).all(|flow| {
            let mut own = self.answers.iter().filter(|it| it.flow == flow);
            own.any(|it| it.sent >= from && it.arrived <= to)
        })
    }
}

fn median(times: impl Iterator<Item = Duration>) -> Option<f64> {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    times.get(times.len() / 2).map(Duration::as_secs_f64)
}

/// Pings in the background.
struct Pings {
    stop: Sender<()>,
    answered: mpsc::Receiver<()>,
    thread: JoinHandle<std::io::Result<Record>>,
}

impl Pings {
    fn start(probe: IpAddr) -> Result<Self, Failure> {
        let echo = Echo::open(probe, None)
            .map_err(|error| Failure::io(&error, format!("cannot ping {probe}: {error}")))?;
        let (stop, stopped) = mpsc::channel();
        let (first, answered) = mpsc::channel();
        let thread = thread::Builder::new().name("pings".into());
        let thread = thread
            .spawn(move || ping(&echo, &stopped, &first))
            .map_err(Failure::runtime)?;
        Ok(Self {
            stop,
            answered,
            thread,
        })
    }

    fn is_answered(&self) -> bool {
        self.answered.try_recv().is_ok()
    }

    fn finish(self) -> Result<Record, Failure> {
        drop(self.stop);
        match self.thread.join() {
            Ok(record) => record.map_err(|error| Failure::runtime(format!("cannot ping: {error}"))),
            Err(_) => Err(Failure::runtime("the thread that pings has panicked")),
        }
    }
}

/// Pings until told to stop, and hears the last answers.
fn ping(echo: &Echo, stopped: &mpsc::Receiver<()>, first: &Sender<()>) -> std::io::Result<Record> {
    // So that two drills at once do not take each other's answers for theirs.
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
