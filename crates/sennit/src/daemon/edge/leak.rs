//! What becomes of packets that belong into the tunnel while there is none, as the kernel says.

use std::path::Path;

use crate::{
    config::{EdgeConfig, Leak},
    status::LeakStatus,
};

/// Whether all that a config makes unreachable without a tunnel is so, whoever made it so; nothing
/// if it makes nothing unreachable, or the kernel cannot be asked.
pub(super) fn holds(config: &EdgeConfig) -> Option<bool> {
    let mut wanted = super::blocked(config);
    // Where the kernel has no IPv6, nothing leaves by it.
    let has_ipv6 = Path::new("/proc/net/if_inet6").exists();
    wanted.retain(|prefix| has_ipv6 || prefix.is_ipv4());
    if wanted.is_empty() {
        return None;
    }
    let found = sennit_linux::find_blocked(&config.device)
        .inspect_err(|error| tracing::debug!(%error, "cannot list what is unreachable"))
        .ok()?;
    Some(wanted.iter().all(|prefix| found.contains(prefix)))
}

/// What there is to say of it, if anything belongs into the tunnel.
pub(super) fn status(config: &EdgeConfig, held_before_start: bool) -> Option<LeakStatus> {
    let in_force = match config.leak {
        Leak::Block => holds(config),
        Leak::Allow => Some(false),
    };
    (!config.routes.is_empty()).then_some(LeakStatus {
        policy: config.leak,
        in_force,
        held_before_start,
    })
}
