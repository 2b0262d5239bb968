//! How late this machine is by itself.

use std::collections::VecDeque;
use std::sync::Barrier;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use sennit_load::selfcheck::Burst;

use crate::emulator::take_priority;

/// Any delay that makes the thread sleep.
const DELAY: Duration = Duration::from_millis(2);

/// How long a thread sleeps that holds nothing, if nothing comes.
const IDLE: Duration = Duration::from_secs(1);

/// By how many seconds each of a burst comes late that goes where a packet over an emulated link
/// goes, without packets and without a link: a thread is woken, waits for the delay and wakes
/// another.
pub(super) fn lateness(burst: Burst) -> Vec<f64> {
    let (enter, entered) = mpsc::channel::<Instant>();
    let (leave, left) = mpsc::channel::<Instant>();
    let ready = Barrier::new(3);
    let ready = &ready;
    thread::scope(|scope| {
        scope.spawn(move || {
            take_priority();
            ready.wait();
            hold(&entered, &leave);
        });
        let arrivals = scope.spawn(move || {
            take_priority();
            ready.wait();
            left.iter()
                .map(|sent| sent.elapsed().saturating_sub(DELAY).as_secs_f64())
                .collect()
        });
        ready.wait();
        let start = Instant::now();
        for number in 0..burst.count {
            thread::sleep((start + burst.gap * number).saturating_duration_since(Instant::now()));
            if enter.send(Instant::now()).is_err() {
                break;
            }
        }
        drop(enter);
        arrivals.join().expect("taking the time does not panic")
    })
}

/// Lets each out [`DELAY`] after it came, and meanwhile takes others in: on a machine that is late,
/// none waits for another.
fn hold(entered: &Receiver<Instant>, leave: &Sender<Instant>) {
    let mut held = VecDeque::new();
    let mut ends = false;
    while !ends || !held.is_empty() {
        let due = held.front().map(|(due, _)| *due);
        let wait = due.map_or(IDLE, |due: Instant| {
            due.saturating_duration_since(Instant::now())
        });
        match entered.recv_timeout(wait) {
            Ok(sent) => held.push_back((Instant::now() + DELAY, sent)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                ends = true;
                thread::sleep(wait.min(DELAY));
            }
        }
        while let Some((_, sent)) = held.pop_front_if(|(due, _)| *due <= Instant::now()) {
            if leave.send(sent).is_err() {
                return;
            }
        }
    }
}
