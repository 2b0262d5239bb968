//! Takes the page for browsers into the program, if `make page` has built it.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    path::{Path, PathBuf},
};

fn main() -> io::Result<()> {
    let variable = |name| PathBuf::from(env::var_os(name).expect("cargo sets it"));
    let dist = variable("CARGO_MANIFEST_DIR").join("../../web/dist");
    println!("cargo::rerun-if-changed={}", dist.display());
    println!("cargo::rerun-if-changed=src/api/no-page.html");
    let mut files = Vec::new();
    collect(&dist, &mut files)?;
    files.sort();
    let entries: io::Result<String> = if files.is_empty() {
        let instead = variable("CARGO_MANIFEST_DIR").join("src/api/no-page.html");
        entry("/", &instead, None)
    } else {
        let entry = |file: &PathBuf| entry(&path(&dist, file), file, Some(&twin(file)));
        files.iter().map(entry).collect()
    };
    let table = format!("&[\n{}]\n", entries?);
    fs::write(variable("OUT_DIR").join("page.rs"), table)
}

/// Files that have a compressed twin, which the build of the page gives to each.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if twin(&path).is_file() {
            files.push(path);
        }
    }
    Ok(())
}

fn twin(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".gz");
    name.into()
}

/// Where the daemon has a file.
fn path(dist: &Path, file: &Path) -> String {
    let name = file.strip_prefix(dist).expect("it was found there");
    match name.to_str() {
        Some("index.html") => "/".into(),
        _ => format!("/{}", name.display()),
    }
}

/// One file as Rust.
fn entry(path: &str, file: &Path, gzip: Option<&Path>) -> io::Result<String> {
    let mut hasher = DefaultHasher::new();
    fs::read(file)?.hash(&mut hasher);
    let tag = format!("\"{:016x}\"", hasher.finish());
    let include = |file: &Path| -> io::Result<String> {
        Ok(format!("include_bytes!({:?})", fs::canonicalize(file)?))
    };
    let plain = include(file)?;
    let gzip = match gzip {
        Some(file) => format!("Some({})", include(file)?),
        None => "None".into(),
    };
    Ok(format!(
        "    File {{ path: {path:?}, tag: {tag:?}, plain: {plain}, gzip: {gzip} }},\n"
    ))
}
