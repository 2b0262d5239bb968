//! Which authority certificates are of, while one takes the place of another.
//!
//! A certificate or invitation of which the table does not say it is of the first authority that
//! the hub had.

use std::time::SystemTime;

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde::{Deserialize, Serialize};

use super::error::{Outcome, Result};
use super::grant::put;
use super::{CertificateRecord, Digest, Store, instant, seconds, site_name};
use crate::site::SiteName;

const PRESENT: &str = "authority.present";
const FORMER: &str = "authority.former";
const SINCE: &str = "authority.since";
const STEPS: &str = "authority.steps";
/// Steps that are kept until a hub runs; an operator takes two in years.
const MOST_STEPS: usize = 20;

/// What an operator has done to the authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthorityStep {
    /// The present one takes the place of the former, and both are good.
    Begun { present: Digest },
    /// The former one is dropped, by which these sites were locked out.
    Finished {
        present: Digest,
        locked_out: Vec<String>,
    },
}

impl Store {
    /// An authority takes the place of the one there was.
    pub fn begin_rotation(
        &mut self,
        former: &Digest,
        present: &Digest,
        now: SystemTime,
    ) -> Result<()> {
        self.decide(|tx| {
            tx.execute(
                "UPDATE certificates SET authority = ?1 WHERE authority IS NULL",
                [former],
            )?;
            tx.execute(
                "UPDATE tokens SET authority = ?1 WHERE kind = 'invite' AND authority IS NULL",
                [former],
            )?;
            add_step(tx, AuthorityStep::Begun { present: *present })?;
            put(tx, FORMER, &hex(former))?;
            put(tx, PRESENT, &hex(present))?;
            put(tx, SINCE, &seconds(now).to_string())
        })
    }

    /// The present authority and the former one of the rotation that is under way.
    pub fn rotating(&self) -> Result<Option<(Digest, Digest)>> {
        let query = "SELECT unhex(present.value), unhex(former.value)
                     FROM hub AS present JOIN hub AS former
                     WHERE present.key = ?1 AND former.key = ?2";
        self.run(|db| {
            let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
            db.query_row(query, [PRESENT, FORMER], read).optional()
        })
    }

    /// The rotation to this authority has not begun after all, and nobody hears of it.
    pub fn drop_rotation(&mut self, present: &Digest) -> Result<()> {
        self.decide(|tx| {
            let mut left = steps(tx)?;
            left.retain(|step| *step != AuthorityStep::Begun { present: *present });
            put_steps(tx, &left)?;
            forget_rotation(tx)
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

    /// The sites with an invitation that names the former authority, and that somebody may use.
    pub fn stale_invitations(&self, now: SystemTime) -> Result<Vec<SiteName>> {
        self.run(|db| {
            let mut query = db.prepare(
                "SELECT site FROM tokens JOIN sites ON sites.name = site
                 WHERE kind = 'invite' AND used_by IS NULL AND sites.revoked IS NULL
                   AND expires > ?1
                   AND hex(tokens.authority) = (SELECT value FROM hub WHERE key = ?2)
                 ORDER BY site",
            )?;
            let rows = query.query_map(params![seconds(now), FORMER], |row| site_name(row, 0))?;
            rows.collect()
        })
    }

    /// The former authority is gone, with its certificates and the invitations that name it; these
    /// sites have no other.
    pub fn end_rotation(&mut self, present: &Digest, locked_out: Vec<String>) -> Result<()> {
        self.trust_only(&[*present])?;
        self.decide(|tx| {
            tx.execute(
                "DELETE FROM tokens WHERE kind = 'invite' AND used_by IS NULL
                 AND hex(authority) = (SELECT value FROM hub WHERE key = ?1)",
                [FORMER],
            )?;
            let present = *present;
            add_step(
                tx,
                AuthorityStep::Finished {
                    present,
                    locked_out,
                },
            )?;
            forget_rotation(tx)
        })
    }

    /// What was done to the authority since somebody asked last.
    pub fn take_authority_steps(&mut self) -> Result<Vec<AuthorityStep>> {
        // Mostly there is nothing, and no need to write.
        if self.run(steps)?.is_empty() {
            return Ok(Vec::new());
        }
        self.write(|tx| {
            let taken = steps(tx)?;
            tx.execute("DELETE FROM hub WHERE key = ?1", [STEPS])?;
            Ok(taken)
        })
    }

    /// Certificates of these authorities are good, and those of others are not. So a hub that has
    /// its former keys back from a copy knows its former sites again.
    pub fn trust_only(&mut self, authorities: &[Digest]) -> Result<()> {
        let (Some(first), Some(last)) = (authorities.first(), authorities.last()) else {
            return Ok(());
        };
        let judge = "UPDATE certificates SET dropped = authority NOT IN (?1, ?2)
                     WHERE dropped <> (authority NOT IN (?1, ?2))";
        self.run(|db| db.execute(judge, [first, last]))?;
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

fn add_step(tx: &Connection, step: AuthorityStep) -> Outcome<()> {
    let mut all = steps(tx)?;
    all.push(step);
    let left_out = all.len().saturating_sub(MOST_STEPS);
    put_steps(tx, &all[left_out..])
}

fn put_steps(tx: &Connection, steps: &[AuthorityStep]) -> Outcome<()> {
    let text = serde_json::to_string(steps).expect("names and numbers become JSON");
    put(tx, STEPS, &text)
}

fn forget_rotation(tx: &Connection) -> Outcome<()> {
    tx.execute(
        "DELETE FROM hub WHERE key IN (?1, ?2, ?3)",
        [PRESENT, FORMER, SINCE],
    )?;
    Ok(())
}

fn steps(db: &Connection) -> rusqlite::Result<Vec<AuthorityStep>> {
    let query = "SELECT value FROM hub WHERE key = ?1";
    let found = db.query_row(query, [STEPS], |row| row.get::<_, String>(0));
    // Those of another version tell this one nothing.
    let parse = |text: String| serde_json::from_str(&text).unwrap_or_default();
    Ok(found.optional()?.map_or_else(Vec::new, parse))
}

fn hex(digest: &Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02X}")).collect()
}
