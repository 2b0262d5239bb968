//! `sennit invite`, `sites` and `revoke`.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::{Exit, Failure, InviteArgs, RevokeArgs, SitesArgs, grants, output};
use crate::config::Prefix;
use crate::control::{Client, ClientError, Invited, Request};
use crate::date;
use crate::identity::{self, Authority};
use crate::qr;
use crate::reach::Reach;
use crate::status::{RefusedPrefix, Role, Status, TunnelStatus, duration};
use crate::store::{SiteRecord, Store};

/// How long an invitation is good: a day to send it and to use it.
const DEFAULT_TTL: Duration = Duration::from_secs(86_400);
/// For a daemon to hear that a site was revoked.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn invite(args: &InviteArgs) -> Result<Exit, Failure> {
    let now = SystemTime::now();
    let authority = Authority::load(&args.state.dir)?;
    let mut store = Store::open(&args.state.dir)?;
    grants::check(&store, &args.lans)?;
    let waits = store.site(&args.site, now).is_ok_and(|it| it.invited);
    let (kind, token, expires) = if args.bearer {
        let token = identity::invite_bearer(&mut store, &args.site, args.ttl, now)?;
        ("bearer", token, args.ttl.map(|ttl| now + ttl))
    } else {
        let ttl = args.ttl.unwrap_or(DEFAULT_TTL);
        let invitation =
            identity::invite(&mut store, &authority, &args.site, &args.hubs, ttl, now)?;
        ("invite", invitation.to_string(), Some(invitation.expires))
    };
    if !args.lans.is_empty() {
        store.allow(&args.site, &args.lans)?;
        grants::warn(&store, &args.site, &args.lans)?;
    }
    if waits && !args.bearer {
        output::say!("The earlier token of `{}` is void from now on.", args.site);
    }
    let expires = expires.map(date::seconds);
    if args.json {
        return output::print_json(&Invited {
            schema: Invited::SCHEMA.into(),
            site: args.site.to_string(),
            kind: kind.into(),
            qr: args.qr.then(|| qr::rows(&token)).flatten(),
            token,
            expires,
        });
    }
    let until = expires.map_or("until it is revoked".into(), |date| format!("until {date}"));
    if args.bearer {
        output::say!(
            "Bearer token for `{}`, good {until}. The hub's CA: sennit hub ca",
            args.site
        );
    } else {
        output::say!("On the edge, once, {until}:  sennit join TOKEN");
    }
    if let Some(code) = args.qr.then(|| qr::on_terminal(&token)).flatten() {
        // Beside the token, which alone is what a pipe wants.
        output::say_text(&code);
    }
    output::print(&format!("{token}\n"))
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
    /// What it proves itself by, `certificate` or `bearer`.
    kind: &'static str,
    created: String,
    revoked: Option<String>,
    certified_until: Option<String>,
    addresses: Vec<String>,
    /// Whether it has a tunnel; absent if the hub does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    online: Option<bool>,
    /// How long it has had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    online_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_seen: Option<String>,
    /// Where it comes from, or came from last.
    from: Vec<LinkDocument>,
    /// What it may announce.
    granted: Vec<String>,
    /// What is routed to it while it is here.
    lan: Vec<String>,
    /// What it announced besides.
    refused: Vec<RefusedPrefix>,
    /// What it may reach, if that was said of it alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    reach: Option<Vec<String>>,
    /// Whether it knows only the former authority of a hub that has another one.
    only_former_authority: bool,
}

/// Where one of a site's links comes from.
#[derive(Serialize)]
struct LinkDocument {
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<String>,
    address: String,
}

pub(super) fn list(args: &SitesArgs) -> Result<Exit, Failure> {
    let now = SystemTime::now();
    let sites = Store::open(&args.state.dir)?.sites(now)?;
    let hub = hub_status(&args.control);
    let sites: Vec<SiteDocument> = sites
        .iter()
        .map(|site| SiteDocument::new(site, hub.as_ref()))
        .collect();
    if args.json {
        return output::print_json(&SitesDocument {
            schema: "sennit.sites/1",
            sites,
        });
    }
    if sites.is_empty() {
        output::say!("No sites yet. Let one in: sennit invite SITE --hub ADDR:PORT");
        return Ok(Exit::Ok);
    }
    let widest = sites.iter().map(|site| site.name.len()).max();
    let width = widest.unwrap_or(0).max(4);
    let mut text = format!(
        "{:width$}  {:8}  {:22}  ADDRESSES\n",
        "SITE", "STATE", "SEEN"
    );
    for site in &sites {
        site.write(width, &mut text);
    }
    output::print(&text)
}

/// What the running hub says; nothing if there is none, or if it has another store.
fn hub_status(control: &Path) -> Option<Status> {
    let mut client = Client::connect(control, PATIENCE).ok()?;
    let document = client.request(&Request::Status).ok()?;
    let status: Status = serde_json::from_value(document).ok()?;
    (status.role == Role::Hub).then_some(status)
}

impl SiteDocument {
    fn new(site: &SiteRecord, hub: Option<&Status>) -> Self {
        let state = match (site.revoked, site.certified_until) {
            (Some(_), _) => "revoked",
            (None, _) if site.bearer => "client",
            (None, Some(_)) => "joined",
            (None, None) if site.invited => "invited",
            (None, None) => "left out",
        };
        let tunnels = hub.map_or(&[][..], |hub| &hub.tunnels);
        let tunnels: Vec<&TunnelStatus> =
            tunnels.iter().filter(|it| it.site == site.name).collect();
        let since = tunnels.iter().map(|tunnel| tunnel.since_seconds);
        let addresses = [site.v4.map(IpAddr::V4), site.v6.map(IpAddr::V6)];
        let refused = |prefix: &Prefix| site.refused.iter().any(|(other, _)| other == prefix);
        let routed = site.lan.iter().filter(|prefix| !refused(prefix));
        Self {
            name: site.name.to_string(),
            state,
            kind: if site.bearer { "bearer" } else { "certificate" },
            created: date::seconds(site.created),
            revoked: site.revoked.map(date::seconds),
            certified_until: site.certified_until.map(date::seconds),
            addresses: words(addresses.into_iter().flatten()),
            online: hub.map(|_| !tunnels.is_empty()),
            online_seconds: since.reduce(f64::max),
            last_seen: site.seen.map(date::seconds),
            from: links(site, &tunnels),
            granted: words(&site.granted),
            lan: words(routed),
            refused: site.refused.iter().map(refusal).collect(),
            reach: site.reach.as_ref().map(Reach::words),
            only_former_authority: site.behind,
        }
    }

    fn write(&self, width: usize, text: &mut String) {
        let seen = match (self.online, self.online_seconds, &self.last_seen) {
            (Some(true), Some(seconds), _) => format!("online for {}", duration(seconds)),
            (_, _, Some(date)) => date.clone(),
            (_, _, None) => "never".into(),
        };
        let inner = self.addresses.join(" ");
        let line = format!("{:width$}  {:8}  {seen:22}  {inner}", self.name, self.state);
        text.push_str(line.trim_end());
        text.push('\n');
        let mut note = |what: &str, value: String| {
            if !value.is_empty() {
                *text += &format!("{:width$}  {what} {value}\n", "");
            }
        };
        let from = self.from.iter().map(|from| match &from.link {
            Some(link) => format!("{link} {}", from.address),
            None => from.address.clone(),
        });
        note("from", from.collect::<Vec<String>>().join(", "));
        note("may announce", self.granted.join(" "));
        note("lan", self.lan.join(" "));
        for RefusedPrefix { prefix, reason } in &self.refused {
            note("refused", format!("{prefix}: {reason}"));
        }
        if self.only_former_authority {
            note("knows", "only the former authority of this hub".into());
        }
        if let Some(reach) = &self.reach {
            let nothing = reach.is_empty().then(|| "nothing".to_owned());
            note("reaches", nothing.unwrap_or_else(|| reach.join(" ")));
        }
    }
}

/// The outer address of each link, over all classes; if the site is away, those that it had.
fn links(site: &SiteRecord, tunnels: &[&TunnelStatus]) -> Vec<LinkDocument> {
    let paths = tunnels.iter().flat_map(|tunnel| &tunnel.paths);
    let here: BTreeSet<(Option<&String>, IpAddr)> = paths
        .map(|path| (path.link.as_ref(), path.remote.ip().to_canonical()))
        .collect();
    let here = here.into_iter().map(|(link, address)| LinkDocument {
        link: link.cloned(),
        address: address.to_string(),
    });
    let here: Vec<LinkDocument> = here.collect();
    if !here.is_empty() {
        return here;
    }
    let before = site.seen_from.iter().map(|address| LinkDocument {
        link: None,
        address: address.to_string(),
    });
    before.collect()
}

fn refusal((prefix, reason): &(Prefix, String)) -> RefusedPrefix {
    RefusedPrefix {
        prefix: prefix.to_string(),
        reason: reason.clone(),
    }
}

fn words<T: ToString>(values: impl IntoIterator<Item = T>) -> Vec<String> {
    values.into_iter().map(|value| value.to_string()).collect()
}

pub(super) fn revoke(args: &RevokeArgs) -> Result<Exit, Failure> {
    let now = SystemTime::now();
    let mut store = Store::open(&args.state.dir)?;
    let site = store.site(&args.site, now)?;
    let has_tunnel = |hub: Status| hub.tunnels.iter().any(|it| it.site == args.site);
    let is_here = hub_status(&args.control).is_some_and(has_tunnel);
    let fresh = store.revoke(&args.site, now)?;
    if !fresh {
        output::say!("Site `{}` was revoked before.", args.site);
    }
    let request = Request::Disconnect {
        site: args.site.clone(),
    };
    match Client::connect(&args.control, PATIENCE).and_then(|mut hub| hub.request(&request)) {
        Ok(_) if is_here => output::say!("Site `{}` is revoked and disconnected.", args.site),
        Ok(_) if site.invited && site.seen.is_none() => output::say!(
            "Site `{}` is revoked: it had not joined yet, and its token is void.",
            args.site
        ),
        Ok(_) => output::say!("Site `{}` is revoked; it was not connected.", args.site),
        // The store is what counts: whichever hub runs with it looks at it every second.
        Err(error @ (ClientError::Unreachable { .. } | ClientError::Ended { .. })) => {
            output::say!(
                "Site `{}` is revoked. A hub that runs with {} ends its tunnels within a second; \
                 none could be told ({error}): its socket is named by --control.",
                args.site,
                args.state.dir.display()
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
