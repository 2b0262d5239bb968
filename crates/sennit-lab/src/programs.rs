//! The programs of the distribution that a lab calls.

use std::path::Path;
use std::process::{Command, Stdio};

use ring::digest;

use crate::error::{Doing, Error};

/// A program, and the Debian package that has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program {
    name: &'static str,
    package: &'static str,
}

pub(crate) const fn program(name: &'static str, package: &'static str) -> Program {
    Program { name, package }
}

/// What it takes to build a lab.
pub(crate) const BUILDING: [Program; 3] = [
    program("ip", "iproute2"),
    program("nft", "nftables"),
    program("sysctl", "procps"),
];

/// What it takes to change what a device does for the kernel.
pub(crate) const OFFLOADS: [Program; 1] = [program("ethtool", "ethtool")];

/// What it takes to limit the rate of a device.
pub(crate) const RATES: [Program; 1] = [program("tc", "iproute2")];

/// What it takes to run traffic in it.
pub(crate) const TRAFFIC: [Program; 3] = [
    program("iperf3", "iperf3"),
    program("ping", "iputils-ping"),
    program("ss", "iproute2"),
];

/// The command that this is, as it can be given again. The lab's own program is `sennit lab`,
/// wherever it lies.
pub(crate) fn command() -> String {
    let given = std::env::args().skip(1);
    let program = ["sennit", "lab"].map(str::to_owned);
    sennit_report::shell_command(program.into_iter().chain(given))
}

/// Which build of this program it is: two of the same version have different files.
pub(crate) fn build() -> Result<String, Error> {
    // Whatever has taken the file's place since, this is what runs.
    let hash = hash(Path::new("/proc/self/exe")).doing(|| "read this program".into())?;
    Ok(format!("{} {hash}", env!("CARGO_PKG_VERSION")))
}

/// Which build of another program it is: what it says to `--version`, if that is anything, and its
/// file's hash; empty where there is no such file.
pub(crate) fn build_of(program: &Path) -> String {
    let mut asked = Command::new(program);
    let said = asked.arg("--version").stdin(Stdio::null()).output();
    let said = said.map(|output| output.stdout).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let version = said.lines().next().unwrap_or_default().trim().to_owned();
    let known = [version, hash(program).unwrap_or_default()];
    let known: Vec<_> = known.into_iter().filter(|it| !it.is_empty()).collect();
    known.join(" ")
}

/// A program by its path, with its build if that is known.
pub(crate) fn named(program: &str, build: &str) -> String {
    match build {
        "" => program.to_owned(),
        build => format!("{program} ({build})"),
    }
}

/// The first 64 bits of SHA-256.
fn hash(file: &Path) -> std::io::Result<String> {
    let hash = digest::digest(&digest::SHA256, &std::fs::read(file)?);
    let first = hash.as_ref()[..8].iter();
    Ok(first.map(|byte| format!("{byte:02x}")).collect())
}

/// A file as seen from where the command was given, if it lies below.
pub(crate) fn shown(file: &Path) -> String {
    let here = std::env::current_dir().ok();
    let below = here.and_then(|here| file.strip_prefix(here).ok());
    below.unwrap_or(file).display().to_string()
}

/// An error that names the packages of all programs that are not there.
pub(crate) fn require(programs: &[Program]) -> Result<(), Error> {
    let missing = |program: &&Program| !is_there(Path::new(program.name));
    let missing: Vec<_> = programs.iter().filter(missing).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = |of: fn(&Program) -> &'static str| {
        missing
            .iter()
            .map(|program| of(program))
            .collect::<Vec<_>>()
            .join(" ")
    };
    Err(Error::ProgramsMissing {
        programs: list(|program| program.name),
        packages: list(|program| program.package),
    })
}

/// Whether a program is where its path says, or, if that is a bare name, where a shell would look.
pub(crate) fn is_there(program: &Path) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match program.components().count() {
        1 => std::env::split_paths(&path).any(|place| place.join(program).exists()),
        _ => program.exists(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_hash_whatever_it_says() {
        let name = format!("sennit-lab-build-{}", std::process::id());
        let program = std::env::temp_dir().join(name);
        std::fs::write(&program, "abc").expect("the temporary directory is writable");

        let build = build_of(&program);

        let _ = std::fs::remove_file(&program);
        assert_eq!(build, "ba7816bf8f01cfea", "it is no program");
        assert_eq!(build_of(&program), "", "it is gone");
    }

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        let programs = [
            program("sh", "dash"),
            program("no-such-program", "no-such-package"),
        ];

        let error = require(&programs).expect_err("one is missing").to_string();

        assert!(
            error.contains("no-such-program") && error.contains("no-such-package"),
            "{error}"
        );
        assert!(!error.contains("dash"), "{error}");
        assert!(require(&programs[..1]).is_ok());
    }
}
