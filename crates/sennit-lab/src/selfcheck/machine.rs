//! How late this machine is by itself.

use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use sennit_load::selfcheck::Burst;

use crate::emulator::take_priority;

/// Any delay that makes the thread sleep, shorter than what is between two of a burst.
const DELAY: Duration = Duration::from_millis(2);

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
            for sent in entered {
                thread::sleep(DELAY);
                if leave.send(sent).is_err() {
                    return;
                }
            }
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
