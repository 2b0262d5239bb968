//! What a process gives up for good: rights, system calls, and files that it may write.
//!
//! All of it belongs to threads, and is inherited by threads and programs that they start later.
//! So a daemon calls [`process`] while it has one thread. A thread that needs less gives up more:
//! [`carry_packets`] is for those that read what strangers send, [`keep_files_only`] for the rest
//! that never changes the network.
//!
//! Threads share their memory. What one of them gives up limits its mistakes and the system calls
//! that an intruder can make from it, and is no boundary between it and the others.
//!
//! A system call that is refused fails (`EPERM`) and kills nothing. What the kernel does not have
//! is reported, and the rest holds.

mod calls;
mod files;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustix::{
    process::{DumpableBehavior, Resource, getrlimit, set_dumpable_behavior, setrlimit},
    thread::{
        CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
        remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
    },
};

use crate::{Error, User, error::Doing};

/// To change routes, devices and rules, and to bind sockets to interfaces.
const NETWORK: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW);

/// To listen at ports below 1024.
const PORTS: CapabilitySet = CapabilitySet::NET_BIND_SERVICE;

/// To read and replace files of other users, as a config that its operator owns.
const FILES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER);

/// `RLIMIT_NICE` that allows a niceness of -10, the lowest that [`crate::priority`] sets.
const NICE: u64 = 30;

/// What a process is held by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// No program that it starts has more rights than itself.
    pub no_new_privs: bool,
    /// Rights that it does not need are gone.
    pub capabilities: bool,
    /// System calls that it does not need are refused (seccomp).
    pub calls: bool,
    /// It writes only where it has to (landlock).
    pub files: bool,
    /// What does not hold, and why.
    pub missing: Vec<String>,
}

/// Confines the calling thread, and all that it starts, to what a daemon needs whose helper
/// ([`crate::helper`]) changes the network; files are written at or below `writable` only. Paths
/// that are not there are passed over. It talks to other programs of this host by sockets that it
/// has by now, and opens no more: services that trust root do what root asks for. As `user` it has
/// no right to files of others.
///
/// # Errors
/// If it cannot become that user.
pub fn process(writable: &[PathBuf], user: Option<User>) -> Result<Held, Error> {
    let mut kept = PORTS;
    if !allow_nice() {
        kept |= CapabilitySet::SYS_NICE;
    }
    match user {
        Some(user) => become_user(user, kept).doing(|| format!("become user {user}"))?,
        None => kept |= FILES,
    }
    let mut held = give_up_all_but(kept);
    confine_further(&mut held, writable);
    Ok(held)
}

/// Makes this process, which has one thread, another user's.
fn become_user(user: User, kept: CapabilitySet) -> io::Result<()> {
    // A user is a thread's own on Linux.
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("it has threads already"));
    }
    // Who is not root may not any more.
    bound(kept)?;
    user.take_thread()
}

/// Takes what is a process's own and no helper's: files, and sockets of this host.
fn confine_further(held: &mut Held, writable: &[PathBuf]) {
    match files::write_only_in(writable) {
        Ok(gap) => {
            held.files = true;
            held.missing
                .extend(gap.map(|gap| format!("landlock: {gap}")));
        }
        Err(why) => held.missing.push(format!("landlock: {why}")),
    }
    if let Err(why) = calls::refuse_local_sockets() {
        held.missing
            .push(format!("seccomp for local sockets: {why}"));
        held.calls = false;
    }
}

/// Confines a helper. Its commands write files where their makers wanted.
pub fn helper() -> Held {
    give_up_all_but(NETWORK | FILES)
}

fn give_up_all_but(kept: CapabilitySet) -> Held {
    let mut missing = Vec::new();
    let mut holds = |what: &str, outcome: Result<(), String>| {
        let outcome = outcome.map_err(|why| missing.push(format!("{what}: {why}")));
        outcome.is_ok()
    };
    let text = |error: io::Error| error.to_string();
    // What it has in memory is in no file, and of no debugger but root's.
    let dumps = set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(io::Error::from);
    holds("no core dumps", dumps.map_err(text));
    let no_new_privs = set_no_new_privs(true).map_err(io::Error::from);
    let bounded = bound(kept).and_then(|()| keep(kept));
    Held {
        no_new_privs: holds("no_new_privs", no_new_privs.map_err(text)),
        capabilities: holds("capabilities", bounded.map_err(text)),
        calls: holds("seccomp", calls::refuse_needless()),
        files: false,
        missing,
    }
}

/// For a thread that moves packets between descriptors that it has: it keeps no right, starts no
/// program, opens no socket and makes no memory executable.
///
/// # Errors
/// What the kernel does not have; the rest holds.
pub fn carry_packets() -> Result<(), String> {
    let kept = keep(CapabilitySet::SYS_NICE).map_err(|error| format!("capabilities: {error}"));
    let calls = calls::refuse_to_carriers().map_err(|why| format!("seccomp: {why}"));
    kept.and(calls)
}

/// For a thread that writes no file.
///
/// # Errors
/// If the kernel has no landlock.
pub fn write_nothing() -> Result<(), String> {
    files::write_only_in(&[]).map(drop)
}

/// For a thread that changes the network, and keeps records of that in `records`. What it lacks for
/// that is no reason not to go on.
pub(crate) fn change_the_network_only(records: &Path) {
    let writable = [Path::new(files::SWITCHES), records, Path::new("/dev/null")];
    if let Err(why) = files::write_only_in(&writable.map(PathBuf::from)) {
        tracing::debug!(why, "what changes the network may write anywhere");
    }
}

/// For a thread that serves people or files and leaves the network as it is.
pub fn keep_files_only() {
    if let Err(error) = keep(FILES) {
        tracing::warn!(%error, "a thread keeps rights that it does not need");
    }
}

/// Names of the threads of this process that may change the network, in order and each once.
pub fn who_may_change_the_network() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten();
    let mut names: Vec<String> = tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("status")).ok())
        .filter(|status| may_change_the_network(status))
        .filter_map(|status| Some(field(&status, "Name")?.to_owned()))
        .collect();
    names.sort();
    names.dedup();
    names
}

fn may_change_the_network(status: &str) -> bool {
    let effective = field(status, "CapEff").and_then(|it| u64::from_str_radix(it, 16).ok());
    let sets = effective.map(CapabilitySet::from_bits_retain);
    sets.is_some_and(|sets| sets.contains(CapabilitySet::NET_ADMIN))
}

/// A field of `/proc/PID/status`.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = status.lines().filter_map(|line| line.split_once(':'));
    lines
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.trim())
}

/// Has the limit of this process allow the niceness that packet threads take, so that they need no
/// right for it; whether it does.
fn allow_nice() -> bool {
    let mut limit = getrlimit(Resource::Nice);
    if limit.current.is_some_and(|now| now < NICE) {
        limit.current = Some(NICE);
        limit.maximum = limit.maximum.map(|most| most.max(NICE));
        return setrlimit(Resource::Nice, limit).is_ok();
    }
    true
}

/// Takes all but these from what this thread and its programs can ever have. Who lacks
/// `CAP_SETPCAP` leaves that as it is: a service manager has seen to it.
fn bound(kept: CapabilitySet) -> io::Result<()> {
    let may = capabilities(None)?
        .effective
        .contains(CapabilitySet::SETPCAP);
    for capability in CapabilitySet::all().difference(kept).iter() {
        // Those that this kernel does not know are an error.
        if may && capability_is_in_bounding_set(capability).unwrap_or(false) {
            remove_capability_from_bounding_set(capability)?;
        }
    }
    Ok(())
}

/// Gives up all rights of this thread but these, as far as it has them. Who has become another user
/// has none in effect before.
fn keep(kept: CapabilitySet) -> io::Result<()> {
    let sets = capabilities(None)?;
    Ok(set_capabilities(
        None,
        CapabilitySets {
            effective: sets.permitted & kept,
            permitted: sets.permitted & kept,
            inheritable: sets.inheritable & kept,
        },
    )?)
}

#[cfg(test)]
mod tests;
