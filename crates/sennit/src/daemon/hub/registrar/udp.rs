//! Who has UDP proxied, and to whom (RFC 9298).

use std::{net::IpAddr, sync::mpsc::SyncSender, time::SystemTime};

use sennit_engine::UdpRefusal;
use sennit_masque::connect_udp::{Host as TargetHost, Target};

use super::{
    Asker, Query, Registrar, Verdict, log,
    targets::{Policy, refused},
};
use crate::{
    daemon::{
        hub::relay::window::{Opening, Order},
        mailbox::Slot,
    },
    identity::{Admission, Refusal},
    reach::Reach,
};

impl Registrar {
    /// Answers a peer: at once, or when the target's name is looked up.
    pub(super) fn answer_udp(
        &mut self,
        asker: Asker,
        Target { host, port }: Target,
        back: SyncSender<Query>,
        now: SystemTime,
    ) {
        match host {
            TargetHost::Address(address) => self.answer_found(&asker, port, Ok(vec![address]), now),
            TargetHost::Name(name) => {
                let (worker, request) = (asker.worker, asker.request);
                if let Err(refusal) = self.look_up(asker, (name, port), back, now) {
                    let verdict = Verdict::RefuseUdp(request, refusal);
                    self.neighbours.verdicts[worker].post(verdict);
                }
            }
        }
    }

    /// Answers a peer whose target is at one of the addresses that were `found`.
    pub(super) fn answer_found(
        &mut self,
        asker: &Asker,
        port: u16,
        found: Result<Vec<IpAddr>, UdpRefusal>,
        now: SystemTime,
    ) {
        self.look_for_changes(now);
        let opened = found.and_then(|found| self.open_flow(asker, found, port, now));
        if let Err(refusal) = opened {
            let verdict = Verdict::RefuseUdp(asker.request, refusal);
            self.neighbours.verdicts[asker.worker].post(verdict);
        }
    }

    /// Has a flow opened if its target is allowed by now.
    fn open_flow(
        &mut self,
        asker: &Asker,
        found: Vec<IpAddr>,
        port: u16,
        now: SystemTime,
    ) -> Result<(), UdpRefusal> {
        let admission = self.known(asker, now)?;
        let relay = self.relay()?.clone();
        let policy = self
            .policy_for(&admission, now)
            .map_err(|refusal| turned_away(&refusal))?;
        let opening = Opening {
            worker: asker.worker,
            request: asker.request,
            site: admission.site.to_string(),
            credential: *admission.proof.digest(),
            targets: policy.allowed(found, port)?,
        };
        self.admitted.insert(admission.proof, admission);
        relay.post(Order::Open(opening));
        Ok(())
    }

    fn look_up(
        &self,
        asker: Asker,
        (name, port): (String, u16),
        back: SyncSender<Query>,
        now: SystemTime,
    ) -> Result<(), UdpRefusal> {
        let client = self.known(&asker, now)?.site;
        self.relay()?;
        self.look_ups.start(client.as_str(), name, move |found| {
            // Fails if the hub has ended meanwhile.
            let _ = back.send(Query::Found { asker, port, found });
        })
    }

    fn known(&self, asker: &Asker, now: SystemTime) -> Result<Admission, UdpRefusal> {
        let known = self.recognize(&asker.certificates, asker.bearer.as_deref(), now);
        known.map_err(|refusal| turned_away(&refusal))
    }

    fn relay(&self) -> Result<&Slot<Order>, UdpRefusal> {
        let relay = self.neighbours.relay.as_ref();
        let relay = relay.filter(|_| self.config.connect_udp.is_some());
        relay.ok_or_else(|| refused(501, "proxy_configuration_error", "UDP is not proxied"))
    }

    fn policy_for(&self, admission: &Admission, now: SystemTime) -> Result<Policy, Refusal> {
        let record = self.store.site(&admission.site, now)?;
        Ok(self.policy(self.reach_of(&record).clone()))
    }

    /// By what the targets are judged of a client that may reach this.
    pub(super) fn policy(&self, client: Reach) -> Policy {
        let udp = self.config.connect_udp.as_ref();
        Policy {
            client,
            section: udp.map_or_else(Default::default, |udp| udp.reach.clone()),
            ports: udp.map_or_else(Vec::new, |udp| udp.ports.clone()),
            host: self.host.clone(),
            lans: self.lans.all(),
        }
    }
}

fn turned_away(refusal: &Refusal) -> UdpRefusal {
    log(refusal, "peer refused");
    UdpRefusal {
        status: refusal.http_status(),
        error: None,
        reason: refusal.to_string(),
    }
}
