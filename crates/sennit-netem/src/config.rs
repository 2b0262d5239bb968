//! What a link is asked to do.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use sennit_packet::Bitrate;

use crate::trace::Trace;

/// Ethernet header: a rate counts whole frames, as the counters of switches and modems do.
const ETHERNET_HEADER: usize = 14;

/// A queue shorter than this drops the bursts that segmentation offload makes of one write.
const QUEUE_MIN: usize = 64 * 1024;

/// How much may wait for the wire before the newest packet is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// A limit in frame bytes.
    Bytes(usize),
    /// What the wire carries in this time, and never less than 64 KiB.
    Time(Duration),
}

/// The distribution that deviations are drawn from. Where packets overtake each other, theirs are
/// spread like that. Where order holds, the delay walks on straight lines between draws, so it is
/// nearer to its mean more often: its variance is two thirds of the distribution's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Evenly between minus and plus the spread.
    Uniform,
    /// Bell-shaped with the spread as standard deviation, cut off at three of them.
    Normal,
}

/// How the delay varies from packet to packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jitter {
    /// Half width (uniform) or standard deviation (normal) of what is drawn.
    pub spread: Duration,
    /// The distribution of the deviations.
    pub shape: Shape,
    /// Each packet draws its own deviation, so packets overtake each other. Without it the delay
    /// wanders slowly enough that order holds, and its mean does not depend on the packet rate.
    pub reorder: bool,
}

impl Jitter {
    /// No variation at all.
    pub const NONE: Self = Self {
        spread: Duration::ZERO,
        shape: Shape::Uniform,
        reorder: false,
    };

    /// The largest deviation from the mean that can occur.
    #[must_use]
    pub fn reach(self) -> Duration {
        match self.shape {
            Shape::Uniform => self.spread,
            Shape::Normal => self.spread * 3,
        }
    }
}

/// Which packets are lost on the wire.
#[derive(Debug, Clone, PartialEq)]
pub enum Loss {
    /// None.
    None,
    /// Each one independently with this probability.
    Random(f64),
    /// Two states with their own loss, changing by chance before each packet (Gilbert 1960,
    /// Elliott 1963).
    GilbertElliott {
        /// Probability to go from good to bad.
        p: f64,
        /// Probability to go from bad to good.
        r: f64,
        /// Probability that a packet survives the bad state.
        h: f64,
        /// Probability that a packet survives the good state.
        k: f64,
    },
    /// Exactly these packets, counted from 0 over all that were offered.
    Exact(BTreeSet<u64>),
    /// All packets of these sizes, in bytes from the IP header on. A sender that counts by the
    /// sizes of its packets so has the ones lost that it chose, encrypted or not.
    Sizes(Vec<RangeInclusive<usize>>),
}

impl Loss {
    /// The largest ratio that can be lost in bursts of `length` packets on average: between two of
    /// them at least one arrives.
    pub fn most_in_bursts(length: f64) -> f64 {
        let length = length.max(1.0);
        length / (length + 1.0)
    }

    /// Losses of this overall `ratio`, at most [`Self::most_in_bursts`], that come in bursts of
    /// `length` packets on average.
    pub fn bursts(ratio: f64, length: f64) -> Self {
        let r = 1.0 / length.max(1.0);
        let p = (r * ratio / (1.0 - ratio)).min(1.0);
        Self::GilbertElliott {
            p,
            r,
            h: 0.0,
            k: 1.0,
        }
    }

    /// The ratio of a loss that somebody wrote in percent; `None` unless it is 0 to less than 100.
    pub fn ratio_of_percent(percent: f64) -> Option<f64> {
        let ratio = percent / 100.0;
        (0.0..1.0).contains(&ratio).then_some(ratio)
    }

    /// The long-run share of packets lost; `None` when it depends on the packets sent.
    pub fn ratio(&self) -> Option<f64> {
        match *self {
            Self::None => Some(0.0),
            Self::Random(p) => Some(p),
            Self::GilbertElliott { p, r, h, k } if p + r > 0.0 => {
                Some((p * (1.0 - h) + r * (1.0 - k)) / (p + r))
            }
            Self::GilbertElliott { k, .. } => Some(1.0 - k),
            Self::Exact(_) | Self::Sizes(_) => None,
        }
    }
}

/// One direction of a link.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Wire rate; without one, a packet takes no time on the wire. Of a link with a trace it is the
    /// usual rate, which sizes the queue and holds where the trace names no other.
    pub rate: Option<Bitrate>,
    /// How the link moves, from its first packet on, or from [`Link::begin`](crate::Link::begin).
    pub trace: Option<Arc<Trace>>,
    /// Bytes added to each packet when it is counted against rate and queue.
    pub frame_overhead: usize,
    /// The limit of what waits for the wire.
    pub queue: Queue,
    /// One-way delay, after the last bit has left.
    pub delay: Duration,
    /// Variation of the delay.
    pub jitter: Jitter,
    /// Losses on the wire.
    pub loss: Loss,
    /// Nothing gets through, and nobody is told.
    pub outage: bool,
    /// The largest packet that fits.
    pub mtu: usize,
    /// Whether who sends a larger one is told so (ICMP "fragmentation needed", "packet too big").
    /// The link only says what it dropped; telling is up to who owns it.
    pub tells_mtu: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rate: None,
            trace: None,
            frame_overhead: ETHERNET_HEADER,
            queue: Queue::Time(Duration::from_millis(50)),
            delay: Duration::ZERO,
            jitter: Jitter::NONE,
            loss: Loss::None,
            outage: false,
            mtu: 1500,
            tells_mtu: false,
        }
    }
}

impl Config {
    /// The longest delay that is taken for one: nothing on Earth is a minute away.
    pub const DELAY_MAX: Duration = Duration::from_secs(60);

    /// A delay that somebody wrote in milliseconds; `None` if it is below zero or above
    /// [`Self::DELAY_MAX`].
    pub fn delay_of_ms(millis: f64) -> Option<Duration> {
        let sane = millis.is_finite() && millis >= 0.0;
        let delay = sane.then(|| Duration::try_from_secs_f64(millis / 1e3).ok());
        delay.flatten().filter(|delay| *delay <= Self::DELAY_MAX)
    }

    /// The same link following `trace`, whose mean becomes the usual rate if it does not depend on
    /// it.
    pub fn moving(self, trace: Arc<Trace>) -> Self {
        Self {
            rate: trace.mean_rate().or(self.rate),
            trace: Some(trace),
            ..self
        }
    }

    /// The queue limit in frame bytes.
    pub fn queue_limit(&self) -> usize {
        match (self.queue, self.rate) {
            (Queue::Bytes(bytes), _) => bytes,
            (Queue::Time(time), Some(rate)) => rate.bytes_in(time).max(QUEUE_MIN),
            (Queue::Time(_), None) => QUEUE_MIN,
        }
    }

    /// The time a packet of `len` bytes occupies the wire, at the usual rate.
    pub fn wire_time(&self, len: usize) -> Duration {
        self.rate.map_or(Duration::ZERO, |rate| {
            rate.time_for(len + self.frame_overhead)
        })
    }

    /// Whether packets may have to wait for each other.
    pub(crate) fn is_limited(&self) -> bool {
        self.rate.is_some() || self.trace.is_some()
    }
}
