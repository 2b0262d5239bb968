//! The hub's side: an authority of its own and the certificate it shows.
//!
//! While the authority is rotated there are two of both, in two [`places`].

use std::path::Path;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SerialNumber,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use super::files::{self, Access};
use super::places::{AUTHORITY_CERTIFICATE, AUTHORITY_KEY, HUB_CERTIFICATE, HUB_KEY, places};
use super::secret::sha256;
use super::{Fingerprint, IdentityError, names};
use crate::site::SiteName;
use crate::store::Store;

/// The authority is pinned by every edge, and replaced by a rotation only.
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(20 * 365 * 86_400);
/// How long a site may be away and still come back without a new invitation.
pub(super) const SITE_LIFETIME: Duration = Duration::from_secs(365 * 86_400);

/// September 2026: a clock that says less was not set since the host was started.
const LEAST_CLOCK: Duration = Duration::from_secs(1_790_000_000);

/// In the certificate of each hub.
const HUB_NAME: &str = "hub.sennit";

/// Signs the certificates of one hub and of its sites.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    fingerprint: Fingerprint,
    /// What the clock says at least, once it was set.
    least_clock: SystemTime,
}

/// A certificate that was just made for a site.
pub struct Issued {
    pub certificate: CertificateDer<'static>,
    pub fingerprint: Fingerprint,
    /// Of the authority that made it.
    pub authority: Fingerprint,
    /// SHA-256 of the public key.
    pub key: [u8; 32],
    pub not_after: SystemTime,
}

/// All that a hub is known by.
pub struct HubIdentity {
    pub authority: Authority,
    /// The hub's certificate and the authority's, as they go into the handshake.
    pub chain: Vec<CertificateDer<'static>>,
    pub key: Zeroizing<PrivateKeyDer<'static>>,
    /// What it was known by before, until a rotation is finished.
    pub former: Option<Box<Self>>,
}

impl HubIdentity {
    /// Makes a new identity and an empty store in `state`.
    ///
    /// `names` are further DNS names or IP addresses under which third-party clients know the hub.
    pub fn init(state: &Path, names: &[String], now: SystemTime) -> Result<Self, IdentityError> {
        files::make_state_dir(state)?;
        let certificate = state.join(AUTHORITY_CERTIFICATE);
        if files::read_if_any(&certificate)?.is_some() {
            return Err(IdentityError::HubExists {
                state: state.into(),
            });
        }
        Store::create(state)?;
        Self::make(state, names, now)?;
        Self::load(state)
    }

    /// Makes an authority and a hub's certificate in `place`, with keys of their own.
    pub(super) fn make(
        place: &Path,
        names: &[String],
        now: SystemTime,
    ) -> Result<Fingerprint, IdentityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let authority = Authority::make(&key, now)?;
        let hub_key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let hub = authority.certify_hub(&hub_key, names, now)?;
        let private = |key: &KeyPair| Zeroizing::new(key.serialize_pem());
        let write = |name: &str, access, text: &str| {
            files::write(&place.join(name), access, text.as_bytes())
        };
        write(HUB_KEY, Access::Private, &private(&hub_key))?;
        write(HUB_CERTIFICATE, Access::Public, &hub.pem())?;
        write(AUTHORITY_KEY, Access::Private, &private(&key))?;
        // Last, because its presence says that all the rest is there.
        write(AUTHORITY_CERTIFICATE, Access::Public, &authority.pem())?;
        Ok(authority.fingerprint)
    }

    /// Completes the identity in `state`: with a store, if that is gone, and with a certificate for
    /// exactly these further names, if there are any. Its keys and its authority stay.
    pub fn complete(
        state: &Path,
        names: &[String],
        now: SystemTime,
    ) -> Result<Self, IdentityError> {
        let held = files::hold(state);
        for place in places(state)? {
            let authority = Authority::of(&place)?;
            if !names.is_empty() {
                let key = key_pair(&place.join(HUB_KEY))?;
                let hub = authority.certify_hub(&key, names, now)?;
                let path = place.join(HUB_CERTIFICATE);
                files::write(&path, Access::Public, hub.pem().as_bytes())?;
            }
        }
        Store::create(state)?;
        drop(held);
        Self::load(state)
    }

    /// Reads the identity in `state`.
    pub fn load(state: &Path) -> Result<Self, IdentityError> {
        let _held = files::hold(state);
        let mut former = None;
        for place in places(state)?.iter().rev() {
            former = Some(Box::new(Self::of(place, former)?));
        }
        let present = former.ok_or_else(|| IdentityError::NoHub {
            state: state.into(),
        })?;
        Ok(*present)
    }

    /// Reads the one in a place.
    fn of(place: &Path, former: Option<Box<Self>>) -> Result<Self, IdentityError> {
        let authority = Authority::of(place)?;
        let key = key_pair(&place.join(HUB_KEY))?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let key = Zeroizing::new(key);
        let chain = vec![hub_certificate(place)?, authority.certificate.clone()];
        Ok(Self {
            authority,
            chain,
            key,
            former,
        })
    }

    /// Its authority, and the former one if there is one.
    pub fn into_authorities(self) -> Vec<Authority> {
        let former = self.former.map(|former| former.authority);
        std::iter::once(self.authority).chain(former).collect()
    }
}

/// The further names in the certificate of the hub in a place.
pub(super) fn further_names(place: &Path) -> Result<Vec<String>, IdentityError> {
    let own = [
        Authority::of(place)?.fingerprint.hub_name(),
        HUB_NAME.into(),
    ];
    let mut names = names::of(&hub_certificate(place)?);
    names.retain(|name| !own.contains(name));
    Ok(names)
}

fn hub_certificate(place: &Path) -> Result<CertificateDer<'static>, IdentityError> {
    let path = place.join(HUB_CERTIFICATE);
    certificate(&path, &files::read(&path)?)
}

impl Authority {
    /// Reads the authority in `state`, by which sites are invited now.
    pub fn load(state: &Path) -> Result<Self, IdentityError> {
        let _held = files::hold(state);
        let places = places(state)?;
        Self::of(places.first().map_or(state, |place| place))
    }

    /// Reads the one in a place.
    pub(super) fn of(place: &Path) -> Result<Self, IdentityError> {
        let path = place.join(AUTHORITY_CERTIFICATE);
        let pem = files::read_if_any(&path)?.ok_or_else(|| IdentityError::NoHub {
            state: place.into(),
        })?;
        Self::assemble(
            certificate(&path, &pem)?,
            key_pair(&place.join(AUTHORITY_KEY))?,
        )
    }

    fn make(key: &KeyPair, now: SystemTime) -> Result<Self, IdentityError> {
        let mut params = named(
            "Sennit hub authority",
            end(now, AUTHORITY_LIFETIME, least_clock()),
        )?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(key)?;
        let key = KeyPair::from_pkcs8_der_and_sign_algo(
            &key.serialized_der().into(),
            &PKCS_ECDSA_P256_SHA256,
        )?;
        Self::assemble(certificate.into(), key)
    }

    fn assemble(certificate: CertificateDer<'static>, key: KeyPair) -> Result<Self, IdentityError> {
        let issuer = Issuer::from_ca_cert_der(&certificate, key)?;
        let fingerprint = Fingerprint::of(&certificate);
        Ok(Self {
            issuer,
            certificate,
            fingerprint,
            least_clock: least_clock(),
        })
    }

    /// For those who sign in the past on purpose.
    pub fn with_least_clock(self, least_clock: SystemTime) -> Self {
        Self {
            least_clock,
            ..self
        }
    }

    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The certificate for clients that want to trust this hub.
    pub fn pem(&self) -> String {
        pem(&self.certificate)
    }

    fn certify_hub(
        &self,
        key: &KeyPair,
        names: &[String],
        now: SystemTime,
    ) -> Result<rcgen::Certificate, IdentityError> {
        let mut all = vec![self.fingerprint.hub_name(), HUB_NAME.to_owned()];
        all.extend_from_slice(names);
        let mut params = named("Sennit hub", end(now, AUTHORITY_LIFETIME, self.least_clock))?;
        params.subject_alt_names = CertificateParams::new(all)?.subject_alt_names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        Ok(params.signed_by(key, &self.issuer)?)
    }

    /// A certificate for `site`, to prove itself with the key that `public_key` belongs to.
    pub fn certify_site(
        &self,
        site: &SiteName,
        public_key: &impl PublicKeyData,
        now: SystemTime,
    ) -> Result<Issued, IdentityError> {
        let not_after = end(now, SITE_LIFETIME, self.least_clock);
        let mut params = named(site.as_str(), not_after)?;
        params.subject_alt_names =
            CertificateParams::new(vec![format!("{site}.site.sennit")])?.subject_alt_names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate: CertificateDer<'static> =
            params.signed_by(public_key, &self.issuer)?.into();
        let fingerprint = Fingerprint::of(&certificate);
        Ok(Issued {
            certificate,
            fingerprint,
            authority: self.fingerprint,
            key: sha256(public_key.der_bytes()),
            not_after,
        })
    }
}

/// When something ends that is signed now. Where nobody knows when that is, it must not have ended
/// when the clock is set: it ends with the authority, unless the store forgets it.
fn end(now: SystemTime, lifetime: Duration, least_clock: SystemTime) -> SystemTime {
    if now < least_clock {
        least_clock + AUTHORITY_LIFETIME
    } else {
        now + lifetime
    }
}

fn least_clock() -> SystemTime {
    SystemTime::UNIX_EPOCH + LEAST_CLOCK
}

/// Parameters with a name and an end. The begin is 1970: a router without a clock battery that has
/// just booted must be able to check a certificate which it knows by its pin, and a hub one that it
/// has signed while its own clock was ahead.
fn named(name: &str, not_after: SystemTime) -> Result<CertificateParams, IdentityError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = OffsetDateTime::UNIX_EPOCH;
    params.not_after = OffsetDateTime::from(not_after);
    params.serial_number = Some(serial_number());
    Ok(params)
}

/// 126 random bits, positive in 16 bytes and never zero (RFC 5280 §4.1.2.2).
fn serial_number() -> SerialNumber {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system's random generator works");
    bytes[0] = (bytes[0] & 0x3f) | 0x40;
    SerialNumber::from_slice(&bytes)
}

pub(super) fn pem(certificate: &CertificateDer<'_>) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(certificate);
    let lines = text
        .as_bytes()
        .chunks(64)
        .map(|line| std::str::from_utf8(line).expect("base64 is ASCII"));
    let body: String = lines.flat_map(|line| [line, "\n"]).collect();
    format!("-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n")
}

/// The first certificate of `text`, which was read from `path`.
pub(super) fn certificate(
    path: &Path,
    text: &str,
) -> Result<CertificateDer<'static>, IdentityError> {
    CertificateDer::from_pem_slice(text.as_bytes()).map_err(|_| IdentityError::Damaged {
        path: path.into(),
        what: "it holds no PEM certificate".into(),
    })
}

pub(super) fn key_pair(path: &Path) -> Result<KeyPair, IdentityError> {
    KeyPair::from_pem(&files::read_private(path)?).map_err(|_| IdentityError::Damaged {
        path: path.into(),
        what: "it holds no private key".into(),
    })
}
