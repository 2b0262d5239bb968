//! Tickets that let an edge come back with half a handshake (RFC 8446 §2.2).
//!
//! A ticket is what the hub knows of the session, sealed with a key of the hub's; in it is the
//! certificate that the site showed, which is looked up in the store at each request as ever. The
//! keys are in the state directory, so a hub that was restarted takes the tickets that it gave out
//! before. A key seals for half a day and opens for another whole one, then it is gone for good.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use rustls::server::ProducesTickets;
use zeroize::Zeroizing;

use super::files::{self, Access};
use super::{IdentityError, Secret};

const FILE: &str = "ticket-keys";
/// How long a key seals.
const SEALS_FOR: Duration = Duration::from_secs(12 * 3600);
/// How long a ticket is good at least: what an edge is told.
const GOOD_FOR: Duration = Duration::from_secs(24 * 3600);
/// Bytes of a key's name, which is in front of what it sealed.
const NAME: usize = 8;

/// A key and when it was made, in seconds since 1970.
struct Key {
    made: u64,
    secret: Secret,
    name: [u8; NAME],
    seal: RandomizedNonceKey,
}

impl Key {
    fn new(made: u64, secret: Secret) -> Option<Self> {
        let seal = RandomizedNonceKey::new(&AES_256_GCM, secret.as_bytes()).ok()?;
        let name = *secret.hash().first_chunk()?;
        Some(Self {
            made,
            secret,
            name,
            seal,
        })
    }

    /// Whether it was made within this time. A key of the future is of a clock that was wrong.
    fn is_within(&self, span: Duration, now: u64) -> bool {
        (self.made..self.made.saturating_add(span.as_secs())).contains(&now)
    }
}

/// The keys of a hub, for all its workers.
pub struct Tickets {
    path: PathBuf,
    /// Newest first.
    keys: RwLock<Vec<Key>>,
}

impl Tickets {
    /// The keys in a hub's state directory. A file that makes no sense is set aside, and so is one
    /// that others can read: edges then shake hands as if they came for the first time.
    pub fn load(state: &Path, now: SystemTime) -> Self {
        let path = state.join(FILE);
        let keys = read(&path).unwrap_or_else(|error| {
            let aside = path.with_added_extension("damaged");
            let kept = files::rename_if_any(&path, aside.file_name().unwrap_or_default());
            let kept =
                kept.map_or_else(|error| error.to_string(), |()| aside.display().to_string());
            tracing::warn!(
                %error, kept,
                "the keys of tickets are made anew: edges shake hands in full once"
            );
            Vec::new()
        });
        let tickets = Self {
            path,
            keys: RwLock::new(keys),
        };
        tickets.rotate(now);
        tickets
    }

    /// Forgets all keys, which may have been stolen: edges shake hands in full once.
    pub fn forget(&self, now: SystemTime) {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        keys.clear();
        drop(keys);
        self.rotate(now);
    }

    /// Makes a new key if it is time, and forgets those that are too old. What cannot be written is
    /// used all the same, but not after a restart.
    pub fn rotate(&self, now: SystemTime) {
        let now = seconds(now);
        let keeps = SEALS_FOR + GOOD_FOR;
        {
            let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
            let seals = keys
                .first()
                .is_some_and(|key| key.is_within(SEALS_FOR, now));
            if seals && keys.iter().all(|key| key.is_within(keeps, now)) {
                return;
            }
        }
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|key| key.is_within(keeps, now));
        if !keys
            .first()
            .is_some_and(|key| key.is_within(SEALS_FOR, now))
        {
            keys.splice(0..0, Key::new(now, Secret::random()));
        }
        let text = text(&keys);
        drop(keys);
        if let Err(error) = files::write(&self.path, Access::Private, text.as_bytes()) {
            tracing::warn!(%error, "tickets will be of no use after a restart");
        }
    }
}

/// Removes the keys from the disk.
pub(super) fn forget(state: &Path) -> Result<(), IdentityError> {
    files::remove_if_any(&state.join(FILE))
}

/// A line for each key: when it was made, and its secret.
fn text(keys: &[Key]) -> Zeroizing<String> {
    let line = |key: &Key| {
        let secret = key.secret.to_base64();
        Zeroizing::new(format!("{} {}\n", key.made, secret.as_str()))
    };
    let lines: Vec<_> = keys.iter().map(line).collect();
    let room = lines.iter().map(|line| line.len()).sum();
    let mut text = Zeroizing::new(String::with_capacity(room));
    lines.iter().for_each(|line| text.push_str(line));
    text
}

/// The keys in a file; none if there is no file.
fn read(path: &Path) -> Result<Vec<Key>, IdentityError> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = files::read_private(path)?;
    let keys: Option<Vec<Key>> = text.lines().map(parse).collect();
    let keys = keys.filter(|keys| !keys.is_empty());
    keys.ok_or_else(|| IdentityError::Damaged {
        path: path.into(),
        what: "a line of it is no time and key".into(),
    })
}

fn parse(line: &str) -> Option<Key> {
    let (made, secret) = line.split_once(' ')?;
    Key::new(made.parse().ok()?, Secret::from_base64(secret)?)
}

fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        GOOD_FOR.as_secs() as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let key = keys.first()?;
        let mut sealed = plain.to_vec();
        let nonce = key
            .seal
            .seal_in_place_append_tag(Aad::from(key.name), &mut sealed)
            .ok()?;
        Some([&key.name[..], nonce.as_ref(), &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let key = keys.iter().find(|key| key.name == *name)?;
        let mut opened = sealed.to_vec();
        let nonce = Nonce::from(nonce);
        let length = key
            .seal
            .open_in_place(nonce, Aad::from(*name), &mut opened)
            .ok()?
            .len();
        opened.truncate(length);
        Some(opened)
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_ticket_opens_for_a_day_and_across_a_restart() {
        let state = tempfile::tempdir().expect("a directory");
        let start = SystemTime::now();
        let tickets = Tickets::load(state.path(), start);
        let ticket = tickets.encrypt(b"session").expect("a key");
        assert_ne!(tickets.encrypt(b"session").expect("a key"), ticket);

        let mut restarted = Tickets::load(state.path(), start + 11 * HOUR);
        for hours in 11..=35 {
            restarted.rotate(start + hours * HOUR);
            assert_eq!(
                restarted.decrypt(&ticket).as_deref(),
                Some(&b"session"[..]),
                "after {hours} hours"
            );
            restarted = Tickets::load(state.path(), start + hours * HOUR);
        }
        restarted.rotate(start + 37 * HOUR);
        assert_eq!(restarted.decrypt(&ticket), None);
        let text = files::read_private(&state.path().join(FILE)).expect("it is private");
        assert_eq!(text.lines().count(), 3, "the first is gone from the disk");
    }

    #[test]
    fn what_the_hub_has_not_sealed_does_not_open() {
        let state = tempfile::tempdir().expect("a directory");
        let tickets = Tickets::load(state.path(), SystemTime::now());
        let ticket = tickets.encrypt(b"session").expect("a key");
        for at in 0..ticket.len() {
            let mut forged = ticket.clone();
            forged[at] ^= 1;
            assert_eq!(tickets.decrypt(&forged), None, "byte {at}");
            assert_eq!(tickets.decrypt(&ticket[..at]), None, "{at} bytes");
        }
        let elsewhere = tempfile::tempdir().expect("a directory");
        let other = Tickets::load(elsewhere.path(), SystemTime::now());
        assert_eq!(other.decrypt(&ticket), None);
    }

    #[test]
    fn a_file_that_others_can_read_or_that_makes_no_sense_is_set_aside() {
        use std::os::unix::fs::PermissionsExt as _;

        let state = tempfile::tempdir().expect("a directory");
        let (path, now) = (state.path().join(FILE), SystemTime::now());
        let ticket = Tickets::load(state.path(), now).encrypt(b"session");
        let ticket = ticket.expect("a key");
        let open = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(&path, open).expect("it is ours");
        assert_eq!(Tickets::load(state.path(), now).decrypt(&ticket), None);

        let good = std::fs::read_to_string(&path).expect("it is ours");
        let unparted = good.replace(' ', "");
        for text in ["", "\n", "yesterday secret\n", &unparted, &good[..30]] {
            std::fs::write(&path, text).expect("it is ours");
            let tickets = Tickets::load(state.path(), now);
            let ticket = tickets.encrypt(b"session").expect("a key");
            assert!(tickets.decrypt(&ticket).is_some(), "{text:?}");
            let aside = std::fs::read_to_string(state.path().join("ticket-keys.damaged"));
            assert_eq!(aside.expect("it is set aside"), text);
            let mode = std::fs::metadata(&path)
                .expect("a file")
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}
