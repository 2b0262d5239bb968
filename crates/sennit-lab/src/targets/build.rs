//! What was measured, by its own results.

use std::collections::BTreeMap;

use super::Measured;
use crate::programs;

/// The build of most scenarios, then each other one after the names of those that it was in.
pub(super) fn described(results: &BTreeMap<String, Measured>) -> String {
    let mut builds: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, measured) in results {
        // Figures of tests have none.
        if let Some(build) = measured.build() {
            builds.entry(build).or_default().push(name);
        }
    }
    let mut builds: Vec<_> = builds.into_iter().collect();
    builds.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
    let mut builds = builds.into_iter();
    let most = builds.next().map_or("unknown".into(), |(build, _)| build);
    let others = builds.map(|(build, names)| format!("{}: {build}", names.join(", ")));
    [most]
        .into_iter()
        .chain(others)
        .collect::<Vec<_>>()
        .join("; ")
}

impl Measured {
    fn build(&self) -> Option<String> {
        let program = programs::named(&self.sennit, &self.build);
        let known = [self.commit.clone(), program].into_iter();
        let known: Vec<_> = known.filter(|it| !it.is_empty()).collect();
        (!known.is_empty()).then(|| known.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_of_few_scenarios_stand_behind_their_names() {
        let measured = |name: &str, commit: &str| {
            let text = format!(
                r#"{{"scenario": "{name}", "started": "", "runs": 1, "summary": [],
                "commit": "{commit}"}}"#
            );
            let measured: Measured = serde_json::from_str(&text).expect("it is right");
            (name.to_owned(), measured)
        };
        let of = |all: &[(&str, &str)]| {
            let all = all.iter().map(|(name, commit)| measured(name, commit));
            described(&all.collect())
        };

        assert_eq!(
            of(&[("a", "1f"), ("b", "2f"), ("c", "2f"), ("test", "")]),
            "2f; a: 1f"
        );
        assert_eq!(of(&[]), "unknown");
    }
}
