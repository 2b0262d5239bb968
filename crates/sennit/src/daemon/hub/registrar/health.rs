//! Whether the store and the host do what the hub needs of them.
//!
//! Who asks for the status hears of what they do not.

use std::{
    error::Error as _,
    net::IpAddr,
    time::{Duration, Instant, SystemTime},
};

use sennit_linux::Lost;

use super::Registrar;
use crate::{
    config::Prefix,
    daemon::hub::condition::Trouble,
    lan::Host,
    site::SiteName,
    status::LeasedPool,
    store::{Lease, StoreError},
};

/// The journal hears of what others took from the host so often at most.
const TOLD_EVERY: Duration = Duration::from_secs(600);

impl Registrar {
    /// Whether the store could be read.
    pub(super) fn note_reading(&self, error: Option<&StoreError>) {
        let found = error.map(|error| {
            format!("its store cannot be read, so that no site can join or come back: {error}")
        });
        self.neighbours.condition.note(Trouble::Reading, found);
    }

    fn note_writing(&self, error: Option<&StoreError>) {
        let found = error
            .map(|error| format!("its store cannot be written, so that no site can join: {error}"));
        self.neighbours.condition.note(Trouble::Writing, found);
    }

    /// The addresses of a site; who asks for the status hears of a pool that has none for it.
    pub(super) fn lease(&mut self, site: &SiteName) -> Result<Lease, StoreError> {
        let lease = self.store.lease(site, &self.config.pool);
        if let Err(StoreError::PoolExhausted { pool }) = &lease {
            let found = format!(
                "no address is left in pool {pool}, so that no other site can come: revoke those \
                 that are gone for good, or make `pool` larger"
            );
            self.neighbours.condition.note(Trouble::Pool, Some(found));
        }
        lease
    }

    /// So many addresses are leased.
    pub(super) fn note_pools(&self, pools: Vec<LeasedPool>) {
        let condition = &self.neighbours.condition;
        if pools.iter().all(|pool| pool.free != Some(0)) {
            condition.note(Trouble::Pool, None);
        }
        condition.note_pools(pools);
    }

    /// Sees to it that the host still does what it was made to do.
    pub(super) fn look_after_host(&mut self) {
        self.look_after_filter();
        if let Some(gateway) = self.neighbours.gateway.upgrade() {
            let condition = &self.neighbours.condition;
            condition.note(Trouble::Forwarding, gateway.does_not_forward());
        }
    }

    /// Sees to it that the host still keeps sites to what they may reach.
    fn look_after_filter(&self) {
        let found = self.hold_filter().err().map(|error| {
            let what = "cannot see that sites are kept to what they may reach";
            format!("{what}: {}", with_source(&error))
        });
        let condition = &self.neighbours.condition;
        if condition.note(Trouble::Filter, found.clone()) {
            tracing::error!("{}", found.unwrap_or_default());
        }
    }

    pub(super) fn learn_host(&mut self) -> Result<(), sennit_linux::Error> {
        let Some(gateway) = self.neighbours.gateway.upgrade() else {
            return Ok(());
        };
        let lost = gateway.refresh();
        self.tell_of_lost(lost, Instant::now());
        let condition = &self.neighbours.condition;
        for chain in condition.note_blockers(gateway.blockers()) {
            tracing::warn!(
                chain,
                "this chain drops forwarded packets, and sites may not reach the internet: let it accept \
                 what comes from and goes to the TUN device"
            );
        }
        self.keep_host(gateway.host())
    }

    /// The journal hears of what was put back, and not often: it is to keep what else happened.
    fn tell_of_lost(&mut self, lost: Lost, now: Instant) {
        self.untold += lost;
        let was_told = self.told_lost.is_some_and(|at| now < at + TOLD_EVERY);
        if self.untold.is_nothing() || was_told {
            return;
        }
        self.told_lost = Some(now);
        let lost = std::mem::take(&mut self.untold);
        tracing::warn!(
            ?lost,
            "addresses, routes or rules of this hub were missing on this host, and are put back"
        );
        self.neighbours.journal.note(lost.into());
    }

    /// What was known before stays if the kernel could not say it.
    pub(super) fn keep_host(
        &mut self,
        found: Result<(Host, Vec<Prefix>), sennit_linux::Error>,
    ) -> Result<(), sennit_linux::Error> {
        (self.host, self.networks) = found?;
        let remembered = self.store.set_host(&self.host);
        self.note_writing(remembered.as_ref().err());
        if let Err(error) = remembered {
            tracing::warn!(%error, "cannot remember the hub's addresses");
        }
        Ok(())
    }

    pub(super) fn note_who_is_here(&mut self) {
        let here = self.neighbours.directory.outer().into_iter();
        let here =
            here.filter_map(|(site, from)| Some((site.parse().ok()?, from.into_iter().collect())));
        let here: Vec<(SiteName, Vec<IpAddr>)> = here.collect();
        if let Err(error) = self.store.saw(&here, SystemTime::now()) {
            tracing::warn!(%error, "cannot remember which sites are here");
            self.note_writing(Some(&error));
        }
    }
}

/// What the host said besides is in the source.
fn with_source(error: &sennit_linux::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
