//! Niceness, which only somebody privileged may lower.

use std::thread;

use rustix::process::{getpriority_process, setpriority_process};
use sennit_linux::{priority::Priority, privilege};

use crate::world::skipped;

#[test]
fn a_thread_gets_ahead_alone_and_comes_back() {
    if !privilege::has_net_admin() {
        skipped("to lower a niceness needs root");
        return;
    }
    let own = || getpriority_process(None).unwrap();
    let before = own();

    let thread = thread::spawn(move || {
        setpriority_process(None, 0).unwrap();
        let mut priority = Priority::of_this_thread().unwrap().unwrap();
        [true, true, false].map(|ahead| {
            priority.put_ahead(ahead).unwrap();
            own()
        })
    });

    assert_eq!(thread.join().unwrap(), [-10, -10, 0]);
    assert_eq!(own(), before);
}

#[test]
fn a_niceness_that_somebody_chose_stays() {
    let thread = thread::spawn(|| {
        setpriority_process(None, 19).unwrap();
        Priority::of_this_thread().unwrap()
    });

    assert!(thread.join().unwrap().is_none());
}
