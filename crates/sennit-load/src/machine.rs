//! Where something was measured.

use serde::{Deserialize, Serialize};

/// A machine, as far as it decides figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
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
    /// The one that this runs on.
    #[must_use]
    pub fn here() -> Self {
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
