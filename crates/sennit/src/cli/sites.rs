//! `sennit invite`, `join`, `sites` and `revoke`.

use std::fs;
use std::io::{self, Read as _};
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::{Exit, Failure, InviteArgs, JoinArgs, RevokeArgs, SitesArgs, output, starter};
use crate::control::{Client, ClientError, Request};
use crate::identity::{self, Authority, EdgeIdentity, Invitation};
use crate::store::{SiteRecord, Store};

/// How long an invitation is good: a day to send it and to use it.
const DEFAULT_TTL: Duration = Duration::from_secs(86_400);
/// A token is a few hundred characters.
const MAX_TOKEN_BYTES: u64 = 16 * 1024;
/// For a daemon to hear that a site was revoked.
const PATIENCE: Duration = Duration::from_secs(5);

/// What `invite --json` prints.
#[derive(Serialize)]
struct InviteDocument<'a> {
    schema: &'static str,
    site: &'a str,
    kind: &'static str,
    token: &'a str,
    expires: Option<String>,
}

pub(super) fn invite(args: &InviteArgs) -> Result<Exit, Failure> {
    let now = SystemTime::now();
    let authority = Authority::load(&args.state.dir)?;
    let mut store = Store::open(&args.state.dir)?;
    let (kind, token, expires) = if args.bearer {
        let token = identity::invite_bearer(&mut store, &args.site, args.ttl, now)?;
        ("bearer", token, args.ttl.map(|ttl| now + ttl))
    } else {
        let ttl = args.ttl.unwrap_or(DEFAULT_TTL);
        let invitation =
            identity::invite(&mut store, &authority, &args.site, &args.hubs, ttl, now)?;
        ("invite", invitation.to_string(), Some(invitation.expires))
    };
    let expires = expires.map(output::date);
    if args.json {
        let site = args.site.as_str();
        return output::print_json(&InviteDocument {
            schema: "sennit.invite/1",
            site,
            kind,
            token: &token,
            expires,
        });
    }
    let until = expires.map_or("until it is revoked".into(), |date| format!("until {date}"));
    if args.bearer {
        eprintln!(
            "Bearer token for `{}`, good {until}. The hub's CA: sennit hub ca",
            args.site
        );
    } else {
        eprintln!("On the edge, once, {until}:  sennit join TOKEN");
    }
    output::print(&format!("{token}\n"))
}

pub(super) fn join(args: &JoinArgs) -> Result<Exit, Failure> {
    let now = SystemTime::now();
    let invitation: Invitation = token(&args.token)?.parse()?;
    let invitation = invitation.still_valid(now)?;
    let identity = EdgeIdentity::join(&args.state.dir, &invitation, args.force)?;
    let config = starter::write(&args.state.dir, &identity)?;
    let until = output::date(invitation.expires);
    eprintln!(
        "This edge is `{}` of hub {}.",
        identity.site, identity.authority
    );
    eprintln!("It must connect for the first time before {until}:");
    eprintln!("  sennit edge --config {}", config.display());
    Ok(Exit::Ok)
}

/// The token itself, from wherever the command line says it is.
fn token(source: &str) -> Result<String, Failure> {
    let mut token = String::new();
    let read = match source.strip_prefix("file:") {
        Some(path) => fs::File::open(path)
            .and_then(|file| file.take(MAX_TOKEN_BYTES).read_to_string(&mut token)),
        None if source == "-" => io::stdin().take(MAX_TOKEN_BYTES).read_to_string(&mut token),
        None => return Ok(source.into()),
    };
    match read {
        Ok(_) => Ok(token),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Failure::new(
            Exit::NotFound,
            format!("cannot read the token: {error}"),
        )),
        Err(error) => Err(Failure::runtime(format!("cannot read the token: {error}"))),
    }
}

/// What `sites --json` prints.
#[derive(Serialize)]
struct SitesDocument {
    schema: &'static str,
    sites: Vec<SiteDocument>,
}

#[derive(Serialize)]
struct SiteDocument {
    name: String,
    state: &'static str,
    created: String,
    revoked: Option<String>,
    certified_until: Option<String>,
    addresses: Vec<String>,
    lan: Vec<String>,
}

pub(super) fn list(args: &SitesArgs) -> Result<Exit, Failure> {
    let sites = Store::open(&args.state.dir)?.sites(SystemTime::now())?;
    let sites: Vec<SiteDocument> = sites.iter().map(SiteDocument::from).collect();
    if args.json {
        return output::print_json(&SitesDocument {
            schema: "sennit.sites/1",
            sites,
        });
    }
    if sites.is_empty() {
        eprintln!("No sites yet. Let one in: sennit invite SITE --hub ADDR:PORT");
        return Ok(Exit::Ok);
    }
    let width = sites
        .iter()
        .map(|site| site.name.len())
        .max()
        .unwrap_or(0)
        .max(4);
    let mut text = format!("{:width$}  {:8}  ADDRESSES\n", "SITE", "STATE");
    for site in sites {
        let mut inner = site.addresses.join(" ");
        if !site.lan.is_empty() {
            inner += &format!("  lan {}", site.lan.join(" "));
        }
        text += format!("{:width$}  {:8}  {inner}", site.name, site.state).trim_end();
        text.push('\n');
    }
    output::print(&text)
}

impl From<&SiteRecord> for SiteDocument {
    fn from(site: &SiteRecord) -> Self {
        let state = match (site.revoked, site.certified_until) {
            (Some(_), _) => "revoked",
            (None, Some(_)) => "joined",
            (None, None) => "invited",
        };
        let v4 = site.v4.map(|v4| v4.to_string());
        let v6 = site.v6.map(|v6| v6.to_string());
        Self {
            name: site.name.to_string(),
            state,
            created: output::date(site.created),
            revoked: site.revoked.map(output::date),
            certified_until: site.certified_until.map(output::date),
            addresses: v4.into_iter().chain(v6).collect(),
            lan: site.lan.iter().map(ToString::to_string).collect(),
        }
    }
}

pub(super) fn revoke(args: &RevokeArgs) -> Result<Exit, Failure> {
    let fresh = Store::open(&args.state.dir)?.revoke(&args.site, SystemTime::now())?;
    if !fresh {
        eprintln!("Site `{}` was revoked before.", args.site);
    }
    let request = Request::Disconnect {
        site: args.site.clone(),
    };
    match Client::connect(&args.control, PATIENCE).and_then(|mut hub| hub.request(&request)) {
        Ok(_) => eprintln!("Site `{}` is revoked and disconnected.", args.site),
        // The store is what counts; a hub that does not run has nobody to disconnect.
        Err(error @ ClientError::Unreachable { .. }) => {
            eprintln!(
                "Site `{}` is revoked. No tunnel was ended: {error}",
                args.site
            );
        }
        Err(error) => {
            return Err(Failure::runtime(format!(
                "site `{}` is revoked, but its tunnels may last: {error}",
                args.site
            )));
        }
    }
    Ok(Exit::Ok)
}
