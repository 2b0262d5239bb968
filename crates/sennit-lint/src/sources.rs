//! The source files of a crate: those that its root file leads to, tests left out; and for what is
//! said of comments, all of them.

use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{Package, TargetKind};
use syn::visit::{self, Visit};
use syn::{Attribute, File, Item, ItemMod};

use crate::circles::{self, Module};
use crate::{Finding, book, comments, layers, purity, sizes, tree};

/// What a crate's manifest and sources say and may not.
pub(crate) fn check(package: &Package, root: &Path) -> Vec<Finding> {
    let mut findings: Vec<Finding> = manifest(package).into_iter().collect();
    for path in rust(package) {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let mut objections = comments::objections(&text);
        objections.extend(book::citations(root, &text));
        findings.extend(objections.into_iter().map(|(line, message)| Finding {
            file: path.clone(),
            line,
            message,
        }));
    }
    for units in targets(package) {
        for unit in &units {
            let objections = match &unit.source {
                Ok(source) => {
                    let mut objections = objections(&package.name, &source.file);
                    let Source { text, file } = source;
                    objections.extend(sizes::objections(text, file));
                    objections
                }
                Err(why) => vec![(0, why.clone())],
            };
            findings.extend(objections.into_iter().map(|(line, message)| Finding {
                file: unit.path.clone(),
                line,
                message,
            }));
        }
        findings.extend(in_circles(&units));
    }
    findings
}

/// Modules that use each other in a circle.
fn in_circles(units: &[Unit]) -> Vec<Finding> {
    let files = units.iter();
    let files = files.filter_map(|it| Some((&it.module, &it.source.as_ref().ok()?.file)));
    let name = |module: &Module| [&["crate".into()], &module[..]].concat().join("::");
    let finding = |circle: Vec<Module>| {
        let unit = units
            .iter()
            .find(|unit| Some(&unit.module) == circle.first());
        let names: Vec<String> = circle.iter().chain(circle.first()).map(name).collect();
        Finding {
            file: unit.map(|unit| unit.path.clone()).unwrap_or_default(),
            line: 0,
            message: format!("these use each other in a circle: {}", names.join(" -> ")),
        }
    };
    circles::circles(files).into_iter().map(finding).collect()
}

/// What a file of the crate `name` may not say, by line.
fn objections(name: &str, file: &File) -> Vec<(usize, String)> {
    let layer = layers::layer(name);
    let mut objections = Vec::new();
    if layer.is_some_and(|layer| layer.pure.is_some()) {
        let found = purity::impurities(file).into_iter();
        objections.extend(found.map(|found| {
            let (words, what) = (found.words, found.what);
            let message = format!("{name} is pure and may not use {what}: `{words}`");
            (found.line, message)
        }));
    }
    if !layer.is_some_and(|layer| layer.may_be_unsafe) {
        let bans = lifted_bans(file).into_iter();
        objections
            .extend(bans.map(|line| (line, format!("{name} may not lift the ban on unsafe"))));
    }
    objections
}

/// Every crate takes the lints of the workspace.
fn manifest(package: &Package) -> Option<Finding> {
    let text = fs::read_to_string(&package.manifest_path).unwrap_or_default();
    let mut lines = text.lines().map(str::trim);
    let has = lines.any(|line| line == "[lints]") && lines.next() == Some("workspace = true");
    (!has).then(|| {
        Finding::package(
            package,
            "it needs [lints] with workspace = true on the next line".into(),
        )
    })
}

/// Every Rust file below the folder of a crate's manifest, tests and examples too.
fn rust(package: &Package) -> Vec<PathBuf> {
    let folder = package.manifest_path.as_std_path().parent();
    folder.map_or_else(Vec::new, tree::rust_files)
}

/// A file, and which module of its crate it is.
struct Unit {
    path: PathBuf,
    module: Module,
    source: Result<Source, String>,
}

struct Source {
    text: String,
    file: File,
}

/// All files that the library and the programs of a crate are made of, each with its own.
fn targets(package: &Package) -> Vec<Vec<Unit>> {
    let shipped = |kind: &TargetKind| matches!(kind, TargetKind::Lib | TargetKind::Bin);
    let targets = package.targets.iter();
    let shipped = targets.filter(|target| target.kind.iter().any(shipped));
    let units = shipped.map(|target| {
        let root: PathBuf = target.src_path.clone().into();
        let folder = root.parent().unwrap_or(Path::new("")).to_owned();
        let mut units = Vec::new();
        follow(root, &folder, &[], &mut units);
        units
    });
    units.collect()
}

/// Reads `path`, which is `module`, and the files of its modules, which are in `folder`.
fn follow(path: PathBuf, folder: &Path, module: &[String], units: &mut Vec<Unit>) {
    let source = read(&path);
    let below = source
        .as_ref()
        .map_or_else(|_| Vec::new(), |it| modules(&it.file));
    units.push(Unit {
        path,
        module: module.to_vec(),
        source,
    });
    for below in below {
        let folder = folder.join(&below);
        let names = below.iter().map(|name| name.to_string_lossy().into_owned());
        let module: Module = module.iter().cloned().chain(names).collect();
        follow(folder.with_extension("rs"), &folder, &module, units);
    }
}

fn read(path: &Path) -> Result<Source, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
    let file = syn::parse_file(&text).map_err(|error| format!("cannot be parsed: {error}"))?;
    Ok(Source { text, file })
}

/// The modules of a file that are files of their own, as paths below its folder.
fn modules(file: &File) -> Vec<PathBuf> {
    below(&file.items, Path::new(""))
}

fn below(items: &[Item], folder: &Path) -> Vec<PathBuf> {
    let modules = items.iter().filter_map(|item| match item {
        Item::Mod(module) if !purity::is_test(&module.attrs) => Some(module),
        _ => None,
    });
    modules.flat_map(|module| inside(module, folder)).collect()
}

fn inside(module: &ItemMod, folder: &Path) -> Vec<PathBuf> {
    let path = folder.join(module.ident.to_string());
    match &module.content {
        Some((_, items)) => below(items, &path),
        None => vec![path],
    }
}

/// Lines of attributes that name the lint `unsafe_code`.
fn lifted_bans(file: &File) -> Vec<usize> {
    struct Bans(Vec<usize>);
    impl<'ast> Visit<'ast> for Bans {
        fn visit_attribute(&mut self, attribute: &'ast Attribute) {
            let tokens = attribute
                .meta
                .require_list()
                .map(|list| list.tokens.to_string());
            if tokens.is_ok_and(|tokens| tokens.contains("unsafe_code")) {
                self.0.push(attribute.pound_token.span.start().line);
            }
            visit::visit_attribute(self, attribute);
        }
    }
    let mut bans = Bans(Vec::new());
    bans.visit_file(file);
    bans.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(source: &str) -> File {
        syn::parse_file(source).expect("it is Rust")
    }

    #[test]
    fn modules_lead_to_files_and_test_modules_do_not() {
        let file = parse("mod a; mod b { mod c; mod d {} } #[cfg(test)] mod tests;");
        assert_eq!(modules(&file), [Path::new("a"), Path::new("b/c")]);
    }

    #[test]
    fn lifting_the_ban_on_unsafe_is_seen_wherever_it_is() {
        let file = parse(
            "#![expect(unsafe_code, reason = \"x\")]
             mod a {
                 #[allow(dead_code, unsafe_code)]
                 fn f() {}
             }",
        );
        assert_eq!(lifted_bans(&file), [1, 3]);
        assert!(lifted_bans(&parse("#[expect(dead_code)] fn f() {}")).is_empty());
    }
}
