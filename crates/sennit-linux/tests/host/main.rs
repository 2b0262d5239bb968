//! The crate against a real kernel, in network namespaces that vanish with the test.

#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

mod footprint;
mod links;
mod priority;
mod tun;
mod udp;
mod world;
