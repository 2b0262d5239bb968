//! What both files bound alike.

use std::ops::RangeInclusive;

use sennit_engine::{Issuer, Rekey, Settings};
use toml::Spanned;

use super::finding::Finding;

/// RFC 8200 §5 wants 1280 for IPv6; above 9000 no WAN goes.
pub(crate) const MTU: RangeInclusive<i64> = 1280..=9000;
/// More threads than this share no work worth sharing.
pub(super) const WORKERS: RangeInclusive<i64> = 1..=64;
/// Packets that one key seals. Fewer would be renewed more often than the ends can tell each other
/// on a fast link; AES-GCM may seal twice as many (RFC 9001 §6.6).
pub(super) const REKEY_PACKETS: RangeInclusive<i64> = 1000..=4_194_304;
/// The usual size of packets on a WAN link, and the headers of IPv4 and UDP.
const LINK_MTU: u16 = 1500;
const IPV4_UDP: u16 = 20 + 8;

/// Classes of an edge. The number of a class is a byte, and whoever comes by a reload has another
/// one than whoever is there: classes of before, of the new file, and those with a device, which
/// stay until there is a restart, are less than 256 together.
pub(super) const MOST_CLASSES: usize = 64;
/// Rules of all classes together: the first packet of a flow is compared with each.
pub(super) const MOST_RULES: usize = 1024;
/// Whom to tell of events: each has a queue on the disk.
pub(super) const MOST_NOTIFIED: usize = 64;
/// Items of a list that is compared with itself.
pub(super) const MOST_ITEMS: usize = 1024;
/// More prefixes than a file of the greatest size has.
pub(super) const MOST_ROUTES: usize = 1 << 17;

/// What a large inner MTU means for the links.
pub(super) fn check_mtu(mtu: Option<&Spanned<u16>>, findings: &mut Vec<Finding>) {
    let Some(mtu) = mtu else { return };
    let settings = Settings {
        inner_mtu: *mtu.get_ref(),
        issuer: Issuer::default(),
        seed: [0; 32],
        reset_key: [0; 32],
        rekey: Rekey::default(),
    };
    let outside = settings.outer_mtu() + IPV4_UDP;
    if outside > LINK_MTU {
        let message = format!(
            "packets of {} bytes need {outside} on a link, and most links carry {LINK_MTU}",
            mtu.get_ref()
        );
        findings.push(Finding::warning(mtu.span(), message).help(
            "on a link that carries less full packets go in two halves, which costs some of its rate; \
             1400 fits Ethernet in both families",
        ));
    }
}
