//! The tunnel brain, free of clocks, sockets and QUIC.
//!
//! A packet that enters a tunnel meets the modules in this order: [`class`] decides which tunnel it
//! belongs to, [`queue`] holds it under FQ-CoDel until a path can take it, [`schedule`] says which
//! path that is (or which two), [`pacer`] says how much that path may send right now, [`numbering`]
//! counts it and [`frame`] wraps it; [`flows`] remembers what became of each flow. At the far end
//! [`halves`] joins what a small path made two of, [`resequence`] restores the order of flows and
//! [`dedup`] drops second copies. Beside the packet's way, [`health`] watches every path and says
//! when to stop trusting it; [`losses`] counts what it lost lately; [`floor`] keeps the least of
//! late.
//!
//! Everything takes `now` as its last argument and nothing here reads a clock or a random number.

pub mod class;
pub mod dedup;
pub mod floor;
pub mod flows;
pub mod frame;
pub mod halves;
pub mod health;
pub mod losses;
pub mod numbering;
pub mod pacer;
pub mod policy;
pub mod queue;
pub mod recent;
pub mod resequence;
pub mod schedule;

pub use class::{ClassId, Classifier, FlowTable, FragmentTable, Rule};
pub use dedup::Dedup;
pub use floor::Floor;
pub use flows::{FlowPattern, Flows};
pub use halves::Halves;
pub use health::{Health, Pace, PathState};
pub use losses::RecentLosses;
pub use numbering::Numbering;
pub use pacer::Pacer;
pub use policy::{Congestion, Delivery, Headers, Policy, Word};
pub use queue::FqCodel;
pub use resequence::Resequencer;
pub use schedule::{Choice, PathSet, PathView, Scheduler, Sent, Worth};
