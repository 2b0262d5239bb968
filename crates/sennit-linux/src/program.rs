//! Programs of the host, such as `nft`: run to their end, but not for ever.
//!
//! One that hangs must not hold up who waits for it, as a daemon that ends. What it has started
//! itself may go on and keep its output open: nobody waits for that.

use std::{
    io::{self, Read, Write},
    os::unix::process::CommandExt as _,
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, kill_process_group},
};

/// A program that is about to end is looked at so often.
const SOON: Duration = Duration::from_millis(1);
/// One that says nothing, because what it has started keeps its output open.
const QUIET: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};
/// One that was killed is gone by then, unless the kernel holds it.
const DIES_WITHIN: Duration = Duration::from_millis(100);

/// What a program has said by its end.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) success: bool,
    pub(crate) output: String,
    pub(crate) complaint: String,
}

/// Runs a program with this input until it ends. After `patience` it is killed, with all that it
/// has started and that is still in its process group.
pub(crate) fn run(
    program: &str,
    arguments: &[&str],
    input: &str,
    patience: Duration,
) -> io::Result<Said> {
    let deadline = Instant::now() + patience;
    let mut command = Command::new(program);
    command.args(arguments).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let outcome = Talk::begin(&mut child, input)
        .and_then(|mut talk| talk.until_end(&mut child, deadline).map(|it| talk.said(it)));
    if outcome.is_err() {
        kill(&mut child);
    }
    outcome
}

/// The pipes of a program, as far as they are open, and what came by them.
struct Talk<'a> {
    input: &'a [u8],
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    output: Vec<u8>,
    complaint: Vec<u8>,
}

impl<'a> Talk<'a> {
    fn begin(child: &mut Child, input: &'a str) -> io::Result<Self> {
        let talk = Self {
            input: input.as_bytes(),
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            output: Vec::new(),
            complaint: Vec::new(),
        };
        talk.stdin.as_ref().map_or(Ok(()), never_wait)?;
        talk.stdout.as_ref().map_or(Ok(()), never_wait)?;
        talk.stderr.as_ref().map_or(Ok(()), never_wait)?;
        Ok(talk)
    }

    /// Writes and reads until the program ends; whether it succeeded.
    fn until_end(&mut self, child: &mut Child, deadline: Instant) -> io::Result<bool> {
        loop {
            self.wait()?;
            self.write();
            // Looked at first, so that all it has said is read after its end.
            let ended = child.try_wait()?;
            self.read();
            if let Some(status) = ended {
                return Ok(status.success());
            }
            if Instant::now() >= deadline {
                let late = "it does not end, and was killed";
                return Err(io::Error::new(io::ErrorKind::TimedOut, late));
            }
        }
    }

    /// Waits a moment, or until there is something to write or to read.
    fn wait(&self) -> io::Result<()> {
        let mut pipes: Vec<PollFd<'_>> = Vec::with_capacity(3);
        pipes.extend(
            self.stdin
                .as_ref()
                .map(|it| PollFd::new(it, PollFlags::OUT)),
        );
        pipes.extend(
            self.stdout
                .as_ref()
                .map(|it| PollFd::new(it, PollFlags::IN)),
        );
        pipes.extend(
            self.stderr
                .as_ref()
                .map(|it| PollFd::new(it, PollFlags::IN)),
        );
        if pipes.is_empty() {
            thread::sleep(SOON);
            return Ok(());
        }
        rustix::io::retry_on_intr(|| poll(&mut pipes, Some(&QUIET)))?;
        Ok(())
    }

    fn write(&mut self) {
        let Some(stdin) = &mut self.stdin else { return };
        while !self.input.is_empty() {
            match stdin.write(self.input) {
                Ok(written) => self.input = &self.input[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Who stops reading early says why.
                Err(_) => break,
            }
        }
        self.stdin = None;
    }

    fn read(&mut self) {
        drain(&mut self.stdout, &mut self.output);
        drain(&mut self.stderr, &mut self.complaint);
    }

    fn said(self, success: bool) -> Said {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
        Said {
            success,
            output: String::from_utf8_lossy(&self.output).into_owned(),
            complaint: text(self.complaint),
        }
    }
}

fn never_wait(pipe: &impl std::os::fd::AsFd) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(pipe, true)?)
}

/// Reads what is there, and forgets a pipe that has ended.
fn drain(pipe: &mut Option<impl Read>, into: &mut Vec<u8>) {
    let Some(open) = pipe else { return };
    match open.read_to_end(into) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        _ => *pipe = None,
    }
}

fn kill(child: &mut Child) {
    let group = Pid::from_child(child);
    // It may have ended by itself.
    let _ = kill_process_group(group, Signal::KILL);
    let deadline = Instant::now() + DIES_WITHIN;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        thread::sleep(SOON);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn shell(script: &str, input: &str, patience: Duration) -> io::Result<Said> {
        run("sh", &["-c", script], input, patience)
    }

    #[test]
    fn input_and_output_longer_than_a_pipe_arrive_whole() {
        let long = "line\n".repeat(100_000);

        let said = shell("cat; echo well >&2", &long, LONG).unwrap();

        assert!(said.success);
        assert_eq!(said.output, long);
        assert_eq!(said.complaint, "well");
    }

    #[test]
    fn who_reads_nothing_says_why() {
        let long = "x".repeat(1 << 20);

        let said = shell("echo no >&2; exit 3", &long, LONG).unwrap();

        assert!(!said.success);
        assert_eq!(said.complaint, "no");
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_what_it_has_started() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let script = format!("sleep 1000 & echo $! > {}; wait", file.path().display());

        let error = shell(&script, &"x".repeat(1 << 20), Duration::from_millis(500)).unwrap_err();

        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let started = std::fs::read_to_string(file.path()).unwrap();
        let state = format!("/proc/{}/stat", started.trim());
        let runs = || std::fs::read_to_string(&state).is_ok_and(|it| !it.contains(") Z "));
        let deadline = Instant::now() + LONG;
        while runs() && Instant::now() < deadline {
            thread::sleep(SOON);
        }
        assert!(!runs(), "what it has started goes on");
    }

    #[test]
    fn nobody_waits_for_what_a_program_has_left_running() {
        let begun = Instant::now();

        let said = shell("sleep 20 & echo done", "", LONG).unwrap();

        assert_eq!(said.output, "done\n");
        assert!(
            begun.elapsed() < Duration::from_secs(15),
            "{:?}",
            begun.elapsed()
        );
    }

    #[test]
    fn a_program_that_is_not_there_is_not_found() {
        let error = run("sennit-no-such-program", &[], "", LONG).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
