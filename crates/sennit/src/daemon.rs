//! The daemons: what turns the state machines of `sennit-engine` into running programs.
//!
//! A daemon is one thread that runs to completion ([`worker`]): it owns an epoll set, the UDP
//! sockets, the TUN devices and a state machine, and between two sleeps it moves whatever there is
//! to move, in batches. Other threads only ask it for something and wait: the control socket, and
//! on a hub the registrar, which is the one that touches the disk. They reach it by a channel and a
//! waker ([`mailbox`]).

pub mod edge;
mod facts;
pub mod hub;
mod mailbox;
mod registrar;
mod why;
mod worker;

use std::sync::Arc;

use sennit_linux::poller::{Poller, Waker};

use crate::cli::Failure;

/// MTU of the inner network unless the config says otherwise: with all overhead it fits a link of
/// 1500 bytes over IPv6.
const DEFAULT_MTU: u16 = 1400;

/// 32 bytes that nobody can guess.
fn random_seed() -> Result<[u8; 32], Failure> {
    let mut seed = [0; 32];
    aws_lc_rs::rand::fill(&mut seed)
        .map_err(|_| Failure::runtime("the operating system gives no random numbers"))?;
    Ok(seed)
}

/// Makes SIGINT and SIGTERM end the worker, and SIGHUP be survived.
fn stop_on_signal(poller: &Arc<Poller>, token: u64) -> Result<worker::Stop, Failure> {
    let waker = Waker::new(poller, token).map_err(Failure::runtime)?;
    let stop = worker::Stop::new(waker);
    let handler = stop.clone();
    ctrlc::set_handler(move || handler.request()).map_err(Failure::runtime)?;
    Ok(stop)
}
