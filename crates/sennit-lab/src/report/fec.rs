//! What error correction did during a step, by the counters of both ends.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{EDGE, Figure, HUB};

/// What one class sent in addition at one end, and what came back there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FecResult {
    /// The daemon.
    role: String,
    site: String,
    class: String,
    /// As in the config.
    setting: String,
    /// The code that ran in the end, if one did.
    code: Option<String>,
    #[serde(flatten)]
    counts: Counts,
}

/// Counters of `fec` in a status; here of the step alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Counts {
    sources_sent: u64,
    repairs_sent: u64,
    sources_received: u64,
    repairs_received: u64,
    recovered_packets: u64,
    too_late_packets: u64,
    failed_repairs: u64,
    lost_packets: u64,
}

impl FecResult {
    /// Of each class with FEC at each end, by the status of hub and edges before and after.
    pub(super) fn between(before: &[Value], after: &[Value]) -> Vec<Self> {
        let roles = [HUB].into_iter().chain(std::iter::repeat(EDGE));
        let ends = roles.zip(after).enumerate();
        let of_end = ends.flat_map(|(index, (role, after))| {
            let before = before.get(index);
            tunnels(after).filter_map(move |tunnel| Self::of(role, tunnel, before))
        });
        of_end.collect()
    }

    /// `None` where FEC is off.
    fn of(role: &str, tunnel: &Value, before: Option<&Value>) -> Option<Self> {
        let word = |value: &Value| value.as_str().map(str::to_owned);
        let fec = &tunnel["fec"];
        let setting = word(&fec["setting"]).filter(|it| !it.is_empty() && it != "off")?;
        let same = |it: &&Value| ["site", "class"].iter().all(|key| it[*key] == tunnel[*key]);
        let earlier = before.and_then(|status| tunnels(status).find(same));
        let counts = |tunnel: &Value| Counts::deserialize(&tunnel["fec"]).ok();
        Some(Self {
            role: role.to_owned(),
            site: word(&tunnel["site"]).unwrap_or_default(),
            class: word(&tunnel["class"]).unwrap_or_default(),
            setting,
            code: word(&fec["code"]),
            counts: counts(tunnel)?.since(earlier.and_then(counts).unwrap_or_default()),
        })
    }

    /// What each class comes to, at both ends together.
    pub(super) fn of_classes(all: &[Self]) -> BTreeMap<&str, Vec<(Figure, f64)>> {
        let mut classes: BTreeMap<&str, Vec<&Self>> = BTreeMap::new();
        for result in all {
            classes.entry(&result.class).or_default().push(result);
        }
        let classes = classes.into_iter();
        classes
            .map(|(class, ends)| (class, Self::figures(&ends)))
            .collect()
    }

    /// What these classes and ends come to; nothing of none.
    pub(super) fn figures(all: &[&Self]) -> Vec<(Figure, f64)> {
        if all.is_empty() {
            return Vec::new();
        }
        let sum = |count: fn(&Counts) -> u64| -> f64 {
            all.iter().map(|it| count(&it.counts)).sum::<u64>() as f64
        };
        let (sources, repairs) = (sum(|it| it.sources_sent), sum(|it| it.repairs_sent));
        let (back, lost) = (sum(|it| it.recovered_packets), sum(|it| it.lost_packets));
        let known = sum(|it| it.sources_received) + back + lost;
        let mut figures = vec![
            (Figure::FecRepairs, repairs),
            (Figure::FecRecovered, back),
            (Figure::FecOverhead, repairs / sources.max(1.0)),
        ];
        figures.extend((known > 0.0).then(|| (Figure::FecResidualLoss, lost / known)));
        figures
    }
}

impl Counts {
    /// What came since. A connection that began anew meanwhile counts from zero.
    fn since(self, before: Self) -> Self {
        let Some(sources_sent) = self.sources_sent.checked_sub(before.sources_sent) else {
            return self;
        };
        let more = |count: fn(&Self) -> u64| count(&self).saturating_sub(count(&before));
        Self {
            sources_sent,
            repairs_sent: more(|it| it.repairs_sent),
            sources_received: more(|it| it.sources_received),
            repairs_received: more(|it| it.repairs_received),
            recovered_packets: more(|it| it.recovered_packets),
            too_late_packets: more(|it| it.too_late_packets),
            failed_repairs: more(|it| it.failed_repairs),
            lost_packets: more(|it| it.lost_packets),
        }
    }
}

fn tunnels(status: &Value) -> impl Iterator<Item = &Value> {
    status["tunnels"].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(class: &str, setting: &str, [sent, repairs, came, back, lost]: [u64; 5]) -> Value {
        json!({"tunnels": [{"site": "lab", "class": class, "fec": {
            "setting": setting, "sources_sent": sent, "repairs_sent": repairs,
            "sources_received": came, "repairs_received": 0, "recovered_packets": back,
            "too_late_packets": 0, "failed_repairs": 0, "lost_packets": lost,
        }}]})
    }

    #[test]
    fn a_step_has_what_both_ends_counted_meanwhile() {
        let before = [
            status("voice", "rs:10+2", [100, 20, 0, 0, 0]),
            status("voice", "rs:10+2", [0, 0, 95, 5, 0]),
        ];
        let after = [
            status("voice", "rs:10+2", [1100, 220, 0, 0, 0]),
            status("voice", "rs:10+2", [0, 0, 1045, 53, 2]),
        ];

        let all = FecResult::between(&before, &after);

        assert_eq!((all.len(), all[1].role.as_str()), (2, EDGE));
        assert_eq!(
            FecResult::of_classes(&all)["voice"],
            [
                (Figure::FecRepairs, 200.0),
                (Figure::FecRecovered, 48.0),
                (Figure::FecOverhead, 0.2),
                (Figure::FecResidualLoss, 2.0 / 1000.0),
            ]
        );
    }

    #[test]
    fn a_connection_that_began_anew_counts_from_zero_and_a_class_without_fec_not_at_all() {
        let (before, after) = ([500, 100, 0, 0, 0], [40, 8, 0, 0, 0]);
        let ends = |setting, counts| [status("voice", setting, counts)];

        let anew = FecResult::between(&ends("auto", before), &ends("auto", after));

        let repairs = FecResult::of_classes(&anew)["voice"][0];
        assert_eq!(repairs, (Figure::FecRepairs, 8.0));
        assert!(FecResult::between(&[], &ends("off", after)).is_empty());
        assert!(FecResult::between(&[], &[json!({"state": "up"})]).is_empty());
        assert!(FecResult::figures(&[]).is_empty());
    }
}
