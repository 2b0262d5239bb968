//! A directory in which somebody else may put things while root works there.
//!
//! It is found and opened once. Whatever is done in there is done by its descriptor and a name in
//! it that is no path, so that nothing that is put in the place of the directory, or of one above
//! it, leads elsewhere. Root does it with the rights of whom the directory belongs to: it makes
//! what is his, and a link or another file in the place of a name opens nothing that he could not
//! open. As names are single, `openat2` would look at no more than `O_NOFOLLOW` does.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, Stat, chownat, fstat, mkdirat, open, openat, renameat,
        statat, unlinkat,
    },
    io::Errno,
    process::geteuid,
    thread::{Gid, Uid},
};

use super::{Identity, Passed, Way, folder};

/// A directory that was opened once, and as whom something is done in there.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    /// User and group, if root works for them.
    owner: Option<(u32, u32)>,
    /// Somebody but root may put something in there.
    is_open: bool,
}

impl Directory {
    /// The directory at a path. Root follows no link on the way that somebody else may have put
    /// there.
    ///
    /// # Errors
    /// If there is none, or there is such a link.
    pub fn open(path: &Path) -> io::Result<Self> {
        if !geteuid().is_root() {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let fd = open(path, flags, Mode::empty())?;
            let (owner, is_open) = (None, false);
            return Ok(Self { fd, owner, is_open });
        }
        let way = Way::to(path, false)?;
        let end = way.end()?;
        Ok(Self::of_root(way.end, &end))
    }

    /// The directory that a path names something in, and the name.
    ///
    /// # Errors
    /// As [`Self::open`], or if the path names nothing in a directory.
    pub fn of(path: &Path) -> io::Result<(Self, OsString)> {
        let name = path.file_name().ok_or(Errno::ISDIR)?;
        Ok((Self::open(folder(path))?, name.to_owned()))
    }

    fn of_root(fd: OwnedFd, found: &Passed) -> Self {
        let (uid, gid) = (found.found.st_uid, found.found.st_gid);
        Self {
            fd,
            owner: (uid != 0).then_some((uid, gid)),
            is_open: found.is_open(),
        }
    }

    /// Does something as whom this directory belongs to, if this process is root and it is not
    /// root's.
    pub fn as_owner<T>(&self, task: impl FnOnce() -> T) -> T {
        let _identity = self.owner.map(Identity::take);
        task()
    }

    /// Where this directory is, whatever its name leads to by now: for what takes paths only, as
    /// long as this value lives.
    fn place(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd()).into()
    }

    /// This directory, to be locked.
    ///
    /// # Errors
    /// If it may not be read.
    pub fn file(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = self.as_owner(|| openat(&self.fd, c".", flags, Mode::empty()));
        Ok(opened?.into())
    }

    /// What was done in it survives a power cut.
    ///
    /// # Errors
    /// If the disk fails, or it may not be read.
    pub fn sync(&self) -> io::Result<()> {
        self.file()?.sync_all()
    }

    /// What has this name, of which a link is not followed; nothing if nothing has it.
    ///
    /// # Errors
    /// If that cannot be found out.
    pub fn find(&self, name: &OsStr) -> io::Result<Option<Stat>> {
        let name = single(name)?;
        match self.as_owner(|| statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)) {
            Err(Errno::NOENT) => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    /// Opens a file for reading. Where somebody else may have put something, no link is one.
    ///
    /// # Errors
    /// If it cannot be read, or is a link or no regular file there.
    pub fn read(&self, name: &OsStr) -> io::Result<File> {
        let file = self.open_file(name, OFlags::RDONLY, Mode::empty())?;
        self.admit(&fstat(&file)?)?;
        Ok(file)
    }

    /// Looks whether [`Self::read`] would open a file, and does not open it: a process that closes
    /// a file loses all locks that it has on it, and SQLite has some.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn look(&self, name: &OsStr) -> io::Result<()> {
        let name = single(name)?;
        let flags = match self.is_open {
            true => AtFlags::SYMLINK_NOFOLLOW,
            false => AtFlags::empty(),
        };
        self.admit(&self.as_owner(|| statat(&self.fd, name, flags))?)
    }

    /// Where somebody else may have put something, only a file of its own is one.
    fn admit(&self, found: &Stat) -> io::Result<()> {
        let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        let is_his = self.owner.is_some_and(|(uid, _)| uid == found.st_uid);
        if self.is_open && !(is_file && (is_his || found.st_nlink == 1)) {
            let why = "it is no file of its own, and somebody else may have put it there";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(())
    }

    /// Opens a file for writing at its end, which is made with mode 0600 if it is not there.
    ///
    /// # Errors
    /// If it cannot be written; where somebody else may have put something, also if it is a link.
    pub fn append(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::APPEND;
        match self.make_file(name, flags, 0o600) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.open_file(name, flags | OFlags::CREATE, Mode::RUSR | Mode::WUSR)
            }
            made => made,
        }
    }

    /// Makes a file that is not there yet.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn make(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        self.make_file(name, OFlags::WRONLY, mode)
    }

    fn make_file(&self, name: &OsStr, flags: OFlags, mode: u32) -> io::Result<File> {
        let flags = flags | OFlags::CREATE | OFlags::EXCL;
        let file = self.open_file(name, flags, Mode::from_raw_mode(mode))?;
        self.give(&file);
        Ok(file)
    }

    /// Gives what was just made to whom this directory belongs, where the kernel did not let this
    /// process make it as him: a confined daemon that is root may change owners, and not its own.
    fn give(&self, made: impl AsFd) {
        let is_roots = fstat(&made).is_ok_and(|it| it.st_uid == 0);
        let Some((uid, gid)) = self.owner.filter(|_| is_roots) else {
            return;
        };
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        if let Err(error) = chownat(made, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH) {
            tracing::debug!(%error, "a file stays root's, in a directory of somebody else");
        }
    }

    fn open_file(&self, name: &OsStr, flags: OFlags, mode: Mode) -> io::Result<File> {
        let name = single(name)?;
        let mut flags = flags | OFlags::CLOEXEC;
        if self.is_open {
            // A pipe is not waited for.
            flags |= OFlags::NOFOLLOW | OFlags::NONBLOCK;
        }
        let opened = self.as_owner(|| openat(&self.fd, name, flags, mode));
        Ok(opened?.into())
    }

    /// Makes a directory with mode 0700, which is not there yet.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn make_directory(&self, name: &OsStr) -> io::Result<()> {
        self.as_owner(|| mkdirat(&self.fd, single(name)?, Mode::RWXU).map_err(io::Error::from))?;
        self.give(&self.inner(name)?.fd);
        Ok(())
    }

    /// A directory in this one, if that is no link.
    ///
    /// # Errors
    /// If there is none.
    pub fn inner(&self, name: &OsStr) -> io::Result<Self> {
        let name = single(name)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = self.as_owner(|| openat(&self.fd, name, flags, Mode::empty()))?;
        if !geteuid().is_root() {
            let (owner, is_open) = (None, false);
            return Ok(Self { fd, owner, is_open });
        }
        let (found, name) = (fstat(&fd)?, PathBuf::from(name));
        Ok(Self::of_root(fd, &Passed { name, found }))
    }

    /// Gives a file another name, in place of what has that.
    ///
    /// # Errors
    /// If there is none, or it cannot be done.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        self.take_from(self, from, to)
    }

    /// Takes a file out of another directory, in place of what has its new name here.
    ///
    /// # Errors
    /// As [`Self::rename`].
    pub fn take_from(&self, other: &Self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let (from, to) = (single(from)?, single(to)?);
        let renamed = || renameat(other.fd.as_fd(), from, self.fd.as_fd(), to);
        Ok(self.as_owner(renamed)?)
    }

    /// Removes a file, or a link.
    ///
    /// # Errors
    /// If there is none, or it is a directory.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        let name = single(name)?;
        Ok(self.as_owner(|| unlinkat(&self.fd, name, AtFlags::empty()))?)
    }

    /// Removes a directory with all that is in it, or a link in its place.
    ///
    /// # Errors
    /// If there is none, or something in it cannot be removed.
    pub fn remove_all(&self, name: &OsStr) -> io::Result<()> {
        let path = self.place().join(single(name)?);
        self.as_owner(|| fs::remove_dir_all(path))
    }
}

/// A name that leads to no other directory.
fn single(name: &OsStr) -> io::Result<&OsStr> {
    match Path::new(name).file_name() == Some(name) {
        true => Ok(name),
        false => Err(Errno::INVAL.into()),
    }
}

#[cfg(test)]
mod tests;
