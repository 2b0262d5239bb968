//! Of which source it was measured.

/// What git calls the source around here.
pub(super) fn commit() -> String {
    let described = std::process::Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .stderr(std::process::Stdio::null())
        .output();
    let described = described.ok().filter(|output| output.status.success());
    let name = described.and_then(|output| String::from_utf8(output.stdout).ok());
    name.map(|name| name.trim().to_owned()).unwrap_or_default()
}
