//! What both sides offer and demand in the TLS handshake.
//!
//! TLS 1.3 only, X25519MLKEM768 first; a second configuration of a client leaves it out, for
//! networks that drop large ClientHellos. Nothing here turns verification off: a hub is known by
//! the pin of its authority, a foreign proxy by its CA, a site by a certificate of the hub's
//! authority ([`Trust`]).
//!
//! A session may be resumed by a ticket of the hub's ([`Tickets`]). In it is the certificate that
//! the site showed, which is looked up at each request like one that was shown. A fresh certificate
//! comes with a fresh configuration, which has no tickets. Half of the tickets are of sessions in
//! the memory of the hub, each for one use, and with those an edge may send early data.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, Tls12Resumption, WebPkiServerVerifier};
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::crypto::{
    CryptoProvider, SupportedKxGroup, WebPkiSupportedAlgorithms, ring, verify_tls12_signature,
    verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ServerSessionMemoryCache;
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, OtherError,
    RootCertStore, ServerConfig, SignatureScheme, SupportedCipherSuite, WantsVerifier,
};
use sennit_linux::as_owner_of;

use super::files;
use super::kept::Kept;
use super::tickets::Tickets;
use super::trust::Trust;
use super::{Credential, EdgeIdentity, Fingerprint, HubIdentity, IdentityError};
use crate::config::Proxy;

/// HTTP/3 (RFC 9114 §3.1).
pub const ALPN: &[u8] = b"h3";

/// Tickets for each connection: an edge that lost it tries all its links at once. One has about six
/// hundred bytes, most of them the site's certificate.
const TICKETS: usize = 4;
/// Sessions in memory: two for each connection, of about a kilobyte.
const SESSIONS: usize = 4096;

/// What a connection to a far side needs.
#[derive(Clone)]
pub struct ClientTls {
    pub config: ClientConfig,
    /// The same without post-quantum key exchange.
    pub classic: ClientConfig,
    /// The name that the far side's certificate must bear.
    pub server_name: String,
    /// To be sent as `authorization: Bearer …`.
    pub bearer: Option<String>,
}

/// TLS of an edge towards its hub, with the certificate once there is one.
pub fn client_config(identity: &EdgeIdentity) -> Result<ClientTls, IdentityError> {
    Ok(ClientTls {
        config: towards_hub(identity, provider(&USUAL))?,
        classic: towards_hub(identity, provider(&CLASSIC))?,
        server_name: identity.authority.hub_name(),
        bearer: None,
    })
}

fn towards_hub(
    identity: &EdgeIdentity,
    provider: CryptoProvider,
) -> Result<ClientConfig, IdentityError> {
    let provider = Arc::new(provider);
    let verifier = PinnedAuthority {
        pin: identity.authority,
        provider: Arc::clone(&provider),
    };
    let builder = client(provider)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let config = match &identity.credential {
        Credential::Pending { .. } => builder.with_no_client_auth(),
        Credential::Enrolled { chain, .. } => builder
            // The hub has the rest, and what is shown is in each ticket.
            .with_client_auth_cert(
                chain.iter().take(1).cloned().collect(),
                identity.private_key(),
            )
            .map_err(failed)?,
    };
    let mut config = finish(config);
    config.enable_early_data = true;
    Ok(config)
}

/// TLS of an edge towards a CONNECT-IP proxy at `address` that is not a Sennit hub.
///
/// `host` is its address or name in the config.
pub fn proxy_config(proxy: &Proxy, host: &str) -> Result<ClientTls, IdentityError> {
    let roots = roots(&proxy.ca)?;
    let towards = |groups| {
        let builder = client(Arc::new(provider(groups)))?;
        let config = builder.with_root_certificates(roots.clone());
        Ok::<_, IdentityError>(finish(config.with_no_client_auth()))
    };
    let bearer = proxy.bearer.as_deref().map(bearer).transpose()?;
    let server_name = proxy.name.clone().unwrap_or_else(|| host.to_owned());
    Ok(ClientTls {
        config: towards(&USUAL)?,
        classic: towards(&CLASSIC)?,
        server_name,
        bearer,
    })
}

/// What a hub shows and believes. With `require_pq` a handshake without post-quantum key exchange
/// fails.
pub fn trust(identity: &HubIdentity, require_pq: bool) -> Result<Trust, IdentityError> {
    let groups: &[_] = if require_pq { &POST_QUANTUM } else { &USUAL };
    Trust::new(identity, Arc::new(provider(groups)))
}

/// TLS of a hub. A client may show a certificate of the hub's authority, or none: whether it is let
/// in is for [`super::authorize`] to say, so that a refusal can carry its reason.
pub fn server_config(
    trust: &Arc<Trust>,
    tickets: Arc<Tickets>,
) -> Result<ServerConfig, IdentityError> {
    let (verifier, resolver) = (Arc::clone(trust), Arc::clone(trust));
    let mut config = ServerConfig::builder_with_provider(trust.provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(failed)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.ticketer = tickets;
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
    config.max_early_data_size = u32::MAX;
    config.send_tls13_tickets = TICKETS;
    Ok(config)
}

fn client(
    provider: Arc<CryptoProvider>,
) -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, IdentityError> {
    ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(failed)
}

fn finish(mut config: ClientConfig) -> ClientConfig {
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption =
        Resumption::store(Arc::new(Kept::default())).tls12_resumption(Tls12Resumption::Disabled);
    config
}

fn failed(error: impl fmt::Display) -> IdentityError {
    IdentityError::Tls(error.to_string())
}

static POST_QUANTUM: [&dyn SupportedKxGroup; 1] = [kx_group::X25519MLKEM768];
static CLASSIC: [&dyn SupportedKxGroup; 3] =
    [kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1];
static USUAL: [&dyn SupportedKxGroup; 4] = [
    kx_group::X25519MLKEM768,
    kx_group::X25519,
    kx_group::SECP256R1,
    kx_group::SECP384R1,
];

fn provider(groups: &[&'static dyn SupportedKxGroup]) -> CryptoProvider {
    CryptoProvider {
        cipher_suites: cipher_suites(),
        kx_groups: groups.to_vec(),
        ..aws_lc_rs::default_provider()
    }
}

/// The client's order decides. ChaCha20 is the fastest where AES has no instructions, and several
/// times slower than AES where it has.
fn cipher_suites() -> Vec<SupportedCipherSuite> {
    let [short, long] = if has_vector_aes_without_avx512() {
        use ring::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384};
        [TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384]
    } else {
        use aws_lc_rs::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384};
        [TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384]
    };
    let chacha = aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256;
    if has_aes_instructions() {
        [short, long, chacha].into()
    } else {
        [chacha, short, long].into()
    }
}

/// Here ring's AES-GCM takes 0.6 of the time of aws-lc's, which uses vectors with AVX-512 only
/// (`docs/decisions/0026`).
fn has_vector_aes_without_avx512() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("vaes")
        && std::arch::is_x86_feature_detected!("vpclmulqdq")
        && !std::arch::is_x86_feature_detected!("avx512f");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

fn has_aes_instructions() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

fn roots(path: &Path) -> Result<RootCertStore, IdentityError> {
    let text = as_owner_of(path, || files::read_named(path))?;
    let damaged = |what: &str| IdentityError::Damaged {
        path: path.into(),
        what: what.into(),
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
        let certificate = certificate.map_err(|_| damaged("it is not PEM"))?;
        roots
            .add(certificate)
            .map_err(|_| damaged("a certificate in it is not valid"))?;
    }
    if roots.is_empty() {
        return Err(damaged("it holds no certificate"));
    }
    Ok(roots)
}

/// The token in the file at `path` (RFC 6750 §2.1).
fn bearer(path: &Path) -> Result<String, IdentityError> {
    let text = as_owner_of(path, || files::read_secret(path))?;
    let token = text.trim();
    let legal = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
    if token.is_empty() || !token.chars().all(legal) {
        return Err(IdentityError::Damaged {
            path: path.into(),
            what: "it holds no bearer token".into(),
        });
    }
    Ok(token.into())
}

/// Trusts the one authority with this fingerprint, which the hub sends along with its certificate.
#[derive(Debug)]
struct PinnedAuthority {
    pin: Fingerprint,
    provider: Arc<CryptoProvider>,
}

/// Tells the operator of an edge what a bare `UnknownIssuer` would not.
#[derive(thiserror::Error)]
#[error(
    "the hub's key is not the one that the invitation names: this is another hub, somebody in \
     between, or a hub whose authority was rotated while this edge was away: then it needs a new \
     invitation"
)]
struct WrongHub;

/// `rustls::Error` shows what is in it by `Debug` only.
impl fmt::Debug for WrongHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PinnedAuthority {
    fn algorithms(&self) -> &WebPkiSupportedAlgorithms {
        &self.provider.signature_verification_algorithms
    }
}

impl ServerCertVerifier for PinnedAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let wrong_hub = || Error::from(CertificateError::Other(OtherError(Arc::new(WrongHub))));
        let pinned = intermediates
            .iter()
            .find(|certificate| Fingerprint::of(certificate) == self.pin);
        let mut roots = RootCertStore::empty();
        roots.add(pinned.ok_or_else(wrong_hub)?.clone().into_owned())?;
        let webpki = WebPkiServerVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::clone(&self.provider),
        );
        let webpki = webpki
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        webpki.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, self.algorithms())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, self.algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms().supported_schemes()
    }
}
