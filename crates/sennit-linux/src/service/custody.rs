//! Files of root's that a helper sees to, for a daemon that is another user.
//!
//! Their names come before the daemon reads a packet. Where its user may put something else in
//! their place, he would have root follow him there: such files are not seen to.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use super::refused;
use crate::{
    Draft, Error, User, as_owner_of,
    error::Doing,
    helper::{Entrusted, open_regular},
    user::folder,
};

/// Says why the second text must not take the place of a daemon's config. That was the first of
/// these when the daemon started, and is the second by now.
pub type Judge = fn(&[String; 2], &str) -> Result<(), String>;

/// Of a longer config not all is looked at, and no daemon takes one.
const LONGEST: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct Custody {
    user: User,
    config: Option<Config>,
    read: Vec<PathBuf>,
    removed: Vec<PathBuf>,
    judge: Option<Judge>,
}

#[derive(Debug)]
struct Config {
    /// Its name, and where that led at the start.
    path: PathBuf,
    place: PathBuf,
    /// What was in it.
    first: String,
    draft: Option<Draft>,
}

impl Custody {
    /// Takes those files that the user cannot put something else in the place of.
    pub(super) fn begin(entrusted: Entrusted, judge: Option<Judge>) -> Self {
        let Entrusted {
            user,
            config: path,
            read,
            mut removed,
        } = entrusted;
        let is_reached = |path: &Path| user.reaches(folder(path));
        removed.retain(|path| !is_reached(path));
        let place = path.canonicalize().ok();
        let place = place.filter(|place| !is_reached(&path) && !is_reached(place));
        let config = place.and_then(|place| Config::begin(path, place).ok());
        Self {
            user,
            config,
            read,
            removed,
            judge,
        }
    }

    pub(super) fn keeps_config(&self) -> bool {
        self.config.is_some()
    }

    fn config(&mut self) -> Result<&mut Config, Error> {
        let none = || refused("see to the config");
        self.config.as_mut().ok_or_else(none)
    }

    pub(super) fn open_config(&mut self) -> Result<File, Error> {
        self.config()?.open()
    }

    /// Writes a text beside the config; what was drafted before is forgotten.
    pub(super) fn draft_config(&mut self, text: Option<String>) -> Result<(), Error> {
        let judge = self.judge;
        let config = self.config()?;
        config.draft = None;
        let Some(text) = text else {
            return Ok(());
        };
        let before = [config.first.clone(), config.read()?];
        let judge = judge.ok_or_else(|| refused("replace the config"))?;
        judge(&before, &text)
            .map_err(io::Error::other)
            .doing(|| "replace the config".into())?;
        let drafted = Draft::begin(&config.place).and_then(|mut draft| {
            draft.fill(&text)?;
            Ok(draft)
        });
        config.draft = Some(drafted.doing(|| "write beside the config".into())?);
        Ok(())
    }

    pub(super) fn publish_config(&mut self) -> Result<(), Error> {
        let draft = self.config()?.draft.take();
        let draft = draft.ok_or_else(|| refused("publish what was not drafted"))?;
        draft.publish().doing(|| "replace the config".into())
    }

    /// Opens a file that was named at the start. Its name may lead to another by now, as that of a
    /// certificate which was renewed, though to none that the user can put there.
    pub(super) fn open_named(&self, path: &Path) -> Result<File, Error> {
        let opened = || {
            if !self.read.iter().any(|it| it == path) {
                let new = "the config did not name it when the daemon started: restart the daemon";
                return Err(io::Error::other(new));
            }
            match self.user.obstacle_of_file(path, &[])? {
                Some(obstacle) => Err(io::Error::other(obstacle)),
                None => as_owner_of(path, || open_regular(path, 0)),
            }
        };
        opened().doing(|| format!("read {}", path.display()))
    }

    pub(super) fn remove(&self, path: &Path) -> Result<(), Error> {
        if !self.removed.iter().any(|it| it == path) {
            return Err(refused("remove a file of others"));
        }
        fs::remove_file(path).doing(|| format!("remove {}", path.display()))
    }
}

impl Config {
    fn begin(path: PathBuf, place: PathBuf) -> Result<Self, Error> {
        let mut config = Self {
            path,
            place,
            first: String::new(),
            draft: None,
        };
        config.first = config.read()?;
        Ok(config)
    }

    fn read(&self) -> Result<String, Error> {
        let mut text = String::new();
        let read = self.open()?.take(LONGEST).read_to_string(&mut text);
        read.doing(|| "read the config".into())?;
        Ok(text)
    }

    fn open(&self) -> Result<File, Error> {
        let opened = || {
            if self.path.canonicalize()? != self.place {
                let moved = "its name leads elsewhere by now: restart the daemon";
                return Err(io::Error::other(moved));
            }
            open_regular(&self.place, libc::O_NOFOLLOW)
        };
        opened().doing(|| "read the config".into())
    }
}

#[cfg(test)]
mod tests;
