//! An error and its causes as one line.

use std::{error::Error, iter};

/// An error and what caused it.
pub(super) fn explain(error: &dyn Error) -> String {
    let causes = iter::successors(Some(error), |&error| error.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}
