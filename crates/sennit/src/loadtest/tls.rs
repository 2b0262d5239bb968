//! A test connection is encrypted, but whom it leads to is only known if the client was told the
//! server's fingerprint: a server makes itself a certificate when it starts.

use std::{str::FromStr, sync::Arc};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, NamedGroup, ServerConfig,
    SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature,
        verify_tls13_signature,
    },
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
    version::TLS13,
};

use super::perf;
use crate::identity::Fingerprint;

/// The protocol of a test, in its first version.
pub(super) const OURS: &str = "sennit-test/1";
/// The name in a server's certificate.
pub(super) const NAME: &str = "test.sennit";

/// What a client knows of its server: SHA-256 of the certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin(Fingerprint);

impl FromStr for Pin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Fingerprint::from_hex(text).map(Self);
        known.ok_or_else(|| {
            "write the 64 hexadecimal digits that the server printed when it started".into()
        })
    }
}

/// Which key exchange a client offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exchange {
    /// All, X25519MLKEM768 first.
    PostQuantum,
    /// X25519 only.
    Classic,
}

/// A server with a fresh certificate, and the fingerprint of it as text. It speaks `perf` too if
/// told so.
pub(super) fn server(perf: bool) -> Result<(Arc<ServerConfig>, String), String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed([NAME.to_owned()]).map_err(|error| words(&error))?;
    let certificate = cert.der().clone();
    let fingerprint = Fingerprint::of(&certificate);
    let fingerprint = fingerprint.as_bytes().iter();
    let fingerprint = fingerprint.map(|byte| format!("{byte:02x}")).collect();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(provider(Exchange::PostQuantum))
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| words(&error))?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .map_err(|error| words(&error))?;
    config.alpn_protocols = vec![OURS.into()];
    config
        .alpn_protocols
        .extend(perf.then(|| perf::ALPN.to_vec()));
    // QUIC allows no other bound (RFC 9001 §4.6.1). A ticket is good for one connection.
    config.max_early_data_size = u32::MAX;
    Ok((Arc::new(config), fingerprint))
}

/// A client that accepts the server with this certificate, or any.
pub(super) fn client(pin: Option<Pin>, exchange: Exchange) -> Result<Arc<ClientConfig>, String> {
    let provider = provider(exchange);
    let verifier = Verifier {
        pin,
        algorithms: provider.signature_verification_algorithms,
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![OURS.into()];
    config.enable_early_data = true;
    Ok(Arc::new(config))
}

/// A client as [`client`] has it, which speaks `perf` to a server of whatever stack. That may know
/// no tickets and no early data.
pub(super) fn perf_client(
    pin: Option<Pin>,
    exchange: Exchange,
) -> Result<Arc<ClientConfig>, String> {
    let mut config = ClientConfig::clone(&*client(pin, exchange)?);
    config.alpn_protocols = vec![perf::ALPN.to_vec()];
    config.enable_early_data = false;
    Ok(Arc::new(config))
}

/// A client that the server has never seen, whatever was before.
pub(super) fn newcomer(pin: Option<Pin>) -> Result<Arc<ClientConfig>, String> {
    let mut config = ClientConfig::clone(&*client(pin, Exchange::PostQuantum)?);
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    Ok(Arc::new(config))
}

fn provider(exchange: Exchange) -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    if exchange == Exchange::Classic {
        provider
            .kx_groups
            .retain(|group| group.name() == NamedGroup::X25519);
    }
    Arc::new(provider)
}

/// Takes any certificate whose owner is there, or only the one with the pin.
#[derive(Debug)]
struct Verifier {
    pin: Option<Pin>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.pin {
            Some(Pin(pin)) if Fingerprint::of(end_entity) != pin => {
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
            Some(_) | None => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
