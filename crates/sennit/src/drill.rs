//! A link is lost on purpose while pings pass: by `sennit links drill`, and by a running edge for
//! its page.
//!
//! The cut is a lease: the edge ends it by itself when nobody renews it, so it ends with whoever
//! drills, however that ends. Pings go in several flows ([`pings`]), because a class may keep each
//! flow on a link of its own; what counts is the flow that waited longest. An edge has one drill
//! at a time ([`run`]).

mod pings;
mod run;

use std::{
    io,
    net::IpAddr,
    thread,
    time::{Duration, Instant},
};

use schemars::JsonSchema;
use sennit_linux::echo::Echo;
use serde::{Deserialize, Serialize};

use self::pings::{Pings, Record, median};
pub use self::run::{DrillRun, DrillState, Drills};
use crate::{
    control::{LinkAnswer, LinkOrder},
    status::LinkState,
};

/// Pings pass for so long before the link is lost, and after it is restored.
const AROUND: Duration = Duration::from_secs(1);
/// The edge restores a link whose drill was not heard of for this long.
const LEASE: Duration = Duration::from_millis(1500);
const RENEW: Duration = Duration::from_millis(300);

/// How long a link is lost, unless somebody says so; and as the command line has it.
const USUAL: Duration = Duration::from_secs(5);
pub(crate) const USUAL_SECONDS: &str = "5";
/// How long it may be.
pub(crate) const SECONDS: std::ops::RangeInclusive<f64> = 1.0..=60.0;

/// What came of a drill, as `sennit links drill --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Drill {
    /// `sennit.drill/1`.
    pub schema: String,
    pub link: String,
    /// What was pinged.
    pub probe: IpAddr,
    /// How long the link was lost.
    pub cut_seconds: f64,
    /// The longest time between two answers that a flow of pings had to wait for the next from when
    /// the link was lost; an undisturbed one waits for 0.01 s.
    pub gap_seconds: f64,
    /// The same before the link was lost.
    pub gap_before_seconds: f64,
    /// Whether pings came through while the link was lost.
    pub survived: bool,
    /// Whether somebody ended it early, and had the link restored.
    pub interrupted: bool,
    pub sent_pings: u64,
    pub answered_pings: u64,
    /// Medians of before, and of while the link was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_before_seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_meanwhile_seconds: Option<f64>,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Course {
    pub link: String,
    /// How long it is lost.
    pub span: Duration,
    /// What to ping, if not the hub.
    pub probe: Option<IpAddr>,
    /// How a socket for pings is opened.
    pub open: fn(IpAddr) -> io::Result<Echo>,
}

/// Why there was no drill; of what the edge did not do, as `E` says it.
#[derive(Debug, thiserror::Error)]
pub enum DrillError<E> {
    #[error("{0}")]
    Edge(E),
    #[error("link `{link}` is down: {reason}")]
    LinkDown { link: String, reason: String },
    #[error("the hub has not said how it is called in the tunnel")]
    NoProbe,
    #[error("cannot ping {probe}: {source}")]
    Ping { probe: IpAddr, source: io::Error },
    #[error("{0} does not answer pings")]
    NoAnswer(IpAddr),
    #[error("interrupted before the link was lost")]
    Interrupted,
}

/// Loses the link while pings pass, restores it, and says what came of that. The edge is told by
/// `order` what it is to do with the link; `tell` hears what is pinged when the link is lost.
///
/// # Errors
/// If there is nothing to lose or nobody to ping, or somebody wants to `stop` before it is lost.
pub fn measure<E>(
    course: &Course,
    order: &mut dyn FnMut(LinkOrder) -> Result<LinkAnswer, E>,
    stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(IpAddr),
) -> Result<Drill, DrillError<E>> {
    let answer = order(LinkOrder::Describe).map_err(DrillError::Edge)?;
    if answer.link.state != LinkState::Up {
        return Err(DrillError::LinkDown {
            link: course.link.clone(),
            reason: answer.link.reason.unwrap_or_default(),
        });
    }
    let probe = course.probe.or_else(|| answer.hub_inside.first().copied());
    let probe = probe.ok_or(DrillError::NoProbe)?;
    let failed = |source| DrillError::Ping { probe, source };
    let echo = (course.open)(probe).map_err(failed)?;
    let pings = Pings::start(echo).map_err(failed)?;
    thread::sleep(AROUND);
    if stop() {
        return Err(DrillError::Interrupted);
    }
    if !pings.is_answered() {
        return Err(DrillError::NoAnswer(probe));
    }
    tell(probe);
    let (cut, restored) = lose(course.span, order, stop).map_err(DrillError::Edge)?;
    let interrupted = stop();
    if !interrupted {
        thread::sleep(AROUND);
    }
    let record = pings.finish().map_err(failed)?;
    Ok(Drill {
        interrupted,
        ..judge(&course.link, probe, &record, (cut, restored))
    })
}

/// Cuts the link and restores it, after its time or when somebody wants to stop; when that was.
fn lose<E>(
    span: Duration,
    order: &mut dyn FnMut(LinkOrder) -> Result<LinkAnswer, E>,
    stop: &dyn Fn() -> bool,
) -> Result<(Instant, Instant), E> {
    let mut cut = |span: Duration| {
        let milliseconds = u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
        order(LinkOrder::Cut { milliseconds })
    };
    let start = Instant::now();
    loop {
        let left = span.saturating_sub(start.elapsed());
        if left.is_zero() || stop() {
            break;
        }
        cut(LEASE)?;
        thread::sleep(RENEW.min(left));
    }
    cut(Duration::ZERO)?;
    Ok((start, Instant::now()))
}

fn judge(link: &str, probe: IpAddr, record: &Record, (cut, restored): (Instant, Instant)) -> Drill {
    let meanwhile = record.between(cut, restored);
    let before = record.between(record.start, cut);
    Drill {
        schema: Drill::SCHEMA.into(),
        link: link.into(),
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

impl Drill {
    pub const SCHEMA: &str = "sennit.drill/1";
}
