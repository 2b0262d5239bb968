//! The edge's side: who it is, and with what it proves that.
//!
//! Three files of the state directory: `edge.key`; `site.json` with what the invitation said, in
//! which the secret stays until it was exchanged; and `site.pem`, the certificate and that of its
//! authority, once there is one. From then on that authority is the one that the hub must have: so
//! a rotation changes both in one step, and an edge that is cut short has the former ones of both.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::authority::{SITE_LIFETIME, key_pair, pem};
use super::enroll::{Answer, Request};
use super::files::{self, Access};
use super::{Fingerprint, IdentityError, Invitation, Secret, pair};
use crate::date;
use crate::remote::Remote;
use crate::site::SiteName;

const KEY: &str = "edge.key";
const SITE: &str = "site.json";
const CERTIFICATE: &str = "site.pem";

/// Renewal starts when a third of the lifetime is left, so that months of trying remain.
const RENEW_BEFORE: Duration = Duration::from_secs(120 * 86_400);

/// A certificate that seems to have been issued so far from now tells of a wrong clock. A hub
/// repeats one for a day at most.
const CLOCKS_DIFFER: Duration = Duration::from_secs(2 * 86_400);

/// All that an edge is known by.
#[derive(Debug)]
pub struct EdgeIdentity {
    state: PathBuf,
    pub site: SiteName,
    /// Where the invitation said that the hub is; the config has the last word.
    pub hubs: Vec<Remote>,
    /// The one authority that the hub must have.
    pub authority: Fingerprint,
    pub credential: Credential,
    key: KeyPair,
    /// A digest of the invitation's secret, also once that is forgotten.
    token: Option<String>,
    /// The authority of which a certificate is wanted instead.
    wanted: Option<Fingerprint>,
}

/// How the edge proves who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// Invited, and not yet connected.
    Pending { secret: Secret, expires: SystemTime },
    /// In possession of a certificate.
    Enrolled {
        chain: Vec<CertificateDer<'static>>,
        expires: SystemTime,
    },
}

/// Held by whoever joins.
#[derive(Debug)]
pub struct Alone {
    _file: File,
    path: PathBuf,
}

impl Drop for Alone {
    /// The lock's file goes while nobody else has the lock.
    fn drop(&mut self) {
        let _ = files::remove_if_any(&self.path);
    }
}

/// `site.json`.
#[derive(Serialize, Deserialize)]
struct SiteFile {
    site: SiteName,
    hub: Vec<Remote>,
    authority: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    /// SHA-256 of the secret, by which the invitation is known again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    /// Of the secret, then of the certificate; seconds since 1970.
    expires: u64,
}

impl EdgeIdentity {
    /// Accepts an invitation: makes a key and keeps all that the first connection needs.
    pub fn join(
        state: &Path,
        invitation: &Invitation,
        replace: bool,
    ) -> Result<Self, IdentityError> {
        files::make_state_dir(state)?;
        if !replace {
            Self::must_be_free(state)?;
        }
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let _held = files::hold(state);
        // What is left of a former site, if this is cut short, is no identity.
        files::remove_if_any(&state.join(SITE))?;
        files::remove_if_any(&state.join(CERTIFICATE))?;
        files::write(
            &state.join(KEY),
            Access::Private,
            Zeroizing::new(key.serialize_pem()).as_bytes(),
        )?;
        let identity = Self {
            state: state.into(),
            site: invitation.site.clone(),
            hubs: invitation.hubs.clone(),
            authority: invitation.authority,
            credential: Credential::Pending {
                secret: invitation.secret.clone(),
                expires: invitation.expires,
            },
            key,
            token: Some(digest(&invitation.secret)),
            wanted: None,
        };
        identity.save()?;
        Ok(identity)
    }

    /// The identity in `state`, if it was made for this invitation: a hub takes a token again from
    /// the key that it was used with.
    pub fn of_invitation(state: &Path, invitation: &Invitation) -> Option<Self> {
        let identity = Self::load(state).ok()?;
        // Its authority may be another than the invitation's by now.
        let is_same = identity.token == Some(digest(&invitation.secret));
        is_same.then_some(identity)
    }

    /// Fails if `state` belongs to a site already.
    pub fn must_be_free(state: &Path) -> Result<(), IdentityError> {
        let Some(text) = files::read_if_any(&state.join(SITE))? else {
            return Ok(());
        };
        let site = serde_json::from_str::<SiteFile>(&text)
            .map_or("?".into(), |file| file.site.to_string());
        Err(IdentityError::AlreadyJoined {
            state: state.into(),
            site,
        })
    }

    /// Removes the directory of an identity that nobody needs; what cannot be removed stays.
    pub fn discard(state: &Path) {
        let _ = files::remove_all_if_any(state);
    }

    /// Nobody else joins in `state` meanwhile.
    ///
    /// # Errors
    /// If somebody does now.
    pub fn alone(state: &Path) -> Result<Alone, IdentityError> {
        files::make_state_dir(state)?;
        let path = state.join("join.lock");
        match files::lock(&path)? {
            Some(file) => Ok(Alone { _file: file, path }),
            None => Err(IdentityError::Joining {
                state: state.into(),
            }),
        }
    }

    /// Copies the identity into `state`, in place of the one that may be there.
    pub fn move_to(self, state: &Path) -> Result<Self, IdentityError> {
        files::make_state_dir(state)?;
        let held = files::hold(state);
        // What is left of a former site, if this is cut short, is no identity.
        files::remove_if_any(&state.join(SITE))?;
        files::remove_if_any(&state.join(CERTIFICATE))?;
        // What is here stays until all of it is there: a second try begins with it.
        for (name, access) in [
            (KEY, Access::Private),
            (CERTIFICATE, Access::Private),
            (SITE, Access::Private),
        ] {
            if let Some(text) = files::read_if_any(&self.state.join(name))? {
                files::write(&state.join(name), access, Zeroizing::new(text).as_bytes())?;
            }
        }
        drop(held);
        Self::load(state)
    }

    /// Reads the identity in `state`.
    pub fn load(state: &Path) -> Result<Self, IdentityError> {
        let _held = files::hold(state);
        let path = state.join(SITE);
        let text = files::read_if_any(&path)?.ok_or_else(|| IdentityError::NotJoined {
            state: state.into(),
        })?;
        let damaged = |what: String| IdentityError::Damaged {
            path: path.clone(),
            what,
        };
        let file: SiteFile =
            serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        if file.secret.is_some() {
            files::warn_if_exposed(&path);
        }
        let authority = Fingerprint::from_hex(&file.authority)
            .ok_or_else(|| damaged("bad fingerprint".into()))?;
        // A certificate whose end nobody can say is exchanged for another at once.
        let expires = date::at(file.expires).unwrap_or(SystemTime::UNIX_EPOCH);
        let credential = match &file.secret {
            Some(secret) => {
                let secret =
                    Secret::from_base64(secret).ok_or_else(|| damaged("bad secret".into()))?;
                Credential::Pending { secret, expires }
            }
            None => Credential::Enrolled {
                chain: chain(&state.join(CERTIFICATE))?,
                expires,
            },
        };
        let token = file.token.or_else(|| match &credential {
            Credential::Pending { secret, .. } => Some(digest(secret)),
            Credential::Enrolled { .. } => None,
        });
        let key = key_pair(&state.join(KEY))?;
        let authority = match &credential {
            Credential::Enrolled { chain, .. } => {
                chain.get(1).map_or(authority, |it| Fingerprint::of(it))
            }
            Credential::Pending { .. } => authority,
        };
        Ok(Self {
            state: state.into(),
            site: file.site,
            hubs: file.hub,
            authority,
            credential,
            key,
            token,
            wanted: None,
        })
    }

    /// Whether both are the same site with the same key and certificate.
    pub fn is_same(&self, other: &Self) -> bool {
        self.has_key_of(other) && self.credential == other.credential
    }

    /// Whether both are the same site with the same key, whatever the certificate.
    pub fn has_key_of(&self, other: &Self) -> bool {
        self.site == other.site && self.private_key() == other.private_key()
    }

    pub fn is_enrolled(&self) -> bool {
        matches!(self.credential, Credential::Enrolled { .. })
    }

    /// Asks for a certificate of this authority from now on. Only the hub itself may name it, in a
    /// connection in which it has proved who it is.
    pub fn move_to_authority(&mut self, authority: Fingerprint) {
        self.wanted = Some(authority).filter(|_| self.is_enrolled());
    }

    /// True when the certificate should be exchanged for a fresh one.
    pub fn is_renewal_due(&self, now: SystemTime) -> bool {
        match &self.credential {
            Credential::Pending { .. } => false,
            Credential::Enrolled { expires, .. } => now + RENEW_BEFORE >= *expires,
        }
    }

    /// From when to when the certificate is valid, if there is one.
    pub fn validity(&self) -> Option<(SystemTime, SystemTime)> {
        let Credential::Enrolled { expires, .. } = &self.credential else {
            return None;
        };
        Some((expires.checked_sub(SITE_LIFETIME)?, *expires))
    }

    /// When the hub issued the certificate by its own clock, if that is far from `now` by ours.
    pub fn other_clock(&self, now: SystemTime) -> Option<SystemTime> {
        let Credential::Enrolled { expires, .. } = &self.credential else {
            return None;
        };
        let issued = expires.checked_sub(SITE_LIFETIME)?;
        let apart = now
            .duration_since(issued)
            .or_else(|_| issued.duration_since(now));
        apart
            .is_ok_and(|apart| apart > CLOCKS_DIFFER)
            .then_some(issued)
    }

    /// The body to POST for a first or a fresh certificate.
    pub fn enrollment_request(&self) -> Result<Vec<u8>, IdentityError> {
        let csr = CertificateParams::new(Vec::new())?.serialize_request(&self.key)?;
        let request = match &self.credential {
            Credential::Pending { secret, .. } => {
                Request::with_token(csr.der(), secret, self.authority)
            }
            Credential::Enrolled { .. } => Request::renewal(csr.der(), self.wanted),
        };
        Ok(request.to_bytes())
    }

    /// Takes the hub's answer: keeps the certificate and forgets the secret.
    ///
    /// Connections that use the certificate need a new [`super::client_config`].
    pub fn accept(&mut self, answer: &[u8]) -> Result<(), IdentityError> {
        let (chain, expires) = Answer::parse(answer)?;
        let bad = |what: &str| Err(IdentityError::BadAnswer(what.into()));
        let asked = self.wanted.unwrap_or(self.authority);
        match chain.get(1) {
            Some(authority) if Fingerprint::of(authority) == asked => {}
            _ => return bad("the certificate is not from the authority that was asked for"),
        }
        if !pair::belongs_together(&chain, &self.private_key()) {
            return bad("the certificate is for another key");
        }
        let _held = files::hold(&self.state);
        // Somebody may have joined meanwhile, whose files these are.
        if key_pair(&self.state.join(KEY))?.serialize_der() != self.key.serialize_der() {
            return Err(IdentityError::Replaced {
                state: self.state.clone(),
            });
        }
        let text: String = chain.iter().map(pem).collect();
        files::write(
            &self.state.join(CERTIFICATE),
            Access::Private,
            text.as_bytes(),
        )?;
        self.credential = Credential::Enrolled { chain, expires };
        (self.authority, self.wanted) = (asked, None);
        self.save()
    }

    pub(super) fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()))
    }

    fn save(&self) -> Result<(), IdentityError> {
        let (secret, expires) = match &self.credential {
            Credential::Pending { secret, expires } => {
                (Some(secret.to_base64().as_str().into()), *expires)
            }
            Credential::Enrolled { expires, .. } => (None, *expires),
        };
        let file = SiteFile {
            site: self.site.clone(),
            hub: self.hubs.clone(),
            authority: self.authority.to_string(),
            secret,
            token: self.token.clone(),
            expires: expires
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs(),
        };
        let text = serde_json::to_vec_pretty(&file).expect("strings become JSON");
        let text = Zeroizing::new(text);
        files::write(&self.state.join(SITE), Access::Private, &text)
    }
}

fn digest(secret: &Secret) -> String {
    STANDARD.encode(secret.hash())
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let text = files::read(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        _ => Err(IdentityError::Damaged {
            path: path.into(),
            what: "it holds no PEM certificate".into(),
        }),
    }
}
