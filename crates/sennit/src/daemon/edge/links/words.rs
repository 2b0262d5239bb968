//! What is said of a link: in the log, the journal and the status.

use std::time::Instant;

use super::{Complaint, Link, PAUSED, REFUSED_LATELY, RESTS, Refusal};
use crate::{
    config,
    journal::{Event, Journal},
    status::{LinkCause, LinkState, LinkStatus, LinkTraffic},
};

impl Link {
    pub(super) fn log(&self) {
        let config::Link {
            name, interface, ..
        } = &self.config;
        match &self.complaint {
            Some(Complaint { text: reason, .. }) => {
                tracing::warn!(link = name, interface, reason, "link is down");
            }
            None => tracing::info!(link = name, interface, "link is up"),
        }
    }

    pub(super) fn event(&self) -> Event {
        let link = self.config.name.clone();
        match &self.complaint {
            Some(Complaint { cause, text }) => Event::LinkDown {
                link,
                cause: *cause,
                reason: text.clone(),
            },
            None => Event::LinkUp { link },
        }
    }

    /// Says that it is lost on purpose from now on, or no longer.
    pub(super) fn tell_drill(&self, cut: bool, journal: &Journal) {
        let link = self.config.name.clone();
        tracing::info!(link, cut, "drill");
        journal.note(match cut {
            true => Event::DrillStarted { link },
            false => Event::DrillEnded { link },
        });
    }

    pub(super) fn refused(&self, now: Instant) -> Option<String> {
        let Refusal { error, since, last } = self.refusal.as_ref()?;
        let lately = now.saturating_duration_since(*last) < REFUSED_LATELY;
        let seconds = now.saturating_duration_since(*since).as_secs();
        lately.then(|| {
            format!("for {seconds} s the local firewall has refused to send on this link ({error})")
        })
    }

    /// Why its operator wants it to carry nothing, for now or until it is resumed, if it is so.
    pub(super) fn off(&self) -> Option<&'static str> {
        match (self.paused, self.rests_until) {
            (true, _) => Some(PAUSED),
            (false, Some(_)) => Some(RESTS),
            (false, None) => None,
        }
    }

    /// `first` is the best rank that any link has.
    pub(super) fn status(&self, first: u8, now: Instant) -> LinkStatus {
        let off = self.off();
        let up = self.bound.iter().any(Option::is_some) && off.is_none();
        let (cause, reason) = match (&self.complaint, off) {
            (Some(Complaint { cause, text }), _) => (Some(*cause), Some(text.clone())),
            (None, Some(why)) => (Some(LinkCause::Paused), Some(why.to_owned())),
            (None, None) => (None, None),
        };
        LinkStatus {
            name: self.config.name.clone(),
            interface: self.config.interface.clone(),
            address: self.bound[0].or(self.bound[1]).map(|bound| bound.address),
            public: Vec::new(),
            tier: self.config.tier,
            weight: self.config.weight,
            state: if up { LinkState::Up } else { LinkState::Down },
            cause,
            reason,
            hub: self.refused(now),
            since_seconds: now.saturating_duration_since(self.since).as_secs_f64(),
            standby: self.rank > first,
            up_limit_bytes_per_second: None,
            down_limit_bytes_per_second: None,
            limited_by_operator: false,
            up_limited_by_operator: false,
            down_limited_by_operator: false,
            sent_bytes_per_second: None,
            received_bytes_per_second: None,
            account: None,
            traffic: LinkTraffic::default(),
        }
    }
}
