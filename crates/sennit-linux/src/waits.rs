//! How long a thread waits for a processor.

use std::{fs::File, io, os::unix::fs::FileExt, time::Duration};

/// Tells of the thread that made it.
#[derive(Debug)]
pub struct Waits {
    schedstat: File,
    ran: Duration,
    waited: Duration,
}

impl Waits {
    /// Those of the thread that calls this.
    ///
    /// # Errors
    /// If the kernel does not count (`CONFIG_SCHED_INFO`), or `/proc` is not there.
    pub fn of_this_thread() -> io::Result<Self> {
        let mut waits = Self {
            schedstat: File::open("/proc/thread-self/schedstat")?,
            ran: Duration::ZERO,
            waited: Duration::ZERO,
        };
        waits.share()?;
        Ok(waits)
    }

    /// Of the time since the last call in which the thread had something to do, the part in which it waited for a
    /// processor, 0 to 1.
    ///
    /// # Errors
    /// If the kernel does not say it as it used to.
    pub fn share(&mut self) -> io::Result<f64> {
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
        let since = |now: Duration, before: &mut Duration| {
            let since = now.saturating_sub(*before);
            *before = now;
            since.as_secs_f64()
        };
        let waited = since(waited, &mut self.waited);
        Ok(waited / (waited + since(ran, &mut self.ran)).max(f64::MIN_POSITIVE))
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
            waits.share().unwrap()
        };
        let many = 8 * thread::available_parallelism().unwrap().get();

        let shares: f64 = thread::scope(|scope| {
            let threads: Vec<_> = (0..many).map(|_| scope.spawn(spin)).collect();
            threads.into_iter().map(|it| it.join().unwrap()).sum()
        });

        let mean = shares / many as f64;
        assert!((0.5..=1.0).contains(&mean), "{mean}");
    }
}
