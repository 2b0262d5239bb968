//! Sites, as the operator sees them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::SystemTime;

use rusqlite::{OptionalExtension as _, Row, params};

use super::error::{Result, StoreError};
use super::{Store, grant, instant, lease, seconds, site_name};
use crate::config::Prefix;
use crate::reach::Reach;
use crate::site::SiteName;

/// A site as `sennit sites` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteRecord {
    pub name: SiteName,
    pub created: SystemTime,
    pub revoked: Option<SystemTime>,
    pub v4: Option<Ipv4Addr>,
    pub v6: Option<Ipv6Addr>,
    /// Prefixes behind the edge, as it announced them last.
    pub lan: Vec<Prefix>,
    /// Those of them that were not routed then, and why.
    pub refused: Vec<(Prefix, String)>,
    /// What it may announce.
    pub granted: Vec<Prefix>,
    /// What it may reach, if that was said of it alone.
    pub reach: Option<Reach>,
    /// Whether it is a client with a bearer token, or was until that expired.
    pub bearer: bool,
    /// Whether it has an invitation that nobody has used.
    pub invited: bool,
    /// When it was last here, to the minute.
    pub seen: Option<SystemTime>,
    /// Its outer addresses then.
    pub seen_from: Vec<IpAddr>,
    /// Expiry of the certificate that lives longest, if the site has a valid one.
    pub certified_until: Option<SystemTime>,
    /// Whether it is not known to hold a certificate of the present authority, while it has one of
    /// the former.
    pub behind: bool,
    /// Whether it moves to another authority when it is told of one, as it said last.
    pub moves: bool,
}

impl Store {
    /// All sites by name.
    pub fn sites(&self, now: SystemTime) -> Result<Vec<SiteRecord>> {
        self.run(|db| {
            let mut query = db.prepare(&format!("{SITES} ORDER BY name"))?;
            query.query_map([seconds(now)], site_record)?.collect()
        })
    }

    /// One site.
    pub fn site(&self, site: &SiteName, now: SystemTime) -> Result<SiteRecord> {
        let query = format!("{SITES} WHERE name = ?2");
        let values = params![seconds(now), site.as_str()];
        let found = self.run(|db| db.query_row(&query, values, site_record).optional())?;
        found.ok_or_else(|| StoreError::NoSuchSite {
            site: site.clone(),
            path: self.path.clone(),
        })
    }

    /// Removes what is known of a site that is revoked, or that has never had a certificate or a
    /// bearer token. What it proves itself by is unknown from then on, and so is refused.
    pub fn forget(&mut self, site: &SiteName) -> Result<()> {
        let path = self.path.clone();
        self.decide(|tx| {
            let query = "SELECT revoked IS NOT NULL
                             OR NOT EXISTS (SELECT 1 FROM certificates WHERE site = name)
                             AND NOT EXISTS (SELECT 1 FROM tokens
                                             WHERE site = name AND kind = 'bearer')
                         FROM sites WHERE name = ?1";
            let name = [site.as_str()];
            let known: Option<bool> = tx.query_row(query, name, |row| row.get(0)).optional()?;
            let named = site.clone();
            match known {
                None => return Err(StoreError::NoSuchSite { site: named, path }.into()),
                Some(false) => return Err(StoreError::MayComeIn { site: named }.into()),
                Some(true) => {}
            }
            tx.execute("DELETE FROM tokens WHERE site = ?1", name)?;
            tx.execute("DELETE FROM certificates WHERE site = ?1", name)?;
            tx.execute("DELETE FROM sites WHERE name = ?1", name)?;
            Ok(())
        })
    }
}

/// What [`site_record`] reads; certificates that are good after `?1` count. Whose last token has
/// expired is a client with one until the name is a site's: what it may reach must not grow before
/// its tunnel ends.
const SITES: &str = "
    SELECT name, created, revoked, v4, v6, lan,
      (SELECT max(not_after) FROM certificates
       WHERE site = name AND NOT certificates.revoked AND NOT dropped AND not_after > ?1),
      refused, granted, reach,
      EXISTS (SELECT 1 FROM tokens WHERE site = name AND kind = 'bearer'
              AND (expires IS NULL OR expires > ?1
                   OR NOT EXISTS (SELECT 1 FROM certificates
                                  WHERE site = name AND NOT certificates.revoked
                                  AND NOT dropped AND not_after > ?1))),
      seen, seen_from,
      EXISTS (SELECT 1 FROM tokens WHERE site = name AND kind = 'invite' AND used_by IS NULL),
      EXISTS (SELECT 1 FROM certificates
              WHERE site = name AND NOT certificates.revoked AND NOT dropped AND not_after > ?1
              AND hex(authority) = (SELECT value FROM hub WHERE key = 'authority.former'))
      AND NOT EXISTS (SELECT 1 FROM certificates
                      WHERE site = name AND NOT certificates.revoked AND shown
                      AND hex(authority) =
                          (SELECT value FROM hub WHERE key = 'authority.present')),
      moves
    FROM sites";

fn site_record(row: &Row<'_>) -> rusqlite::Result<SiteRecord> {
    let text = |column| row.get::<_, String>(column);
    let seen_from = text(12)?;
    let seen_from = seen_from.split_whitespace();
    Ok(SiteRecord {
        name: site_name(row, 0)?,
        created: instant(row.get(1)?),
        revoked: row.get::<_, Option<i64>>(2)?.map(instant),
        v4: lease::address(row, 3)?,
        v6: lease::address(row, 4)?,
        lan: grant::split(&text(5)?),
        refused: grant::split_refused(&text(7)?),
        granted: grant::split(&text(8)?),
        // Whoever wrote something else there wanted less than everything.
        reach: row
            .get::<_, Option<String>>(9)?
            .map(|words| words.parse().unwrap_or_default()),
        bearer: row.get(10)?,
        invited: row.get(13)?,
        seen: row.get::<_, Option<i64>>(11)?.map(instant),
        seen_from: seen_from.filter_map(|from| from.parse().ok()).collect(),
        certified_until: row.get::<_, Option<i64>>(6)?.map(instant),
        behind: row.get(14)?,
        moves: row.get(15)?,
    })
}
