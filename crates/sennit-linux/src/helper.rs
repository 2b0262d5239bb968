//! A process that keeps rights which another one has given up.
//!
//! Whatever reads what strangers send is not to have the right to change the network of its host.
//! So a daemon starts its own program a second time ([`engage`]), as a helper that hears it over a
//! socket of which nobody else has an end, and then gives its rights up for good
//! ([`crate::confine`]). From then on this crate has the helper do what needs them: keep the
//! [`crate::Footprint`], tie sockets to links, attach queues to TUN devices, read what firewalls
//! say. Who calls it notices nothing of that. The descriptor that an order is about goes with it.
//!
//! The helper reads nothing but these orders. It follows one only as far as a daemon needs it:
//! there is one footprint in its life, addresses and routes are for devices that were attached
//! through it, and marks are those of Sennit's own tables. For a daemon that is not root it sees to
//! the few files that are root's ([`entrust`]), which were named before the daemon read a packet.
//!
//! It ends with its daemon. Where that was killed, the host stays as it is, as with one process.
//! What else was tried is in decision 0033.

mod line;

use std::{
    env,
    fs::{self, File, OpenOptions},
    io,
    net::IpAddr,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::fs::OpenOptionsExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, OnceLock, PoisonError},
};

use sennit_packet::Prefix;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use self::line::Hook;
pub(crate) use self::line::Line;
use crate::{DeviceName, Error, User, as_owner_of, error::Doing};

/// The one of this process.
static HELPER: OnceLock<Helper> = OnceLock::new();
/// Whether it keeps the config.
static KEEPS_CONFIG: OnceLock<bool> = OnceLock::new();

/// Another process, and the socket that it hears orders by.
#[derive(Debug)]
pub(crate) struct Helper {
    line: Mutex<Line>,
    hook: Hook,
}

/// What a helper may be asked for, beside the orders of a footprint.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// A footprint, whose orders come by the socket that goes with this.
    Begin {
        device: DeviceName,
        directory: PathBuf,
        #[serde(with = "crate::wire::prefixes")]
        blocked: Vec<Prefix>,
    },
    /// The socket that goes with this sends and receives by this device alone.
    BindToLink {
        device: String,
        address: IpAddr,
        mark: Option<u32>,
    },
    /// What the socket sends has this mark.
    Mark(u32),
    /// The socket has larger buffers than others may have.
    GrowBuffers,
    /// The file is a queue of a TUN device, which has so many.
    Attach {
        device: DeviceName,
        queues: usize,
        first: bool,
    },
    /// The TUN device, which has a queue, is up; the answer is its interface index.
    Raise {
        device: DeviceName,
        mtu: u32,
    },
    /// The host is told of name servers behind the footprint's device, as wished by the socket that
    /// goes with this.
    TellNames,
    /// Answered with [`crate::forward_blockers`].
    ForwardBlockers,
    /// A file that becomes a queue of a TUN device goes with the answer.
    OpenTun,
    /// A socket for pings to this address through the footprint's device goes with the answer.
    OpenEcho(IpAddr),
    File(FileTask),
}

/// What a helper may be asked for about files.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FileTask {
    /// From now on these files are the helper's to see to; answered with whether the config is.
    Entrust(Entrusted),
    /// The config goes with the answer.
    OpenConfig,
    /// A file that the config named at the start goes with the answer.
    OpenNamed(PathBuf),
    /// This text can be put in the place of the config; without one, nothing is to be.
    DraftConfig(Option<String>),
    /// What was drafted takes its place.
    PublishConfig,
    /// A file of the daemon's is removed.
    Remove(PathBuf),
}

/// Files of root's, for a daemon that is another user from now on.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Entrusted {
    pub(crate) user: User,
    pub(crate) config: PathBuf,
    pub(crate) read: Vec<PathBuf>,
    pub(crate) removed: Vec<PathBuf>,
}

/// Starts the helper of this process: this program with `arguments`, which has it call
/// [`crate::service::serve`]. To be called once, before anything is given up. The process that
/// comes back ends with this one; if it ends before that, nothing can be changed any more.
pub fn engage(arguments: &[&str]) -> Result<Child, Error> {
    let (ours, theirs) = Line::pair()?;
    let program = env::current_exe().doing(|| "find this program".into())?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::from(OwnedFd::from(theirs)));
    let child = command.spawn().doing(|| "start the helper".into())?;
    let hook = ours.end()?;
    let line = Mutex::new(ours);
    if HELPER.set(Helper { line, hook }).is_err() {
        tracing::error!("a process has one helper");
    }
    Ok(child)
}

/// Ends the helper. What it keeps of a footprint that is not removed stays on the host.
pub fn dismiss() {
    if let Some(helper) = engaged() {
        helper.hook.hang_up();
    }
}

/// Has the helper read and replace the config for this process, which is about to become `user`,
/// read the files that it names ([`open_named`]), and remove these when it is told to; whether it
/// sees to the config. What the user may put something else in the place of is for himself to read
/// and write.
///
/// # Errors
/// If there is no helper.
pub fn entrust(
    user: User,
    config: &Path,
    read: Vec<PathBuf>,
    removed: Vec<PathBuf>,
) -> Result<bool, Error> {
    let config = config.into();
    let task = FileTask::Entrust(Entrusted {
        user,
        config,
        read,
        removed,
    });
    let keeps: bool = required()?.ask(&Task::File(task), None)?;
    Ok(*KEEPS_CONFIG.get_or_init(|| keeps))
}

/// Opens the config for reading, if that is the helper's to do ([`keeps_config`]).
///
/// # Errors
/// If it is not there, or its name leads elsewhere by now.
pub fn open_config() -> io::Result<File> {
    Ok(required()?.fetch(&Task::File(FileTask::OpenConfig))?)
}

/// Opens a file for reading that the config names, by the helper if this process may not.
///
/// # Errors
/// If neither may, or no regular file is there.
pub fn open_named(path: &Path) -> io::Result<File> {
    let own = as_owner_of(path, || open_regular(path, 0));
    match (own, KEEPS_CONFIG.get()) {
        (Err(error), Some(_)) if error.kind() == io::ErrorKind::PermissionDenied => {
            let task = FileTask::OpenNamed(path.into());
            Ok(required()?.fetch(&Task::File(task))?)
        }
        (opened, _) => opened,
    }
}

/// Opens a regular file for reading. It waits for nobody who writes into a pipe.
pub(crate) fn open_regular(path: &Path, flags: i32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let flags = flags | libc::O_NONBLOCK;
    let file = options.read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("not a regular file")),
    }
}

/// Whether the helper reads and replaces the config.
pub fn keeps_config() -> bool {
    KEEPS_CONFIG.get() == Some(&true)
}

/// Removes a file, by the helper if this process may not.
///
/// # Errors
/// If neither may, or it is not there.
pub fn remove_file(path: &Path) -> io::Result<()> {
    match (fs::remove_file(path), engaged()) {
        (Err(error), Some(helper)) if error.kind() == io::ErrorKind::PermissionDenied => {
            Ok(helper.ask(&Task::File(FileTask::Remove(path.into())), None)?)
        }
        (removed, _) => removed,
    }
}

/// A text that can take the place of the config, which the helper has written beside it. Dropped,
/// it is forgotten.
#[derive(Debug)]
pub struct ConfigDraft(());

impl ConfigDraft {
    /// Begins it, in place of an earlier one.
    ///
    /// # Errors
    /// If there is no room for it, or the helper does not take such a text.
    pub fn begin(text: &str) -> io::Result<Self> {
        let task = FileTask::DraftConfig(Some(text.into()));
        let (): () = required()?.ask(&Task::File(task), None)?;
        Ok(Self(()))
    }

    /// Puts it in the config's place.
    ///
    /// # Errors
    /// If that is gone.
    pub fn publish(self) -> io::Result<()> {
        Ok(required()?.ask(&Task::File(FileTask::PublishConfig), None)?)
    }
}

impl Drop for ConfigDraft {
    fn drop(&mut self) {
        let none = Task::File(FileTask::DraftConfig(None));
        let forget = |helper: &Helper| helper.ask(&none, None);
        // Without a helper the daemon ends.
        let _: Option<Result<(), Error>> = engaged().map(forget);
    }
}

fn required() -> Result<&'static Helper, Error> {
    let none = || io::Error::other("this process has none");
    engaged().ok_or_else(none).doing(|| "ask the helper".into())
}

/// The helper, if this process has one.
pub(crate) fn engaged() -> Option<&'static Helper> {
    HELPER.get()
}

impl Helper {
    /// Has a task done with a descriptor, and waits until that is done.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        task: &Task,
        about: Option<BorrowedFd<'_>>,
    ) -> Result<T, Error> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.ask(task, about)
    }

    /// Has it open a file for this process.
    pub(crate) fn fetch(&self, task: &Task) -> Result<File, Error> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(line.ask_for(task)?.into())
    }
}
