//! The tickets that an edge has of its hub.
//!
//! rustls uses a ticket once, also where nobody answers, so enough are kept for a race over all
//! links and for the next ones. They are in memory only.
//!
//! With some, early data may be sent, but a hub that was restarted does not know those any more. So
//! one of them is tried, and until it has brought new ones the others are used, which such a hub
//! takes.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

/// So many of each kind; two links use up as many within a minute in which no hub answers.
const MOST: usize = 32;

/// For one far side, whichever name it has.
#[derive(Default)]
pub(super) struct Kept(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    group: Option<NamedGroup>,
    /// Newest last.
    sealed: VecDeque<Tls13ClientSessionValue>,
    /// Those with which early data may be sent, newest last.
    early: VecDeque<Tls13ClientSessionValue>,
    /// One of these was taken, and no ticket has come since.
    is_tried: bool,
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for Kept {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.lock().group = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.lock().group
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut inner = self.lock();
        inner.is_tried = false;
        let tickets = match value.max_early_data_size() {
            0 => &mut inner.sealed,
            _ => &mut inner.early,
        };
        if tickets.len() >= MOST {
            tickets.pop_front();
        }
        tickets.push_back(value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let mut inner = self.lock();
        if std::mem::replace(&mut inner.is_tried, true) || inner.early.is_empty() {
            let sealed = inner.sealed.pop_back();
            return sealed.or_else(|| inner.early.pop_back());
        }
        inner.early.pop_back()
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}
