//! Another authority: noticed in the state directory, told to sites, and dropped.

use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use sennit_engine::Grant;
use sennit_masque::capsule::NextAuthority;

use super::{Registrar, Verdict};
use crate::{
    daemon::hub::condition::Trouble,
    identity::{self, Authority, Fingerprint, HubIdentity, IdentityError},
    journal::Event,
    store::{AuthorityStep, Digest},
};

/// Sites that an event names.
const MOST_NAMED: usize = 100;

impl Registrar {
    /// Goes by the authorities that are in the state directory, if these are others by now.
    pub(super) fn look_after_authority(&mut self, now: SystemTime) {
        let mark = Some(identity::mark(&self.config.state));
        if mark == self.mark {
            return;
        }
        let followed = self.follow_authority(now);
        if followed.is_ok() {
            self.mark = mark;
        }
        let found = followed.err().map(|error| {
            format!("its authority was changed, and it cannot follow: {error}; start it again")
        });
        let condition = &self.neighbours.condition;
        if condition.note(Trouble::Authority, found.clone()) {
            tracing::error!("{}", found.unwrap_or_default());
        }
    }

    fn follow_authority(&mut self, now: SystemTime) -> Result<(), IdentityError> {
        let identity = HubIdentity::load(&self.config.state)?;
        self.neighbours.trust.follow(&identity)?;
        let authorities = identity.into_authorities();
        let trusted: Vec<Digest> = digests(&authorities).collect();
        let dropped = digests(&self.authorities).any(|it| !trusted.contains(&it));
        if dropped {
            // First of all: whoever has stolen a key can do without anything that may fail here.
            self.tickets.forget(now);
        }
        self.store.trust_only(&trusted)?;
        self.authorities = authorities;
        if dropped {
            tracing::info!("the former authority is dropped");
            self.review(now, |_| true);
        }
        self.note_rotation(now);
        if trusted.len() > 1 {
            tracing::info!(sites = self.behind, "sites are told of another authority");
            self.offer();
        }
        // What was cut short there is over in the store too, and the journal may have to tell it.
        identity::reconcile(&self.config.state, &mut self.store, now)?;
        self.is_behind |= !self.tell_of_authority();
        Ok(())
    }

    /// Tells those who are here by a certificate of the former authority.
    fn offer(&self) {
        for admission in self.admitted.values() {
            let digest = *admission.proof.digest();
            let Some(next) = self.next_of(&digest) else {
                continue;
            };
            for worker in &*self.neighbours.verdicts {
                worker.post(Verdict::Offer(digest, next));
            }
        }
    }

    /// The authority that a site should move to which is granted a tunnel. Whether it moves at all,
    /// and whether it has kept a certificate of the present authority, is remembered.
    pub(super) fn next_for(
        &mut self,
        grant: &Grant,
        moves: bool,
        now: SystemTime,
    ) -> Option<NextAuthority> {
        if let Err(error) = self.store.note_moves(grant.site.as_str(), moves) {
            tracing::warn!(%error, "cannot remember what a site can do");
        }
        self.note_certificate(&grant.credential, now);
        self.next_of(&grant.credential)
    }

    /// Remembers that a site has kept the certificate of the present authority that it shows.
    pub(super) fn note_shown(&mut self, certificates: &[CertificateDer<'static>], now: SystemTime) {
        if let Some(leaf) = certificates.first() {
            self.note_certificate(Fingerprint::of(leaf).as_bytes(), now);
        }
    }

    fn note_certificate(&mut self, digest: &Digest, now: SystemTime) {
        if self.authorities.len() < 2 || self.next_of(digest).is_some() {
            return;
        }
        match self.store.note_shown(digest) {
            Ok(true) => self.note_rotation(now),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "cannot remember that a site has moved"),
        }
    }

    /// The authority that a site should move to which shows this certificate.
    fn next_of(&self, digest: &Digest) -> Option<NextAuthority> {
        let present = digests(&self.authorities).next()?;
        let shown = self.store.certificate(digest).ok().flatten()?;
        let is_other = self.authorities.len() > 1 && shown.authority != Some(present);
        is_other.then(|| NextAuthority {
            fingerprint: present,
            within: identity::renewals_within(self.behind),
        })
    }

    /// Has the journal tell what an operator did to the authority, also while no hub ran; whether
    /// that could be found out.
    pub(super) fn tell_of_authority(&mut self) -> bool {
        match self.store.take_authority_steps() {
            Ok(steps) => {
                for step in steps {
                    self.neighbours.journal.note(event(step));
                }
                true
            }
            Err(error) => {
                tracing::warn!(%error, "cannot find out what was done to the authority");
                false
            }
        }
    }

    /// Tells those who ask for the status how far a rotation is.
    pub(super) fn note_rotation(&mut self, now: SystemTime) {
        let found = match &self.authorities[..] {
            [present, former] => {
                let [present, former] = [present, former].map(Authority::fingerprint);
                identity::rotation_of(&self.store, present, former, now).map(Some)
            }
            _ => Ok(None),
        };
        match found {
            Ok(rotation) => {
                self.behind = rotation.as_ref().map_or(0, |it| it.behind.len());
                let present = self.authorities.first().map(Authority::fingerprint);
                let condition = &self.neighbours.condition;
                condition.note_authority(present, rotation.as_ref());
            }
            Err(error) => tracing::warn!(%error, "cannot find out how far the rotation is"),
        }
    }
}

fn event(step: AuthorityStep) -> Event {
    let words = |present| Fingerprint::from_bytes(present).to_string();
    match step {
        AuthorityStep::Begun { present } => Event::AuthorityRotated {
            authority: words(present),
        },
        AuthorityStep::Finished {
            present,
            mut locked_out,
        } => {
            let more_locked_out = locked_out.len().saturating_sub(MOST_NAMED) as u64;
            locked_out.truncate(MOST_NAMED);
            Event::AuthorityFinished {
                authority: words(present),
                locked_out,
                more_locked_out,
            }
        }
    }
}

fn digests(authorities: &[Authority]) -> impl Iterator<Item = Digest> {
    authorities.iter().map(|it| *it.fingerprint().as_bytes())
}
