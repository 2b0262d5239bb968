//! What the operator allows a site, and what is known of those that were here.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::SystemTime;

use rusqlite::{Connection, OptionalExtension as _, params};

use super::error::{Outcome, Result, StoreError};
use super::{Store, seconds};
use crate::config::Prefix;
use crate::lan::{self, Host};
use crate::reach::Reach;
use crate::site::SiteName;

/// Grants of one site: far more than any needs.
const MAX_GRANTS: usize = 256;

impl Store {
    /// Lets a site announce these prefixes too, or what lies in them; all that it may announce now.
    pub fn allow(&mut self, site: &SiteName, prefixes: &[Prefix]) -> Result<Vec<Prefix>> {
        self.change_grants(site, |granted| {
            for prefix in prefixes {
                if !granted.contains(prefix) {
                    granted.push(*prefix);
                }
            }
        })
    }

    /// Takes these prefixes back, with all that was granted inside them; what is left.
    pub fn deny(&mut self, site: &SiteName, prefixes: &[Prefix]) -> Result<Vec<Prefix>> {
        self.change_grants(site, |granted| {
            granted.retain(|held| !prefixes.iter().any(|denied| denied.contains(held)));
        })
    }

    fn change_grants(
        &mut self,
        site: &SiteName,
        change: impl FnOnce(&mut Vec<Prefix>),
    ) -> Result<Vec<Prefix>> {
        let unknown = self.no_such_site(site);
        self.decide(|tx| {
            let query = "SELECT granted FROM sites WHERE name = ?1";
            let granted: Option<String> = tx
                .query_row(query, [site.as_str()], |row| row.get(0))
                .optional()?;
            let mut granted = split(&granted.ok_or(unknown)?);
            change(&mut granted);
            if granted.len() > MAX_GRANTS {
                return Err(StoreError::TooManyGrants { most: MAX_GRANTS }.into());
            }
            tx.execute(
                "UPDATE sites SET granted = ?2 WHERE name = ?1",
                [site.as_str(), &join(&granted)],
            )?;
            Ok(granted)
        })
    }

    /// What a site may reach; `None` for what the config says of all.
    pub fn set_reach(&mut self, site: &SiteName, reach: Option<&Reach>) -> Result<()> {
        let unknown = self.no_such_site(site);
        let reach = reach.map(ToString::to_string);
        self.decide(|tx| {
            let update = "UPDATE sites SET reach = ?2 WHERE name = ?1";
            match tx.execute(update, params![site.as_str(), reach])? {
                0 => Err(unknown.into()),
                _ => Ok(()),
            }
        })
    }

    /// Remembers what a site announced, and what of that is not routed and why.
    pub fn announce(
        &mut self,
        site: &SiteName,
        lan: &[Prefix],
        refused: &[(Prefix, String)],
    ) -> Result<()> {
        let mut lines = String::new();
        for (prefix, why) in refused {
            let _ = writeln!(lines, "{prefix} {}", why.replace('\n', " "));
        }
        let update = "UPDATE sites SET lan = ?2, refused = ?3
                      WHERE name = ?1 AND (lan <> ?2 OR refused <> ?3)";
        self.run(|db| db.execute(update, [site.as_str(), &join(lan), &lines]))?;
        Ok(())
    }

    /// These sites are here now, and this is where from.
    pub fn saw(&mut self, sites: &[(SiteName, Vec<IpAddr>)], now: SystemTime) -> Result<()> {
        if sites.is_empty() {
            return Ok(());
        }
        self.write(|tx| {
            for (site, from) in sites {
                let from: Vec<String> = from.iter().map(ToString::to_string).collect();
                tx.execute(
                    "UPDATE sites SET seen = ?2, seen_from = ?3 WHERE name = ?1",
                    params![site.as_str(), seconds(now), from.join(" ")],
                )?;
            }
            Ok(())
        })
    }

    /// Remembers what the hub has, for commands that run without it.
    pub fn set_host(&mut self, host: &Host) -> Result<()> {
        let addresses: Vec<String> = host.addresses.iter().map(ToString::to_string).collect();
        let values = [
            ("pool", join(&host.pool)),
            ("addresses", addresses.join(" ")),
        ];
        self.write(|tx| {
            values
                .iter()
                .try_for_each(|(key, value)| put(tx, key, value))
        })
    }

    /// What the hub had when it last ran; nothing if it never did.
    pub fn host(&self) -> Result<Host> {
        let value = |db: &Connection, key: &str| -> rusqlite::Result<String> {
            let query = "SELECT value FROM hub WHERE key = ?1";
            let value = db.query_row(query, [key], |row| row.get(0)).optional()?;
            Ok(value.unwrap_or_default())
        };
        self.run(|db| {
            let addresses = value(db, "addresses")?;
            let addresses = addresses.split_whitespace();
            Ok(Host {
                pool: split(&value(db, "pool")?),
                addresses: addresses.filter_map(|it| it.parse().ok()).collect(),
            })
        })
    }

    /// Whether a prefix can be granted at all, as far as the store knows the hub.
    pub fn can_grant(&self, prefix: &Prefix) -> Result<()> {
        match lan::never(prefix, &self.host()?) {
            None => Ok(()),
            Some(why) => Err(StoreError::NotGrantable {
                prefix: *prefix,
                why,
            }),
        }
    }

    fn no_such_site(&self, site: &SiteName) -> StoreError {
        StoreError::NoSuchSite {
            site: site.clone(),
            path: self.path.clone(),
        }
    }
}

/// Writes only what is new, so that nobody else is told of nothing.
pub(super) fn put(tx: &Connection, key: &str, value: &str) -> Outcome<()> {
    tx.execute(
        "INSERT INTO hub (key, value) VALUES (?1, ?2)
         ON CONFLICT (key) DO UPDATE SET value = ?2 WHERE value <> ?2",
        [key, value],
    )?;
    Ok(())
}

/// Prefixes as a column holds them.
pub(super) fn join(prefixes: &[Prefix]) -> String {
    let words: Vec<String> = prefixes.iter().map(ToString::to_string).collect();
    words.join(" ")
}

pub(super) fn split(column: &str) -> Vec<Prefix> {
    let words = column.split_whitespace();
    words.filter_map(|prefix| prefix.parse().ok()).collect()
}

/// The lines that [`Store::announce`] wrote.
pub(super) fn split_refused(column: &str) -> Vec<(Prefix, String)> {
    let line = |line: &str| {
        let (prefix, why) = line.split_once(' ')?;
        Some((prefix.parse().ok()?, why.to_owned()))
    };
    column.lines().filter_map(line).collect()
}
