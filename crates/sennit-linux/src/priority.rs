//! Who runs first where processors are short.

use std::io;

use rustix::process::{getpriority_process, setpriority_process};

/// The niceness (-20 to 19) of a thread for which packets wait. The kernel carries packets before any program runs;
/// other programs still get a tenth of a processor of their own.
const AHEAD: i32 = -10;

/// Puts this thread before those of programs that nobody has given a niceness. Where somebody has given one to
/// this thread, it stays.
///
/// # Errors
/// Without `CAP_SYS_NICE`, unless `RLIMIT_NICE` allows it.
pub fn put_this_thread_ahead() -> io::Result<()> {
    // Linux has a niceness for each thread, and no process ID is the thread that asks (setpriority(2)).
    if getpriority_process(None)? == 0 {
        setpriority_process(None, AHEAD)?;
    }
    Ok(())
}
