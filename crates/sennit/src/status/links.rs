//! The links of an edge by themselves: `sennit links --json`, and `/v1/links` of the API.

use schemars::JsonSchema;
use serde::Serialize;

use super::{LinkStatus, PathState, PathStatus, Status};

/// The links of an edge.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Links {
    /// `sennit.links/1`.
    pub schema: &'static str,
    /// When this was so, in RFC 3339.
    pub time: String,
    pub links: Vec<ListedLink>,
}

/// One link, with its paths of all classes.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ListedLink {
    #[serde(flatten)]
    pub link: LinkStatus,
    pub paths: usize,
    pub paths_up: usize,
    /// What one class can carry there, as congestion control sees it: the greatest of its paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_second: Option<f64>,
}

impl Links {
    /// Those of a status that has its paths.
    pub fn of(status: &Status) -> Self {
        let links = status.links.iter();
        Self {
            schema: "sennit.links/1",
            time: status.time.clone(),
            links: links.map(|link| ListedLink::new(link, status)).collect(),
        }
    }
}

impl ListedLink {
    fn new(link: &LinkStatus, status: &Status) -> Self {
        let paths = status.tunnels.iter().flat_map(|tunnel| &tunnel.paths);
        let here = |path: &&PathStatus| path.link.as_ref() == Some(&link.name);
        let paths: Vec<&PathStatus> = paths.filter(here).collect();
        let up = paths.iter().filter(|path| path.state == PathState::Up);
        let rates = paths.iter().filter_map(|path| path.rate_bytes_per_second);
        Self {
            link: link.clone(),
            paths: paths.len(),
            paths_up: up.count(),
            rate_bytes_per_second: rates.reduce(f64::max),
        }
    }
}
