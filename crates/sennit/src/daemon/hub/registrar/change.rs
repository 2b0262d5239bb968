//! Another config: what all sites may, and where UDP is proxied to.

use std::{sync::Arc, time::SystemTime};

use super::Registrar;
use crate::{
    config::HubConfig,
    daemon::{
        hub::relay::window::{Order, Terms},
        mailbox::Slot,
    },
    exit::Failure,
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
        let before = (self.confined.clone(), self.reaches.clone());
        let learnt = self.learn_confined(now).map_err(Failure::from);
        let applied = learnt.and_then(|_| self.apply_filter().map_err(Failure::from));
        if let Err(failure) = applied {
            self.config = config;
            (self.confined, self.reaches) = before;
            return Err(failure);
        }
        self.neighbours.relay = relay;
        self.change_relay();
        Ok(())
    }

    /// Tells who has the sockets what holds from now on, of the flows that there are too.
    pub(super) fn change_relay(&self) {
        let Some(relay) = &self.neighbours.relay else {
            return;
        };
        let change = self.config.connect_udp.clone().map(|udp| Terms {
            udp,
            usual: self.policy(self.config.reach.clone()),
            reaches: self.reaches.clone(),
        });
        relay.post(Order::Change(change.map(Box::new)));
    }
}
