//! The parts of the `sennit` binary: what its tests can reach.
//!
//! [`cli`] reads the command line and calls the rest: [`config`] and [`identity`] for what is on
//! disk, [`store`] for what a hub remembers ([`lan`] and [`reach`] are what it grants to a site),
//! [`control`], [`api`], [`status`] and [`journal`] for talking to a daemon, and [`daemon`] to be
//! one. [`dns`] reads what resolvers answer an edge that looks for its hub.

#![warn(clippy::print_stderr)]

pub mod api;
pub mod cli;
pub mod config;
pub mod control;
pub mod daemon;
mod date;
pub mod described;
pub mod dns;
pub mod drill;
pub mod event;
pub mod exit;
pub mod flow;
pub mod history;
pub mod identity;
pub mod journal;
pub mod lan;
pub mod leases;
pub mod loadtest;
mod logging;
pub mod metrics;
pub mod notify;
mod onsite;
pub mod policy;
mod qr;
pub mod reach;
pub mod remote;
pub mod site;
pub mod speedtest;
mod sqlite;
pub mod status;
pub mod store;
pub mod usage;
