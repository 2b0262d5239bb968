//! What runs out: room on the disk, and numbers for open files.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::Sennit;
use crate::error::{Doing, Error};

/// A daemon that has not answered by then could not take the connection.
const NO_ANSWER: Duration = Duration::from_millis(500);

/// A daemon that waits for a connection has the number for it already; and it may have just closed
/// something. So often it is tried.
const TRIES: usize = 5;

/// A daemon that can open nothing, and what it was allowed before.
#[derive(Debug)]
pub(super) struct Starved {
    pid: u32,
    before: Rlimit,
}

impl Sennit<'_> {
    /// From now on no daemon that runs can open anything. That is tried: its API would take a
    /// connection.
    pub(super) fn take_files(&mut self) -> Result<(), Error> {
        for (pid, control) in self.daemons.pids().zip(self.controls()) {
            let before = take_files(pid)?;
            self.starved.push(Starved { pid, before });
            let mut tries = 0;
            while answers(&control) {
                tries += 1;
                if tries > TRIES {
                    let reason = format!("process {pid} opens files though it may not");
                    return Err(Error::Tunnel(reason));
                }
                take_files(pid)?;
            }
        }
        Ok(())
    }

    /// Those that still run are allowed what they were before.
    pub(super) fn give_files(&mut self) -> Result<(), Error> {
        let running: BTreeSet<u32> = self.daemons.pids().collect();
        let starved = std::mem::take(&mut self.starved).into_iter();
        starved
            .filter(|it| running.contains(&it.pid))
            .try_for_each(|it| limit(it.pid, it.before))
    }
}

/// Leaves a process the files that it has; gives what it was allowed before.
pub fn take_files(pid: u32) -> Result<Rlimit, Error> {
    let path = format!("/proc/{pid}/fd");
    let entries = std::fs::read_dir(&path).doing(|| format!("read {path}"))?;
    let numbers: BTreeSet<u64> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    // The next file would have the first number that is free.
    let free = (0..)
        .find(|number| !numbers.contains(number))
        .unwrap_or(u64::MAX);
    let before = limit_of(pid)?;
    // What was free at the last try and is taken now is soon free again.
    let least = before.current.map_or(free, |now| now.min(free));
    let none = Rlimit {
        current: Some(least),
        ..before
    };
    limit(pid, none)?;
    Ok(before)
}

/// The limit of a process's files (proc_pid_limits(5)).
fn limit_of(pid: u32) -> Result<Rlimit, Error> {
    let path = format!("/proc/{pid}/limits");
    let text = std::fs::read_to_string(&path).doing(|| format!("read {path}"))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let mut numbers = line.unwrap_or_default().split_whitespace();
    let mut next = || numbers.next().and_then(|number| number.parse().ok());
    Ok(Rlimit {
        current: next(),
        maximum: next(),
    })
}

/// Limits the numbers of a process's files.
fn limit(pid: u32, limit: Rlimit) -> Result<(), Error> {
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
    prlimit(process, Resource::Nofile, limit)
        .map(drop)
        .map_err(std::io::Error::from)
        .doing(|| format!("limit the files of process {pid}"))
}

/// Whether a daemon takes a connection and says anything.
fn answers(control: &Path) -> bool {
    let ask = || -> std::io::Result<usize> {
        let mut stream = UnixStream::connect(control)?;
        stream.set_read_timeout(Some(NO_ANSWER))?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
        stream.read(&mut [0; 16])
    };
    ask().is_ok_and(|read| read > 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_without_numbers_for_files_opens_none_until_it_has_some() {
        // It opens a file for each line that it reads, and says how that went.
        let script =
            "while read -r _; do if true </dev/null; then echo yes; else echo no; fi; done";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("there is a shell");
        let mut stdin = child.stdin.take().expect("it is piped");
        let mut stdout = child.stdout.take().expect("it is piped");
        let mut opens = || {
            stdin.write_all(b"\n").expect("it reads");
            let mut answer = Vec::new();
            while answer.last() != Some(&b'\n') {
                let mut byte = [0];
                stdout.read_exact(&mut byte).expect("it answers");
                answer.push(byte[0]);
            }
            answer == b"yes\n"
        };
        assert!(opens());

        let before = take_files(child.id()).expect("it runs");
        let opened = opens();
        limit(child.id(), before).expect("it was allowed before");

        assert!(!opened);
        assert!(opens());
        child.kill().expect("it runs");
        child.wait().expect("it was killed");
    }

    #[test]
    fn who_does_not_take_connections_does_not_answer() {
        let directory = std::env::temp_dir().join(format!("shortage-{}", std::process::id()));
        let listener = UnixListener::bind(&directory).expect("it is writable");

        assert!(!answers(&directory));

        drop(listener);
        std::fs::remove_file(&directory).expect("it was made");
    }
}
