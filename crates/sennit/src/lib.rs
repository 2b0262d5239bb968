//! The parts of the `sennit` binary.

pub mod config;
pub mod identity;
pub mod site;
pub mod store;
