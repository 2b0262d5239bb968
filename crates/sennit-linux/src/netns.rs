//! Network namespaces: where tests and the lab put hosts.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    path::{Path, PathBuf},
    thread,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::sys;

/// A network namespace, alive while this (or a process or socket in it) is.
#[derive(Debug)]
pub struct Netns {
    file: File,
}

impl Netns {
    /// A new empty namespace without a name: whatever happens, the kernel removes it with us.
    pub fn anonymous() -> io::Result<Self> {
        thread::spawn(|| {
            sys::unshare_network()?;
            Self::of_this_thread()
        })
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the thread making a namespace panicked")))
    }

    /// The namespace of the calling thread.
    pub fn of_this_thread() -> io::Result<Self> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// A namespace by its file, such as `/run/netns/NAME`.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: File::open(path)?,
        })
    }

    /// Moves the calling thread here; sockets it has already open stay where they are.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(
            self.file.as_fd(),
            Some(LinkNameSpaceType::Network),
        )?)
    }

    /// Runs `work` in a thread of its own inside this namespace.
    ///
    /// Panics of `work` are passed on.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let thread = scope.spawn(|| self.enter().map(|()| work()));
            match thread.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// A path by which `ip link set … netns PATH` finds this namespace while we live.
    pub fn path(&self) -> PathBuf {
        let (pid, fd) = (std::process::id(), self.file.as_raw_fd());
        PathBuf::from(format!("/proc/{pid}/fd/{fd}"))
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
