//! Sites are invited at a running hub: what `sennit invite` does, for the API and the page; and
//! which addresses they have.
//!
//! The store is opened anew for each request, as the command opens it; who is invited is in the
//! file, and the registrar sees it there.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use crate::{
    config::{HubConfig, Prefix},
    control::{Invitations, InvitationsOrder, InviteWish, Invited, InvitedSite, Refused, Response},
    date,
    identity::{self, Authority, IdentityError},
    leases::Leases,
    qr,
    site::SiteName,
    store::{Store, StoreError},
};

/// How long an invitation is good if nobody says so, and at most: a day, and a month.
const USUAL_TTL: u32 = 86_400;
const LONGEST_TTL: u32 = 31 * 86_400;

/// Does what somebody wants of invitations.
pub(super) fn answer(config: &HubConfig, order: &InvitationsOrder) -> Response {
    match order {
        InvitationsOrder::List => Response::result(list(config)),
        InvitationsOrder::Invite(wish) => Response::result(invite(config, wish)),
        InvitationsOrder::Withdraw { site } => match withdraw(config, site) {
            Ok(()) => Response::done(),
            Err(refused) => Response::Refused(refused),
        },
    }
}

fn list(config: &HubConfig) -> Result<Invitations, Refused> {
    let now = SystemTime::now();
    let open = store(config)?.invitations().map_err(failed)?;
    let invitations = open.into_iter().map(|invitation| InvitedSite {
        site: invitation.site.to_string(),
        created: date::seconds(invitation.created),
        expires: date::seconds(invitation.expires),
        expired: invitation.expires <= now,
    });
    Ok(Invitations {
        schema: Invitations::SCHEMA,
        port: config.listen.first().map(SocketAddr::port),
        invitations: invitations.collect(),
    })
}

fn invite(config: &HubConfig, wish: &InviteWish) -> Result<Invited, Refused> {
    let bad = |what: String| Refused::new("bad_request", what);
    if wish.hubs.is_empty() {
        return Err(bad(
            "`hubs` has to say where the site reaches this hub".into()
        ));
    }
    let ttl = wish.ttl_seconds.unwrap_or(USUAL_TTL);
    if !(60..=LONGEST_TTL).contains(&ttl) {
        return Err(bad("an invitation is good for a minute to 31 days".into()));
    }
    let lans = wish.lans.iter().map(|lan| {
        let wrong = |_| bad(format!("`{}` is no prefix", lan.escape_debug()));
        lan.parse::<Prefix>().map_err(wrong)
    });
    let lans: Vec<Prefix> = lans.collect::<Result<_, _>>()?;
    let mut store = store(config)?;
    for lan in &lans {
        store.can_grant(lan).map_err(failed)?;
    }
    let authority = Authority::load(&config.state).map_err(failed)?;
    let (now, ttl) = (SystemTime::now(), Duration::from_secs(ttl.into()));
    let invitation = identity::invite(&mut store, &authority, &wish.site, &wish.hubs, ttl, now)
        .map_err(failed)?;
    if !lans.is_empty() {
        store.allow(&wish.site, &lans).map_err(failed)?;
    }
    tracing::info!(site = %wish.site, "invited");
    let token = invitation.to_string();
    Ok(Invited {
        schema: Invited::SCHEMA.into(),
        site: wish.site.to_string(),
        kind: "invite".into(),
        qr: qr::rows(&token),
        token,
        expires: Some(date::seconds(invitation.expires)),
    })
}

/// Which addresses sites have.
pub(super) fn leases(config: &HubConfig) -> Result<Leases, Refused> {
    let sites = store(config)?.sites(SystemTime::now()).map_err(failed)?;
    Ok(Leases::of(&sites, Some(&config.pool)))
}

fn withdraw(config: &HubConfig, site: &SiteName) -> Result<(), Refused> {
    store(config)?.withdraw(site).map_err(failed)?;
    tracing::info!(%site, "the invitation is withdrawn");
    Ok(())
}

fn store(config: &HubConfig) -> Result<Store, Refused> {
    Store::open(&config.state).map_err(failed)
}

fn failed(error: impl Into<IdentityError>) -> Refused {
    let error = error.into();
    let code = match error {
        IdentityError::Store(
            StoreError::NotGrantable { .. }
            | StoreError::TooManyGrants { .. }
            | StoreError::NameOfSite { .. }
            | StoreError::NameOfClient { .. },
        ) => "bad_request",
        IdentityError::Store(StoreError::NoInvitation { .. }) => "not_found",
        _ => "failed",
    };
    Refused::new(code, error.to_string())
}
