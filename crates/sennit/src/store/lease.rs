//! Which inner address a site has.
//!
//! The first host address of each pool is the hub's own; sites get the lowest one that is free and
//! keep it for good, until they are revoked or the pool moves elsewhere.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{Ipv4Net, Ipv6Net};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::Store;
use super::error::{Outcome, Result, StoreError};
use crate::config::{Pool, Prefix};
use crate::site::SiteName;

/// The inner addresses of a site, one for each family of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub v4: Option<Ipv4Addr>,
    pub v6: Option<Ipv6Addr>,
}

impl Lease {
    /// The hub's own addresses, which no site gets.
    pub fn of_hub(pool: &Pool) -> Self {
        Self {
            v4: pool
                .v4
                .map(|v4| Ipv4Addr::from_bits(v4.network().to_bits() | 1)),
            v6: pool
                .v6
                .map(|v6| Ipv6Addr::from_bits(v6.network().to_bits() | 1)),
        }
    }
}

impl Store {
    /// The addresses of `site`, the same ones each time.
    pub fn lease(&mut self, site: &SiteName, pool: &Pool) -> Result<Lease> {
        let path = self.path.clone();
        self.write(|tx| {
            let query = "SELECT v4, v6, revoked IS NOT NULL FROM sites WHERE name = ?1";
            let read = |row: &Row<'_>| {
                Ok((
                    Lease {
                        v4: address(row, 0)?,
                        v6: address(row, 1)?,
                    },
                    row.get(2)?,
                ))
            };
            let held = match tx.query_row(query, [site.as_str()], read).optional()? {
                None => {
                    return Err(StoreError::NoSuchSite {
                        site: site.clone(),
                        path,
                    }
                    .into());
                }
                Some((_, true)) => return Err(StoreError::Revoked { site: site.clone() }.into()),
                Some((held, false)) => held,
            };
            let lease = Lease {
                v4: lease_v4(tx, held.v4, pool.v4)?,
                v6: lease_v6(tx, held.v6, pool.v6)?,
            };
            if lease != held {
                let text = (
                    lease.v4.map(|a| a.to_string()),
                    lease.v6.map(|a| a.to_string()),
                );
                let update = "UPDATE sites SET v4 = ?2, v6 = ?3 WHERE name = ?1";
                tx.execute(update, params![site.as_str(), text.0, text.1])?;
            }
            Ok(lease)
        })
    }
}

fn lease_v4(
    tx: &Connection,
    held: Option<Ipv4Addr>,
    pool: Option<Ipv4Net>,
) -> Outcome<Option<Ipv4Addr>> {
    let Some(pool) = pool else { return Ok(None) };
    let bits = keep_or_find(tx, "v4", held.map(IpAddr::V4), Prefix::V4(pool))?;
    Ok(u32::try_from(bits).ok().map(Ipv4Addr::from_bits))
}

fn lease_v6(
    tx: &Connection,
    held: Option<Ipv6Addr>,
    pool: Option<Ipv6Net>,
) -> Outcome<Option<Ipv6Addr>> {
    let Some(pool) = pool else { return Ok(None) };
    let bits = keep_or_find(tx, "v6", held.map(IpAddr::V6), Prefix::V6(pool))?;
    Ok(Some(Ipv6Addr::from_bits(bits)))
}

/// `held` if it is an address of `pool`, otherwise the lowest free one.
fn keep_or_find(
    tx: &Connection,
    column: &str,
    held: Option<IpAddr>,
    pool: Prefix,
) -> Outcome<u128> {
    if let Some(held) = held.map(bits).filter(|held| hosts(pool).contains(held)) {
        return Ok(held);
    }
    let mut query = tx.prepare(&format!(
        "SELECT {column} FROM sites WHERE {column} IS NOT NULL"
    ))?;
    let mut taken = BTreeSet::new();
    for other in query.query_map([], |row| address::<IpAddr>(row, 0))? {
        taken.extend(other?.map(bits));
    }
    let free = hosts(pool).find(|candidate| !taken.contains(candidate));
    free.ok_or_else(|| {
        StoreError::PoolExhausted {
            pool: pool.to_string(),
        }
        .into()
    })
}

/// The addresses that sites can have: after the network and the hub, before IPv4's broadcast.
fn hosts(pool: Prefix) -> std::ops::Range<u128> {
    let first = bits(pool.network());
    let end = match pool {
        Prefix::V4(v4) => u128::from(v4.broadcast().to_bits()),
        Prefix::V6(v6) => v6.broadcast().to_bits(),
    };
    first + 2..end
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// An address column.
pub(super) fn address<A: FromStr>(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<A>> {
    let text: Option<String> = row.get(column)?;
    Ok(text.and_then(|text| text.parse().ok()))
}
