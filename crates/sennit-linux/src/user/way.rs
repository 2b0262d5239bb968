//! The way to a file, one directory after the other, each by its descriptor.
//!
//! So what was looked at is what is used, and root knows who may have put a link where it finds it.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    io,
    os::{fd::OwnedFd, unix::ffi::OsStringExt as _},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags, Stat, fstat, mkdirat, open, openat, readlinkat},
    io::Errno,
};

use super::as_owner;

/// Whoever leads through more has made a ring of them.
const MOST_LINKS: usize = 40;

/// A directory on the way.
pub(super) struct Passed {
    pub(super) name: PathBuf,
    pub(super) found: Stat,
}

impl Passed {
    /// Whether somebody but root may put something in there.
    pub(super) fn is_open(&self) -> bool {
        self.found.st_uid != 0 || self.found.st_mode & 0o022 != 0
    }

    pub(super) fn is(&self, other: &Stat) -> bool {
        is_same(&self.found, other)
    }
}

pub(super) fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// A way, as far as it was gone.
pub(super) struct Way {
    pub(super) end: OwnedFd,
    /// What the end is called, without links.
    pub(super) name: PathBuf,
    /// Those before the end, also before each link.
    pub(super) passed: Vec<Passed>,
    /// So many of these were passed when the last link was followed.
    before_links: usize,
}

/// What is done with links.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    All,
    /// Those are followed that nobody but root can have put there.
    Roots,
}

const PLACE: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

impl Way {
    /// The way to a directory, which is made with mode 0700 together with those above it if it
    /// `makes` them.
    pub(super) fn to(path: &Path, makes: bool) -> io::Result<Self> {
        let mut way = Self::begin()?;
        way.go(path, Links::Roots, makes)?;
        Ok(way)
    }

    /// The way to a file through all links, as far as there is one.
    pub(super) fn as_far_as_possible(path: &Path) -> io::Result<Self> {
        let mut way = Self::begin()?;
        // At the latest it ends at the file, which is no directory.
        let _ = way.go(path, Links::All, false);
        Ok(way)
    }

    fn begin() -> io::Result<Self> {
        Ok(Self {
            end: open(c"/", PLACE, Mode::empty())?,
            name: "/".into(),
            passed: Vec::new(),
            before_links: 0,
        })
    }

    /// Those that a link on this way was found in or behind.
    pub(super) fn before_links(&self) -> &[Passed] {
        &self.passed[..self.before_links]
    }

    pub(super) fn end(&self) -> io::Result<Passed> {
        Ok(Passed {
            name: self.name.clone(),
            found: fstat(&self.end)?,
        })
    }

    fn go(&mut self, path: &Path, links: Links, makes: bool) -> io::Result<()> {
        let mut left = steps(&std::path::absolute(path)?);
        let mut followed = 0;
        while let Some(step) = left.pop_front() {
            if step == "/" {
                self.end = open(c"/", PLACE, Mode::empty())?;
                self.name = step.into();
                continue;
            }
            self.passed.push(self.end()?);
            match self.step(&step, makes) {
                Err(Errno::NOTDIR | Errno::LOOP) => {}
                stepped => {
                    self.end = stepped?;
                    if step == ".." {
                        self.name.pop();
                    } else {
                        self.name.push(step);
                    }
                    continue;
                }
            }
            let target = self.read_link(&step)?;
            if links == Links::Roots && self.passed.iter().any(Passed::is_open) {
                return Err(link_of_others(&self.name.join(step)));
            }
            self.before_links = self.passed.len();
            followed += 1;
            if followed > MOST_LINKS {
                return Err(Errno::LOOP.into());
            }
            for step in steps(&target).into_iter().rev() {
                left.push_front(step);
            }
        }
        Ok(())
    }

    fn step(&self, step: &OsStr, makes: bool) -> rustix::io::Result<OwnedFd> {
        let found = fstat(&self.end)?;
        as_owner((found.st_uid, found.st_gid), || {
            match openat(&self.end, step, PLACE, Mode::empty()) {
                Err(Errno::NOENT) if makes => {}
                opened => return opened,
            }
            match mkdirat(&self.end, step, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => openat(&self.end, step, PLACE, Mode::empty()),
                Err(error) => Err(error),
            }
        })
    }

    fn read_link(&self, step: &OsStr) -> rustix::io::Result<PathBuf> {
        let found = fstat(&self.end)?;
        let read = || readlinkat(&self.end, step, Vec::new());
        match as_owner((found.st_uid, found.st_gid), read) {
            Err(Errno::INVAL) => Err(Errno::NOTDIR),
            target => Ok(OsString::from_vec(target?.into_bytes()).into()),
        }
    }
}

fn steps(path: &Path) -> VecDeque<OsString> {
    let steps = path.components().filter(|it| *it != Component::CurDir);
    steps.map(|it| it.as_os_str().to_owned()).collect()
}

fn link_of_others(link: &Path) -> io::Error {
    let link = link.display();
    let why = format!("{link} is a symbolic link that somebody else may have put there");
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
