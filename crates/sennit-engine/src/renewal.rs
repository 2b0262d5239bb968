//! The keys of a connection and their renewal (RFC 9001 §6), in place of noq's.
//!
//! noq 1.4 tells packets under the old keys from those under the next by comparing packet
//! numbers, which are of different paths, and cannot read what is on the way on some paths while
//! keys change. It also says itself when that is. So noq is shown one pair of keys that never
//! changes (docs/decisions/0032): [`Keys::wrapped`] puts the bit of the phase right on the way out,
//! hides it on the way in, and seals and opens with the keys that the phase stands for.
//!
//! - A *generation* of keys is one pair, for both directions. Its number says what the bit is.
//! - An end renews after so much was sent ([`Rekey`]), but not before the peer has shown that it
//!   has the present generation, and the one before is forgotten. The engine says when that may be
//!   ([`Keys::handle_time`]), because nobody else has a clock.
//! - What comes under the other bit is of the generation before, as long as that is kept and no
//!   earlier packet of its path was of the present one; or else of the next, and then the peer has
//!   renewed, and so does this end. Only a packet that opens changes anything.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::BytesMut;
use noq_proto::{
    PathId,
    crypto::{self, CryptoError, HeaderKey, KeyPair, PacketKey},
};

/// Key Phase of a short header (RFC 9000 §17.3.1).
const PHASE: u8 = 0x04;
/// A short header: flags, connection ID and packet number.
const LONGEST_HEADER: usize = 1 + 20 + 4;

/// How much one generation of keys seals before it is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rekey {
    /// Packets that this end sends.
    pub packets: u64,
    /// Bytes that this end sends.
    pub bytes: u64,
}

impl Rekey {
    /// AES-GCM seals 2^23 packets with one key at most (RFC 9001 §6.6): an eighth of that.
    pub const PACKETS: u64 = 1 << 20;
}

impl Default for Rekey {
    fn default() -> Self {
        Self {
            packets: Self::PACKETS,
            bytes: u64::MAX,
        }
    }
}

/// The keys may not be used any more (RFC 9001 §6.6), because the peer has never shown that it has
/// them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

/// Where the next pair comes from.
pub(crate) trait Source: Send {
    fn next(&mut self) -> Option<Pair>;
}

pub(crate) type Pair = KeyPair<Box<dyn PacketKey>>;

/// The keys of one connection.
pub(crate) struct Keys {
    state: Mutex<State>,
    /// First byte of the header that was read last, as the peer has sealed it.
    first: AtomicU8,
    /// The phase that noq believes in, of which it takes one pair in advance.
    shown: AtomicU8,
}

struct State {
    generation: u64,
    present: Pair,
    /// Made beforehand, so that nobody can tell from how long it takes (RFC 9001 §9.5).
    next: Option<Pair>,
    previous: Option<Previous>,
    source: Box<dyn Source>,
    /// The peer has sent something under the present keys.
    confirmed: bool,
    /// Sealed with the present keys.
    packets: u64,
    bytes: u64,
}

/// The generation before.
struct Previous {
    remote: Box<dyn PacketKey>,
    /// When it was first known that the peer has the present one.
    since: Option<Instant>,
    /// The first packet of each path that was of the present one.
    firsts: Vec<(PathId, u64)>,
}

impl Previous {
    /// Whether a packet may be of it: what comes later on a path is never of older keys
    /// (RFC 9001 §6.4).
    fn may_have(&self, path: PathId, number: u64) -> bool {
        let first = self.firsts.iter().find(|(known, _)| *known == path);
        first.is_none_or(|&(_, first)| number < first)
    }

    fn note(&mut self, path: PathId, number: u64) {
        match self.firsts.iter_mut().find(|(known, _)| *known == path) {
            Some((_, first)) => *first = number.min(*first),
            None => self.firsts.push((path, number)),
        }
    }
}

impl Keys {
    pub(crate) fn new(present: Pair, mut source: Box<dyn Source>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                generation: 0,
                present,
                next: source.next(),
                previous: None,
                source,
                confirmed: false,
                packets: 0,
                bytes: 0,
            }),
            first: AtomicU8::new(0),
            shown: AtomicU8::new(PHASE),
        })
    }

    /// What noq holds of them.
    pub(crate) fn wrapped(self: &Arc<Self>, header: KeyPair<Box<dyn HeaderKey>>) -> crypto::Keys {
        let remote = Header {
            inner: header.remote,
            keys: Arc::clone(self),
        };
        crypto::Keys {
            header: KeyPair {
                local: header.local,
                remote: Box::new(remote),
            },
            packet: self.pair(),
        }
    }

    /// What noq has in every phase.
    fn pair(self: &Arc<Self>) -> Pair {
        let half = || Box::new(Packet(Arc::clone(self)));
        KeyPair {
            local: half(),
            remote: half(),
        }
    }

    /// The pair that noq takes for the next, in advance of its next phase.
    pub(crate) fn next_pair(self: &Arc<Self>) -> Pair {
        self.shown.fetch_xor(PHASE, Ordering::Relaxed);
        self.pair()
    }

    /// How often they were renewed, by either end.
    pub(crate) fn renewals(&self) -> u64 {
        self.state().generation
    }

    /// Forgets the keys before the present ones once nothing that is sealed with them can be on its
    /// way any more, for which the peer gets `patience`; renews the present ones if that is due
    /// (RFC 9001 §6.1, §6.5).
    pub(crate) fn handle_time(
        &self,
        rekey: Rekey,
        patience: impl FnOnce() -> Duration,
        now: Instant,
    ) -> Result<(), Exhausted> {
        let mut state = self.state();
        let state = &mut *state;
        if let Some(previous) = &mut state.previous
            && state.confirmed
            && *previous.since.get_or_insert(now) + patience() <= now
        {
            state.previous = None;
        }
        if state.packets < rekey.packets && state.bytes < rekey.bytes {
            return Ok(());
        }
        if state.confirmed && state.previous.is_none() {
            state.renew();
        } else if state.packets >= state.present.local.confidentiality_limit() {
            return Err(Exhausted);
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn phase(&self) -> u8 {
        if self.generation.is_multiple_of(2) {
            0
        } else {
            PHASE
        }
    }

    /// The next generation becomes the present one; without one it stays.
    fn renew(&mut self) {
        let Some(next) = self.next.take() else {
            return;
        };
        let old = std::mem::replace(&mut self.present, next);
        self.next = self.source.next();
        self.previous = Some(Previous {
            remote: old.remote,
            since: None,
            firsts: Vec::new(),
        });
        self.generation += 1;
        self.confirmed = false;
        (self.packets, self.bytes) = (0, 0);
    }

    fn encrypt(&mut self, path: PathId, number: u64, packet: &mut [u8], header_len: usize) {
        if let Some(first) = packet.first_mut() {
            *first = (*first & !PHASE) | self.phase();
        }
        self.present.local.encrypt(path, number, packet, header_len);
        self.packets += 1;
        self.bytes += packet.len() as u64;
    }

    fn decrypt(
        &mut self,
        path: PathId,
        number: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        let phase = header.first().ok_or(CryptoError)? & PHASE;
        if phase == self.phase() {
            self.present.remote.decrypt(path, number, header, payload)?;
            self.note_present(path, number);
            return Ok(());
        }
        if let Some(previous) = &self.previous
            && previous.may_have(path, number)
        {
            // A key that does not fit spoils what it is tried on.
            let sealed = payload.clone();
            if previous
                .remote
                .decrypt(path, number, header, payload)
                .is_ok()
            {
                return Ok(());
            }
            *payload = sealed;
        }
        // Nobody may go on twice before this end has (RFC 9001 §6.2).
        if self.generation > 0 && self.packets == 0 {
            return Err(CryptoError);
        }
        let next = self.next.as_ref().ok_or(CryptoError)?;
        next.remote.decrypt(path, number, header, payload)?;
        self.renew();
        self.note_present(path, number);
        Ok(())
    }

    fn note_present(&mut self, path: PathId, number: u64) {
        self.confirmed = true;
        if let Some(previous) = &mut self.previous {
            previous.note(path, number);
        }
    }
}

/// Takes the protection off headers and shows noq the phase that it expects.
struct Header {
    inner: Box<dyn HeaderKey>,
    keys: Arc<Keys>,
}

impl HeaderKey for Header {
    fn decrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        self.inner.decrypt(pn_offset, packet);
        if let Some(first) = packet.first_mut() {
            self.keys.first.store(*first, Ordering::Relaxed);
            *first = (*first & !PHASE) | self.keys.shown.load(Ordering::Relaxed);
        }
    }

    fn encrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        self.inner.encrypt(pn_offset, packet);
    }

    fn sample_size(&self) -> usize {
        self.inner.sample_size()
    }
}

/// Seals and opens with whatever keys are those of the phase.
struct Packet(Arc<Keys>);

impl PacketKey for Packet {
    fn encrypt(&self, path: PathId, number: u64, packet: &mut [u8], header_len: usize) {
        self.0.state().encrypt(path, number, packet, header_len);
    }

    fn decrypt(
        &self,
        path: PathId,
        number: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        let mut sealed = [0; LONGEST_HEADER];
        let sealed = sealed.get_mut(..header.len()).ok_or(CryptoError)?;
        sealed.copy_from_slice(header);
        // noq opens each packet as soon as it has its header.
        *sealed.first_mut().ok_or(CryptoError)? = self.0.first.load(Ordering::Relaxed);
        self.0.state().decrypt(path, number, sealed, payload)
    }

    fn tag_len(&self) -> usize {
        self.0.state().present.local.tag_len()
    }

    /// noq never renews: it is done here.
    fn confidentiality_limit(&self) -> u64 {
        u64::MAX
    }

    fn integrity_limit(&self) -> u64 {
        self.0.state().present.remote.integrity_limit()
    }
}

#[cfg(test)]
mod tests;
