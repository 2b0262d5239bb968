//! The daemons.

/// `sennit hub`.
pub mod hub {
    use crate::cli::Failure;
    use crate::config::HubConfig;

    /// Runs a hub until it is told to stop.
    pub fn run(_config: HubConfig) -> Result<(), Failure> {
        Err(Failure::runtime("the hub's daemon is not built yet"))
    }
}

/// `sennit edge`.
pub mod edge {
    use crate::cli::Failure;
    use crate::config::EdgeConfig;

    /// Runs an edge until it is told to stop.
    pub fn run(_config: EdgeConfig) -> Result<(), Failure> {
        Err(Failure::runtime("the edge's daemon is not built yet"))
    }
}
