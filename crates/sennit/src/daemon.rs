//! The daemons: what turns the state machines of `sennit-engine` into running programs.
//!
//! What carries packets is a thread that runs to completion ([`worker`]): it owns an epoll set, UDP
//! sockets, TUN devices and a state machine, and between two sleeps it moves whatever there is to
//! move, in batches. An edge has one, a hub has several, each with tunnels of its own. Other threads
//! only ask them for something and wait: the control socket, and on a hub the registrar, which is
//! the one that touches the disk. They reach a worker by a channel and a waker ([`mailbox`]).

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

/// Makes SIGINT and SIGTERM end the workers with these pollers, and SIGHUP be survived.
fn stop_on_signal(pollers: &[Arc<Poller>], token: u64) -> Result<worker::Stop, Failure> {
    let wakers = pollers.iter().map(|poller| Waker::new(poller, token));
    let wakers: Vec<Waker> = wakers.collect::<Result<_, _>>().map_err(Failure::runtime)?;
    let stop = worker::Stop::new(wakers);
    let handler = stop.clone();
    ctrlc::set_handler(move || handler.request()).map_err(Failure::runtime)?;
    Ok(stop)
}
