//! A token, or a certificate that will expire, exchanged for a certificate.
//!
//! One POST to [`ENROLL_PATH`] in the edge's TLS connection. The body is a JSON [`Request`] with a
//! signing request (RFC 2986), which proves that the edge has the key; the answer is an
//! [`Answer`]. An answer may be lost, so the same token with the same key is answered again for as
//! long as the token lives.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateSigningRequestParams, PublicKey, PublicKeyData as _};
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer};
use serde::{Deserialize, Serialize};

use super::authority::SITE_LIFETIME;
use super::secret::sha256;
use super::{Admission, Authority, Fingerprint, IdentityError, Issued, Refusal, Secret, authorize};
use crate::date;
use crate::site::SiteName;
use crate::store::{CertificateRecord, Digest, NewCertificate, Redeemed, Store, TokenKind};

/// Where the hub takes these requests.
pub const ENROLL_PATH: &str = "/.well-known/sennit/enroll";
/// A site gets at most one certificate in this time.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(86_400);
/// Larger bodies, either way, are no requests and no answers.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024;

/// What an edge asks for.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    /// PKCS #10 in base64.
    csr: String,
    /// For the first certificate; without it the current certificate must vouch for the site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<Token>,
    /// Fingerprint of the authority that the fresh certificate should be of. Only a hub that has
    /// told of that authority is asked so; without it the certificate is of the same as before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    authority: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    secret: String,
    /// Fingerprint of the authority that the token names.
    authority: String,
}

/// What the hub says.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Answer {
    Certificate {
        /// Base64 of the site's certificate and of the authority's.
        chain: Vec<String>,
        /// Seconds since 1970.
        expires: u64,
    },
    Refused {
        code: String,
        reason: String,
    },
}

impl Request {
    pub(super) fn with_token(csr: &[u8], secret: &Secret, authority: Fingerprint) -> Self {
        let token = Token {
            secret: secret.to_base64().as_str().into(),
            authority: authority.to_string(),
        };
        Self {
            csr: STANDARD.encode(csr),
            token: Some(token),
            authority: None,
        }
    }

    pub(super) fn renewal(csr: &[u8], authority: Option<Fingerprint>) -> Self {
        Self {
            csr: STANDARD.encode(csr),
            token: None,
            authority: authority.map(|it| it.to_string()),
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings become JSON")
    }

    fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        if bytes.len() > MAX_MESSAGE_BYTES {
            return Err(Refusal::Malformed("it is too long"));
        }
        serde_json::from_slice(bytes)
            .map_err(|_| Refusal::Malformed("it is not a request for a certificate"))
    }

    /// The public key of the signing request, which is signed by its private half.
    fn public_key(&self) -> Result<PublicKey, Refusal> {
        let der = STANDARD
            .decode(&self.csr)
            .map_err(|_| Refusal::Malformed("the signing request is not base64"))?;
        let csr =
            CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(der))
                .map_err(|_| Refusal::Malformed("the signing request is not valid"))?;
        // An uncompressed point of P-256 (SEC 1 §2.3.3), the one kind of key we issue for.
        match csr.public_key.der_bytes() {
            [4, point @ ..] if point.len() == 64 => Ok(csr.public_key),
            _ => Err(Refusal::Malformed("the key is not ECDSA P-256")),
        }
    }
}

/// A site with a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certified {
    pub site: SiteName,
    /// The site's certificate and the authority's.
    pub chain: Vec<CertificateDer<'static>>,
    pub expires: SystemTime,
}

/// How a request was answered: the response to send, and what it means for the log.
#[derive(Debug)]
pub struct Exchange {
    pub http_status: u16,
    pub body: Vec<u8>,
    pub outcome: Result<SiteName, Refusal>,
}

/// Answers a request of either kind. `peer` is what the client showed in the handshake, and the
/// first of the authorities the present one.
pub fn exchange(
    store: &mut Store,
    authorities: &[Authority],
    peer: &[CertificateDer<'_>],
    request: &[u8],
    now: SystemTime,
) -> Exchange {
    let certified = Request::parse(request).and_then(|parsed| match parsed.token {
        Some(_) => enroll(store, authorities, request, now),
        None => renew(store, authorities, peer, request, now),
    });
    let (http_status, answer) = match &certified {
        Ok(certified) => (200, Answer::from(certified)),
        Err(refusal) => (refusal.http_status(), Answer::from(refusal)),
    };
    let body = serde_json::to_vec(&answer).expect("strings become JSON");
    Exchange {
        http_status,
        body,
        outcome: certified.map(|certified| certified.site),
    }
}

/// Exchanges a token for the site's first certificate, of the authority that the token names.
pub fn enroll(
    store: &mut Store,
    authorities: &[Authority],
    request: &[u8],
    now: SystemTime,
) -> Result<Certified, Refusal> {
    let request = Request::parse(request)?;
    let token = request.token.as_ref().ok_or(Refusal::NoCredential)?;
    let authority = named(authorities, &token.authority).ok_or(Refusal::OtherHub)?;
    let secret = Secret::from_base64(&token.secret)
        .ok_or(Refusal::Malformed("the secret is not a secret"))?;
    let hash = secret.hash();
    let known = store
        .token(&hash)?
        .filter(|known| known.kind == TokenKind::Invite)
        .ok_or(Refusal::UnknownToken)?;
    if known.site_revoked {
        return Err(Refusal::SiteRevoked(known.site));
    }
    if known.expires.is_some_and(|expires| now >= expires) {
        return Err(Refusal::TokenExpired);
    }
    let public_key = request.public_key()?;
    let key = sha256(public_key.der_bytes());
    match known.used_by {
        Some(other) if other != key => return Err(Refusal::TokenUsed),
        Some(_) => match store.certificate_of(&known.site, &key, &authority.digest())? {
            Some(issued) => {
                let chain = authority.chain(issued.der.into());
                return Ok(Certified {
                    site: known.site,
                    chain,
                    expires: issued.not_after,
                });
            }
            None => return Err(Refusal::CertificateRevoked(known.site)),
        },
        None => {}
    }
    let issued = authority
        .certify_site(&known.site, &public_key, now)
        .map_err(cannot_certify)?;
    // What was found above is only why no certificate was made in vain: this is what decides.
    match store.redeem(&hash, &issued.record(&known.site), now)? {
        Redeemed::Done => {}
        Redeemed::Unknown => return Err(Refusal::UnknownToken),
        Redeemed::SiteRevoked => return Err(Refusal::SiteRevoked(known.site)),
        Redeemed::Expired => return Err(Refusal::TokenExpired),
        Redeemed::Used => return Err(Refusal::TokenUsed),
    }
    Ok(Certified {
        site: known.site,
        chain: authority.chain(issued.certificate),
        expires: issued.not_after,
    })
}

/// Gives a site that shows a valid certificate a fresh one for the same key: of the authority that
/// it names, or else of the one that it knows.
///
/// The answer may be lost, and the store must not grow with each question: who asks again within
/// [`RENEWAL_INTERVAL`] gets the same certificate.
pub fn renew(
    store: &mut Store,
    authorities: &[Authority],
    peer: &[CertificateDer<'_>],
    request: &[u8],
    now: SystemTime,
) -> Result<Certified, Refusal> {
    let admission = authorize(store, peer, now)?;
    let request = Request::parse(request)?;
    let authority = match &request.authority {
        Some(wanted) => named(authorities, wanted).ok_or(Refusal::UnknownAuthority)?,
        None => issuer_of(store, authorities, &admission)?,
    };
    let site = admission.site;
    let public_key = request.public_key()?;
    let key = sha256(public_key.der_bytes());
    if store.certificate_for(&site, &key)?.is_none() {
        let what = "the key is not the one of the certificate";
        return Err(Refusal::Malformed(what));
    }
    let newest = store.certificate_of(&site, &key, &authority.digest())?;
    let is_fresh = |it: &CertificateRecord| it.not_after + RENEWAL_INTERVAL > now + SITE_LIFETIME;
    if let Some(newest) = newest.filter(is_fresh) {
        return Ok(Certified {
            site,
            chain: authority.chain(newest.der.into()),
            expires: newest.not_after,
        });
    }
    let issued = authority
        .certify_site(&site, &public_key, now)
        .map_err(cannot_certify)?;
    if !store.renew(admission.proof.digest(), &issued.record(&site))? {
        // The store says by now why not.
        let refused = authorize(store, peer, now).err();
        return Err(refused.unwrap_or(Refusal::UnknownSite));
    }
    Ok(Certified {
        site,
        chain: authority.chain(issued.certificate),
        expires: issued.not_after,
    })
}

fn named<'a>(authorities: &'a [Authority], fingerprint: &str) -> Option<&'a Authority> {
    let mut authorities = authorities.iter();
    authorities.find(|it| it.fingerprint().to_string() == fingerprint)
}

/// The authority of the certificate that was shown. One that the store does not name is of the
/// oldest.
fn issuer_of<'a>(
    store: &Store,
    authorities: &'a [Authority],
    admission: &Admission,
) -> Result<&'a Authority, Refusal> {
    let shown = store.certificate(admission.proof.digest())?;
    let digest = shown.and_then(|shown| shown.authority);
    let known = |it: &&Authority| Some(it.digest()) == digest;
    let found = authorities.iter().find(known).or(authorities.last());
    found.ok_or(Refusal::UnknownAuthority)
}

fn cannot_certify(error: IdentityError) -> Refusal {
    Refusal::CannotCertify(Box::new(error))
}

impl Authority {
    /// As the store knows it.
    fn digest(&self) -> Digest {
        *self.fingerprint().as_bytes()
    }

    fn chain(&self, leaf: CertificateDer<'static>) -> Vec<CertificateDer<'static>> {
        vec![leaf, self.certificate().clone()]
    }
}

impl Issued {
    fn record<'a>(&'a self, site: &'a SiteName) -> NewCertificate<'a> {
        NewCertificate {
            site,
            fingerprint: self.fingerprint.as_bytes(),
            authority: self.authority.as_bytes(),
            der: &self.certificate,
            key: &self.key,
            not_after: self.not_after,
        }
    }
}

impl From<&Certified> for Answer {
    fn from(certified: &Certified) -> Self {
        let expires = certified
            .expires
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let chain = certified
            .chain
            .iter()
            .map(|der| STANDARD.encode(der))
            .collect();
        Self::Certificate {
            chain,
            expires: expires.as_secs(),
        }
    }
}

impl From<&Refusal> for Answer {
    fn from(refusal: &Refusal) -> Self {
        Self::Refused {
            code: refusal.code().into(),
            reason: refusal.to_string(),
        }
    }
}

impl Answer {
    /// The chain and its expiry, or why there is none.
    pub(super) fn parse(
        bytes: &[u8],
    ) -> Result<(Vec<CertificateDer<'static>>, SystemTime), IdentityError> {
        let bad = |what: &str| IdentityError::BadAnswer(what.into());
        if bytes.len() > MAX_MESSAGE_BYTES {
            return Err(bad("it is too long"));
        }
        match serde_json::from_slice(bytes) {
            Ok(Self::Certificate { chain, expires }) => {
                let decode = |text| STANDARD.decode(text).map(CertificateDer::from);
                let chain: Result<Vec<_>, _> = chain.iter().map(decode).collect();
                let chain = chain.map_err(|_| bad("a certificate is not base64"))?;
                let expires = date::at(expires).ok_or_else(|| bad("the expiry is no time"))?;
                Ok((chain, expires))
            }
            Ok(Self::Refused { code, reason }) => Err(IdentityError::Refused { code, reason }),
            Err(_) => Err(bad("it is neither a certificate nor a refusal")),
        }
    }
}
