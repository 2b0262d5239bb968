//! Another authority in place of the one there is, without a visit to any site.
//!
//! An edge trusts one authority, by its fingerprint, and shows a certificate of it. While a hub has
//! two, it shows each edge the certificate of the one that the edge names (in TLS, SNI has that),
//! and takes certificates of both. An edge is told of the present authority in its tunnel, whose
//! hub it has authenticated by the former one, asks for a certificate of the present one, and takes
//! both over in one step. When no site holds only the former authority, that is dropped
//! (docs/decisions/0034).

use std::fmt;
use std::path::Path;
use std::time::SystemTime;

use super::authority::{self, HubIdentity};
use super::{Authority, Fingerprint, IdentityError, files, places, tickets};
use crate::date;
use crate::store::{SiteRecord, Store};

/// Sites that a line of the status names.
const MOST_NAMED: usize = 10;
/// Seconds over which requests for certificates are spread at most.
const LONGEST_SPREAD: u32 = 3600;

/// How far a rotation is.
#[derive(Clone, Debug)]
pub struct Rotation {
    pub present: Fingerprint,
    pub former: Fingerprint,
    /// When it began, if the store knows.
    pub since: Option<SystemTime>,
    /// Sites that have never shown a certificate of the present authority.
    pub behind: Vec<SiteRecord>,
    /// Sites with an invitation that nobody has used and that names the former authority.
    pub invited: Vec<SiteRecord>,
}

impl Rotation {
    /// Whether nobody is locked out when the former authority is dropped.
    pub fn is_complete(&self) -> bool {
        self.behind.is_empty() && self.invited.is_empty()
    }

    /// Those who would be locked out.
    pub fn locked_out(&self) -> Vec<String> {
        let sites = self.behind.iter().chain(&self.invited);
        let mut names: Vec<String> = sites.map(|site| site.name.to_string()).collect();
        names.sort();
        names.dedup();
        names
    }
}

impl fmt::Display for Rotation {
    /// A line for those who ask for the status.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the authority is being rotated")?;
        if let Some(since) = self.since {
            write!(f, " since {}", date::seconds(since))?;
        }
        if self.is_complete() {
            return f.write_str(
                ": all sites know the present one, and `sennit hub authority finish` drops the former",
            );
        }
        let told = |site: &SiteRecord, what: &str| {
            let seen = site.seen.map_or("never here".into(), |seen| {
                format!("last here {}", date::seconds(seen))
            });
            format!("{} ({what}{seen})", site.name)
        };
        let too_old = |site: &SiteRecord| {
            if site.moves {
                ""
            } else {
                "its Sennit is too old, "
            }
        };
        let behind = self.behind.iter().map(|site| told(site, too_old(site)));
        let invited = self.invited.iter().map(|site| told(site, "invited, "));
        let all: Vec<String> = behind.chain(invited).collect();
        let shown = all.len().min(MOST_NAMED);
        let sites = all[..shown].join(", ");
        write!(f, "; these sites know only the former one: {sites}")?;
        match all.len() - shown {
            0 => Ok(()),
            more => write!(f, " and {more} more: `sennit hub authority` lists them"),
        }
    }
}

/// Seconds over which so many sites spread their requests: one each second costs a hub nothing that
/// anybody notices, as a handshake and a signature take some milliseconds.
pub fn renewals_within(sites: usize) -> u32 {
    let sites = u32::try_from(sites).unwrap_or(LONGEST_SPREAD);
    sites.clamp(1, LONGEST_SPREAD)
}

/// Makes an authority beside the one there is, by which sites are known from now on.
pub fn rotate(state: &Path, now: SystemTime) -> Result<Fingerprint, IdentityError> {
    let _held = files::hold(state);
    if places::places(state)?.len() > 1 {
        return Err(IdentityError::Rotating {
            state: state.into(),
        });
    }
    let former = Authority::of(state)?.fingerprint();
    let names = authority::further_names(state)?;
    let mut store = Store::open(state)?;
    go_by_files(state, &mut store, now)?;
    let present = HubIdentity::make(&places::draft(state)?, &names, now)?;
    store.begin_rotation(former.as_bytes(), present.as_bytes(), now)?;
    places::begin(state)?;
    Ok(present)
}

/// Does what is left of a rotation that was finished when the power was cut. A daemon that is
/// confined may not move files between directories on every kernel.
pub fn settle(state: &Path) -> Result<(), IdentityError> {
    let _held = files::hold(state);
    places::settle(state)
}

/// Has the store say of a rotation what the files do, as these may be apart if the power was cut.
pub fn reconcile(state: &Path, store: &mut Store, now: SystemTime) -> Result<(), IdentityError> {
    let _held = files::hold(state);
    go_by_files(state, store, now)
}

/// A rotation begins in the store first and is finished in the files first; this is for who holds
/// `state`.
fn go_by_files(state: &Path, store: &mut Store, now: SystemTime) -> Result<(), IdentityError> {
    let Some((present, former)) = store.rotating()? else {
        return Ok(());
    };
    let places = places::places(state)?;
    let [place] = &places[..] else {
        return Ok(());
    };
    let only = Authority::of(place)?.fingerprint();
    let [begun, left] = [present, former].map(Fingerprint::from_bytes);
    if only == left {
        store.drop_rotation(&present)?;
    } else if only == begun {
        let locked_out = rotation_of(store, begun, left, now)?.locked_out();
        store.end_rotation(&present, locked_out)?;
    }
    Ok(())
}

/// How far the rotation of a hub is; nothing if there is none.
pub fn rotation(state: &Path, now: SystemTime) -> Result<Option<Rotation>, IdentityError> {
    let _held = files::hold(state);
    found(state, now)
}

/// How far it is, for who holds `state`.
fn found(state: &Path, now: SystemTime) -> Result<Option<Rotation>, IdentityError> {
    let places = places::places(state)?;
    let fingerprints = places
        .iter()
        .map(|place| Ok(Authority::of(place)?.fingerprint()));
    let fingerprints: Vec<Fingerprint> = fingerprints.collect::<Result<_, IdentityError>>()?;
    let &[present, former] = &fingerprints[..] else {
        return Ok(None);
    };
    rotation_of(&Store::open(state)?, present, former, now).map(Some)
}

/// How far the rotation is from one authority to another.
pub fn rotation_of(
    store: &Store,
    present: Fingerprint,
    former: Fingerprint,
    now: SystemTime,
) -> Result<Rotation, IdentityError> {
    let sites = store.sites(now)?.into_iter();
    let sites: Vec<SiteRecord> = sites.filter(|site| site.revoked.is_none()).collect();
    let stale = store.stale_invitations(now)?;
    let pick = |wanted: &dyn Fn(&SiteRecord) -> bool| {
        let picked = sites.iter().filter(|site| wanted(site));
        picked.cloned().collect()
    };
    Ok(Rotation {
        present,
        former,
        since: store.rotation_since()?,
        behind: pick(&|site| site.behind),
        invited: pick(&|site| stale.contains(&site.name)),
    })
}

/// Drops the former authority; sites that hold only that one are locked out, and named.
///
/// # Errors
/// If there are such sites, unless by `force`.
pub fn finish_rotation(
    state: &Path,
    force: bool,
    now: SystemTime,
) -> Result<Rotation, IdentityError> {
    // Nobody else finishes it, and begins the next one, between the look and the step.
    let _held = files::hold(state);
    let rotation = found(state, now)?.ok_or_else(|| IdentityError::NotRotating {
        state: state.into(),
    })?;
    if !force && !rotation.is_complete() {
        return Err(IdentityError::LocksOut {
            sites: rotation.locked_out(),
        });
    }
    let mut store = Store::open(state)?;
    // Whoever has stolen the former authority's key may have these too.
    tickets::forget(state)?;
    places::finish(state)?;
    store.end_rotation(rotation.present.as_bytes(), rotation.locked_out())?;
    Ok(rotation)
}
