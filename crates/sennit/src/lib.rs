//! The parts of the `sennit` binary.

pub mod config;
pub mod site;
pub mod store;
