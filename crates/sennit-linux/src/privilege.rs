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

/// Whether the thread has `CAP_NET_ADMIN` in effect.
pub fn has_net_admin() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN))
}
