//! Whether we may give away what we link to: permissive licences only. Why this is not cargo-deny
//! is in docs/decisions/0037.

use cargo_metadata::{Metadata, Package};
use spdx::{Expression, LicenseReq, ParseMode};

use crate::Finding;

/// Licences that ask for no more than that their text comes along.
const PERMISSIVE: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// The only addition to a licence that takes nothing back.
const HARMLESS_ADDITION: &str = "LLVM-exception";

/// Packages whose licence leaves no permissive choice.
#[must_use]
pub fn check(metadata: &Metadata) -> Vec<Finding> {
    let packages = metadata.packages.iter();
    packages
        .filter_map(|package| {
            objection(package.license.as_deref()).map(|why| finding(package, &why))
        })
        .collect()
}

fn finding(package: &Package, why: &str) -> Finding {
    Finding::package(
        package,
        format!("{} {}: {why}", package.name, package.version),
    )
}

fn objection(licence: Option<&str>) -> Option<String> {
    let Some(text) = licence else {
        return Some("it names no licence".into());
    };
    // LAX takes `MIT/Apache-2.0`, which old packages write for `MIT OR Apache-2.0`.
    match Expression::parse_mode(text, ParseMode::LAX) {
        Err(error) => Some(format!("its licence `{text}` cannot be read: {error}")),
        Ok(expression) => (!expression.evaluate(is_permissive))
            .then(|| format!("its licence `{text}` is not permissive")),
    }
}

fn is_permissive(requirement: &LicenseReq) -> bool {
    let named = requirement.license.id();
    let addition = requirement.addition.as_ref().map(ToString::to_string);
    named.is_some_and(|id| PERMISSIVE.contains(&id.name))
        && addition.is_none_or(|addition| addition == HARMLESS_ADDITION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permissive_choice_is_enough() {
        for licence in [
            "MIT",
            "MIT/Apache-2.0",
            "MIT OR LGPL-2.1-or-later",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert_eq!(objection(Some(licence)), None);
        }
    }

    #[test]
    fn what_binds_us_or_cannot_be_read_is_refused() {
        for licence in [
            "GPL-3.0-only",
            "MIT AND MPL-2.0",
            "AGPL-3.0-or-later",
            "LicenseRef-Ours",
            "Apache-2.0 WITH Classpath-exception-2.0",
            "of our own",
            "",
        ] {
            assert!(objection(Some(licence)).is_some(), "{licence}");
        }
        assert!(objection(None).is_some());
    }
}
