//! Who runs first where processors are short.

use std::io;

use rustix::process::{getpriority_process, setpriority_process};

/// Niceness (-20 to 19) of a thread that is ahead. The kernel carries packets before any program
/// runs; beside such a thread others still get a tenth of a processor.
const AHEAD: i32 = -10;
const DEFAULT: i32 = 0;

/// Of the thread that made it. Linux has a niceness for each thread (setpriority(2)).
#[derive(Debug)]
pub struct Priority {
    is_ahead: bool,
}

impl Priority {
    /// `None` if somebody has chosen a niceness for the thread that calls this.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn of_this_thread() -> io::Result<Option<Self>> {
        let is_default = getpriority_process(None)? == DEFAULT;
        Ok(is_default.then_some(Self { is_ahead: false }))
    }

    /// Puts the thread ahead of other programs, or back among them.
    ///
    /// # Errors
    /// Without `CAP_SYS_NICE`, unless `RLIMIT_NICE` allows it.
    pub fn put_ahead(&mut self, ahead: bool) -> io::Result<()> {
        if ahead != self.is_ahead {
            setpriority_process(None, if ahead { AHEAD } else { DEFAULT })?;
            self.is_ahead = ahead;
        }
        Ok(())
    }
}
