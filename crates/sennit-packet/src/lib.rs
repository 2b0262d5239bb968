//! Parse, checksum, segment and coalesce IP packets; build ICMP errors.
//!
//! Everything here is a function of bytes: no clock, no socket, no allocation per packet.
//!
//! A packet enters as [`IpPacket::parse`], a validated view whose buffer is exactly one IPv4 or
//! IPv6 packet; past it no length needs a second look. From the view come the [`FlowKey`] that
//! queues and schedulers sort by, and the addresses and ports that classifiers match
//! ([`Prefix`]). What a router does to a packet in flight (hop limit, congestion mark, MSS) is in
//! [`rewrite`]; what it says about a packet it cannot forward is in [`icmp`].
//!
//! A TUN device with offload hands over TCP and UDP super-packets of up to 64 KB behind a
//! [`gso::VirtioNetHdr`]. [`gso::Segments`] cuts one into the stand-alone packets that travel
//! through the tunnel; at the far end [`coalesce::Coalescer`] joins a batch of them again, so
//! that the kernel's stack is entered once per super-packet. Both directions keep the end-to-end
//! checksum honest: a packet that arrived corrupt leaves corrupt, never with a fresh checksum.
//!
//! How fast packets pass, wherever that crosses from one part to another, is a [`Bitrate`].
//!
//! Nothing here panics on any bytes.

mod bitrate;
pub mod checksum;
pub mod coalesce;
mod flow;
pub mod gso;
pub mod icmp;
mod ip;
mod prefix;
mod protocol;
pub mod rewrite;
mod tcp;
pub mod thin;
mod wire;

pub use bitrate::Bitrate;
pub use flow::FlowKey;
pub use ip::{IpPacket, PacketError, Version, verify_header, verify_transport};
pub use prefix::{Prefix, PrefixError};
pub use protocol::Protocol;
pub use tcp::TcpFlags;
