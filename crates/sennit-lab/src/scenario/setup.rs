//! `[[setup]]` tables: what somebody has configured on the hosts before.

use serde::Deserialize;

use crate::error::Error;
use crate::host::Role;
use crate::lab::Lab;

/// A `[[setup]]` table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// On which host, of each site if it is one of a site's.
    on: Role,
    /// Lines for a shell, which ends at the first that fails. `$LAN`, `$EDGE`, `$HUB` and `$SERVER`
    /// are the names of the hosts' network namespaces.
    run: String,
}

impl Setup {
    pub(super) fn apply(&self, lab: &Lab) -> Result<(), Error> {
        let sites = match self.on {
            Role::Lan | Role::Edge => lab.edges(),
            Role::Hub | Role::Server => 1,
        };
        lab.sites().take(sites).try_for_each(|site| {
            let mut shell = site.host(self.on).command("sh");
            shell.args(["-euc", &self.run]);
            for role in Role::ALL {
                shell.env(role.to_string().to_uppercase(), site.host(role).name());
            }
            crate::host::run(&mut shell).map(drop)
        })
    }
}
