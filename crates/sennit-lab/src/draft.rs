//! What the lab writes takes the place of what was there whole, or not at all.

use std::path::Path;

use sennit_linux::Draft;

use crate::error::{Doing as _, Error};

/// Begins a file: that it cannot be written is told before anything is measured.
pub(crate) fn begin(path: &Path) -> Result<Draft, Error> {
    Draft::begin(path).doing(|| format!("write {}", path.display()))
}

/// Ends it.
pub(crate) fn finish(draft: Draft, text: &str) -> Result<(), Error> {
    let path = draft.path().to_owned();
    let finished = draft.finish(text);
    finished.doing(|| format!("write {}", path.display()))
}

/// Begins and ends it.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Error> {
    finish(begin(path)?, text)
}
