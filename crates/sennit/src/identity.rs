//! Who is who: the hub's authority, the sites it lets in, and the TLS both speak.
//!
//! `sennit hub init` makes an [`Authority`], a small CA of one hub ([`HubIdentity`]). An
//! [`Invitation`] names the hub by address and by the SHA-256 of the authority's certificate, so an
//! edge can join offline and still knows, on its first connection, whom it talks to. There the
//! one-time secret is exchanged for a certificate ([`enroll`]); from then on both sides prove
//! themselves by certificates of the one authority, which [`rotate`] replaces, and [`authorize`]
//! asks the store on each connection whether the site is still welcome. A third-party client may
//! send a bearer token instead ([`authorize_bearer`]). Private keys and secrets are files of mode
//! 0600, written whole or not at all.

mod authority;
mod authorize;
mod edge;
mod enroll;
mod files;
mod invitation;
mod kept;
mod names;
mod pair;
mod places;
mod rotation;
mod secret;
mod tickets;
mod tls;
mod trust;

use std::io;
use std::path::PathBuf;

use crate::store::StoreError;

pub use self::authority::{Authority, HubIdentity, Issued};
pub use self::authorize::{Admission, Proof, Refusal, authorize, authorize_bearer, reauthorize};
pub use self::edge::{Alone, Credential, EdgeIdentity};
pub use self::enroll::{
    Certified, ENROLL_PATH, Exchange, MAX_MESSAGE_BYTES, enroll, exchange, renew,
};
pub use self::files::warn_if_exposed;
pub use self::invitation::{Invitation, InvitationError, invite, invite_bearer};
pub use self::places::{Mark, mark};
pub use self::rotation::{
    Rotation, finish_rotation, reconcile, renewals_within, rotate, rotation, rotation_of, settle,
};
pub use self::secret::{Fingerprint, Secret};
pub use self::tickets::Tickets;
pub use self::tls::{ALPN, ClientTls, client_config, proxy_config, server_config, trust};
pub use self::trust::Trust;

/// Why an identity could not be made, read or used on this host.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{} already holds a hub's identity; it stays as it is", state.display())]
    HubExists { state: PathBuf },
    #[error("{} holds no hub's identity", state.display())]
    NoHub { state: PathBuf },
    #[error("the authority in {} is being rotated already: `sennit hub authority` says how far that is", state.display())]
    Rotating { state: PathBuf },
    #[error("the authority in {} is not being rotated: `sennit hub authority rotate` begins that", state.display())]
    NotRotating { state: PathBuf },
    #[error("these sites would be locked out, because they know only the former authority: {}", sites.join(", "))]
    LocksOut { sites: Vec<String> },
    #[error("{} already belongs to site `{site}`", state.display())]
    AlreadyJoined { state: PathBuf, site: String },
    #[error("{} holds another edge's identity by now", state.display())]
    Replaced { state: PathBuf },
    #[error("another `sennit join` is at work in {}", state.display())]
    Joining { state: PathBuf },
    #[error("{} holds no edge's identity", state.display())]
    NotJoined { state: PathBuf },
    #[error("{} can be {} by others (mode {mode:04o}), so it is not used", path.display(), if mode & 0o022 == 0 { "read" } else { "changed" })]
    Exposed { path: PathBuf, mode: u32 },
    #[error("{} is damaged: {what}", path.display())]
    Damaged { path: PathBuf, what: String },
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot set up TLS: {0}")]
    Tls(String),
    #[error("the hub refused: {reason}")]
    Refused { code: String, reason: String },
    #[error("the hub's answer makes no sense: {0}")]
    BadAnswer(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}
