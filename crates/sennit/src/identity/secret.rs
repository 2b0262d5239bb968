//! Secrets and fingerprints.

use std::fmt;

use aws_lc_rs::{digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::{Zeroize as _, Zeroizing};

/// 256 random bits that whoever holds them is let in for. Never printed by `Debug`, and wiped from
/// memory when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Secret {
    /// A fresh one from the system's generator.
    pub fn random() -> Self {
        let mut bytes = [0; 32];
        rand::fill(&mut bytes).expect("the system's random generator works");
        Self(bytes)
    }

    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// What the store keeps of it; 256 random bits need no salt and no stretching.
    pub fn hash(&self) -> [u8; 32] {
        sha256(&self.0)
    }

    pub(super) fn to_base64(&self) -> Zeroizing<String> {
        Zeroizing::new(URL_SAFE_NO_PAD.encode(self.0))
    }

    pub(super) fn from_base64(text: &str) -> Option<Self> {
        let bytes = Zeroizing::new(URL_SAFE_NO_PAD.decode(text).ok()?);
        Some(Self(bytes.as_slice().try_into().ok()?))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// SHA-256 of a certificate, by which an edge knows its hub.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub fn of(der: &[u8]) -> Self {
        Self(sha256(der))
    }

    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The name in the certificate of the hub whose authority this is.
    pub fn hub_name(&self) -> String {
        let label: String = self.0[..16]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("{label}.hub.sennit")
    }

    pub(crate) fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        for (n, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * n..2 * n + 2)?, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

pub(super) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, bytes);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_in_its_debug_text() {
        let secret = Secret::from_bytes([0xab; 32]);
        assert_eq!(format!("{secret:?}"), "Secret(…)");
    }

    #[test]
    fn a_fingerprint_survives_its_text() {
        let print = Fingerprint::of(b"sennit");
        assert_eq!(Fingerprint::from_hex(&print.to_string()), Some(print));
        assert_eq!(Fingerprint::from_hex("+1"), None);
        assert_eq!(Fingerprint::from_hex(&"é".repeat(32)), None);
    }
}
