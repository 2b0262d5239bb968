//! `[[step.traffic]]` tables of `sennit test`.

use serde::Deserialize;

use super::{Seconds, Via};

/// `sennit test`, from the edge to the server over one link, without a tunnel: what it finds of a
/// tunnel `sennit speedtest` tells.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadTest {
    /// The link.
    pub via: Via,
    /// Of `sennit test client`; how long load is counted is `seconds`, unless it says `--duration`.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Default: the step's.
    pub seconds: Option<u32>,
    /// After the start of the step.
    #[serde(default)]
    pub start_s: Seconds,
    /// The number of the edge that alone does it; absent: all do.
    pub edge: Option<usize>,
}

impl LoadTest {
    pub(super) fn check(&self) -> Result<(), String> {
        match self.via {
            Via::Link(_) => Ok(()),
            Via::Tunnel | Via::Mptcp => {
                Err("`sennit test` goes over a link: write `via = \"link:NAME\"`".into())
            }
        }
    }
}
