//! The sockets that wireguard-go makes outside of its network namespace.

use std::path::{Path, PathBuf};

use crate::host;

/// Where wireguard-go listens for `wg`, by device, whatever its network namespace is.
const SOCKETS: &str = "/var/run/wireguard";

/// That of a device.
pub(crate) fn of(device: &str) -> PathBuf {
    Path::new(SOCKETS).join(format!("{device}.sock"))
}

/// Removes the sockets of this process.
pub(crate) fn remove_all() {
    remove_sockets(|pid| pid == std::process::id());
}

/// Removes the sockets of processes that are no longer alive.
pub(crate) fn remove_leftovers() {
    remove_sockets(|pid| !host::is_alive(pid));
}

fn remove_sockets(of: impl Fn(u32) -> bool) {
    for entry in std::fs::read_dir(SOCKETS).into_iter().flatten().flatten() {
        if owner(&entry.file_name().to_string_lossy()).is_some_and(&of) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// The process that made a socket of this name, if a lab did.
fn owner(socket: &str) -> Option<u32> {
    let device = socket.strip_suffix(".sock")?;
    host::owner_of_prefix(device.strip_suffix(['h', 'e'])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_that_a_lab_makes_have_an_owner() {
        assert_eq!(owner("snt4711-3h.sock"), Some(4711));
        assert_eq!(owner("snt4711-3.sock"), None);
        assert_eq!(owner("wg0.sock"), None);
        assert_eq!(owner("snt4711-3e"), None);
    }
}
