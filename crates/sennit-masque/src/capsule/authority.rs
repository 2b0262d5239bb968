//! Sennit's own capsule: the hub gets another authority, by which edges know it.
//!
//! ```text
//! Authority {
//!   Fingerprint (256), Within (32), later fields (..),
//! }
//! ```

use super::{CapsuleError, take_array};
use bytes::BufMut;

/// The authority to which an edge should move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextAuthority {
    /// SHA-256 of its certificate.
    pub fingerprint: [u8; 32],
    /// Seconds over which edges spread their requests for a certificate of it.
    pub within: u32,
}

impl NextAuthority {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.put_slice(&self.fingerprint);
        out.put_u32(self.within);
    }

    /// What follows the fields that are known is of a later version.
    pub(super) fn take(mut input: &[u8]) -> Result<Self, CapsuleError> {
        let input = &mut input;
        Ok(Self {
            fingerprint: take_array(input)?,
            within: u32::from_be_bytes(take_array(input)?),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn any_authority() -> impl Strategy<Value = NextAuthority> {
        any::<([u8; 32], u32)>().prop_map(|(fingerprint, within)| NextAuthority {
            fingerprint,
            within,
        })
    }

    #[test]
    fn what_follows_the_known_fields_is_ignored_and_what_is_cut_short_is_refused() {
        let next = NextAuthority {
            fingerprint: [7; 32],
            within: 500,
        };
        let mut value = Vec::new();
        next.put(&mut value);
        assert_eq!(
            NextAuthority::take(&value[..35]),
            Err(CapsuleError::Truncated)
        );
        value.push(1);
        assert_eq!(NextAuthority::take(&value), Ok(next));
    }
}
