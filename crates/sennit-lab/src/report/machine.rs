//! Where it was measured, and of which source.

use serde::{Deserialize, Serialize};

/// What it was measured on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Machine {
    kernel: String,
    cpu: String,
    cores: usize,
    memory_bytes: u64,
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (cpu, cores, kernel) = (&self.cpu, self.cores, &self.kernel);
        let gigabytes = self.memory_bytes / 1_000_000_000;
        write!(f, "{cpu}, {cores} cores, {gigabytes} GB, Linux {kernel}")
    }
}

impl Machine {
    pub(crate) fn here() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let value = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key));
            let value = line.and_then(|line| line.split_once(':'));
            value
                .map(|(_, value)| value.trim().to_owned())
                .unwrap_or_default()
        };
        let memory = value(&read("/proc/meminfo"), "MemTotal");
        let kilobytes = memory
            .split_whitespace()
            .next()
            .and_then(|number| number.parse().ok());
        Self {
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            cpu: value(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kilobytes.unwrap_or(0_u64) * 1024,
        }
    }
}

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
