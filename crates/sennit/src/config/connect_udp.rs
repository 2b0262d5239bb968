//! `[connect_udp]` of a hub.

use std::ops::RangeInclusive;
use std::time::Duration;

use sennit_packet::Bitrate;
use toml::Spanned;

use super::finding::Finding;
use super::section::Section;
use super::values::{self, Wrong};
use crate::reach::Reach;

/// Flows of one client.
pub(super) const FLOWS: RangeInclusive<i64> = 1..=4096;
/// Seconds.
pub(super) const IDLE: RangeInclusive<i64> = 1..=3600;
pub(super) const DEFAULT_FLOWS: u32 = 64;
/// What a NAT keeps a UDP mapping for at least (RFC 4787 §4.3), and so a proxy (RFC 9298 §3.1).
pub(super) const DEFAULT_IDLE: u16 = 120;

/// How UDP is proxied for clients (RFC 9298).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectUdp {
    /// Where targets may be, of what a client may reach at all.
    pub reach: Reach,
    /// Which ports of them.
    pub ports: Vec<RangeInclusive<u16>>,
    /// How many flows one client may have.
    pub flows: u32,
    /// A flow without any packet ends after this.
    pub idle: Duration,
    /// What one client gets in each direction.
    pub rate: Option<Bitrate>,
}

pub(super) fn read(
    file: &mut Section<'_, '_>,
    text: &str,
    findings: &mut Vec<Finding>,
) -> Option<ConnectUdp> {
    let value = file.value("connect_udp")?;
    let mut udp = Section::open("[connect_udp]", value, text, findings)?;
    let reach = udp.strings("reach", values::place, findings);
    let help = "without the key it is [\"internet\"]; without the section nothing is proxied";
    udp.require_some("reach", help, findings);
    let ports = udp.strings("ports", ports, findings);
    let help = "without the key all ports are allowed";
    udp.require_some("ports", help, findings);
    let flows = udp.integer("flows", FLOWS, findings);
    let idle = udp.integer("idle", IDLE, findings);
    let rate = udp.string("rate", values::rate, findings);
    udp.finish(findings);
    let inner = |ports: Vec<Spanned<_>>| ports.into_iter().map(Spanned::into_inner).collect();
    Some(ConnectUdp {
        reach: reach.map_or_else(Reach::internet, |places| {
            places.into_iter().map(Spanned::into_inner).collect()
        }),
        ports: ports.map_or_else(|| vec![1..=u16::MAX], inner),
        flows: flows.map_or(DEFAULT_FLOWS, Spanned::into_inner),
        idle: Duration::from_secs(idle.map_or(DEFAULT_IDLE, Spanned::into_inner).into()),
        rate: rate.map(Spanned::into_inner),
    })
}

/// A port, or a range of them.
fn ports(typed: &str) -> Result<RangeInclusive<u16>, Wrong> {
    let port = |text: &str| text.parse().ok().filter(|&port: &u16| port != 0);
    let (first, last) = typed.split_once('-').unwrap_or((typed, typed));
    let range = port(first).zip(port(last));
    let range = range.filter(|(first, last)| first <= last);
    range.map(|(first, last)| first..=last).ok_or_else(|| {
        Wrong::new(format!("`{}` is no port", typed.escape_debug()))
            .help("write a port from 1 to 65535 like \"443\", or a range like \"1024-65535\"")
    })
}
