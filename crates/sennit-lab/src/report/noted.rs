//! Figures that tests find, beside those of scenarios.

use std::path::PathBuf;

use serde_json::{Map, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Figure, Machine, SCHEMA, Spread};
use crate::draft;
use crate::error::{Doing, Error};

/// Names the directory where figures of tests go.
const DIRECTORY: &str = "SENNIT_RESULTS";

/// Puts figures where `sennit lab table` finds them, if `SENNIT_RESULTS` names a directory.
pub fn note(scenario: &str, step: &str, figures: &[(Figure, f64)]) -> Result<(), Error> {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return Ok(());
    };
    let directory = PathBuf::from(directory).join(scenario);
    std::fs::create_dir_all(&directory).doing(|| format!("create {}", directory.display()))?;
    let spread = |value: f64| Spread {
        median: value,
        min: value,
        max: value,
        runs: 1,
    };
    let named = figures.iter().filter_map(|(figure, value)| {
        let key = serde_json::to_value(figure).ok()?;
        Some((key.as_str()?.to_owned(), json!(spread(*value))))
    });
    let results = json!({
        "schema": SCHEMA,
        "scenario": scenario,
        "started": OffsetDateTime::now_utc().format(&Rfc3339).unwrap_or_default(),
        "machine": Machine::here(),
        "runs": 1,
        "summary": [{
            "name": step,
            "traffic": [{ "label": "test", "figures": Map::from_iter(named) }],
        }],
    });
    draft::write(&directory.join("results.json"), &results.to_string())
}
