//! Who may use whom: the arrows of `ARCHITECTURE.md`, as a table.

use cargo_metadata::{DependencyKind, Package};

use crate::Finding;

/// What one crate of the workspace may do.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    pub name: &'static str,
    /// Crates of this workspace that it may depend on.
    pub below: &'static [&'static str],
    /// Everything else that it may depend on, if it is pure: nothing there reads a clock or opens a
    /// socket unasked. `None` means that the crate is not pure and the choice is free.
    pub pure: Option<&'static [&'static str]>,
    /// May lift the ban on `unsafe`.
    pub may_be_unsafe: bool,
}

const fn pure(
    name: &'static str,
    below: &'static [&'static str],
    others: &'static [&'static str],
) -> Layer {
    Layer {
        name,
        below,
        pure: Some(others),
        may_be_unsafe: false,
    }
}

const fn free(name: &'static str, below: &'static [&'static str]) -> Layer {
    Layer {
        name,
        below,
        pure: None,
        may_be_unsafe: false,
    }
}

/// From the bottom up; a crate may use only those above it in this list.
pub const LAYERS: &[Layer] = &[
    pure("sennit-packet", &[], &["ipnet", "thiserror"]),
    pure("sennit-netem", &["sennit-packet"], &["rand_pcg", "serde"]),
    pure("sennit-report", &[], &[]),
    Layer {
        may_be_unsafe: true,
        ..pure("sennit-prefetch", &[], &[])
    },
    pure("sennit-fec", &[], &["thiserror"]),
    pure("sennit-core", &["sennit-packet"], &["bytes", "thiserror"]),
    pure("sennit-masque", &["sennit-packet"], &["bytes", "thiserror"]),
    pure(
        "sennit-engine",
        &[
            "sennit-core",
            "sennit-fec",
            "sennit-masque",
            "sennit-packet",
            "sennit-prefetch",
        ],
        &[
            "aws-lc-rs",
            "bytes",
            "noq-proto",
            "rand",
            "rustls",
            "thiserror",
            "tracing",
        ],
    ),
    pure(
        "sennit-predict",
        &["sennit-engine", "sennit-netem", "sennit-report"],
        &["clap", "serde", "serde_json", "thiserror"],
    ),
    Layer {
        may_be_unsafe: true,
        ..free("sennit-linux", &["sennit-packet"])
    },
    free("sennit-load", &["sennit-netem", "sennit-linux"]),
    free(
        "sennit-sim",
        &[
            "sennit-core",
            "sennit-engine",
            "sennit-masque",
            "sennit-netem",
            "sennit-packet",
        ],
    ),
    free(
        "sennit-lab",
        &[
            "sennit-core",
            "sennit-engine",
            "sennit-netem",
            "sennit-linux",
            "sennit-load",
            "sennit-packet",
            "sennit-predict",
            "sennit-report",
            "sennit-sim",
        ],
    ),
    free(
        "sennit",
        &[
            "sennit-core",
            "sennit-engine",
            "sennit-fec",
            "sennit-linux",
            "sennit-load",
            "sennit-masque",
            "sennit-netem",
            "sennit-packet",
            "sennit-predict",
            "sennit-report",
        ],
    ),
    free(
        "sennit-fuzz",
        &[
            "sennit",
            "sennit-core",
            "sennit-engine",
            "sennit-fec",
            "sennit-linux",
            "sennit-load",
            "sennit-masque",
            "sennit-netem",
            "sennit-packet",
            "sennit-sim",
        ],
    ),
    free("sennit-lint", &[]),
];

/// The QUIC implementation.
const QUIC: &str = "noq-proto";

/// The one crate of the program that knows it, and the fuzzing peer, which speaks QUIC on its own.
const SPEAK_QUIC: &[&str] = &["sennit-engine", "sennit-fuzz"];

/// The row of a crate.
#[must_use]
pub fn layer(name: &str) -> Option<&'static Layer> {
    LAYERS.iter().find(|layer| layer.name == name)
}

/// What a crate depends on and may not. Tests may depend on anything.
#[must_use]
pub fn check(package: &Package) -> Vec<Finding> {
    let Some(layer) = layer(&package.name) else {
        let message = format!("{} has no layer: add it to LAYERS", package.name);
        return vec![Finding::package(package, message)];
    };
    package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind != DependencyKind::Development)
        .filter_map(|dependency| objection(layer, &dependency.name))
        .map(|message| Finding::package(package, message))
        .collect()
}

/// What speaks against the crate of `layer` using `name`.
fn objection(layer: &Layer, name: &str) -> Option<String> {
    let user = layer.name;
    if name.starts_with("sennit") {
        return (!layer.below.contains(&name)).then(|| {
            format!("{user} may not use {name}: the arrows of ARCHITECTURE.md point elsewhere")
        });
    }
    if name == QUIC && !SPEAK_QUIC.contains(&user) {
        return Some(format!(
            "{user} may not use {name}: that is for sennit-engine"
        ));
    }
    let allowed = layer.pure?;
    (!allowed.contains(&name)).then(|| {
        format!("{user} is pure and may not use {name}; if that is pure too, say so in LAYERS")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> &'static Layer {
        layer(name).expect("it is in the table")
    }

    #[test]
    fn arrows_point_down_only() {
        for (n, layer) in LAYERS.iter().enumerate() {
            for below in layer.below {
                let at = LAYERS.iter().position(|other| other.name == *below);
                assert!(at.is_some_and(|at| at < n), "{} -> {below}", layer.name);
            }
        }
    }

    #[test]
    fn a_pure_crate_rests_on_pure_crates() {
        for layer in LAYERS.iter().filter(|layer| layer.pure.is_some()) {
            assert!(layer.below.iter().all(|below| of(below).pure.is_some()));
        }
    }

    #[test]
    fn what_is_not_allowed_is_objected_to() {
        assert_eq!(objection(of("sennit-core"), "sennit-packet"), None);
        assert_eq!(objection(of("sennit-linux"), "socket2"), None);
        for (user, used) in [
            ("sennit-packet", "sennit-core"),
            ("sennit-core", "rustix"),
            ("sennit-core", "noq-proto"),
            ("sennit", "noq-proto"),
            ("sennit-linux", "sennit-lab"),
        ] {
            assert!(objection(of(user), used).is_some(), "{user} -> {used}");
        }
    }
}
