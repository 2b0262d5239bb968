//! Waiting for file descriptors: a thin, level-triggered epoll with nanosecond timeouts.
//!
//! A worker owns one [`Poller`], registers its sockets and TUN queues under tokens of its choice,
//! and sleeps in [`Poller::wait`] until one is ready, a [`Waker`] is used, or the time is up.

use std::{
    fmt, io,
    num::NonZeroU64,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::{
    buffer::spare_capacity,
    event::{EventfdFlags, Timespec, epoll, eventfd},
};

use crate::sys;

/// What a file descriptor is watched for; errors and hang-ups are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    Read,
    Write,
    ReadWrite,
}

/// One ready file descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    pub token: u64,
    /// Reading will not block: there is data, or an error to fetch.
    pub readable: bool,
    /// Writing will not block, or fails at once.
    pub writable: bool,
}

/// Room for the outcome of one [`Poller::wait`], reused from call to call.
pub struct Events {
    raw: Vec<epoll::Event>,
}

impl Events {
    /// Room for `capacity` ready descriptors per wait; the rest is reported by the next wait.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            raw: Vec::with_capacity(capacity.max(1)),
        }
    }

    /// What the last wait found.
    pub fn iter(&self) -> impl Iterator<Item = Ready> + '_ {
        self.raw.iter().map(|event| {
            let flags = event.flags;
            let failed = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
            Ready {
                token: event.data.u64(),
                readable: failed || flags.contains(epoll::EventFlags::IN),
                writable: failed || flags.contains(epoll::EventFlags::OUT),
            }
        })
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A set of watched file descriptors.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    /// Cleared for good once the kernel (before 5.11) or a seccomp filter refuses `epoll_pwait2`.
    nanoseconds: AtomicBool,
}

impl Poller {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            nanoseconds: AtomicBool::new(true),
        })
    }

    /// Watches `fd`, reporting it under `token`.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::add(&self.epoll, fd, data, interest.into())?)
    }

    /// Changes token or interest of a watched `fd`.
    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::modify(&self.epoll, fd, data, interest.into())?)
    }

    /// Stops watching `fd`; call it before the descriptor is closed.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Sleeps until something is ready, at most for `timeout` (`None`: as long as it takes).
    ///
    /// Returns how many descriptors are ready: 0 after a timeout or a signal.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<usize> {
        events.raw.clear();
        let waited = match timeout {
            Some(timeout) if self.nanoseconds.load(Ordering::Relaxed) => {
                self.wait_precisely(&mut events.raw, timeout)
            }
            timeout => self.wait_in_milliseconds(&mut events.raw, timeout),
        };
        match waited {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            waited => waited,
        }
    }

    fn wait_precisely(
        &self,
        events: &mut Vec<epoll::Event>,
        timeout: Duration,
    ) -> io::Result<usize> {
        match sys::epoll_pwait2(self.epoll.as_fd(), events, &timespec(timeout)) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                self.nanoseconds.store(false, Ordering::Relaxed);
                self.wait_in_milliseconds(events, Some(timeout))
            }
            waited => waited,
        }
    }

    /// The old call: whole milliseconds, rounded up so that it never spins.
    fn wait_in_milliseconds(
        &self,
        events: &mut Vec<epoll::Event>,
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let timeout = timeout.map(|timeout| {
            let millis = timeout.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128);
            timespec(Duration::from_millis(millis as u64))
        });
        Ok(epoll::wait(
            &self.epoll,
            spare_capacity(events),
            timeout.as_ref(),
        )?)
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl From<Interest> for epoll::EventFlags {
    fn from(interest: Interest) -> Self {
        match interest {
            Interest::Read => Self::IN,
            Interest::Write => Self::OUT,
            Interest::ReadWrite => Self::IN | Self::OUT,
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Wakes a [`Poller`] from another thread. Clones wake the same one, as long as one is left: the
/// poller's owner keeps one, by which it acknowledges.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// A waker that reports itself to `poller` as `token`.
    pub fn new(poller: &Poller, token: u64) -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        poller.add(&fd, token, Interest::Read)?;
        Ok(Self(Arc::new(fd)))
    }

    /// Makes the poller's current or next wait return.
    pub fn wake(&self) {
        // The counter is full: the poller is being woken already.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    /// Takes the wake-ups so far; the woken side calls this before it looks at what changed.
    pub fn acknowledge(&self) {
        // The counter is zero: there was nothing to acknowledge.
        let _ = rustix::io::read(&*self.0, &mut [0u8; 8]);
    }
}

/// How late the kernel may wake this thread to save power (50 µs unless set).
pub fn set_timer_slack(nanoseconds: NonZeroU64) -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(Some(nanoseconds))?)
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixStream, time::Instant};

    use super::*;

    #[test]
    fn reports_a_readable_descriptor_under_its_token() -> io::Result<()> {
        let poller = Poller::new()?;
        let (near, far) = UnixStream::pair()?;
        poller.add(&near, 7, Interest::Read)?;
        rustix::io::write(&far, b"x")?;

        let mut events = Events::with_capacity(4);
        let ready = poller.wait(&mut events, None)?;

        assert_eq!(ready, 1);
        let expected = Ready {
            token: 7,
            readable: true,
            writable: false,
        };
        assert_eq!(events.iter().collect::<Vec<_>>(), [expected]);
        Ok(())
    }

    #[test]
    fn a_removed_descriptor_stays_silent() -> io::Result<()> {
        let poller = Poller::new()?;
        let (near, far) = UnixStream::pair()?;
        poller.add(&near, 7, Interest::ReadWrite)?;
        poller.modify(&near, 8, Interest::Read)?;
        rustix::io::write(&far, b"x")?;
        poller.remove(&near)?;

        let mut events = Events::with_capacity(4);

        assert_eq!(poller.wait(&mut events, Some(Duration::ZERO))?, 0);
        Ok(())
    }

    #[test]
    fn waits_no_shorter_than_asked_with_either_call() -> io::Result<()> {
        let mut events = Events::with_capacity(1);
        for nanoseconds in [true, false] {
            let poller = Poller::new()?;
            poller.nanoseconds.store(nanoseconds, Ordering::Relaxed);
            let asked = Duration::from_micros(300);

            let start = Instant::now();
            assert_eq!(poller.wait(&mut events, Some(asked))?, 0);

            assert!(start.elapsed() >= asked, "{:?}", start.elapsed());
        }
        Ok(())
    }

    #[test]
    fn a_waker_ends_the_wait_once() -> io::Result<()> {
        let poller = Poller::new()?;
        let waker = Waker::new(&poller, 1)?;
        let mut events = Events::with_capacity(1);

        let other = waker.clone();
        let woken = std::thread::scope(|scope| {
            scope.spawn(move || other.wake());
            poller.wait(&mut events, None)
        })?;
        waker.acknowledge();

        assert_eq!(woken, 1);
        assert_eq!(poller.wait(&mut events, Some(Duration::ZERO))?, 0);
        Ok(())
    }
}
