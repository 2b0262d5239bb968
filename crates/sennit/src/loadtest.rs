//! `sennit test`: what a network carries, measured by QUIC between a server and a client of ours,
//! without a tunnel and without root.
//!
//! The client first opens a control connection, on which nothing else runs: it carries the plan,
//! the results, and a probe each 20 ms, whose round trip is therefore that of the network and not
//! that of a queue of ours. The load has connections of its own, up to hundreds. Each end counts
//! what it receives; the client puts both together ([`report`], and as a page in `page`).
//!
//! | file | what is in it |
//! | --- | --- |
//! | [`wire`] | the sockets under the machine of the engine |
//! | [`emulation`], [`profile`] | a link between socket and machine, and the networks with a name |
//! | [`words`] | what the two ends say to each other |
//! | [`load`] | streams and messages of one end, sent and counted |
//! | [`fec`] | error correction of messages |
//! | [`probe`] | round trips by the network's own times |
//! | [`stack`] | the QUIC under it all: our engine's, or quinn's as a second opinion |
//! | [`perf`] | the protocol of other stacks for the same, at both ends |
//! | [`server`], [`client`] | the two ends |

pub mod client;
pub mod compare;
pub mod emulation;
pub mod exporter;
pub mod fec;
pub mod gate;
pub mod lately;
mod load;
pub mod metric;
mod page;
mod perf;
mod probe;
pub mod profile;
pub mod report;
pub mod requests;
pub mod responsiveness;
pub mod second;
mod selfcheck;
pub mod server;
pub mod stack;
mod tls;
#[cfg(test)]
mod truth;
pub mod visits;
mod wire;
mod words;

pub(crate) use page::made;
pub use tls::Pin;
pub use words::{Memory, Plan};

/// Where a server listens and a client looks for it, unless told otherwise.
pub const PORT: u16 = 4774;
