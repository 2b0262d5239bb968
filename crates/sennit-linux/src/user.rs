//! The user that a daemon is once it has given root up, and its files.
//!
//! A directory that is handed over to that user stays his, and what root's own commands make in
//! there is his as well. What somebody who took a daemon over may put there, also while they run,
//! must not lead them elsewhere ([`Directory`]), and a file with a second name stays whose it is.

use std::{
    fmt,
    fs::{self, DirBuilder, File, Metadata},
    io,
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt as _, MetadataExt as _},
    },
    path::Path,
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, chownat, fstat, openat},
    io::Errno,
    process::geteuid,
    thread::{
        CapabilitySet, Gid, Uid, capabilities, set_keep_capabilities, set_thread_groups,
        set_thread_res_gid, set_thread_res_uid,
    },
};
use serde::{Deserialize, Serialize};

pub use self::directory::Directory;
use self::way::{Passed, Way};
use crate::sys;

/// Accounts of this host, as in passwd(5).
const ACCOUNTS: &str = "/etc/passwd";

/// In a state directory are those of other daemons, and in these those of an authority.
const DEEPEST: usize = 3;

/// A user and his group, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    uid: u32,
    gid: u32,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

impl User {
    /// The user of this name among the accounts of this host, or the one of these numbers: `UID`,
    /// whose group has the same, or `UID:GID`.
    pub fn find(name: &str) -> Option<Self> {
        let accounts = fs::read_to_string(ACCOUNTS).unwrap_or_default();
        Self::among(&accounts, name)
    }

    fn among(accounts: &str, name: &str) -> Option<Self> {
        let mut known = accounts.lines().map(|line| line.split(':'));
        let account = known.find_map(|mut fields| {
            let is_it = fields.next() == Some(name);
            is_it.then(|| (fields.nth(1), fields.next()))
        });
        let (uid, gid) = match account {
            Some((uid, gid)) => (uid?, gid?),
            None => name.split_once(':').unwrap_or((name, name)),
        };
        // The highest number means that nobody is meant.
        let number = |text: &str| text.parse::<u32>().ok().filter(|it| *it != u32::MAX);
        Some(Self {
            uid: number(uid)?,
            gid: number(gid)?,
        })
    }

    /// His number.
    pub fn uid(self) -> u32 {
        self.uid
    }

    /// Why a directory cannot be handed over to him together with `others`, if so. One that is not
    /// there is no obstacle.
    ///
    /// # Errors
    /// If it cannot be looked at.
    pub fn obstacle(self, directory: &Path, others: &[&Path]) -> io::Result<Option<String>> {
        match Way::to(directory, false) {
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound => Ok(None),
                io::ErrorKind::InvalidInput => Ok(Some(error.to_string())),
                _ => Err(error),
            },
            Ok(way) => self.obstacle_at(&way, directory, others),
        }
    }

    fn obstacle_at(
        self,
        way: &Way,
        directory: &Path,
        others: &[&Path],
    ) -> io::Result<Option<String>> {
        let (end, others) = (way.end()?, places(others));
        let (found, name) = (&end.found, end.name.display());
        if found.st_uid != self.uid {
            if found.st_uid != 0 {
                let other = found.st_uid;
                return Ok(Some(format!("{name} belongs to user {other}: chown it")));
            }
            if found.st_mode & 0o077 != 0 {
                return Ok(Some(format!(
                    "{name} is open to others, so it may not be Sennit's alone: chmod 700 {name}"
                )));
            }
        }
        let becomes_his = |it: &Passed| others.iter().any(|other| it.is(other));
        // From then on he could put another link there.
        if way.before_links().iter().any(becomes_his) {
            let name = directory.display();
            return Ok(Some(format!(
                "a symbolic link on the way to {name} lies in a directory that becomes his"
            )));
        }
        let mut passed = way.passed.iter();
        let closed = passed.find(|it| !self.may_pass(&it.found) && !becomes_his(it));
        Ok(closed.map(|it| {
            let it = it.name.display();
            format!("user {self} may not pass through {it}: chmod o+x {it}")
        }))
    }

    fn may_pass(self, directory: &Stat) -> bool {
        let right = match directory {
            it if it.st_uid == self.uid => 0o100,
            it if it.st_gid == self.gid => 0o010,
            _ => 0o001,
        };
        directory.st_mode & right != 0
    }

    /// Why a file that only root is to choose must not be where it is, if so: he could put another
    /// in its place once he has the directories that are `handed` over to him.
    ///
    /// # Errors
    /// If nothing can be looked at.
    pub fn obstacle_of_file(self, file: &Path, handed: &[&Path]) -> io::Result<Option<String>> {
        let (way, handed) = (Way::as_far_as_possible(file)?, places(handed));
        let is_his = |it: &&Passed| {
            let (found, is_handed) = (&it.found, handed.iter().any(|other| it.is(other)));
            is_handed || self.may_replace(found.st_uid, found.st_gid, found.st_mode)
        };
        Ok(way.passed.iter().find(is_his).map(|it| {
            let (file, it) = (file.display(), it.name.display());
            format!("he could put another file in the place of {file}: move it out of {it}")
        }))
    }

    /// Whether he could put something else in the place of what is in this directory.
    pub(crate) fn reaches(self, directory: &Path) -> bool {
        let Ok(directory) = directory.canonicalize() else {
            return true;
        };
        directory.ancestors().any(|it| {
            let metadata = fs::metadata(it);
            !metadata.is_ok_and(|it| !self.may_replace_in(&it))
        })
    }

    fn may_replace_in(self, directory: &Metadata) -> bool {
        self.may_replace(directory.uid(), directory.gid(), directory.mode())
    }

    fn may_replace(self, uid: u32, gid: u32, mode: u32) -> bool {
        let is_kept_apart = mode & 0o1000 != 0;
        let by_mode = mode & 0o002 != 0 || (mode & 0o020 != 0 && gid == self.gid);
        uid == self.uid || (by_mode && !is_kept_apart)
    }

    /// Makes his what root has in this directory, and then the directory, together with `others`.
    ///
    /// # Errors
    /// If there is an obstacle, it cannot be read, or owners cannot be changed.
    pub fn hand_over(self, directory: &Path, others: &[&Path]) -> io::Result<()> {
        let way = match Way::to(directory, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        // It may be another than the one that was looked at before.
        if let Some(why) = self.obstacle_at(&way, directory, others)? {
            return Err(io::Error::other(why));
        }
        self.hand_over_all_in(&way.end, DEEPEST)?;
        self.give(&way.end)
    }

    /// Makes his a directory that root keeps closed, and nothing of what is in it: so he passes.
    ///
    /// # Errors
    /// If it cannot be found, or its owner cannot be changed.
    pub fn hand_over_alone(self, directory: &Path) -> io::Result<()> {
        let way = Way::to(directory, false)?;
        match is_roots_alone(&fstat(&way.end)?) {
            true => self.give(&way.end),
            false => Ok(()),
        }
    }

    fn hand_over_all_in(self, directory: &OwnedFd, deepest: usize) -> io::Result<()> {
        let found = fstat(directory)?;
        let owner = (found.st_uid, found.st_gid);
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = as_owner(owner, || openat(directory, c".", flags, Mode::empty()))?;
        for entry in Dir::new(opened)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            // So nothing is opened that does something when it is, and links are what they are.
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = as_owner(owner, || openat(directory, name, flags, Mode::empty()));
            let file = match opened {
                Err(Errno::NOENT) => continue,
                opened => opened?,
            };
            let found = fstat(&file)?;
            match FileType::from_raw_mode(found.st_mode) {
                FileType::RegularFile if found.st_nlink == 1 => self.give(&file)?,
                FileType::Directory if deepest > 0 => {
                    self.hand_over_all_in(&file, deepest - 1)?;
                    self.give(&file)?;
                }
                kind => tracing::warn!(
                    ?name,
                    ?kind,
                    "in the state directory is what does not belong there: it stays whose it is"
                ),
            }
        }
        Ok(())
    }

    /// Gives him what is root's.
    fn give(self, file: &OwnedFd) -> io::Result<()> {
        if fstat(file)?.st_uid != 0 {
            return Ok(());
        }
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        let this = AtFlags::EMPTY_PATH;
        Ok(chownat(file, c"", Some(uid), Some(gid), this)?)
    }

    /// Makes the calling thread his for good, and with it those that it starts later. Its rights
    /// are permitted still, and none is in effect.
    pub(crate) fn take_thread(self) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        set_keep_capabilities(true)?;
        set_thread_groups(&[])?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        Ok(set_keep_capabilities(false)?)
    }
}

/// Does something with what is at `path`, or is to be, as its owner, or as that of the closest
/// directory above it that this process sees. Only root does so that has no right to what others
/// keep closed (`CAP_DAC_OVERRIDE`), as in a unit of systemd.
pub fn as_owner_of<T>(path: &Path, task: impl FnOnce() -> T) -> T {
    if !is_root_that_is_shut_out() {
        return task();
    }
    let mut seen = path.ancestors().filter_map(|it| fs::metadata(it).ok());
    match seen.next() {
        Some(found) => as_owner((found.uid(), found.gid()), task),
        None => task(),
    }
}

/// Does something with files as this user and group, in the same case.
fn as_owner<T>(owner: (u32, u32), task: impl FnOnce() -> T) -> T {
    let _identity = (owner.0 != 0 && is_root_that_is_shut_out()).then(|| Identity::take(owner));
    task()
}

fn is_root_that_is_shut_out() -> bool {
    let sets = capabilities(None);
    let may_all = sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::DAC_OVERRIDE));
    geteuid().is_root() && !may_all
}

/// As whom this thread had to do with files before; dropped, it does so again. As long as that is
/// not root, the kernel keeps the rights that are about files from being in effect.
struct Identity((u32, u32));

impl Identity {
    fn take(owner: (u32, u32)) -> Self {
        Self(sys::set_file_identity(owner))
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        sys::set_file_identity(self.0);
    }
}

/// Opens a file for writing at its end, which is made with mode 0600 if it is not there.
///
/// # Errors
/// If it cannot be written; where somebody else may have put something, also if it is a link.
pub fn open_private(path: &Path) -> io::Result<File> {
    let (directory, name) = Directory::of(path)?;
    directory.append(&name)
}

/// Makes a directory with mode 0700, and those above it, unless it is there. Root follows no link
/// on the way that somebody else may have put there.
///
/// # Errors
/// If it cannot be made, or there is such a link.
pub fn make_private_directories(path: &Path) -> io::Result<()> {
    if geteuid().is_root() {
        return Way::to(path, true).map(drop);
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Opens a file of a state directory for reading ([`Directory::read`]).
///
/// # Errors
/// If it cannot be read, or is a link or no regular file where somebody else may put one.
pub fn open_state(path: &Path) -> io::Result<File> {
    let (directory, name) = Directory::of(path)?;
    directory.read(&name)
}

/// Whether a directory is there, is root's, and is closed to all others.
pub fn is_closed_by_root(directory: &Path) -> bool {
    let found = Way::to(directory, false).and_then(|way| Ok(fstat(way.end)?));
    found.is_ok_and(|it| is_roots_alone(&it))
}

fn is_roots_alone(found: &Stat) -> bool {
    found.st_uid == 0 && found.st_mode & 0o077 == 0
}

/// Which directories these are, of those that are there.
fn places(directories: &[&Path]) -> Vec<Stat> {
    let ways = directories.iter().filter_map(|it| Way::to(it, false).ok());
    ways.filter_map(|way| Some(way.end().ok()?.found)).collect()
}

/// The directory that a path names something in.
pub(crate) fn folder(path: &Path) -> &Path {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

mod directory;
mod way;

#[cfg(test)]
mod tests;
