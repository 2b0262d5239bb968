//! A laboratory for tunnels on one machine.
//!
//! A [`Lab`] is a handful of hosts, each a network namespace, joined by emulated links that one
//! thread of this process moves packets through; no kernel module and no second machine is needed.
//! Usually it has one edge, and several on request.
//! A [`Scenario`] says in a file which links there are, what traffic runs over them, what breaks
//! meanwhile. [`run`] plays it: builds the lab, checks that the links are what was asked for
//! ([`selfcheck`]), runs the steps, prints a table and writes every figure to `results.json`.
//!
//! Tests use the lab without a scenario:
//!
//! ```no_run
//! use std::time::Duration;
//! use sennit_lab::{Lab, LabLink, Role, Spec};
//! use sennit_netem::Config;
//!
//! # fn main() -> Result<(), sennit_lab::Error> {
//! let slow = Config { delay: Duration::from_millis(30), ..Config::default() };
//! let lab = Lab::new(&Spec { links: vec![LabLink::symmetric("a", &slow)], ..Spec::default() })?;
//! lab.exec(Role::Edge, &["ping", "-c", "1", "198.19.0.1"])?;
//! lab.link("a")?.set_outage(true)?;
//! # Ok(())
//! # }
//! ```

mod api;
mod chaos;
mod cli;
mod draft;
mod emulator;
mod error;
mod figure;
mod flag;
mod host;
mod lab;
mod link;
mod made;
mod matrix;
mod pacing;
pub mod plan;
mod predict;
mod programs;
mod progress;
pub mod report;
mod run;
pub mod scenario;
mod scratch;
pub mod selfcheck;
mod sockets;
mod steal;
mod targets;
pub mod traffic;
pub mod tunnel;
mod witness;

pub use cli::{Args, run};
pub use emulator::{NatFault, Strain};
pub use error::{Error, error_json};
pub use host::{Host, Role, Running, remove_all, remove_leftovers};
pub use lab::{Lab, LinkHandle, Site, Spec};
pub use link::{Kind, LabLink};
pub use run::{Options, play};
pub use scenario::{Scenario, TunnelKind};
pub use tunnel::{Programs, take_files};
