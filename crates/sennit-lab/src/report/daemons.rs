//! What the daemons of a tunnel used during a step.

use serde::{Deserialize, Serialize};

use super::{StepResult, TrafficResult};
use crate::scenario::{Step, Via};
use crate::tunnel::Usage;

/// The roles of daemons.
pub(super) const HUB: &str = "hub";
pub(super) const EDGE: &str = "edge";

/// What a daemon used during a step, with those that ran in its place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DaemonResult {
    pub(super) role: String,
    pub(super) cpu_seconds: f64,
    /// CPU time for 10⁹ bytes of bulk goodput through the tunnel.
    pub(super) cpu_seconds_per_gigabyte: Option<f64>,
    /// At the end of the step.
    pub(super) rss_bytes: u64,
    /// The most during the step.
    pub(super) rss_peak_bytes: u64,
}

impl StepResult {
    /// Adds what hub and edges used between two readings, before and after `step`.
    pub(crate) fn add_usage(&mut self, step: &Step, before: &[Usage], after: &[Usage]) {
        // Plain traffic that contends with the tunnel's costs the daemons nothing.
        let traffic = step.traffic.iter().zip(&self.traffic);
        let carried = traffic.filter(|(asked, _)| *asked.via() == Via::Tunnel);
        let bulk = carried.filter_map(|(_, result)| TrafficResult::bulk(result));
        let bytes: u64 = bulk.map(|bulk| bulk.bytes).sum();
        let roles = [HUB].into_iter().chain(std::iter::repeat(EDGE));
        for (role, (before, after)) in roles.zip(before.iter().zip(after)) {
            let cpu_seconds = after.cpu_seconds - before.cpu_seconds;
            self.daemons.push(DaemonResult {
                role: role.into(),
                cpu_seconds,
                cpu_seconds_per_gigabyte: (bytes > 0).then(|| cpu_seconds * 1e9 / bytes as f64),
                rss_bytes: after.rss_bytes,
                rss_peak_bytes: after.rss_peak_bytes,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sennit_load::{BIN, Bins};

    use super::*;
    use crate::scenario::Scenario;
    use crate::traffic::{BulkFigures, Figures};

    #[test]
    fn only_what_the_tunnel_carried_is_what_its_time_is_for() {
        let text = r#"
            name = "t"
            [[link]]
            name = "a"
            [tunnel]
            [[step]]
            name = "side by side"
            contend = true
            traffic = [{ kind = "tcp", via = "link:a" }, { kind = "tcp" }]
        "#;
        let scenario = Scenario::parse(text).expect("it is right");
        let step = &scenario.step[0];
        let result = |bytes| {
            let bulk = BulkFigures {
                bytes,
                seconds: 1.0,
                goodput: bytes as f64,
                retransmits: None,
                start_seconds: 0.0,
                bins: Bins::new(BIN, Vec::new()),
            };
            TrafficResult::new(&step.traffic[0], Ok(Figures::Tcp(bulk)), None, None)
        };
        let traffic = vec![result(9_000_000_000), result(2_000_000_000)];
        let mut played =
            StepResult::new(&step.name, Duration::ZERO, traffic, Vec::new(), Vec::new());
        let used = |cpu_seconds| Usage {
            cpu_seconds,
            ..Usage::default()
        };

        played.add_usage(step, &[used(1.0)], &[used(5.0)]);

        let hub = &played.daemons[0];
        assert_eq!(hub.cpu_seconds, 4.0);
        assert_eq!(hub.cpu_seconds_per_gigabyte, Some(2.0));
    }
}
