//! When keys of tunnels are renewed.

use sennit_engine::Rekey;
use toml::Spanned;

use super::{finding::Finding, limits::REKEY_PACKETS, section::Section, values};

/// Reads how much one key of a tunnel seals.
pub(super) fn read(section: &mut Section<'_, '_>, findings: &mut Vec<Finding>) -> Rekey {
    let packets = section.integer("rekey_packets", REKEY_PACKETS, findings);
    let bytes = section.string("rekey_bytes", values::rekey_bytes, findings);
    let usual = Rekey::default();
    Rekey {
        packets: packets.map_or(usual.packets, Spanned::into_inner),
        bytes: bytes.map_or(usual.bytes, Spanned::into_inner),
    }
}
