//! A private key and its certificate.

use rustls::crypto::aws_lc_rs::sign;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// True when `key` is the private half of the first certificate's key.
pub(super) fn belongs_together(
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
) -> bool {
    let Ok(key) = sign::any_ecdsa_type(key) else {
        return false;
    };
    CertifiedKey::new(chain.to_vec(), key).keys_match().is_ok()
}
