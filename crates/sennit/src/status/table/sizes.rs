//! How large packets the paths of a tunnel carry.

use super::{Text, shorten, wrap};
use crate::status::{MtuSource, PathStatus};

/// Characters of a link's name.
const NAME: usize = 32;

impl Text {
    /// A line for each size, and how it is known, with the paths that have it.
    pub(super) fn sizes(&mut self, paths: &[PathStatus]) {
        let mut sizes: Vec<(String, Vec<String>)> = Vec::new();
        for path in paths {
            let size = size(path);
            let name = shorten(&path.name(), NAME);
            match sizes.iter_mut().find(|(known, _)| *known == size) {
                Some((_, names)) => names.push(name),
                None => sizes.push((size, vec![name])),
            }
        }
        for (size, names) in sizes {
            let text = wrap("  ", &format!("{size}: {}", names.join(", ")), self.width);
            self.lines.extend(text.lines().map(str::to_owned));
        }
    }
}

fn size(path: &PathStatus) -> String {
    let known = match path.mtu_source {
        Some(MtuSource::Assumed) => " (every path carries those)",
        Some(MtuSource::Probed) => " (probed)",
        Some(MtuSource::Interface) => " (the MTU of the interface)",
        Some(MtuSource::BlackHole) => " (larger ones do not arrive any more)",
        None => "",
    };
    format!("UDP packets of {} bytes fit{known}", path.mtu_bytes)
}
