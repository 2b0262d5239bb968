//! Sennit's own capsule: which of the prefixes that an edge announced the hub does not route, and
//! why.
//!
//! ```text
//! Refused Prefix {
//!   IP Version (8), IP Address (32..128), IP Prefix Length (8), Reason Length (8), Reason (..),
//! } ...
//! ```
//! Each capsule replaces the one before; without prefixes it says that nothing is refused.

use super::{
    CapsuleError,
    address::{put_prefix, take_prefix},
    take_u8,
};
use crate::prefix::IpPrefix;
use bytes::BufMut;

/// The longest reason, in bytes: a line in a terminal.
pub const MAX_REASON: usize = 160;

/// A prefix that the hub does not route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedPrefix {
    /// What was announced.
    pub prefix: IpPrefix,
    /// At most [`MAX_REASON`] bytes, without control characters.
    pub reason: String,
}

pub(super) fn put(out: &mut Vec<u8>, refused: &[RefusedPrefix]) -> Result<(), CapsuleError> {
    for RefusedPrefix { prefix, reason } in refused {
        check_reason(reason)?;
        put_prefix(out, *prefix);
        out.put_u8(reason.len() as u8);
        out.put_slice(reason.as_bytes());
    }
    Ok(())
}

pub(super) fn take(mut input: &[u8]) -> Result<Vec<RefusedPrefix>, CapsuleError> {
    let input = &mut input;
    let mut refused = Vec::new();
    while !input.is_empty() {
        let prefix = take_prefix(input)?;
        let len = usize::from(take_u8(input)?);
        let (reason, rest) = input.split_at_checked(len).ok_or(CapsuleError::Truncated)?;
        let reason = str::from_utf8(reason).map_err(|_| CapsuleError::Reason)?;
        check_reason(reason)?;
        *input = rest;
        refused.push(RefusedPrefix {
            prefix,
            reason: reason.to_owned(),
        });
    }
    Ok(refused)
}

/// It is shown in terminals and logs.
fn check_reason(reason: &str) -> Result<(), CapsuleError> {
    if reason.len() > MAX_REASON || reason.chars().any(char::is_control) {
        return Err(CapsuleError::Reason);
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::capsule::address::tests::any_assigned;
    use proptest::prelude::*;

    pub(crate) fn any_refused() -> impl Strategy<Value = RefusedPrefix> {
        (any_assigned(), "[a-zà-ü0-9 :-]{0,40}").prop_map(|(assigned, reason)| RefusedPrefix {
            prefix: assigned.prefix,
            reason,
        })
    }

    #[test]
    fn a_reason_that_would_garble_a_terminal_or_is_too_long_is_refused() {
        for reason in [&b"\x1b[2J"[..], b"\xff", &[b'a'; MAX_REASON + 1]] {
            let wire = [&[4, 1, 1, 1, 1, 32, reason.len() as u8], reason].concat();
            assert_eq!(take(&wire), Err(CapsuleError::Reason));
        }
        let refused = RefusedPrefix {
            prefix: "1.1.1.1/32".parse().unwrap(),
            reason: "a\nb".into(),
        };
        assert_eq!(put(&mut Vec::new(), &[refused]), Err(CapsuleError::Reason));
    }
}
