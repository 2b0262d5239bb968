//! Processor time of this machine that its hypervisor gave to others.

/// What was taken of all processors since this machine started, in seconds; 0 if nobody tells.
pub(crate) fn seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = ticks(&stat).unwrap_or_default();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// The eighth figure of all processors together (proc_stat(5)).
fn ticks(stat: &str) -> Option<u64> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    all.split_whitespace().nth(7)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_that_of_all_processors() {
        let stat = "cpu  10 0 20 900 5 0 1 42 0 0\ncpu0 5 0 10 450 2 0 1 21 0 0\n";

        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks("intr 7\n"), None);
        assert!(seconds() >= 0.0);
    }
}
