//! A throw-away certificate authority.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PKCS_ED25519, SerialNumber,
};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::{
        CryptoProvider,
        aws_lc_rs::{self, kx_group},
    },
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime},
    time_provider::TimeProvider,
    version::TLS13,
};

/// The name in the hub's certificate.
pub const HUB_NAME: &str = "hub.sennit";

/// What one end takes for the date.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calendar(Arc<AtomicI64>);

impl Calendar {
    /// From now on it is so many seconds ahead, or behind.
    pub(crate) fn set(&self, ahead: i64) {
        self.0.store(ahead, Relaxed);
    }
}

impl TimeProvider for Calendar {
    fn current_time(&self) -> Option<UnixTime> {
        let since = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .ok()?;
        let seconds = since.as_secs().checked_add_signed(self.0.load(Relaxed))?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// Issues the hub's certificate and makes edges trust it.
pub struct Authority {
    root: CertificateDer<'static>,
    hub: CertificateDer<'static>,
    key: Vec<u8>,
    /// Of its edges and of its hubs.
    pub(crate) calendars: [Calendar; 2],
    /// Its hubs take early data.
    pub early: bool,
    /// Its hubs take no key exchange that an edge begins with, and ask for another ClientHello.
    pub asks_again: bool,
    /// Its edges offer no post-quantum key exchange.
    pub classic: bool,
}

impl Authority {
    /// A fresh authority. Keys are random, but whatever they are, handshakes are of the same size:
    /// signatures of Ed25519 are (RFC 8032 §5.1.6), those of ECDSA are not, nor are the serial
    /// numbers that certificates have from their keys unless they are given others.
    ///
    /// # Panics
    /// If the cryptographic library cannot make keys.
    #[expect(
        clippy::new_without_default,
        reason = "it makes keys, which no default should"
    )]
    pub fn new() -> Self {
        let key = KeyPair::generate_for(&PKCS_ED25519).expect("the library makes keys");
        let mut params = CertificateParams::default();
        params.serial_number = Some(SerialNumber::from(1));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, key).expect("valid parameters");
        let key = KeyPair::generate_for(&PKCS_ED25519).expect("the library makes keys");
        let mut params = CertificateParams::new([HUB_NAME.to_owned()]).expect("a valid name");
        params.serial_number = Some(SerialNumber::from(2));
        let hub = params.signed_by(&key, &issuer).expect("valid parameters");
        Self {
            root: issuer.der().clone(),
            hub: hub.der().clone(),
            key: key.serialize_der(),
            calendars: Default::default(),
            early: true,
            asks_again: false,
            classic: false,
        }
    }

    /// For an edge that trusts this authority.
    pub fn client(&self) -> Arc<ClientConfig> {
        if self.classic {
            return self.classic_client();
        }
        self.client_with(aws_lc_rs::default_provider())
    }

    /// The same without post-quantum key exchange.
    pub fn classic_client(&self) -> Arc<ClientConfig> {
        self.client_with(CryptoProvider {
            kx_groups: vec![kx_group::X25519],
            ..aws_lc_rs::default_provider()
        })
    }

    fn client_with(&self, provider: CryptoProvider) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).expect("our own root is valid");
        let calendar = Arc::new(self.calendars[0].clone());
        let mut config = ClientConfig::builder_with_details(provider.into(), calendar)
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has TLS 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h3".to_vec()];
        config.enable_early_data = true;
        Arc::new(config)
    }

    /// For a hub that this authority vouches for.
    pub fn server(&self) -> Arc<ServerConfig> {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()));
        let mut provider = aws_lc_rs::default_provider();
        if self.asks_again {
            provider.kx_groups = vec![kx_group::SECP256R1];
        }
        let calendar = Arc::new(self.calendars[1].clone());
        let mut config = ServerConfig::builder_with_details(provider.into(), calendar)
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has TLS 1.3")
            .with_no_client_auth()
            .with_single_cert(vec![self.hub.clone()], key)
            .expect("our own certificate is valid");
        config.alpn_protocols = vec![b"h3".to_vec()];
        config.max_early_data_size = if self.early { u32::MAX } else { 0 };
        Arc::new(config)
    }
}
