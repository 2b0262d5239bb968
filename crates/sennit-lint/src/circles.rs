//! Modules that use each other in a circle, by their `use` lines.
//!
//! A name counts for the module that it is defined in, whoever hands it on (`pub use`). What a
//! module takes from those that it is in does not count: a file and its folder are one thought.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use syn::{File, Item, UseTree};

use crate::purity::is_test;

/// A module as a path from the root of its crate.
pub(crate) type Module = Vec<String>;

/// So many modules may hand on a name, one to the other.
const HANDED_ON: usize = 8;

/// A name that a module takes, and from where.
struct Import {
    name: String,
    path: Vec<String>,
}

/// A circle for each module that is in one and has no lower name than it: from that module back to
/// itself, by the shortest way.
pub(crate) fn circles<'a>(
    files: impl IntoIterator<Item = (&'a Module, &'a File)>,
) -> Vec<Vec<Module>> {
    let files: BTreeMap<&Module, &File> = files.into_iter().collect();
    let known: BTreeSet<&Module> = files.keys().copied().collect();
    let imports: BTreeMap<&Module, Vec<Import>> = files
        .iter()
        .map(|(module, file)| (*module, imports(module, file, &known)))
        .collect();
    let uses: BTreeMap<&Module, BTreeSet<&Module>> = imports
        .iter()
        .map(|(module, taken)| {
            let homes = taken.iter().map(|it| home(&it.path, &imports, HANDED_ON));
            let others = homes.filter(|home| !module.starts_with(home));
            (*module, others.collect())
        })
        .collect();
    let circles = uses.keys().filter_map(|module| circle(module, &uses));
    circles.collect()
}

/// The names that the `use` lines of a module's file bring in from its own crate.
fn imports(module: &Module, file: &File, known: &BTreeSet<&Module>) -> Vec<Import> {
    let mut all = Vec::new();
    for item in &file.items {
        if let Item::Use(item) = item
            && !is_test(&item.attrs)
        {
            collect(&item.tree, &[], &mut all);
        }
    }
    let inside = |import: Import| {
        let path = absolute(module, &import.path, known)?;
        Some(Import { path, ..import })
    };
    all.into_iter().filter_map(inside).collect()
}

fn collect(tree: &UseTree, before: &[String], all: &mut Vec<Import>) {
    let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
    match tree {
        UseTree::Path(path) => collect(&path.tree, &with(&path.ident), all),
        UseTree::Group(group) => group
            .items
            .iter()
            .for_each(|tree| collect(tree, before, all)),
        UseTree::Name(name) if name.ident == "self" => all.push(Import {
            name: before.last().cloned().unwrap_or_default(),
            path: before.to_vec(),
        }),
        UseTree::Name(name) => all.push(Import {
            name: name.ident.to_string(),
            path: with(&name.ident),
        }),
        UseTree::Rename(rename) => all.push(Import {
            name: rename.rename.to_string(),
            path: with(&rename.ident),
        }),
        UseTree::Glob(_) => all.push(Import {
            name: "*".into(),
            path: before.to_vec(),
        }),
    }
}

/// The path from the root of the crate, unless it leads to another one.
fn absolute(module: &Module, path: &[String], known: &BTreeSet<&Module>) -> Option<Vec<String>> {
    let mut base = module.clone();
    match path {
        [first, rest @ ..] if first == "crate" => Some(rest.to_vec()),
        [first, rest @ ..] if first == "self" => Some([&base, rest].concat()),
        [first, ..] if first == "super" => {
            let ups = path.iter().take_while(|part| *part == "super").count();
            base.truncate(base.len().checked_sub(ups)?);
            Some([&base, &path[ups..]].concat())
        }
        [first, ..] => {
            let child = [&base[..], std::slice::from_ref(first)].concat();
            known.contains(&child).then(|| [&base, path].concat())
        }
        [] => None,
    }
}

/// The module in which that which stands at a path is defined.
fn home<'a>(
    path: &[String],
    imports: &BTreeMap<&'a Module, Vec<Import>>,
    handed_on: usize,
) -> &'a Module {
    let prefixes = (0..=path.len()).rev().map(|length| &path[..length]);
    let mut modules = prefixes.filter_map(|prefix| imports.get_key_value(&prefix.to_vec()));
    let (module, taken) = modules.next().expect("the root is a module");
    let rest = &path[module.len()..];
    let from = rest
        .first()
        .and_then(|name| taken.iter().find(|import| import.name == *name));
    match from {
        Some(import) if handed_on > 0 => {
            let path = [&import.path, &rest[1..]].concat();
            home(&path, imports, handed_on - 1)
        }
        _ => module,
    }
}

/// The shortest way from a module back to itself, if no module on it has a lower name.
fn circle(start: &Module, uses: &BTreeMap<&Module, BTreeSet<&Module>>) -> Option<Vec<Module>> {
    let mut ways = VecDeque::from([vec![start]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        let last = way.last().copied().unwrap_or(start);
        for &next in uses.get(last).into_iter().flatten() {
            if next == start {
                let is_first = way.iter().all(|module| *module >= start);
                return is_first.then(|| way.into_iter().cloned().collect());
            }
            if seen.insert(next) {
                ways.push_back([&way[..], &[next]].concat());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let module = |name: &str| -> Module {
            let parts = name.split("::").filter(|part| !part.is_empty());
            parts.map(String::from).collect()
        };
        let files: Vec<(Module, File)> = files
            .iter()
            .map(|(name, text)| (module(name), syn::parse_file(text).expect("it is Rust")))
            .collect();
        let circles = circles(files.iter().map(|(name, file)| (name, file)));
        let text = |circle: &Vec<Module>| {
            let names = circle.iter().map(|module| module.join("::"));
            names.collect::<Vec<_>>().join(" ")
        };
        circles.iter().map(text).collect()
    }

    #[test]
    fn modules_that_use_each_other_are_found_and_a_file_with_its_folder_is_not() {
        let root = ("", "mod a; mod b; mod c; pub use c::C;");
        let a = ("a", "mod d; use crate::b::{B, other}; use d::D;");
        let d = ("a::d", "use super::A; use std::fmt;");
        assert_eq!(found(&[root, a, d, ("b", ""), ("c", "")]), [""; 0]);
        let b = ("b", "use super::c::C as It;");
        let c = ("c", "use crate::a::A;");
        assert_eq!(found(&[root, a, d, b, c]), ["a b c"]);
        let tested = ("c", "#[cfg(test)] use crate::a::A;");
        assert_eq!(found(&[root, a, d, b, tested]), [""; 0]);
    }

    #[test]
    fn a_name_counts_for_the_module_that_defines_it() {
        let root = ("", "mod a; mod b;");
        let a = ("a", "mod low; mod high; pub use low::Low; use high::High;");
        let (low, high) = (("a::low", ""), ("a::high", "use crate::b::B;"));
        let b = ("b", "use crate::a::Low;");
        assert_eq!(found(&[root, a, low, high, b]), [""; 0]);
        let b = ("b", "use crate::a::High;");
        let a = (
            "a",
            "mod low; mod high; pub use low::Low; pub use high::High;",
        );
        assert_eq!(found(&[root, a, low, high, b]), ["a::high b"]);
    }
}
