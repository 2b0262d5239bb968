//! TUN, UDP sockets, netlink and nftables.
mod device;
mod error;
pub mod netlink;
pub mod netns;
pub mod poller;
pub mod privilege;
#[expect(
    unsafe_code,
    reason = "the only place for system calls without a safe wrapper"
)]
mod sys;
pub mod tun;
pub mod udp;

pub use device::DeviceName;
pub use error::Error;
