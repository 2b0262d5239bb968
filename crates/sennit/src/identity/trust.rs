//! What a hub shows and whom it believes in the handshake, while its authority is rotated too.
//!
//! An edge names the authority that it knows (SNI), and is shown the certificate of that one.
//! Whoever names something else is a client that has the hub's CA from its operator, and is shown
//! the former one until the rotation is finished.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use super::{HubIdentity, IdentityError};

/// What all workers of a hub have in common.
pub struct Trust {
    provider: Arc<CryptoProvider>,
    /// What authorities are called: all alike.
    hints: Vec<DistinguishedName>,
    sides: RwLock<Arc<Sides>>,
}

/// What holds until another authority comes or one goes.
struct Sides {
    /// By the name that an edge asks for.
    shown: BTreeMap<String, Arc<CertifiedKey>>,
    usual: Arc<CertifiedKey>,
    believed: Arc<dyn ClientCertVerifier>,
}

impl Trust {
    pub(super) fn new(
        identity: &HubIdentity,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, IdentityError> {
        let sides = Sides::of(identity, &provider)?;
        Ok(Self {
            hints: sides.believed.root_hint_subjects().to_vec(),
            sides: RwLock::new(Arc::new(sides)),
            provider,
        })
    }

    /// Goes by this from the next handshake on.
    pub fn follow(&self, identity: &HubIdentity) -> Result<(), IdentityError> {
        let sides = Arc::new(Sides::of(identity, &self.provider)?);
        *self.sides.write().unwrap_or_else(PoisonError::into_inner) = sides;
        Ok(())
    }

    pub(super) fn provider(&self) -> Arc<CryptoProvider> {
        Arc::clone(&self.provider)
    }

    fn sides(&self) -> Arc<Sides> {
        Arc::clone(&self.sides.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sides {
    fn of(identity: &HubIdentity, provider: &Arc<CryptoProvider>) -> Result<Self, IdentityError> {
        let failed = |error: &dyn fmt::Display| IdentityError::Tls(error.to_string());
        let all: Vec<&HubIdentity> = [Some(identity), identity.former.as_deref()]
            .into_iter()
            .flatten()
            .collect();
        let (mut roots, mut shown) = (RootCertStore::empty(), BTreeMap::new());
        let mut usual = None;
        for one in all {
            let added = roots.add(one.authority.certificate().clone());
            added.map_err(|error| failed(&error))?;
            let key = CertifiedKey::from_der(one.chain.clone(), one.key.clone_key(), provider);
            let key = Arc::new(key.map_err(|error| failed(&error))?);
            shown.insert(one.authority.fingerprint().hub_name(), Arc::clone(&key));
            usual = Some(key);
        }
        let believed =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
                .allow_unauthenticated()
                .build()
                .map_err(|error| failed(&error))?;
        Ok(Self {
            shown,
            usual: usual.expect("there is one identity at least"),
            believed,
        })
    }
}

impl ResolvesServerCert for Trust {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let sides = self.sides();
        let named = hello.server_name().and_then(|name| sides.shown.get(name));
        Some(Arc::clone(named.unwrap_or(&sides.usual)))
    }
}

impl ClientCertVerifier for Trust {
    /// A client may show none: whether it is let in is not decided here.
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let believed = &self.sides().believed;
        believed.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let believed = &self.sides().believed;
        believed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let believed = &self.sides().believed;
        believed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.sides().believed.supported_verify_schemes()
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust").finish_non_exhaustive()
    }
}
