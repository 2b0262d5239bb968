//! Who is let in, and what the others are told.

use std::time::SystemTime;

use rustls::pki_types::CertificateDer;

use super::invitation::BEARER_PREFIX;
use super::{Fingerprint, Secret};
use crate::site::SiteName;
use crate::store::{CertificateRecord, Digest, Store, StoreError, TokenKind};

/// Why a peer is not let in. The text is for the peer; it tells nothing about the hub's inside.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("the request makes no sense: {0}")]
    Malformed(&'static str),
    #[error("the token is for another hub")]
    OtherHub,
    #[error("this hub has not issued the token, or has issued a newer one since")]
    UnknownToken,
    #[error("the token was already used, by another key")]
    TokenUsed,
    #[error("the token has expired")]
    TokenExpired,
    #[error("neither a certificate nor a token was shown")]
    NoCredential,
    #[error("this hub knows no site with this certificate")]
    UnknownSite,
    #[error("site `{0}` is revoked")]
    SiteRevoked(SiteName),
    #[error("the certificate of site `{0}` is revoked")]
    CertificateRevoked(SiteName),
    #[error("site `{0}` has joined anew with another key, and this one is no longer good")]
    CertificateRetired(SiteName),
    #[error("the certificate of site `{0}` has expired")]
    CertificateExpired(SiteName),
    #[error("this hub has no such authority, or has it no more")]
    UnknownAuthority,
    #[error(
        "the certificate of site `{0}` is of an authority that this hub has dropped: the site needs \
         a new invitation"
    )]
    AuthorityDropped(SiteName),
    #[error("the address of the site is another's for a moment longer")]
    AddressInUse,
    #[error("the hub has no address left")]
    NoAddress(#[source] StoreError),
    #[error("the hub cannot answer now")]
    Unavailable(#[source] StoreError),
    #[error("the hub cannot make a certificate now")]
    CannotCertify(#[source] Box<super::IdentityError>),
    #[error("the hub cannot keep the site to what it may reach")]
    CannotConfine(#[source] sennit_linux::Error),
}

impl Refusal {
    /// A word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::OtherHub => "other_hub",
            Self::UnknownToken => "unknown_token",
            Self::TokenUsed => "token_used",
            Self::TokenExpired => "token_expired",
            Self::NoCredential => "no_credential",
            Self::UnknownSite => "unknown_site",
            Self::SiteRevoked(_) => "site_revoked",
            Self::CertificateRevoked(_) => "certificate_revoked",
            Self::CertificateRetired(_) => "certificate_retired",
            Self::CertificateExpired(_) => "certificate_expired",
            Self::UnknownAuthority => "unknown_authority",
            Self::AuthorityDropped(_) => "authority_dropped",
            Self::NoAddress(_) => "no_address",
            Self::AddressInUse
            | Self::Unavailable(_)
            | Self::CannotCertify(_)
            | Self::CannotConfine(_) => "unavailable",
        }
    }

    /// The HTTP status that says the same (RFC 9110 §15.5, §15.6).
    pub fn http_status(&self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::NoCredential | Self::UnknownSite => 401,
            Self::UnknownToken
            | Self::SiteRevoked(_)
            | Self::CertificateRevoked(_)
            | Self::CertificateRetired(_)
            | Self::CertificateExpired(_)
            | Self::AuthorityDropped(_) => 403,
            Self::TokenUsed => 409,
            Self::TokenExpired => 410,
            Self::OtherHub | Self::UnknownAuthority => 421,
            Self::AddressInUse
            | Self::NoAddress(_)
            | Self::Unavailable(_)
            | Self::CannotCertify(_)
            | Self::CannotConfine(_) => 503,
        }
    }

    /// True when asking again later may help.
    pub fn is_transient(&self) -> bool {
        self.http_status() == 503
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::PoolExhausted { .. } => Self::NoAddress(error),
            _ => Self::Unavailable(error),
        }
    }
}

/// A site that is let in, and what it proved itself by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    pub site: SiteName,
    pub proof: Proof,
    /// When that ends by itself.
    pub expires: Option<SystemTime>,
}

/// What somebody proved itself by, as the store knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proof {
    /// A certificate, by its SHA-256.
    Certificate(Digest),
    /// A bearer token, by the SHA-256 of its secret.
    Bearer(Digest),
}

impl Proof {
    pub fn digest(&self) -> &Digest {
        match self {
            Self::Certificate(digest) | Self::Bearer(digest) => digest,
        }
    }
}

/// The site that showed these certificates, whose chain the handshake has checked.
///
/// The store knows each certificate that was issued, so nothing in it need be believed.
pub fn authorize(
    store: &Store,
    peer: &[CertificateDer<'_>],
    now: SystemTime,
) -> Result<Admission, Refusal> {
    let leaf = peer.first().ok_or(Refusal::NoCredential)?;
    let fingerprint = *Fingerprint::of(leaf).as_bytes();
    let known = certificate(store, &fingerprint)?;
    if known.dropped {
        return Err(Refusal::AuthorityDropped(known.site));
    }
    if now >= known.not_after {
        return Err(Refusal::CertificateExpired(known.site));
    }
    Ok(Admission {
        site: known.site,
        proof: Proof::Certificate(fingerprint),
        expires: Some(known.not_after),
    })
}

/// The site whose bearer token this is; `token` is what follows `Bearer ` (RFC 6750 §2.1).
pub fn authorize_bearer(store: &Store, token: &str, now: SystemTime) -> Result<Admission, Refusal> {
    let secret = token
        .strip_prefix(BEARER_PREFIX)
        .and_then(Secret::from_base64)
        .ok_or(Refusal::UnknownToken)?;
    bearer(store, &secret.hash(), now)
}

/// Whether what a tunnel was granted to is still good, and until when.
///
/// A site that renewed its certificate keeps the tunnel that it began with the older one, also if
/// that is of an authority that was dropped since.
pub fn reauthorize(store: &Store, proof: &Proof, now: SystemTime) -> Result<Admission, Refusal> {
    let fingerprint = match proof {
        Proof::Certificate(fingerprint) => fingerprint,
        Proof::Bearer(hash) => return bearer(store, hash, now),
    };
    let known = certificate(store, fingerprint)?;
    let newest = store.certificate_for(&known.site, &known.key)?;
    if known.dropped && newest.is_none() {
        return Err(Refusal::AuthorityDropped(known.site));
    }
    let expires = newest.map_or(known.not_after, |newest| newest.not_after);
    if now >= expires {
        return Err(Refusal::CertificateExpired(known.site));
    }
    Ok(Admission {
        site: known.site,
        proof: *proof,
        expires: Some(expires),
    })
}

/// A certificate that nobody took back.
fn certificate(store: &Store, fingerprint: &Digest) -> Result<CertificateRecord, Refusal> {
    let known = store
        .certificate(fingerprint)?
        .ok_or(Refusal::UnknownSite)?;
    if known.site_revoked {
        return Err(Refusal::SiteRevoked(known.site));
    }
    if known.retired {
        return Err(Refusal::CertificateRetired(known.site));
    }
    if known.revoked {
        return Err(Refusal::CertificateRevoked(known.site));
    }
    Ok(known)
}

fn bearer(store: &Store, hash: &Digest, now: SystemTime) -> Result<Admission, Refusal> {
    let known = store.token(hash)?;
    let known = known.filter(|known| known.kind == TokenKind::Bearer);
    let known = known.ok_or(Refusal::UnknownToken)?;
    if known.site_revoked {
        return Err(Refusal::SiteRevoked(known.site));
    }
    if known.expires.is_some_and(|expires| now >= expires) {
        return Err(Refusal::TokenExpired);
    }
    Ok(Admission {
        site: known.site,
        proof: Proof::Bearer(*hash),
        expires: known.expires,
    })
}
