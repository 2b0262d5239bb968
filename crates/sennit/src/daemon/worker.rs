//! The loop: a thread that owns sockets, TUN devices and a state machine.
//!
//! Every turn reads what is ready (bounded, so that neither side starves the other), lets the
//! machine digest it, writes what came out, and sleeps until there is more or the machine wants to
//! be woken.
//!
//! # What time it is
//!
//! A turn may take long, and the thread may be held up at any point of it. A round trip is the time
//! of an arrival less the time of a departure, and the least one steers everything: one sample too
//! short does harm for long, one too long is one among many. So:
//!
//! | what happens | is told to the machine as | if the thread is held up |
//! | --- | --- | --- |
//! | datagrams arrive | when the kernel got them, at most 50 ms ago | nothing changes |
//! | datagrams leave | the clock before the machine made them | round trips seem too long |
//! | anything else | the clock just before | the queue is older than it seems |
//!
//! When the kernel got a run of datagrams is in [`Run::arrived`](sennit_linux::udp::Run).
//! Nothing ever lies in the future, and no departure is later than it says. Departures are made in
//! many batches, so the clock is read again when making them has taken long; but not for ever,
//! because each reading lets more leave. Arrivals are told in the order in which they are read,
//! which is that of each socket but not of several; and some are older than what the machine was
//! told last. It takes both, as QUIC does: what it compares are an arrival and a departure, or
//! arrivals of one path. As long as a socket has more than was read, timers do not run ahead of it:
//! what they wait for may be in there.

mod moderation;
mod sockets;
mod stop;

use std::{io, num::NonZeroU64, thread, time::Instant};

use bytes::BytesMut;
use sennit_engine::{Packet, Received, Transmit};
use sennit_linux::{
    memory,
    poller::{Events, Ready, set_timer_slack},
};
use sennit_packet::gso::VirtioNetHdr;

use self::sockets::{FIRST_SOCKET, FIRST_TUN, PULSE};
pub(super) use self::sockets::{Io, TUN_READS};
use super::{confinement, supervisor};
use moderation::Moderation;
pub(super) use stop::{Lifeline, Stop};

/// The kernel may delay our timers by this much; pacing works in steps of a millisecond.
const TIMER_SLACK: NonZeroU64 = NonZeroU64::new(20_000).expect("20 µs is not zero");
/// Events taken per sleep.
const EVENTS: usize = 64;

/// The state machine with its events turned into deeds.
pub(super) trait Machine {
    /// Whether it writes files of the state directory.
    const WRITES: bool = false;

    /// A run of datagrams that is read now.
    fn handle_datagrams(&mut self, from: Received, data: BytesMut, now: Instant);
    fn handle_packet(&mut self, tun: usize, header: &VirtioNetHdr, packet: &[u8], now: Instant);
    fn handle_timeout(&mut self, now: Instant);
    /// A descriptor of the machine's own is ready.
    fn handle_ready(&mut self, token: u64, io: &mut Io, now: Instant);
    /// Lets the state machine digest its input and does what its events ask for.
    fn digest(&mut self, io: &mut Io, now: Instant);
    /// A packet for the TUN device with this number.
    fn poll_packet(&mut self, now: Instant) -> Option<(usize, Packet)>;
    fn poll_transmit(&mut self, buffer: &mut Vec<u8>, now: Instant) -> Option<Transmit>;
    fn poll_timeout(&self) -> Option<Instant>;
    /// How many tunnels it serves.
    fn tunnels(&self) -> usize;
    /// Says goodbye to the peers.
    fn close(&mut self, now: Instant);
}

/// A machine and what it works with.
pub(super) struct Worker<M> {
    pub(super) machine: M,
    pub(super) io: Io,
}

/// Runs all workers of a daemon, each on a thread of its own that gives up all rights; when one
/// ends, so do the others.
///
/// # Errors
/// If one of them fails or panics.
pub(super) fn run_all<M: Machine + Send>(workers: &mut [Worker<M>], stop: &Stop) -> io::Result<()> {
    memory::keep_freed();
    let pulses = match supervisor::limit() {
        Some(_) => workers.iter_mut().map(|it| it.io.open_pulse()).collect(),
        None => Ok(Vec::new()),
    };
    let _attendance = supervisor::attend(pulses?)?;
    let work = |worker: &mut Worker<M>| {
        let _lifeline = stop.lifeline();
        confinement::confine_worker(M::WRITES);
        let outcome = run(&mut worker.machine, &mut worker.io, stop);
        stop.request();
        outcome
    };
    thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut failure = None;
        for (number, worker) in (0..).zip(workers) {
            let thread = thread::Builder::new().name(format!("worker-{number}"));
            match thread.spawn_scoped(scope, move || work(worker)) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    stop.request();
                    failure = Some(Err(error));
                }
            }
        }
        let panicked = |_| Err(io::Error::other("a worker panicked"));
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(panicked));
        failure.into_iter().chain(ended).fold(Ok(()), Result::and)
    })
}

/// Runs until it is told to stop.
///
/// # Errors
/// If the poller fails, a TUN device is taken away, or a thread with a [`Lifeline`] panics.
fn run(machine: &mut impl Machine, io: &mut Io, stop: &Stop) -> io::Result<()> {
    set_timer_slack(TIMER_SLACK)?;
    let mut events = Events::with_capacity(EVENTS);
    let mut buffer = Vec::with_capacity(1 << 16);
    let mut moderation = Moderation::of_this_thread(Instant::now());
    while !stop.is_requested() {
        let now = Instant::now();
        moderation.look(io.moved, machine.tunnels(), now);
        // What was left over goes on at once.
        let rest = io.unread.take().is_some() || machine.poll_timeout().is_some_and(|at| at <= now);
        if !rest && let Some(pause) = moderation.pause(now) {
            thread::sleep(pause);
        }
        let timeout = machine
            .poll_timeout()
            .map(|at| at.saturating_duration_since(Instant::now()));
        io.poller.clone().wait(&mut events, timeout)?;
        for ready in events.iter() {
            dispatch(ready, machine, io)?;
        }
        let heard_until = io.unread.unwrap_or_else(Instant::now);
        if machine.poll_timeout().is_some_and(|at| at <= heard_until) {
            machine.handle_timeout(heard_until);
        }
        settle(machine, io, moderation.is_rare())?;
        io.flush(machine, &mut buffer);
    }
    machine.close(Instant::now());
    settle(machine, io, false)?;
    io.flush(machine, &mut buffer);
    if stop.has_failed() {
        return Err(io::Error::other(
            "a part of the daemon has failed; the log says which",
        ));
    }
    Ok(())
}

fn dispatch(ready: Ready, machine: &mut impl Machine, io: &mut Io) -> io::Result<()> {
    match ready.token {
        FIRST_TUN.. => {
            io.read_tun((ready.token - FIRST_TUN) as usize, machine)?;
        }
        FIRST_SOCKET.. => {
            if ready.writable {
                io.resume(ready.token);
            }
            if ready.readable {
                io.read_socket(ready.token, machine);
            }
        }
        PULSE => io.pulse.iter().for_each(|pulse| pulse.answer()),
        own => machine.handle_ready(own, io, Instant::now()),
    }
    Ok(())
}

/// Lets the machine digest what came, and hands the host what came out for it. The host answers at
/// once to much of that; where turns are rare its answers are not left to the next, which otherwise
/// is larger for them.
fn settle(machine: &mut impl Machine, io: &mut Io, takes_answers: bool) -> io::Result<()> {
    let now = Instant::now();
    machine.digest(io, now);
    io.write_tuns(machine, now);
    if takes_answers && io.read_answers(machine)? {
        let now = Instant::now();
        machine.digest(io, now);
        io.write_tuns(machine, now);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
