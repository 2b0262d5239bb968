//! `sennit test`: what a network carries, measured by QUIC between a server and a client of ours,
//! without a tunnel and without root.
//!
//! The client first opens a control connection, on which nothing else runs: it carries the plan,
//! the results, and a probe each 20 ms, whose round trip is therefore that of the network and not
//! that of a queue of ours. The load has connections of its own, up to hundreds. Each end counts
//! what it receives; the client puts both together ([`report`]).
//!
//! | file | what is in it |
//! | --- | --- |
//! | [`wire`] | the sockets, and the machine of the engine over them |
//! | [`words`] | what the two ends say to each other |
//! | [`load`] | streams and messages of one end, sent and counted |
//! | [`probe`] | round trips by the network's own times |
//! | [`server`], [`client`] | the two ends |

pub mod client;
mod load;
mod probe;
pub mod report;
pub mod server;
mod tls;
mod wire;
mod words;

pub use tls::Pin;
pub use words::Plan;

/// Where a server listens and a client looks for it, unless told otherwise.
pub const PORT: u16 = 4774;
