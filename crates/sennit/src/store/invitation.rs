//! Invitations that nobody has used.

use std::time::SystemTime;

use super::error::{Result, StoreError};
use super::{Store, instant, site_name};
use crate::site::SiteName;

/// An invitation that nobody has used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenInvitation {
    pub site: SiteName,
    pub created: SystemTime,
    pub expires: SystemTime,
}

impl Store {
    /// The invitations that nobody has used, the newest first.
    pub fn invitations(&self) -> Result<Vec<OpenInvitation>> {
        self.run(|db| {
            let mut query = db.prepare(
                "SELECT site, tokens.created, expires FROM tokens JOIN sites ON sites.name = site
                 WHERE kind = 'invite' AND used_by IS NULL AND sites.revoked IS NULL
                 ORDER BY tokens.created DESC, site",
            )?;
            let rows = query.query_map([], |row| {
                Ok(OpenInvitation {
                    site: site_name(row, 0)?,
                    created: instant(row.get(1)?),
                    expires: instant(row.get::<_, Option<i64>>(2)?.unwrap_or(i64::MAX)),
                })
            })?;
            rows.collect()
        })
    }

    /// Takes back the invitation of a site that nobody has used; the site stays as it is otherwise.
    pub fn withdraw(&mut self, site: &SiteName) -> Result<()> {
        let query = "DELETE FROM tokens WHERE site = ?1 AND kind = 'invite' AND used_by IS NULL";
        match self.decide(|tx| Ok(tx.execute(query, [site.as_str()])?))? {
            0 => Err(StoreError::NoInvitation { site: site.clone() }),
            _ => Ok(()),
        }
    }
}
