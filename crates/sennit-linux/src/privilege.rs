//! Whether this process may do what it is about to do.

use rustix::thread::{CapabilitySet, capabilities};

use crate::Error;

/// Fails with an explanation unless the thread has `CAP_NET_ADMIN` (in its user namespace).
pub fn require_net_admin() -> Result<(), Error> {
    if has_net_admin() {
        Ok(())
    } else {
        Err(Error::NotPrivileged)
    }
}

/// Whether the thread may become another user, and give him files of its own.
pub fn may_change_user() -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::CHOWN;
    capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Whether the thread has `CAP_NET_ADMIN` in effect.
pub fn has_net_admin() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN))
}
