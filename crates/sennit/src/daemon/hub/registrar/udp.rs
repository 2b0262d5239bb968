//! Who has UDP proxied, and to whom (RFC 9298).

use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use sennit_engine::{RequestId, UdpRefusal};
use sennit_masque::connect_udp::{Host as TargetHost, Target};

use super::{
    Registrar, Verdict, log,
    targets::{Policy, refused},
};
use crate::{
    daemon::hub::relay::window::{Opening, Order},
    identity::{Admission, Refusal},
};

impl Registrar {
    /// Answers the request of a peer with these certificates, or this bearer token: at once, or
    /// when the target's name is looked up.
    pub(super) fn answer_udp(
        &mut self,
        (worker, request): (usize, RequestId),
        (certificates, bearer): (&[CertificateDer<'static>], Option<&str>),
        target: Target,
        now: SystemTime,
    ) {
        let known = self.recognize(certificates, bearer, now);
        let known = known.and_then(|admission| {
            let policy = self.policy_for(&admission, now)?;
            Ok((admission, policy))
        });
        let refusal = match known {
            Ok((admission, policy)) => {
                let opening = Opening {
                    worker,
                    request,
                    site: admission.site.to_string(),
                    credential: *admission.proof.digest(),
                    targets: Vec::new(),
                };
                self.admitted.insert(admission.proof, admission);
                match self.settle(opening, policy, target) {
                    Ok(()) => return,
                    Err(refusal) => refusal,
                }
            }
            Err(refusal) => {
                log(&refusal, "peer refused");
                UdpRefusal {
                    status: refusal.http_status(),
                    error: None,
                    reason: refusal.to_string(),
                }
            }
        };
        let verdict = Verdict::RefuseUdp(request, refusal);
        self.neighbours.verdicts[worker].post(verdict);
    }

    fn policy_for(&self, admission: &Admission, now: SystemTime) -> Result<Policy, Refusal> {
        let record = self.store.site(&admission.site, now)?;
        let udp = self.config.connect_udp.as_ref();
        Ok(Policy {
            reaches: [
                self.reach_of(&record).clone(),
                udp.map_or_else(Default::default, |udp| udp.reach.clone()),
            ],
            ports: udp.map_or_else(Vec::new, |udp| udp.ports.clone()),
            host: self.host.clone(),
            lans: self.lans.all(),
        })
    }

    /// Has a flow opened if its target is allowed.
    fn settle(
        &self,
        opening: Opening,
        policy: Policy,
        Target { host, port }: Target,
    ) -> Result<(), UdpRefusal> {
        let relay = self.neighbours.relay.clone();
        let Some(relay) = relay.filter(|_| self.config.connect_udp.is_some()) else {
            return Err(refused(
                501,
                "proxy_configuration_error",
                "UDP is not proxied",
            ));
        };
        let name = match host {
            TargetHost::Address(address) => {
                let targets = policy.allowed([address], port)?;
                relay.post(Order::Open(Opening { targets, ..opening }));
                return Ok(());
            }
            TargetHost::Name(name) => name,
        };
        let (client, worker) = (opening.site.clone(), opening.worker);
        let verdicts = self.neighbours.verdicts.clone();
        self.look_ups.start(&client, name, move |found| {
            match found.and_then(|addresses| policy.allowed(addresses, port)) {
                Ok(targets) => relay.post(Order::Open(Opening { targets, ..opening })),
                Err(refusal) => {
                    verdicts[worker].post(Verdict::RefuseUdp(opening.request, refusal));
                }
            }
        })
    }
}
