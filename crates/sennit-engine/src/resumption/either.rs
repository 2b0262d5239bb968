//! Tickets of two kinds, for one connection of a server.
//!
//! A sealed ticket outlives the server, but whoever shows it may have shown it before. A kept
//! session is in the server's memory and is taken out by whoever shows it first, so that early data
//! comes with it once. rustls has one kind or the other, and asks each time which it is.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use rustls::{
    ServerConfig,
    server::{ProducesTickets, StoresServerSessions},
};

/// So many of a connection's tickets are sealed, the others are of kept sessions.
const SEALED: usize = 2;

pub(super) struct Either {
    sealed: Arc<dyn ProducesTickets>,
    kept: Arc<dyn StoresServerSessions>,
    /// Sealed tickets that are still to be given.
    left: AtomicUsize,
    /// The ClientHello that is being read has shown a kept session.
    is_kept: AtomicBool,
}

impl Either {
    pub(super) fn of(tls: &ServerConfig) -> Self {
        let left = if tls.ticketer.enabled() { SEALED } else { 0 };
        Self {
            sealed: Arc::clone(&tls.ticketer),
            kept: Arc::clone(&tls.session_storage),
            left: AtomicUsize::new(left),
            is_kept: AtomicBool::new(false),
        }
    }

    /// The ClientHello was read: what was decided by its ticket is decided.
    pub(super) fn settle(&self) {
        self.is_kept.store(false, Relaxed);
    }
}

impl ProducesTickets for Either {
    /// Whether the next ticket is a sealed one.
    fn enabled(&self) -> bool {
        self.left.load(Relaxed) > 0 && !self.is_kept.load(Relaxed)
    }

    fn lifetime(&self) -> u32 {
        self.sealed.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.left.fetch_sub(1, Relaxed);
        self.sealed.encrypt(plain)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let kept = self.kept.take(ticket);
        self.is_kept.store(kept.is_some(), Relaxed);
        kept.or_else(|| self.sealed.decrypt(ticket))
    }
}

impl fmt::Debug for Either {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Either").finish_non_exhaustive()
    }
}
