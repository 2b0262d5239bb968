//! Sennit's own capsule: what one path of the tunnel is called and how it wants to be used.
//!
//! ```text
//! Path ID (i), Tier (8), Weight (16), State (8), Name Length (8), Name (..), ...
//! ```
//! Whatever follows the name is left for later versions and ignored.

use super::{CapsuleError, take_array, take_u8, take_varint};
use crate::varint;
use bytes::BufMut;

/// The longest link name, in bytes.
pub const MAX_LINK_NAME: usize = 32;

/// One path of a Sennit tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkInfo {
    /// The QUIC path id.
    pub path_id: u64,
    /// Lower is preferred.
    pub tier: u8,
    pub weight: u16,
    pub state: LinkState,
    /// At most [`MAX_LINK_NAME`] bytes, without control characters.
    pub name: String,
}

/// How the peer may use a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    Up,
    Backup,
    Down,
}

impl LinkInfo {
    pub(super) fn put(&self, out: &mut Vec<u8>) -> Result<(), CapsuleError> {
        if self.path_id > varint::MAX {
            return Err(CapsuleError::PathId);
        }
        check_name(&self.name)?;
        varint::put(out, self.path_id);
        out.put_u8(self.tier);
        out.put_u16(self.weight);
        out.put_u8(self.state.to_wire());
        out.put_u8(self.name.len() as u8);
        out.put_slice(self.name.as_bytes());
        Ok(())
    }

    pub(super) fn take(mut input: &[u8]) -> Result<Self, CapsuleError> {
        let input = &mut input;
        Ok(Self {
            path_id: take_varint(input)?,
            tier: take_u8(input)?,
            weight: u16::from_be_bytes(take_array(input)?),
            state: LinkState::from_wire(take_u8(input)?)?,
            name: take_name(input)?,
        })
    }
}

impl LinkState {
    const fn to_wire(self) -> u8 {
        match self {
            Self::Up => 0,
            Self::Backup => 1,
            Self::Down => 2,
        }
    }

    const fn from_wire(byte: u8) -> Result<Self, CapsuleError> {
        match byte {
            0 => Ok(Self::Up),
            1 => Ok(Self::Backup),
            2 => Ok(Self::Down),
            _ => Err(CapsuleError::LinkState),
        }
    }
}

fn take_name(input: &mut &[u8]) -> Result<String, CapsuleError> {
    let len = usize::from(take_u8(input)?);
    let name = input.get(..len).ok_or(CapsuleError::Truncated)?;
    let name = str::from_utf8(name).map_err(|_| CapsuleError::LinkName)?;
    check_name(name)?;
    Ok(name.to_owned())
}

/// The name is shown in terminals and logs, so it carries no control characters.
fn check_name(name: &str) -> Result<(), CapsuleError> {
    if name.len() > MAX_LINK_NAME || name.chars().any(char::is_control) {
        return Err(CapsuleError::LinkName);
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn any_link() -> impl Strategy<Value = LinkInfo> {
        let state = prop_oneof![
            Just(LinkState::Up),
            Just(LinkState::Backup),
            Just(LinkState::Down)
        ];
        (
            0..=varint::MAX,
            any::<u8>(),
            any::<u16>(),
            state,
            "[a-zà-ü0-9 -]{0,16}",
        )
            .prop_map(|(path_id, tier, weight, state, name)| LinkInfo {
                path_id,
                tier,
                weight,
                state,
                name,
            })
    }

    fn wire(name: &[u8]) -> Vec<u8> {
        [&[3, 1, 0, 2, 1, name.len() as u8], name].concat()
    }

    #[test]
    fn a_link_decodes_and_later_fields_are_ignored() {
        let link = LinkInfo {
            path_id: 3,
            tier: 1,
            weight: 2,
            state: LinkState::Backup,
            name: "starlink".into(),
        };
        assert_eq!(LinkInfo::take(&wire(b"starlink")), Ok(link.clone()));
        assert_eq!(
            LinkInfo::take(&[&wire(b"starlink")[..], b"more"].concat()),
            Ok(link)
        );
    }

    #[test]
    fn a_bad_name_is_refused() {
        assert_eq!(
            LinkInfo::take(&wire(&[b'a'; 33])),
            Err(CapsuleError::LinkName)
        );
        assert_eq!(LinkInfo::take(&wire(b"\xff")), Err(CapsuleError::LinkName));
        assert_eq!(
            LinkInfo::take(&wire(b"\x1b[2J")),
            Err(CapsuleError::LinkName)
        );
    }

    #[test]
    fn a_bad_state_and_every_cut_are_refused() {
        assert_eq!(
            LinkInfo::take(&[3, 1, 0, 2, 3, 0]),
            Err(CapsuleError::LinkState)
        );
        let whole = wire(b"lte");
        for len in 0..whole.len() {
            assert_eq!(
                LinkInfo::take(&whole[..len]),
                Err(CapsuleError::Truncated),
                "{len}"
            );
        }
    }
}
