//! Niceness, which only somebody privileged may lower.

use std::thread;

use rustix::process::{getpriority_process, setpriority_process};
use sennit_linux::{priority::put_this_thread_ahead, privilege};

use crate::world::skipped;

/// The niceness of a thread that had `before` and put itself ahead.
fn after(before: i32) -> i32 {
    let thread = thread::spawn(move || {
        setpriority_process(None, before).unwrap();
        put_this_thread_ahead().unwrap();
        getpriority_process(None).unwrap()
    });
    thread.join().unwrap()
}

#[test]
fn a_thread_puts_itself_alone_ahead_unless_somebody_chose_otherwise() {
    if !privilege::has_net_admin() {
        skipped("to lower a niceness needs root");
        return;
    }
    let own = getpriority_process(None).unwrap();

    assert_eq!((after(0), after(5), after(-15)), (-10, 5, -15));

    assert_eq!(getpriority_process(None).unwrap(), own);
}
