//! The crate against a real kernel, in network namespaces that vanish with the test.

mod links;
mod tun;
mod udp;
mod world;
