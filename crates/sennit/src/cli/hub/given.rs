//! `sennit hub leases`, `invitations` and `withdraw`: what a hub has given and not got back.

use std::time::SystemTime;

use crate::cli::{Exit, Failure, output};
use crate::date;
use crate::leases::Leases;
use crate::site::SiteName;
use crate::store::{OpenInvitation, Store};
use std::path::Path;

pub(super) fn leases(state: &Path, json: bool) -> Result<Exit, Failure> {
    let sites = Store::open(state)?.sites(SystemTime::now())?;
    let leases = Leases::of(&sites, None);
    if json {
        return output::print_json(&leases);
    }
    if leases.leases.is_empty() {
        output::say!("No site has an address yet: each gets one when it first connects.");
        return Ok(Exit::Ok);
    }
    let widest = leases.leases.iter().map(|lease| lease.site.len()).max();
    let width = widest.unwrap_or(0).max(4);
    let mut text = format!("{:width$}  {:20}  ADDRESSES\n", "SITE", "SEEN");
    for lease in &leases.leases {
        let seen = lease.last_seen.as_deref().unwrap_or("never");
        let addresses: Vec<String> = lease.addresses.iter().map(ToString::to_string).collect();
        text += &format!(
            "{:width$}  {seen:20}  {}\n",
            lease.site,
            addresses.join(" ")
        );
    }
    output::print(&text)
}

pub(super) fn invitations(state: &Path) -> Result<Exit, Failure> {
    let open = Store::open(state)?.invitations()?;
    if open.is_empty() {
        output::say!("No invitation waits to be used.");
        return Ok(Exit::Ok);
    }
    let width = open.iter().map(|it| it.site.to_string().len()).max();
    let width = width.unwrap_or(0).max(4);
    let now = SystemTime::now();
    let mut text = format!("{:width$}  {:20}  UNTIL\n", "SITE", "INVITED");
    for OpenInvitation {
        site,
        created,
        expires,
    } in open
    {
        let (from, until) = (date::seconds(created), date::seconds(expires));
        let over = if expires <= now { "  (expired)" } else { "" };
        text += &format!("{:width$}  {from:20}  {until}{over}\n", site.as_str());
    }
    output::print(&text)
}

pub(super) fn withdraw(state: &Path, site: &SiteName) -> Result<Exit, Failure> {
    Store::open(state)?.withdraw(site)?;
    output::say!(
        "The invitation of site `{site}` is withdrawn: its token lets nobody in any more."
    );
    Ok(Exit::Ok)
}
