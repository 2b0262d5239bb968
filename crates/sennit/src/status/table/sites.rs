//! What there is to say of the sites of a hub beside their tunnels.

use super::{Cell, Side, Text, UNKNOWN};
use crate::status::{RefusedPrefix, SiteStatus};

/// Prefixes that are told of here; one site may announce many.
const TOLD: usize = 8;

impl Text {
    /// What sites announce as their LANs and are not routed.
    pub(super) fn refused(&mut self, sites: &[SiteStatus]) {
        let refused = sites.iter().flat_map(|site| {
            let prefixes = site.refused_lan.iter();
            prefixes.map(move |refused| (&site.name, refused))
        });
        for (name, RefusedPrefix { prefix, reason }) in refused.clone().take(TOLD) {
            self.note(&format!("{prefix} is not routed to site {name}: {reason}"));
        }
        let more = refused.count().saturating_sub(TOLD);
        if more > 0 {
            self.note(&format!(
                "{more} more prefixes are not routed: `sennit sites` lists them"
            ));
        }
    }

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
