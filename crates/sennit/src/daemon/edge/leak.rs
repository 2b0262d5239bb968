//! What becomes of packets that belong into the tunnel while there is none, as the kernel says.

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    config::{EdgeConfig, Leak},
    status::LeakStatus,
};

/// What was seen is believed for so long.
const FRESH: Duration = Duration::from_secs(3);

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

/// How it stood when the kernel was asked last.
#[derive(Debug)]
pub(super) struct Hold {
    /// It was so already when this edge started.
    before_start: bool,
    seen: Mutex<Option<(Instant, Option<bool>)>>,
}

impl Hold {
    pub(super) fn new(before_start: bool) -> Self {
        Self {
            before_start,
            seen: Mutex::default(),
        }
    }

    /// What there is to say of it, if anything belongs into the tunnel.
    pub(super) fn status(&self, config: &EdgeConfig, now: Instant) -> Option<LeakStatus> {
        let in_force = || match config.leak {
            Leak::Block => self.look(config, now),
            Leak::Allow => Some(false),
        };
        (!config.routes.is_empty()).then(|| LeakStatus {
            policy: config.leak,
            in_force: in_force(),
            held_before_start: self.before_start,
        })
    }

    /// Asks the kernel now and then: a status is asked for each second, and hosts may have many
    /// routes.
    fn look(&self, config: &EdgeConfig, now: Instant) -> Option<bool> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match *seen {
            Some((at, held)) if now.saturating_duration_since(at) < FRESH => held,
            _ => seen.insert((now, holds(config))).1,
        }
    }
}
