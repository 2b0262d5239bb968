//! How long a thread waits for a processor.

use std::{fs::File, io, mem, os::unix::fs::FileExt, time::Duration};

/// Tells of the thread that made it.
#[derive(Debug)]
pub struct Waits {
    schedstat: File,
    last: Spent,
}

/// Time in which a thread had something to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// On a processor.
    pub ran: Duration,
    /// Waiting for one.
    pub waited: Duration,
}

impl Waits {
    /// Those of the thread that calls this.
    ///
    /// # Errors
    /// If the kernel does not count (`CONFIG_SCHED_INFO`), or `/proc` is not there.
    pub fn of_this_thread() -> io::Result<Self> {
        let mut waits = Self {
            schedstat: File::open("/proc/thread-self/schedstat")?,
            last: Spent::default(),
        };
        waits.spent()?;
        Ok(waits)
    }

    /// What the thread has spent since the last call.
    ///
    /// # Errors
    /// If the kernel does not say it as it used to.
    pub fn spent(&mut self) -> io::Result<Spent> {
        let mut text = [0; 80];
        let length = self.schedstat.read_at(&mut text, 0)?;
        // Nanoseconds on a processor, nanoseconds waiting for one, number of times.
        let mut numbers = str::from_utf8(&text[..length])
            .unwrap_or_default()
            .split_whitespace()
            .map(|number| number.parse().map(Duration::from_nanos));
        let (Some(Ok(ran)), Some(Ok(waited))) = (numbers.next(), numbers.next()) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let last = mem::replace(&mut self.last, Spent { ran, waited });
        Ok(Spent {
            ran: ran.saturating_sub(last.ran),
            waited: waited.saturating_sub(last.waited),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{hint, thread, time::Instant};

    use super::*;

    #[test]
    fn threads_that_share_a_processor_wait_for_each_other() {
        let spin = || {
            let mut waits = Waits::of_this_thread().unwrap();
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(300) {
                hint::spin_loop();
            }
            waits.spent().unwrap()
        };
        let many = 8 * thread::available_parallelism().unwrap().get();

        let spent: Vec<Spent> = thread::scope(|scope| {
            let threads: Vec<_> = (0..many).map(|_| scope.spawn(spin)).collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });

        let ran: Duration = spent.iter().map(|spent| spent.ran).sum();
        let waited: Duration = spent.iter().map(|spent| spent.waited).sum();
        assert!(ran > Duration::ZERO && waited > ran, "{ran:?}, {waited:?}");
    }
}
