//! What a hub remembers: sites, tokens, certificates and leases, in one SQLite file.
//!
//! The daemon and the command line open the same file at the same time (WAL), so `invite` and
//! `revoke` work whether or not the hub runs; [`Store::generation`] tells a daemon that somebody
//! else wrote. Secrets never get here: a token is kept as its SHA-256. Every step that must happen
//! wholly or not at all is one statement or one transaction. The clock is an argument.

mod error;
mod grant;
mod invitation;
mod lease;
mod rotation;
mod schema;
mod sites;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Row, TransactionBehavior, params};
use sennit_linux::Directory;

use crate::date;
use crate::site::SiteName;

pub use self::error::StoreError;
pub(crate) use self::error::touch_private;
use self::error::{Failed, Outcome, Result};
pub use self::invitation::OpenInvitation;
pub use self::lease::Lease;
pub use self::rotation::AuthorityStep;
pub use self::sites::SiteRecord;

/// SHA-256 of a secret, key or certificate.
pub type Digest = [u8; 32];

/// The hub's database.
pub struct Store {
    db: Connection,
    path: PathBuf,
}

/// What a token is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// To be exchanged once for a certificate.
    Invite,
    /// Sent with each request by a third-party client.
    Bearer,
}

/// A token that was issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    pub site: SiteName,
    pub kind: TokenKind,
    pub expires: Option<SystemTime>,
    /// Key that it was exchanged for.
    pub used_by: Option<Digest>,
    pub site_revoked: bool,
}

/// A certificate that was issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRecord {
    pub site: SiteName,
    pub der: Vec<u8>,
    /// Hash of the public key.
    pub key: Digest,
    pub not_after: SystemTime,
    /// Of which authority it is, by the hash of that one's certificate; nothing is said of the
    /// first that a hub had.
    pub authority: Option<Digest>,
    /// Its authority was dropped.
    pub dropped: bool,
    pub revoked: bool,
    /// Revoked because the site has joined anew with another key.
    pub retired: bool,
    pub site_revoked: bool,
}

/// What became of a token that was to be exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redeemed {
    /// It is used up, and the certificate is the site's; those of other keys are retired.
    Done,
    /// It is no invitation of this hub, or one that was withdrawn, or that a newer one replaced.
    Unknown,
    SiteRevoked,
    Expired,
    /// Another key was faster.
    Used,
}

/// A certificate to remember.
#[derive(Clone, Copy, Debug)]
pub struct NewCertificate<'a> {
    pub site: &'a SiteName,
    pub fingerprint: &'a Digest,
    /// Hash of its authority's certificate.
    pub authority: &'a Digest,
    pub der: &'a [u8],
    pub key: &'a Digest,
    pub not_after: SystemTime,
}

impl Store {
    /// Name of the file in the state directory.
    pub const FILE: &str = "hub.db";

    /// Creates the store in `state`, or opens the one that is there.
    pub fn create(state: &Path) -> Result<Self> {
        let path = state.join(Self::FILE);
        error::touch_private(&path)?;
        Self::open_file(path)
    }

    /// Opens the store in `state`.
    pub fn open(state: &Path) -> Result<Self> {
        let path = state.join(Self::FILE);
        let looked = Directory::of(&path).and_then(|(directory, name)| directory.look(&name));
        match looked.map_err(|error| (error.kind(), error)) {
            Err((ErrorKind::NotFound, _)) => Err(StoreError::Missing { path }),
            Err((ErrorKind::InvalidInput, source)) => Err(StoreError::Io { path, source }),
            // SQLite says what else is wrong.
            _ => Self::open_file(path),
        }
    }

    /// SQLite takes a path and follows links. In the directory of somebody else root has no more
    /// rights than he while it opens its files, which it does here alone.
    fn open_file(path: PathBuf) -> Result<Self> {
        match Directory::of(&path) {
            Ok((directory, _)) => directory.as_owner(|| Self::open_here(path)),
            Err(source) => Err(StoreError::Io { path, source }),
        }
    }

    fn open_here(path: PathBuf) -> Result<Self> {
        error::check_exposure(&path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut db = Connection::open_with_flags(&path, flags)
            .map_err(|e| StoreError::from_sqlite(&path, e))?;
        schema::prepare(&mut db, &path)?;
        Ok(Self { db, path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A number that changes when another connection has written.
    pub fn generation(&self) -> Result<i64> {
        self.run(|db| db.pragma_query_value(None, "data_version", |row| row.get(0)))
    }

    /// Makes the site known, and valid again if it was revoked; older invitations lapse, and used
    /// ones that have expired are forgotten. One that names no authority is of the first that the
    /// hub had.
    pub fn invite(
        &mut self,
        site: &SiteName,
        hash: &Digest,
        expires: Option<SystemTime>,
        kind: TokenKind,
        authority: Option<&Digest>,
        now: SystemTime,
    ) -> Result<()> {
        self.decide(|tx| {
            check_kind(tx, site, kind, now)?;
            tx.execute(
                "INSERT INTO sites (name, created) VALUES (?1, ?2)
                 ON CONFLICT (name) DO UPDATE SET revoked = NULL",
                params![site.as_str(), seconds(now)],
            )?;
            if kind == TokenKind::Invite {
                tx.execute(
                    "DELETE FROM tokens WHERE site = ?1 AND kind = 'invite'
                     AND (used_by IS NULL OR expires <= ?2)",
                    params![site.as_str(), seconds(now)],
                )?;
            }
            tx.execute(
                "INSERT INTO tokens (hash, site, kind, created, expires, authority)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    hash,
                    site.as_str(),
                    kind.name(),
                    seconds(now),
                    expires.map(seconds),
                    authority
                ],
            )?;
            Ok(())
        })
    }

    /// The token with this hash.
    pub fn token(&self, hash: &Digest) -> Result<Option<TokenRecord>> {
        self.run(|db| {
            db.query_row(
                "SELECT site, kind, expires, used_by, sites.revoked IS NOT NULL
                 FROM tokens JOIN sites ON sites.name = site WHERE hash = ?1",
                [hash],
                |row| {
                    Ok(TokenRecord {
                        site: site_name(row, 0)?,
                        kind: TokenKind::named(&row.get::<_, String>(1)?),
                        expires: row.get::<_, Option<i64>>(2)?.map(instant),
                        used_by: row.get(3)?,
                        site_revoked: row.get(4)?,
                    })
                },
            )
            .optional()
        })
    }

    /// Uses up an invitation for a certificate, if it is good now: one step, so that of two keys
    /// with one token one gets a certificate, and a revocation meanwhile counts.
    pub fn redeem(
        &mut self,
        token: &Digest,
        certificate: &NewCertificate<'_>,
        now: SystemTime,
    ) -> Result<Redeemed> {
        self.decide(|tx| {
            let query = "SELECT expires, used_by, sites.revoked IS NOT NULL
                         FROM tokens JOIN sites ON sites.name = site
                         WHERE hash = ?1 AND site = ?2 AND kind = 'invite'";
            let read = |row: &Row<'_>| {
                let expires = row.get::<_, Option<i64>>(0)?.map(instant);
                Ok((expires, row.get::<_, Option<Digest>>(1)?, row.get(2)?))
            };
            let site = certificate.site.as_str();
            let known = tx.query_row(query, params![token, site], read).optional()?;
            match known {
                None => return Ok(Redeemed::Unknown),
                Some((_, _, true)) => return Ok(Redeemed::SiteRevoked),
                Some((Some(expires), _, _)) if now >= expires => return Ok(Redeemed::Expired),
                Some((_, Some(key), _)) if key != *certificate.key => return Ok(Redeemed::Used),
                Some(_) => {}
            }
            tx.execute(
                "UPDATE tokens SET used_by = ?2 WHERE hash = ?1",
                params![token, certificate.key],
            )?;
            tx.execute(
                "UPDATE certificates SET revoked = 1, retired = 1
                 WHERE site = ?1 AND key <> ?2 AND NOT revoked",
                params![site, certificate.key],
            )?;
            insert_certificate(tx, certificate)?;
            Ok(Redeemed::Done)
        })
    }

    /// Remembers a fresh certificate of a site that has shown another, unless that one or the site
    /// was revoked meanwhile, which counts as in [`Self::redeem`]; false then.
    pub fn renew(&mut self, shown: &Digest, fresh: &NewCertificate<'_>) -> Result<bool> {
        self.decide(|tx| {
            let query = "SELECT EXISTS (
                             SELECT 1 FROM certificates JOIN sites ON sites.name = site
                             WHERE fingerprint = ?1 AND site = ?2 AND sites.revoked IS NULL
                             AND NOT certificates.revoked AND NOT dropped)";
            let values = params![shown, fresh.site.as_str()];
            let is_good: bool = tx.query_row(query, values, |row| row.get(0))?;
            if is_good {
                insert_certificate(tx, fresh)?;
            }
            Ok(is_good)
        })
    }

    /// The certificate with this SHA-256.
    pub fn certificate(&self, fingerprint: &Digest) -> Result<Option<CertificateRecord>> {
        self.certificate_where("fingerprint = ?1", params![fingerprint])
    }

    /// The newest valid certificate of `site` for this key.
    pub fn certificate_for(
        &self,
        site: &SiteName,
        key: &Digest,
    ) -> Result<Option<CertificateRecord>> {
        let newest = "site = ?1 AND key = ?2 AND NOT certificates.revoked AND NOT dropped
                      ORDER BY not_after DESC LIMIT 1";
        self.certificate_where(newest, params![site.as_str(), key])
    }

    fn certificate_where(
        &self,
        condition: &str,
        params: &[&dyn rusqlite::ToSql],
    ) -> Result<Option<CertificateRecord>> {
        let query = format!(
            "SELECT site, der, key, not_after, certificates.revoked, retired,
                    sites.revoked IS NOT NULL, authority, dropped
             FROM certificates JOIN sites ON sites.name = site WHERE {condition}"
        );
        let read = |row: &Row<'_>| {
            Ok(CertificateRecord {
                site: site_name(row, 0)?,
                der: row.get(1)?,
                key: row.get(2)?,
                not_after: instant(row.get(3)?),
                revoked: row.get(4)?,
                retired: row.get(5)?,
                site_revoked: row.get(6)?,
                authority: row.get(7)?,
                dropped: row.get(8)?,
            })
        };
        self.run(|db| db.query_row(&query, params, read).optional())
    }

    /// Shuts a site out: its certificates and tokens are void and its addresses free.
    ///
    /// False when it was revoked before.
    pub fn revoke(&mut self, site: &SiteName, now: SystemTime) -> Result<bool> {
        let path = self.path.clone();
        self.decide(|tx| {
            let query = "SELECT revoked IS NULL FROM sites WHERE name = ?1";
            let known: Option<bool> = tx
                .query_row(query, [site.as_str()], |row| row.get(0))
                .optional()?;
            if known == Some(true) {
                let void = "UPDATE sites SET revoked = ?2, v4 = NULL, v6 = NULL WHERE name = ?1";
                tx.execute(void, params![site.as_str(), seconds(now)])?;
                tx.execute(
                    "UPDATE certificates SET revoked = 1 WHERE site = ?1",
                    [site.as_str()],
                )?;
                tx.execute(
                    "DELETE FROM tokens WHERE site = ?1 AND kind = 'bearer'",
                    [site.as_str()],
                )?;
            }
            Ok(known.ok_or_else(|| StoreError::NoSuchSite {
                site: site.clone(),
                path,
            })?)
        })
    }

    /// Changes the file over this very connection, which [`Self::generation`] does not tell.
    #[cfg(test)]
    pub(crate) fn alter(&self, statement: &str) {
        self.db
            .execute_batch(statement)
            .expect("a statement of a test holds");
    }

    fn run<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        work(&self.db).map_err(|e| StoreError::from_sqlite(&self.path, e))
    }

    /// One transaction that takes the write lock at once, so that it cannot fail half-way as busy.
    fn write<T>(&mut self, work: impl FnOnce(&Connection) -> Outcome<T>) -> Result<T> {
        let attempt = || {
            let tx = self
                .db
                .transaction_with_behavior(TransactionBehavior::Immediate)?;
            let value = work(&tx)?;
            tx.commit()?;
            Ok(value)
        };
        attempt().map_err(|failed: Failed| failed.at(&self.path))
    }

    /// A transaction on who may come in, and where to. What it has written is in the main file at
    /// its end, unless somebody reads just then: who copies that file alone, while the hub runs,
    /// has it too.
    fn decide<T>(&mut self, work: impl FnOnce(&Connection) -> Outcome<T>) -> Result<T> {
        let decided = self.write(work)?;
        // What is not moved now is in the log beside the file, as before.
        let _ = self
            .db
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        Ok(decided)
    }
}

/// A name is a site's or a bearer client's, because what either may reach differs by default.
fn check_kind(tx: &Connection, site: &SiteName, kind: TokenKind, now: SystemTime) -> Outcome<()> {
    let (query, error) = match kind {
        TokenKind::Bearer => (
            "SELECT EXISTS (SELECT 1 FROM certificates
                            WHERE site = ?1 AND NOT revoked AND not_after > ?2)
                 OR EXISTS (SELECT 1 FROM tokens WHERE site = ?1 AND kind = 'invite'
                            AND used_by IS NULL AND expires > ?2)",
            StoreError::NameOfSite { site: site.clone() },
        ),
        TokenKind::Invite => (
            "SELECT EXISTS (SELECT 1 FROM tokens WHERE site = ?1 AND kind = 'bearer'
                            AND (expires IS NULL OR expires > ?2))",
            StoreError::NameOfClient { site: site.clone() },
        ),
    };
    let values = params![site.as_str(), seconds(now)];
    let taken: bool = tx.query_row(query, values, |row| row.get(0))?;
    if taken { Err(error.into()) } else { Ok(()) }
}

fn insert_certificate(db: &Connection, new: &NewCertificate<'_>) -> rusqlite::Result<()> {
    db.execute(
        "INSERT INTO certificates (fingerprint, site, key, der, not_after, authority)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            new.fingerprint,
            new.site.as_str(),
            new.key,
            new.der,
            seconds(new.not_after),
            new.authority
        ],
    )?;
    Ok(())
}

impl TokenKind {
    fn name(self) -> &'static str {
        match self {
            Self::Invite => "invite",
            Self::Bearer => "bearer",
        }
    }

    /// The schema admits the two names only.
    fn named(name: &str) -> Self {
        if name == "bearer" {
            Self::Bearer
        } else {
            Self::Invite
        }
    }
}

fn site_name(row: &Row<'_>, column: usize) -> rusqlite::Result<SiteName> {
    let name: String = row.get(column)?;
    name.parse().map_err(|bad| {
        rusqlite::Error::FromSqlConversionFailure(
            column,
            rusqlite::types::Type::Text,
            Box::new(bad),
        )
    })
}

/// Seconds since 1970, as the file keeps time.
fn seconds(time: SystemTime) -> i64 {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn instant(seconds: i64) -> SystemTime {
    date::nearest(u64::try_from(seconds).unwrap_or(0))
}
