//! Which authority certificates are of, while one takes the place of another.
//!
//! A certificate of which the table does not say it is of the first authority that the hub had.

use std::time::SystemTime;

use rusqlite::{OptionalExtension as _, params};

use super::error::Result;
use super::grant::put;
use super::{CertificateRecord, Digest, Store, instant, seconds, site_name};
use crate::site::SiteName;

const PRESENT: &str = "authority.present";
const FORMER: &str = "authority.former";
const SINCE: &str = "authority.since";

impl Store {
    /// An authority takes the place of the one there was.
    pub fn begin_rotation(
        &mut self,
        former: &Digest,
        present: &Digest,
        now: SystemTime,
    ) -> Result<()> {
        self.write(|tx| {
            tx.execute(
                "UPDATE certificates SET authority = ?1 WHERE authority IS NULL",
                [former],
            )?;
            put(tx, FORMER, &hex(former))?;
            put(tx, PRESENT, &hex(present))?;
            put(tx, SINCE, &seconds(now).to_string())
        })
    }

    /// When the rotation that is under way began.
    pub fn rotation_since(&self) -> Result<Option<SystemTime>> {
        let query = "SELECT CAST(value AS INTEGER) FROM hub WHERE key = ?1";
        let since = self.run(|db| {
            db.query_row(query, [SINCE], |row| row.get::<_, i64>(0))
                .optional()
        })?;
        Ok(since.map(instant))
    }

    /// The sites with an invitation that is older than the rotation, and that somebody may use.
    pub fn stale_invitations(&self, now: SystemTime) -> Result<Vec<SiteName>> {
        self.run(|db| {
            let mut query = db.prepare(
                "SELECT site FROM tokens JOIN sites ON sites.name = site
                 WHERE kind = 'invite' AND used_by IS NULL AND sites.revoked IS NULL
                   AND expires > ?1
                   AND tokens.created <= (SELECT CAST(value AS INTEGER) FROM hub WHERE key = ?2)
                 ORDER BY site",
            )?;
            let rows = query.query_map(params![seconds(now), SINCE], |row| site_name(row, 0))?;
            rows.collect()
        })
    }

    /// The former authority is gone, with its certificates and the invitations that name it.
    pub fn end_rotation(&mut self, present: &Digest) -> Result<()> {
        self.trust_only(&[*present])?;
        self.write(|tx| {
            tx.execute(
                "DELETE FROM tokens WHERE kind = 'invite' AND used_by IS NULL
                 AND created <= (SELECT CAST(value AS INTEGER) FROM hub WHERE key = ?1)",
                [SINCE],
            )?;
            tx.execute(
                "DELETE FROM hub WHERE key IN (?1, ?2, ?3)",
                [PRESENT, FORMER, SINCE],
            )?;
            Ok(())
        })
    }

    /// Certificates of other authorities than these are not good any more.
    pub fn trust_only(&mut self, authorities: &[Digest]) -> Result<()> {
        let (Some(first), Some(last)) = (authorities.first(), authorities.last()) else {
            return Ok(());
        };
        let void = "UPDATE certificates SET dropped = 1
                    WHERE NOT dropped AND authority NOT IN (?1, ?2)";
        self.run(|db| db.execute(void, [first, last]))?;
        Ok(())
    }

    /// A site has shown this certificate, so it has kept it; whether that is new.
    pub fn note_shown(&mut self, certificate: &Digest) -> Result<bool> {
        let shown = "UPDATE certificates SET shown = 1 WHERE fingerprint = ?1 AND NOT shown";
        Ok(self.run(|db| db.execute(shown, [certificate]))? > 0)
    }

    /// Whether a site moves to another authority when it is told of one.
    pub fn note_moves(&mut self, site: &str, moves: bool) -> Result<()> {
        let update = "UPDATE sites SET moves = ?2 WHERE name = ?1 AND moves <> ?2";
        self.run(|db| db.execute(update, params![site, moves]))?;
        Ok(())
    }

    /// The newest valid certificate of `site` for this key that is of this authority.
    pub fn certificate_of(
        &self,
        site: &SiteName,
        key: &Digest,
        authority: &Digest,
    ) -> Result<Option<CertificateRecord>> {
        let newest = "site = ?1 AND key = ?2 AND (authority = ?3 OR authority IS NULL)
                      AND NOT certificates.revoked AND NOT dropped
                      ORDER BY not_after DESC LIMIT 1";
        self.certificate_where(newest, params![site.as_str(), key, authority])
    }
}

fn hex(digest: &Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02X}")).collect()
}
