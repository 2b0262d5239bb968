//! One direction of a link, as a seeded function of time.
//!
//! A [`Link`] is what a packet meets between two hosts. It first waits in a tail-drop queue, is
//! then put on the wire bit by bit at the configured [`Bitrate`], may be lost there, and travels
//! for the configured delay plus jitter. What is lost on the wire has occupied it, as on a real
//! link; what the queue refuses has not.
//!
//! The model reads no clock and no randomness. The same configuration, seed and sequence of calls
//! give the same outcome, and the outcome for a packet does not depend on how often the caller
//! polls in between:
//!
//! ```
//! # use sennit_netem::{Bitrate, Config, Link};
//! # use std::time::{Duration, Instant};
//! # let now = Instant::now();
//! let delay = Duration::from_millis(20);
//! let config = Config { rate: Some(Bitrate::mbit(10)), delay, ..Config::default() };
//! let mut link = Link::new(config, 1);
//! link.handle_packet(1236, "hello", now).expect("the queue is empty");
//! let due = link.poll_timeout().expect("a packet is on its way");
//! assert_eq!(due, now + Duration::from_millis(21)); // 1250 bytes at 10 Mbit/s, then 20 ms
//! assert_eq!(link.poll_output(due), Some("hello"));
//! ```
//!
//! A caller hands packets in with [`Link::handle_packet`], sleeps until [`Link::poll_timeout`], and
//! then drains [`Link::poll_output`]; one who may be late has [`Link::poll_arrival`] say when each
//! packet arrived. [`Link::set_config`] changes a link while packets are in it,
//! and a [`Trace`] makes it move by itself. A [`LinkSpec`] is both directions, and can be read from
//! a short text.

mod config;
mod direction;
mod jitter;
mod link;
mod loss;
mod motion;
mod nat;
mod spec;
mod trace;

pub use config::{Config, Jitter, Loss, Queue, Shape};
pub use direction::Direction;
pub use link::{Counters, Dropped, Link, Reason};
pub use motion::{Motion, script};
pub use nat::{Dependence, Nat, NatConfig};
pub use sennit_packet::Bitrate;
pub use spec::{BadSpec, LinkSpec, NETWORKS};
pub use trace::{BadTrace, Passage, Step, Trace};
