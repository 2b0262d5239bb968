//! The Linux side of a tunnel: TUN devices, UDP sockets, netlink, nftables.
//!
//! Two halves. The *hot path* is what a run-to-completion worker calls for every packet: [`tun`]
//! and [`udp`] read and write in batches into buffers of the caller, never block and never
//! allocate; [`poller`] waits for them. The *set-up* half is synchronous and may take a
//! millisecond: [`netlink`] looks up interfaces, [`Footprint`] adds what the daemon needs to its
//! host and takes it away again, whatever happens.
//!
//! ```text
//! Footprint::begin ─ Tun::open ─ set_addresses, route_into_tunnel, masquerade, forward
//!        │              └─ recv / send ──────────────┐
//!        ├─ link_mark ─ LinkSocket::bind ─ recv / send ┤ Poller::wait
//!        └─ route_link ◄─ Interface::lookup ◄─ Monitor ┘
//! ```
//!
//! [`confine`] is what a process gives up once it has what it needs. A [`Draft`] is a file to come.
//!
//! Everything acts in the network namespace of the calling thread. All `unsafe` code is in one
//! module.

pub mod confine;
mod device;
mod draft;
pub mod echo;
mod error;
mod footprint;
pub mod helper;
#[doc(hidden)]
pub mod hostile;
pub mod inquiry;
mod instance;
mod leftovers;
pub mod memory;
pub mod nameservers;
pub mod netlink;
pub mod netns;
mod nft;
pub mod poller;
pub mod priority;
pub mod privilege;
mod program;
mod routing;
pub mod service;
#[expect(
    unsafe_code,
    reason = "the only place for system calls without a safe wrapper"
)]
mod sys;
mod sysctl;
pub mod tun;
pub mod udp;
mod user;
pub mod waits;
mod wire;

pub use device::DeviceName;
pub use draft::Draft;
pub use error::Error;
pub use footprint::{Footprint, cleanup, cleanup_but_block, find_blocked};
pub use instance::{Instance, MAX_LINKS, MAX_ROUTED_CLASSES};
pub use leftovers::{Cleaned, cleanup_all, count_left};
pub use nft::{Allowed, Confined, Filter, Masquerade, Rules, forward_blockers, is_public};
pub use routing::{ClassRoute, Lost, Passage, TunnelRoute};
pub use user::{
    Directory, User, as_owner_of, is_closed_by_root, make_private_directories, open_private,
    open_state,
};
