//! The sans-IO engine: [`Edge`] and [`Hub`], state machines over `noq-proto`.
//!
//! This is the only crate that knows noq. It reads no clock, no randomness and no socket. The
//! caller's loop is the same for both machines, and the order matters:
//!
//! 1. one mutation: `handle_datagrams`, `handle_packet`, `handle_link`, `handle_timeout`, …;
//!    several of the same kind may follow each other, which is how batches are made;
//! 2. `poll_event` until `None`: connections digest what they were given;
//! 3. `poll_packet` until `None`: packets for the TUN device;
//! 4. `poll_transmit` until `None`: batches for the sockets;
//! 5. sleep until `poll_timeout` or more input.
//!
//! Inside, a [`node`] holds the connections; a [`tunnel`] is one of them with its paths, queue and
//! scheduler; [`gate`] is how packets are steered to paths, with [`congestion`] control behind it;
//! [`h3`] carries the HTTP/3 machine of `sennit-masque` over streams; [`edge`] and [`hub`] are what
//! differs between the two ends.
//! [`sharing`] is how classes share a link. [`bare`] is QUIC without a tunnel, for load tests.

mod acks;
mod bare;
mod cid;
mod codec;
mod congestion;
pub mod edge;
pub mod facts;
mod farewell;
mod finish;
mod gate;
mod h3;
pub mod headers;
mod hello;
pub mod hub;
mod ids;
mod in_order;
mod inner;
mod knocks;
mod links;
mod locals;
mod mishap;
mod node;
mod numbers;
mod path;
mod pipe;
mod protection;
mod reason;
mod recovery;
mod remotes;
mod renewal;
mod resumption;
mod sharing;
mod thin;
mod timer;
mod transport;
mod treatment;
mod tunnel;
mod turns;
mod ways;

pub use bare::{
    Bare, BareConfig, BareEvent, BareReceived, BareStats, BareTransmit, Ended, Roster, Stream,
};
pub use cid::{Issuer, WORKER_OCTET, steering_octet};
pub use edge::{
    ClassConfig, Edge, EdgeChange, EdgeConfig, EdgeEvent, LinkUpdate, NotOurClass, Origin, Purpose,
};
pub use facts::{LinkLabel, TunnelStats};
pub use gate::BASE as LEAST_PAYLOAD;
pub use hub::{
    Credential, Grant, Hub, HubClasses, HubConfig, HubEvent, NoSuchSite, RequestId, StrangerCounts,
    UdpRefusal,
};
pub use ids::{ConnId, FoundHub, HubName, LinkId, SiteId, SocketId};
pub use inner::Packet;
pub use locals::Local;
pub use node::{Received, Transmit};
pub use protection::{Chooser as FecChooser, Outlook as FecOutlook};
pub use renewal::Rekey;
pub use sennit_fec::{BadCode, Code, Fec};
pub use sharing::{Plan, Share, Sharing, Terms};
pub use timer::{Due, Timer, Woken};
pub use transport::{MOST_LINKS, Settings};
pub use treatment::{MOST_COPIES, Treatment};
