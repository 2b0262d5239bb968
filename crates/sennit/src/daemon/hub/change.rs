//! How a hub goes on with another config.
//!
//! First comes what can fail: the sockets of proxied UDP if there are none yet, and what the host
//! lets pass, which the registrar sets. The workers follow when that is done.

use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        mpsc::{self, SyncSender},
    },
};

use sennit_linux::poller::Poller;

use super::{
    RELAYED, engine_config,
    registrar::{Query, Verdict},
    relay::{self, Order, Window},
    running::Running,
};
use crate::{
    config::HubConfig,
    daemon::{
        mailbox::Slot,
        reload::{Applied, tell_all},
        worker::Stop,
    },
    exit::Failure,
};

/// Who has to know of another config; nobody before the hub has started.
#[derive(Debug, Default)]
pub(super) struct Insiders(OnceLock<All>);

pub(super) struct All {
    pub(super) pollers: Vec<Arc<Poller>>,
    pub(super) verdicts: Arc<[Slot<Verdict>]>,
    pub(super) registrar: SyncSender<Query>,
    pub(super) stop: Stop,
    pub(super) relay: Mutex<Relay>,
}

/// The thread with the sockets of proxied UDP, from when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Relay {
    pub(super) orders: Option<Slot<Order>>,
    /// For the workers, until they have them.
    pub(super) windows: Vec<Window>,
}

impl fmt::Debug for All {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("All")
    }
}

impl Relay {
    /// Starts the thread if UDP is to be proxied and it does not run.
    pub(super) fn start_if_needed(
        &mut self,
        config: &HubConfig,
        pollers: &[Arc<Poller>],
        verdicts: &Arc<[Slot<Verdict>]>,
        stop: &Stop,
    ) -> Result<(), Failure> {
        let Some(udp) = config.connect_udp.clone().filter(|_| self.orders.is_none()) else {
            return Ok(());
        };
        let verdicts = Arc::clone(verdicts);
        let (orders, windows) = relay::start(udp, pollers, RELAYED, verdicts, stop.lifeline())?;
        (self.orders, self.windows) = (Some(orders), windows);
        Ok(())
    }
}

impl Insiders {
    pub(super) fn are(&self, all: All) {
        let _ = self.0.set(all);
    }

    /// Has all of them go on with another config, or none.
    pub(super) fn change(&self, next: &Running) -> Result<Applied, Failure> {
        let Some(all) = self.0.get() else {
            return Err(Failure::runtime("the hub has not started yet"));
        };
        let mut relay = all.relay.lock().unwrap_or_else(PoisonError::into_inner);
        relay.start_if_needed(&next.config, &all.pollers, &all.verdicts, &all.stop)?;
        let (answer, answered) = mpsc::channel();
        let query = Query::Change {
            config: Arc::new(next.config.clone()),
            relay: relay.orders.clone(),
            answer,
        };
        let gone = |_| Failure::runtime("the registrar is gone");
        all.registrar.send(query).map_err(|_| gone(()))?;
        answered.recv().map_err(|_| gone(()))??;
        let mut windows = std::mem::take(&mut relay.windows).into_iter();
        let config = engine_config(&next.config, all.verdicts.len());
        Ok(tell_all(&all.verdicts, |_, done| Verdict::Change {
            config: Box::new(config.clone()),
            window: windows.next(),
            done,
        }))
    }
}
