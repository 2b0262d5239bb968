//! Another config at a hub whose tunnels stay.

use std::time::Instant;

use super::{Hub, HubConfig};

impl Hub {
    /// Goes on with another config. Tunnels and flows live on; `addresses` and `max_strangers` are
    /// those of the start.
    pub fn change(&mut self, config: HubConfig, now: Instant) {
        let HubConfig {
            addresses: _,
            max_strangers: _,
            site_limit,
            classes,
            udp_flows,
        } = config;
        self.sites.set_rules(classes.clone());
        self.config.classes = classes;
        self.config.site_limit = site_limit;
        self.bound_sites(now);
        if self.config.udp_flows != udp_flows {
            self.config.udp_flows = udp_flows;
            self.bound_flows();
        }
    }
}
