//! Rules of this workspace that no compiler checks.
//!
//! [`layers`] says which crate may depend on which, and which of them are pure. [`purity`] reads
//! the sources of the pure ones for clocks, sockets, threads, files and randomness; tests may use
//! them. [`licences`] looks at everything we link to. All three work on what `cargo metadata` says,
//! so nothing is listed twice. [`sizes`] bounds files and functions, and no modules of a crate use
//! each other in a circle ([`circles`]).

mod book;
mod circles;
mod comments;
pub mod layers;
pub mod licences;
pub mod purity;
mod sizes;
mod sources;
mod tree;

use std::fmt;
use std::path::PathBuf;

use cargo_metadata::{Metadata, Package};

/// A rule that is broken, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file that breaks it.
    pub file: PathBuf,
    /// Its line, from 1; 0 where the whole file is meant.
    pub line: usize,
    /// What is wrong and what would be right.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl Finding {
    /// Of a package as a whole.
    fn package(package: &Package, message: String) -> Self {
        Self {
            file: package.manifest_path.clone().into(),
            line: 0,
            message,
        }
    }
}

/// Everything that is wrong, in order of files and lines.
#[must_use]
pub fn check(metadata: &Metadata) -> Vec<Finding> {
    let root = metadata.workspace_root.as_std_path();
    let mut findings = licences::check(metadata);
    findings.extend(book::check(root));
    for package in metadata.workspace_packages() {
        findings.extend(layers::check(package));
        findings.extend(sources::check(package, root));
    }
    for finding in &mut findings {
        if let Ok(file) = finding.file.strip_prefix(&metadata.workspace_root) {
            finding.file = file.into();
        }
    }
    findings.sort();
    findings
}
