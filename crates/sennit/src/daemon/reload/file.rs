//! The config's file, which may be root's alone while the daemon is another user.

use std::{io, path::Path};

use sennit_linux::helper::{self, ConfigDraft};

use crate::config;

/// What is in it.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let own = config::read_regular_file(path);
    match (own, helper::keeps_config()) {
        (Err(error), true) if error.kind() == io::ErrorKind::PermissionDenied => {
            config::read_open(helper::open_config()?)
        }
        (read, _) => read,
    }
}

/// A text that can take its place.
pub(super) enum Draft {
    Own(sennit_linux::Draft),
    OfHelper(ConfigDraft),
}

impl Draft {
    pub(super) fn of(path: &Path, text: &str) -> io::Result<Self> {
        if helper::keeps_config() {
            return Ok(Self::OfHelper(ConfigDraft::begin(text)?));
        }
        let mut draft = sennit_linux::Draft::begin(path)?;
        draft.fill(text)?;
        Ok(Self::Own(draft))
    }

    pub(super) fn publish(self) -> io::Result<()> {
        match self {
            Self::Own(draft) => draft.publish(),
            Self::OfHelper(draft) => draft.publish(),
        }
    }
}
