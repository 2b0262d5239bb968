//! Congestion control of one path.
//!
//! A [`Control`] sees what the [gate](crate::gate) makes of noq's callbacks: one [`Ack`] per batch
//! of acknowledgements, with a delivery-rate sample that knows whether the driver had more to send.
//! It answers with a window and, if it models the path, a pacing rate.
//!
//! | word | controller |
//! | --- | --- |
//! | `cubic` | [`Cubic`]: fills the queue of the path until it overflows |
//! | `bbr` | [`Bbr`], version 1, which ignores loss: for paths that lose whatever they are sent |
//! | `bbr3` | [`Bbr3`], version 3, which yields to loss above the path's own |
//! | `follow` | [`Follow`]: sends what arrived a moment ago, for paths whose rate moves |
//! | `auto` | [`Auto`]: `bbr3` until the path shows that another fares better |

mod aggregation;
mod auto;
mod bbr;
mod bbr3;
mod cubic;
mod delivery;
#[cfg(test)]
mod flows;
mod follow;
mod loss;
mod model;
mod probe_rtt;
mod round;
mod swings;
mod windowed;

use std::{
    fmt::{self, Debug, Display},
    time::{Duration, Instant},
};

use sennit_core::Congestion;

pub(crate) use self::delivery::{Acked, Delivery};
use self::{auto::Auto, bbr::Bbr, bbr3::Bbr3, cubic::Cubic, follow::Follow};

/// Limits what one path may carry.
pub(crate) trait Control: Debug + Send + Sync {
    /// A packet leaves that finds the path empty: nobody knows what it holds by now, so what
    /// follows shall not be faster than its rate (draft-ietf-ccwg-bbr-06 §5.4.1).
    fn on_restart(&mut self, _: Instant) {}
    /// A batch of acknowledgements was digested.
    fn on_ack(&mut self, ack: &Ack, now: Instant);
    /// Packets were lost, or the network marked some.
    fn on_congestion(&mut self, event: &CongestionEvent, now: Instant);
    /// What was taken for lost had only been late.
    fn on_spurious_loss(&mut self) {}
    /// Acknowledgements come another way from now on, so the round trip is another.
    fn on_route_change(&mut self) {}
    /// The path carries packets of another size from now on.
    fn on_mtu(&mut self, mtu: u16);
    /// Bytes that may be in flight.
    fn window(&self) -> u64;
    /// Bytes per second at which to send, once known.
    fn pacing_rate(&self) -> Option<u64> {
        None
    }
    /// Bytes per second that the path is known to deliver.
    fn delivery_rate(&self) -> Option<u64> {
        None
    }
    /// Bytes per second that it delivered at best within seconds, if it has less by now and may
    /// have it again.
    fn best_rate(&self) -> Option<u64> {
        self.delivery_rate()
    }
    /// How far apart acknowledgements come because hosts, or the path, hold them up.
    fn held_up(&self) -> Duration {
        Duration::ZERO
    }
    /// The path's round trip, if it turned out to be longer than it was; once.
    fn take_longer(&mut self) -> Option<Duration> {
        None
    }
    /// Whether the window doubles every round trip.
    fn in_slow_start(&self) -> bool {
        false
    }
    /// Whether little is in flight on purpose, so that the least round trip shows.
    fn empties(&self) -> bool {
        false
    }
    /// What it has chosen, if it chooses.
    fn choice(&self) -> Option<Choice> {
        None
    }
    /// A copy of the state, for a path that moves.
    fn clone_box(&self) -> Box<dyn Control>;
}

/// What a batch of acknowledgements says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    /// The delivery that it confirms; `None` if it covers nothing that was sent lately.
    pub(crate) acked: Option<Acked>,
    /// Bytes still in flight.
    pub(crate) in_flight: u64,
    /// The window was far from used.
    pub(crate) window_unused: bool,
}

/// Packets were lost or marked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CongestionEvent {
    /// When the newest of them was sent.
    pub(crate) sent: Instant,
    /// Zero for a mark.
    pub(crate) lost: u64,
    pub(crate) persistent: bool,
    pub(crate) marked: bool,
}

/// The controller that runs on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Never [`Congestion::Auto`].
    pub controller: Congestion,
    /// Why.
    pub reason: Reason,
}

/// Why it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It was asked for by name.
    Configured,
    /// Nothing asks for another.
    Usual,
    /// Other flows fill the path's queue.
    Crowded,
    /// The path loses much whatever is sent.
    Lossy,
    /// The path's rate moves all the time.
    Moving,
}

impl Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Configured => "configured",
            Self::Usual => "nothing asks for another",
            Self::Crowded => {
                "other flows fill the link's queue and left it less than half its rate"
            }
            Self::Lossy => "the link loses much, whatever it is sent",
            Self::Moving => "what the link carries changes all the time",
        })
    }
}

/// A fresh controller by its name in the configuration.
pub(crate) fn build(word: Congestion, mtu: u16, now: Instant) -> Box<dyn Control> {
    match word {
        Congestion::Cubic => Box::new(Cubic::new(mtu)),
        Congestion::Bbr => Box::new(Bbr::new(mtu, now)),
        Congestion::Bbr3 => Box::new(Bbr3::new(mtu, now)),
        Congestion::Follow => Box::new(Follow::new(mtu, now)),
        Congestion::Auto => Box::new(Auto::new(mtu, now)),
    }
}

#[cfg(test)]
mod tests;
