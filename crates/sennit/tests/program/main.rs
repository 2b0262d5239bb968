//! The program as a user runs it, in processes of its own: commands, load tests over loopback, and
//! what packages are made from.
//!
//! `cargo test --workspace --test program -- cli::` runs the tests of one of them.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod cli;
mod loadtest;
mod packages;

use sennit_linux::netlink::{Interface, Netlink};
use sennit_linux::netns::Netns;

/// A config that is fine by itself, and does not fit the host of [`where_it_overlaps`].
const OVERLAPPING: &str = "[edge]\nhub = ['203.0.113.10:443']\nlan = ['192.168.8.0/24']\n\
                           [[link]]\nname = 'lte'\ninterface = 'lo'\n";

/// Does this on a host whose `lo` is on the LAN of [`OVERLAPPING`].
fn where_it_overlaps<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    let host = match Netns::anonymous() {
        Ok(host) => host,
        Err(error) => {
            println!("SKIPPED: needs a network namespace: {error}");
            return None;
        }
    };
    let done = host.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let lo = Interface::lookup(&mut netlink, "lo").unwrap();
        let address = "192.168.8.1/24".parse().unwrap();
        netlink.add_address(lo.index, address).unwrap();
        work()
    });
    Some(done.unwrap())
}
