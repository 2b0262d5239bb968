//! The sites of a hub that are away.

use super::{Cell, Side, Text, UNKNOWN};
use crate::status::SiteStatus;

impl Text {
    /// The sites that have joined and have no tunnel.
    pub(super) fn away(&mut self, sites: &[SiteStatus]) {
        let away = sites.iter().filter(|site| site.is_away());
        let rows = away.map(|site| {
            let seen = site.last_seen.as_deref().unwrap_or(UNKNOWN);
            ([Cell::from(site.name.to_string()), seen.into()], None)
        });
        let rows: Vec<_> = rows.collect();
        if !rows.is_empty() {
            self.lines.push(String::new());
            let columns = [("SITE THAT IS AWAY", Side::Left), ("LAST HERE", Side::Left)];
            self.table("", &columns, rows);
        }
    }
}
