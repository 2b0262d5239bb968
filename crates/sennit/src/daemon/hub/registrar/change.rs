//! Another config: what all sites may, and where UDP is proxied to.

use std::{sync::Arc, time::SystemTime};

use super::{Registrar, targets::Policy};
use crate::{
    config::HubConfig,
    daemon::{hub::relay::window::Order, mailbox::Slot},
    exit::Failure,
    reach::Reach,
};

impl Registrar {
    /// Goes on with another config. If the host cannot be made to follow, all is as it was.
    pub(super) fn change(
        &mut self,
        config: Arc<HubConfig>,
        relay: Option<Slot<Order>>,
        now: SystemTime,
    ) -> Result<(), Failure> {
        let config = std::mem::replace(&mut self.config, config);
        let confined = self.confined.clone();
        let learnt = self.learn_confined(now).map_err(Failure::from);
        let applied = learnt.and_then(|()| self.apply_filter().map_err(Failure::from));
        if let Err(failure) = applied {
            (self.config, self.confined) = (config, confined);
            return Err(failure);
        }
        self.neighbours.relay = relay;
        self.change_relay();
        Ok(())
    }

    /// Tells who has the sockets what holds from now on.
    fn change_relay(&self) {
        let Some(relay) = &self.neighbours.relay else {
            return;
        };
        let change = self.config.connect_udp.clone().map(|udp| {
            let policy = Policy {
                // What each client may reach by itself was asked when its flow began.
                reaches: [Reach::everything(), udp.reach.clone()],
                ports: udp.ports.clone(),
                host: self.host.clone(),
                lans: self.lans.all(),
            };
            (udp, policy)
        });
        relay.post(Order::Change(change.map(Box::new)));
    }
}
